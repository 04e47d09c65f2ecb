//! The names of what can be measured of a request, and of how it can end.

/// A latency metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Metric {
    /// Time to first token.
    Ttft,
    /// Arrival to first schedule.
    Queue,
    /// First schedule to the prefill's beginning.
    Scheduling,
    /// The prefill's beginning to the first token.
    Prefill,
    /// Time per output token after the first.
    Tpot,
    /// Arrival to last token.
    E2e,
    /// Inter-token latency.
    Itl,
    /// Time without a place in the running batch.
    PreemptionStall,
}

impl Metric {
    /// All metrics, in the order in which reports list them.
    pub const ALL: [Self; 8] = [
        Self::Ttft,
        Self::Queue,
        Self::Scheduling,
        Self::Prefill,
        Self::Tpot,
        Self::E2e,
        Self::Itl,
        Self::PreemptionStall,
    ];

    /// The name that reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Queue => "queue",
            Self::Scheduling => "scheduling",
            Self::Prefill => "prefill",
            Self::Tpot => "tpot",
            Self::E2e => "e2e",
            Self::Itl => "itl",
            Self::PreemptionStall => "preemption_stall",
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(usize)]
pub enum Status {
    /// A stop token or string.
    #[default]
    Stop,
    /// The length limit.
    Length,
    /// The client went away.
    Abort,
    /// An error of the server.
    Error,
    /// A time limit.
    Timeout,
    /// Out of memory.
    Oom,
    /// Never admitted.
    Reject,
    /// Silent for longer than the time to live; no log says so.
    Lost,
}

impl Status {
    /// All statuses, in the order in which reports list them.
    pub const ALL: [Self; 8] =
        [Self::Stop, Self::Length, Self::Abort, Self::Error, Self::Timeout, Self::Oom, Self::Reject, Self::Lost];

    /// The name that logs and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Oom => "oom",
            Self::Reject => "reject",
            Self::Lost => "lost",
        }
    }

    /// The status that a log names so; `lost` is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|&status| status != Self::Lost && status.name() == name)
    }

    /// Whether it counts as a success.
    #[must_use]
    pub const fn succeeded(self) -> bool {
        matches!(self, Self::Stop | Self::Length)
    }
}
