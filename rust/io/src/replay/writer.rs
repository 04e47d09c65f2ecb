//! The calls to a meter, in the order of the events, and the ids of requests in flight.

use hashbrown::DefaultHashBuilder;
use tokenpulse_core::meter::{Meter, Named};
use tokenpulse_core::request::{Event, Metric, Status};
use tokenpulse_core::strata::Key;

use super::clock::{Clock, Moments, Read};
use super::request::{Act, Timed};
use super::{Machine, Replayed, Replaying};
use crate::batch::{ArrivalRow, Batch, EngineRow};
use crate::flights::{Flights, HasId};
use crate::input::Failure;
use crate::part::Id;
use crate::reduce::Input;

/// The handle of an id that is not known.
const UNKNOWN: i64 = -1;
/// Tokens that are handed over together.
const TOGETHER: usize = 256;

/// What a request bears when it arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bearing {
    prompt_tokens: i64,
    cached_tokens: i64,
    class: u32,
}

/// A request in flight.
struct InFlight {
    id: Box<str>,
    handle: i64,
}

impl HasId for InFlight {
    fn id(&self) -> &str {
        &self.id
    }
}

/// Tokens that came one after the other and are not yet handed over.
#[derive(Default)]
struct Tokens {
    times: Vec<i64>,
    handles: Vec<i64>,
    counts: Vec<i64>,
    /// Some came several at once.
    counted: bool,
}

/// A meter, and what is known beside it.
pub(super) struct Writer<'a, P> {
    meter: &'a Meter,
    /// Which labels requests are classed by, as they are asked for.
    labels: Vec<String>,
    by_length: bool,
    flights: Flights<InFlight>,
    /// So many ids are held before those of lost requests are looked for.
    room: usize,
    clock: Clock,
    tokens: Tokens,
    requests: u64,
    machine: Machine,
    on_pane: P,
    stopped: bool,
}

impl<'a, P: FnMut(i64) -> bool> Writer<'a, P> {
    pub fn new(meter: &'a Meter, settings: &Replaying, labels: Vec<String>, on_pane: P) -> Self {
        let limits = meter.settings();
        Self {
            meter,
            labels,
            by_length: settings.by.contains(&Key::PromptLength),
            flights: Flights::default(),
            room: 2 * limits.max_requests as usize * limits.shards as usize,
            clock: Clock::new(settings.every_ns),
            tokens: Tokens::default(),
            requests: 0,
            machine: Machine::default(),
            on_pane,
            stopped: false,
        }
    }

    /// What ids are hashed by.
    pub fn hasher(&self) -> DefaultHashBuilder {
        self.flights.hasher().clone()
    }

    /// Whether the caller wants no more.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Hands over what waits, and tells of the last moment. What is known of the input then.
    ///
    /// # Errors
    ///
    /// The caller wants no more.
    pub fn finish(mut self, input: Input) -> Result<Replayed, Failure> {
        self.flush();
        if let Some(rest) = self.clock.rest().filter(|_| !self.stopped) {
            self.stopped = !(self.on_pane)(rest);
        }
        if self.stopped {
            return Err(Failure::Stopped);
        }
        let input = Input { requests: self.requests, ..input };
        Ok(Replayed { input, times: self.clock.times(), machine: self.machine })
    }

    /// Reads the time of an event that is applied next; whether it is one, and not too far ahead.
    #[inline]
    fn at(&mut self, t: i64) -> bool {
        match self.clock.read(t) {
            Read::Refused => false,
            Read::Plain => true,
            Read::Moments(moments) => {
                self.tell(moments);
                true
            }
        }
    }

    #[cold]
    fn tell(&mut self, moments: Moments) {
        self.flush();
        for moment in moments {
            self.clock.tell(moment);
            if !(self.on_pane)(moment) {
                self.stopped = true;
                return;
            }
        }
    }

    /// The same, for an event that must come after the tokens before it. Whether it may come: the caller wants more.
    fn after_tokens(&mut self, t: i64) -> bool {
        self.at(t);
        self.flush();
        !self.stopped
    }

    fn flush(&mut self) {
        let Tokens { times, handles, counts, counted } = &mut self.tokens;
        if !times.is_empty() {
            self.meter.tokens(times, handles, counted.then_some(counts));
            [times, handles, counts].into_iter().for_each(Vec::clear);
            *counted = false;
        }
    }

    #[inline]
    fn handle(&mut self, id: Id<'_>) -> i64 {
        self.flights.find(id.hash, id.bytes).map_or(UNKNOWN, |flight| flight.handle)
    }

    /// Takes an event of a request in flight.
    #[inline]
    pub fn event(&mut self, id: Id<'_>, t: i64, event: Event) {
        if let Event::Tokens(k) = event {
            self.at(t);
            if !self.stopped {
                let handle = self.handle(id);
                self.emission(handle, t, k as i64);
            }
        } else if self.after_tokens(t) {
            let handle = self.handle(id);
            self.milestone(handle, t, event);
        }
    }

    #[inline]
    fn emission(&mut self, handle: i64, t: i64, k: i64) {
        let tokens = &mut self.tokens;
        tokens.times.push(t);
        tokens.handles.push(handle);
        tokens.counts.push(k);
        tokens.counted |= k != 1;
        if tokens.times.len() == TOGETHER {
            self.flush();
        }
    }

    fn milestone(&mut self, handle: i64, t: i64, event: Event) {
        let handles = &[handle];
        match event {
            Event::Schedule => self.meter.schedule(t, handles),
            Event::Prefill => self.meter.prefill(t, handles),
            Event::Preempt => self.meter.preempt(t, handles),
            Event::Resume => self.meter.resume(t, handles),
            Event::Tokens(k) => self.meter.tokens(&[t], handles, Some(&[k as i64])),
        }
    }

    /// Takes an arrival, unless one of its id is in flight.
    pub fn arrive(&mut self, id: Id<'_>, t: i64, bearing: Bearing) {
        let Some(handle) = self.arrive_whole(Some(id), t, bearing) else { return };
        // Every line was checked as a whole.
        let text = std::str::from_utf8(id.bytes).unwrap_or_default();
        self.flights.insert(id.hash, InFlight { id: text.into(), handle });
        if self.flights.len() > self.room {
            self.prune();
        }
    }

    /// Whether a request of this id may arrive: none is in flight, or it is found lost.
    fn is_free(&mut self, id: Id<'_>, t: i64) -> bool {
        let known = self.handle(id);
        known == UNKNOWN || self.meter.arrive_again(t, known)
    }

    /// The handle of a request that arrives, if there is room for it.
    fn admit(&mut self, t: i64, bearing: Bearing) -> Option<i64> {
        let Bearing { prompt_tokens, cached_tokens, class } = bearing;
        let handle = self.meter.arrive(t, prompt_tokens, cached_tokens, class);
        self.requests += u64::from(handle >= 0);
        (handle >= 0).then_some(handle)
    }

    /// Takes the arrival of a request whose events are all known, and are told by its handle: if it has an id, unless
    /// one of that id is in flight.
    pub fn arrive_whole(&mut self, id: Option<Id<'_>>, t: i64, bearing: Bearing) -> Option<i64> {
        let free = self.after_tokens(t) && id.is_none_or(|id| self.is_free(id, t));
        if free { self.admit(t, bearing) } else { None }
    }

    /// Takes what happens to such a request; its newest time is kept with it.
    pub fn act(&mut self, handle: i64, bearing: Bearing, (arrival, newest): (i64, &mut i64), act: Timed) {
        let Timed { t, act, .. } = act;
        if let Act::End { timed: false, status, degraded } = act {
            if self.after_tokens(*newest) {
                self.meter.end(*newest, &[handle], status, degraded);
            }
            return;
        }
        if self.at(t) {
            *newest = t.max(*newest);
        }
        if self.stopped {
            return;
        }
        if let Act::Event(Event::Tokens(k)) = act {
            return self.emission(handle, t, k as i64);
        }
        self.flush();
        match act {
            Act::Event(event) => self.milestone(handle, t, event),
            Act::FirstToken if t >= arrival => {
                self.meter.observe(Some(t), Metric::Ttft, bearing.class, &[t - arrival], [0; 4]);
            }
            Act::FirstToken => {}
            Act::Tokens(n) => self.meter.count(t, Named::OutputTokens, n as i64, bearing.class),
            Act::End { status, degraded, .. } => self.meter.end(t, &[handle], status, degraded),
        }
    }

    /// What a request bears when it arrives.
    pub fn bearing(&self, batch: &Batch, row: &ArrivalRow) -> Bearing {
        let borne = &batch.labels[row.labels.start as usize..row.labels.end as usize];
        // Of a label given twice the last counts.
        let label = |want: usize| borne.iter().rev().find(|label| label.want as usize == want);
        self.bearing_of((row.prompt_tokens, row.cached_tokens), |want| label(want).map(|label| batch.str(label.value)))
    }

    /// The same, of prompt and cached tokens and the values of the labels that are asked for.
    pub fn bearing_of<'b>(
        &self,
        (prompt_tokens, cached_tokens): (u64, u64),
        value: impl Fn(usize) -> Option<&'b str>,
    ) -> Bearing {
        let labels: Vec<(&str, &str)> =
            (self.labels.iter().enumerate()).filter_map(|(want, name)| Some((name.as_str(), value(want)?))).collect();
        let (prompt_tokens, cached_tokens) = (prompt_tokens as i64, cached_tokens as i64);
        // Numbers and names were checked before.
        let class = self.meter.classify(self.by_length.then_some(prompt_tokens), &labels).unwrap_or_default();
        Bearing { prompt_tokens, cached_tokens, class }
    }

    /// The labels that are asked for.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Forgets the ids of requests that are no longer in flight.
    #[cold]
    fn prune(&mut self) {
        let gone: Vec<Box<str>> = (self.flights.all())
            .filter(|flight| !self.meter.is_in_flight(flight.handle))
            .map(|flight| flight.id.clone())
            .collect();
        for id in gone {
            let hash = self.flights.id(&id).hash;
            self.flights.remove(hash, id.as_bytes());
        }
    }

    /// Takes the end of a request.
    pub fn end(&mut self, id: Id<'_>, t: i64, status: Status, degraded: bool) {
        if !self.after_tokens(t) {
            return;
        }
        let handle = self.handle(id);
        self.meter.end(t, &[handle], status, degraded);
        // Where its end was refused the request lives on.
        if handle != UNKNOWN && !self.meter.is_in_flight(handle) {
            self.flights.remove(id.hash, id.bytes);
        }
    }

    /// Takes what an engine tells of itself.
    pub fn engine(&mut self, t: i64, row: &EngineRow, hashes: &[u64]) {
        if !self.after_tokens(t) {
            return;
        }
        let range = |range: &std::ops::Range<u32>| &hashes[range.start as usize..range.end as usize];
        match row {
            EngineRow::Gauge(values) => self.meter.gauge(t, *values),
            EngineRow::Add(values) => self.meter.add(t, *values),
            &EngineRow::Count(name, n) => self.meter.count(t, name, n, 0),
            EngineRow::Ready(machine) => {
                self.machine.learn(*machine);
                self.meter.ready(t);
            }
            EngineRow::Store(blocks, tier, group) => self.meter.kv_store(t, range(blocks), *tier, *group),
            EngineRow::Evict(blocks, tier, group) => self.meter.kv_evict(t, range(blocks), *tier, *group),
            &EngineRow::Lookup(queried, hit, preempted) => self.meter.kv_lookup(t, queried, hit, preempted),
            EngineRow::Clear => self.meter.kv_clear(t),
        }
    }
}
