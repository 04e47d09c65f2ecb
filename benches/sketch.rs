//! The sketch: recording one value and many, merging, quantiles and bytes.
//!
//! The peer is a plain histogram of logarithmic buckets that takes `ln()` of each value: no exact index, no exact
//! sum, no checks of the range.

mod common;

use std::hint::black_box;

use common::{Random, criterion, size};
use criterion::{Criterion, Throughput};
use tokenpulse_core::sketch::{Dense, Sketch, Unit};

const SCALE: u8 = 6;
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];

/// Logarithmic buckets as one would first write them.
#[derive(Clone)]
struct LnBuckets {
    counts: Vec<u64>,
    per_ln: f64,
    n: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl LnBuckets {
    fn new() -> Self {
        let per_octave = f64::from(1_u32 << SCALE);
        Self {
            counts: vec![0; 32 * (1 << SCALE) + 2],
            per_ln: per_octave / std::f64::consts::LN_2,
            n: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: 0.0,
        }
    }

    fn record(&mut self, seconds: f64) {
        let bucket = (seconds.ln() * self.per_ln).ceil() as i64 + 20 * (1 << SCALE);
        let last = self.counts.len() as i64 - 1;
        self.counts[bucket.clamp(0, last) as usize] += 1;
        self.n += 1;
        self.sum += seconds;
        self.min = self.min.min(seconds);
        self.max = self.max.max(seconds);
    }

    fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.n += other.n;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    fn quantile(&self, q: f64) -> f64 {
        let rank = (q * self.n as f64).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return ((bucket as f64 - 0.5) / self.per_ln).exp() / f64::from(1 << 20);
            }
        }
        f64::NAN
    }
}

/// Latencies in nanoseconds: lognormal, median 50 ms, sigma 0.6.
fn latencies(n: usize) -> Vec<i64> {
    let mut random = Random(1);
    // In (0, 1]; then Box and Muller's way to a normal distribution.
    let mut unit = || ((random.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    let mut normal = || (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
    (0..n).map(|_| (5e7 * (0.6 * normal()).exp()) as i64).collect()
}

fn sketch_of(values: &[i64]) -> Sketch {
    let mut sketch = Sketch::<Dense>::new(SCALE, None).unwrap();
    sketch.record_many(values, Unit::Nanoseconds);
    sketch
}

fn record_many(criterion: &mut Criterion) {
    let ns = latencies(size(10_000_000, 100_000));
    let seconds: Vec<f64> = ns.iter().map(|&ns| ns as f64 / 1e9).collect();
    let sum_ns: u128 = ns.iter().map(|&ns| ns as u128).sum();
    let mut group = criterion.benchmark_group("record_many");
    group.throughput(Throughput::Elements(ns.len() as u64));
    group.bench_function("float64", |bencher| {
        bencher.iter(|| {
            let mut sketch = Sketch::<Dense>::new(SCALE, None).unwrap();
            sketch.record_many(black_box(&seconds), Unit::Seconds);
            assert_eq!((sketch.count(), sketch.sum_ns()), (ns.len() as u64, sum_ns));
        });
    });
    group.bench_function("int64", |bencher| {
        bencher.iter(|| {
            let sketch = sketch_of(black_box(&ns));
            assert_eq!((sketch.count(), sketch.sum_ns()), (ns.len() as u64, sum_ns));
        });
    });
    group.bench_function("peer/ln", |bencher| {
        bencher.iter(|| {
            let mut peer = LnBuckets::new();
            for &value in black_box(&seconds) {
                peer.record(value);
            }
            assert_eq!(peer.counts.iter().sum::<u64>(), ns.len() as u64);
        });
    });
    group.finish();
}

fn record(criterion: &mut Criterion) {
    let ns = latencies(1 << 12);
    let seconds: Vec<f64> = ns.iter().map(|&ns| ns as f64 / 1e9).collect();
    let n = ns.len() as u64;
    let mut group = criterion.benchmark_group("record");
    group.throughput(Throughput::Elements(n));
    let mut sketch = Sketch::<Dense>::new(SCALE, None).unwrap();
    let mut rounds = 0;
    group.bench_function("float64", |bencher| {
        bencher.iter(|| {
            rounds += 1;
            for &value in &seconds {
                sketch.record(black_box(value), Unit::Seconds);
            }
        });
    });
    assert_eq!(sketch.count(), rounds * n);
    let mut sketch = Sketch::<Dense>::new(SCALE, None).unwrap();
    let mut rounds = 0;
    group.bench_function("int64", |bencher| {
        bencher.iter(|| {
            rounds += 1;
            for &value in &ns {
                sketch.record_ns(black_box(value));
            }
        });
    });
    assert_eq!(sketch.count(), rounds * n);
    let mut peer = LnBuckets::new();
    let mut rounds = 0;
    group.bench_function("peer/ln", |bencher| {
        bencher.iter(|| {
            rounds += 1;
            for &value in &seconds {
                peer.record(black_box(value));
            }
        });
    });
    assert_eq!(peer.counts.iter().sum::<u64>(), rounds * n);
    group.finish();
}

fn merge(criterion: &mut Criterion) {
    let ns = latencies(size(1_000_000, 100_000));
    let n = ns.len() as u64;
    let other = sketch_of(&ns);
    let mut group = criterion.benchmark_group("merge");
    let mut sketch = sketch_of(&[]);
    let mut rounds = 0;
    group.bench_function("sketch", |bencher| {
        bencher.iter(|| {
            rounds += 1;
            sketch.merge(black_box(&other)).unwrap();
        });
    });
    assert_eq!((sketch.count(), sketch.sum_ns()), (rounds * n, u128::from(rounds) * other.sum_ns()));

    let mut plain = LnBuckets::new();
    ns.iter().for_each(|&ns| plain.record(ns as f64 / 1e9));
    let mut peer = LnBuckets::new();
    let mut rounds = 0;
    group.bench_function("peer/ln", |bencher| {
        bencher.iter(|| {
            rounds += 1;
            peer.merge(black_box(&plain));
        });
    });
    assert_eq!(peer.n, rounds * n);
    group.finish();
}

fn quantiles(criterion: &mut Criterion) {
    let ns = latencies(size(1_000_000, 100_000));
    let mut sorted = ns.clone();
    sorted.sort_unstable();
    let median = sorted[sorted.len() / 2] as f64 / 1e9;
    let mut group = criterion.benchmark_group("five quantiles after a record");
    let mut sketch = sketch_of(&ns);
    group.bench_function("sketch", |bencher| {
        bencher.iter(|| {
            sketch.record_ns(black_box(sorted[0]));
            sketch.record_ns(black_box(sorted[sorted.len() - 1]));
            let found = sketch.quantiles(black_box(&QUANTILES)).unwrap();
            assert!(found.is_sorted() && (found[0] / median - 1.0).abs() < 0.02, "{found:?}");
        });
    });
    let mut peer = LnBuckets::new();
    ns.iter().for_each(|&ns| peer.record(ns as f64 / 1e9));
    group.bench_function("peer/ln", |bencher| {
        bencher.iter(|| {
            peer.record(black_box(sorted[0] as f64 / 1e9));
            peer.record(black_box(sorted[sorted.len() - 1] as f64 / 1e9));
            let found = QUANTILES.map(|q| peer.quantile(black_box(q)));
            assert!(found.is_sorted() && (found[0] / median - 1.0).abs() < 0.02, "{found:?}");
        });
    });
    group.finish();
}

fn bytes(criterion: &mut Criterion) {
    let sketch = sketch_of(&latencies(1_000_000));
    let encoded = sketch.to_bytes();
    assert!(encoded.len() <= 1_100, "{} bytes", encoded.len());
    let mut group = criterion.benchmark_group("bytes");
    group.bench_function("to_bytes", |bencher| {
        bencher.iter(|| assert_eq!(black_box(&sketch).to_bytes().len(), encoded.len()));
    });
    group.bench_function("from_bytes", |bencher| {
        bencher.iter(|| {
            let decoded = Sketch::<Dense>::from_bytes(black_box(&encoded)).unwrap();
            assert_eq!(decoded.sum_ns(), sketch.sum_ns());
        });
    });
    group.finish();
}

fn main() {
    let mut criterion = criterion();
    record_many(&mut criterion);
    record(&mut criterion);
    merge(&mut criterion);
    quantiles(&mut criterion);
    bytes(&mut criterion);
    criterion.final_summary();
}
