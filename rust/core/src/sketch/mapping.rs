//! From an integer number of nanoseconds to its bucket, exactly, in constant time.
//!
//! Bucket `i` covers `(2^(i/2^s), 2^((i+1)/2^s)]` seconds. Its edges in nanoseconds, `10^9 * 2^(i/2^s)`, are irrational
//! but for whole powers of two, and their mantissas repeat every octave. So the index of `v` is its octave times `2^s`
//! plus the number of mantissas below that of `v`. An octave is cut into `2^(s+1)` equal slices, narrow enough to hold
//! at most one edge each: one table look-up and one comparison give the rank.
//!
//! Integers below 2^53 are exact as doubles, so the bits of the double are a ready-made (octave, mantissa) pair, and
//! the same kernel serves floats that were rounded to whole nanoseconds and integers.

use super::table::{EDGES, THRESHOLDS};

/// The lowest octave: values at or below `2^-20` s go to the zero bucket.
pub const LOW_OCTAVE: i32 = -20;
/// The end of the highest octave: values above `2^12` s go to the overflow bucket.
pub const HIGH_OCTAVE: i32 = 12;
/// Values up to here take the table; the overflow bucket begins below it.
pub const TABLE_LIMIT_NS: i64 = 1 << 42;

/// The largest whole number of nanoseconds in the zero bucket, which is that of all below: `2^-20` s, floored. No bucket
/// of any scale is so narrow that it ends between the two.
const ZERO_BUCKET_NS: i64 = 953;
/// The smallest in the overflow bucket, which is that of all above.
const OVERFLOW_NS: i64 = 4096 * 1_000_000_000 + 1;

const FINEST: u8 = 8;
const SLICES: usize = 512;
const MANTISSA: u64 = (1 << 52) - 1;
/// Mantissas of integers up to `TABLE_LIMIT_NS` leave the lowest ten bits free: the rank is kept there.
const RANK: u64 = (1 << 10) - 1;

/// The mapping of one scale.
#[derive(Debug)]
pub struct Mapping {
    /// For each slice: the mantissa of the edge in it, and in the low bits the number of edges below the slice.
    slices: [u64; SLICES],
    shift: u32,
    mask: u64,
    offset: i32,
    scale: u8,
}

static MAPPINGS: [Mapping; 9] = [
    Mapping::derive(0),
    Mapping::derive(1),
    Mapping::derive(2),
    Mapping::derive(3),
    Mapping::derive(4),
    Mapping::derive(5),
    Mapping::derive(6),
    Mapping::derive(7),
    Mapping::derive(8),
];

impl Mapping {
    /// The mapping of `scale`, which must be legal.
    #[must_use]
    pub fn of(scale: u8) -> &'static Self {
        &MAPPINGS[scale as usize]
    }

    const fn derive(scale: u8) -> Self {
        let step = 1_usize << (FINEST - scale);
        // The mantissas wrap at the first edge of the finest scale that is below the one before it.
        let mut wrap = 1;
        while THRESHOLDS[wrap] > THRESHOLDS[wrap - 1] {
            wrap += 1;
        }
        let first = wrap.div_ceil(step);
        let edges = 1_usize << scale;
        let slice_bits = scale as u32 + 1;
        let shift = 52 - slice_bits;
        let mut slices = [0; SLICES];
        let mut slice = 0;
        let mut rank = 0;
        while slice < 1 << slice_bits {
            let below = rank as u64;
            let mut edge = MANTISSA;
            if rank < edges {
                let threshold = THRESHOLDS[(first + rank) % edges * step];
                let mantissa = (threshold << 1) >> 12;
                if (mantissa >> shift) as usize == slice {
                    edge = mantissa;
                    rank += 1;
                }
            }
            slices[slice] = (edge & !RANK) | below;
            slice += 1;
        }
        assert!(rank == edges);
        // The exponent of the finest scale's edge 0 is 29; edges from `wrap` on have one more.
        let offset = (-1023 - 30 - LOW_OCTAVE) * (1 << scale) + first as i32;
        Self { slices, shift, mask: (1 << slice_bits) - 1, offset, scale }
    }

    /// The number of slots: zero bucket, buckets, overflow bucket.
    #[must_use]
    pub const fn slots(scale: u8) -> usize {
        Self::buckets(scale) + 2
    }

    /// The number of buckets between the zero bucket and the overflow bucket.
    #[must_use]
    pub const fn buckets(scale: u8) -> usize {
        ((HIGH_OCTAVE - LOW_OCTAVE) as usize) << scale
    }

    /// The index of the first bucket.
    #[must_use]
    pub const fn first_index(scale: u8) -> i32 {
        LOW_OCTAVE * (1 << scale)
    }

    /// The slot of a double that is a whole number between 0 and `TABLE_LIMIT_NS`.
    #[inline(always)]
    pub(crate) fn slot_of_whole(&self, whole: f64) -> u32 {
        let bits = whole.to_bits();
        let entry = self.slices[((bits >> self.shift) & self.mask) as usize & (SLICES - 1)];
        let above = i32::from((bits & MANTISSA) > entry);
        let slot = (((bits >> 52) as i32) << self.scale) + (entry & RANK) as i32 + above + self.offset;
        slot.clamp(0, Self::slots(self.scale) as i32 - 1) as u32
    }

    /// The same of any number of nanoseconds that is not negative, all in words of 64 bits: for columns.
    #[inline(always)]
    pub(crate) fn slot_in_column(&self, ns: i64) -> u64 {
        let bits = (ns.clamp(ZERO_BUCKET_NS, OVERFLOW_NS) as f64).to_bits();
        let entry = self.slices[((bits >> self.shift) & self.mask) as usize & (SLICES - 1)];
        let above = u64::from((bits & MANTISSA) > entry);
        ((bits >> 52) << self.scale).wrapping_add((entry & RANK) + above).wrapping_add(i64::from(self.offset) as u64)
    }

    /// The slot of a number of nanoseconds that is not negative: 0 is the zero bucket, the last is the overflow
    /// bucket, and slot `n` between them is bucket `first_index + n - 1`.
    #[inline]
    #[must_use]
    pub fn slot(&self, ns: i64) -> usize {
        self.slot_of_whole(ns.min(TABLE_LIMIT_NS) as f64) as usize
    }
}

/// The edge `2^(index / 2^scale)` in seconds: the nearest double.
#[must_use]
pub fn edge_seconds(scale: u8, index: i32) -> f64 {
    let octave = index >> scale;
    let j = (index - (octave << scale)) as usize;
    f64::from_bits((EDGES[j << (FINEST - scale)] as i64 + (i64::from(octave) << 52)) as u64)
}

/// The greatest whole number of nanoseconds that is not above the edge `2^(index / 2^scale)` seconds.
#[must_use]
pub fn edge_floor_ns(scale: u8, index: i32) -> i64 {
    let octave = index >> scale;
    let j = ((index - (octave << scale)) as usize) << (FINEST - scale);
    let exponent = 29 + octave + i32::from(THRESHOLDS[j] < THRESHOLDS[0]);
    (THRESHOLDS[j] >> (63 - exponent)) as i64
}

/// `(g - 1) / (g + 1)` with `g` the ratio of a bucket's edges: how far an estimate may be off, relatively.
#[must_use]
pub fn relative_error(scale: u8) -> f64 {
    let ratio = edge_seconds(scale, 1);
    (ratio - 1.0) / (ratio + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_in_a_column_is_the_slot() {
        let mut state = 1_u64;
        for scale in 0..=FINEST {
            let mapping = Mapping::of(scale);
            let edges =
                (0..=Mapping::buckets(scale) as i32).map(|i| edge_floor_ns(scale, Mapping::first_index(scale) + i));
            let near = edges.flat_map(|edge| [edge - 1, edge, edge + 1]);
            let anywhere = (0..10_000).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 1) as i64 >> (state % 63)
            });
            for ns in near.chain(anywhere).chain([0, 1, 952, 953, 954, TABLE_LIMIT_NS, i64::MAX]) {
                assert_eq!(mapping.slot_in_column(ns), mapping.slot(ns) as u64, "{ns} at scale {scale}");
            }
        }
    }
}
