//! What requests come to: counts and sketches by class, metric and stretch of time.
//!
//! [`Block`] is one set of them; [`Run`] feeds blocks from the events of one input.

mod block;
mod flight;
mod replay;
mod route;
mod run;
mod settings;
mod slowest;

pub use block::{Block, SloTally};
pub use flight::{Arrival, Flight};
pub use replay::{Finished, UntimedTokens};
pub use run::Run;
pub use settings::{Counter, Settings};
pub use slowest::Slowest;
