//! How requests came and went: arrivals and ends over time, and how long requests stayed.
//!
//! Of all requests, whatever a report is cut to. Touched when a request arrives, first emits and ends; an emission only
//! adds to two counts. A bin keeps the sums of its events' times, so that merging, and widening bins, is adding.

use crate::bounds::MAX_TIMELINE_BINS;
use crate::window::{Pane, Timeline};

/// The width of the bins before it doubles: a millisecond.
const WIDTH_NS: i64 = 1_000_000;

/// What came and went in one stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowBin {
    /// Requests that arrived.
    pub arrivals: u64,
    /// Requests that ended.
    pub ends: u64,
    /// Arrivals whose first token came, whenever that was.
    pub ttft_count: u64,
    /// The sum of their times to first token.
    pub ttft_sum_ns: u128,
    arrive_sum_ns: u128,
    end_sum_ns: u128,
}

impl FlowBin {
    /// The sum over its arrivals of the time since the bin's start, which is `start`.
    #[must_use]
    pub fn arrival_offset_ns(&self, start: i64) -> u128 {
        self.arrive_sum_ns - u128::from(self.arrivals) * start as u128
    }

    /// The sum over its ends of the time since the bin's start, which is `start`.
    #[must_use]
    pub fn end_offset_ns(&self, start: i64) -> u128 {
        self.end_sum_ns - u128::from(self.ends) * start as u128
    }
}

impl Pane for FlowBin {
    fn absorb(&mut self, other: &Self) {
        self.arrivals += other.arrivals;
        self.ends += other.ends;
        self.ttft_count += other.ttft_count;
        self.ttft_sum_ns += other.ttft_sum_ns;
        self.arrive_sum_ns += other.arrive_sum_ns;
        self.end_sum_ns += other.end_sum_ns;
    }
}

/// The first and the last of some times.
type Ends = Option<(i64, i64)>;

/// How requests came and went.
#[derive(Clone, Debug)]
pub struct Flow {
    bins: Timeline<FlowBin>,
    arrivals: Ends,
    ends: Ends,
    residence_count: u64,
    residence_sum_ns: u128,
    /// Emissions whose times are known.
    pub(super) emissions: u64,
    /// Those of more than one token.
    pub(super) coalesced: u64,
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            bins: Timeline::new(WIDTH_NS, MAX_TIMELINE_BINS),
            arrivals: None,
            ends: None,
            residence_count: 0,
            residence_sum_ns: 0,
            emissions: 0,
            coalesced: 0,
        }
    }
}

impl Flow {
    /// A request arrives.
    pub(super) fn arrive(&mut self, t: i64) {
        self.arrivals = joined(self.arrivals, Some((t, t)));
        let bin = self.bins.bin_at(t, FlowBin::default);
        bin.arrivals += 1;
        bin.arrive_sum_ns += t as u128;
    }

    /// A request that arrived at `arrived` emits for the first time.
    pub(super) fn first_emission(&mut self, arrived: i64, ttft_ns: i64) {
        let bin = self.bins.bin_at(arrived, FlowBin::default);
        bin.ttft_count += 1;
        bin.ttft_sum_ns += ttft_ns as u128;
    }

    /// A request that arrived at `arrived` ends.
    pub(super) fn end(&mut self, arrived: i64, t: i64) {
        self.ends = joined(self.ends, Some((t, t)));
        self.residence_count += 1;
        self.residence_sum_ns += (t - arrived) as u128;
        let bin = self.bins.bin_at(t, FlowBin::default);
        bin.ends += 1;
        bin.end_sum_ns += t as u128;
    }

    /// Adds another run's.
    pub(super) fn merge(&mut self, other: Self) {
        self.bins.merge(other.bins);
        self.arrivals = joined(self.arrivals, other.arrivals);
        self.ends = joined(self.ends, other.ends);
        self.residence_count += other.residence_count;
        self.residence_sum_ns += other.residence_sum_ns;
        self.emissions += other.emissions;
        self.coalesced += other.coalesced;
    }

    /// The bins that hold something, and how wide they are.
    #[must_use]
    pub fn bins(&self) -> &Timeline<FlowBin> {
        &self.bins
    }

    /// The first and the last arrival.
    #[must_use]
    pub fn arrivals(&self) -> Option<(i64, i64)> {
        self.arrivals
    }

    /// The first and the last end.
    #[must_use]
    pub fn ends(&self) -> Option<(i64, i64)> {
        self.ends
    }

    /// Of the requests that ended: how many, and the sum of their times from arrival to end.
    #[must_use]
    pub fn residence(&self) -> (u64, u128) {
        (self.residence_count, self.residence_sum_ns)
    }

    /// Emissions whose times are known, and how many of them were of more than one token.
    #[must_use]
    pub fn emissions(&self) -> (u64, u64) {
        (self.emissions, self.coalesced)
    }
}

fn joined(mine: Ends, theirs: Ends) -> Ends {
    match (mine, theirs) {
        (Some((first, last)), Some((from, to))) => Some((first.min(from), last.max(to))),
        (mine, theirs) => mine.or(theirs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// (start, arrivals, their offsets, ends, their offsets)
    fn rows(flow: &Flow) -> Vec<(i64, u64, u128, u64, u128)> {
        let row = |(start, bin): (i64, &FlowBin)| {
            (start, bin.arrivals, bin.arrival_offset_ns(start), bin.ends, bin.end_offset_ns(start))
        };
        flow.bins().iter().map(row).collect()
    }

    #[test]
    fn widening_adds_a_width_for_each_event_of_the_right_bin() {
        let mut flow = Flow::default();
        for t in [0, 400_000, MS + 1, MS + 3] {
            flow.arrive(t);
        }
        flow.end(0, MS + 9);
        assert_eq!(rows(&flow), [(0, 2, 400_000, 0, 0), (MS, 2, 4, 1, 9)]);
        // Ten thousand bins hold up to 10 s; the next doubles the width.
        flow.arrive(9_999 * MS);
        assert_eq!(flow.bins().width_ns(), MS);
        flow.arrive(10_000 * MS + 7);
        assert_eq!(flow.bins().width_ns(), 2 * MS);
        assert_eq!(
            rows(&flow),
            [
                (0, 4, 400_000 + 2 * MS as u128 + 4, 1, MS as u128 + 9),
                (9_998 * MS, 1, MS as u128, 0, 0),
                (10_000 * MS, 1, 7, 0, 0)
            ]
        );
    }

    #[test]
    fn merging_is_the_same_as_one_run() {
        let requests: Vec<(i64, i64)> =
            (0..500).map(|i| (i * i * 137 * MS / 7 % (40_000 * MS), i * 31_000_001)).collect();
        let run_of = |requests: &[(i64, i64)]| {
            let mut flow = Flow::default();
            for &(arrived, stayed) in requests {
                flow.arrive(arrived);
                flow.first_emission(arrived, stayed / 3);
                flow.end(arrived, arrived + stayed);
                flow.emissions += 2;
                flow.coalesced += 1;
            }
            flow
        };
        let whole = run_of(&requests);
        assert!(whole.bins().width_ns() > MS);
        for at in [0, 1, 250, 500] {
            let mut merged = run_of(&requests[at..]);
            merged.merge(run_of(&requests[..at]));
            assert_eq!(merged.bins().width_ns(), whole.bins().width_ns());
            assert!(merged.bins().iter().eq(whole.bins().iter()));
            assert_eq!((merged.arrivals(), merged.ends()), (whole.arrivals(), whole.ends()));
            assert_eq!((merged.residence(), merged.emissions()), (whole.residence(), whole.emissions()));
        }
    }
}
