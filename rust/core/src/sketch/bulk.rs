//! Recording a whole column at the speed of memory.
//!
//! A column is taken in blocks. A block in which every value is in the table's range (nearly all of them) goes through
//! three loops that the compiler turns into vector code: to whole nanoseconds as doubles, to slots, into the counts.
//! Any other block goes value by value. Sums of a block stay below 2^53, so they are exact as doubles.
//!
//! The same loops are compiled for several instruction sets, and one is chosen when the program runs.

use super::mapping::{Mapping, TABLE_LIMIT_NS};
use super::{Dense, Rejection, Sketch, Unit, ns_from_float, ns_from_int};

/// Values in a block: `BLOCK * TABLE_LIMIT_NS / LANES` must stay below 2^53.
const BLOCK: usize = 1024;
/// For what is left of a column: two vectors of sixteen.
const SMALL_BLOCK: usize = 32;
const LANES: usize = 16;
const LIMIT: f64 = TABLE_LIMIT_NS as f64;

/// A number that can be recorded.
pub trait Number: Copy {
    /// Whole nanoseconds, or why not.
    ///
    /// # Errors
    ///
    /// The reason for which it cannot be recorded.
    fn ns(self, unit: Unit) -> Result<i64, Rejection>;

    /// The same as a double without branches, where it lies between 0 and the table's limit; else anything that is
    /// not (NaN included).
    #[doc(hidden)]
    fn whole<const SECONDS: bool>(self) -> f64;
}

impl Number for f64 {
    #[inline]
    fn ns(self, unit: Unit) -> Result<i64, Rejection> {
        ns_from_float(self, unit)
    }

    #[inline(always)]
    fn whole<const SECONDS: bool>(self) -> f64 {
        let whole = if SECONDS { self * 1e9 } else { self }.round_ties_even();
        if self >= 0.0 { whole } else { f64::NAN }
    }
}

impl Number for f32 {
    #[inline]
    fn ns(self, unit: Unit) -> Result<i64, Rejection> {
        ns_from_float(f64::from(self), unit)
    }

    #[inline(always)]
    fn whole<const SECONDS: bool>(self) -> f64 {
        f64::from(self).whole::<SECONDS>()
    }
}

impl Number for i64 {
    #[inline]
    fn ns(self, unit: Unit) -> Result<i64, Rejection> {
        ns_from_int(self, unit)
    }

    #[inline(always)]
    fn whole<const SECONDS: bool>(self) -> f64 {
        // Integers over 2^53 round, but stay over the limit; so do their products.
        if SECONDS { self as f64 * 1e9 } else { self as f64 }
    }
}

impl Number for u64 {
    #[inline]
    fn ns(self, unit: Unit) -> Result<i64, Rejection> {
        ns_from_int(i64::try_from(self).map_err(|_| Rejection::Range)?, unit)
    }

    #[inline(always)]
    fn whole<const SECONDS: bool>(self) -> f64 {
        if SECONDS { self as f64 * 1e9 } else { self as f64 }
    }
}

impl Sketch<Dense> {
    /// Records every value of a column; what cannot be recorded is counted by reason.
    pub fn record_many<T: Number>(&mut self, values: &[T], unit: Unit) {
        match unit {
            Unit::Seconds => dispatch::<T, true>(self, values),
            Unit::Nanoseconds => dispatch::<T, false>(self, values),
        }
    }

    /// Records one value, or counts why it was refused.
    #[inline]
    pub fn record<T: Number>(&mut self, value: T, unit: Unit) {
        match value.ns(unit) {
            Ok(ns) => self.record_ns(ns),
            Err(reason) => self.reject(reason, 1),
        }
    }
}

#[allow(unsafe_code)]
fn dispatch<T: Number, const SECONDS: bool>(sketch: &mut Sketch, values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the features were just found.
            return unsafe { record_avx512::<T, SECONDS>(sketch, values) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just found.
            return unsafe { record_avx2::<T, SECONDS>(sketch, values) };
        }
    }
    record_blocks::<T, SECONDS>(sketch, values);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2")]
fn record_avx512<T: Number, const SECONDS: bool>(sketch: &mut Sketch, values: &[T]) {
    record_blocks::<T, SECONDS>(sketch, values);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn record_avx2<T: Number, const SECONDS: bool>(sketch: &mut Sketch, values: &[T]) {
    record_blocks::<T, SECONDS>(sketch, values);
}

/// The slots of durations, none of them negative, in the sketch of a scale.
#[allow(unsafe_code)]
pub(crate) fn slots_of(scale: u8, ns: &[i64], slots: &mut [u16]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the features were just found.
            return unsafe { slots_avx512(scale, ns, slots) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just found.
            return unsafe { slots_avx2(scale, ns, slots) };
        }
    }
    slots_plainly(scale, ns, slots);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2")]
fn slots_avx512(scale: u8, ns: &[i64], slots: &mut [u16]) {
    slots_plainly(scale, ns, slots);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn slots_avx2(scale: u8, ns: &[i64], slots: &mut [u16]) {
    slots_plainly(scale, ns, slots);
}

#[inline(always)]
fn slots_plainly(scale: u8, ns: &[i64], slots: &mut [u16]) {
    let mapping = Mapping::of(scale);
    for (slot, &ns) in slots.iter_mut().zip(ns) {
        *slot = mapping.slot_of_whole(ns.min(TABLE_LIMIT_NS) as f64) as u16;
    }
}

#[inline(always)]
fn record_blocks<T: Number, const SECONDS: bool>(sketch: &mut Sketch, values: &[T]) {
    let mapping = Mapping::of(sketch.scale);
    let (blocks, rest) = values.as_chunks::<BLOCK>();
    for block in blocks {
        if !record_block::<T, SECONDS, BLOCK>(sketch, mapping, block) {
            record_singly::<T, SECONDS>(sketch, block);
        }
    }
    let (blocks, rest) = rest.as_chunks::<SMALL_BLOCK>();
    for block in blocks {
        if !record_block::<T, SECONDS, SMALL_BLOCK>(sketch, mapping, block) {
            record_singly::<T, SECONDS>(sketch, block);
        }
    }
    record_singly::<T, SECONDS>(sketch, rest);
}

#[cold]
fn record_singly<T: Number, const SECONDS: bool>(sketch: &mut Sketch, values: &[T]) {
    let unit = if SECONDS { Unit::Seconds } else { Unit::Nanoseconds };
    for &value in values {
        sketch.record(value, unit);
    }
}

/// Records a block whose values are all within the table's range; else records nothing and returns false.
#[inline(always)]
fn record_block<T: Number, const SECONDS: bool, const N: usize>(
    sketch: &mut Sketch,
    mapping: &Mapping,
    block: &[T; N],
) -> bool {
    let mut wholes = [0.0; N];
    let mut sums = [0.0; LANES];
    let mut mins = [f64::INFINITY; LANES];
    let mut maxs = [0.0; LANES];
    let mut fits = true;
    for (wholes, values) in wholes.as_chunks_mut::<LANES>().0.iter_mut().zip(block.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            let whole = values[lane].whole::<SECONDS>();
            fits &= (0.0..=LIMIT).contains(&whole);
            wholes[lane] = whole;
            sums[lane] += whole;
            mins[lane] = if whole < mins[lane] { whole } else { mins[lane] };
            maxs[lane] = if whole > maxs[lane] { whole } else { maxs[lane] };
        }
    }
    if !fits {
        return false;
    }
    let mut slots = [0_u16; N];
    for (slot, &whole) in slots.iter_mut().zip(&wholes) {
        *slot = mapping.slot_of_whole(whole) as u16;
    }
    let counts = &mut *sketch.store.counts;
    for &slot in &slots {
        debug_assert!(usize::from(slot) < counts.len());
        // SAFETY: `slot_of_whole` clamps to the slots of the sketch's scale, and a dense store has just as many. The
        // check would cost 0.1 ns of 2 ns a value.
        #[allow(unsafe_code)]
        unsafe {
            *counts.get_unchecked_mut(usize::from(slot)) += 1;
        }
    }
    let sum: f64 = sums.iter().sum();
    sketch.sum_ns += u128::from(sum as u64);
    sketch.min_ns = sketch.min_ns.min(mins.into_iter().fold(f64::INFINITY, f64::min) as i64);
    sketch.max_ns = sketch.max_ns.max(maxs.into_iter().fold(0.0, f64::max) as i64);
    true
}
