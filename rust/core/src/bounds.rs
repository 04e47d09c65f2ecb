//! Every legal range, once: its ends, its unit, and the phrase that errors use for it.

use std::fmt::Display;

use crate::error::{Error, Result};

/// An inclusive range of integers with the name that errors use.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// What is bounded.
    pub name: &'static str,
    /// The least legal value.
    pub min: i64,
    /// The greatest legal value.
    pub max: i64,
}

impl Range {
    /// Whether `value` lies within.
    #[must_use]
    pub const fn contains(&self, value: i64) -> bool {
        self.min <= value && value <= self.max
    }

    /// `value`, if it lies within.
    ///
    /// # Errors
    ///
    /// A value error that names the range.
    pub fn check(&self, value: i64) -> Result<i64> {
        if self.contains(value) { Ok(value) } else { Err(self.error(value)) }
    }

    /// The error for a value outside.
    pub fn error(&self, got: impl Display) -> Error {
        Error::value(self.name, format_args!("between {} and {}", self.min, self.max), got)
    }
}

/// Buckets an octave, as a power of two.
pub const SCALE: Range = Range { name: "scale", min: 0, max: 8 };
/// The scale that is used unless another is asked for: an error of 0.542 %.
pub const DEFAULT_SCALE: u8 = 6;
/// How often one value may be recorded at once, and how much a sketch may count.
pub const COUNT: Range = Range { name: "count", min: 0, max: i64::MAX };
/// Tokens of one emission.
pub const EMISSION_TOKENS: Range = Range { name: "tokens of an emission", min: 1, max: u32::MAX as i64 };
/// Tokens of one request, prompt or output.
pub const REQUEST_TOKENS: Range = Range { name: "tokens of a request", min: 0, max: 1 << 40 };
/// Times, in nanoseconds.
pub const TIME_NS: Range = Range { name: "time in ns", min: 0, max: i64::MAX };
/// Widths of windows, in nanoseconds (up to a hundred days).
pub const WIDTH_NS: Range = Range { name: "window width in ns", min: 60, max: 100 * DAY_NS };
/// Widths of timeline bins, in nanoseconds (up to ten years).
pub const BIN_NS: Range = Range { name: "timeline bin in ns", min: 1, max: 3650 * DAY_NS };
/// Limits of an SLO set, in nanoseconds.
pub const LIMIT_NS: Range = Range { name: "SLO limit in ns", min: 1, max: i64::MAX };
/// Label keys in one classification.
pub const MAX_LABEL_KEYS: usize = 8;
/// Classes, the class `other` included.
pub const MAX_CLASSES: usize = 256;
/// Classes of a meter, the class `other` included.
pub const METER_CLASSES: Range = Range { name: "max_classes", min: 2, max: 4096 };
/// Requests that a shard of a meter may hold in flight.
pub const METER_REQUESTS: Range = Range { name: "max_requests", min: 1, max: (1 << 24) - 1 };
/// Parts of a meter that may be written to at the same time.
pub const SHARDS: Range = Range { name: "shards", min: 1, max: 127 };
/// SLO sets of a meter.
pub const MAX_SLOS: usize = 32;
/// Windows of a meter.
pub const MAX_WINDOWS: usize = 8;
/// Evicted blocks of a KV cache that are remembered.
pub const KV_REMEMBER: Range = Range { name: "remember", min: 0, max: (1 << 26) - 1 };
/// How long they are.
pub const KV_TTL_NS: Range = Range { name: "ttl in ns", min: 1, max: i64::MAX };
/// Blocks that may be resident in a KV cache.
pub const KV_BLOCKS: Range = Range { name: "max_blocks", min: 1, max: (1 << 26) - 1 };
/// Numbers of the groups that blocks belong to.
pub const KV_GROUP: Range = Range { name: "group", min: 0, max: 4095 };
/// Physical copies of one block in one tier.
pub const KV_COPIES: u64 = 8191;
/// Bytes of a class's labels in a meter's block; what is longer goes to `other`.
pub const CLASS_KEY_BYTES: usize = 1000;
/// Memory of a meter's block, in words of 8 bytes (16 GiB).
pub const BLOCK_WORDS: usize = 1 << 31;
/// Bins of a timeline.
pub const MAX_TIMELINE_BINS: i64 = 10_000;
/// The bins past which a timeline's width doubles.
pub const TIMELINE_BINS: Range = Range { name: "timeline bins", min: 2, max: MAX_TIMELINE_BINS };
/// Panes in a window's width.
pub const PANES: i64 = 60;
/// Bytes of an encoded sketch that a decoder looks at.
pub const ENCODED_BYTES: usize = 128 << 10;
/// A day: how far ahead of the newest time an event may lie.
pub const DAY_NS: i64 = 86_400_000_000_000;
