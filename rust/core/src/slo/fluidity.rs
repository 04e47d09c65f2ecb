//! Smoothness: how many of a request's token deadlines were met, where early tokens build up slack for late ones.
//!
//! After the fluidity index of Etalon (A. Agrawal and others, 2024).

use super::Slo;
use crate::sketch::Gaps;

/// The deadlines of one request under one set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fluidity {
    slack: i64,
    /// Deadlines met.
    pub met: u64,
    /// Deadlines in all.
    pub total: u64,
}

impl Fluidity {
    /// The deadlines of a finished request.
    #[must_use]
    pub const fn of(met: u64, total: u64) -> Self {
        Self { slack: 0, met, total }
    }

    /// Takes an emission of `k` tokens, so long after the one before (after the arrival, for the first).
    #[inline]
    pub fn emission(&mut self, slo: &Slo, first: bool, gap_ns: i64, k: u64) {
        let deadline = if first { slo.ttft_ns } else { slo.tpot_ns };
        let allowed = self.slack.saturating_add(deadline);
        if gap_ns <= allowed {
            self.slack = allowed - gap_ns;
            self.met += 1;
            self.total += 1;
        } else {
            self.slack = 0;
            self.total += 1 + ((gap_ns - allowed) / deadline) as u64;
        }
        // The rest of the emission comes at once: each meets its deadline and leaves it as slack.
        let rest = k - 1;
        self.slack = self.slack.saturating_add(slo.tpot_ns.saturating_mul(rest as i64));
        self.met += rest;
        self.total += rest;
    }

    /// Takes emissions of one token each, at these times, whose gaps are known; the one before them was at `before`.
    pub fn emissions(&mut self, slo: &Slo, gaps: &Gaps, before: i64, times: &[i64]) {
        let n = gaps.len();
        if gaps.largest_ns() <= slo.tpot_ns
            && let Some(allowed) = slo.tpot_ns.checked_mul(n as i64)
            && let Some(slack) = self.slack.checked_add(allowed)
        {
            // Each meets its deadline, whatever the slack before it.
            self.slack = slack - gaps.sum_ns();
            self.met += n as u64;
            self.total += n as u64;
            return;
        }
        let earlier = std::iter::once(&before).chain(times);
        times.iter().zip(earlier).for_each(|(t, before)| self.emission(slo, false, t - before, 1));
    }

    /// The share of deadlines met, in billionths, floored.
    #[must_use]
    pub fn index_billionths(&self) -> i64 {
        (u128::from(self.met) * 1_000_000_000 / u128::from(self.total.max(1))) as i64
    }
}
