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

/// What a batch says beside its events.
#[derive(Debug, Default)]
pub struct Batch {
    ts: Field<f64>,
    rank: Field<i64>,
    events: Field<()>,
    fault: Option<Refused>,
    /// The type of the first event whose type is not known, and how many there are.
    pub unknown: Option<(String, u64)>,
}

impl Batch {
    /// Its time in nanoseconds, and the rank.
    pub fn check(&self) -> Checked<(i64, Option<i64>)> {
        let t_ns = match self.ts {
            Field::Given(seconds) => nanoseconds(seconds)?,
            Field::Absent => return Err(missing("ts of the batch")),
            _ => return Err(wrong_type("ts of the batch", "a number")),
        };
        match self.events {
            Field::Given(()) => {}
            Field::Absent => return Err(missing("events of the batch")),
            _ => return Err(wrong_type("events of the batch", "an array")),
        }
        let rank = optional("data_parallel_rank of the batch", self.rank, &ANY)?;
        self.fault.clone().map_or(Ok((t_ns, rank)), Err)
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

/// Reads a batch, and appends its events and their hashes.
pub fn read_batch(cursor: &mut Cursor<'_>, hashes: &mut Vec<u64>, events: &mut Vec<What>) -> Read<Field<Batch>> {
    let mut batch = Batch::default();
    if cursor.is_array() {
        let mut place = 0;
        cursor.array(|cursor| {
            place += 1;
            match place {
                1 => batch.ts = cursor.float()?,
                2 => batch.read_events(cursor, hashes, events)?,
                3 => batch.rank = cursor.integer()?,
                _ => cursor.skip()?,
            }
            Ok(())
        })?;
    } else if cursor.is_object() {
        cursor.object(|cursor, key| {
            match key {
                b"ts" => batch.ts = cursor.float()?,
                b"events" => batch.read_events(cursor, hashes, events)?,
                b"data_parallel_rank" => batch.rank = cursor.integer()?,
                _ => cursor.skip()?,
            }
            Ok(())
        })?;
    } else {
        return cursor.other();
    }
    Ok(Field::Given(batch))
}

/// What was found for each field of an event.
#[derive(Default)]
struct Found<'a> {
    name: Field<Text<'a>>,
    block_hashes: Field<()>,
    medium: Field<Text<'a>>,
    group: Field<i64>,
}

impl Batch {
    fn read_events(&mut self, cursor: &mut Cursor<'_>, hashes: &mut Vec<u64>, events: &mut Vec<What>) -> Read<()> {
        hashes.clear();
        events.clear();
        (self.unknown, self.fault) = (None, None);
        if !cursor.is_array() {
            self.events = cursor.other()?;
            return Ok(());
        }
        self.events = Field::Given(());
        cursor.array(|cursor| {
            let start = hashes.len();
            let found = if cursor.is_array() {
                read_array(cursor, hashes)?
            } else if cursor.is_object() {
                read_object(cursor, hashes)?
            } else {
                cursor.skip()?;
                self.fault.get_or_insert_with(|| wrong_type("an event", "an object or an array"));
                return Ok(());
            };
            match check(&found, start..hashes.len()) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => {
                    let name = match found.name {
                        Field::Given(name) => String::from_utf8_lossy(&name).into_owned(),
                        _ => String::new(),
                    };
                    self.unknown.get_or_insert((name, 0)).1 += 1;
                }
                Err(fault) => {
                    self.fault.get_or_insert(fault);
                }
            }
            Ok(())
        })
    }
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
