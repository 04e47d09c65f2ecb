//! Logs to one run: every input read in one streaming pass, lines that cannot be read counted by reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokenpulse_core::Error;
use tokenpulse_core::request::Status;
use tokenpulse_core::strata::Key;
use tokenpulse_core::tally::{Arrival, Counter, Finished, Rows, Run, Settings};

use crate::batch::{ArrivalRow, Batch, Entry, RequestRow, What};
use crate::flights::Flights;
use crate::input::{Failure, Notice, note};
use crate::pipeline::{Reading, each_batch};
use crate::record::{Refused, Skip, Wants};
use crate::source::Source;

/// What is known of an input after it was read.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Its name.
    pub path: String,
    /// What it is said to be made of, where that is no log of ours.
    pub given_format: Option<String>,
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
    pub(crate) fn skip(&mut self, line: u64, refused: Refused) {
        self.skipped[refused.skip as usize] += 1;
        note(&mut self.notices, line, refused.skip.name(), refused.message);
    }

    /// The name of what it is made of.
    #[must_use]
    pub fn format(&self) -> &str {
        if let Some(format) = &self.given_format {
            return format;
        }
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

/// One input while it is read.
struct Reader {
    run: Run,
    flights: Flights,
    input: Input,
    wants: Arc<Wants>,
    /// Lines of the batches before.
    lines: u64,
    /// The labels of a request, kept to be filled again.
    labels: Vec<(String, String)>,
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
    reading: Reading,
    progress: impl FnMut(u64, u64) -> bool,
) -> Result<Reduction, Failure> {
    read_all(sources, settings, reading, None, progress)
}

/// The same, but the run keeps its exact [rows](Run::rows) too, with all labels.
///
/// # Errors
///
/// As [`reduce`], or more emissions than `most`.
pub fn read_rows(
    sources: Vec<Source>,
    settings: &Settings,
    reading: Reading,
    most: u64,
    progress: impl FnMut(u64, u64) -> bool,
) -> Result<Reduction, Failure> {
    read_all(sources, settings, reading, Some(most), progress)
}

fn read_all(
    sources: Vec<Source>,
    settings: &Settings,
    reading: Reading,
    rows: Option<u64>,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> Result<Reduction, Failure> {
    let sizes: Option<Vec<u64>> = sources.iter().map(Source::size).collect();
    let total = sizes.map_or(0, |sizes| sizes.iter().sum());
    let mut done = 0;
    let mut emissions = 0;
    let mut readers = Vec::new();
    for source in sources {
        let mut reader = Reader::new(source.name(), settings).map_err(Failure::Settings)?;
        if let Some(most) = rows {
            reader.keep_rows(most - emissions);
        }
        let read = reader.read(source, reading, |bytes| progress(done + bytes, total));
        if let (Some(kept), Some(most)) = (reader.run.rows(), rows) {
            if kept.is_over() {
                return Err(Failure::Settings(Error::value("emissions", format_args!("at most {most}"), "more")));
            }
            emissions += kept.emissions();
        }
        done += read?;
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
    let run = if let Some(run) = merged {
        run
    } else {
        let mut run = Run::new(settings.clone()).map_err(Failure::Settings)?;
        if let Some(most) = rows {
            run.keep_rows(Rows::new(most));
        }
        run
    };
    Ok(Reduction { inputs, run, newest })
}

/// The labels that settings ask for, each once.
pub(crate) fn wanted_labels(settings: &Settings) -> Vec<String> {
    let keys = settings.by.iter().filter_map(|key| if let Key::Label(name) = key { Some(name) } else { None });
    let judged = settings.slos.iter().flat_map(|slo| slo.labels.iter().map(|(key, _)| key));
    let mut wants: Vec<String> = Vec::new();
    for name in keys.chain(judged) {
        if !wants.contains(name) {
            wants.push(name.clone());
        }
    }
    wants
}

impl Reader {
    fn new(path: &str, settings: &Settings) -> tokenpulse_core::Result<Self> {
        Ok(Self {
            run: Run::new(settings.clone())?,
            flights: Flights::default(),
            input: Input { path: path.to_owned(), ..Input::default() },
            wants: Wants::These(wanted_labels(settings)).into(),
            lines: 0,
            labels: Vec::new(),
        })
    }

    /// Keeps exact rows, of at most so many emissions, and all labels.
    fn keep_rows(&mut self, most: u64) {
        self.run.keep_rows(Rows::new(most));
        self.wants = Wants::Every.into();
    }

    /// Reads a source to its end, and returns how many bytes it had.
    fn read(
        &mut self,
        source: Source,
        reading: Reading,
        mut progress: impl FnMut(u64) -> bool,
    ) -> Result<u64, Failure> {
        let (wants, hasher) = (Arc::clone(&self.wants), self.flights.hasher().clone());
        let over = AtomicBool::new(false);
        let go_on = |bytes| !over.load(Ordering::Relaxed) && progress(bytes);
        let bytes = each_batch(source, reading, &wants, &hasher, go_on, |batch| {
            self.take(batch);
            if self.run.rows().is_some_and(Rows::is_over) {
                over.store(true, Ordering::Relaxed);
            }
        })?;
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

    /// Applies the lines of a batch, in order.
    fn take(&mut self, batch: &Batch) {
        self.input.recognised += batch.recognised;
        for entry in &batch.entries {
            self.entry(batch, entry);
            if self.run.has_refusals() {
                self.note_refusals();
            }
        }
        self.lines += batch.lines;
    }

    #[inline]
    fn entry(&mut self, batch: &Batch, entry: &Entry) {
        let number = self.lines + u64::from(entry.line) + 1;
        if let What::Refused(which) = entry.what {
            return self.refused(batch.refused[which as usize].clone(), number);
        }
        self.input.lines += 1;
        match entry.what {
            What::Request(_) => self.input.kinds.0 += 1,
            _ => self.input.kinds.1 += 1,
        }
        let t = entry.t;
        if !self.run.admit(t, number) {
            return;
        }
        match entry.what {
            What::Event(event) => {
                let id = batch.bytes(entry.id);
                let Some(flight) = self.flights.find(entry.hash, id) else { return self.run.unknown(number) };
                if !self.run.event(flight, t, event, number) {
                    self.run.unknown(number);
                    self.lose(batch, entry);
                }
            }
            What::End { status, degraded } => self.end(batch, entry, status, degraded, number),
            What::Arrive(which) => self.arrive(batch, entry, &batch.arrivals[which as usize], number),
            What::Request(which) => self.request(batch, entry, &batch.requests[which as usize], number),
            What::Other | What::Refused(_) => self.run.pass(t),
        }
    }

    #[cold]
    fn refused(&mut self, refused: Refused, number: u64) {
        // Where a compressed input is cut there is no line.
        self.input.lines += u64::from(refused.skip != Skip::Truncated);
        self.input.skip(number, refused);
    }

    #[cold]
    fn note_refusals(&mut self) {
        for (line, counter) in self.run.take_refusals() {
            note(&mut self.input.notices, line, counter.name(), explain(counter));
        }
    }

    /// The labels that a request bears, of those that are asked for.
    fn take_labels(&mut self, batch: &Batch, row: &ArrivalRow) {
        self.labels.clear();
        for label in &batch.labels[row.labels.start as usize..row.labels.end as usize] {
            let names = if let Wants::These(names) = &*self.wants { names } else { &batch.names };
            self.labels.push((names[label.want as usize].clone(), batch.str(label.value).to_owned()));
        }
    }

    fn request(&mut self, batch: &Batch, entry: &Entry, row: &RequestRow, number: u64) {
        if !self.is_free(batch, entry, number) {
            return;
        }
        self.take_labels(batch, &row.arrival);
        let arrival = Arrival {
            id: batch.str(entry.id),
            t: entry.t,
            prompt_tokens: row.arrival.prompt_tokens,
            labels: &self.labels,
        };
        let events = Finished {
            schedule: row.schedule,
            prefill: row.prefill,
            emissions: batch.numbers(&row.tokens),
            counts: batch.numbers(&row.counts),
            output_tokens: None,
            untimed: row.untimed,
            preempts: batch.numbers(&row.preempts),
            resumes: batch.numbers(&row.resumes),
            end: row.end,
            status: row.status,
            degraded: row.degraded,
        };
        self.run.request(&arrival, &events, number);
        self.input.requests += 1;
    }

    fn end(&mut self, batch: &Batch, entry: &Entry, status: Status, degraded: bool, number: u64) {
        match self.flights.remove(entry.hash, batch.bytes(entry.id)) {
            Some(flight) => self.run.end(flight, entry.t, status, degraded, number),
            None => self.run.unknown(number),
        }
    }

    fn lose(&mut self, batch: &Batch, entry: &Entry) {
        if let Some(flight) = self.flights.remove(entry.hash, batch.bytes(entry.id)) {
            self.run.lose(flight, entry.t);
        }
    }

    /// Whether a request with the entry's id may arrive: none is in flight, or it is found lost.
    fn is_free(&mut self, batch: &Batch, entry: &Entry, number: u64) -> bool {
        let Some(flight) = self.flights.find(entry.hash, batch.bytes(entry.id)) else { return true };
        let lost = self.run.overdue(flight, entry.t);
        if lost {
            self.lose(batch, entry);
        } else {
            self.run.already_in_flight(flight, entry.t, number);
        }
        lost
    }

    fn arrive(&mut self, batch: &Batch, entry: &Entry, row: &ArrivalRow, number: u64) {
        if !self.is_free(batch, entry, number) {
            return;
        }
        self.take_labels(batch, row);
        let arrival =
            Arrival { id: batch.str(entry.id), t: entry.t, prompt_tokens: row.prompt_tokens, labels: &self.labels };
        let flight = self.run.arrive(&arrival);
        self.flights.insert(entry.hash, flight);
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

pub(crate) fn explain(counter: Counter) -> &'static str {
    match counter {
        Counter::Negative => "expected a time not before the request's last event; the event is passed over",
        Counter::Duplicate => "expected an event that can come here; it came before, or its counterpart did not",
        Counter::Unknown => "expected the id of a request in flight; it never arrived, or has ended",
        Counter::Future => "expected a time at most a day ahead of the newest; the event is passed over",
    }
}
