//! Numbers found by the mixed hash of what they stand for: buckets of one cache line each.
//!
//! A bucket has a byte of the hash for each of its twelve numbers, all compared at once, and counts the numbers that
//! would belong to it but passed over it, being full (the scheme of Bronson and Shi's F14). So looking up, adding and
//! removing read one line of memory as a rule, nothing ever moves, and nothing is left behind by what is removed.

use crate::prefetch::prefetch;

/// Numbers in a bucket, as the bits of a mask.
const BUCKET: u32 = (1 << 12) - 1;
/// How many of them are taken on average in the fullest table: one bucket in a hundred is then full, and whoever looks
/// there has to read another line.
const LOAD: usize = 6;
/// Words of a bucket: a byte for each number, the count of those that passed over it (a half word), the numbers.
const WORDS: usize = 8;
const LINE: usize = WORDS * 8;

/// Where a number stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    bucket: usize,
    slot: u32,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Index {
    words: Vec<u64>,
    /// Words before the first bucket, so that each lies on one line.
    skip: usize,
    buckets: usize,
}

/// The slots of a bucket, as a mask, whose byte is this one.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "intrinsics that every such processor has")]
#[inline(always)]
fn slots(bucket: &[u64; WORDS], byte: u8) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    // SAFETY: SSE2 belongs to every x86-64 processor, and nothing here reads memory through a pointer.
    let equal = unsafe {
        let bytes = _mm_set_epi64x(bucket[1] as i64, bucket[0] as i64);
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8)))
    };
    equal as u32 & BUCKET
}

/// The slots of a bucket, as a mask, whose byte is this one.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn slots(bucket: &[u64; WORDS], byte: u8) -> u32 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const SEVEN: u64 = 0x7f * LOW;
    let equal = |word: u64| {
        let differs = word ^ LOW * u64::from(byte);
        // Bit 7 of each byte that is 0; a product gathers them in the highest byte.
        let zeros = !((differs & SEVEN) + SEVEN | differs | SEVEN);
        ((zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
    };
    (equal(bucket[0]) | equal(bucket[1]) << 8) & BUCKET
}

/// The word that holds a slot's number, and where in it.
#[inline(always)]
const fn number_at(slot: u32) -> (usize, u32) {
    ((2 + slot as usize / 2) % WORDS, slot % 2 * 32)
}

#[inline(always)]
fn number(bucket: &[u64; WORDS], slot: u32) -> u32 {
    let (word, shift) = number_at(slot);
    (bucket[word] >> shift) as u32
}

#[inline(always)]
fn set_number(bucket: &mut [u64; WORDS], slot: u32, number: u32) {
    let (word, shift) = number_at(slot);
    bucket[word] = bucket[word] & !(0xffff_ffff << shift) | u64::from(number) << shift;
}

/// The byte that stands for a hash; 0 stands for none.
#[inline(always)]
fn byte(mixed: u64) -> u8 {
    (mixed as u8).max(1)
}

impl Index {
    /// An index with room for so many numbers. Memory that is not touched costs nothing.
    pub(super) fn new(room: usize) -> Self {
        let buckets = room.div_ceil(LOAD).max(1);
        let words = vec![0_u64; (buckets + 1) * WORDS];
        let skip = (LINE - words.as_ptr() as usize % LINE) % LINE / 8;
        Self { words, skip, buckets }
    }

    /// For how many numbers there is room.
    pub(super) fn room(&self) -> usize {
        self.buckets * LOAD
    }

    #[inline(always)]
    fn home(&self, mixed: u64) -> usize {
        (((mixed >> 32) * self.buckets as u64) >> 32) as usize
    }

    #[inline(always)]
    fn after(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets { 0 } else { bucket + 1 }
    }

    #[inline(always)]
    fn bucket(&self, number: usize) -> &[u64; WORDS] {
        let start = self.skip + number * WORDS;
        self.words[start..start + WORDS].first_chunk().expect("a bucket's words")
    }

    #[inline(always)]
    fn bucket_mut(&mut self, number: usize) -> &mut [u64; WORDS] {
        let start = self.skip + number * WORDS;
        self.words[start..start + WORDS].first_chunk_mut().expect("a bucket's words")
    }

    /// Has the home of a hash brought near.
    #[inline(always)]
    pub(super) fn prefetch(&self, mixed: u64) {
        prefetch(self.bucket(self.home(mixed)));
    }

    /// The first number at the home of a hash that may be its.
    #[inline(always)]
    pub(super) fn likely(&self, mixed: u64) -> Option<u32> {
        let bucket = self.bucket(self.home(mixed));
        let slots = slots(bucket, byte(mixed));
        (slots != 0).then(|| number(bucket, slots.trailing_zeros()))
    }

    /// The place and the number of a hash for which `is` holds.
    #[inline(always)]
    pub(super) fn find(&self, mixed: u64, is: impl Fn(u32) -> bool) -> Option<(Place, u32)> {
        let home = self.home(mixed);
        let mut at = home;
        loop {
            let bucket = self.bucket(at);
            let mut slots = slots(bucket, byte(mixed));
            while slots != 0 {
                let slot = slots.trailing_zeros();
                let number = number(bucket, slot);
                if is(number) {
                    return Some((Place { bucket: at, slot }, number));
                }
                slots &= slots - 1;
            }
            if bucket[1] >> 32 == 0 {
                return None;
            }
            at = self.after(at);
            if at == home {
                return None;
            }
        }
    }

    /// Adds a number; there is room for it.
    #[inline(always)]
    pub(super) fn insert(&mut self, mixed: u64, number: u32) {
        let mut at = self.home(mixed);
        loop {
            let bucket = self.bucket_mut(at);
            let vacant = slots(bucket, 0);
            if vacant != 0 {
                let slot = vacant.trailing_zeros();
                let (word, shift) = (slot as usize / 8, slot % 8 * 8);
                bucket[word] |= u64::from(byte(mixed)) << shift;
                set_number(bucket, slot, number);
                return;
            }
            bucket[1] += 1 << 32;
            at = self.after(at);
        }
    }

    /// Puts another number at a place, of the same hash.
    #[inline(always)]
    pub(super) fn replace(&mut self, place: Place, number: u32) {
        set_number(self.bucket_mut(place.bucket), place.slot, number);
    }

    /// Takes out the number that stands at a place, where it was found by this hash.
    #[inline(always)]
    pub(super) fn remove(&mut self, mixed: u64, place: Place) {
        let mut at = self.home(mixed);
        while at != place.bucket {
            self.bucket_mut(at)[1] -= 1 << 32;
            at = self.after(at);
        }
        let (word, shift) = (place.slot as usize / 8, place.slot % 8 * 8);
        self.bucket_mut(at)[word] &= !(0xff << shift);
    }
}
