//! Numbered entries that keep their numbers, so that they can be linked to each other.
//!
//! Adding and taking out take constant time. Numbers are given round by round: the next that is vacant. What is added
//! one after another therefore lies close together, and is close at hand when it is taken out in about the same order,
//! as blocks of a cache are. An eighth of the numbers is vacant (less in the largest pools that there may be), so that the
//! next one is not far. A pool that is made with all its room never allocates again.

use crate::bounds::{KV_GROUP, KV_REMEMBER};

/// What identifies a block, and that mixed for the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub hash: u64,
    pub group: u32,
    pub mixed: u64,
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

/// What a pool holds.
pub(super) trait Entry: Copy {
    /// The group and the hash of the block that it is about.
    fn key(&self) -> (u32, u64);

    /// Whether it is about this block.
    #[inline(always)]
    fn is(&self, block: Block) -> bool {
        self.key() == (block.group, block.hash)
    }

    /// The block that it is about.
    #[inline(always)]
    fn block(&self) -> Block {
        let (group, hash) = self.key();
        Block::new(hash, group)
    }
}

/// No entry.
pub(super) const NONE: u32 = (1 << 26) - 1;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Pool<E> {
    entries: Vec<E>,
    /// A bit for each entry that is vacant.
    vacant: Vec<u64>,
    /// Where the search for a vacant one goes on: a word of these bits.
    cursor: usize,
    len: u32,
    limit: u32,
}

impl<E: Entry> Pool<E> {
    /// An empty pool for at most `limit` entries, which is below [`NONE`]; with room for all of them at once or as they
    /// come.
    pub(super) fn new(limit: u32, reserved: bool) -> Self {
        let numbers = if reserved { numbers(limit as usize) } else { 0 };
        let (entries, vacant) = (Vec::with_capacity(numbers), Vec::with_capacity(numbers.div_ceil(64)));
        Self { entries, vacant, cursor: 0, len: 0, limit }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// How many more entries there may be.
    #[inline(always)]
    pub(super) fn room(&self) -> u32 {
        self.limit - self.len
    }

    /// Adds an entry: its number; none where the pool is full.
    #[inline]
    pub(super) fn insert(&mut self, entry: E) -> Option<u32> {
        if self.room() == 0 {
            return None;
        }
        self.len += 1;
        if self.entries.len() < numbers(self.len as usize) {
            if self.entries.len().is_multiple_of(64) {
                self.vacant.push(0);
            }
            self.entries.push(entry);
            return Some(self.entries.len() as u32 - 1);
        }
        // As there is one, the search ends.
        while self.vacant[self.cursor] == 0 {
            self.cursor = if self.cursor + 1 == self.vacant.len() { 0 } else { self.cursor + 1 };
        }
        let bits = &mut self.vacant[self.cursor];
        let number = self.cursor * 64 + bits.trailing_zeros() as usize;
        *bits &= *bits - 1;
        self.entries[number] = entry;
        Some(number as u32)
    }

    /// Takes an entry out that is in.
    #[inline(always)]
    pub(super) fn remove(&mut self, number: u32) -> E {
        self.vacant[number as usize / 64] |= 1 << (number % 64);
        self.len -= 1;
        self.entries[number as usize]
    }

    /// Takes everything out.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.vacant.clear();
        (self.cursor, self.len) = (0, 0);
    }

    /// Every entry with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &E)> {
        let is_in = |number: usize| self.vacant[number / 64] >> (number % 64) & 1 == 0;
        self.entries.iter().enumerate().filter(move |&(number, _)| is_in(number)).map(|(n, entry)| (n as u32, entry))
    }

    /// The entry of a number, which may be any number at all.
    #[inline(always)]
    pub(super) fn get(&self, number: u32) -> Option<&E> {
        self.entries.get(number as usize)
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

/// Numbers for so many entries, all of them below [`NONE`].
const fn numbers(entries: usize) -> usize {
    let numbers = entries + entries / 8;
    if numbers < NONE as usize { numbers } else { NONE as usize }
}

const _: () = {
    let (most, numbers) = (KV_REMEMBER.max as usize, numbers(KV_REMEMBER.max as usize));
    assert!(numbers >= most && numbers <= NONE as usize);
};
