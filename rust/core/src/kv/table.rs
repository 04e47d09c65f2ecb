//! Blocks by group and hash: numbered entries that keep their numbers, so that they can be linked to each other.
//!
//! Finding, inserting and removing take constant time on average, with two accesses to memory: to the index and to the
//! entry. Numbers are given round by round: the next that is vacant. What is inserted one after another therefore lies
//! close together, and is close at hand when it is taken out in about the same order, as blocks of a cache are. An
//! eighth of the numbers is always vacant, so that the next one is never far. A table that is made with all its room
//! never allocates again.

use super::index::{Index, Place, prefetch};
use crate::bounds::KV_GROUP;

/// What identifies a block, and its hash mixed once for all tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub hash: u64,
    pub group: u32,
    mixed: u64,
}

/// Bits of a group's number.
pub(super) const GROUP_BITS: u32 = (KV_GROUP.max as u64 + 1).ilog2();

impl Block {
    #[inline(always)]
    pub(super) fn new(hash: u64, group: u32) -> Self {
        let key = hash ^ u64::from(group).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ 0xa076_1d64_78bd_642f;
        let product = u128::from(key) * 0xe703_7ed1_a0b4_28db;
        Self { hash, group, mixed: (product >> 64) as u64 ^ product as u64 }
    }
}

/// What a table holds.
pub(super) trait Entry: Copy {
    /// The group and the hash of the block that it is about.
    fn key(&self) -> (u32, u64);

    /// Whether it is about this block.
    #[inline(always)]
    fn is(&self, block: Block) -> bool {
        self.key() == (block.group, block.hash)
    }
}

/// No entry.
pub(super) const NONE: u32 = (1 << 26) - 1;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Table<E> {
    index: Index,
    entries: Vec<E>,
    /// A bit for each entry that is vacant.
    vacant: Vec<u64>,
    /// Where the search for a vacant one goes on: a word of these bits.
    cursor: usize,
    len: u32,
    limit: u32,
}

impl<E: Entry> Table<E> {
    /// An empty table for at most `limit` entries, which is below [`NONE`]; with room for all of them at once or as
    /// they come.
    pub(super) fn new(limit: u32, reserved: bool) -> Self {
        let room = if reserved { limit } else { limit.min(64) } as usize;
        let numbers = numbers(room);
        Self {
            index: Index::new(room),
            entries: Vec::with_capacity(numbers),
            vacant: Vec::with_capacity(numbers.div_ceil(64)),
            cursor: 0,
            len: 0,
            limit,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// How many more entries there may be.
    #[inline(always)]
    pub(super) fn room(&self) -> u32 {
        self.limit - self.len
    }

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Has a block's place in the index brought near.
    #[inline(always)]
    pub(super) fn prefetch(&self, block: Block) {
        self.index.prefetch(block.mixed);
    }

    /// The entry that a block seems to have.
    #[inline(always)]
    pub(super) fn likely(&self, block: Block) -> Option<&E> {
        self.index.likely(block.mixed).and_then(|number| self.entries.get(number as usize))
    }

    /// Has the entry of a number brought near, if there is one.
    #[inline(always)]
    pub(super) fn prefetch_number(&self, number: u32) {
        if let Some(entry) = self.entries.get(number as usize) {
            prefetch(entry);
        }
    }

    /// The place of a block in the index, and the number of its entry.
    #[inline(always)]
    pub(super) fn find(&self, block: Block) -> Option<(Place, u32)> {
        self.index.find(block.mixed, |number| self.entries[number as usize].is(block))
    }

    /// Adds an entry for a block that has none; none where the table is full.
    #[inline]
    pub(super) fn insert(&mut self, block: Block, entry: E) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        if self.len as usize == self.index.room() {
            self.grow();
        }
        let number = self.take_vacant(entry);
        self.index.insert(block.mixed, number);
        self.len += 1;
        Some(number)
    }

    /// Puts an entry where none is.
    #[inline]
    fn take_vacant(&mut self, entry: E) -> u32 {
        if self.entries.len() < numbers(self.len as usize + 1) {
            if self.entries.len().is_multiple_of(64) {
                self.vacant.push(0);
            }
            self.entries.push(entry);
            return self.entries.len() as u32 - 1;
        }
        // As there is one, the search ends.
        while self.vacant[self.cursor] == 0 {
            self.cursor = if self.cursor + 1 == self.vacant.len() { 0 } else { self.cursor + 1 };
        }
        let bits = &mut self.vacant[self.cursor];
        let number = self.cursor * 64 + bits.trailing_zeros() as usize;
        *bits &= *bits - 1;
        self.entries[number] = entry;
        number as u32
    }

    /// Takes out the entry of a block that was found.
    #[inline(always)]
    pub(super) fn remove(&mut self, block: Block, (place, number): (Place, u32)) -> E {
        self.index.remove(block.mixed, place);
        self.vacant[number as usize / 64] |= 1 << (number % 64);
        self.len -= 1;
        self.entries[number as usize]
    }

    #[cold]
    fn grow(&mut self) {
        let room = (self.len as usize * 2).min(self.limit as usize);
        self.index = Index::new(room.max(self.len as usize + 1));
        for (number, entry) in self.entries.iter().enumerate() {
            if self.vacant[number / 64] >> (number % 64) & 1 == 0 {
                let (group, hash) = entry.key();
                self.index.insert(Block::new(hash, group).mixed, number as u32);
            }
        }
    }

    /// Takes everything out.
    pub(super) fn clear(&mut self) {
        self.index.clear();
        self.entries.clear();
        self.vacant.clear();
        (self.cursor, self.len) = (0, 0);
    }

    #[inline(always)]
    pub(super) fn entry(&self, number: u32) -> &E {
        &self.entries[number as usize]
    }

    #[inline(always)]
    pub(super) fn entry_mut(&mut self, number: u32) -> &mut E {
        &mut self.entries[number as usize]
    }
}

/// Numbers for so many entries.
const fn numbers(entries: usize) -> usize {
    entries + entries / 8
}
