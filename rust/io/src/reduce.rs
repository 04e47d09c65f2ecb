//! Logs to one run: every input read in one streaming pass, lines that cannot be read counted by reason.

use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use tokenpulse_core::tally::{Arrival, Counter, Finished, Flight, Run, Settings, UntimedTokens};

use crate::input::{Failure, Found, Notice, each_line, note};
use crate::record::{Kind, LineEvent, Record, Refused};
use crate::source::Source;

/// What is known of an input after it was read.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Its name.
    pub path: String,
    /// Lines that are not blank.
    pub lines: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Request lines and event lines that were read.
    pub kinds: (u64, u64),
    /// Lines passed over, by [`Skip`](crate::Skip).
    pub skipped: [u64; 11],
    /// The first few lines that were not as they should be.
    pub notices: Vec<Notice>,
    /// Lines that look like ours, whatever their faults.
    recognised: u64,
}

impl Input {
    fn skip(&mut self, line: u64, refused: Refused) {
        self.skipped[refused.skip as usize] += 1;
        note(&mut self.notices, line, refused.skip.name(), refused.message);
    }

    /// The name of what it is made of.
    #[must_use]
    pub fn format(&self) -> &'static str {
        match self.kinds {
            (0, 0) => "empty",
            (_, 0) => "tokenpulse-requests",
            (0, _) => "tokenpulse-events",
            _ => "tokenpulse-mixed",
        }
    }
}

/// What all inputs come to.
#[derive(Debug)]
pub struct Reduction {
    /// The inputs, in the order given.
    pub inputs: Vec<Input>,
    /// Everything together.
    pub run: Run,
    /// The newest time of all inputs.
    pub newest: Option<i64>,
}

/// Requests in flight, by id.
#[derive(Default)]
struct Flights {
    table: HashTable<Box<Flight>>,
    hasher: DefaultHashBuilder,
}

impl Flights {
    #[inline]
    fn find(&mut self, id: &str) -> Option<&mut Flight> {
        let hash = self.hasher.hash_one(id);
        self.table.find_mut(hash, |flight| flight.id() == id).map(|flight| &mut **flight)
    }

    fn insert(&mut self, flight: Flight) {
        let hash = self.hasher.hash_one(flight.id());
        let hasher = |there: &_| self.hasher.hash_one(Box::<Flight>::as_ref(there).id());
        match self.table.entry(hash, |there| there.id() == flight.id(), hasher) {
            Entry::Vacant(place) => {
                place.insert(Box::new(flight));
            }
            Entry::Occupied(mut place) => **place.get_mut() = flight,
        }
    }

    fn remove(&mut self, id: &str) -> Option<Flight> {
        let hash = self.hasher.hash_one(id);
        let found = self.table.find_entry(hash, |flight| flight.id() == id).ok()?;
        Some(*found.remove().0)
    }

    /// All of them, in the order of arrival.
    fn sorted(&mut self) -> Vec<&mut Flight> {
        let mut flights: Vec<&mut Flight> = self.table.iter_mut().map(|flight| &mut **flight).collect();
        flights.sort_by_key(|flight| flight.order());
        flights
    }

    /// The same, when no more will come.
    fn into_sorted(self) -> Vec<Flight> {
        let mut flights: Vec<Flight> = self.table.into_iter().map(|flight| *flight).collect();
        flights.sort_by_key(Flight::order);
        flights
    }
}

/// One input while it is read.
struct Reader {
    run: Run,
    flights: Flights,
    input: Input,
    record: Record,
    wants: Vec<String>,
}

/// Reads all sources. `progress` is told (bytes read, bytes in all or 0) now and then; where it returns false the
/// reading stops.
///
/// # Errors
///
/// An input that cannot be read or is none of ours, or wrong settings. Lines at fault are no errors.
pub fn reduce(
    sources: Vec<Source>,
    settings: &Settings,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> Result<Reduction, Failure> {
    let sizes: Option<Vec<u64>> = sources.iter().map(Source::size).collect();
    let total = sizes.map_or(0, |sizes| sizes.iter().sum());
    let mut done = 0;
    let mut readers = Vec::new();
    for source in sources {
        let mut reader = Reader::new(source.name(), settings).map_err(Failure::Settings)?;
        done += reader.read(source, |bytes| progress(done + bytes, total))?;
        readers.push(reader);
    }
    let newest = readers.iter().filter_map(|reader| reader.run.newest()).max();
    let mut inputs = Vec::new();
    let mut merged: Option<Run> = None;
    for reader in readers {
        let (input, run) = reader.finish(newest.unwrap_or(0));
        inputs.push(input);
        match &mut merged {
            Some(merged) => merged.merge(run),
            none => *none = Some(run),
        }
    }
    let run = match merged {
        Some(run) => run,
        None => Run::new(settings.clone()).map_err(Failure::Settings)?,
    };
    Ok(Reduction { inputs, run, newest })
}

impl Reader {
    fn new(path: &str, settings: &Settings) -> tokenpulse_core::Result<Self> {
        let mut wants: Vec<String> = Vec::new();
        for key in &settings.by {
            if let tokenpulse_core::strata::Key::Label(name) = key {
                wants.push(name.clone());
            }
        }
        wants.extend(settings.slos.iter().flat_map(|slo| slo.labels.iter().map(|(key, _)| key.clone())));
        Ok(Self {
            run: Run::new(settings.clone())?,
            flights: Flights::default(),
            input: Input { path: path.to_owned(), ..Input::default() },
            record: Record::default(),
            wants,
        })
    }

    /// Reads a source to its end, and returns how many bytes it had.
    fn read(&mut self, source: Source, progress: impl FnMut(u64) -> bool) -> Result<u64, Failure> {
        let bytes = each_line(source, progress, |found, number| self.line(found, number))?;
        let input = &self.input;
        let nothing = input.recognised == 0 && (input.lines > 0 || input.skipped.iter().any(|&n| n > 0));
        if nothing {
            let found = input
                .notices
                .first()
                .map_or(String::new(), |notice| format!("; line {}: {}", notice.line, notice.message));
            return Err(Failure::Format(input.path.clone(), found));
        }
        for flight in self.flights.sorted() {
            self.run.settle(flight);
        }
        self.note_refusals();
        Ok(bytes)
    }

    #[inline]
    fn line(&mut self, found: Found<'_>, number: u64) {
        let bytes = match found {
            Found::Text(bytes) => bytes,
            Found::Cut(refused) => return self.input.skip(number, refused),
            Found::Unreadable(refused) => {
                self.input.lines += 1;
                return self.input.skip(number, refused);
            }
        };
        self.input.lines += 1;
        let read = self.record.read(bytes, &self.wants);
        self.input.recognised += u64::from(self.record.recognised);
        match read {
            Err(refused) => self.input.skip(number, refused),
            Ok(Kind::Request) => {
                self.input.kinds.0 += 1;
                self.request(number);
            }
            Ok(Kind::Event(event)) => {
                self.input.kinds.1 += 1;
                self.event(event, number);
            }
        }
        if self.run.has_refusals() {
            self.note_refusals();
        }
    }

    #[cold]
    fn note_refusals(&mut self) {
        for (line, counter) in self.run.take_refusals() {
            note(&mut self.input.notices, line, counter.name(), explain(counter));
        }
    }

    fn request(&mut self, number: u64) {
        let t = self.record.arrive_ns;
        if !self.run.admit(t, number) || !self.is_free(t, number) {
            return;
        }
        let record = &self.record;
        let arrival = Arrival {
            id: &record.id,
            t: record.arrive_ns,
            prompt_tokens: record.prompt_tokens,
            labels: &record.labels,
        };
        let events = Finished {
            schedule: record.schedule_ns,
            prefill: record.prefill_ns,
            emissions: &record.token_ns,
            counts: &record.counts,
            output_tokens: None,
            untimed: record.untimed.map(|(n, first, last)| UntimedTokens { n, first, last }),
            preempts: &record.preempt_ns,
            resumes: &record.resume_ns,
            end: record.end_ns,
            status: record.status,
            degraded: record.degraded,
        };
        self.run.request(&arrival, &events, number);
        self.input.requests += 1;
    }

    #[inline]
    fn event(&mut self, event: LineEvent, number: u64) {
        let t = self.record.t_ns;
        if !self.run.admit(t, number) {
            return;
        }
        let id = self.record.id.as_str();
        match event {
            LineEvent::Other => self.run.pass(t),
            LineEvent::Request(event) => {
                let Some(flight) = self.flights.find(id) else { return self.run.unknown(number) };
                if !self.run.event(flight, t, event, number) {
                    self.run.unknown(number);
                    self.lose(t);
                }
            }
            LineEvent::End { status, degraded } => match self.flights.remove(id) {
                Some(flight) => self.run.end(flight, t, status, degraded, number),
                None => self.run.unknown(number),
            },
            LineEvent::Arrive => self.arrive(t, number),
        }
    }

    fn lose(&mut self, t: i64) {
        if let Some(flight) = self.flights.remove(&self.record.id) {
            self.run.lose(flight, t);
        }
    }

    /// Whether a request with the record's id may arrive at `t`: none is in flight, or it is found lost.
    fn is_free(&mut self, t: i64, number: u64) -> bool {
        let Some(flight) = self.flights.find(&self.record.id) else { return true };
        let lost = self.run.overdue(flight, t);
        if lost {
            self.lose(t);
        } else {
            self.run.already_in_flight(flight, t, number);
        }
        lost
    }

    fn arrive(&mut self, t: i64, number: u64) {
        if !self.is_free(t, number) {
            return;
        }
        let record = &self.record;
        let arrival = Arrival { id: &record.id, t, prompt_tokens: record.prompt_tokens, labels: &record.labels };
        let flight = self.run.arrive(&arrival);
        self.flights.insert(flight);
        self.input.requests += 1;
    }

    /// Ends what is left against the newest time of all inputs.
    fn finish(mut self, newest: i64) -> (Input, Run) {
        for flight in std::mem::take(&mut self.flights).into_sorted() {
            self.run.leave(flight, newest);
        }
        self.note_refusals();
        (self.input, self.run)
    }
}

fn explain(counter: Counter) -> &'static str {
    match counter {
        Counter::Negative => "expected a time not before the request's last event; the event is passed over",
        Counter::Duplicate => "expected an event that can come here; it came before, or its counterpart did not",
        Counter::Unknown => "expected the id of a request in flight; it never arrived, or has ended",
        Counter::Future => "expected a time at most a day ahead of the newest; the event is passed over",
    }
}
