//! What requests come to: counts and sketches by class, metric and stretch of time.
//!
//! [`Block`] is one set of them; [`Run`] feeds blocks from the events of one input.

mod block;
mod flight;
mod run;
mod slowest;

pub use block::{Block, SloTally};
pub use flight::{Arrival, Flight};
pub use run::{Counter, Finished, Run, Settings, Timed, UntimedTokens};
pub use slowest::Slowest;
