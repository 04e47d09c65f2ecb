//! A snapshot of a meter as bytes: protobuf, whose sketches are OpenTelemetry data points.
//!
//! What is 0 or empty takes no room. Decoding checks everything that reading relies on: a decoded snapshot can be
//! merged and printed like any other.

use prost::Message;

use crate::error::{Error, Result};
use crate::kv::{Counter, REPLICATES};
use crate::meter::{
    AddedFigure, BurnWindow, ClassReading, GaugeFigure, KvPane, KvReading, KvScope, Label, Open, Preamble, Scope,
    Settings, Silence, Snapshot, WindowInfo, key_of, labels_of,
};
use crate::sketch::{ItlRule, Sketch, Sparse};
use crate::tally::{self, Block};

/// The version of the encoding.
const VERSION: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct Encoded {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(message, optional, tag = "2")]
    preamble: Option<Preamble>,
    /// now, newest, first event, first arrival, first emission, last emission, ready: each `t + 1`, 0 for none.
    #[prost(uint64, repeated, tag = "3")]
    times: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    rejected: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    refused_values: Vec<u64>,
    /// clamped, over, dropped.
    #[prost(uint64, repeated, tag = "6")]
    counts: Vec<u64>,
    /// By window: true width, late.
    #[prost(uint64, repeated, tag = "7")]
    windows: Vec<u64>,
    #[prost(message, repeated, tag = "8")]
    classes: Vec<EncodedClass>,
    #[prost(message, optional, tag = "9")]
    all: Option<EncodedClass>,
    /// By scope and gauge: whether there is one, last, integral (two), covered, max.
    #[prost(uint64, repeated, tag = "10")]
    gauges: Vec<u64>,
    /// By scope and kind: sum (two), times.
    #[prost(uint64, repeated, tag = "11")]
    added: Vec<u64>,
    #[prost(message, repeated, tag = "12")]
    batch_sizes: Vec<Numbers>,
    /// By ring: true width, then good and judged of each set, bad and judged.
    #[prost(message, repeated, tag = "13")]
    burn: Vec<Numbers>,
    /// The KV cache, if it is followed; by which settings, the preamble says.
    #[prost(message, optional, tag = "14")]
    kv: Option<EncodedKv>,
}

#[derive(Clone, PartialEq, Message)]
struct EncodedKv {
    /// refused (6), clamped, blocks in each tier (4), blocks, remembered.
    #[prost(uint64, repeated, tag = "1")]
    counts: Vec<u64>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<EncodedKvScope>,
}

#[derive(Clone, PartialEq, Message)]
struct EncodedKvScope {
    /// The counters, then three of each part of a sample.
    #[prost(uint64, repeated, tag = "1")]
    counts: Vec<u64>,
    /// Lifetime, idle, gap; empty bytes for an empty sketch.
    #[prost(bytes = "vec", repeated, tag = "2")]
    sketches: Vec<Vec<u8>>,
    /// Of each pane: when it begins, evicted, refilled.
    #[prost(uint64, repeated, tag = "3")]
    panes: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Numbers {
    #[prost(uint64, repeated, tag = "1")]
    numbers: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct EncodedClass {
    #[prost(message, repeated, tag = "1")]
    key: Vec<Label>,
    #[prost(bool, tag = "2")]
    other: bool,
    /// Of streams, then of waits: how many, the oldest + 1, over each limit.
    #[prost(uint64, repeated, tag = "3")]
    open: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    scopes: Vec<EncodedScope>,
}

#[derive(Clone, PartialEq, Message)]
struct EncodedScope {
    /// attempted, by status (8), degraded, preempted, preemptions, prompt, output and cached tokens, named (3),
    /// missing (8); then of each SLO set good, tokens of good, over (16), failed (8), met, deadlines.
    #[prost(uint64, repeated, tag = "1")]
    counts: Vec<u64>,
    /// The metrics, then the sets' fluidity; empty bytes for an empty sketch.
    #[prost(bytes = "vec", repeated, tag = "2")]
    sketches: Vec<Vec<u8>>,
}

const KV_COUNTS: usize = Counter::ALL.len() + 3 * REPLICATES;
const SCOPE_COUNTS: usize = 26;
const SLO_COUNTS: usize = 28;

impl Snapshot {
    /// The snapshot as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let time = |t: Option<i64>| t.map_or(0, |t| t as u64 + 1);
        let times = [
            self.now,
            self.newest,
            self.first_event,
            self.first_arrival,
            self.first_emission,
            self.last_emission,
            self.ready,
        ];
        let gauge = |gauge: &Option<GaugeFigure>| match gauge {
            None => [0; 6],
            Some(g) => [1, g.last as u64, g.integral as u64, (g.integral >> 64) as u64, g.covered_ns, g.max as u64],
        };
        let burn = |window: &BurnWindow| Numbers {
            numbers: std::iter::once(window.true_width_ns as u64)
                .chain(window.slos.iter().flatten().chain(&window.availability).copied())
                .collect(),
        };
        Encoded {
            version: VERSION,
            preamble: Some(Preamble::of(&self.settings, &self.origin)),
            times: times.map(time).to_vec(),
            rejected: self.rejected.to_vec(),
            refused_values: self.refused_values.to_vec(),
            counts: vec![self.clamped, self.over, self.dropped],
            windows: self.windows.iter().flat_map(|window| [window.true_width_ns as u64, window.late]).collect(),
            classes: self.classes.iter().map(EncodedClass::of).collect(),
            all: Some(EncodedClass::of(&self.all)),
            gauges: self.gauges.iter().flatten().flat_map(gauge).collect(),
            added: self
                .added
                .iter()
                .flatten()
                .flat_map(|added| [added.sum as u64, (added.sum >> 64) as u64, added.times])
                .collect(),
            batch_sizes: self
                .batch_sizes
                .iter()
                .map(|sizes| Numbers { numbers: sizes.iter().flat_map(|&(size, n)| [u64::from(size), n]).collect() })
                .collect(),
            burn: self.burn.iter().flatten().map(burn).collect(),
            kv: self.kv.as_ref().map(EncodedKv::of),
        }
        .encode_to_vec()
    }

    /// The snapshot that [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    ///
    /// A decode error for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let encoded = Encoded::decode(bytes).map_err(|error| wrong("decode", error))?;
        if encoded.version != VERSION {
            return Err(wrong(&format!("have version {VERSION}"), encoded.version));
        }
        let preamble = encoded.preamble.ok_or_else(|| wrong("have settings", "none"))?;
        let (settings, origin) = preamble.into_parts().map_err(|error| wrong("have settings that can be", error))?;
        let windows = settings.windows_ns.len();
        let scopes = windows + 1;
        let [now, newest, first_event, first_arrival, first_emission, last_emission, ready] =
            array(&encoded.times, "times")?.map(|t: u64| t.checked_sub(1).map(|t| t as i64));
        let [clamped, over, dropped] = array(&encoded.counts, "counts")?;
        expect(encoded.windows.len() == 2 * windows, "windows")?;
        expect(encoded.gauges.len() == 30 * scopes, "gauges")?;
        expect(encoded.added.len() == 21 * scopes, "increments")?;
        expect(encoded.batch_sizes.len() == scopes, "batch sizes")?;
        expect(encoded.classes.len() <= settings.max_classes as usize * 64, "classes")?;
        let all = encoded.all.ok_or_else(|| wrong("have the sum of its classes", "none"))?;
        let plain = settings.tally();
        let class = |class: EncodedClass| class.into_reading(scopes, &plain);
        let by_scope = |numbers: &[u64], each: usize| -> Vec<Vec<u64>> {
            numbers.chunks_exact(each).map(<[u64]>::to_vec).collect()
        };
        Ok(Self {
            now,
            newest,
            first_event,
            first_arrival,
            first_emission,
            last_emission,
            ready,
            rejected: array(&encoded.rejected, "rejections")?,
            refused_values: array(&encoded.refused_values, "refused values")?,
            clamped,
            over,
            dropped,
            windows: encoded
                .windows
                .chunks_exact(2)
                .zip(&settings.windows_ns)
                .map(|(window, &width_ns)| WindowInfo { width_ns, true_width_ns: window[0] as i64, late: window[1] })
                .collect(),
            classes: encoded.classes.into_iter().map(class).collect::<Result<_>>()?,
            all: class(all)?,
            gauges: by_scope(&encoded.gauges, 30).iter().map(|scope| gauges(scope)).collect(),
            added: by_scope(&encoded.added, 21)
                .iter()
                .map(|scope| std::array::from_fn(|kind| added(&scope[3 * kind..3 * kind + 3])))
                .collect(),
            batch_sizes: encoded.batch_sizes.iter().map(batch_sizes).collect::<Result<_>>()?,
            burn: burn(&encoded.burn, &settings)?,
            kv: encoded.kv.map(|kv| kv.into_reading(&settings)).transpose()?,
            settings,
            origin,
        })
    }
}

fn gauges(scope: &[u64]) -> [Option<GaugeFigure>; 5] {
    std::array::from_fn(|gauge| {
        let figure = &scope[6 * gauge..6 * gauge + 6];
        (figure[0] == 1).then(|| GaugeFigure {
            last: figure[1] as i64,
            integral: u128::from(figure[2]) | u128::from(figure[3]) << 64,
            covered_ns: figure[4],
            max: figure[5] as i64,
        })
    })
}

fn added(figure: &[u64]) -> AddedFigure {
    AddedFigure { sum: u128::from(figure[0]) | u128::from(figure[1]) << 64, times: figure[2] }
}

fn batch_sizes(sizes: &Numbers) -> Result<Vec<(u32, u64)>> {
    let pairs = sizes.numbers.chunks_exact(2).map(|pair| (pair[0] as u32, pair[1]));
    let sizes: Vec<(u32, u64)> = pairs.collect();
    expect(sizes.windows(2).all(|pair| pair[0].0 < pair[1].0), "batch sizes")?;
    Ok(sizes)
}

fn burn(rings: &[Numbers], settings: &Settings) -> Result<Option<Vec<BurnWindow>>> {
    if rings.is_empty() {
        return Ok(None);
    }
    let widths = Snapshot::burn_widths_ns();
    expect(rings.len() == widths.len(), "burn rates")?;
    let ring = |(ring, width_ns): (&Numbers, i64)| {
        let numbers = &ring.numbers;
        expect(numbers.len() == 3 + 2 * settings.slos.len(), "burn rates")?;
        let mut pairs: Vec<[u64; 2]> = numbers[1..].chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
        let availability = pairs.pop().unwrap_or_default();
        Ok(BurnWindow { width_ns, true_width_ns: numbers[0] as i64, slos: pairs, availability })
    };
    rings.iter().zip(widths).map(ring).collect::<Result<_>>().map(Some)
}

impl EncodedKv {
    fn of(kv: &KvReading) -> Self {
        let state = kv.refused.into_iter().chain([kv.clamped]).chain(kv.tiers).chain([kv.blocks, kv.remembered]);
        let panes = |scope: &KvScope| {
            scope.panes.iter().flat_map(|pane| [pane.start as u64, pane.evicted, pane.refilled]).collect()
        };
        let scope = |scope: &KvScope| EncodedKvScope {
            counts: scope.counts.into_iter().chain(scope.replicates).collect(),
            sketches: scope.spans.iter().map(sketch_bytes).collect(),
            panes: panes(scope),
        };
        Self { counts: state.collect(), scopes: kv.scopes.iter().map(scope).collect() }
    }

    fn into_reading(self, settings: &Settings) -> Result<KvReading> {
        let kv = settings.kv.ok_or_else(|| wrong("have settings of the KV cache", "none"))?;
        let counts: [u64; 13] = array(&self.counts, "counts of the KV cache")?;
        expect(self.scopes.len() == settings.windows_ns.len() + 1, "windows of the KV cache")?;
        let scope = |scope: EncodedKvScope| {
            let counts: [u64; KV_COUNTS] = array(&scope.counts, "counters of the KV cache")?;
            let empty = Sketch::new(settings.scale, None)?;
            let mut spans = [empty.clone(), empty.clone(), empty];
            expect(scope.sketches.len() == spans.len(), "sketches of the KV cache")?;
            spans.iter_mut().zip(&scope.sketches).try_for_each(|(place, bytes)| put_sketch(place, bytes))?;
            expect(scope.panes.len().is_multiple_of(3) && scope.panes.len() <= 3 * 128, "panes of the KV cache")?;
            let panes = scope.panes.chunks_exact(3);
            Ok(KvScope {
                counts: std::array::from_fn(|counter| counts[counter]),
                replicates: std::array::from_fn(|slot| counts[Counter::ALL.len() + slot]),
                spans,
                panes: panes
                    .map(|pane| KvPane { start: pane[0] as i64, evicted: pane[1], refilled: pane[2] })
                    .collect(),
            })
        };
        Ok(KvReading {
            settings: kv,
            refused: std::array::from_fn(|reason| counts[reason]),
            clamped: counts[6],
            tiers: std::array::from_fn(|tier| counts[7 + tier]),
            blocks: counts[11],
            remembered: counts[12],
            scopes: self.scopes.into_iter().map(scope).collect::<Result<_>>()?,
        })
    }
}

/// Empty bytes for an empty sketch.
fn sketch_bytes(sketch: &Sketch<Sparse>) -> Vec<u8> {
    if sketch.is_empty() { Vec::new() } else { sketch.to_bytes() }
}

/// Puts an encoded sketch in the place of an empty one of the same scale and rule.
fn put_sketch(place: &mut Sketch<Sparse>, bytes: &[u8]) -> Result<()> {
    if !bytes.is_empty() {
        let sketch = Sketch::<Sparse>::from_bytes(bytes)?;
        let rules: [Option<ItlRule>; 2] = [sketch.itl_rule(), place.itl_rule()];
        expect(sketch.scale() == place.scale() && rules[0] == rules[1], "sketches of one scale and rule")?;
        *place = sketch;
    }
    Ok(())
}

impl EncodedClass {
    fn of(class: &ClassReading) -> Self {
        let silence = |silence: &Silence| {
            let oldest = silence.oldest_ns.map_or(0, |ns| ns as u64 + 1);
            [silence.n, oldest].into_iter().chain(silence.over)
        };
        Self {
            key: labels_of(&class.key),
            other: class.other,
            open: silence(&class.open.streams).chain(silence(&class.open.waits)).collect(),
            scopes: class.scopes.iter().map(EncodedScope::of).collect(),
        }
    }

    fn into_reading(self, scopes: usize, settings: &tally::Settings) -> Result<ClassReading> {
        expect(self.scopes.len() == scopes, "windows of a class")?;
        let open: [u64; 12] = array(&self.open, "open gaps")?;
        let silence = |from: usize| Silence {
            n: open[from],
            oldest_ns: open[from + 1].checked_sub(1).map(|ns| ns as i64),
            over: std::array::from_fn(|limit| open[from + 2 + limit]),
        };
        Ok(ClassReading {
            key: key_of(self.key),
            other: self.other,
            open: Open { streams: silence(0), waits: silence(6) },
            scopes: self.scopes.into_iter().map(|scope| scope.into_scope(settings)).collect::<Result<_>>()?,
        })
    }
}

impl EncodedScope {
    fn of(scope: &Scope) -> Self {
        let block = &scope.block;
        let mut counts = vec![block.attempted];
        counts.extend(block.by_status);
        counts.extend([block.degraded, block.preempted, block.preemptions, block.prompt_tokens, block.output_tokens]);
        counts.push(scope.cached_tokens);
        counts.extend(scope.named);
        counts.extend(block.missing);
        for slo in &block.slos {
            counts.extend([slo.good, slo.good_output_tokens]);
            counts.extend(slo.over);
            counts.extend(slo.failed);
            counts.extend([slo.met, slo.deadlines]);
        }
        let sketches = block.latency.iter().chain(block.slos.iter().map(|slo| &slo.fluidity));
        let sketches = sketches.map(sketch_bytes).collect();
        Self { counts, sketches }
    }

    fn into_scope(self, settings: &tally::Settings) -> Result<Scope> {
        let counts = &self.counts;
        expect(counts.len() == SCOPE_COUNTS + SLO_COUNTS * settings.slos.len(), "counts of a class")?;
        let mut block = Block::<Sparse>::new(settings);
        expect(self.sketches.len() == block.latency.len() + block.slos.len(), "sketches of a class")?;
        block.attempted = counts[0];
        block.by_status.copy_from_slice(&counts[1..9]);
        [block.degraded, block.preempted, block.preemptions] = [counts[9], counts[10], counts[11]];
        [block.prompt_tokens, block.output_tokens] = [counts[12], counts[13]];
        block.missing.copy_from_slice(&counts[18..26]);
        for (slo, counts) in block.slos.iter_mut().zip(counts[SCOPE_COUNTS..].chunks_exact(SLO_COUNTS)) {
            [slo.good, slo.good_output_tokens] = [counts[0], counts[1]];
            slo.over.copy_from_slice(&counts[2..18]);
            slo.failed.copy_from_slice(&counts[18..26]);
            [slo.met, slo.deadlines] = [counts[26], counts[27]];
        }
        let places = block.latency.iter_mut().chain(block.slos.iter_mut().map(|slo| &mut slo.fluidity));
        let mut places = places.zip(&self.sketches);
        places.try_for_each(|(place, bytes)| put_sketch(place, bytes))?;
        Ok(Scope { block, cached_tokens: counts[14], named: [counts[15], counts[16], counts[17]] })
    }
}

fn wrong(expected: &str, got: impl std::fmt::Display) -> Error {
    Error::snapshot(expected, got)
}

fn expect(fits: bool, what: &str) -> Result<()> {
    if fits { Ok(()) } else { Err(wrong(&format!("have {what} that fit its settings"), "others")) }
}

fn array<const N: usize>(numbers: &[u64], what: &str) -> Result<[u64; N]> {
    numbers.try_into().map_err(|_| wrong(&format!("have {N} {what}"), numbers.len()))
}
