//! The meter: steps with a shared gap and with gaps of their own, single events, whole lives of requests, many in
//! flight, and reading.

mod common;
mod engines;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::{Random, criterion, size};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use engines::{Engine, Found, KEPT, Limits, MISSED, Metered, NO_SETS, Peer};
use tokenpulse_core::meter::{Scope, Snapshot};
use tokenpulse_core::request::Metric;

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;
const BEGIN: i64 = 1_000 * SECOND;
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];
const STEPS_OF_A_LIFE: usize = 200;

/// Times between steps: lognormal, median 20 ms, sigma 0.3.
struct Gaps {
    drawn: Vec<i64>,
    used: usize,
}

impl Gaps {
    fn new() -> Self {
        let mut random = Random(1);
        // In (0, 1]; then Box and Muller's way to a normal distribution.
        let mut unit = || ((random.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        let mut normal = || (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
        Self { drawn: (0..1 << 12).map(|_| (2e7 * (0.3 * normal()).exp()) as i64).collect(), used: 0 }
    }

    #[inline]
    fn next(&mut self) -> i64 {
        self.used += 1;
        self.drawn[self.used % self.drawn.len()]
    }
}

fn shuffle(handles: &mut [i64]) {
    let mut random = Random(2);
    for i in (1..handles.len()).rev() {
        handles.swap(i, (random.bits() % (i as u64 + 1)) as usize);
    }
}

/// Requests that decode together, all with a first token.
struct Batch<E> {
    engine: E,
    handles: Vec<i64>,
    began: i64,
    t: i64,
    gaps: Gaps,
}

impl<E: Engine> Batch<E> {
    fn of(requests: usize, classes: usize, limits: &Limits) -> Self {
        let mut engine = E::of(requests, classes, limits);
        let handles: Vec<i64> = (0..requests).map(|request| engine.arrive(BEGIN, request * 7)).collect();
        engine.schedule(BEGIN + MS, &handles);
        let began = BEGIN + 90 * MS;
        engine.step(began, &handles);
        Self { engine, handles, began, t: began, gaps: Gaps::new() }
    }

    #[inline]
    fn step(&mut self) {
        self.t += self.gaps.next();
        self.engine.step(self.t, black_box(&self.handles));
    }

    /// After so many tokens of each, of which the last came to all at once.
    fn check(&self, tokens_of_each: u64) {
        let n = self.handles.len() as u64;
        let expected = Found {
            tokens: n * (tokens_of_each + 1),
            gaps: n * tokens_of_each,
            sum_of_gaps: u128::from(n) * (self.t - self.began) as u128,
            ended: 0,
        };
        assert_eq!(self.engine.found(), expected);
    }
}

type Group<'a> = BenchmarkGroup<'a, WallTime>;

/// Every request's last token came with the step before.
fn shared<E: Engine>(group: &mut Group<'_>, name: &str, requests: usize, classes: usize, limits: &Limits) {
    let mut batch = Batch::<E>::of(requests, classes, limits);
    let mut rounds = 0;
    group.throughput(Throughput::Elements(requests as u64));
    group.bench_function(BenchmarkId::new(name, requests), |bencher| {
        bencher.iter(|| {
            rounds += 1;
            batch.step();
        });
    });
    batch.check(rounds);
}

/// Every request's last token came at a time of its own: so they are set apart before each round, which is not timed.
/// A round holds one reading of the clock.
fn spread<E: Engine>(group: &mut Group<'_>, name: &str, requests: usize, classes: usize, limits: &Limits) {
    let mut batch = Batch::<E>::of(requests, classes, limits);
    let mut rounds = 0;
    group.throughput(Throughput::Elements(requests as u64));
    group.bench_function(BenchmarkId::new(name, requests), |bencher| {
        bencher.iter_custom(|iterations| {
            let mut timed = Duration::ZERO;
            for _ in 0..iterations {
                for at in 0..requests {
                    batch.t += 20 * MS / requests as i64 + (at % 7) as i64;
                    batch.engine.step(batch.t, &batch.handles[at..=at]);
                }
                let start = Instant::now();
                batch.step();
                timed += start.elapsed();
                rounds += 1;
            }
            timed
        });
    });
    batch.check(2 * rounds);
}

fn steps(criterion: &mut Criterion) {
    let settings = [
        (1, "no SLO sets", NO_SETS),
        (16, "no SLO sets", NO_SETS),
        (1, "4 SLO sets", KEPT),
        (16, "4 SLO sets", KEPT),
        (16, "4 SLO sets, missed", MISSED),
    ];
    let mut group = criterion.benchmark_group("step, shared gap");
    for requests in [256, 4096] {
        for (classes, sets, limits) in settings {
            shared::<Metered>(&mut group, &format!("{classes} classes, {sets}"), requests, classes, limits);
        }
        for classes in [1, 16] {
            shared::<Peer>(&mut group, &format!("peer/{classes} classes"), requests, classes, NO_SETS);
        }
    }
    group.finish();
    let mut group = criterion.benchmark_group("step, gaps of their own");
    for requests in [256, 4096] {
        for (classes, sets, limits) in settings {
            spread::<Metered>(&mut group, &format!("{classes} classes, {sets}"), requests, classes, limits);
        }
        for classes in [1, 16] {
            spread::<Peer>(&mut group, &format!("peer/{classes} classes"), requests, classes, NO_SETS);
        }
    }
    group.finish();
}

/// Columns of a request and a time: each token comes alone, as from engines that tell of single events.
fn columns<E: Engine>(group: &mut Group<'_>, name: &str, limits: &Limits, a_second: u64) {
    let events = size(1 << 16, 1 << 12);
    let mut random = Random(3);
    let mut batch = Batch::<E>::of(256, 16, limits);
    let mut handles: Vec<i64> = batch.handles.iter().copied().cycle().take(events).collect();
    handles.chunks_mut(256).for_each(shuffle);
    let mut t = 0;
    let mut later = || {
        // Twice the mean, so that the mean is what is asked for.
        t += (random.bits() % (2_000_000_000 / a_second)) as i64;
        t
    };
    let times: Vec<i64> = handles.iter().map(|_| later()).collect();
    let mut rounds = 0;
    let mut column = vec![0; events];
    group.throughput(Throughput::Elements(events as u64));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let begin = batch.t + 1;
            column.iter_mut().zip(&times).for_each(|(column, at)| *column = begin + at);
            batch.engine.tokens(black_box(&column), black_box(&handles));
            batch.t = begin + t;
            rounds += 1;
        });
    });
    // A last step for all, so that every request's gaps end at one time.
    batch.step();
    batch.check(rounds * events as u64 / 256 + 1);
}

fn single_events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("columns of request and time");
    for (rate, a_second) in [("a million tokens a second", 1_000_000), ("13,000 tokens a second", 13_000)] {
        columns::<Metered>(&mut group, &format!("no SLO sets, {rate}"), NO_SETS, a_second);
        columns::<Metered>(&mut group, &format!("4 SLO sets, {rate}"), KEPT, a_second);
        columns::<Peer>(&mut group, &format!("peer, {rate}"), NO_SETS, a_second);
    }
    group.finish();
}

/// Requests arrive, are scheduled, decode together and end, one after another.
fn life<E: Engine>(group: &mut Group<'_>, name: &str, limits: &Limits) {
    let requests = 256;
    let mut engine = E::of(requests, 16, limits);
    let (mut t, mut gaps, mut handles) = (BEGIN, Gaps::new(), vec![0; requests]);
    let mut expected = Found::default();
    group.throughput(Throughput::Elements((requests * STEPS_OF_A_LIFE) as u64));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            for (request, handle) in handles.iter_mut().enumerate() {
                t += 1_000;
                *handle = engine.arrive(t, request);
            }
            t += MS;
            engine.schedule(t, &handles);
            let before = t;
            let mut first = t;
            for step in 0..STEPS_OF_A_LIFE {
                t += gaps.next();
                engine.step(t, black_box(&handles));
                first = if step == 0 { t } else { first };
            }
            handles.iter().for_each(|&handle| engine.end(t, handle));
            assert!(first > before);
            expected.tokens += (requests * STEPS_OF_A_LIFE) as u64;
            expected.gaps += (requests * (STEPS_OF_A_LIFE - 1)) as u64;
            expected.sum_of_gaps += requests as u128 * (t - first) as u128;
            expected.ended += requests as u64;
        });
    });
    assert_eq!(engine.found(), expected);
}

fn lives(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("whole lives of 200 tokens");
    life::<Metered>(&mut group, "no SLO sets", NO_SETS);
    life::<Metered>(&mut group, "4 SLO sets", KEPT);
    life::<Metered>(&mut group, "4 SLO sets, missed", MISSED);
    life::<Peer>(&mut group, "peer", NO_SETS);
    group.finish();
}

/// Many in flight, in blocks and in no order. Time goes by slowly: what is asked is what finding requests costs, not
/// what the ends of panes do.
fn in_flight<E: Engine>(group: &mut Group<'_>, name: &str, requests: usize) {
    let mut batch = Batch::<E>::of(requests, 1, NO_SETS);
    shuffle(&mut batch.handles);
    let block = requests.min(256);
    let blocks = requests / block;
    let mut rounds = 0;
    group.throughput(Throughput::Elements(block as u64));
    group.bench_function(BenchmarkId::new(name, requests), |bencher| {
        bencher.iter(|| {
            let at = rounds % blocks * block;
            batch.t += 1_000;
            batch.engine.step(batch.t, black_box(&batch.handles[at..at + block]));
            rounds += 1;
        });
    });
    let gaps = (rounds * block) as u64;
    // The gaps of a block come to the time of its last round, which is one of the last so many as there are blocks.
    let last_rounds = rounds.saturating_sub(blocks)..rounds;
    let sum_of_gaps = last_rounds.map(|round| ((round + 1) * 1_000 * block) as u128).sum();
    let expected = Found { tokens: requests as u64 + gaps, gaps, sum_of_gaps, ended: 0 };
    assert_eq!(batch.engine.found(), expected);
}

fn flights(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("requests in flight");
    let most = size(1_000_000, 100_000);
    for requests in [10, 1_000, 100_000, 1_000_000].into_iter().filter(|&requests| requests <= most) {
        in_flight::<Metered>(&mut group, "meter", requests);
        in_flight::<Peer>(&mut group, "peer", requests);
    }
    group.finish();
}

/// Serves up to 64 requests at a time, each of a length of its own, for some time of the engine's clock.
fn serve<E: Engine>(engine: &mut E, span: i64) -> i64 {
    let mut random = Random(4);
    let (mut t, mut arrived, mut gaps) = (BEGIN, 0, Gaps::new());
    let mut running: Vec<(i64, u64)> = Vec::new();
    let (mut handles, mut steps) = (Vec::new(), 0);
    while t < BEGIN + span {
        while running.len() < 64 {
            let handle = engine.arrive(t, arrived);
            let scheduled = t + 1 + (random.bits() % MS as u64) as i64;
            engine.schedule(scheduled, &[handle]);
            engine.prefill(scheduled + (random.bits() % MS as u64) as i64, handle);
            running.push((handle, 1 + random.bits() % 400));
            arrived += 1;
        }
        t += gaps.next() + 2 * MS;
        steps += 1;
        handles.clear();
        handles.extend(running.iter().map(|&(handle, _)| handle));
        engine.step(t, &handles);
        if steps % 64 == 0 {
            engine.stall(t, t + MS, handles[0]);
        }
        running.retain_mut(|(handle, left)| {
            *left -= 1;
            if *left == 0 {
                engine.end(t + MS, *handle);
            }
            *left > 0
        });
    }
    t + MS
}

/// Of every scope, the ITL of all classes must be about the steps' own.
fn check_quantiles(snapshot: &Snapshot, estimates: &[f64]) {
    let sketches = estimates.chunks(QUANTILES.len());
    assert_eq!(sketches.len(), 5 * 17 * Metric::ALL.len());
    for scope in sketches.collect::<Vec<_>>().chunks(17 * Metric::ALL.len()) {
        let itl = scope[Metric::Itl as usize];
        assert!(itl.is_sorted() && (0.019..0.023).contains(&itl[0]), "{itl:?}");
    }
    let live = |scope: &Scope| scope.block.latency.iter().all(|sketch| sketch.count() > 0);
    assert!(snapshot.classes.len() == 16 && snapshot.all.scopes.iter().all(live));
}

fn snapshot(criterion: &mut Criterion) {
    let span = size(7_200, 60) as i64 * SECOND;
    let mut metered = Metered::of(64, 16, NO_SETS);
    let t = serve(&mut metered, span);
    let mut peer = Peer::of(64, 16, NO_SETS);
    serve(&mut peer, span);
    let found = metered.found();
    assert_eq!(found, peer.found());
    let reader = metered.meter.reader();
    let mut group = criterion.benchmark_group("snapshot of 16 classes and 4 windows");
    for (name, now) in [("now", None), ("0.4 s later", Some(t + 400 * MS)), ("10 s later", Some(t + 10 * SECOND))] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let snapshot = reader.snapshot(black_box(now));
                assert_eq!(snapshot.all.scopes[0].block.output_tokens, found.tokens);
            });
        });
    }
    group.bench_function("with five quantiles of all", |bencher| {
        bencher.iter(|| {
            let snapshot = reader.snapshot(None);
            check_quantiles(&snapshot, &snapshot.quantiles(black_box(&QUANTILES)).unwrap());
        });
    });
    let now = reader.snapshot(None);
    group.bench_function("five quantiles of all", |bencher| {
        bencher.iter(|| check_quantiles(&now, &black_box(&now).quantiles(black_box(&QUANTILES)).unwrap()));
    });
    group.bench_function("peer/totals with five quantiles", |bencher| {
        bencher.iter(|| {
            let classes = black_box(&peer.classes).clone();
            assert_eq!(classes.iter().map(|class| class.tokens).sum::<u64>(), found.tokens);
            for class in &classes {
                let of_all = [&class.ttft, &class.queue, &class.itl, &class.tpot, &class.e2e];
                let [.., itl, _, _] = of_all.map(|histogram| QUANTILES.map(|q| histogram.quantile(q)));
                assert!(itl.is_sorted() && (0.015..0.026).contains(&itl[0]), "{itl:?}");
            }
        });
    });
    group.finish();
}

fn main() {
    let mut criterion = criterion();
    steps(&mut criterion);
    single_events(&mut criterion);
    lives(&mut criterion);
    flights(&mut criterion);
    snapshot(&mut criterion);
    criterion.final_summary();
}
