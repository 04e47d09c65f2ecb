//! What a meter shows at one moment: immutable, mergeable.

use super::kv_reading::KvReading;
use super::layout::{BURN_SECONDS, GAUGES};
use super::settings::{Origin, Settings};
use crate::bounds::COUNT;
use crate::error::{Error, Result};
use crate::request::Metric;
use crate::sketch::{Sketch, Sparse};
use crate::tally::{self, Block};
use crate::window::Pane;

/// How long a stream may be silent before it is counted under a limit.
pub const SILENCE_NS: [i64; 4] = [1_000_000_000, 5_000_000_000, 15_000_000_000, 60_000_000_000];

/// Requests that wait for a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// How many there are.
    pub n: u64,
    /// The longest wait.
    pub oldest_ns: Option<i64>,
    /// How many wait for longer than each of [`SILENCE_NS`].
    pub over: [u64; 4],
}

impl Silence {
    /// Counts a request that has waited so long.
    pub(super) fn count(&mut self, ns: i64) {
        self.n += 1;
        self.oldest_ns = self.oldest_ns.max(Some(ns));
        for (over, limit) in self.over.iter_mut().zip(SILENCE_NS) {
            *over += u64::from(ns > limit);
        }
    }

    pub(super) fn absorb(&mut self, other: &Self) {
        self.n += other.n;
        self.oldest_ns = self.oldest_ns.max(other.oldest_ns);
        self.over.iter_mut().zip(other.over).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// Gaps that have not closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// Of requests that have emitted: since their last emission.
    pub streams: Silence,
    /// Of requests that have not: since their arrival.
    pub waits: Silence,
}

/// Counts and sketches of a class over a window, or of everything.
#[derive(Clone, Debug)]
pub struct Scope {
    /// What a report has too.
    pub block: Block<Sparse>,
    /// Prompt tokens that were in the cache.
    pub cached_tokens: u64,
    /// Out-of-memory events, semantic look-ups, semantic hits.
    pub named: [u64; 3],
}

impl PartialEq for Scope {
    fn eq(&self, other: &Self) -> bool {
        self.cached_tokens == other.cached_tokens && self.named == other.named && self.block == other.block
    }
}

impl Scope {
    pub(super) fn new(settings: &tally::Settings) -> Self {
        Self { block: Block::new(settings), cached_tokens: 0, named: [0; 3] }
    }

    /// Whether the counts of both together stay in their range.
    fn fits(&self, other: &Self) -> Result<()> {
        let fluidity = |scope: &Self| scope.block.slos.iter().map(|slo| slo.fluidity.count()).collect::<Vec<_>>();
        let latency = |scope: &Self| scope.block.latency.iter().map(Sketch::count).chain(fluidity(scope)).collect();
        let (mine, theirs): (Vec<u64>, Vec<u64>) = (latency(self), latency(other));
        let over = mine.iter().zip(&theirs).find(|(mine, theirs)| **mine > COUNT.max as u64 - **theirs);
        over.map_or(Ok(()), |(mine, theirs)| Err(COUNT.error(u128::from(*mine) + u128::from(*theirs))))
    }

    fn absorb(&mut self, other: &Self) {
        self.block.absorb(&other.block);
        self.cached_tokens += other.cached_tokens;
        self.named.iter_mut().zip(other.named).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// A class, over everything and over each window.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassReading {
    /// Its labels, by name.
    pub key: Vec<(String, String)>,
    /// Whether it is the class of all that found no room.
    pub other: bool,
    /// What has not ended.
    pub open: Open,
    /// Everything, then each window.
    pub scopes: Vec<Scope>,
}

impl ClassReading {
    pub(super) fn new(key: Vec<(String, String)>, other: bool, scopes: usize, settings: &tally::Settings) -> Self {
        Self { key, other, open: Open::default(), scopes: (0..scopes).map(|_| Scope::new(settings)).collect() }
    }

    fn fits(&self, other: &Self) -> Result<()> {
        self.scopes.iter().zip(&other.scopes).try_for_each(|(mine, theirs)| mine.fits(theirs))
    }

    fn absorb(&mut self, other: &Self) {
        self.open.streams.absorb(&other.open.streams);
        self.open.waits.absorb(&other.open.waits);
        self.scopes.iter_mut().zip(&other.scopes).for_each(|(mine, theirs)| mine.absorb(theirs));
    }
}

/// A window as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowInfo {
    /// The nominal width.
    pub width_ns: i64,
    /// The time that the panes cover.
    pub true_width_ns: i64,
    /// Accepted events whose pane the ring no longer had.
    pub late: u64,
}

/// A gauge over a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaugeFigure {
    /// The value that holds.
    pub last: i64,
    /// The sum of values times the nanoseconds for which they held.
    pub integral: u128,
    /// The time in which there was a value.
    pub covered_ns: u64,
    /// The largest value.
    pub max: i64,
}

/// An increment over a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddedFigure {
    /// How much came together.
    pub sum: u128,
    /// How often it was reported.
    pub times: u64,
}

/// The counts behind a burn rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BurnWindow {
    /// The nominal width.
    pub width_ns: i64,
    /// The time that the panes cover.
    pub true_width_ns: i64,
    /// Of each SLO set: good, judged.
    pub slos: Vec<[u64; 2]>,
    /// Not served, judged.
    pub availability: [u64; 2],
}

/// A meter at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// What the meter measures by.
    pub settings: Settings,
    /// Who wrote it.
    pub origin: Origin,
    /// The moment.
    pub now: Option<i64>,
    /// The newest time that the meter had seen.
    pub newest: Option<i64>,
    /// The earliest event.
    pub first_event: Option<i64>,
    /// The earliest arrival.
    pub first_arrival: Option<i64>,
    /// The earliest emission.
    pub first_emission: Option<i64>,
    /// The latest emission.
    pub last_emission: Option<i64>,
    /// When the engine was ready.
    pub ready: Option<i64>,
    /// Refused events, by [`Refused`](super::Refused).
    pub rejected: [u64; 6],
    /// Refused values, by [`Rejection`](crate::sketch::Rejection).
    pub refused_values: [u64; 4],
    /// Ends that lay before their request's last event.
    pub clamped: u64,
    /// Classifications that found no room.
    pub over: u64,
    /// Observations that a window lacks for want of memory; the totals have them.
    pub dropped: u64,
    /// The windows.
    pub windows: Vec<WindowInfo>,
    /// The classes in which something happened, `other` last.
    pub classes: Vec<ClassReading>,
    /// All classes together.
    pub all: ClassReading,
    /// By scope (everything, then each window).
    pub gauges: Vec<[Option<GaugeFigure>; GAUGES]>,
    /// By scope.
    pub added: Vec<[AddedFigure; 7]>,
    /// By scope: batch sizes and how many steps had them.
    pub batch_sizes: Vec<Vec<(u32, u64)>>,
    /// The counts behind burn rates, if they are kept.
    pub burn: Option<Vec<BurnWindow>>,
    /// The KV cache, if it is followed.
    pub kv: Option<KvReading>,
}

impl Snapshot {
    /// Estimates of quantiles in seconds: scope by scope, in each all classes together and then every class, in each
    /// metric by metric, in each `q` by `q`.
    ///
    /// # Errors
    ///
    /// A quantile outside 0 to 1.
    pub fn quantiles(&self, qs: &[f64]) -> Result<Vec<f64>> {
        let classes = self.classes.len() + 1;
        let mut estimates = Vec::with_capacity(self.all.scopes.len() * classes * Metric::ALL.len() * qs.len());
        for scope in 0..self.all.scopes.len() {
            for class in std::iter::once(&self.all).chain(&self.classes) {
                for sketch in &class.scopes[scope].block.latency {
                    sketch.quantiles_into(qs, &mut estimates)?;
                }
            }
        }
        Ok(estimates)
    }

    /// The widths of the burn rates' windows.
    #[must_use]
    pub fn burn_widths_ns() -> [i64; 6] {
        BURN_SECONDS.map(|seconds| seconds * 1_000_000_000)
    }

    /// The same snapshot on a clock that is so many nanoseconds ahead.
    #[must_use]
    pub fn shift(&self, ns: i64) -> Self {
        let mut shifted = self.clone();
        let times = [
            &mut shifted.now,
            &mut shifted.newest,
            &mut shifted.first_event,
            &mut shifted.first_arrival,
            &mut shifted.first_emission,
            &mut shifted.last_emission,
            &mut shifted.ready,
        ];
        for t in times.into_iter().flatten() {
            *t = t.saturating_add(ns).max(0);
        }
        shifted.kv.iter_mut().for_each(|kv| kv.shift(ns));
        let origin = &mut shifted.origin;
        origin.anchor_monotonic_ns = origin.anchor_monotonic_ns.saturating_add(ns);
        if origin.process_start_ns != 0 {
            origin.process_start_ns = origin.process_start_ns.saturating_add(ns);
        }
        shifted
    }

    /// This and another meter's snapshot together. Gauges add up (their maximum is then an upper bound); a window is
    /// as wide as the wider of both.
    ///
    /// # Errors
    ///
    /// Different SLO sets, windows, scales or ITL rules, or a count that would leave its range.
    pub fn merge(&self, other: &Self) -> Result<Self> {
        let (mine, theirs) = (&self.settings, &other.settings);
        let same = |what: &str, same: bool| {
            if same { Ok(()) } else { Err(Error::value(what, "the same in both snapshots", "different ones")) }
        };
        same("SLO sets", mine.slos == theirs.slos)?;
        same("windows", mine.windows_ns == theirs.windows_ns)?;
        same("scale", mine.scale == theirs.scale)?;
        same("ITL rule", mine.itl_rule == theirs.itl_rule)?;
        self.all.fits(&other.all)?;
        if let (Some(mine), Some(theirs)) = (&self.kv, &other.kv) {
            mine.fits(theirs)?;
        }
        let mut sum = self.clone();
        if self.origin != other.origin {
            // What two processes wrote has the origin of neither.
            (sum.origin.pid, sum.origin.process_start_ns) = (0, 0);
        }
        sum.now = self.now.max(other.now);
        sum.newest = self.newest.max(other.newest);
        sum.last_emission = self.last_emission.max(other.last_emission);
        sum.first_event = earlier(self.first_event, other.first_event);
        sum.first_arrival = earlier(self.first_arrival, other.first_arrival);
        sum.first_emission = earlier(self.first_emission, other.first_emission);
        sum.ready = earlier(self.ready, other.ready);
        sum.rejected.iter_mut().zip(other.rejected).for_each(|(mine, theirs)| *mine += theirs);
        sum.refused_values.iter_mut().zip(other.refused_values).for_each(|(mine, theirs)| *mine += theirs);
        sum.clamped += other.clamped;
        sum.over += other.over;
        sum.dropped += other.dropped;
        for (mine, theirs) in sum.windows.iter_mut().zip(&other.windows) {
            mine.true_width_ns = mine.true_width_ns.max(theirs.true_width_ns);
            mine.late += theirs.late;
        }
        for theirs in &other.classes {
            match sum.classes.iter_mut().find(|mine| mine.key == theirs.key && mine.other == theirs.other) {
                Some(mine) => {
                    mine.fits(theirs)?;
                    mine.absorb(theirs);
                }
                None => sum.classes.push(theirs.clone()),
            }
        }
        sum.classes.sort_by_key(|class| class.other);
        sum.all.absorb(&other.all);
        for (mine, theirs) in sum.gauges.iter_mut().flatten().zip(other.gauges.iter().flatten()) {
            *mine = match (*mine, *theirs) {
                (Some(mine), Some(theirs)) => Some(mine.with(theirs)),
                (mine, theirs) => mine.or(theirs),
            };
        }
        for (mine, theirs) in sum.added.iter_mut().flatten().zip(other.added.iter().flatten()) {
            mine.sum += theirs.sum;
            mine.times += theirs.times;
        }
        for (mine, theirs) in sum.batch_sizes.iter_mut().zip(&other.batch_sizes) {
            for &(size, n) in theirs {
                match mine.binary_search_by_key(&size, |&(size, _)| size) {
                    Ok(at) => mine[at].1 += n,
                    Err(at) => mine.insert(at, (size, n)),
                }
            }
        }
        sum.burn = match (sum.burn, &other.burn) {
            (Some(mut mine), Some(theirs)) => {
                mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| mine.absorb(theirs));
                Some(mine)
            }
            _ => None,
        };
        match (&mut sum.kv, &other.kv) {
            (Some(mine), Some(theirs)) => mine.absorb(theirs),
            (mine, theirs) => *mine = mine.take().or_else(|| theirs.clone()),
        }
        Ok(sum)
    }
}

impl GaugeFigure {
    /// Two gauges of different meters as one: the means add up, over the longer time.
    fn with(self, other: Self) -> Self {
        let covered_ns = self.covered_ns.max(other.covered_ns);
        let stretched = |figure: Self| match u128::from(figure.covered_ns) {
            0 => 0,
            covered => {
                figure.integral / covered * u128::from(covered_ns)
                    + figure.integral % covered * u128::from(covered_ns) / covered
            }
        };
        Self {
            last: self.last.saturating_add(other.last),
            integral: stretched(self).saturating_add(stretched(other)),
            covered_ns,
            max: self.max.saturating_add(other.max),
        }
    }
}

impl BurnWindow {
    fn absorb(&mut self, other: &Self) {
        self.true_width_ns = self.true_width_ns.max(other.true_width_ns);
        let theirs = other.slos.iter().flatten().chain(&other.availability);
        self.slos.iter_mut().flatten().chain(&mut self.availability).zip(theirs).for_each(|(mine, theirs)| {
            *mine += theirs;
        });
    }
}

pub(super) fn earlier(mine: Option<i64>, theirs: Option<i64>) -> Option<i64> {
    match (mine, theirs) {
        (Some(mine), Some(theirs)) => Some(mine.min(theirs)),
        (mine, theirs) => mine.or(theirs),
    }
}
