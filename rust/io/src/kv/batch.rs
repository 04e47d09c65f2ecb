//! Batches of KV events as vLLM publishes them: time, events, and which of several engines it was.
//!
//! Batch and event are arrays or objects, as the publisher encodes them; an array has the fields in this order:
//!
//! - batch: `ts` (seconds), `events`, `data_parallel_rank`;
//! - `BlockStored`: `block_hashes`, `parent_block_hash`, `token_ids`, `block_size`, `lora_id`, `medium`, `lora_name`,
//!   `extra_keys`, `group_idx`; `BlockRemoved`: `block_hashes`, `medium`, `group_idx`; `AllBlocksCleared`.
//!
//! An event of another type is passed over; a field at fault spoils the whole batch.

use tokenpulse_core::kv::Tier;

use super::record::{ANY, What, check_hashes};
use crate::json::{Cursor, Field, Read, Text};
use crate::record::{Checked, Refused, Skip, missing, optional, wrong_type};

/// What a batch says; what is kept of one is filled again by the next.
#[derive(Debug, Default)]
pub struct Batch {
    ts: Field<f64>,
    rank: Field<i64>,
    has_events: Field<()>,
    fault: Option<Refused>,
    /// The hashes of all events.
    pub hashes: Vec<u64>,
    /// The events, those together that follow each other and differ only in their hashes.
    pub events: Vec<What>,
    /// How many there are, each by itself.
    pub told: u64,
    /// The type of the first event whose type is not known, and how many there are.
    pub unknown: Option<(String, u64)>,
}

impl Batch {
    /// Reads a batch.
    pub fn read(&mut self, cursor: &mut Cursor<'_>) -> Read<Field<()>> {
        (self.ts, self.rank, self.has_events) = (Field::Absent, Field::Absent, Field::Absent);
        self.clear_events();
        if cursor.is_array() {
            let mut place = 0;
            cursor.array(|cursor| {
                place += 1;
                match place {
                    1 => self.ts = cursor.float()?,
                    2 => self.read_events(cursor)?,
                    3 => self.rank = cursor.integer()?,
                    _ => cursor.skip()?,
                }
                Ok(())
            })?;
        } else if cursor.is_object() {
            cursor.object(|cursor, key| {
                match key {
                    b"ts" => self.ts = cursor.float()?,
                    b"events" => self.read_events(cursor)?,
                    b"data_parallel_rank" => self.rank = cursor.integer()?,
                    _ => cursor.skip()?,
                }
                Ok(())
            })?;
        } else {
            return cursor.other();
        }
        Ok(Field::Given(()))
    }

    /// Which of several engines published it.
    pub fn rank(&self) -> Checked<Option<i64>> {
        optional("data_parallel_rank of the batch", self.rank, &ANY)
    }

    /// Its time in nanoseconds, if there is nothing wrong with it.
    pub fn check(&self) -> Checked<i64> {
        let t_ns = match self.ts {
            Field::Given(seconds) => nanoseconds(seconds)?,
            Field::Absent => return Err(missing("ts of the batch")),
            _ => return Err(wrong_type("ts of the batch", "a number")),
        };
        match self.has_events {
            Field::Given(()) => {}
            Field::Absent => return Err(missing("events of the batch")),
            _ => return Err(wrong_type("events of the batch", "an array")),
        }
        self.fault.clone().map_or(Ok(t_ns), Err)
    }

    /// Of several arrays of events the last counts.
    fn clear_events(&mut self) {
        self.hashes.clear();
        self.events.clear();
        (self.told, self.unknown, self.fault) = (0, None, None);
    }

    /// A tracker takes many blocks together in less time than one after the other, and many events have only one.
    fn push(&mut self, event: What) {
        match (self.events.last_mut(), &event) {
            (Some(What::Store(before, tier, group)), What::Store(hashes, other_tier, other_group))
            | (Some(What::Evict(before, tier, group)), What::Evict(hashes, other_tier, other_group))
                if (&*tier, &*group, before.end) == (other_tier, other_group, hashes.start) =>
            {
                before.end = hashes.end;
            }
            _ => self.events.push(event),
        }
    }

    fn read_events(&mut self, cursor: &mut Cursor<'_>) -> Read<()> {
        self.clear_events();
        if !cursor.is_array() {
            self.has_events = cursor.other()?;
            return Ok(());
        }
        self.has_events = Field::Given(());
        cursor.array(|cursor| self.read_event(cursor))
    }

    fn read_event(&mut self, cursor: &mut Cursor<'_>) -> Read<()> {
        let start = self.hashes.len();
        let found = if cursor.is_array() {
            read_array(cursor, &mut self.hashes)?
        } else if cursor.is_object() {
            read_object(cursor, &mut self.hashes)?
        } else {
            cursor.skip()?;
            self.fault.get_or_insert_with(|| wrong_type("an event", "an object or an array"));
            return Ok(());
        };
        match (check(&found, start..self.hashes.len()), &found.name) {
            (Ok(Some(event)), _) => {
                self.told += 1;
                self.push(event);
            }
            (Ok(None), Field::Given(name)) => {
                let name = || (String::from_utf8_lossy(name).into_owned(), 0);
                self.unknown.get_or_insert_with(name).1 += 1;
            }
            (Ok(None), _) => {}
            (Err(fault), _) => {
                self.fault.get_or_insert(fault);
            }
        }
        Ok(())
    }
}

fn nanoseconds(seconds: f64) -> Checked<i64> {
    let ns = (seconds * 1e9).round_ties_even();
    // From 2^63 on, or none at all: no count of nanoseconds.
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&ns) {
        Ok(ns as i64)
    } else {
        Err(Refused::new(Skip::BadValue, format!("expected ts of the batch to fit 64 bits of ns, got {seconds} s")))
    }
}

/// What was found for each field of an event.
#[derive(Default)]
struct Found<'a> {
    name: Field<Text<'a>>,
    block_hashes: Field<()>,
    medium: Field<Text<'a>>,
    group: Field<i64>,
}

fn read_object<'a>(cursor: &mut Cursor<'a>, hashes: &mut Vec<u64>) -> Read<Found<'a>> {
    let (start, mut found) = (hashes.len(), Found::default());
    cursor.object(|cursor, key| {
        match key {
            b"type" => found.name = cursor.text()?,
            b"block_hashes" => {
                hashes.truncate(start);
                found.block_hashes = cursor.hashes(hashes)?;
            }
            b"medium" => found.medium = cursor.text()?,
            b"group_idx" => found.group = cursor.integer()?,
            _ => cursor.skip()?,
        }
        Ok(())
    })?;
    Ok(found)
}

fn read_array<'a>(cursor: &mut Cursor<'a>, hashes: &mut Vec<u64>) -> Read<Found<'a>> {
    let (mut place, mut found) = (0, Found::default());
    cursor.array(|cursor| {
        place += 1;
        let stored = matches!(&found.name, Field::Given(name) if name.as_ref() == b"BlockStored");
        match (place, stored) {
            (1, _) => found.name = cursor.text()?,
            (2, _) => found.block_hashes = cursor.hashes(hashes)?,
            (3, false) | (7, true) => found.medium = cursor.text()?,
            (4, false) | (10, true) => found.group = cursor.integer()?,
            _ => cursor.skip()?,
        }
        Ok(())
    })?;
    Ok(found)
}

/// The event, unless its type is not known.
fn check(found: &Found<'_>, hashes: std::ops::Range<usize>) -> Checked<Option<What>> {
    let take = match &found.name {
        Field::Given(name) => match name.as_ref() {
            b"BlockStored" => What::Store,
            b"BlockRemoved" => What::Evict,
            b"AllBlocksCleared" => return Ok(Some(What::Clear)),
            _ => return Ok(None),
        },
        Field::Absent => return Err(missing("type of an event")),
        _ => return Err(wrong_type("type of an event", "a string")),
    };
    check_hashes("block_hashes", found.block_hashes)?;
    let tier = match &found.medium {
        Field::Absent => Some(Tier::Gpu),
        Field::Given(medium) => tier_of(medium),
        _ => return Err(wrong_type("medium", "a string")),
    };
    let group = optional("group_idx", found.group, &ANY)?.unwrap_or(0);
    Ok(Some(take(hashes, tier, group)))
}

/// How the names of media begin, in whatever case.
const MEDIA: [(&[u8], Tier); 10] = [
    (b"gpu", Tier::Gpu),
    (b"cpu", Tier::Cpu),
    (b"disk", Tier::Disk),
    (b"ssd", Tier::Disk),
    (b"nvme", Tier::Disk),
    (b"fs", Tier::Disk),
    (b"file", Tier::Disk),
    (b"storage", Tier::Disk),
    (b"remote", Tier::Remote),
    (b"external", Tier::Remote),
];

fn tier_of(medium: &[u8]) -> Option<Tier> {
    let begins = |name: &[u8]| medium.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    MEDIA.iter().find(|(name, _)| begins(name)).map(|&(_, tier)| tier)
}
