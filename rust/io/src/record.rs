//! One line of our log as fields, and as what it means.
//!
//! The fields are read in one pass, in whatever order they come; then they are checked in a fixed order, so that a line
//! with several faults is always counted under the same one.

use std::borrow::Cow;
use std::io;

use tokenpulse_core::bounds::{self, Range};
use tokenpulse_core::request::{Event, Status};

use crate::chunks::MAX_LINE;
use crate::json::{Cursor, Fault, Field, Read, Text, nests_too_deep};

/// Why a line is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Skip {
    /// Longer than is read.
    TooLong,
    /// Not UTF-8.
    NotUtf8,
    /// Nested too deep.
    TooDeep,
    /// Not JSON.
    NotJson,
    /// JSON, but no object.
    NotObject,
    /// No kind of line that we know.
    UnknownKind,
    /// A field is absent.
    MissingField,
    /// A field is of another type.
    WrongType,
    /// A value is outside its range, or no name that we know.
    BadValue,
    /// Arrays that go together have different lengths.
    LengthMismatch,
    /// The compressed input ends early or is damaged.
    Truncated,
}

impl Skip {
    /// All reasons.
    pub const ALL: [Self; 11] = [
        Self::TooLong,
        Self::NotUtf8,
        Self::TooDeep,
        Self::NotJson,
        Self::NotObject,
        Self::UnknownKind,
        Self::MissingField,
        Self::WrongType,
        Self::BadValue,
        Self::LengthMismatch,
        Self::Truncated,
    ];

    /// The name that reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::NotUtf8 => "not_utf8",
            Self::TooDeep => "too_deep",
            Self::NotJson => "not_json",
            Self::NotObject => "not_object",
            Self::UnknownKind => "unknown_kind",
            Self::MissingField => "missing_field",
            Self::WrongType => "wrong_type",
            Self::BadValue => "bad_value",
            Self::LengthMismatch => "length_mismatch",
            Self::Truncated => "truncated",
        }
    }
}

/// A line that is passed over: why, and in words what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub skip: Skip,
    /// What was expected.
    pub message: Cow<'static, str>,
}

impl Refused {
    pub(crate) fn new(skip: Skip, message: impl Into<Cow<'static, str>>) -> Self {
        Self { skip, message: message.into() }
    }

    pub(crate) fn too_long() -> Self {
        Self::new(Skip::TooLong, format!("expected lines of at most {MAX_LINE} bytes"))
    }

    pub(crate) fn not_utf8() -> Self {
        Self::new(Skip::NotUtf8, "expected UTF-8")
    }

    /// A compressed input ends early or is damaged.
    pub(crate) fn cut(error: &io::Error) -> Self {
        Self::new(Skip::Truncated, format!("expected the compressed input to be whole: {error}"))
    }
}

pub(crate) type Checked<T> = Result<T, Refused>;

/// What an event line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEvent {
    /// A request arrives.
    Arrive,
    /// Something happens to a request in flight.
    Request(Event),
    /// A request ends.
    End {
        /// How.
        status: Status,
        /// By a fallback path.
        degraded: bool,
    },
    /// Nothing of a request's: only its time counts here.
    Other(Other),
}

/// What an event line without a request tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// Levels that hold.
    Gauge,
    /// Increments of an engine's work.
    Add,
    /// Something counted by name.
    Count,
    /// The blocks of a KV cache.
    Kv,
    /// The engine is ready.
    Ready,
}

/// What kind of line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An event.
    Event(LineEvent),
    /// A finished request.
    Request,
    /// What an engine tells of itself, read in full.
    Engine,
}

/// The labels that are kept.
#[derive(Clone, Debug)]
pub(crate) enum Wants {
    /// Those of these names.
    These(Vec<String>),
    /// Every one.
    Every,
}

/// What is asked of the lines.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The labels of requests.
    pub labels: Wants,
    /// What an engine tells of itself, and the cached tokens of arrivals; else such lines say when alone.
    pub engine: bool,
}

impl Wants {
    fn has(&self, name: &[u8]) -> bool {
        match self {
            Self::These(names) => names.iter().any(|each| each.as_bytes() == name),
            Self::Every => true,
        }
    }
}

/// The fields of a line; arrays and texts are kept from line to line to be filled again.
#[derive(Debug, Default)]
pub struct Record {
    /// The time of an event.
    pub t_ns: i64,
    /// The request's id.
    pub id: String,
    /// The prompt's length.
    pub prompt_tokens: u64,
    /// How much of it was in the cache, if that is asked for.
    pub cached_tokens: u64,
    /// The labels that are asked for.
    pub labels: Vec<(String, String)>,
    /// The arrival of a finished request.
    pub arrive_ns: i64,
    /// Its milestones.
    pub schedule_ns: Option<i64>,
    /// See `schedule_ns`.
    pub prefill_ns: Option<i64>,
    /// The absolute times of its emissions.
    pub token_ns: Vec<i64>,
    /// Tokens by emission, or empty.
    pub counts: Vec<i64>,
    /// Output tokens, first and last time, where the emissions are not known.
    pub untimed: Option<(u64, Option<i64>, Option<i64>)>,
    /// The times of its preemptions.
    pub preempt_ns: Vec<i64>,
    /// The times of its resumptions.
    pub resume_ns: Vec<i64>,
    /// Its end.
    pub end_ns: Option<i64>,
    /// How it ended.
    pub status: Status,
    /// By a fallback path.
    pub degraded: bool,
    /// The line seems to be one of ours, whatever its faults.
    pub recognised: bool,
    dt_ns: Vec<i64>,
}

/// What was found for each field.
#[derive(Default)]
struct Found<'a> {
    ev: Field<Text<'a>>,
    t_ns: Field<i64>,
    id: Field<Text<'a>>,
    k: Field<i64>,
    status: Field<Text<'a>>,
    degraded: Field<bool>,
    prompt_tokens: Field<i64>,
    cached_tokens: Field<i64>,
    ctx: Field<i64>,
    arrive_ns: Field<i64>,
    arrival_mono_ns: Field<i64>,
    schedule_ns: Field<i64>,
    prefill_ns: Field<i64>,
    token_ns: Field<()>,
    dt_ns: Field<()>,
    n: Field<()>,
    output_tokens: Field<i64>,
    first_token_ns: Field<i64>,
    last_token_ns: Field<i64>,
    preempt_ns: Field<()>,
    resume_ns: Field<()>,
    end_ns: Field<i64>,
    labels: Field<()>,
}

impl Record {
    /// Reads a line that is UTF-8. Of what it says only that is kept, and looked at, which is asked for.
    ///
    /// # Errors
    ///
    /// Why the line is passed over.
    #[inline]
    pub(crate) fn read(&mut self, line: &[u8], asked: &Asked) -> Checked<Kind> {
        self.recognised = false;
        let mut cursor = Cursor::new(line);
        let found = match self.fields(&mut cursor, &asked.labels) {
            Ok(found) => found,
            Err(fault) => return Err(not_json(line, fault)),
        };
        let Some(found) = found else { return Err(not_object()) };
        let is_event = !matches!(found.ev, Field::Absent);
        let is_request = !matches!((found.arrive_ns, found.arrival_mono_ns), (Field::Absent, Field::Absent));
        self.recognised = is_event || is_request;
        if is_event {
            self.check_event(&found, asked)
        } else if is_request {
            self.check_request(&found, asked)
        } else {
            Err(Refused::new(Skip::UnknownKind, "expected a field ev or arrive_ns"))
        }
    }

    #[inline]
    fn fields<'a>(&mut self, cursor: &mut Cursor<'a>, wants: &Wants) -> Read<Option<Found<'a>>> {
        if !cursor.is_object() {
            cursor.skip()?;
            return if cursor.is_at_end() { Ok(None) } else { Err(Fault::Syntax) };
        }
        let mut found = Found::default();
        self.labels.clear();
        cursor.object(|cursor, key| {
            match key {
                b"t_ns" => found.t_ns = cursor.integer()?,
                b"id" => found.id = cursor.text_or_integer()?,
                b"ev" => found.ev = cursor.text()?,
                b"k" => found.k = cursor.integer()?,
                b"token_ns" => found.token_ns = cursor.integers(&mut self.token_ns)?,
                b"dt_ns" => found.dt_ns = cursor.integers(&mut self.dt_ns)?,
                b"n" => found.n = cursor.integers(&mut self.counts)?,
                b"status" => found.status = cursor.text()?,
                b"degraded" => found.degraded = cursor.boolean()?,
                b"prompt_tokens" => found.prompt_tokens = cursor.integer()?,
                b"cached_tokens" => found.cached_tokens = cursor.integer()?,
                b"ctx" => found.ctx = cursor.integer()?,
                b"arrive_ns" => found.arrive_ns = cursor.integer()?,
                b"arrival_mono_ns" => found.arrival_mono_ns = cursor.integer()?,
                b"schedule_ns" => found.schedule_ns = cursor.integer()?,
                b"prefill_ns" => found.prefill_ns = cursor.integer()?,
                b"output_tokens" => found.output_tokens = cursor.integer()?,
                b"first_token_ns" => found.first_token_ns = cursor.integer()?,
                b"last_token_ns" => found.last_token_ns = cursor.integer()?,
                b"preempt_ns" => found.preempt_ns = cursor.integers(&mut self.preempt_ns)?,
                b"resume_ns" => found.resume_ns = cursor.integers(&mut self.resume_ns)?,
                b"end_ns" => found.end_ns = cursor.integer()?,
                b"labels" => found.labels = read_labels(cursor, &mut self.labels, wants)?,
                _ => cursor.skip()?,
            }
            Ok(())
        })?;
        if cursor.is_at_end() { Ok(Some(found)) } else { Err(Fault::Syntax) }
    }

    #[inline]
    fn check_event(&mut self, found: &Found<'_>, asked: &Asked) -> Checked<Kind> {
        let name = match &found.ev {
            Field::Given(name) => name.as_ref(),
            _ => return Err(Refused::new(Skip::UnknownKind, "expected ev to be a string")),
        };
        let Some(event) = event_named(name) else {
            return Err(unknown_event(name));
        };
        self.t_ns = required("t_ns", optional("t_ns", found.t_ns, &bounds::TIME_NS)?)?;
        if let LineEvent::Other(_) = event {
            return Ok(Kind::Event(event));
        }
        self.take_id(found)?;
        Ok(Kind::Event(match event {
            LineEvent::Arrive => {
                self.take_prompt(found, found.prompt_tokens, asked)?;
                event
            }
            LineEvent::Request(Event::Tokens(_)) => {
                let k = optional("k", found.k, &bounds::EMISSION_TOKENS)?.unwrap_or(1);
                LineEvent::Request(Event::Tokens(k as u64))
            }
            LineEvent::End { .. } => {
                let status = required("status", status_of(found)?)?;
                LineEvent::End { status, degraded: degraded_of(found)? }
            }
            _ => event,
        }))
    }

    fn check_request(&mut self, found: &Found<'_>, asked: &Asked) -> Checked<Kind> {
        self.take_id(found)?;
        let arrive = either(found.arrive_ns, found.arrival_mono_ns);
        self.arrive_ns = required("arrive_ns", optional("arrive_ns", arrive, &bounds::TIME_NS)?)?;
        self.schedule_ns = optional("schedule_ns", found.schedule_ns, &bounds::TIME_NS)?;
        self.prefill_ns = optional("prefill_ns", found.prefill_ns, &bounds::TIME_NS)?;
        let timed = if array("token_ns", found.token_ns, &self.token_ns, &bounds::TIME_NS)? {
            true
        } else if array("dt_ns", found.dt_ns, &self.dt_ns, &OFFSET_NS)? {
            self.token_ns.clear();
            for &offset in &self.dt_ns {
                let t = self.arrive_ns.checked_add(offset).filter(|&t| t >= 0);
                let Some(t) = t else { return Err(bad_value("dt_ns", &bounds::TIME_NS, offset)) };
                self.token_ns.push(t);
            }
            true
        } else {
            self.token_ns.clear();
            false
        };
        if !array("n", found.n, &self.counts, &bounds::EMISSION_TOKENS)? {
            self.counts.clear();
        } else if timed && self.counts.len() != self.token_ns.len() {
            return Err(Refused::new(
                Skip::LengthMismatch,
                format!("expected n of length {}, got {}", self.token_ns.len(), self.counts.len()),
            ));
        }
        self.untimed = None;
        if !timed {
            self.counts.clear();
            let n = optional("output_tokens", found.output_tokens, &bounds::REQUEST_TOKENS)?;
            let first = optional("first_token_ns", found.first_token_ns, &bounds::TIME_NS)?;
            let last = optional("last_token_ns", found.last_token_ns, &bounds::TIME_NS)?;
            self.untimed = Some(n.filter(|&n| n > 0).map_or((0, None, None), |n| (n as u64, first, last)));
        }
        if !array("preempt_ns", found.preempt_ns, &self.preempt_ns, &bounds::TIME_NS)? {
            self.preempt_ns.clear();
        }
        if !array("resume_ns", found.resume_ns, &self.resume_ns, &bounds::TIME_NS)? {
            self.resume_ns.clear();
        }
        self.end_ns = optional("end_ns", found.end_ns, &bounds::TIME_NS)?;
        self.status = status_of(found)?.unwrap_or_default();
        self.degraded = degraded_of(found)?;
        self.take_prompt(found, either(found.prompt_tokens, found.ctx), asked)?;
        Ok(Kind::Request)
    }

    #[inline]
    fn take_id(&mut self, found: &Found<'_>) -> Checked<()> {
        match &found.id {
            Field::Given(id) => {
                self.id.clear();
                // The whole line is UTF-8, and so is each of its strings.
                self.id.push_str(std::str::from_utf8(id).unwrap_or_default());
                Ok(())
            }
            Field::Absent => Err(missing("id")),
            _ => Err(wrong_type("id", "a string or an integer")),
        }
    }

    fn take_prompt(&mut self, found: &Found<'_>, tokens: Field<i64>, asked: &Asked) -> Checked<()> {
        let tokens_of = |name, field| Ok(optional(name, field, &bounds::REQUEST_TOKENS)?.unwrap_or(0) as u64);
        self.prompt_tokens = tokens_of("prompt_tokens", tokens)?;
        self.cached_tokens = if asked.engine { tokens_of("cached_tokens", found.cached_tokens)? } else { 0 };
        match found.labels {
            Field::Given(()) | Field::Absent => Ok(()),
            _ => Err(wrong_type("labels", "an object of strings, integers or booleans")),
        }
    }
}

/// Offsets from an arrival: whether the sum is a legal time is checked where it is made.
const OFFSET_NS: Range = Range { name: "offset in ns", min: i64::MIN, max: i64::MAX };

fn status_of(found: &Found<'_>) -> Checked<Option<Status>> {
    match &found.status {
        Field::Absent => Ok(None),
        Field::Given(name) => match Status::from_name(&String::from_utf8_lossy(name)) {
            Some(status) => Ok(Some(status)),
            None => Err(Refused::new(
                Skip::BadValue,
                format!(
                    "expected status stop, length, abort, error, timeout, oom or reject, got {:?}",
                    String::from_utf8_lossy(name)
                ),
            )),
        },
        _ => Err(wrong_type("status", "a string")),
    }
}

fn degraded_of(found: &Found<'_>) -> Checked<bool> {
    match found.degraded {
        Field::Absent => Ok(false),
        Field::Given(degraded) => Ok(degraded),
        _ => Err(wrong_type("degraded", "a boolean")),
    }
}

/// The field under its own name, else under its alias.
fn either(own: Field<i64>, alias: Field<i64>) -> Field<i64> {
    if own == Field::Absent { alias } else { own }
}

/// What an event line with this `ev` says.
#[inline]
pub(crate) fn event_named(name: &[u8]) -> Option<LineEvent> {
    Some(match name {
        b"tokens" => LineEvent::Request(Event::Tokens(1)),
        b"arrive" => LineEvent::Arrive,
        b"schedule" => LineEvent::Request(Event::Schedule),
        b"prefill" => LineEvent::Request(Event::Prefill),
        b"preempt" => LineEvent::Request(Event::Preempt),
        b"resume" => LineEvent::Request(Event::Resume),
        b"end" => LineEvent::End { status: Status::Stop, degraded: false },
        b"gauge" => LineEvent::Other(Other::Gauge),
        b"add" => LineEvent::Other(Other::Add),
        b"count" => LineEvent::Other(Other::Count),
        b"kv_store" | b"kv_evict" | b"kv_lookup" | b"kv_clear" => LineEvent::Other(Other::Kv),
        b"ready" => LineEvent::Other(Other::Ready),
        _ => return None,
    })
}

#[cold]
pub(crate) fn unknown_event(name: &[u8]) -> Refused {
    Refused::new(Skip::UnknownKind, format!("expected a known ev, got {:?}", String::from_utf8_lossy(name)))
}

/// The line's text is no JSON.
#[cold]
pub(crate) fn not_json(line: &[u8], fault: Fault) -> Refused {
    match fault {
        Fault::Syntax if !nests_too_deep(line) => Refused::new(Skip::NotJson, "expected a JSON object"),
        _ => Refused::new(Skip::TooDeep, "expected at most 128 levels of nesting"),
    }
}

#[cold]
pub(crate) fn not_object() -> Refused {
    Refused::new(Skip::NotObject, "expected a JSON object, got another JSON value")
}

pub(crate) fn missing(name: &str) -> Refused {
    Refused::new(Skip::MissingField, format!("expected a field {name}"))
}

pub(crate) fn wrong_type(name: &str, expected: &str) -> Refused {
    Refused::new(Skip::WrongType, format!("expected {name} to be {expected}"))
}

pub(crate) fn bad_value(name: &str, range: &Range, got: i64) -> Refused {
    Refused::new(Skip::BadValue, format!("expected {name} between {} and {}, got {got}", range.min, range.max))
}

#[inline]
pub(crate) fn required<T>(name: &str, value: Option<T>) -> Checked<T> {
    value.ok_or_else(|| missing(name))
}

#[inline]
pub(crate) fn optional(name: &str, field: Field<i64>, range: &Range) -> Checked<Option<i64>> {
    match field {
        Field::Given(value) if range.contains(value) => Ok(Some(value)),
        Field::Given(value) => Err(bad_value(name, range, value)),
        Field::Absent => Ok(None),
        Field::WrongType => Err(wrong_type(name, "an integer")),
        Field::BadValue => Err(Refused::new(
            Skip::BadValue,
            format!("expected {name} between {} and {}, got a larger number", range.min, range.max),
        )),
    }
}

/// Whether the array is there, and all of it within the range.
fn array(name: &str, field: Field<()>, values: &[i64], range: &Range) -> Checked<bool> {
    if field == Field::Absent {
        return Ok(false);
    }
    // Elements before one of another type come first.
    match values.iter().find(|&&value| !range.contains(value)) {
        Some(&value) => Err(bad_value(name, range, value)),
        None if field == Field::Given(()) => Ok(true),
        None if field == Field::BadValue => {
            Err(Refused::new(Skip::BadValue, format!("expected {name} to fit 64 bits")))
        }
        None => Err(wrong_type(name, "an array of integers")),
    }
}

/// Reads labels; those that are wanted are kept.
fn read_labels(cursor: &mut Cursor<'_>, labels: &mut Vec<(String, String)>, wants: &Wants) -> Read<Field<()>> {
    labels.clear();
    if !cursor.is_object() {
        return cursor.other();
    }
    let mut field = Field::Given(());
    cursor.object(|cursor, key| {
        let value = match cursor.boolean_text()? {
            Some(value) => Field::Given(Cow::Borrowed(value)),
            None => cursor.text_or_integer()?,
        };
        match value {
            Field::Given(value) => {
                if wants.has(key) {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    labels.push((text(key), text(&value)));
                }
            }
            Field::Absent => labels.retain(|(name, _)| name.as_bytes() != key),
            Field::WrongType | Field::BadValue => field = Field::WrongType,
        }
        Ok(())
    })?;
    Ok(field)
}
