//! What the lines of one chunk say, in order: read, but not yet applied.

use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::DefaultHashBuilder;
use tokenpulse_core::kv::Tier;
use tokenpulse_core::meter::{Increment, Named};
use tokenpulse_core::request::{Event, Status};
use tokenpulse_core::tally::{Finished, UntimedTokens};

use crate::chunks::Text;
use crate::record::{Kind, LineEvent, Record, Refused, Wants};
use crate::replay::{EngineRecord, Machine};

/// Bytes of the chunk, or of what was copied beside it because it stands there with escapes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    at: u32,
    len: u32,
}

/// A span of what was copied has this bit in its place.
const COPIED: u32 = 1 << 31;

/// More room for numbers than this is given back.
const NUMBERS_KEPT: usize = 1 << 17;

impl Span {
    /// Bytes of the chunk.
    #[inline]
    pub(crate) fn of_text(at: usize, end: usize) -> Self {
        Self { at: at as u32, len: (end - at) as u32 }
    }

    /// The bytes, of the chunk's text.
    #[inline]
    pub(crate) fn within(self, text: &[u8]) -> &[u8] {
        &text[self.at as usize..(self.at + self.len) as usize]
    }
}

/// A label that is asked for: its place among those, else among [`Batch::names`], and its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    pub want: u32,
    pub value: Span,
}

/// What a line says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// An event of a request in flight.
    Event(Event),
    /// A request ends.
    End { status: Status, degraded: bool },
    /// A request arrives: its place in [`Batch::arrivals`].
    Arrive(u32),
    /// A finished request: its place in [`Batch::requests`].
    Request(u32),
    /// An event of no request.
    Other,
    /// What an engine tells of itself: its place in [`Batch::engine`].
    Engine(u32),
    /// The line cannot be read: its place in [`Batch::refused`].
    Refused(u32),
}

/// One line that is not blank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The time of an event, or the arrival of a finished request.
    pub t: i64,
    /// The hash of the id.
    pub hash: u64,
    /// The request's id.
    pub id: Span,
    /// Which line of the chunk, from 0.
    pub line: u32,
    pub what: What,
}

/// What is known of a request when it arrives.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArrivalRow {
    pub prompt_tokens: u64,
    /// 0 unless they are asked for.
    pub cached_tokens: u64,
    pub labels: Range<u32>,
}

/// A finished request; the ranges are of [`Batch::numbers`].
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestRow {
    pub arrival: ArrivalRow,
    pub schedule: Option<i64>,
    pub prefill: Option<i64>,
    pub tokens: Range<u32>,
    pub counts: Range<u32>,
    pub preempts: Range<u32>,
    pub resumes: Range<u32>,
    pub untimed: Option<UntimedTokens>,
    pub end: Option<i64>,
    pub status: Status,
    pub degraded: bool,
}

impl RequestRow {
    /// What happened to the request, of the batch that the row is of.
    pub(crate) fn events<'a>(&self, batch: &'a Batch) -> Finished<'a> {
        Finished {
            schedule: self.schedule,
            prefill: self.prefill,
            emissions: batch.numbers(&self.tokens),
            counts: batch.numbers(&self.counts),
            output_tokens: None,
            untimed: self.untimed,
            preempts: batch.numbers(&self.preempts),
            resumes: batch.numbers(&self.resumes),
            end: self.end,
            status: self.status,
            degraded: self.degraded,
        }
    }
}

/// What an engine tells of itself; the ranges are of [`Batch::hashes`].
#[derive(Clone, Debug)]
pub(crate) enum EngineRow {
    Gauge([Option<i64>; 5]),
    Add([Option<Increment>; 7]),
    Count(Named, i64),
    Ready(Machine),
    /// Blocks were stored; no tier stands for an unknown one.
    Store(Range<u32>, Option<Tier>, i64),
    Evict(Range<u32>, Option<Tier>, i64),
    /// Tokens asked for and found, and whether again after a preemption.
    Lookup(i64, i64, bool),
    Clear,
}

/// The lines of one chunk.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub text: Text,
    copied: Vec<u8>,
    pub entries: Vec<Entry>,
    pub arrivals: Vec<ArrivalRow>,
    pub requests: Vec<RequestRow>,
    pub engine: Vec<EngineRow>,
    /// The hashes of blocks.
    pub hashes: Vec<u64>,
    pub numbers: Vec<i64>,
    pub labels: Vec<Label>,
    /// The names of labels, where every one is kept.
    pub names: Vec<String>,
    pub refused: Vec<Refused>,
    /// All lines, blank ones too.
    pub lines: u64,
    /// Lines that look like ours, whatever their faults.
    pub recognised: u64,
    hasher: DefaultHashBuilder,
}

impl Batch {
    /// An empty batch; ids are hashed by this.
    pub(crate) fn new(hasher: DefaultHashBuilder) -> Self {
        Self { hasher, ..Self::default() }
    }

    /// The hash of an id.
    #[inline]
    pub(crate) fn hash(&self, id: &[u8]) -> u64 {
        self.hasher.hash_one(id)
    }

    /// Nothing yet, of this text.
    pub(crate) fn begin(&mut self, text: Text) {
        self.text = text;
        self.copied.clear();
        self.entries.clear();
        self.arrivals.clear();
        self.requests.clear();
        self.engine.clear();
        self.hashes.clear();
        self.hashes.shrink_to(NUMBERS_KEPT);
        // The numbers of one long line are not worth being kept room for.
        self.numbers.clear();
        self.numbers.shrink_to(NUMBERS_KEPT);
        self.labels.clear();
        self.names.clear();
        self.refused.clear();
        self.lines = 0;
        self.recognised = 0;
    }

    /// The bytes of a span.
    #[inline]
    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        if span.at & COPIED == 0 {
            span.within(self.text.lines())
        } else {
            Span { at: span.at & !COPIED, len: span.len }.within(&self.copied)
        }
    }

    /// The text of a span. Every line was checked as a whole.
    pub(crate) fn str(&self, span: Span) -> &str {
        std::str::from_utf8(self.bytes(span)).unwrap_or_default()
    }

    /// The numbers of a range.
    #[inline]
    pub(crate) fn numbers(&self, range: &Range<u32>) -> &[i64] {
        &self.numbers[range.start as usize..range.end as usize]
    }

    fn copy(&mut self, bytes: &[u8]) -> Span {
        let at = self.copied.len() as u32 | COPIED;
        self.copied.extend_from_slice(bytes);
        Span { at, len: bytes.len() as u32 }
    }

    fn append(&mut self, numbers: &[i64]) -> Range<u32> {
        let start = self.numbers.len() as u32;
        self.numbers.extend_from_slice(numbers);
        start..self.numbers.len() as u32
    }

    /// Adds a line that cannot be read.
    #[cold]
    pub(crate) fn refuse(&mut self, refused: Refused) {
        let what = What::Refused(self.refused.len() as u32);
        self.refused.push(refused);
        self.entries.push(Entry { t: 0, hash: 0, id: Span::default(), line: self.lines as u32, what });
    }

    /// Adds a line that was read the general way.
    pub(crate) fn push(&mut self, record: &Record, kind: Kind, wants: &Wants) {
        let id = self.copy(record.id.as_bytes());
        let hash = self.hash(record.id.as_bytes());
        let (t, what) = match kind {
            Kind::Request => (record.arrive_ns, self.push_request(record, wants)),
            Kind::Event(LineEvent::Arrive) => {
                let arrival = self.arrival(record, wants);
                self.arrivals.push(arrival);
                (record.t_ns, What::Arrive(self.arrivals.len() as u32 - 1))
            }
            Kind::Event(LineEvent::Request(event)) => (record.t_ns, What::Event(event)),
            Kind::Event(LineEvent::End { status, degraded }) => (record.t_ns, What::End { status, degraded }),
            Kind::Event(LineEvent::Other(_)) | Kind::Engine => (record.t_ns, What::Other),
        };
        self.entries.push(Entry { t, hash, id, line: self.lines as u32, what });
    }

    /// Adds a line in which an engine tells of itself.
    pub(crate) fn push_engine(&mut self, t: i64, record: &EngineRecord) {
        let row = record.row(&mut self.hashes);
        let what = What::Engine(self.engine.len() as u32);
        self.engine.push(row);
        self.entries.push(Entry { t, hash: 0, id: Span::default(), line: self.lines as u32, what });
    }

    fn arrival(&mut self, record: &Record, wants: &Wants) -> ArrivalRow {
        let start = self.labels.len() as u32;
        for (name, value) in &record.labels {
            let want = match wants {
                Wants::These(names) => names.iter().position(|want| want == name),
                Wants::Every => Some(self.name(name)),
            };
            if let Some(want) = want {
                let value = self.copy(value.as_bytes());
                self.labels.push(Label { want: want as u32, value });
            }
        }
        let (prompt_tokens, cached_tokens) = (record.prompt_tokens, record.cached_tokens);
        ArrivalRow { prompt_tokens, cached_tokens, labels: start..self.labels.len() as u32 }
    }

    /// The place of a label's name.
    fn name(&mut self, name: &str) -> usize {
        self.names.iter().position(|there| there == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        })
    }

    fn push_request(&mut self, record: &Record, wants: &Wants) -> What {
        let row = RequestRow {
            arrival: self.arrival(record, wants),
            schedule: record.schedule_ns,
            prefill: record.prefill_ns,
            tokens: self.append(&record.token_ns),
            counts: self.append(&record.counts),
            preempts: self.append(&record.preempt_ns),
            resumes: self.append(&record.resume_ns),
            untimed: record.untimed.map(|(n, first, last)| UntimedTokens { n, first, last }),
            end: record.end_ns,
            status: record.status,
            degraded: record.degraded,
        };
        self.requests.push(row);
        What::Request(self.requests.len() as u32 - 1)
    }
}
