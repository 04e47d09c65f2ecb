//! The blocks of a KV cache: which are resident, which were evicted, and which of those had to be computed again.
//!
//! A [`Tracker`] takes the events of a cache (stored, evicted, looked up) and tells a [`Sink`] what they come to. Every
//! event costs constant time. Memory is bounded: by the blocks that may be resident, and by the number and the age of
//! the evicted ones that are remembered. What falls out of that memory unseen is counted as forgotten, so that the
//! refill rate is known to lie between two ends.
//!
//! A [`Trace`] of the blocks that requests ask for can be replayed through a cache of a given size and policy, or give
//! the curve of hits and refills over all sizes.

mod blocks;
mod cache;
mod curve;
mod distance;
mod ghost;
mod index;
mod pool;
mod replay;
mod residency;
mod sampled;
mod totals;
mod trace;
mod tracker;

pub use cache::Policy;
pub use curve::{Curve, Point};
pub use replay::{Replay, Replayed};
pub use sampled::{REPLICATES, replicate_slot, splitmix64};
pub(crate) use totals::add;
pub use totals::{Judged, Totals};
pub use trace::{BLOCK_TOKENS, Request, TRACE_BLOCKS, TRACE_REFERENCES, Trace, TraceBuilder};
pub use tracker::{Outcome, Sink, Tracker};

use crate::bounds::{self, Range};
use crate::error::Result;

names! {
    /// Where blocks are kept, the top first.
    Tier, 4,
    /// The memory that the engine computes in: only here a block is computed.
    Gpu = "gpu",
    /// The host's memory.
    Cpu = "cpu",
    /// A disk.
    Disk = "disk",
    /// Somewhere beyond the host.
    Remote = "remote",
}

names! {
    /// What a stream of events says of copies.
    Report, 2,
    /// Every `store` is a copy, every `evict` takes one away.
    Copies = "copies",
    /// A `store` of a resident block is a reuse; the first `evict` removes it.
    Full = "full",
}

names! {
    /// What is counted.
    Counter, 16,
    /// Blocks that were computed: stored in the top tier while no tier had them.
    Stored = "stored",
    /// Stores of a block in a tier that had it.
    Repeated = "repeated",
    /// Blocks whose last copy in their last tier went.
    Evicted = "evicted",
    /// Copies that went while others stayed.
    Released = "released",
    /// Blocks computed again while they were remembered as evicted.
    Refilled = "refilled",
    /// Blocks that fell out of the memory of evicted ones.
    Forgotten = "forgotten",
    /// Blocks brought to a tier from one further down.
    Onloaded = "onloaded",
    /// Blocks put into a tier from one further up, or from outside.
    Offloaded = "offloaded",
    /// Uses of a resident block.
    Touched = "touched",
    /// How often the whole cache was cleared.
    Cleared = "cleared",
    /// Look-ups, once a request.
    Lookups = "lookups",
    /// Tokens that they asked for.
    Queried = "queried",
    /// Tokens that they found.
    Hit = "hit",
    /// Look-ups again, after a preemption.
    Relookups = "relookups",
    /// Tokens that those asked for.
    Requeried = "requeried",
    /// Tokens that those found.
    Rehit = "rehit",
}

names! {
    /// What is measured.
    Span, 3,
    /// From the store of a block to its eviction.
    Lifetime = "lifetime",
    /// From its last use to its eviction.
    Idle = "idle",
    /// From its eviction to its refill.
    Gap = "gap",
}

names! {
    /// Why an event is refused.
    Refused, 6,
    /// A time below 0.
    Negative = "negative",
    /// More than a day ahead of the newest time.
    Future = "future",
    /// A tier that is none.
    Tier = "tier",
    /// A number outside its range.
    Invalid = "invalid",
    /// A block for which there was no room.
    Full = "full",
    /// A block that is not there.
    Unknown = "unknown",
}

/// What a tracker follows, and what it may grow to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Evicted blocks that are remembered, within [`bounds::KV_REMEMBER`].
    pub remember: u32,
    /// How long they are, in nanoseconds.
    pub ttl_ns: i64,
    /// What the stream says of copies.
    pub report: Report,
    /// The share of all blocks that is followed, above 0 and at most 1; none: every block, without a sample's figures.
    pub rate: Option<f64>,
    /// Blocks that may be resident, within [`bounds::KV_BLOCKS`].
    pub max_blocks: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            remember: 1_000_000,
            ttl_ns: 1_800_000_000_000,
            report: Report::Copies,
            rate: None,
            max_blocks: 1_000_000,
        }
    }
}

impl Settings {
    /// As much as there can be.
    #[must_use]
    pub fn unlimited() -> Self {
        let most = |range: Range| range.max as u32;
        let (remember, max_blocks) = (most(bounds::KV_REMEMBER), most(bounds::KV_BLOCKS));
        Self { remember, ttl_ns: bounds::KV_TTL_NS.max, max_blocks, ..Self::default() }
    }

    /// Whether a tracker can be made of these.
    ///
    /// # Errors
    ///
    /// A value error that names the first setting that is out of its range.
    pub fn check(&self) -> Result<()> {
        bounds::KV_REMEMBER.check(i64::from(self.remember))?;
        bounds::KV_TTL_NS.check(self.ttl_ns)?;
        bounds::KV_BLOCKS.check(i64::from(self.max_blocks))?;
        self.rate.map_or(Ok(()), sampled::check_rate)
    }
}
