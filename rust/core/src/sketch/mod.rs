//! A mergeable quantile sketch of durations, with base-2 exponential buckets.
//!
//! Guarantee: for values in `(2^-20, 4096]` seconds a quantile is within `(g - 1) / (g + 1)`, `g = 2^(2^-scale)`, of the
//! exact nearest-rank value: 0.542 % at scale 6. Count, sum, min and max are exact. Recording takes constant time and
//! touches one count; memory is `32 * 2^scale + 2` counts of 8 bytes. Merging is exact, associative and commutative.
//!
//! The buckets are those of OpenTelemetry's exponential histogram and of Prometheus' native histogram.

mod bulk;
mod gaps;
mod mapping;
mod merge;
mod quantile;
mod rule;
mod store;
mod table;

pub use bulk::Number;
pub(crate) use bulk::slots_of;
pub use gaps::{Gaps, none_negative};
pub use mapping::{Mapping, edge_floor_ns, edge_seconds, relative_error};
pub use rule::ItlRule;
pub(crate) use store::GatherRoom;
pub use store::{Dense, Sparse, Store};

/// The checked-in tables, open for the test that derives them again.
pub mod tables {
    pub use super::table::{EDGES, THRESHOLDS};
}

use std::ops::RangeInclusive;

use crate::bounds;
use crate::error::Result;

/// Why a value was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Not a number.
    Nan,
    /// Infinity.
    Infinite,
    /// Below zero.
    Negative,
    /// Does not fit a signed 64-bit count of nanoseconds.
    Range,
}

impl Rejection {
    /// All reasons, in the order in which they are listed.
    pub const ALL: [Self; 4] = [Self::Nan, Self::Infinite, Self::Negative, Self::Range];

    /// The name that reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nan => "nan",
            Self::Infinite => "infinite",
            Self::Negative => "negative",
            Self::Range => "range",
        }
    }
}

/// The unit of what is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Nanoseconds.
    Nanoseconds,
}

/// Whole nanoseconds of a count of seconds.
///
/// # Errors
///
/// The reason for which the number cannot be recorded.
#[inline]
pub fn ns_from_float(value: f64, unit: Unit) -> std::result::Result<i64, Rejection> {
    if value.is_nan() {
        return Err(Rejection::Nan);
    }
    // The sign comes first: minus infinity is negative.
    if value < 0.0 {
        return Err(Rejection::Negative);
    }
    if value.is_infinite() {
        return Err(Rejection::Infinite);
    }
    let ns = round_ties_even(match unit {
        Unit::Seconds => value * 1e9,
        Unit::Nanoseconds => value,
    });
    // 2^63 as a double: the least that does not fit.
    if ns < 9_223_372_036_854_775_808.0 { Ok(ns as i64) } else { Err(Rejection::Range) }
}

/// The nearest whole number of one that is not negative, half to even: an addition that leaves no bits for a fraction
/// rounds so. (The standard library's own is a call where the target has no instruction for it.)
#[inline(always)]
fn round_ties_even(value: f64) -> f64 {
    const NO_FRACTION: f64 = 4_503_599_627_370_496.0;
    if value < NO_FRACTION { (value + NO_FRACTION) - NO_FRACTION } else { value }
}

/// Whole nanoseconds of an integer.
///
/// # Errors
///
/// The reason for which the number cannot be recorded.
#[inline]
pub fn ns_from_int(value: i64, unit: Unit) -> std::result::Result<i64, Rejection> {
    if value < 0 {
        return Err(Rejection::Negative);
    }
    match unit {
        Unit::Nanoseconds => Ok(value),
        Unit::Seconds => value.checked_mul(1_000_000_000).ok_or(Rejection::Range),
    }
}

/// A count of nanoseconds as a float of seconds: the one rounding that every figure goes through.
#[must_use]
pub fn seconds(ns: u128) -> f64 {
    ns as f64 / 1e9
}

/// A quantile sketch; see the [module](self).
#[derive(Clone, Debug)]
pub struct Sketch<S = Dense> {
    scale: u8,
    itl_rule: Option<ItlRule>,
    /// The only counter there is: the number of values is the sum of the slots.
    store: S,
    sum_ns: u128,
    /// `i64::MAX` when empty.
    min_ns: i64,
    /// -1 when empty.
    max_ns: i64,
    rejected: [u64; 4],
}

impl<S: Store> Sketch<S> {
    /// An empty sketch.
    ///
    /// # Errors
    ///
    /// A scale outside [`bounds::SCALE`].
    pub fn new(scale: u8, itl_rule: Option<ItlRule>) -> Result<Self> {
        bounds::SCALE.check(i64::from(scale))?;
        Ok(Self::empty(scale, itl_rule))
    }

    pub(crate) fn empty(scale: u8, itl_rule: Option<ItlRule>) -> Self {
        Self {
            scale,
            itl_rule,
            store: S::empty(Mapping::slots(scale)),
            sum_ns: 0,
            min_ns: i64::MAX,
            max_ns: -1,
            rejected: [0; 4],
        }
    }

    /// Records a duration once; a negative one is refused and counted.
    #[inline]
    pub fn record_ns(&mut self, ns: i64) {
        if ns < 0 {
            self.reject(Rejection::Negative, 1);
        } else {
            self.add(ns, 1, ns as u128);
        }
    }

    /// Records `n` observations of `total_ns / n` (floored); the sum grows by `total_ns` exactly. `n` is at least 1.
    #[inline]
    pub fn record_split(&mut self, total_ns: i64, n: u64) {
        let ns = if n == 1 { total_ns } else { total_ns / n as i64 };
        self.add(ns, n, total_ns as u128);
    }

    /// Records one emission of `n` tokens after a gap, as the sketch's ITL rule says (`token` where it has none).
    #[inline]
    pub fn record_emission(&mut self, gap_ns: i64, n: u64) {
        let rule = self.itl_rule.unwrap_or_default();
        rule.samples(gap_ns, n, |value, n, sum| self.add(value, n, sum));
    }

    /// Records a duration `n` times.
    ///
    /// # Errors
    ///
    /// A count that would leave [`bounds::COUNT`].
    pub fn record_ns_n(&mut self, ns: i64, n: u64) -> Result<()> {
        self.check_room(n)?;
        if ns < 0 {
            self.reject(Rejection::Negative, n);
        } else if n > 0 {
            self.add(ns, n, ns as u128 * u128::from(n));
        }
        Ok(())
    }

    /// Whether `n` more values fit.
    fn check_room(&self, n: u64) -> Result<()> {
        // Fewer at a time would take an eternity to fill the range.
        if n >> 32 != 0 && self.count().saturating_add(n) > bounds::COUNT.max as u64 {
            return Err(bounds::COUNT.error(u128::from(self.count()) + u128::from(n)));
        }
        Ok(())
    }

    #[inline(always)]
    fn add(&mut self, ns: i64, n: u64, sum_ns: u128) {
        self.store.add(Mapping::of(self.scale).slot(ns), n);
        self.sum_ns += sum_ns;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Counts a value that was not recorded.
    #[inline]
    pub fn reject(&mut self, reason: Rejection, n: u64) {
        let count = &mut self.rejected[reason as usize];
        *count = count.saturating_add(n);
    }

    /// The slots that may be other than empty.
    fn span(&self) -> RangeInclusive<usize> {
        let mapping = Mapping::of(self.scale);
        if self.is_empty() {
            #[expect(clippy::reversed_empty_ranges, reason = "no slot at all")]
            return 1..=0;
        }
        mapping.slot(self.min_ns)..=mapping.slot(self.max_ns)
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.max_ns < 0
    }

    /// How many values were recorded: the sum of all buckets.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.store.total(self.span())
    }

    /// The exact sum, in nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The least value, in nanoseconds.
    #[must_use]
    pub fn min_ns(&self) -> Option<i64> {
        (!self.is_empty()).then_some(self.min_ns)
    }

    /// The greatest value, in nanoseconds.
    #[must_use]
    pub fn max_ns(&self) -> Option<i64> {
        (!self.is_empty()).then_some(self.max_ns)
    }

    /// Sum divided by count, in seconds; NaN when empty.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.is_empty() { f64::NAN } else { seconds(self.sum_ns) / self.count() as f64 }
    }

    /// Buckets an octave, as a power of two.
    #[must_use]
    pub fn scale(&self) -> u8 {
        self.scale
    }

    /// How emissions of several tokens were recorded, where the sketch is one of inter-token latency.
    #[must_use]
    pub fn itl_rule(&self) -> Option<ItlRule> {
        self.itl_rule
    }

    /// How many values lie at or below the low edge, 2^-20 s.
    #[must_use]
    pub fn zero_count(&self) -> u64 {
        self.store.get(0)
    }

    /// How many values lie above 2^12 s.
    #[must_use]
    pub fn overflow_count(&self) -> u64 {
        self.store.get(self.overflow_slot())
    }

    fn overflow_slot(&self) -> usize {
        Mapping::slots(self.scale) - 1
    }

    /// How many values were refused, by [`Rejection`].
    #[must_use]
    pub fn rejected(&self) -> [u64; 4] {
        self.rejected
    }

    /// The buckets that are not empty: (OpenTelemetry index, count), ascending, without zero and overflow bucket.
    #[must_use]
    pub fn buckets(&self) -> Vec<(i32, u64)> {
        let mut buckets = Vec::new();
        let overflow = self.overflow_slot();
        self.store.visit(self.span(), |slot, n| {
            if slot != 0 && slot != overflow {
                buckets.push((self.index(slot), n));
            }
            true
        });
        buckets
    }

    /// The bucket index of a slot; the overflow bucket is the one after the last.
    fn index(&self, slot: usize) -> i32 {
        Mapping::first_index(self.scale) + slot as i32 - 1
    }
}

impl<S: Store, T: Store> PartialEq<Sketch<T>> for Sketch<S> {
    fn eq(&self, other: &Sketch<T>) -> bool {
        self.scale == other.scale
            && self.itl_rule == other.itl_rule
            && self.sum_ns == other.sum_ns
            && self.min_ns == other.min_ns
            && self.max_ns == other.max_ns
            && self.rejected == other.rejected
            && self.zero_count() == other.zero_count()
            && self.overflow_count() == other.overflow_count()
            && self.buckets() == other.buckets()
    }
}
