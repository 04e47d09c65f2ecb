//! The beginning of a block: who wrote it, by which settings, and the labels of its classes.

use prost::Message;

use super::layout::{CLASS, Layout, MAGIC, PREAMBLE_BYTES, VERSION, header};
use super::memory::Words;
use super::settings::{Origin, Settings, SloSet};
use crate::bounds::CLASS_KEY_BYTES;
use crate::error::{Error, Result};
use crate::kv;
use crate::sketch::ItlRule;
use crate::slo::Slo;

/// Settings and origin as protobuf; fields are never renumbered.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Preamble {
    #[prost(message, repeated, tag = "1")]
    slos: Vec<PreambleSlo>,
    #[prost(int64, repeated, tag = "2")]
    windows_ns: Vec<i64>,
    #[prost(bool, tag = "3")]
    burn: bool,
    #[prost(uint32, tag = "4")]
    scale: u32,
    #[prost(string, tag = "5")]
    itl_rule: String,
    #[prost(uint32, tag = "6")]
    max_requests: u32,
    #[prost(uint32, tag = "7")]
    max_classes: u32,
    #[prost(int64, tag = "8")]
    ttl_ns: i64,
    #[prost(uint32, tag = "9")]
    shards: u32,
    #[prost(bool, tag = "10")]
    monotonic: bool,
    #[prost(int64, tag = "11")]
    anchor_monotonic_ns: i64,
    #[prost(int64, tag = "12")]
    anchor_unix_ns: i64,
    #[prost(uint32, tag = "13")]
    pid: u32,
    #[prost(int64, tag = "14")]
    process_start_ns: i64,
    #[prost(fixed64, tag = "15")]
    boot: u64,
    #[prost(message, optional, tag = "16")]
    kv: Option<PreambleKv>,
}

#[derive(Clone, PartialEq, Message)]
struct PreambleKv {
    #[prost(uint32, tag = "1")]
    remember: u32,
    #[prost(int64, tag = "2")]
    ttl_ns: i64,
    #[prost(string, tag = "3")]
    report: String,
    #[prost(double, optional, tag = "4")]
    rate: Option<f64>,
    #[prost(uint32, tag = "5")]
    max_blocks: u32,
}

#[derive(Clone, PartialEq, Message)]
struct PreambleSlo {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int64, tag = "2")]
    ttft_ns: i64,
    #[prost(int64, tag = "3")]
    tpot_ns: i64,
    #[prost(int64, optional, tag = "4")]
    e2e_ns: Option<i64>,
    #[prost(int64, optional, tag = "5")]
    itl_ns: Option<i64>,
    #[prost(double, tag = "6")]
    objective: f64,
    #[prost(message, repeated, tag = "7")]
    labels: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Label {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Labels {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
}

/// Labels as messages.
pub(crate) fn labels_of(key: &[(String, String)]) -> Vec<Label> {
    key.iter().map(|(name, value)| Label { name: name.clone(), value: value.clone() }).collect()
}

/// Messages as labels.
pub(crate) fn key_of(labels: Vec<Label>) -> Vec<(String, String)> {
    labels.into_iter().map(|label| (label.name, label.value)).collect()
}

impl Preamble {
    pub(crate) fn of(settings: &Settings, origin: &Origin) -> Self {
        let slo = |SloSet { slo, objective }: &SloSet| PreambleSlo {
            name: slo.name.clone(),
            ttft_ns: slo.ttft_ns,
            tpot_ns: slo.tpot_ns,
            e2e_ns: slo.e2e_ns,
            itl_ns: slo.itl_ns,
            objective: *objective,
            labels: labels_of(&slo.labels),
        };
        Self {
            slos: settings.slos.iter().map(slo).collect(),
            windows_ns: settings.windows_ns.clone(),
            burn: settings.burn,
            scale: u32::from(settings.scale),
            itl_rule: settings.itl_rule.name().to_owned(),
            max_requests: settings.max_requests,
            max_classes: settings.max_classes,
            ttl_ns: settings.ttl_ns,
            shards: settings.shards,
            monotonic: origin.monotonic,
            anchor_monotonic_ns: origin.anchor_monotonic_ns,
            anchor_unix_ns: origin.anchor_unix_ns,
            pid: origin.pid,
            process_start_ns: origin.process_start_ns,
            boot: origin.boot,
            kv: settings.kv.map(|kv| PreambleKv {
                remember: kv.remember,
                ttl_ns: kv.ttl_ns,
                report: kv.report.name().to_owned(),
                rate: kv.rate,
                max_blocks: kv.max_blocks,
            }),
        }
    }

    pub(crate) fn into_parts(self) -> Result<(Settings, Origin)> {
        let slo = |slo: PreambleSlo| SloSet {
            slo: Slo {
                name: slo.name,
                ttft_ns: slo.ttft_ns,
                tpot_ns: slo.tpot_ns,
                e2e_ns: slo.e2e_ns,
                itl_ns: slo.itl_ns,
                labels: key_of(slo.labels),
            },
            objective: slo.objective,
        };
        let kv = |kv: PreambleKv| {
            let report = kv::Report::from_name(&kv.report);
            let report = report.ok_or_else(|| Error::value("report", "copies or full", &kv.report))?;
            let PreambleKv { remember, ttl_ns, rate, max_blocks, .. } = kv;
            Result::Ok(kv::Settings { remember, ttl_ns, report, rate, max_blocks })
        };
        let settings = Settings {
            kv: self.kv.map(kv).transpose()?,
            slos: self.slos.into_iter().map(slo).collect(),
            windows_ns: self.windows_ns,
            burn: self.burn,
            scale: u8::try_from(self.scale).unwrap_or(u8::MAX),
            itl_rule: ItlRule::from_name(&self.itl_rule)?,
            max_requests: self.max_requests,
            max_classes: self.max_classes,
            ttl_ns: self.ttl_ns,
            shards: self.shards,
        };
        settings.check()?;
        let origin = Origin {
            monotonic: self.monotonic,
            anchor_monotonic_ns: self.anchor_monotonic_ns,
            anchor_unix_ns: self.anchor_unix_ns,
            pid: self.pid,
            process_start_ns: self.process_start_ns,
            boot: self.boot,
        };
        Ok((settings, origin))
    }
}

/// Writes the header of an empty block; the magic word comes last.
pub(super) fn write(words: Words<'_>, settings: &Settings, origin: &Origin, layout: &Layout) -> Result<()> {
    let preamble = Preamble::of(settings, origin).encode_to_vec();
    if preamble.len() > PREAMBLE_BYTES {
        let expected = format_args!("at most {PREAMBLE_BYTES} bytes of names and labels");
        return Err(Error::value("settings of the meter", expected, preamble.len()));
    }
    words.set(header::VERSION, VERSION);
    words.set(header::WORDS, layout.words as u64);
    words.set(header::PREAMBLE_BYTES, preamble.len() as u64);
    words.set_bytes(Layout::PREAMBLE, &preamble);
    words.publish(header::MAGIC, MAGIC);
    Ok(())
}

/// Reads the header of a block.
pub(super) fn read(words: Words<'_>) -> Result<(Settings, Origin, Layout)> {
    let fail = |expected: &str, got: String| Err(Error::block(expected, got));
    if words.published(header::MAGIC) != MAGIC {
        return fail("begin as one does", format!("{:#018x}", words.get(header::MAGIC)));
    }
    if words.get(header::VERSION) != VERSION {
        return fail(&format!("have version {VERSION}"), words.get(header::VERSION).to_string());
    }
    let len = words.get(header::PREAMBLE_BYTES);
    if len > PREAMBLE_BYTES as u64 {
        return fail("have settings of at most 64 KiB", format!("{len} bytes"));
    }
    let bytes = words.bytes(Layout::PREAMBLE, len as usize);
    let preamble = Preamble::decode(&*bytes).map_err(|error| Error::block("have settings that decode", error))?;
    let checked = preamble.into_parts().and_then(|(settings, origin)| {
        let layout = Layout::of(&settings)?;
        Ok((settings, origin, layout))
    });
    let (settings, origin, layout) = checked.map_err(|error| Error::block("have settings that can be", error))?;
    if words.get(header::WORDS) != layout.words as u64 || words.0.len() != layout.words {
        return fail(&format!("be {} bytes long", layout.words * 8), (words.0.len() * 8).to_string());
    }
    Ok((settings, origin, layout))
}

/// Writes the labels of a class and the sets that judge it; false where they do not fit.
pub(super) fn set_class(words: Words<'_>, number: usize, key: &[(String, String)], judges: u64) -> bool {
    let bytes = Labels { labels: labels_of(key) }.encode_to_vec();
    let fits = bytes.len() <= CLASS_KEY_BYTES && number < CLASS_LIMIT;
    if fits {
        let at = Layout::class(number);
        words.set(at, judges);
        words.set(at + 1, bytes.len() as u64);
        words.set_bytes(at + 2, &bytes);
    }
    fits
}

const CLASS_LIMIT: usize = crate::bounds::METER_CLASSES.max as usize;

/// The labels of a class; those that do not decode are none.
pub(super) fn class_key(words: Words<'_>, number: usize) -> Vec<(String, String)> {
    let at = Layout::class(number);
    let len = (words.get(at + 1) as usize).min((CLASS - 2) * 8);
    Labels::decode(&*words.bytes(at + 2, len)).map_or_else(|_| Vec::new(), |labels| key_of(labels.labels))
}
