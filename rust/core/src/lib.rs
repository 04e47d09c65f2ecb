//! The metering core for LLM serving: no Python, no clock, no I/O.

pub mod bounds;
pub mod codec;
mod error;
pub mod sketch;

pub use error::{Error, ErrorKind, Result};
