//! Sets of limits, and whether a request was served well.

mod fluidity;
mod goodput;

pub use fluidity::Fluidity;
pub use goodput::{LIMITS, Slo, Verdict};
