//! A log through a meter: each line as the call that an engine would have made, so that what is said of a live engine
//! can be said of its log by the same code.
//!
//! One streaming pass. Memory depends on requests in flight and on the longest line, unless the log begins with request
//! lines: their events must be put in order, so such a log is held in memory whole, as numbers.
//!
//! Times stand for the clock. Before the first line at or past a multiple of a width is applied, the caller is told of
//! that moment, and can read the meter as it stood then.

mod clock;
mod engine;
mod held;
mod request;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokenpulse_core::Error;
use tokenpulse_core::meter::Meter;
use tokenpulse_core::strata::Key;

use crate::batch::{Batch, Entry, RequestRow, What};
use crate::columns::{RequestColumns, RequestOf};
use crate::input::Failure;
use crate::part::Id;
use crate::pipeline::{Reading, each_batch};
use crate::record::{Asked, Skip, Wants};
use crate::reduce::Input;
use crate::source::Source;
pub(crate) use engine::EngineRecord;
pub use engine::Machine;
use held::{Held, apply_whole};
use writer::Writer;

/// How a log is replayed.
#[derive(Clone, Debug)]
pub struct Replaying {
    /// Between two moments of which the caller is told, in nanoseconds; at least 1.
    pub every_ns: i64,
    /// What requests are classed by: their prompts' length, and labels.
    pub by: Vec<Key>,
    /// How the source is read.
    pub reading: Reading,
}

impl Replaying {
    /// The labels that are asked for, each once.
    fn labels(&self) -> Vec<String> {
        let mut labels: Vec<String> = Vec::new();
        for key in &self.by {
            if let Key::Label(name) = key
                && !labels.contains(name)
            {
                labels.push(name.clone());
            }
        }
        labels
    }

    /// Whether a log can be replayed so.
    ///
    /// # Errors
    ///
    /// A width below 1, or a key that is not known when a request arrives.
    pub fn check(&self) -> tokenpulse_core::Result<()> {
        if self.every_ns < 1 {
            return Err(Error::value("every_ns", format_args!("at least 1"), self.every_ns));
        }
        if self.by.contains(&Key::OutputLength) {
            return Err(Error::value("by", format_args!("prompt_length and labels"), "output_length"));
        }
        let most = tokenpulse_core::bounds::MAX_LABEL_KEYS;
        if self.labels().len() > most {
            return Err(Error::value("number of labels", format_args!("at most {most}"), self.labels().len()));
        }
        Ok(())
    }
}

/// What is known of a log after it went through a meter, which holds the rest.
#[derive(Debug)]
pub struct Replayed {
    /// The lines.
    pub input: Input,
    /// The earliest and the newest time of a line.
    pub times: Option<(i64, i64)>,
    /// What the engine runs on.
    pub machine: Machine,
}

/// Puts a log through a meter. `on_pane` is told each moment, and `progress` (bytes read, bytes in all or 0) now and
/// then; where either returns false the reading stops. Both are called by the calling thread alone.
///
/// # Errors
///
/// An input that cannot be read or is none of ours, or wrong settings. Lines at fault are no errors.
pub fn replay(
    source: Source,
    meter: &Meter,
    settings: &Replaying,
    mut progress: impl FnMut(u64, u64) -> bool,
    on_pane: impl FnMut(i64) -> bool + Send,
) -> Result<Replayed, Failure> {
    settings.check().map_err(Failure::Settings)?;
    let labels = settings.labels();
    let asked = Arc::new(Asked { labels: Wants::These(labels.clone()), engine: true });
    let mut replay = Replay {
        input: Input { path: source.name().to_owned(), ..Input::default() },
        lines: 0,
        held: None,
        writer: Writer::new(meter, settings, labels, on_pane),
    };
    let (total, hasher) = (source.size().unwrap_or(0), replay.writer.hasher());
    let over = AtomicBool::new(false);
    let mut done = 0;
    let go_on = |bytes| {
        done = bytes;
        !over.load(Ordering::Relaxed) && progress(bytes, total)
    };
    let reading = Reading { by_caller: true, ..settings.reading };
    let read = each_batch(source, reading, &asked, &hasher, go_on, |batch| {
        replay.take(batch);
        if replay.writer.is_stopped() {
            over.store(true, Ordering::Relaxed);
        }
    });
    read?;
    let Replay { input, mut writer, held, .. } = replay;
    if input.is_none_of_ours() {
        return Err(Failure::Format(input.path.clone(), input.first_fault()));
    }
    if let Some(held) = held
        && !held.play(&mut writer, || progress(done, total))
    {
        return Err(Failure::Stopped);
    }
    writer.finish(input)
}

/// Puts requests that are in memory as columns through a meter, in the order of their times. For `go_on` and `on_pane`
/// see [`replay`]; there is no progress to tell.
///
/// # Errors
///
/// Columns that do not fit together, or wrong settings. Rows at fault are no errors.
pub fn replay_columns(
    (name, format): (&str, &str),
    columns: &RequestColumns<'_>,
    meter: &Meter,
    settings: &Replaying,
    mut go_on: impl FnMut() -> bool,
    on_pane: impl FnMut(i64) -> bool,
) -> Result<Replayed, Failure> {
    settings.check().map_err(Failure::Settings)?;
    columns.check().map_err(Failure::Settings)?;
    let mut writer = Writer::new(meter, settings, settings.labels(), on_pane);
    let mut input = Input { path: name.to_owned(), given_format: Some(format.to_owned()), ..Input::default() };
    let mut held = Held::default();
    let (mut times, mut counts) = (Vec::new(), Vec::new());
    let wanted: Vec<_> =
        writer.labels().iter().map(|want| columns.labels.iter().find(|label| label.name == *want)).collect();
    for row in 0..columns.arrive_ns.len() {
        input.lines += 1;
        match RequestOf::read(columns, row, &mut times, &mut counts) {
            Err(refused) => input.skip(input.lines, refused),
            Ok(RequestOf { arrive, prompt_tokens, events, ended }) => {
                let label = |want: usize| wanted.get(want).copied().flatten().and_then(|label| label.of(row));
                held.request(arrive, writer.bearing_of((prompt_tokens, 0), label), &events, ended);
            }
        }
    }
    if !held.play(&mut writer, &mut go_on) {
        return Err(Failure::Stopped);
    }
    writer.finish(input)
}

/// A log while it is read.
struct Replay<'a, P> {
    input: Input,
    /// Lines of the batches before.
    lines: u64,
    /// What must be put in order first.
    held: Option<Held>,
    writer: Writer<'a, P>,
}

impl<P: FnMut(i64) -> bool> Replay<'_, P> {
    /// Applies the lines of a batch, in order.
    fn take(&mut self, batch: &Batch) {
        self.input.recognised += batch.recognised;
        for entry in &batch.entries {
            if self.writer.is_stopped() {
                return;
            }
            self.entry(batch, entry);
        }
        self.lines += batch.lines;
    }

    #[inline]
    fn entry(&mut self, batch: &Batch, entry: &Entry) {
        self.input.lines += 1;
        let id = Id { hash: entry.hash, bytes: batch.bytes(entry.id) };
        match entry.what {
            What::Request(which) => {
                self.input.kinds.0 += 1;
                return self.request(id, batch, entry.t, &batch.requests[which as usize]);
            }
            What::Refused(which) => {
                let refused = batch.refused[which as usize].clone();
                // Where a compressed input is cut there is no line.
                self.input.lines -= u64::from(refused.skip == Skip::Truncated);
                self.input.skip(self.lines + u64::from(entry.line) + 1, refused);
                return;
            }
            What::Event(event) => match &mut self.held {
                Some(held) => held.event(id, entry.t, event),
                None => self.writer.event(id, entry.t, event),
            },
            _ => self.event(id, batch, entry),
        }
        self.input.kinds.1 += 1;
    }

    /// Takes an event line of a rarer kind.
    fn event(&mut self, id: Id<'_>, batch: &Batch, entry: &Entry) {
        let t = entry.t;
        if let What::Arrive(which) = entry.what {
            let bearing = self.writer.bearing(batch, &batch.arrivals[which as usize]);
            return match &mut self.held {
                Some(held) => held.arrive(id, t, bearing),
                None => self.writer.arrive(id, t, bearing),
            };
        }
        match (&mut self.held, entry.what) {
            (Some(held), What::End { status, degraded }) => held.end(id, t, status, degraded),
            (None, What::End { status, degraded }) => self.writer.end(id, t, status, degraded),
            (Some(held), What::Engine(which)) => held.engine(t, &batch.engine[which as usize], &batch.hashes),
            (None, What::Engine(which)) => self.writer.engine(t, &batch.engine[which as usize], &batch.hashes),
            (_, What::Arrive(_) | What::Event(_) | What::Request(_) | What::Other | What::Refused(_)) => {}
        }
    }

    /// Takes a finished request. If it is the first line, all of the log must be put in order.
    fn request(&mut self, id: Id<'_>, batch: &Batch, t: i64, row: &RequestRow) {
        let events = row.events(batch);
        let bearing = self.writer.bearing(batch, &row.arrival);
        if self.input.kinds == (1, 0) {
            self.held = Some(Held::default());
        }
        match &mut self.held {
            Some(held) => held.request(t, bearing, &events, Some(events.status)),
            None => apply_whole(&mut self.writer, id, t, bearing, &events),
        }
    }
}
