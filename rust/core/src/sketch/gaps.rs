//! The gaps of a column of times: found once, at the speed of memory, and added to as many sketches as they belong to.

use super::mapping::Mapping;
use super::{Sketch, Store};

/// Gaps between times, as sketches of one scale take them.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    slots: Vec<u16>,
    min_ns: i64,
    max_ns: i64,
    sum_ns: i64,
}

impl Gaps {
    /// Reads the gaps between `before` and each of the times after it. Returns false if the times do not ascend: then
    /// nothing can be said of their gaps.
    ///
    /// The times are at least 0, and there is at least one.
    pub fn read(&mut self, scale: u8, before: i64, times: &[i64]) -> bool {
        self.slots.resize(times.len(), 0);
        (self.min_ns, self.max_ns) = read(Mapping::of(scale), before, times, &mut self.slots);
        self.sum_ns = times.last().map_or(0, |last| last - before);
        self.min_ns >= 0
    }

    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The largest.
    #[must_use]
    pub fn largest_ns(&self) -> i64 {
        self.max_ns
    }

    /// All of them together.
    #[must_use]
    pub fn sum_ns(&self) -> i64 {
        self.sum_ns
    }
}

impl<S: Store> Sketch<S> {
    /// Records gaps, each of a single token. They were read for the sketch's scale.
    pub fn record_gaps(&mut self, gaps: &Gaps) {
        self.store.add_each(&gaps.slots);
        self.sum_ns += gaps.sum_ns as u128;
        self.min_ns = self.min_ns.min(gaps.min_ns);
        self.max_ns = self.max_ns.max(gaps.max_ns);
    }
}

/// Whether none of some numbers is negative.
#[must_use]
pub fn none_negative(numbers: &[i64]) -> bool {
    signs(numbers) >= 0
}

/// A function whose body is compiled for several instruction sets, of which one is chosen when the program runs.
macro_rules! for_each_processor {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty $body:block) => {
        $(#[$doc])*
        #[allow(unsafe_code)]
        fn $name($($arg: $ty),*) -> $out {
            #[inline(always)]
            fn plain($($arg: $ty),*) -> $out $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2")]
                fn avx512($($arg: $ty),*) -> $out {
                    plain($($arg),*)
                }

                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $ty),*) -> $out {
                    plain($($arg),*)
                }

                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                {
                    // SAFETY: the features were just found.
                    return unsafe { avx512($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the feature was just found.
                    return unsafe { avx2($($arg),*) };
                }
            }
            plain($($arg),*)
        }
    };
}

for_each_processor! {
    /// A number that is negative if any of these is.
    fn signs(numbers: &[i64]) -> i64 {
        numbers.iter().fold(0, |signs, number| signs | number)
    }
}

for_each_processor! {
    /// Finds the slots of gaps, and the smallest and the largest gap.
    fn read(mapping: &Mapping, before: i64, times: &[i64], slots: &mut [u16]) -> (i64, i64) {
        let slot = |gap: i64| mapping.slot_in_column(gap) as u16;
        let (Some((first, rest)), Some((slot_of_first, slots))) = (times.split_first(), slots.split_first_mut()) else {
            return (0, 0);
        };
        // All are at least 0, so no difference leaves its range.
        let (mut min, mut max) = (first - before, first - before);
        *slot_of_first = slot(first - before);
        for ((slot_of, after), before) in slots.iter_mut().zip(rest).zip(times) {
            let gap = after - before;
            min = min.min(gap);
            max = max.max(gap);
            *slot_of = slot(gap);
        }
        (min, max)
    }
}
