//! One input's run, whether it comes as lines or as rows: its requests in flight, and what is known of it.

use tokenpulse_core::Result;
use tokenpulse_core::request::{Event, Status};
use tokenpulse_core::tally::{Arrival, Counter, Run, Settings};

use crate::flights::Flights;
use crate::input::note;
use crate::reduce::{Input, Reduction};

/// A request's id, and its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Id<'a> {
    pub hash: u64,
    pub bytes: &'a [u8],
}

/// One input. The times that its acts are given were admitted before.
pub(crate) struct Part {
    pub run: Run,
    pub flights: Flights,
    pub input: Input,
}

impl Part {
    /// Nothing of it yet.
    pub(crate) fn new(path: &str, settings: &Settings) -> Result<Self> {
        let input = Input { path: path.to_owned(), ..Input::default() };
        Ok(Self { run: Run::new(settings.clone())?, flights: Flights::default(), input })
    }

    #[cold]
    fn note_refusals(&mut self) {
        for (line, counter) in self.run.take_refusals() {
            note(&mut self.input.notices, line, counter.name(), explain(counter));
        }
    }

    /// Names what was refused since the last call, if anything was.
    #[inline]
    pub(crate) fn note(&mut self) {
        if self.run.has_refusals() {
            self.note_refusals();
        }
    }

    /// Takes an event of a request in flight.
    #[inline]
    pub(crate) fn event(&mut self, id: Id<'_>, t: i64, event: Event, number: u64) {
        let Some(flight) = self.flights.find(id.hash, id.bytes) else { return self.run.unknown(number) };
        if !self.run.event(flight, t, event, number) {
            self.run.unknown(number);
            self.lose(id, t);
        }
    }

    /// Ends a request.
    pub(crate) fn end(&mut self, id: Id<'_>, t: i64, status: Status, degraded: bool, number: u64) {
        match self.flights.remove(id.hash, id.bytes) {
            Some(flight) => self.run.end(flight, t, status, degraded, number),
            None => self.run.unknown(number),
        }
    }

    fn lose(&mut self, id: Id<'_>, t: i64) {
        if let Some(flight) = self.flights.remove(id.hash, id.bytes) {
            self.run.lose(flight, t);
        }
    }

    /// Whether a request of this id may arrive at `t`: none is in flight, or it is found lost.
    pub(crate) fn is_free(&mut self, id: Id<'_>, t: i64, number: u64) -> bool {
        let Some(flight) = self.flights.find(id.hash, id.bytes) else { return true };
        let lost = self.run.overdue(flight, t);
        if lost {
            self.lose(id, t);
        } else {
            self.run.already_in_flight(flight, t, number);
        }
        lost
    }

    /// Takes the arrival of a request whose end is not known yet, if its id is free.
    pub(crate) fn arrive(&mut self, id: Id<'_>, arrival: &Arrival<'_>, number: u64) {
        if self.is_free(id, arrival.t, number) {
            let flight = self.run.arrive(arrival);
            self.flights.insert(id.hash, flight);
            self.input.requests += 1;
        }
    }

    /// Takes what waits for a later event: no more will come.
    pub(crate) fn settle(&mut self) {
        for flight in self.flights.sorted() {
            self.run.settle(flight);
        }
        self.note();
    }

    /// Ends what is left against the newest time of all inputs.
    fn finish(mut self, newest: i64) -> (Input, Run) {
        for flight in std::mem::take(&mut self.flights).into_sorted() {
            self.run.leave(flight, newest);
        }
        self.note();
        (self.input, self.run)
    }
}

/// What settled inputs come to together; `none` is the run of none.
pub(crate) fn together(parts: Vec<Part>, none: impl FnOnce() -> Result<Run>) -> Result<Reduction> {
    let newest = parts.iter().filter_map(|part| part.run.newest()).max();
    let (inputs, runs): (Vec<Input>, Vec<Run>) = parts.into_iter().map(|part| part.finish(newest.unwrap_or(0))).unzip();
    let merged = runs.into_iter().reduce(|mut merged, run| {
        merged.merge(run);
        merged
    });
    Ok(Reduction { inputs, run: merged.map_or_else(none, Ok)?, newest })
}

fn explain(counter: Counter) -> &'static str {
    match counter {
        Counter::Negative => "expected a time not before the request's last event; the event is passed over",
        Counter::Duplicate => "expected an event that can come here; it came before, or its counterpart did not",
        Counter::Unknown => "expected the id of a request in flight; it never arrived, or has ended",
        Counter::Future => "expected a time at most a day ahead of the newest; the event is passed over",
    }
}
