//! One set of counts and sketches: of a whole run, of a class, or of a stretch of time.

use super::settings::Settings;
use crate::request::{Ending, Metric, Status};
use crate::sketch::{Gaps, ItlRule, Sketch, Store};
use crate::slo::{Fluidity, Slo, Verdict};
use crate::window::Pane;

/// What one SLO set found.
#[derive(Clone, Debug, PartialEq)]
pub struct SloTally<S: Store> {
    /// Requests under every limit.
    pub good: u64,
    /// Their output tokens.
    pub good_output_tokens: u64,
    /// Successes over limits, by the combination of limits (bit `i` is `LIMITS[i]`); entry 0 is without a token.
    pub over: [u64; 16],
    /// Requests that did not succeed, by status.
    pub failed: [u64; 8],
    /// Token deadlines met.
    pub met: u64,
    /// Token deadlines in all.
    pub deadlines: u64,
    /// The fluidity index of each request, 1.0 being 10^9.
    pub fluidity: Sketch<S>,
}

impl<S: Store> SloTally<S> {
    fn new(scale: u8) -> Self {
        Self {
            good: 0,
            good_output_tokens: 0,
            over: [0; 16],
            failed: [0; 8],
            met: 0,
            deadlines: 0,
            fluidity: Sketch::empty(scale, None),
        }
    }

    /// Counts a verdict.
    pub fn count(&mut self, verdict: Verdict, output_tokens: u64) {
        match verdict {
            Verdict::Abstained => {}
            Verdict::Good => {
                self.good += 1;
                self.good_output_tokens += output_tokens;
            }
            Verdict::NoTokens => self.over[0] += 1,
            Verdict::Over(limits) => self.over[usize::from(limits)] += 1,
            Verdict::Failed(status) => self.failed[status as usize] += 1,
        }
    }

    /// Adds a finished request's deadlines.
    pub fn add_fluidity(&mut self, fluidity: &Fluidity) {
        self.met += fluidity.met;
        self.deadlines += fluidity.total;
        self.fluidity.record_ns(fluidity.index_billionths());
    }

    /// Successes over limits, by the joined names of the limits, and those without a token.
    pub fn over_by_name(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        let named = |bits: usize| {
            let limits = crate::slo::LIMITS.iter().enumerate();
            let missed: Vec<&str> = limits.filter(|(i, _)| bits >> i & 1 == 1).map(|(_, name)| *name).collect();
            if missed.is_empty() { "no_tokens".to_owned() } else { missed.join("+") }
        };
        self.over.iter().enumerate().filter(|&(_, &n)| n > 0).map(move |(bits, &n)| (named(bits), n))
    }
}

/// Counts and sketches over some set of requests and events.
#[derive(Clone, Debug, PartialEq)]
pub struct Block<S: Store> {
    /// Requests that arrived.
    pub attempted: u64,
    /// Requests that ended, by status.
    pub by_status: [u64; 8],
    /// Ended requests that a fallback path served.
    pub degraded: u64,
    /// Ended requests that were preempted at least once.
    pub preempted: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Prompt tokens of arrivals.
    pub prompt_tokens: u64,
    /// Tokens of emissions.
    pub output_tokens: u64,
    /// Ended requests that lack a milestone, by metric.
    pub missing: [u64; 8],
    /// The latency metrics.
    pub latency: [Sketch<S>; 8],
    /// The SLO sets, in the order given.
    pub slos: Vec<SloTally<S>>,
}

impl<S: Store> Block<S> {
    /// An empty block.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let sketch = |metric| {
            let rule: Option<ItlRule> = (metric == Metric::Itl).then_some(settings.itl_rule);
            Sketch::empty(settings.scale, rule)
        };
        Self {
            attempted: 0,
            by_status: [0; 8],
            degraded: 0,
            preempted: 0,
            preemptions: 0,
            prompt_tokens: 0,
            output_tokens: 0,
            missing: [0; 8],
            latency: Metric::ALL.map(sketch),
            slos: settings.slos.iter().map(|_| SloTally::new(settings.scale)).collect(),
        }
    }

    /// Records a latency.
    #[inline]
    pub fn observe(&mut self, metric: Metric, ns: i64) {
        self.latency[metric as usize].record_ns(ns);
    }

    /// Records an emission after the first.
    #[inline]
    pub fn observe_gap(&mut self, gap_ns: i64, k: u64) {
        self.latency[Metric::Itl as usize].record_emission(gap_ns, k);
    }

    /// Records emissions of one token each, after the first.
    #[inline]
    pub fn observe_gaps(&mut self, gaps: &Gaps) {
        self.output_tokens += gaps.len() as u64;
        self.latency[Metric::Itl as usize].record_gaps(gaps);
    }

    /// Counts an ended request and observes what is known of it as a whole.
    pub fn end(&mut self, ending: &Ending, degraded: bool) {
        self.by_status[ending.status as usize] += 1;
        self.degraded += u64::from(degraded);
        self.preempted += u64::from(ending.stall.is_some());
        for metric in Metric::ALL {
            self.missing[metric as usize] += u64::from(ending.lacks(metric));
        }
        for (metric, ns) in ending.observed() {
            self.observe(metric, ns);
        }
    }

    /// Counts the verdict of SLO set `index` and, for a success whose token times are known, its deadlines.
    pub fn judge(&mut self, index: usize, slo: &Slo, ending: &Ending, max_itl: Option<i64>, fluidity: &Fluidity) {
        let tally = &mut self.slos[index];
        tally.count(slo.judge(ending, max_itl), ending.tokens);
        if ending.status.succeeded() && ending.tokens >= 1 && ending.token_times_known {
            tally.add_fluidity(fluidity);
        }
    }

    /// Requests that ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.by_status.iter().sum()
    }

    /// Requests that ended with a status.
    #[must_use]
    pub fn status(&self, status: Status) -> u64 {
        self.by_status[status as usize]
    }
}

impl<S: Store> Pane for Block<S> {
    fn absorb(&mut self, other: &Self) {
        fn add<const N: usize>(mine: &mut [u64; N], theirs: &[u64; N]) {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
        self.attempted += other.attempted;
        add(&mut self.by_status, &other.by_status);
        self.degraded += other.degraded;
        self.preempted += other.preempted;
        self.preemptions += other.preemptions;
        self.prompt_tokens += other.prompt_tokens;
        self.output_tokens += other.output_tokens;
        add(&mut self.missing, &other.missing);
        self.latency.iter_mut().zip(&other.latency).for_each(|(mine, theirs)| mine.absorb(theirs));
        for (mine, theirs) in self.slos.iter_mut().zip(&other.slos) {
            mine.good += theirs.good;
            mine.good_output_tokens += theirs.good_output_tokens;
            add(&mut mine.over, &theirs.over);
            add(&mut mine.failed, &theirs.failed);
            mine.met += theirs.met;
            mine.deadlines += theirs.deadlines;
            mine.fluidity.absorb(&theirs.fluidity);
        }
    }
}
