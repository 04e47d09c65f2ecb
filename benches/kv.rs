//! The KV cache: the tracker beside hash maps of the standard library, the replay and the curve of a published trace
//! beside the textbook's way, and the reader of logs beside typed `serde_json`.
//!
//! Every peer must come to the same figures. The peers of the tracker keep sums where the tracker keeps sketches.

mod common;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Random, criterion, size};
use criterion::{Criterion, Throughput};
use serde::Deserialize;
use tokenpulse_core::kv::{Counter, Curve, Policy, Replay, Settings, Span, Tier, Totals, Trace, Tracker};
use tokenpulse_core::sketch::ItlRule;
use tokenpulse_io::{KvContent, Reading, Source, read_kv, reduce};

/// What a stream of stores and evictions comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    stored: u64,
    evicted: u64,
    refilled: u64,
    forgotten: u64,
    lifetime_ns: u128,
    gap_ns: u128,
}

/// A full cache that goes on for ever: each step stores a block and evicts the oldest. Of the blocks stored, 3 of 10 were
/// evicted before, and are remembered by one who remembers `remember`.
#[derive(Clone)]
struct Steps {
    random: Random,
    remember: usize,
    there: VecDeque<u64>,
    /// What was evicted, unless it was stored again.
    gone: VecDeque<Option<u64>>,
    taken: usize,
    refilled: u64,
}

impl Steps {
    fn new(resident: usize, remember: usize) -> Self {
        let mut random = Random(7);
        let there = (0..resident).map(|_| random.bits()).collect();
        Self { random, remember, there, gone: VecDeque::new(), taken: 0, refilled: 0 }
    }

    fn store(&mut self) -> u64 {
        // Not from the newest few: a call stores all its blocks before any leaves.
        let (newest, among) = (64, self.remember / 2);
        if self.random.bits() % 10 >= 3 || self.gone.len() <= newest + among {
            return self.random.bits();
        }
        loop {
            let at = self.gone.len() - 1 - newest - self.random.bits() as usize % among;
            if let Some(block) = self.gone[at].take() {
                self.refilled += 1;
                return block;
            }
        }
    }

    /// The next steps: what is stored, and what is evicted.
    fn next(&mut self, n: usize) -> (Vec<u64>, Vec<u64>) {
        self.taken += n;
        let step = |_| {
            let block = self.store();
            self.there.push_back(block);
            let oldest = self.there.pop_front().unwrap_or_default();
            self.gone.push_back(Some(oldest));
            if self.gone.len() > self.remember {
                self.gone.pop_front();
            }
            (block, oldest)
        };
        (0..n).map(step).unzip()
    }
}

trait Follow {
    fn store(&mut self, t: i64, blocks: &[u64]);
    fn evict(&mut self, t: i64, blocks: &[u64]);
    fn sums(&self) -> Sums;
}

struct Ours {
    tracker: Tracker,
    totals: Totals,
}

impl Follow for Ours {
    fn store(&mut self, t: i64, blocks: &[u64]) {
        self.tracker.store(t, blocks, Some(Tier::Gpu), 0, &mut self.totals);
    }

    fn evict(&mut self, t: i64, blocks: &[u64]) {
        self.tracker.evict(t, blocks, Some(Tier::Gpu), 0, &mut self.totals);
    }

    fn sums(&self) -> Sums {
        let (count, sum) = (|counter| self.totals.count(counter), |span| self.totals.spans[span as usize].sum_ns());
        Sums {
            stored: count(Counter::Stored),
            evicted: count(Counter::Evicted),
            refilled: count(Counter::Refilled),
            forgotten: count(Counter::Forgotten),
            lifetime_ns: sum(Span::Lifetime),
            gap_ns: sum(Span::Gap),
        }
    }
}

/// Maps of what is resident and of what was evicted, and a queue of the latter, in which what was stored again stays.
#[derive(Default)]
struct Maps {
    remember: usize,
    resident: HashMap<u64, i64>,
    evicted: HashMap<u64, (i64, u64)>,
    queue: VecDeque<(u64, u64)>,
    next: u64,
    sums: Sums,
}

impl Follow for Maps {
    fn store(&mut self, t: i64, blocks: &[u64]) {
        for &block in blocks {
            if self.resident.insert(block, t).is_none() {
                self.sums.stored += 1;
                if let Some((evicted, _)) = self.evicted.remove(&block) {
                    self.sums.refilled += 1;
                    self.sums.gap_ns += (t - evicted) as u128;
                }
            }
        }
    }

    fn evict(&mut self, t: i64, blocks: &[u64]) {
        for &block in blocks {
            let Some(stored) = self.resident.remove(&block) else { continue };
            self.sums.evicted += 1;
            self.sums.lifetime_ns += (t - stored) as u128;
            self.next += 1;
            self.evicted.insert(block, (t, self.next));
            self.queue.push_back((block, self.next));
            while self.evicted.len() > self.remember {
                let Some((oldest, number)) = self.queue.pop_front() else { break };
                if self.evicted.get(&oldest).is_some_and(|&(_, last)| last == number) {
                    self.evicted.remove(&oldest);
                    self.sums.forgotten += 1;
                }
            }
        }
    }

    fn sums(&self) -> Sums {
        self.sums
    }
}

/// Takes the next steps, so many blocks a call; returns how long that took.
fn take(follow: &mut impl Follow, steps: &mut Steps, n: usize, each: usize) -> Duration {
    let mut t = 1_000_000 * steps.taken as i64;
    let (stores, evicts) = steps.next(n);
    let start = Instant::now();
    for (stores, evicts) in stores.chunks(each).zip(evicts.chunks(each)) {
        t += 1_000;
        follow.store(t, stores);
        follow.evict(t, evicts);
    }
    start.elapsed()
}

fn tracker(criterion: &mut Criterion) {
    let (remember, resident) = (size(1_000_000, 20_000), size(100_000, 4_000));
    let measured = size(200_000, 4_000);
    let settings = Settings { remember: remember as u32, ttl_ns: i64::MAX, ..Settings::default() };
    let mut ours = Ours { tracker: Tracker::reserved(settings).unwrap(), totals: Totals::new(6).unwrap() };
    let mut maps = Maps { remember, ..Maps::default() };
    let steps = Steps::new(resident, remember);
    let (resident, warm_up): (Vec<u64>, _) = (steps.there.iter().copied().collect(), 2 * remember);
    let warm = |follow: &mut dyn FnMut(&mut Steps)| {
        let mut steps = steps.clone();
        follow(&mut steps);
        steps
    };
    let mut our_steps = warm(&mut |steps| {
        ours.store(0, &resident);
        take(&mut ours, steps, warm_up, 16);
    });
    let mut map_steps = warm(&mut |steps| {
        maps.store(0, &resident);
        take(&mut maps, steps, warm_up, 16);
    });
    // Both have seen the same, in every figure; later on only what the steps themselves know is compared.
    assert_eq!(ours.sums(), maps.sums());
    assert_eq!((ours.tracker.remembered(), maps.evicted.len()), (remember as u64, remember));
    assert!(ours.sums().forgotten > 0);
    let mut group = criterion.benchmark_group("tracker");
    group.throughput(Throughput::Elements(2 * measured as u64));
    for each in [1, 16, 64] {
        group.bench_function(format!("tokenpulse/{each} a call"), |bencher| {
            bencher.iter_custom(|n| (0..n).map(|_| measure(&mut ours, &mut our_steps, measured, each)).sum());
        });
        group.bench_function(format!("peer/HashMap + VecDeque/{each} a call"), |bencher| {
            bencher.iter_custom(|n| (0..n).map(|_| measure(&mut maps, &mut map_steps, measured, each)).sum());
        });
    }
    group.finish();
}

fn measure(follow: &mut impl Follow, steps: &mut Steps, n: usize, each: usize) -> Duration {
    let (before, refilled) = (follow.sums(), steps.refilled);
    let time = take(follow, steps, n, each);
    let after = follow.sums();
    let again = steps.refilled - refilled;
    assert_eq!((after.stored - before.stored, after.evicted - before.evicted), (n as u64, n as u64));
    assert_eq!(after.refilled - before.refilled, again);
    assert!((0.25..0.35).contains(&(again as f64 / n as f64)));
    time
}

/// A published trace of conversations (Mooncake): 288,500 references to 182,790 blocks of 512 tokens.
fn trace() -> Trace {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/mooncake_conversation.jsonl.gz");
    let log = read_kv(vec![Source::Path(path.to_owned())], &Settings::default(), |_, _| true).unwrap();
    match log.content {
        KvContent::Trace(trace) => trace,
        KvContent::Events(_) => panic!("{path} is no trace"),
    }
}

/// Hits, evictions and refills of an LRU cache: a map from block to last use, and one back.
fn plain_lru(trace: &Trace, blocks: usize) -> (u64, u64, u64) {
    let (mut used, mut by_use): (HashMap<u32, usize>, BTreeMap<usize, u32>) = (HashMap::new(), BTreeMap::new());
    let mut gone: HashSet<u32> = HashSet::new();
    let (mut hits, mut evicted, mut refilled) = (0, 0, 0);
    for (now, &block) in trace.references().iter().enumerate() {
        match used.insert(block, now) {
            Some(last) => {
                hits += 1;
                by_use.remove(&last);
            }
            None => refilled += u64::from(gone.remove(&block)),
        }
        by_use.insert(now, block);
        if by_use.len() > blocks
            && let Some((_, oldest)) = by_use.pop_first()
        {
            used.remove(&oldest);
            gone.insert(oldest);
            evicted += 1;
        }
    }
    (hits, evicted, refilled)
}

/// Hits by size: stack distances with a Fenwick tree that has a node for each reference.
fn plain_curve(trace: &Trace) -> Vec<u64> {
    let references = trace.references();
    let mut tree = vec![0_i64; references.len() + 1];
    let add = |tree: &mut Vec<i64>, at: usize, n: i64| {
        let mut at = at + 1;
        while at < tree.len() {
            tree[at] += n;
            at += at & at.wrapping_neg();
        }
    };
    let up_to = |tree: &Vec<i64>, at: usize| {
        let (mut at, mut n) = (at + 1, 0);
        while at > 0 {
            n += tree[at];
            at &= at - 1;
        }
        n
    };
    let mut last: HashMap<u32, usize> = HashMap::new();
    let mut hits = vec![0_u64; trace.distinct() as usize + 1];
    for (now, &block) in references.iter().enumerate() {
        if let Some(before) = last.insert(block, now) {
            hits[(last.len() as i64 - up_to(&tree, before) + 1) as usize] += 1;
            add(&mut tree, before, -1);
        }
        add(&mut tree, now, 1);
    }
    hits.iter()
        .scan(0, |sum, &n| {
            *sum += n;
            Some(*sum)
        })
        .collect()
}

fn traces(criterion: &mut Criterion) {
    let trace = trace();
    let references = trace.references().len() as u64;
    let mut group = criterion.benchmark_group("replay");
    group.throughput(Throughput::Elements(references));
    let blocks = 10_000;
    let expected = plain_lru(&trace, blocks);
    for policy in Policy::ALL {
        let replay = Replay { blocks: Some(blocks as u64), policy, ..Replay::default() };
        group.bench_function(format!("tokenpulse/{}", policy.name()), |bencher| {
            bencher.iter(|| {
                let replayed = replay.run(&trace).unwrap();
                let counted = |counter| replayed.totals.count(counter);
                let found = (replayed.hits, counted(Counter::Evicted), counted(Counter::Refilled));
                assert!(policy != Policy::Lru || found == expected);
                replayed
            });
        });
    }
    group.bench_function("peer/HashMap + BTreeMap/lru", |bencher| {
        bencher.iter(|| assert_eq!(plain_lru(&trace, blocks), expected));
    });
    group.finish();

    let mut group = criterion.benchmark_group("curve");
    group.throughput(Throughput::Elements(references));
    let expected = plain_curve(&trace);
    let exact = Curve::exact(&trace);
    for (blocks, &hits) in expected.iter().enumerate().skip(1) {
        assert_eq!(exact.at(blocks as u64).unwrap().hits, hits as f64);
    }
    let everything = expected[expected.len() - 1] as f64;
    group.bench_function("tokenpulse/exact", |bencher| {
        bencher.iter(|| {
            let curve = Curve::exact(&trace);
            assert_eq!(curve.at(u64::from(trace.distinct())).unwrap().hits, everything);
            curve
        });
    });
    for rate in [0.1, 0.01] {
        group.bench_function(format!("tokenpulse/sampled {rate}"), |bencher| {
            bencher.iter(|| {
                let curve = Curve::sampled(&trace, rate, 1).unwrap();
                let (exact, estimate) = (exact.at(20_000).unwrap().hits, curve.at(20_000).unwrap().hits);
                assert!((exact - estimate).abs() < 0.1 * references as f64);
                curve
            });
        });
    }
    group.bench_function("peer/a node a reference", |bencher| {
        bencher.iter(|| assert_eq!(plain_curve(&trace).last(), expected.last()));
    });
    group.finish();
}

/// A store of a few blocks, and evictions one by one: what an engine's cache writes when it is full.
fn kv_lines(bytes: usize) -> String {
    let mut random = Random(3);
    let mut text = String::with_capacity(bytes + (1 << 16));
    let mut t = 1_000_000_000_000_u64;
    while text.len() < bytes {
        t += random.bits() % 5_000_000;
        let blocks: Vec<u64> = (0..=random.bits() % 8).map(|_| random.bits() % (1 << 17)).map(mixed).collect();
        writeln!(text, r#"{{"t_ns":{t},"ev":"kv_store","hashes":{blocks:?},"tier":"gpu","group":0}}"#).unwrap();
        for block in blocks {
            writeln!(text, r#"{{"t_ns":{t},"ev":"kv_evict","hashes":[{block}],"tier":"gpu","group":0}}"#).unwrap();
        }
    }
    text
}

fn mixed(block: u64) -> u64 {
    Random(block).bits()
}

/// Batches of vLLM with the token ids of each block.
fn batches(bytes: usize) -> String {
    let mut random = Random(5);
    let mut text = String::with_capacity(bytes + (1 << 16));
    let mut seq = 0;
    while text.len() < bytes {
        let tokens: Vec<u64> = (0..128).map(|_| random.bits() % 128_000).collect();
        let blocks: Vec<u64> = (0..8).map(|_| random.bits()).collect();
        let stored = format!(r#""type": "BlockStored", "block_hashes": {blocks:?}, "token_ids": {tokens:?}"#);
        let removed = format!(r#""type": "BlockRemoved", "block_hashes": [{}], "medium": "GPU""#, blocks[0]);
        let ts = 1_700_000_000.0 + f64::from(seq) / 100.0;
        writeln!(
            text,
            r#"{{"topic": "kv", "seq": {seq}, "batch": [{ts}, [{{{stored}, "medium": "GPU"}}, {{{removed}}}], 0]}}"#
        )
        .unwrap();
        seq += 1;
    }
    text
}

/// Events of blocks that a log has.
fn ours(log: &str) -> u64 {
    let sources = vec![Source::Bytes("log".to_owned(), log.as_bytes().to_vec())];
    let log = read_kv(sources, &Settings::default(), |_, _| true).unwrap();
    let KvContent::Events(events) = log.content else { panic!("a trace") };
    let counted = [Counter::Stored, Counter::Repeated, Counter::Evicted, Counter::Released];
    counted.into_iter().map(|counter| events.totals.count(counter)).sum::<u64>()
        + events.totals.refused.iter().sum::<u64>()
}

#[derive(Deserialize)]
struct EventLine<'a> {
    #[serde(borrow)]
    ev: &'a str,
    hashes: Vec<u64>,
}

fn peer_events(log: &str) -> u64 {
    let line = |line| -> EventLine<'_> { serde_json::from_str(line).unwrap() };
    let known = |event: &EventLine<'_>| ["kv_store", "kv_evict"].contains(&event.ev);
    log.lines().map(line).filter(known).map(|event| event.hashes.len() as u64).sum()
}

#[derive(Deserialize)]
struct BatchLine<'a> {
    #[serde(borrow)]
    batch: (f64, Vec<BatchEvent<'a>>, Option<i64>),
}

#[derive(Deserialize)]
struct BatchEvent<'a> {
    #[serde(borrow, rename = "type")]
    name: &'a str,
    block_hashes: Vec<u64>,
}

fn peer_batches(log: &str) -> u64 {
    let line = |line| -> BatchLine<'_> { serde_json::from_str(line).unwrap() };
    let events = log.lines().flat_map(|text| line(text).batch.1);
    events.filter(|event| event.name.starts_with("Block")).map(|event| event.block_hashes.len() as u64).sum()
}

/// The report's reader, which passes over such lines.
fn report(log: &str) -> u64 {
    let settings = tokenpulse_core::tally::Settings {
        scale: 6,
        itl_rule: ItlRule::Token,
        slos: Arc::from([]),
        by: Vec::new(),
        timeline_ns: None,
        ..tokenpulse_core::tally::Settings::default()
    };
    let sources = vec![Source::Bytes("log".to_owned(), log.as_bytes().to_vec())];
    reduce(sources, &settings, Reading { threads: 1, ..Reading::default() }, |_, _| true).unwrap().inputs[0].lines
}

fn reader(criterion: &mut Criterion) {
    let bytes = size(40_000_000, 500_000);
    let mut compare = |name: &str, log: &str, peer: fn(&str) -> u64, report: Option<fn(&str) -> u64>| {
        let expected = peer(log);
        assert!(expected > 1_000);
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(log.len() as u64));
        group.bench_function("tokenpulse", |bencher| bencher.iter(|| assert_eq!(ours(log), expected)));
        group.bench_function("peer/serde_json", |bencher| bencher.iter(|| assert_eq!(peer(log), expected)));
        if let Some(report) = report {
            let lines = log.lines().count() as u64;
            group.bench_function("the report's reader", |bencher| bencher.iter(|| assert_eq!(report(log), lines)));
        }
        group.finish();
    };
    compare("kv lines", &kv_lines(bytes), peer_events, Some(report));
    compare("kv batches", &batches(bytes), peer_batches, None);
}

fn main() {
    let mut criterion = criterion();
    tracker(&mut criterion);
    traces(&mut criterion);
    reader(&mut criterion);
    criterion.final_summary();
}
