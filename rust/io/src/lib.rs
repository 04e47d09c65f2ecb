//! Logs of LLM serving, read in one streaming pass.
//!
//! Memory depends on requests in flight and on the longest line, never on the length of a log. A line that cannot be
//! read is counted by reason and named, and reading goes on.
//!
//! Beside logs: a meter's memory as a file that other processes read ([`Mapped`]), and who writes it ([`process`]).

mod batch;
mod chunks;
mod columns;
mod digits;
mod document;
mod flights;
mod input;
mod json;
mod kv;
mod mapped;
mod parse;
mod part;
mod pipeline;
pub mod process;
mod record;
mod reduce;
mod replay;
mod scan;
mod shape;
mod source;

pub use columns::{ColumnRun, Emissions, EventColumns, IN_FLIGHT, Ids, Labels, Lists, RequestColumns, Whole};
pub use document::{ABSENT, Document, Fault, OpenDocument, Part, Value, Wanted};
pub use input::{Failure, Notice};
pub use kv::{KvContent, KvEvents, KvInput, KvLog, Loss, read_kv};
pub use mapped::{BlockError, Listing, MAX_BYTES, Mapped, blocks_in};
pub use pipeline::Reading;
pub use record::Skip;
pub use reduce::{Input, Reduction, read_rows, reduce};
pub use replay::{Machine, Replayed, Replaying, replay, replay_columns};
pub use source::Source;
