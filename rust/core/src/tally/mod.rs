//! What requests come to: counts and sketches by class, metric and stretch of time.
//!
//! [`Block`] is one set of them; [`Run`] feeds blocks from the events of one input.

mod block;
mod flight;
mod flow;
mod grid;
mod replay;
mod route;
mod rows;
mod run;
mod settings;
mod slowest;

pub use block::{Block, SloTally};
pub use flight::{Arrival, Flight};
pub use flow::{Flow, FlowBin};
pub use grid::{Grid, SCALE as GRID_SCALE};
pub use replay::{Finished, UntimedTokens};
pub use rows::{Row, RowEnd, RowLabel, Rows};
pub use run::Run;
pub use settings::{Counter, Settings};
pub use slowest::Slowest;
