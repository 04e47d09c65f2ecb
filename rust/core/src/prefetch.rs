//! Memory that will be read soon: asked for now, so that it is near by then.

/// Bytes of a cache line.
const LINE: usize = 64;
/// Lines that are asked for at once at most: more would drive out what is read before them.
const LINES: usize = 64;

/// Has something brought near, without waiting for it; where a processor is not known to have the instruction, not.
#[allow(unsafe_code, reason = "an instruction that every such processor has")]
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE belongs to every x86-64 processor; a hint about a place that may be read changes nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// The same for a stretch of values, as far as is sensible at once.
#[inline]
pub fn prefetch_all<T>(values: &[T]) {
    let a_line = (LINE / size_of::<T>()).max(1);
    values.iter().step_by(a_line).take(LINES).for_each(prefetch);
}
