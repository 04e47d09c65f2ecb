//! Logs to one run: every input read in one streaming pass, lines that cannot be read counted by reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokenpulse_core::Error;
use tokenpulse_core::meter::Named;
use tokenpulse_core::strata::Key;
use tokenpulse_core::tally::{Arrival, Rows, Run, Settings};

use crate::batch::{ArrivalRow, Batch, EngineRow, Entry, RequestRow, What};
use crate::input::{Failure, Notice, note};
use crate::part::{Id, Part, together};
use crate::pipeline::{Reading, each_batch};
use crate::record::{Asked, Refused, Skip, Wants};
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
    pub(crate) recognised: u64,
}

impl Input {
    pub(crate) fn skip(&mut self, line: u64, refused: Refused) {
        self.skipped[refused.skip as usize] += 1;
        note(&mut self.notices, line, refused.skip.name(), refused.message);
    }

    /// Whether there are lines, and none of them is one of ours.
    pub(crate) fn is_none_of_ours(&self) -> bool {
        self.recognised == 0 && (self.lines > 0 || self.skipped.iter().any(|&n| n > 0))
    }

    /// What was wrong with the first line that had a fault, to be added to a message.
    pub(crate) fn first_fault(&self) -> String {
        let notice = self.notices.first();
        notice.map_or(String::new(), |notice| format!("; line {}: {}", notice.line, notice.message))
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
    part: Part,
    asked: Arc<Asked>,
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
    let mut parts = Vec::new();
    for source in sources {
        let mut reader = Reader::new(source.name(), settings).map_err(Failure::Settings)?;
        if let Some(most) = rows {
            reader.keep_rows(most - emissions);
        }
        let read = reader.read(source, reading, |bytes| progress(done + bytes, total));
        if let (Some(kept), Some(most)) = (reader.part.run.rows(), rows) {
            if kept.is_over() {
                return Err(Failure::Settings(Error::value("emissions", format_args!("at most {most}"), "more")));
            }
            emissions += kept.emissions();
        }
        done += read?;
        parts.push(reader.part);
    }
    let none = || {
        let mut run = Run::new(settings.clone())?;
        if let Some(most) = rows {
            run.keep_rows(Rows::new(most));
        }
        Ok(run)
    };
    together(parts, none).map_err(Failure::Settings)
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
            part: Part::new(path, settings)?,
            asked: Asked { labels: Wants::These(wanted_labels(settings)), engine: false }.into(),
            lines: 0,
            labels: Vec::new(),
        })
    }

    /// Keeps exact rows, of at most so many emissions, and all labels.
    fn keep_rows(&mut self, most: u64) {
        self.part.run.keep_rows(Rows::new(most));
        self.asked = Asked { labels: Wants::Every, engine: false }.into();
    }

    /// Reads a source to its end, and returns how many bytes it had.
    fn read(
        &mut self,
        source: Source,
        reading: Reading,
        mut progress: impl FnMut(u64) -> bool,
    ) -> Result<u64, Failure> {
        let (asked, hasher) = (Arc::clone(&self.asked), self.part.flights.hasher().clone());
        let over = AtomicBool::new(false);
        let go_on = |bytes| !over.load(Ordering::Relaxed) && progress(bytes);
        let bytes = each_batch(source, reading, &asked, &hasher, go_on, |batch| {
            self.take(batch);
            if self.part.run.rows().is_some_and(Rows::is_over) {
                over.store(true, Ordering::Relaxed);
            }
        })?;
        let input = &self.part.input;
        if input.is_none_of_ours() {
            return Err(Failure::Format(input.path.clone(), input.first_fault()));
        }
        self.part.settle();
        Ok(bytes)
    }

    /// Applies the lines of a batch, in order.
    fn take(&mut self, batch: &Batch) {
        self.part.input.recognised += batch.recognised;
        for entry in &batch.entries {
            self.entry(batch, entry);
            self.part.note();
        }
        self.lines += batch.lines;
    }

    #[inline]
    fn entry(&mut self, batch: &Batch, entry: &Entry) {
        let number = self.lines + u64::from(entry.line) + 1;
        if let What::Refused(which) = entry.what {
            return self.refused(batch.refused[which as usize].clone(), number);
        }
        self.part.input.lines += 1;
        match entry.what {
            What::Request(_) => self.part.input.kinds.0 += 1,
            _ => self.part.input.kinds.1 += 1,
        }
        let t = entry.t;
        if !self.part.run.admit(t, number) {
            return;
        }
        let id = Id { hash: entry.hash, bytes: batch.bytes(entry.id) };
        match entry.what {
            What::Event(event) => self.part.event(id, t, event, number),
            What::End { status, degraded } => self.part.end(id, t, status, degraded, number),
            What::Arrive(which) => {
                let row = &batch.arrivals[which as usize];
                self.take_labels(batch, row);
                self.part.arrive(id, &arrival(batch, entry, row, &self.labels), number);
            }
            What::Request(which) => self.request(id, batch, entry, &batch.requests[which as usize], number),
            What::Engine(which) => {
                if let EngineRow::Count(Named::OomEvent, n) = batch.engine[which as usize] {
                    self.part.run.ran_out_of_memory(t, n as u64);
                }
                self.part.run.pass(t);
            }
            What::Other | What::Refused(_) => self.part.run.pass(t),
        }
    }

    #[cold]
    fn refused(&mut self, refused: Refused, number: u64) {
        // Where a compressed input is cut there is no line.
        self.part.input.lines += u64::from(refused.skip != Skip::Truncated);
        self.part.input.skip(number, refused);
    }

    /// The labels that a request bears, of those that are asked for.
    fn take_labels(&mut self, batch: &Batch, row: &ArrivalRow) {
        self.labels.clear();
        for label in &batch.labels[row.labels.start as usize..row.labels.end as usize] {
            let names = if let Wants::These(names) = &self.asked.labels { names } else { &batch.names };
            self.labels.push((names[label.want as usize].clone(), batch.str(label.value).to_owned()));
        }
    }

    fn request(&mut self, id: Id<'_>, batch: &Batch, entry: &Entry, row: &RequestRow, number: u64) {
        if !self.part.is_free(id, entry.t, number) {
            return;
        }
        self.take_labels(batch, &row.arrival);
        let arrival = arrival(batch, entry, &row.arrival, &self.labels);
        self.part.run.request(&arrival, &row.events(batch), number);
        self.part.input.requests += 1;
    }
}

/// The arrival of which an entry tells.
fn arrival<'a>(batch: &'a Batch, entry: &Entry, row: &ArrivalRow, labels: &'a [(String, String)]) -> Arrival<'a> {
    Arrival { id: batch.str(entry.id), t: entry.t, prompt_tokens: row.prompt_tokens, labels }
}
