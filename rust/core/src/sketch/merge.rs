//! Putting sketches together and taking them apart: exact, in any order and grouping.

use super::mapping::edge_floor_ns;
use super::{Mapping, Sketch, Store};
use crate::bounds;
use crate::error::{Error, Result};

impl<S: Store> Sketch<S> {
    /// The same values at a coarser scale.
    ///
    /// # Errors
    ///
    /// A scale outside its range, or finer than this one.
    pub fn downscale(&self, scale: u8) -> Result<Self> {
        bounds::SCALE.check(i64::from(scale))?;
        if scale > self.scale {
            return Err(Error::value("scale", format_args!("at most {}, the sketch's own", self.scale), scale));
        }
        Ok(self.coarser(scale))
    }

    fn coarser<T: Store>(&self, scale: u8) -> Sketch<T> {
        let mut coarse = Sketch::<T>::empty(scale, self.itl_rule);
        let shift = self.scale - scale;
        let (overflow, coarse_overflow) = (self.overflow_slot(), coarse.overflow_slot());
        self.store.visit(self.span(), |slot, n| {
            let slot = match slot {
                0 => 0,
                _ if slot == overflow => coarse_overflow,
                _ => ((slot - 1) >> shift) + 1,
            };
            coarse.store.add(slot, n);
            true
        });
        coarse.sum_ns = self.sum_ns;
        coarse.min_ns = self.min_ns;
        coarse.max_ns = self.max_ns;
        coarse.rejected = self.rejected;
        coarse
    }

    /// A copy of the same values in another kind of store.
    #[must_use]
    pub fn to_store<T: Store>(&self) -> Sketch<T> {
        self.coarser(self.scale)
    }

    /// Adds all that `other` holds; of two scales the coarser is kept.
    ///
    /// # Errors
    ///
    /// Different ITL rules, or a count that would leave its range; nothing is changed then.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        let itl_rule = self.common_rule(other)?;
        let count = u128::from(self.count()) + u128::from(other.count());
        if count > bounds::COUNT.max as u128 {
            return Err(bounds::COUNT.error(count));
        }
        if self.scale > other.scale {
            *self = self.coarser(other.scale);
        }
        if other.scale > self.scale {
            let coarse = other.coarser::<S>(self.scale);
            self.store.add_all(&coarse.store, coarse.span());
        } else {
            self.store.add_all(&other.store, other.span());
        }
        self.itl_rule = itl_rule;
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        for (mine, theirs) in self.rejected.iter_mut().zip(other.rejected) {
            *mine = mine.saturating_add(theirs);
        }
        Ok(())
    }

    /// The rule of both; an empty sketch without one takes the other's.
    fn common_rule(&self, other: &Self) -> Result<Option<super::ItlRule>> {
        match (self.itl_rule, other.itl_rule) {
            (mine, theirs) if mine == theirs => Ok(mine),
            (None, theirs) if self.is_empty() => Ok(theirs),
            (mine, None) if other.is_empty() => Ok(mine),
            (mine, theirs) => Err(rules_differ(mine, theirs)),
        }
    }

    /// What came since `earlier`, a snapshot of the same sketch.
    ///
    /// # Errors
    ///
    /// An `earlier` that cannot be one: another ITL rule, a coarser scale, or more of anything.
    pub fn since(&self, earlier: &Self) -> Result<Self> {
        if self.itl_rule != earlier.itl_rule {
            return Err(rules_differ(self.itl_rule, earlier.itl_rule));
        }
        if earlier.scale < self.scale {
            let expected = format_args!("of scale {} or finer", self.scale);
            return Err(Error::value("earlier snapshot", expected, format_args!("scale {}", earlier.scale)));
        }
        let old = earlier.coarser::<S>(self.scale);
        let more =
            |what: &str| Error::value("earlier snapshot", "part of the later sketch", format_args!("more {what}"));
        let mut since = Self::empty(self.scale, self.itl_rule);
        let mut fits = true;
        old.store.visit(old.span(), |slot, n| {
            fits = self.store.get(slot) >= n;
            fits
        });
        if !fits {
            return Err(more("values in a bucket"));
        }
        since.sum_ns = self.sum_ns.checked_sub(old.sum_ns).ok_or_else(|| more("in its sum"))?;
        for ((left, mine), theirs) in since.rejected.iter_mut().zip(self.rejected).zip(old.rejected) {
            *left = mine.checked_sub(theirs).ok_or_else(|| more("rejections"))?;
        }
        let mut ends: Option<(usize, usize)> = None;
        self.store.visit(self.span(), |slot, n| {
            let left = n - old.store.get(slot);
            if left > 0 {
                since.store.add(slot, left);
                ends = Some((ends.map_or(slot, |(first, _)| first), slot));
            }
            true
        });
        if let Some((first, last)) = ends {
            (since.min_ns, _) = self.slot_range_ns(first);
            (_, since.max_ns) = self.slot_range_ns(last);
        }
        if since.sum_is_possible() { Ok(since) } else { Err(more("or less in its sum than its buckets allow")) }
    }

    /// Whether the sum can be that of values in these buckets. A value of a split gap is floored: its part of the sum
    /// is less than one nanosecond more.
    fn sum_is_possible(&self) -> bool {
        let (least, bound) = self.sum_bounds();
        least <= self.sum_ns && (self.sum_ns < bound || self.sum_ns == 0)
    }

    /// The least sum of values in these buckets, and what every sum is below.
    fn sum_bounds(&self) -> (u128, u128) {
        let (mut least, mut bound) = (0, 0);
        self.store.visit(self.span(), |slot, n| {
            let (lowest, highest) = self.slot_range_ns(slot);
            least += u128::from(n) * lowest as u128;
            bound += u128::from(n) * (highest as u128 + 1);
            true
        });
        (least, bound)
    }

    /// The least and the greatest whole number of nanoseconds that fall into a slot.
    pub(crate) fn slot_range_ns(&self, slot: usize) -> (i64, i64) {
        let lowest = if slot == 0 { 0 } else { edge_floor_ns(self.scale, self.index(slot)) + 1 };
        if slot + 1 == Mapping::slots(self.scale) {
            (lowest, self.max_ns)
        } else {
            (lowest, edge_floor_ns(self.scale, self.index(slot) + 1))
        }
    }
}

fn rules_differ(mine: Option<super::ItlRule>, theirs: Option<super::ItlRule>) -> Error {
    let name = |rule: Option<super::ItlRule>| rule.map_or("none", super::ItlRule::name);
    Error::value("ITL rule", format_args!("the same in both sketches ({})", name(mine)), name(theirs))
}

impl<S: Store> Sketch<S> {
    /// Fills an empty sketch with what was decoded, if it holds together.
    pub(crate) fn fill(
        &mut self,
        count: u64,
        slots: &[(usize, u64)],
        sum_ns: u128,
        ends: (Option<i64>, Option<i64>),
    ) -> Result<()> {
        let total: u128 = slots.iter().map(|&(_, n)| u128::from(n)).sum();
        if total != u128::from(count) || total > bounds::COUNT.max as u128 {
            return Err(Error::decode(format_args!("a count of {total}, the sum of its buckets"), count));
        }
        let (Some(&(first, _)), Some(&(last, _))) = (slots.first(), slots.last()) else {
            return if sum_ns == 0 && ends == (None, None) {
                Ok(())
            } else {
                Err(Error::decode("no sum, min and max without values", "some"))
            };
        };
        let (Some(min_ns), Some(max_ns)) = ends else {
            return Err(Error::decode("min and max", "none"));
        };
        let mapping = Mapping::of(self.scale);
        let placed = 0 <= min_ns && min_ns <= max_ns && mapping.slot(min_ns) == first && mapping.slot(max_ns) == last;
        if !placed {
            return Err(Error::decode(
                "min and max within its outermost buckets",
                format_args!("{min_ns}, {max_ns} ns"),
            ));
        }
        for &(slot, n) in slots {
            self.store.add(slot, n);
        }
        self.sum_ns = sum_ns;
        self.min_ns = min_ns;
        self.max_ns = max_ns;
        if self.sum_is_possible() {
            Ok(())
        } else {
            Err(Error::decode("a sum that its buckets allow", format_args!("{sum_ns} ns")))
        }
    }
}

impl Sketch<super::Sparse> {
    /// The sketch of counts that were read from a live one; the first count is slot `first`'s. Where they were `torn`,
    /// sum, min and max may be of a moment just before or after: they are taken to the nearest that the counts allow.
    pub(crate) fn gather(
        scale: u8,
        itl_rule: Option<super::ItlRule>,
        (first, counts): (usize, &[u64]),
        sum_ns: u128,
        (min_ns, max_ns): (i64, i64),
        torn: bool,
        room: &mut super::GatherRoom,
    ) -> Self {
        let mut sketch = Self { store: super::Sparse::gather(first, counts, room), ..Self::empty(scale, itl_rule) };
        let (Some(low), Some(high)) = sketch.store.ends() else { return sketch };
        (sketch.sum_ns, sketch.min_ns, sketch.max_ns) = (sum_ns, min_ns, max_ns);
        let mapping = Mapping::of(scale);
        // Memory that was damaged is no reason to stumble later.
        let fit = 0 <= min_ns && min_ns <= max_ns && mapping.slot(min_ns) == low && mapping.slot(max_ns) == high;
        if torn || !fit {
            sketch.mend(low, high);
        }
        sketch
    }

    fn mend(&mut self, low: usize, high: usize) {
        let overflow = self.overflow_slot();
        let (least, most) = self.slot_range_ns(low);
        self.min_ns = if low == overflow { self.min_ns.max(least) } else { self.min_ns.clamp(least, most) };
        let (least, most) = self.slot_range_ns(high);
        self.max_ns = if high == overflow { self.max_ns.max(least) } else { self.max_ns.clamp(least, most) };
        self.max_ns = self.max_ns.max(self.min_ns);
        if !self.sum_is_possible() {
            let (least, bound) = self.sum_bounds();
            self.sum_ns = self.sum_ns.clamp(least, bound.saturating_sub(1).max(least));
        }
    }
}
