//! Where a sketch keeps its counts: dense for what is written all the time, sparse for what is kept by the thousand.
//!
//! Both address the same slots (see [`Mapping`](super::mapping::Mapping)) and give the same answers.

use std::borrow::Cow;
use std::ops::RangeInclusive;

/// Counts by slot.
pub trait Store: Clone + std::fmt::Debug {
    /// A store of `slots` empty slots.
    fn empty(slots: usize) -> Self;

    /// Adds `n` to a slot.
    fn add(&mut self, slot: usize, n: u64);

    /// The count of a slot.
    fn get(&self, slot: usize) -> u64;

    /// Calls `visit` for each slot of `range` that is not empty, in ascending order, while it returns true.
    fn visit(&self, range: RangeInclusive<usize>, visit: impl FnMut(usize, u64) -> bool);

    /// The sum over `range`.
    fn total(&self, range: RangeInclusive<usize>) -> u64 {
        let mut total = 0;
        self.visit(range, |_, n| {
            total += n;
            true
        });
        total
    }

    /// Adds 1 to each of these slots, as often as it is named.
    fn add_each(&mut self, slots: &[u16]);

    /// Adds all of `other`'s counts within `range`.
    fn add_all(&mut self, other: &Self, range: RangeInclusive<usize>) {
        other.visit(range, |slot, n| {
            self.add(slot, n);
            true
        });
    }
}

/// One count a slot: 8 bytes each, constant time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dense {
    pub(super) counts: Box<[u64]>,
}

impl Store for Dense {
    fn empty(slots: usize) -> Self {
        Self { counts: vec![0; slots].into_boxed_slice() }
    }

    #[inline]
    fn add(&mut self, slot: usize, n: u64) {
        self.counts[slot] += n;
    }

    #[inline]
    fn get(&self, slot: usize) -> u64 {
        self.counts[slot]
    }

    #[inline]
    fn add_each(&mut self, slots: &[u16]) {
        let counts = &mut *self.counts;
        for &slot in slots {
            counts[usize::from(slot)] += 1;
        }
    }

    fn visit(&self, range: RangeInclusive<usize>, mut visit: impl FnMut(usize, u64) -> bool) {
        let first = *range.start();
        for (slot, &n) in self.counts[range].iter().enumerate() {
            if n != 0 && !visit(first + slot, n) {
                return;
            }
        }
    }

    fn total(&self, range: RangeInclusive<usize>) -> u64 {
        self.counts[range].iter().sum()
    }

    fn add_all(&mut self, other: &Self, range: RangeInclusive<usize>) {
        for (mine, theirs) in self.counts[range.clone()].iter_mut().zip(&other.counts[range]) {
            *mine += theirs;
        }
    }
}

/// The slots that are not empty, sorted: about 10 bytes each, O(log n) to find one. What was added last stands beside
/// them, slot by slot as it came, until there is so much of it that it is counted all at once.
#[derive(Debug, Default)]
pub struct Sparse {
    slots: Vec<u16>,
    counts: Vec<u64>,
    /// Slots that were added once each.
    added: Vec<u16>,
}

/// Added slots that are kept at least before they are counted.
const ADDED: usize = 64;

/// A count in a live sketch has no more bits, so that no sum of counts can leave its range.
const LIVE_COUNT_BITS: u32 = 48;

/// Room to gather counts in, kept from one sketch to the next.
#[derive(Default)]
pub(crate) struct GatherRoom {
    slots: Vec<u16>,
    counts: Vec<u64>,
}

impl Sparse {
    /// The slots of a stretch of counts that are not empty; the first count is slot `first`'s.
    pub(super) fn gather(first: usize, counts: &[u64], room: &mut GatherRoom) -> Self {
        let len = room.slots.len().max(counts.len() + 1);
        room.slots.resize(len, 0);
        room.counts.resize(len, 0);
        // Without a branch on what can be either: each is written down, and the next one over it if it was empty.
        let mut filled = 0;
        let mut bits = 0;
        for (slot, &n) in (first..).zip(counts) {
            room.slots[filled] = slot as u16;
            room.counts[filled] = n;
            filled += usize::from(n > 0);
            bits |= n;
        }
        if bits >> LIVE_COUNT_BITS != 0 {
            // No meter has counted so much: the memory was damaged.
            filled = 0;
        }
        Self { slots: room.slots[..filled].to_vec(), counts: room.counts[..filled].to_vec(), added: Vec::new() }
    }

    /// Counts what was added last.
    #[inline]
    fn settle_if_many(&mut self) {
        if self.added.len() >= ADDED.max(2 * self.slots.len()) {
            self.settle();
        }
    }

    #[cold]
    fn settle(&mut self) {
        let (mut lowest, mut highest) = (u16::MAX, 0);
        for &slot in &self.added {
            lowest = lowest.min(slot);
            highest = highest.max(slot);
        }
        if self.added.is_empty() {
            return;
        }
        let mut counts = vec![0_u32; usize::from(highest - lowest) + 1];
        for slot in self.added.drain(..) {
            counts[usize::from(slot - lowest)] += 1;
        }
        // Nearly all have been there before. For the others there is a place to be made.
        let range = self.within(&(usize::from(lowest)..=usize::from(highest)));
        for (slot, n) in self.slots[range.clone()].iter().zip(&mut self.counts[range.clone()]) {
            *n += u64::from(std::mem::take(&mut counts[usize::from(slot - lowest)]));
        }
        if counts.iter().fold(0, |any, n| any | n) > 0 {
            self.insert(range, lowest, &counts);
        }
    }

    /// Adds counts of slots from `lowest` on, none of which is there yet; those about them are in a range.
    fn insert(&mut self, range: std::ops::Range<usize>, lowest: u16, counts: &[u32]) {
        let new = (lowest..).zip(counts).filter(|&(_, &n)| n > 0).map(|(slot, &n)| (slot, u64::from(n)));
        let there = self.slots[range.clone()].iter().copied().zip(self.counts[range.clone()].iter().copied());
        let mut both: Vec<(u16, u64)> = there.chain(new).collect();
        both.sort_unstable_by_key(|&(slot, _)| slot);
        self.slots.splice(range.clone(), both.iter().map(|&(slot, _)| slot));
        self.counts.splice(range, both.iter().map(|&(_, n)| n));
    }

    /// The same with everything counted.
    fn settled(&self) -> Cow<'_, Self> {
        if self.added.is_empty() { Cow::Borrowed(self) } else { Cow::Owned(self.clone()) }
    }

    /// Where the slots of a range are kept.
    fn within(&self, range: &RangeInclusive<usize>) -> std::ops::Range<usize> {
        let first = self.slots.partition_point(|&slot| usize::from(slot) < *range.start());
        let end = self.slots.partition_point(|&slot| usize::from(slot) <= *range.end());
        first..end.max(first)
    }

    /// The first and the last slot that is not empty, of one that was gathered.
    pub(super) fn ends(&self) -> (Option<usize>, Option<usize>) {
        debug_assert!(self.added.is_empty());
        (self.slots.first().map(|&slot| usize::from(slot)), self.slots.last().map(|&slot| usize::from(slot)))
    }
}

/// A copy has everything counted.
impl Clone for Sparse {
    fn clone(&self) -> Self {
        let mut copy = Self { slots: self.slots.clone(), counts: self.counts.clone(), added: self.added.clone() };
        copy.settle();
        copy
    }
}

impl PartialEq for Sparse {
    fn eq(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.settled(), other.settled());
        mine.slots == theirs.slots && mine.counts == theirs.counts
    }
}

impl Eq for Sparse {}

impl Store for Sparse {
    fn empty(_slots: usize) -> Self {
        Self::default()
    }

    #[inline]
    fn add(&mut self, slot: usize, n: u64) {
        if n == 1 {
            self.added.push(slot as u16);
            return self.settle_if_many();
        }
        match self.slots.binary_search(&(slot as u16)) {
            Ok(at) => self.counts[at] += n,
            Err(_) if n == 0 => {}
            Err(at) => {
                self.slots.insert(at, slot as u16);
                self.counts.insert(at, n);
            }
        }
    }

    fn add_each(&mut self, slots: &[u16]) {
        self.added.extend_from_slice(slots);
        self.settle_if_many();
    }

    fn get(&self, slot: usize) -> u64 {
        let counted = self.slots.binary_search(&(slot as u16)).map_or(0, |at| self.counts[at]);
        counted + self.added.iter().filter(|&&added| usize::from(added) == slot).count() as u64
    }

    fn visit(&self, range: RangeInclusive<usize>, mut visit: impl FnMut(usize, u64) -> bool) {
        let settled = self.settled();
        let within = settled.within(&range);
        for (&slot, &n) in settled.slots[within.clone()].iter().zip(&settled.counts[within]) {
            if !visit(usize::from(slot), n) {
                return;
            }
        }
    }

    fn total(&self, range: RangeInclusive<usize>) -> u64 {
        let counted: u64 = self.counts[self.within(&range)].iter().sum();
        counted + self.added.iter().filter(|&&slot| range.contains(&usize::from(slot))).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_stores_count_the_same_however_it_comes() {
        let slots = 2050;
        let (mut dense, mut sparse) = (Dense::empty(slots), Sparse::empty(slots));
        let mut state = 7_u64;
        for round in 0..4_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Narrow at first, then everywhere; many at once now and then.
            let width = if round < 2_000 { 100 } else { slots as u64 };
            let slot = (state >> 33) % width;
            match round % 7 {
                0 => {
                    let each: Vec<u16> = (0..state >> 60).map(|i| ((slot + i * i) % width) as u16).collect();
                    dense.add_each(&each);
                    sparse.add_each(&each);
                }
                kind => {
                    dense.add(slot as usize, kind / 3);
                    sparse.add(slot as usize, kind / 3);
                }
            }
            let range = slot as usize / 2..=slot as usize;
            assert_eq!(sparse.total(range.clone()), dense.total(range));
            assert_eq!(sparse.get(slot as usize), dense.get(slot as usize));
        }
        let mut expected = Vec::new();
        dense.visit(0..=slots - 1, |slot, n| {
            expected.push((slot, n));
            true
        });
        let mut found = Vec::new();
        sparse.visit(0..=slots - 1, |slot, n| {
            found.push((slot, n));
            true
        });
        assert_eq!(found, expected);
        let mut copy = sparse.clone();
        assert!(copy == sparse && copy.added.is_empty() && copy.slots.len() > 1_000);
        copy.add(3, 1);
        assert!(copy != sparse);
    }
}
