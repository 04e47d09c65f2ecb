//! Where a sketch keeps its counts: dense for what is written all the time, sparse for what is kept by the thousand.
//!
//! Both address the same slots (see [`Mapping`](super::mapping::Mapping)) and give the same answers.

use std::ops::RangeInclusive;

use super::Gaps;

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

    /// Adds 1 for each of these gaps.
    fn add_gaps(&mut self, gaps: &mut Gaps);

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
    fn add_gaps(&mut self, gaps: &mut Gaps) {
        let counts = &mut *self.counts;
        for &slot in gaps.slots() {
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

/// The slots that are not empty, sorted: about 10 bytes each, O(log n) to find one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sparse {
    slots: Vec<u16>,
    counts: Vec<u64>,
}

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
        Self { slots: room.slots[..filled].to_vec(), counts: room.counts[..filled].to_vec() }
    }

    /// Where the slots of a range are kept.
    fn within(&self, range: &RangeInclusive<usize>) -> std::ops::Range<usize> {
        let first = self.slots.partition_point(|&slot| usize::from(slot) < *range.start());
        let end = self.slots.partition_point(|&slot| usize::from(slot) <= *range.end());
        first..end.max(first)
    }

    /// The first and the last slot that is not empty.
    pub(super) fn ends(&self) -> (Option<usize>, Option<usize>) {
        (self.slots.first().map(|&slot| usize::from(slot)), self.slots.last().map(|&slot| usize::from(slot)))
    }
}

impl Store for Sparse {
    fn empty(_slots: usize) -> Self {
        Self { slots: Vec::new(), counts: Vec::new() }
    }

    fn add(&mut self, slot: usize, n: u64) {
        match self.slots.binary_search(&(slot as u16)) {
            Ok(at) => self.counts[at] += n,
            Err(_) if n == 0 => {}
            Err(at) => {
                self.slots.insert(at, slot as u16);
                self.counts.insert(at, n);
            }
        }
    }

    fn add_gaps(&mut self, gaps: &mut Gaps) {
        let mut at = 0;
        for &(slot, n) in gaps.runs() {
            while self.slots.get(at).is_some_and(|&there| there < slot) {
                at += 1;
            }
            if self.slots.get(at) == Some(&slot) {
                self.counts[at] += u64::from(n);
            } else {
                self.slots.insert(at, slot);
                self.counts.insert(at, u64::from(n));
            }
        }
    }

    fn get(&self, slot: usize) -> u64 {
        self.slots.binary_search(&(slot as u16)).map_or(0, |at| self.counts[at])
    }

    fn visit(&self, range: RangeInclusive<usize>, mut visit: impl FnMut(usize, u64) -> bool) {
        let within = self.within(&range);
        for (&slot, &n) in self.slots[within.clone()].iter().zip(&self.counts[within]) {
            if !visit(usize::from(slot), n) {
                return;
            }
        }
    }

    fn total(&self, range: RangeInclusive<usize>) -> u64 {
        self.counts[self.within(&range)].iter().sum()
    }
}
