//! What a run is measured by, and the names under which it counts what it refuses.

use std::sync::Arc;

use crate::bounds;
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
    /// The bins past which that width doubles.
    pub timeline_bins: i64,
    /// How long a request may be silent before it is lost.
    pub ttl_ns: i64,
    /// Requests that arrive before this are outside: followed, but not counted.
    pub from_ns: Option<i64>,
    /// Requests that arrive at this time or later are outside too.
    pub to_ns: Option<i64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scale: bounds::DEFAULT_SCALE,
            itl_rule: ItlRule::default(),
            slos: Arc::from([]),
            by: Vec::new(),
            timeline_ns: None,
            timeline_bins: bounds::MAX_TIMELINE_BINS,
            ttl_ns: 3_600_000_000_000,
            from_ns: None,
            to_ns: None,
        }
    }
}

impl Settings {
    /// Whether requests are cut to those that arrive within a span.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.from_ns.is_some() || self.to_ns.is_some()
    }

    /// Whether a request that arrives at `t` is counted.
    #[must_use]
    pub fn is_inside(&self, t: i64) -> bool {
        self.from_ns.is_none_or(|from| from <= t) && self.to_ns.is_none_or(|to| t < to)
    }
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
