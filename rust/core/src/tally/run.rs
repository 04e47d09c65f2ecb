//! From the events of one input to its blocks: total, by class, over time.
//!
//! Memory depends on requests in flight, classes and bins, never on the number of events.

use std::sync::Arc;

use super::flight::{Arrival, Class, Deadlines, Flight};
use super::route::AnyBlock;
use super::rows::{RowEnd, Rows};
use super::settings::{Counter, Settings};
use super::{Block, Flow, Grid, Slowest};
use crate::bounds::MAX_CLASSES;
use crate::request::{Event, Metric, Observation, Status};
use crate::sketch::{Dense, Gaps, Sparse};
use crate::strata::Strata;
use crate::window::{Horizon, Pane, Timeline};

/// One input's run.
#[derive(Debug)]
pub struct Run {
    pub(super) settings: Settings,
    pub(super) horizon: Horizon,
    total: Block<Dense>,
    pub(super) strata: Option<Strata>,
    classes: Vec<Block<Sparse>>,
    other: Option<Block<Sparse>>,
    pub(super) timeline: Option<Timeline<Box<Block<Sparse>>>>,
    pub(super) slowest: [Slowest; 8],
    pub(super) flow: Flow,
    grid: Grid,
    /// Arrivals outside the cut.
    outside: u64,
    counters: [u64; 4],
    clamped: u64,
    /// Times that memory ran out, whether or not a request died of it; none where nothing tells of them.
    oom_events: Option<u64>,
    pub(super) last_emission: Option<i64>,
    arrivals: u64,
    /// The exact rows, where they are kept.
    pub(super) rows: Option<Box<Rows>>,
    /// Refusals since they were last asked for: (line, why).
    refusals: Vec<(u64, Counter)>,
    /// Kept from request to request to be filled again.
    pub(super) gaps: Gaps,
    spare: (String, Deadlines),
}

/// Refusals that are kept for the asking.
const REFUSALS_KEPT: usize = 64;

impl Run {
    /// A run without an event yet.
    ///
    /// # Errors
    ///
    /// Too many keys to class by.
    pub fn new(settings: Settings) -> crate::Result<Self> {
        Ok(Self {
            horizon: Horizon::default(),
            total: Block::new(&settings),
            strata: if settings.by.is_empty() { None } else { Some(Strata::new(settings.by.clone(), MAX_CLASSES)?) },
            classes: Vec::new(),
            other: None,
            timeline: settings.timeline_ns.map(|width| Timeline::new(width, settings.timeline_bins)),
            slowest: Default::default(),
            flow: Flow::default(),
            grid: Grid::default(),
            outside: 0,
            counters: [0; 4],
            clamped: 0,
            oom_events: None,
            last_emission: None,
            arrivals: 0,
            rows: None,
            refusals: Vec::new(),
            gaps: Gaps::default(),
            spare: Default::default(),
            settings,
        })
    }

    /// Keeps exact rows too; nothing has arrived yet.
    pub fn keep_rows(&mut self, rows: Rows) {
        self.rows = Some(Box::new(rows));
    }

    /// The exact rows, if they are kept.
    #[must_use]
    pub fn rows(&self) -> Option<&Rows> {
        self.rows.as_deref()
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Everything together.
    #[must_use]
    pub fn total(&self) -> &Block<Dense> {
        &self.total
    }

    /// The classes: combination (none: `other`, which stands last) and block.
    pub fn classes(&self) -> impl Iterator<Item = (Option<&[Option<String>]>, &Block<Sparse>)> {
        let combinations = self.strata.iter().flat_map(Strata::combinations);
        let known = combinations.zip(&self.classes).map(|(combination, block)| (Some(combination.as_slice()), block));
        known.chain(self.other.iter().map(|block| (None, block)))
    }

    /// How many requests went to the class `other`.
    #[must_use]
    pub fn classes_over(&self) -> u64 {
        self.strata.as_ref().map_or(0, Strata::over)
    }

    /// The timeline, where one is asked for.
    #[must_use]
    pub fn timeline(&self) -> Option<&Timeline<Box<Block<Sparse>>>> {
        self.timeline.as_ref()
    }

    /// The slowest requests of a metric.
    #[must_use]
    pub fn slowest(&self, metric: Metric) -> &Slowest {
        &self.slowest[metric as usize]
    }

    /// How many ends lay before the last event, and were taken at its time.
    #[must_use]
    pub fn clamped(&self) -> u64 {
        self.clamped
    }

    /// How often memory ran out; none where nothing was told of that.
    #[must_use]
    pub fn oom_events(&self) -> Option<u64> {
        self.oom_events
    }

    /// How many events were refused.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// The first accepted arrival.
    #[must_use]
    pub fn first_arrival(&self) -> Option<i64> {
        self.flow.arrivals().map(|(first, _)| first)
    }

    /// How requests came and went, whatever the run is cut to.
    #[must_use]
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Successes by time to first token and time per output token.
    #[must_use]
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Requests that arrived outside the cut.
    #[must_use]
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// The last accepted emission.
    #[must_use]
    pub fn last_emission(&self) -> Option<i64> {
        self.last_emission
    }

    /// The newest time that was taken.
    #[must_use]
    pub fn newest(&self) -> Option<i64> {
        self.horizon.newest()
    }

    /// The refusals since the last call: (line, why), at most a few.
    pub fn take_refusals(&mut self) -> Vec<(u64, Counter)> {
        std::mem::take(&mut self.refusals)
    }

    /// Whether there are refusals to take.
    #[inline]
    #[must_use]
    pub fn has_refusals(&self) -> bool {
        !self.refusals.is_empty()
    }

    #[cold]
    pub(super) fn count(&mut self, line: u64, counter: Counter) {
        self.counters[counter as usize] += 1;
        if self.refusals.len() < REFUSALS_KEPT {
            self.refusals.push((line, counter));
        }
    }

    /// Whether a time may be taken; a refused one is counted.
    #[inline]
    pub fn admit(&mut self, t: i64, line: u64) -> bool {
        let admitted = self.horizon.admits(t);
        if !admitted {
            self.count(line, Counter::Future);
        }
        admitted
    }

    /// Takes the time of an event that is no request's.
    pub fn pass(&mut self, t: i64) {
        self.horizon.accept(t);
    }

    /// Counts that memory ran out so often; inside the cut by its own time, as it is no request's.
    pub fn ran_out_of_memory(&mut self, t: i64, n: u64) {
        *self.oom_events.get_or_insert(0) += if self.settings.is_inside(t) { n } else { 0 };
    }

    /// Counts an event of a request that is not in flight.
    pub fn unknown(&mut self, line: u64) {
        self.count(line, Counter::Unknown);
    }

    /// Counts an arrival with the id of a request in flight.
    pub fn already_in_flight(&mut self, flight: &Flight, t: i64, line: u64) {
        let negative = t < flight.request.last_event();
        self.count(line, if negative { Counter::Negative } else { Counter::Duplicate });
    }

    /// Takes the arrival of a request whose end is not known yet.
    #[must_use]
    pub fn arrive(&mut self, arrival: &Arrival<'_>) -> Flight {
        let class = match &mut self.strata {
            _ if !self.settings.is_inside(arrival.t) => Class::Outside,
            None => Class::None,
            Some(strata) if strata.needs_output_length() => Class::Later(arrival.labels.to_vec()),
            Some(strata) => Class::Known(strata.class(arrival.prompt_tokens, 0, |name| arrival.label(name))),
        };
        self.depart(arrival, class)
    }

    pub(super) fn depart(&mut self, arrival: &Arrival<'_>, class: Class) -> Flight {
        let room = std::mem::take(&mut self.spare);
        let flight = Flight::new(arrival, class, &self.settings.slos, self.arrivals, room);
        self.arrivals += 1;
        self.horizon.accept(arrival.t);
        self.flow.arrive(arrival.t);
        self.outside += u64::from(flight.is_outside());
        if let Some(rows) = &mut self.rows {
            rows.arrive(arrival);
        }
        self.each_block(&flight.class, arrival.t, |mut block| {
            block.arrival(arrival.prompt_tokens);
        });
        flight
    }

    /// Applies something to the total, to the class (if it is known) and to the bin of a time; outside the cut to none.
    #[inline]
    pub(super) fn each_block(&mut self, class: &Class, t: i64, mut apply: impl FnMut(AnyBlock<'_>)) {
        if matches!(class, Class::Outside) {
            return;
        }
        apply(AnyBlock::Dense(&mut self.total));
        if let Class::Known(class) = class {
            let empty = || Block::new(&self.settings);
            let block = match class {
                Some(class) => {
                    while self.classes.len() <= *class {
                        self.classes.push(empty());
                    }
                    &mut self.classes[*class]
                }
                None => self.other.get_or_insert_with(empty),
            };
            apply(AnyBlock::Sparse(block));
        }
        if let Some(timeline) = &mut self.timeline {
            apply(AnyBlock::Sparse(timeline.bin_at(t, || Box::new(Block::new(&self.settings)))));
        }
    }

    /// Takes an event of a request in flight, whose time was admitted. Returns false when the request was found
    /// lost: the event is then unknown, and the request must be ended with [`lose`](Self::lose).
    #[inline]
    pub fn event(&mut self, flight: &mut Flight, t: i64, event: Event, line: u64) -> bool {
        if flight.waiting.first.is_some() {
            if flight.waiting.t == t {
                flight.waiting.others.push((event, line));
                return true;
            }
            self.settle(flight);
        }
        if self.is_lost(flight, t) {
            return false;
        }
        if t < flight.request.last_event() {
            self.count(line, Counter::Negative);
            return true;
        }
        flight.waiting.t = t;
        flight.waiting.first = Some((event, line));
        true
    }

    fn is_lost(&self, flight: &Flight, t: i64) -> bool {
        t.saturating_sub(flight.request.last_event()) > self.settings.ttl_ns
    }

    /// Whether a request in flight has been silent for too long at `t`.
    pub fn overdue(&mut self, flight: &mut Flight, t: i64) -> bool {
        if flight.waiting.t != t {
            self.settle(flight);
        }
        self.is_lost(flight, t)
    }

    /// Takes the events that wait for a later time.
    #[inline]
    pub fn settle(&mut self, flight: &mut Flight) {
        let Some((event, line)) = flight.waiting.first.take() else { return };
        let t = flight.waiting.t;
        if flight.waiting.others.is_empty() {
            self.take(flight, t, event, line);
        } else {
            let mut events = std::mem::take(&mut flight.waiting.others);
            events.insert(0, (event, line));
            events.sort_by_key(|(event, _)| event.rank());
            for (event, line) in events {
                self.take(flight, t, event, line);
            }
        }
    }

    /// Takes one event at once.
    #[inline]
    pub(super) fn take(&mut self, flight: &mut Flight, t: i64, event: Event, line: u64) {
        match flight.request.take(t, event) {
            Err(refusal) => self.count(line, refusal.into()),
            Ok(observation) => {
                self.horizon.accept(t);
                if let Some(rows) = &mut self.rows {
                    rows.take(flight.order, t, event);
                }
                self.observe(flight, t, event, observation);
            }
        }
    }

    #[inline]
    fn observe(&mut self, flight: &mut Flight, t: i64, event: Event, observation: Observation) {
        let k = if let Event::Tokens(k) = event {
            self.last_emission = self.last_emission.max(Some(t));
            self.flow.emissions += 1;
            self.flow.coalesced += u64::from(k > 1);
            k
        } else {
            0
        };
        if let Observation::First { ttft, .. } = observation {
            self.flow.first_emission(flight.request.arrival(), ttft);
        }
        if flight.is_outside() {
            return;
        }
        let slos = &self.settings.slos;
        match observation {
            Observation::Gap(gap) => {
                let largest = self.settings.itl_rule.largest(gap, k);
                flight.max_itl = flight.max_itl.max(Some(largest));
                for (index, fluidity) in &mut flight.deadlines {
                    fluidity.emission(&slos[*index], false, gap, k);
                }
                self.slowest[Metric::Itl as usize].offer(largest, flight.order, &flight.id);
                self.each_block(&flight.class, t, |mut block| block.gap(gap, k));
            }
            Observation::First { ttft, prefill } => {
                for (index, fluidity) in &mut flight.deadlines {
                    fluidity.emission(&slos[*index], true, ttft, k);
                }
                self.each_block(&flight.class, t, |mut block| block.tokens(k));
                self.latency(flight, t, Metric::Ttft, Some(ttft));
                self.latency(flight, t, Metric::Prefill, prefill);
            }
            Observation::Queue(ns) => self.latency(flight, t, Metric::Queue, Some(ns)),
            Observation::Scheduling(ns) => self.latency(flight, t, Metric::Scheduling, ns),
            Observation::Preempted => self.each_block(&flight.class, t, |mut block| block.preemptions(1)),
            Observation::Resumed => {}
        }
    }

    pub(super) fn latency(&mut self, flight: &Flight, t: i64, metric: Metric, ns: Option<i64>) {
        let Some(ns) = ns.filter(|_| !flight.is_outside()) else { return };
        self.slowest[metric as usize].offer(ns, flight.order, &flight.id);
        self.each_block(&flight.class, t, |mut block| block.observe(metric, ns));
    }

    /// Ends a request in flight; if it is found lost, it ends so, and this end is unknown.
    pub fn end(&mut self, mut flight: Flight, t: i64, status: Status, degraded: bool, line: u64) {
        self.settle(&mut flight);
        if self.is_lost(&flight, t) {
            self.unknown(line);
            self.lose(flight, t);
            return;
        }
        self.finish(&mut flight, t, t, status, degraded);
        self.reuse(flight);
    }

    /// Ends a request as lost, found out at `detected`; what waits has been taken.
    pub fn lose(&mut self, mut flight: Flight, detected: i64) {
        let last = flight.request.last_event();
        self.finish(&mut flight, last, detected, Status::Lost, false);
        self.reuse(flight);
    }

    /// Keeps the room that an ended request took.
    #[inline(always)]
    pub(super) fn reuse(&mut self, flight: Flight) {
        self.spare = (flight.id, flight.deadlines);
    }

    /// Ends what is left at the end of all inputs, whose newest time is `newest`. Returns whether it was lost; if not
    /// it is in flight.
    pub fn leave(&mut self, mut flight: Flight, newest: i64) -> bool {
        let lost = self.overdue(&mut flight, newest);
        if lost {
            self.lose(flight, newest);
        }
        lost
    }

    pub(super) fn finish(&mut self, flight: &mut Flight, t: i64, counted_at: i64, status: Status, degraded: bool) {
        let tokens = flight.request.tokens();
        let preemptions = flight.request.preemptions();
        let ending = flight.request.end(t, status);
        self.clamped += u64::from(ending.clamped);
        let at = counted_at.max(ending.at);
        if status != Status::Lost {
            self.horizon.accept(ending.at);
        }
        self.flow.end(flight.request.arrival(), ending.at);
        if let Some(rows) = &mut self.rows {
            rows.end(flight.order, RowEnd { status, at: ending.at, degraded });
        }
        if flight.is_outside() {
            return;
        }
        self.grid.count(&ending);
        if let Class::Later(labels) = &flight.class {
            let arrival = Arrival { id: &flight.id, t, prompt_tokens: flight.prompt_tokens, labels };
            let strata = self.strata.as_mut().expect("a class that comes later has strata");
            let class = strata.class(flight.prompt_tokens, tokens, |name| arrival.label(name));
            // The totals and the timeline have seen the arrival and the tokens; the class has not.
            let timeline = self.timeline.take();
            flight.class = Class::Known(class);
            let prompt_tokens = flight.prompt_tokens;
            self.each_block(&flight.class, at, |block| {
                if let AnyBlock::Sparse(block) = block {
                    block.attempted += 1;
                    block.prompt_tokens += prompt_tokens;
                    block.output_tokens += tokens;
                    block.preemptions += preemptions;
                }
            });
            self.timeline = timeline;
        }
        for (metric, ns) in ending.observed() {
            self.slowest[metric as usize].offer(ns, flight.order, &flight.id);
        }
        let judged = (!flight.deadlines.is_empty()).then(|| Arc::clone(&self.settings.slos));
        self.each_block(&flight.class, at, |mut block| {
            block.end(&ending, degraded);
            for (index, fluidity) in judged.iter().flat_map(|_| &flight.deadlines) {
                let slos = judged.as_deref().unwrap_or_default();
                block.judge(*index, &slos[*index], &ending, flight.max_itl, fluidity);
            }
        });
    }

    /// Adds another input's run, measured by the same settings.
    ///
    /// # Panics
    ///
    /// Never for runs of the same settings.
    pub fn merge(&mut self, other: Self) {
        self.total.absorb(&other.total);
        if let (Some(strata), Some(theirs)) = (&mut self.strata, &other.strata) {
            strata.add_over(theirs.over());
            for (combination, block) in theirs.combinations().iter().zip(&other.classes) {
                let class = strata.intern(combination.clone());
                if class.is_none() {
                    strata.add_over(block.attempted);
                }
                let empty = || Block::new(&self.settings);
                match class {
                    Some(class) => {
                        while self.classes.len() <= class {
                            self.classes.push(empty());
                        }
                        self.classes[class].absorb(block);
                    }
                    None => self.other.get_or_insert_with(empty).absorb(block),
                }
            }
            if let Some(theirs) = &other.other {
                self.other.get_or_insert_with(|| Block::new(&self.settings)).absorb(theirs);
            }
        }
        if let (Some(mine), Some(theirs)) = (&mut self.timeline, other.timeline) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.slowest.iter_mut().zip(other.slowest) {
            mine.merge(theirs);
        }
        self.flow.merge(other.flow);
        if let (Some(mine), Some(theirs)) = (&mut self.rows, other.rows) {
            mine.merge(*theirs);
        }
        self.grid.merge(&other.grid);
        self.outside += other.outside;
        self.clamped += other.clamped;
        if let Some(theirs) = other.oom_events {
            *self.oom_events.get_or_insert(0) += theirs;
        }
        for (mine, theirs) in self.counters.iter_mut().zip(other.counters) {
            *mine += theirs;
        }
        self.last_emission = self.last_emission.max(other.last_emission);
    }
}
