//! The calls to a meter, in the order of the events, and the ids of requests in flight.

use hashbrown::DefaultHashBuilder;
use tokenpulse_core::meter::Meter;
use tokenpulse_core::request::{Event, Status};
use tokenpulse_core::strata::Key;

use super::clock::Clock;
use super::{Machine, Replaying};
use crate::batch::{ArrivalRow, Batch, EngineRow, RequestRow};
use crate::flights::{Flights, HasId};
use crate::part::Id;

/// The handle of an id that is not known.
const UNKNOWN: i64 = -1;
/// Tokens that are handed over together.
const TOGETHER: usize = 256;

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

    /// Hands over what waits, and tells of the last moment. Requests that arrived, the earliest and the newest time, and
    /// the machine; none if the caller wants no more.
    pub fn finish(mut self) -> Option<(u64, Option<(i64, i64)>, Machine)> {
        self.flush();
        if let Some(rest) = self.clock.rest() {
            self.stopped |= !(self.on_pane)(rest);
        }
        (!self.stopped).then(|| (self.requests, self.clock.times(), self.machine))
    }

    /// Reads the time of an event that is applied next.
    #[inline]
    fn at(&mut self, t: i64) {
        if let Some(moments) = self.clock.read(t) {
            self.flush();
            for moment in moments {
                self.clock.tell(moment);
                if !(self.on_pane)(moment) {
                    self.stopped = true;
                    return;
                }
            }
        }
    }

    /// The same, for an event that must come after the tokens before it.
    fn after_tokens(&mut self, t: i64) {
        self.at(t);
        self.flush();
    }

    fn flush(&mut self) {
        let Tokens { times, handles, counts, counted } = &mut self.tokens;
        if !times.is_empty() {
            self.meter.tokens(times, handles, counted.then_some(counts));
            (times.clear(), handles.clear(), counts.clear());
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
            let handle = self.handle(id);
            return self.emission(handle, t, k as i64);
        }
        self.after_tokens(t);
        let handle = self.handle(id);
        self.milestone(handle, t, event);
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
    pub fn arrive(&mut self, id: Id<'_>, batch: &Batch, t: i64, row: &ArrivalRow) {
        self.after_tokens(t);
        let class = self.class(batch, row);
        let known = self.handle(id);
        if known != UNKNOWN && !self.meter.arrive_again(t, known) {
            return;
        }
        let handle = self.meter.arrive(t, row.prompt_tokens as i64, row.cached_tokens as i64, class);
        if handle < 0 {
            return;
        }
        self.requests += 1;
        // Every line was checked as a whole.
        let text = std::str::from_utf8(id.bytes).unwrap_or_default();
        self.flights.insert(id.hash, InFlight { id: text.into(), handle });
        if self.flights.len() > self.room {
            self.prune();
        }
    }

    /// The class of a request, by what it bears when it arrives.
    fn class(&self, batch: &Batch, row: &ArrivalRow) -> u32 {
        let borne = &batch.labels[row.labels.start as usize..row.labels.end as usize];
        // Of a label given twice the last counts.
        let value = |want: usize| borne.iter().rev().find(|label| label.want as usize == want);
        let labels: Vec<(&str, &str)> = (self.labels.iter().enumerate())
            .filter_map(|(want, name)| Some((name.as_str(), batch.str(value(want)?.value))))
            .collect();
        let prompt_tokens = self.by_length.then_some(row.prompt_tokens as i64);
        // Numbers and names were checked before.
        self.meter.classify(prompt_tokens, &labels).unwrap_or_default()
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
        self.after_tokens(t);
        let handle = self.handle(id);
        self.meter.end(t, &[handle], status, degraded);
        // Where its end was refused the request lives on.
        if handle != UNKNOWN && !self.meter.is_in_flight(handle) {
            self.flights.remove(id.hash, id.bytes);
        }
    }

    /// Takes what an engine tells of itself.
    pub fn engine(&mut self, t: i64, row: &EngineRow, hashes: &[u64]) {
        self.after_tokens(t);
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

    /// Takes a finished request.
    pub fn request(&mut self, _id: Id<'_>, _batch: &Batch, _t: i64, _row: &RequestRow) {}
}
