//! Lines in which an engine tells of itself, in full: gauges, increments, counts, the blocks of its KV cache, and what
//! it runs on.
//!
//! The line is known to be JSON, and its time to be one. Fields are checked in the order in which the documentation
//! names them, so that a line with several faults is always counted under the same one.

use tokenpulse_core::bounds::{self, Range};
use tokenpulse_core::meter::{Added, Gauge, Increment, Named};

use crate::batch::EngineRow;
use crate::json::{Cursor, Field, Read, Text};
use crate::kv::record::{Record as KvRecord, What};
use crate::record::{Checked, Other, Refused, Skip, missing, not_json, optional, wrong_type};

/// Levels, amounts and counts of machines.
const AMOUNT: Range = Range { name: "amount", min: 0, max: i64::MAX };
const AT_LEAST_ONE: Range = Range { name: "number", min: 1, max: i64::MAX };
/// 2^63: the least amount that is too large.
const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;

/// The numbers of the machine that an engine runs on, all of its GPUs together; what no line says is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// What it computes at most, in FLOP/s.
    pub peak_flops: Option<f64>,
    /// What it moves from and to memory at most, in bytes/s.
    pub bandwidth_bytes_per_second: Option<f64>,
    /// Tokens of a block of its KV cache.
    pub kv_block_tokens: Option<i64>,
    /// Its GPUs.
    pub gpus: Option<i64>,
}

impl Machine {
    /// What a later line says stands; of the rest, what was said before.
    pub(crate) fn learn(&mut self, later: Self) {
        self.peak_flops = later.peak_flops.or(self.peak_flops);
        self.bandwidth_bytes_per_second = later.bandwidth_bytes_per_second.or(self.bandwidth_bytes_per_second);
        self.kv_block_tokens = later.kv_block_tokens.or(self.kv_block_tokens);
        self.gpus = later.gpus.or(self.gpus);
    }
}

/// A number that may be a fraction: as an integer, and where that is none as a float.
type Number = (Field<i64>, Field<f64>);

/// What was found for each field.
#[derive(Default)]
struct Found<'a> {
    gauges: [Field<i64>; 5],
    added: [Number; 7],
    name: Field<Text<'a>>,
    n: Field<i64>,
    peak_flops: Number,
    bandwidth: Number,
    kv_block_tokens: Field<i64>,
    gpus: Field<i64>,
}

/// What one line says; room is kept from line to line.
#[derive(Debug, Default)]
pub(crate) struct EngineRecord {
    said: Option<EngineRow>,
    kv: KvRecord,
}

impl EngineRecord {
    /// Reads a line of a kind that was told before.
    ///
    /// # Errors
    ///
    /// Why the line is passed over.
    pub(crate) fn read(&mut self, line: &[u8], kind: Other) -> Checked<()> {
        self.said = None;
        if kind == Other::Kv {
            return self.kv.read(line).map(|_| ());
        }
        let found = fields(line).map_err(|fault| not_json(line, fault))?;
        self.said = Some(match kind {
            Other::Gauge => gauge(&found)?,
            Other::Add => add(&found)?,
            Other::Count => count(&found)?,
            Other::Ready | Other::Kv => ready(&found)?,
        });
        Ok(())
    }

    /// What the line said; the hashes of blocks go where the others are.
    pub(crate) fn row(&self, hashes: &mut Vec<u64>) -> EngineRow {
        if let Some(said) = &self.said {
            return said.clone();
        }
        let start = hashes.len() as u32;
        match self.kv.events.first() {
            Some(What::Store(range, tier, group)) => {
                hashes.extend_from_slice(&self.kv.hashes[range.clone()]);
                EngineRow::Store(start..hashes.len() as u32, *tier, *group)
            }
            Some(What::Evict(range, tier, group)) => {
                hashes.extend_from_slice(&self.kv.hashes[range.clone()]);
                EngineRow::Evict(start..hashes.len() as u32, *tier, *group)
            }
            Some(&What::Lookup { queried, hit, preempted }) => EngineRow::Lookup(queried, hit, preempted),
            Some(What::Clear) | None => EngineRow::Clear,
        }
    }
}

fn fields(line: &[u8]) -> Read<Found<'_>> {
    let mut found = Found::default();
    let mut cursor = Cursor::new(line);
    // A key given twice: the last counts.
    cursor.object(|cursor, key| {
        let name = std::str::from_utf8(key).unwrap_or_default();
        if let Some(gauge) = Gauge::from_name(name) {
            found.gauges[gauge as usize] = cursor.integer()?;
        } else if let Some(added) = Added::from_name(name) {
            found.added[added as usize] = cursor.integer_or_float()?;
        } else {
            match name {
                "name" => found.name = cursor.text()?,
                "n" => found.n = cursor.integer()?,
                "peak_flops" => found.peak_flops = cursor.integer_or_float()?,
                "bandwidth_bytes_per_second" => found.bandwidth = cursor.integer_or_float()?,
                "kv_block_tokens" => found.kv_block_tokens = cursor.integer()?,
                "gpus" => found.gpus = cursor.integer()?,
                _ => cursor.skip()?,
            }
        }
        Ok(())
    })?;
    Ok(found)
}

fn gauge(found: &Found<'_>) -> Checked<EngineRow> {
    let mut values = [None; 5];
    for gauge in Gauge::ALL {
        values[gauge as usize] = optional(gauge.name(), found.gauges[gauge as usize], &AMOUNT)?;
    }
    Ok(EngineRow::Gauge(values))
}

fn add(found: &Found<'_>) -> Checked<EngineRow> {
    let mut values = [None; 7];
    for added in Added::ALL {
        let (name, number) = (added.name(), found.added[added as usize]);
        values[added as usize] = match added {
            Added::Flops | Added::BytesMoved => amount(name, number)?,
            _ => optional(name, number.0, &AMOUNT)?.map(Increment::Int),
        };
    }
    Ok(EngineRow::Add(values))
}

/// An amount that need not be whole.
fn amount(name: &str, number: Number) -> Checked<Option<Increment>> {
    match number {
        (whole @ (Field::Given(_) | Field::Absent), _) => Ok(optional(name, whole, &AMOUNT)?.map(Increment::Int)),
        (_, Field::Given(value)) if (0.0..TOO_LARGE).contains(&value) => Ok(Some(Increment::Float(value))),
        (_, Field::Given(value)) => {
            Err(Refused::new(Skip::BadValue, format!("expected {name} to be at least 0 and below 2^63, got {value}")))
        }
        _ => Err(wrong_type(name, "a number")),
    }
}

fn count(found: &Found<'_>) -> Checked<EngineRow> {
    let named = match &found.name {
        Field::Absent => return Err(missing("name")),
        Field::Given(name) => std::str::from_utf8(name).ok().and_then(Named::from_name).ok_or_else(|| {
            let names = Named::ALL.map(Named::name).join(", ");
            let got = String::from_utf8_lossy(name);
            Refused::new(Skip::BadValue, format!("expected name to be one of {names}, got {got:?}"))
        })?,
        _ => return Err(wrong_type("name", "a string")),
    };
    let n = optional("n", found.n, &bounds::REQUEST_TOKENS)?.unwrap_or(1);
    Ok(EngineRow::Count(named, n))
}

fn ready(found: &Found<'_>) -> Checked<EngineRow> {
    Ok(EngineRow::Ready(Machine {
        peak_flops: rate("peak_flops", found.peak_flops)?,
        bandwidth_bytes_per_second: rate("bandwidth_bytes_per_second", found.bandwidth)?,
        kv_block_tokens: optional("kv_block_tokens", found.kv_block_tokens, &AT_LEAST_ONE)?,
        gpus: optional("gpus", found.gpus, &AT_LEAST_ONE)?,
    }))
}

/// What a machine can do in a second: more than nothing.
fn rate(name: &str, number: Number) -> Checked<Option<f64>> {
    let value = match number {
        (Field::Given(whole), _) => whole as f64,
        (_, Field::Given(value)) => value,
        (Field::Absent, _) => return Ok(None),
        _ => return Err(wrong_type(name, "a number")),
    };
    if value > 0.0 && value.is_finite() {
        return Ok(Some(value));
    }
    Err(Refused::new(Skip::BadValue, format!("expected {name} to be above 0 and finite, got {value}")))
}
