//! The blocks that are remembered as evicted: a queue in the order of their evictions.
//!
//! Memory: 27 bytes for each block that it may hold, and 11 in the index.

use super::pool::{Block, Entry, GROUP_BITS, NONE, Pool};

/// Bits of an entry's number.
const NUMBER_BITS: u32 = (NONE + 1).ilog2();

/// A block that was evicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evicted {
    hash: u64,
    pub t: i64,
    /// From the lowest bits: the entry before it in the queue, the entry after it, the group.
    packed: u64,
}

const _: () = assert!(2 * NUMBER_BITS + GROUP_BITS <= 64);

impl Entry for Evicted {
    #[inline(always)]
    fn key(&self) -> (u32, u64) {
        ((self.packed >> (2 * NUMBER_BITS)) as u32, self.hash)
    }
}

impl Evicted {
    fn new(block: Block, t: i64, before: u32) -> Self {
        let links = u64::from(before) | u64::from(NONE) << NUMBER_BITS;
        Self { hash: block.hash, t, packed: u64::from(block.group) << (2 * NUMBER_BITS) | links }
    }

    #[inline(always)]
    pub(super) fn before(&self) -> u32 {
        self.packed as u32 & NONE
    }

    #[inline(always)]
    pub(super) fn after(&self) -> u32 {
        (self.packed >> NUMBER_BITS) as u32 & NONE
    }

    fn set_before(&mut self, number: u32) {
        self.packed = self.packed & !u64::from(NONE) | u64::from(number);
    }

    fn set_after(&mut self, number: u32) {
        self.packed = self.packed & !(u64::from(NONE) << NUMBER_BITS) | u64::from(number) << NUMBER_BITS;
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ghost {
    pool: Pool<Evicted>,
    front: u32,
    back: u32,
}

impl Ghost {
    pub(super) fn new(limit: u32, reserved: bool) -> Self {
        Self { pool: Pool::new(limit, reserved), front: NONE, back: NONE }
    }

    pub(super) fn pool(&self) -> &Pool<Evicted> {
        &self.pool
    }

    /// Adds a block at the back: its number; none where there is no room.
    #[inline]
    pub(super) fn push(&mut self, block: Block, t: i64) -> Option<u32> {
        let number = self.pool.insert(Evicted::new(block, t, self.back))?;
        match self.back {
            NONE => self.front = number,
            back => self.pool.entry_mut(back).set_after(number),
        }
        self.back = number;
        Some(number)
    }

    /// Takes a block out, wherever it stands.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) -> Evicted {
        let evicted = self.pool.remove(number);
        match evicted.before() {
            NONE => self.front = evicted.after(),
            before => self.pool.entry_mut(before).set_after(evicted.after()),
        }
        match evicted.after() {
            NONE => self.back = evicted.before(),
            after => self.pool.entry_mut(after).set_before(evicted.before()),
        }
        evicted
    }

    /// The first of the queue, with its number.
    #[inline]
    pub(super) fn front(&self) -> Option<(u32, &Evicted)> {
        (self.front != NONE).then(|| (self.front, self.pool.entry(self.front)))
    }

    /// The blocks that would have to go, from the front on, if so many more came.
    #[inline]
    pub(super) fn leaving(&self, more: usize) -> impl Iterator<Item = &Evicted> {
        let first = self.front().map(|(_, evicted)| evicted);
        let queue = std::iter::successors(first, |evicted| self.pool.get(evicted.after()));
        queue.take(more.saturating_sub(self.pool.room() as usize))
    }
}
