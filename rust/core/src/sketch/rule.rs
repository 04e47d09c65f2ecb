//! What an emission of several tokens gives as inter-token latency.

use crate::error::{Error, Result};

/// The rule by which an emission of `k` tokens after a gap `g` is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ItlRule {
    /// `k` observations of `g / k`.
    #[default]
    Token,
    /// One observation of `g`.
    Chunk,
    /// One observation of `g` and `k - 1` of 0.
    Stamp,
}

impl ItlRule {
    /// The name that settings and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Chunk => "chunk",
            Self::Stamp => "stamp",
        }
    }

    /// The rule of that name.
    ///
    /// # Errors
    ///
    /// A name that is no rule's.
    pub fn from_name(name: &str) -> Result<Self> {
        [Self::Token, Self::Chunk, Self::Stamp]
            .into_iter()
            .find(|rule| rule.name() == name)
            .ok_or_else(|| Error::value("ITL rule", "token, chunk or stamp", format_args!("{name:?}")))
    }

    /// What an emission of `k` tokens after `gap_ns` gives: value, how often, and what the sum grows by.
    #[inline(always)]
    pub fn samples(self, gap_ns: i64, k: u64, mut sample: impl FnMut(i64, u64, u128)) {
        let sum = gap_ns as u128;
        match self {
            _ if k <= 1 => sample(gap_ns, 1, sum),
            Self::Token => sample(gap_ns / k as i64, k, sum),
            Self::Chunk => sample(gap_ns, 1, sum),
            Self::Stamp => {
                sample(gap_ns, 1, sum);
                sample(0, k - 1, 0);
            }
        }
    }

    /// The largest value that an emission of `k` tokens after `gap_ns` gives.
    #[inline]
    #[must_use]
    pub const fn largest(self, gap_ns: i64, k: u64) -> i64 {
        match self {
            Self::Token if k > 1 => gap_ns / k as i64,
            _ => gap_ns,
        }
    }
}
