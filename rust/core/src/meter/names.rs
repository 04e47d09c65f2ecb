//! What a meter counts beside latencies, and the reasons for which it refuses.

/// Why an event was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Refused {
    /// Before the request's last event, or a gauge's.
    Negative,
    /// Can come but once, or not in this state.
    Duplicate,
    /// Of a request that is not in flight.
    Unknown,
    /// More than a day ahead of the newest time.
    Future,
    /// An arrival for which there was no room.
    Full,
    /// A number outside its range.
    Invalid,
}

impl Refused {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Negative, Self::Duplicate, Self::Unknown, Self::Future, Self::Full, Self::Invalid];

    /// The name that reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Negative => "negative",
            Self::Duplicate => "duplicate",
            Self::Unknown => "unknown",
            Self::Future => "future",
            Self::Full => "full",
            Self::Invalid => "invalid",
        }
    }
}

impl From<crate::request::Refusal> for Refused {
    fn from(refusal: crate::request::Refusal) -> Self {
        match refusal {
            crate::request::Refusal::Negative => Self::Negative,
            crate::request::Refusal::Duplicate => Self::Duplicate,
        }
    }
}

names! {
    /// A level that holds until it is set again.
    Gauge, 5,
    /// Requests in the running batch.
    Running = "running",
    /// Requests that wait.
    Waiting = "waiting",
    /// Blocks of the KV cache in use.
    KvUsed = "kv_used",
    /// Blocks of the KV cache.
    KvTotal = "kv_total",
    /// The largest batch that may run.
    BatchMax = "batch_max",
}

names! {
    /// What an engine reports as increments.
    Added, 7,
    /// Time in which the GPU computed.
    GpuActiveNs = "gpu_active_ns",
    /// Time spent on communication.
    CommNs = "comm_ns",
    /// Time spent on dequantisation.
    DequantNs = "dequant_ns",
    /// Tokens computed in prefill.
    PrefillTokens = "prefill_tokens",
    /// Tokens computed in decode.
    DecodeTokens = "decode_tokens",
    /// Floating-point operations.
    Flops = "flops",
    /// Bytes moved from and to memory.
    BytesMoved = "bytes_moved"
}

names! {
    /// What is counted by name.
    Named, 6,
    /// Out of memory without a request that ended for it.
    OomEvent = "oom_event",
    /// Look-ups in the semantic cache.
    SemanticLookup = "semantic_lookup",
    /// Hits in the semantic cache.
    SemanticHit = "semantic_hit",
    /// Prompt tokens of requests that did not arrive here.
    PromptTokens = "prompt_tokens",
    /// Cached tokens of such.
    CachedTokens = "cached_tokens",
    /// Output tokens of such.
    OutputTokens = "output_tokens"
}

/// How much something grew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Increment {
    /// A whole number.
    Int(i64),
    /// A float, rounded to the nearest whole number, half to even.
    Float(f64),
}

impl Increment {
    /// The whole number, if it is one between 0 and `i64::MAX`.
    pub(super) fn whole(self) -> Option<u64> {
        match self {
            Self::Int(int) => u64::try_from(int).ok(),
            Self::Float(float) => {
                // 2^63 as a double: the least that does not fit.
                let fits = (0.0..9_223_372_036_854_775_808.0).contains(&float);
                fits.then(|| float.round_ties_even() as u64)
            }
        }
    }
}
