//! The blocks that are remembered as evicted: a queue in the order of their evictions, each found by its hash.
//!
//! Memory: 36 bytes for each entry that it may hold, 8 of them in the index.

use super::table::{Block, Entry, GROUP_BITS, NONE, Table};

/// Bits of an entry's number.
const NUMBER_BITS: u32 = (NONE + 1).ilog2();

/// A block that was evicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evicted {
    hash: u64,
    t: i64,
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
    fn block(&self) -> Block {
        let (group, hash) = self.key();
        Block::new(hash, group)
    }

    #[inline(always)]
    fn before(&self) -> u32 {
        self.packed as u32 & NONE
    }

    #[inline(always)]
    fn after(&self) -> u32 {
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
    table: Table<Evicted>,
    front: u32,
    back: u32,
}

impl Ghost {
    pub(super) fn new(limit: u32, reserved: bool) -> Self {
        Self { table: Table::new(limit, reserved), front: NONE, back: NONE }
    }

    pub(super) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(super) fn table(&self) -> &Table<Evicted> {
        &self.table
    }

    /// Has the places in the index brought near of the blocks that so many new ones will make it forget.
    #[inline]
    pub(super) fn prefetch_front(&self, new: usize) {
        let mut number = self.front;
        for _ in self.table.room() as usize..new {
            if number == NONE {
                break;
            }
            let oldest = self.table.entry(number);
            self.table.prefetch(oldest.block());
            number = oldest.after();
        }
    }

    /// Has the neighbours brought near of a block that seems to be remembered.
    #[inline]
    pub(super) fn prefetch_beside(&self, block: Block) {
        if let Some(evicted) = self.table.likely(block) {
            self.table.prefetch_number(evicted.before());
            self.table.prefetch_number(evicted.after());
        }
    }

    /// Remembers a block as the newest. Returns the one, maybe itself, that had to be forgotten for want of room.
    #[inline]
    pub(super) fn remember(&mut self, block: Block, t: i64) -> Option<Block> {
        self.recall(block);
        let forgotten = if self.table.is_full() { self.front() } else { None };
        if let Some(oldest) = forgotten {
            self.recall(oldest);
        }
        let Some(number) = self.table.insert(block, Evicted::new(block, t, self.back)) else { return Some(block) };
        match self.back {
            NONE => self.front = number,
            back => self.table.entry_mut(back).set_after(number),
        }
        self.back = number;
        forgotten
    }

    /// Takes a block out of the memory: when it was evicted, if it is remembered.
    #[inline]
    pub(super) fn recall(&mut self, block: Block) -> Option<i64> {
        let found = self.table.find(block)?;
        let evicted = self.table.remove(block, found);
        match evicted.before() {
            NONE => self.front = evicted.after(),
            before => self.table.entry_mut(before).set_after(evicted.after()),
        }
        match evicted.after() {
            NONE => self.back = evicted.before(),
            after => self.table.entry_mut(after).set_before(evicted.before()),
        }
        Some(evicted.t)
    }

    fn front(&self) -> Option<Block> {
        (self.front != NONE).then(|| self.table.entry(self.front).block())
    }

    /// The first of the queue, if it lies more than `ttl_ns` before `newest`.
    #[inline]
    pub(super) fn overdue(&self, newest: i64, ttl_ns: i64) -> Option<Block> {
        let oldest = self.front()?;
        (newest.saturating_sub(self.table.entry(self.front).t) > ttl_ns).then_some(oldest)
    }
}
