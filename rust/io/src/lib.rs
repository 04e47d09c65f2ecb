//! Logs of LLM serving, read in one streaming pass.
//!
//! Memory depends on requests in flight and on the longest line, never on the length of a log. A line that cannot be
//! read is counted by reason and named, and reading goes on.

mod json;
mod lines;
mod record;
mod reduce;
mod source;

pub use record::Skip;
pub use reduce::{Failure, Input, Notice, Reduction, reduce};
pub use source::Source;
