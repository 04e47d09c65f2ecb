//! Which blocks a sample follows: those whose hash, well mixed, lies below a threshold.
//!
//! A block is followed or not, whatever happens to it: so its evictions and its refills are sampled together, and the
//! ratio of the two has no bias from the sampling. The followed blocks are dealt out to [`REPLICATES`] parts, each a
//! sample of its own, from whose scatter the error of the ratio is estimated.

use super::{Counter, Settings};
use crate::error::{Error, Result};

/// Parts of a sample.
pub const REPLICATES: usize = 32;

/// Where evictions, refills or the forgotten of a part stand among those of all parts: three of each part.
#[must_use]
pub const fn replicate_slot(replicate: usize, what: Counter) -> usize {
    let place = match what {
        Counter::Evicted => 0,
        Counter::Refilled => 1,
        _ => 2,
    };
    3 * replicate + place
}

/// A bijection of 64 bits that leaves no pattern of its argument (Steele, Lea and Flood, OOPSLA 2014).
#[must_use]
#[inline]
pub const fn splitmix64(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Whether there can be a sample of this rate.
pub(super) fn check_rate(rate: f64) -> Result<()> {
    if rate > 0.0 && rate <= 1.0 { Ok(()) } else { Err(Error::value("sampling rate", "above 0 and at most 1", rate)) }
}

/// The least mixed hash that a sample of this rate does not follow; none: it follows all.
pub(super) fn threshold(rate: f64) -> Option<u64> {
    // Exact: a product with a power of two. From 2^64 on nothing is left out.
    let threshold = rate * 18_446_744_073_709_551_616.0;
    (threshold < 18_446_744_073_709_551_616.0).then_some(threshold as u64)
}

/// The sample that settings ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    threshold: Option<u64>,
}

impl Sample {
    /// None where every block is followed and no error is to be estimated.
    pub(super) fn of(settings: &Settings) -> Option<Self> {
        settings.rate.map(|rate| Self { threshold: threshold(rate) })
    }

    /// The part that a block belongs to, if it is followed.
    #[inline]
    pub(super) fn replicate(self, hash: u64) -> Option<usize> {
        let mixed = splitmix64(hash);
        self.threshold.is_none_or(|threshold| mixed < threshold).then_some(mixed as usize % REPLICATES)
    }
}
