//! One line of a log of KV events, or of a trace of block hashes, as what it says.
//!
//! Four kinds of line, told by their fields in this order: `ev` is an event line of ours, `batch` a batch of events as
//! vLLM publishes them, `hash_ids` a request of a trace, `arrive_ns` a finished request, which says nothing here.
//! Whatever of a line is not asked for is only checked to be JSON; a long array of token ids costs little.

use std::ops::Range;

use tokenpulse_core::bounds::{self, Range as Bounds};
use tokenpulse_core::kv::Tier;

use super::batch::Batch;
use crate::json::{Cursor, Fault, Field, Read, Text};
use crate::record::{
    Checked, Refused, Skip, event_named, missing, not_json, not_object, optional, required, unknown_event, wrong_type,
};

/// What happened to a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Blocks were stored: those of the record's hashes, in a tier (none: an unknown one) and a group.
    Store(Range<usize>, Option<Tier>, i64),
    /// Blocks left.
    Evict(Range<usize>, Option<Tier>, i64),
    /// A request looked for its prompt.
    Lookup {
        /// Tokens asked for.
        queried: i64,
        /// Tokens found.
        hit: i64,
        /// Again, after a preemption.
        preempted: bool,
    },
    /// The cache was emptied.
    Clear,
}

/// What kind of line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An event of ours.
    Event,
    /// A batch of events.
    Batch,
    /// A request of a trace.
    Request,
    /// A line that says nothing of a cache.
    Other,
}

/// The fields of a line; what is kept of one is filled again by the next.
#[derive(Debug, Default)]
pub struct Record {
    /// The time of an event, of a batch or of a request.
    pub t_ns: i64,
    /// The hashes of all events, or of a request.
    pub hashes: Vec<u64>,
    /// The events.
    pub events: Vec<What>,
    /// How many events there are, each by itself: those of a batch may stand together.
    pub told: u64,
    /// Who published a batch: its topic, and which of several engines.
    pub topic: String,
    /// See `topic`.
    pub rank: Option<i64>,
    /// The number of a batch.
    pub seq: Option<i64>,
    /// Whether it is known who published a batch, and its number if it has one, whatever its other faults.
    pub is_numbered: bool,
    /// The length of a request's prompt.
    pub input_tokens: Option<u64>,
    /// The line seems to be one of ours, whatever its faults.
    pub recognised: bool,
    hash_ids: Vec<u64>,
    batch: Batch,
}

/// What was found for each field.
#[derive(Default)]
struct Found<'a> {
    ev: Field<Text<'a>>,
    t_ns: Field<i64>,
    hashes: Field<()>,
    tier: Field<Text<'a>>,
    group: Field<i64>,
    queried: Field<i64>,
    hit: Field<i64>,
    preempted: Field<bool>,
    topic: Field<Text<'a>>,
    seq: Field<i64>,
    batch: Field<()>,
    hash_ids: Field<()>,
    timestamp: Field<f64>,
    timestamp_ms: Field<i64>,
    input_length: Field<i64>,
    is_finished_request: bool,
}

/// Any number of 64 bits: what it may be is for others to say.
pub(super) const ANY: Bounds = Bounds { name: "integer", min: i64::MIN, max: i64::MAX };

/// Numbers of batches.
const SEQ: Bounds = Bounds { name: "seq", min: 0, max: i64::MAX };

impl Record {
    /// Reads a line that is UTF-8.
    ///
    /// # Errors
    ///
    /// Why the line is passed over.
    #[inline]
    pub fn read(&mut self, line: &[u8]) -> Checked<Kind> {
        (self.recognised, self.is_numbered) = (false, false);
        self.events.clear();
        self.told = 1;
        let mut cursor = Cursor::new(line);
        let mut found = Found::default();
        match self.fields(&mut cursor, &mut found) {
            Ok(true) => {}
            Ok(false) => return Err(not_object()),
            Err(fault) => return Err(not_json(line, fault)),
        }
        self.recognised = true;
        match &found.ev {
            Field::Given(name) => return self.check_event(name, &found),
            Field::Absent => {}
            _ => return Err(Refused::new(Skip::UnknownKind, "expected ev to be a string")),
        }
        if found.batch != Field::Absent {
            self.check_batch(&found)
        } else if found.hash_ids != Field::Absent {
            self.check_request(&found)
        } else if found.is_finished_request {
            Ok(Kind::Other)
        } else {
            self.recognised = false;
            Err(Refused::new(Skip::UnknownKind, "expected a field ev, batch or hash_ids"))
        }
    }

    /// Whether there is an object, and nothing else.
    #[inline]
    fn fields<'a>(&mut self, cursor: &mut Cursor<'a>, found: &mut Found<'a>) -> Read<bool> {
        if !cursor.is_object() {
            cursor.skip()?;
            return if cursor.is_at_end() { Ok(false) } else { Err(Fault::Syntax) };
        }
        cursor.object(|cursor, key| {
            match key {
                b"t_ns" => found.t_ns = cursor.integer()?,
                b"ev" => found.ev = cursor.text()?,
                b"hashes" => found.hashes = read_hashes(cursor, &mut self.hashes)?,
                b"tier" => found.tier = cursor.text()?,
                b"group" => found.group = cursor.integer()?,
                b"queried" => found.queried = cursor.integer()?,
                b"hit" => found.hit = cursor.integer()?,
                b"preempted" => found.preempted = cursor.boolean()?,
                b"topic" => found.topic = cursor.text()?,
                b"seq" => found.seq = cursor.integer()?,
                b"batch" => found.batch = self.batch.read(cursor)?,
                b"hash_ids" => found.hash_ids = read_hashes(cursor, &mut self.hash_ids)?,
                b"timestamp" => (found.timestamp_ms, found.timestamp) = cursor.integer_or_float()?,
                b"input_length" => found.input_length = cursor.integer()?,
                b"arrive_ns" | b"arrival_mono_ns" => {
                    found.is_finished_request |= cursor.other::<()>()? != Field::Absent;
                }
                _ => cursor.skip()?,
            }
            Ok(())
        })?;
        if cursor.is_at_end() { Ok(true) } else { Err(Fault::Syntax) }
    }

    #[inline]
    fn check_event(&mut self, name: &[u8], found: &Found<'_>) -> Checked<Kind> {
        let take = match name {
            b"kv_store" => What::Store,
            b"kv_evict" => What::Evict,
            b"kv_lookup" | b"kv_clear" => {
                self.t_ns = required("t_ns", optional("t_ns", found.t_ns, &ANY)?)?;
                let event = if name == b"kv_clear" { What::Clear } else { lookup(found)? };
                self.events.push(event);
                return Ok(Kind::Event);
            }
            _ if event_named(name).is_some() => return Ok(Kind::Other),
            _ => return Err(unknown_event(name)),
        };
        self.t_ns = required("t_ns", optional("t_ns", found.t_ns, &ANY)?)?;
        check_hashes("hashes", found.hashes)?;
        let tier = match &found.tier {
            Field::Absent => Some(Tier::Gpu),
            Field::Given(name) => std::str::from_utf8(name).ok().and_then(Tier::from_name),
            _ => return Err(wrong_type("tier", "a string")),
        };
        let group = optional("group", found.group, &ANY)?.unwrap_or(0);
        self.events.push(take(0..self.hashes.len(), tier, group));
        Ok(Kind::Event)
    }

    /// The type of the first event of a batch whose type is not known, and how many there are.
    pub fn unknown(&self) -> Option<&(String, u64)> {
        self.batch.unknown.as_ref()
    }

    fn check_batch(&mut self, found: &Found<'_>) -> Checked<Kind> {
        self.topic.clear();
        match &found.topic {
            Field::Absent => {}
            Field::Given(topic) => self.topic.push_str(&String::from_utf8_lossy(topic)),
            _ => return Err(wrong_type("topic", "a string")),
        }
        self.seq = optional("seq", found.seq, &SEQ)?;
        if found.batch != Field::Given(()) {
            return Err(wrong_type("batch", "an array or an object"));
        }
        self.rank = self.batch.rank()?;
        self.is_numbered = true;
        self.t_ns = self.batch.check()?;
        self.told = self.batch.told;
        std::mem::swap(&mut self.hashes, &mut self.batch.hashes);
        std::mem::swap(&mut self.events, &mut self.batch.events);
        Ok(Kind::Batch)
    }

    fn check_request(&mut self, found: &Found<'_>) -> Checked<Kind> {
        self.t_ns = match (found.timestamp_ms, found.timestamp) {
            (Field::Given(ms), _) => i128::from(ms) * 1_000_000,
            // What is no number becomes a time that is none.
            (_, Field::Given(ms)) if ms.is_nan() => -1,
            (_, Field::Given(ms)) => (ms * 1e6).round_ties_even() as i128,
            (Field::Absent, _) => return Err(missing("timestamp")),
            _ => return Err(wrong_type("timestamp", "a number")),
        }
        .try_into()
        .ok()
        .filter(|&t| bounds::TIME_NS.contains(t))
        .ok_or_else(|| Refused::new(Skip::BadValue, "expected timestamp in ms to be a time from 0 to 2^63 - 1 ns"))?;
        let length = optional("input_length", found.input_length, &bounds::REQUEST_TOKENS)?;
        self.input_tokens = length.map(|tokens| tokens as u64);
        check_hashes("hash_ids", found.hash_ids)?;
        std::mem::swap(&mut self.hashes, &mut self.hash_ids);
        Ok(Kind::Request)
    }
}

fn lookup(found: &Found<'_>) -> Checked<What> {
    let queried = required("queried", optional("queried", found.queried, &ANY)?)?;
    let hit = required("hit", optional("hit", found.hit, &ANY)?)?;
    let preempted = match found.preempted {
        Field::Absent => false,
        Field::Given(preempted) => preempted,
        _ => return Err(wrong_type("preempted", "a boolean")),
    };
    Ok(What::Lookup { queried, hit, preempted })
}

/// Of several arrays under one name the last counts.
#[inline]
fn read_hashes(cursor: &mut Cursor<'_>, hashes: &mut Vec<u64>) -> Read<Field<()>> {
    hashes.clear();
    cursor.hashes(hashes)
}

/// Whether the array is there, and all of it hashes.
pub(super) fn check_hashes(name: &str, field: Field<()>) -> Checked<()> {
    match field {
        Field::Given(()) => Ok(()),
        Field::Absent => Err(missing(name)),
        Field::WrongType => Err(wrong_type(name, "an array of integers")),
        Field::BadValue => Err(Refused::new(Skip::BadValue, format!("expected {name} to fit 64 bits"))),
    }
}
