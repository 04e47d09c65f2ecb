//! What a run is measured by, and the names under which it counts what it refuses.

use std::sync::Arc;

use crate::request::Refusal;
use crate::sketch::ItlRule;
use crate::slo::Slo;
use crate::strata::Key;

/// What a run is measured by.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The scale of all sketches.
    pub scale: u8,
    /// How emissions of several tokens are recorded.
    pub itl_rule: ItlRule,
    /// The sets of limits.
    pub slos: Arc<[Slo]>,
    /// What requests are classed by; empty: not at all.
    pub by: Vec<Key>,
    /// The width of the timeline's bins.
    pub timeline_ns: Option<i64>,
    /// How long a request may be silent before it is lost.
    pub ttl_ns: i64,
}

/// Why an event was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Refused: before the request's last event.
    Negative,
    /// Refused: can come but once, or not in this state.
    Duplicate,
    /// Refused: of a request that is not in flight.
    Unknown,
    /// Refused: more than a day ahead of the newest time.
    Future,
}

impl Counter {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Negative, Self::Duplicate, Self::Unknown, Self::Future];

    /// The name that reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Negative => "negative",
            Self::Duplicate => "duplicate",
            Self::Unknown => "unknown",
            Self::Future => "future",
        }
    }
}

impl From<Refusal> for Counter {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Negative => Self::Negative,
            Refusal::Duplicate => Self::Duplicate,
        }
    }
}
