//! A request as a small state machine: milestones, tokens and stalls, from events that bear their own times.
//!
//! Pure: no clock, no allocation, constant time an event. An event that is refused changes nothing.

mod slots;
mod status;
mod transition;

pub use slots::{Slot, flag};
pub use status::{Metric, Status};
pub use transition::{Ending, Event, Observation, Refusal, Request};
