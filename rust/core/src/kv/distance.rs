//! How far back a block was used last, counted in different blocks: its stack distance.
//!
//! Mattson, Gecsei, Slutz and Traiger, "Evaluation techniques for storage hierarchies", 1970: a cache that evicts the
//! block used least recently holds a block exactly if its distance is at most the size of the cache. So one pass gives
//! the hits of every size.
//!
//! The last uses of all blocks are bits, one for each reference; a Fenwick tree over their words counts those of a
//! stretch (Bennett and Kruskal, 1975). Time: O(log n) a reference of n. Memory: 1/5 byte a reference, 4 bytes a block.

/// Never referenced.
const NEVER: u32 = u32::MAX;

/// Stack distances of references that are given one by one.
pub(super) struct Distances {
    /// The reference at which each block was used last.
    last: Vec<u32>,
    /// Whether a reference is the last use of its block.
    bits: Vec<u64>,
    /// A Fenwick tree over the bits of each word.
    tree: Vec<u32>,
    next: u32,
    distinct: u32,
}

impl Distances {
    /// For up to `references`, fewer than 2^32, to blocks numbered below `distinct`.
    pub(super) fn new(references: usize, distinct: u32) -> Self {
        let words = references / 64 + 1;
        Self {
            last: vec![NEVER; distinct as usize],
            bits: vec![0; words],
            tree: vec![0; words + 1],
            next: 0,
            distinct: 0,
        }
    }

    /// The distance of the next reference, at least 1; none if it is the first to its block.
    #[inline]
    pub(super) fn next(&mut self, block: u32) -> Option<u32> {
        let now = self.next;
        self.next += 1;
        let last = std::mem::replace(&mut self.last[block as usize], now);
        let (word, bit) = (now as usize / 64, 1 << (now % 64));
        if last == NEVER {
            self.distinct += 1;
            self.bits[word] |= bit;
            self.add(word, 1);
            return None;
        }
        let last_word = last as usize / 64;
        // Those before it and itself are not within the distance, save itself.
        let before = self.before(last_word) + (self.bits[last_word] << (63 - last % 64)).count_ones() - 1;
        self.bits[last_word] &= !(1 << (last % 64));
        self.bits[word] |= bit;
        if word != last_word {
            self.add(last_word, 1_u32.wrapping_neg());
            self.add(word, 1);
        }
        Some(self.distinct - before)
    }

    fn add(&mut self, word: usize, n: u32) {
        let mut at = word + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(n);
            at += at & at.wrapping_neg();
        }
    }

    /// Bits of the words before this one.
    fn before(&self, word: usize) -> u32 {
        let (mut at, mut n) = (word, 0_u32);
        while at > 0 {
            n = n.wrapping_add(self.tree[at]);
            at &= at - 1;
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_the_place_in_the_stack() {
        let mut stack: Vec<u32> = Vec::new();
        let mut distances = Distances::new(2_000, 90);
        for i in 0..2_000_u64 {
            let random = super::super::splitmix64(i);
            let block = (random % 90).min(random >> 32 & 127) as u32;
            let place = stack.iter().rev().position(|&there| there == block);
            stack.retain(|&there| there != block);
            stack.push(block);
            assert_eq!(distances.next(block), place.map(|place| place as u32 + 1));
        }
    }
}
