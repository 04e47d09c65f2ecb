//! Flat memory of 64-bit words: on the heap here, in a mapped file elsewhere.
//!
//! All words are atomics that are read and written relaxed; the order between them is told by the two sequences of a
//! shard. A place outside the memory reads as 0 and swallows what is written: no arithmetic on what a block says of
//! itself can do harm.

use super::atomic::{AtomicU64, Ordering::Relaxed};
use super::sequence;

/// Memory that a meter lives in.
pub trait Memory: Send + Sync {
    /// Its words.
    fn words(&self) -> &[AtomicU64];
}

/// Memory on the heap; pages are taken when they are first written to.
pub(super) struct Heap(Box<[AtomicU64]>);

impl Heap {
    #[cfg(not(loom))]
    pub(super) fn new(words: usize) -> Self {
        // Zeroed memory comes from the allocator untouched, and stays so.
        let zeros: Box<[u64]> = vec![0; words].into_boxed_slice();
        let start = Box::into_raw(zeros) as *mut [AtomicU64];
        #[allow(unsafe_code, reason = "the standard library has no safe way from integers to atomics without a copy")]
        // SAFETY: the pointer is the box's own, and an atomic has the size, alignment and values of its integer.
        Self(unsafe { Box::from_raw(start) })
    }

    #[cfg(loom)]
    pub(super) fn new(words: usize) -> Self {
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Memory for Heap {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Words of a part of the memory, by place.
#[derive(Clone, Copy)]
pub(super) struct Words<'a>(pub &'a [AtomicU64]);

impl<'a> Words<'a> {
    #[inline(always)]
    pub(super) fn get(self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |word| word.load(Relaxed))
    }

    #[inline(always)]
    pub(super) fn set(self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at) {
            word.store(value, Relaxed);
        }
    }

    /// Adds: a load and a store, for there is one writer.
    #[inline(always)]
    pub(super) fn add(self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at) {
            word.store(word.load(Relaxed).wrapping_add(value), Relaxed);
        }
    }

    #[inline(always)]
    pub(super) fn sub(self, at: usize, value: u64) {
        self.add(at, value.wrapping_neg());
    }

    /// Raises a word to at least a value.
    #[inline(always)]
    pub(super) fn raise(self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at)
            && word.load(Relaxed) < value
        {
            word.store(value, Relaxed);
        }
    }

    /// Raises a word and the next one.
    #[inline(always)]
    pub(super) fn raise_both(self, at: usize, (first, second): (u64, u64)) {
        self.raise(at, first);
        self.raise(at + 1, second);
    }

    #[inline(always)]
    pub(super) fn wide(self, at: usize) -> u128 {
        u128::from(self.get(at)) | u128::from(self.get(at + 1)) << 64
    }

    #[inline(always)]
    pub(super) fn set_wide(self, at: usize, value: u128) {
        self.set(at, value as u64);
        self.set(at + 1, (value >> 64) as u64);
    }

    #[inline(always)]
    pub(super) fn add_wide(self, at: usize, value: u128) {
        if value <= u128::from(u64::MAX) {
            let low = self.get(at);
            let (sum, carries) = low.overflowing_add(value as u64);
            self.set(at, sum);
            if carries {
                self.add(at + 1, 1);
            }
        } else {
            self.set_wide(at, self.wide(at).wrapping_add(value));
        }
    }

    /// A time that is kept as `t + 1`.
    pub(super) fn time(self, at: usize) -> Option<i64> {
        self.get(at).checked_sub(1).map(|t| t as i64)
    }

    pub(super) fn set_time(self, at: usize, t: i64) {
        self.set(at, t as u64 + 1);
    }

    /// Writes a word that says that everything before it is there.
    pub(super) fn publish(self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at) {
            sequence::publish(word, value);
        }
    }

    /// Reads such a word.
    pub(super) fn published(self, at: usize) -> u64 {
        self.0.get(at).map_or(0, sequence::published)
    }

    /// Says that writing begins, in a sequence.
    #[inline(always)]
    pub(super) fn begin(self, at: usize) {
        if let Some(word) = self.0.get(at) {
            sequence::begin(word);
        }
    }

    /// Says that writing is over.
    #[inline(always)]
    pub(super) fn end(self, at: usize) {
        if let Some(word) = self.0.get(at) {
            sequence::end(word);
        }
    }

    /// A part of it.
    #[inline(always)]
    pub(super) fn part(self, start: usize, len: usize) -> Words<'a> {
        Words(self.0.get(start..start.saturating_add(len)).unwrap_or(&[]))
    }

    pub(super) fn bytes(self, at: usize, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).map(|word| self.get(at + word));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(len);
        bytes
    }

    pub(super) fn set_bytes(self, at: usize, bytes: &[u8]) {
        for (word, chunk) in bytes.chunks(8).enumerate() {
            let mut full = [0; 8];
            full[..chunk.len()].copy_from_slice(chunk);
            self.set(at + word, u64::from_le_bytes(full));
        }
    }
}
