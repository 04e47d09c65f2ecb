//! Sketches as bytes that others can read.

pub mod otlp;
mod snapshot;
