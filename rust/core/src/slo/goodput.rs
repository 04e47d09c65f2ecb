//! The verdict on a finished request under a set of limits: good, or what it missed.
//!
//! Comparisons are strict and between whole nanoseconds.

use crate::request::{Ending, Status};

/// The names of the limits, in the order in which a combination of misses is written.
pub const LIMITS: [&str; 4] = ["ttft", "tpot", "e2e", "itl"];

/// A set of limits, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slo {
    /// What the set is called.
    pub name: String,
    /// Time to first token.
    pub ttft_ns: i64,
    /// Time per output token.
    pub tpot_ns: i64,
    /// Arrival to last token.
    pub e2e_ns: Option<i64>,
    /// The largest inter-token latency.
    pub itl_ns: Option<i64>,
    /// The labels a request must bear to be judged.
    pub labels: Vec<(String, String)>,
}

/// What a set says of a finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client went away: no verdict.
    Abstained,
    /// Under every limit.
    Good,
    /// A success without a token.
    NoTokens,
    /// A success over limits: bit `i` stands for `LIMITS[i]`.
    Over(u8),
    /// No success.
    Failed(Status),
}

impl Slo {
    /// Judges an ended request, whose largest observed inter-token latency is `max_itl`.
    #[must_use]
    pub fn judge(&self, ending: &Ending, max_itl: Option<i64>) -> Verdict {
        match ending.status {
            Status::Abort => return Verdict::Abstained,
            status if !status.succeeded() => return Verdict::Failed(status),
            _ if ending.tokens == 0 => return Verdict::NoTokens,
            _ => {}
        }
        // A figure that should be there and is not cannot be under its limit.
        let over = |limit: Option<i64>, figure: Option<i64>, due: bool| {
            limit.is_some_and(|limit| figure.map_or(due, |figure| figure >= limit))
        };
        let several = ending.tokens >= 2;
        let missed = [
            over(Some(self.ttft_ns), ending.ttft, true),
            over(Some(self.tpot_ns), ending.tpot, several),
            over(self.e2e_ns, ending.e2e, true),
            over(self.itl_ns, max_itl, several && !ending.token_times_known),
        ];
        match missed.iter().rev().fold(0, |bits, &missed| bits << 1 | u8::from(missed)) {
            0 => Verdict::Good,
            bits => Verdict::Over(bits),
        }
    }
}
