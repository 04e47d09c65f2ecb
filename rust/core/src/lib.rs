//! The metering core for LLM serving: no Python, no clock, no I/O.
//!
//! - [`sketch`]: mergeable quantile sketches of durations, exact in count, sum, min and max.
//! - [`request`]: the state machine of one request; [`slo`]: whether it was served well; [`strata`]: its class.
//! - [`window`]: rings of panes and timelines; [`tally`]: what the requests of a run come to.
//! - [`meter`]: the same, live: what an engine calls on every step, and what others read meanwhile.
//! - [`kv`]: the blocks of a KV cache: evictions, refills, and how much cache would be enough.
//! - [`codec`]: sketches as OpenTelemetry bytes.
//!
//! Times are `i64` nanoseconds that the caller passes, counts `u64`, sums 128 bits; floats appear when something is
//! read. Bad data in a stream is counted by reason and changes nothing else; errors are for wrong settings and for
//! bytes that do not decode.

#[macro_use]
mod names;

pub mod bounds;
pub mod codec;
mod error;
pub mod kv;
pub mod meter;
pub mod prefetch;
pub mod request;
pub mod sketch;
pub mod slo;
pub mod strata;
pub mod tally;
pub mod window;

pub use error::{Error, ErrorKind, Result};
