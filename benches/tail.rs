//! The slowest steps of a million, with and without a thread that takes a hundred snapshots a second.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokenpulse_core::meter::{Meter, Origin, Settings};

const REQUESTS: usize = 256;
const CLASSES: usize = 16;
const MS: i64 = 1_000_000;

/// Nanoseconds of each step, ascending, and how many snapshots were taken meanwhile.
fn steps(n: usize, is_read: bool) -> (Vec<u128>, usize) {
    let meter = Meter::new(Settings::default(), Origin::default()).expect("these are the default settings");
    let class = |i: usize| meter.classify(None, &[("tenant", &(i % CLASSES).to_string())]).expect("a label");
    let mut t = 1000 * MS;
    let handles: Vec<i64> = (0..REQUESTS).map(|i| meter.arrive(t, 100, 0, class(i))).collect();
    let done = Arc::new(AtomicBool::new(false));
    let reader = is_read.then(|| {
        let (reader, done) = (meter.reader(), Arc::clone(&done));
        thread::spawn(move || {
            let mut taken = 0;
            while !done.load(Ordering::Relaxed) {
                black_box(reader.snapshot(None));
                taken += 1;
                thread::sleep(Duration::from_millis(9));
            }
            taken
        })
    });
    let mut took: Vec<u128> = (0..n)
        .map(|_| {
            t += MS;
            let begun = Instant::now();
            meter.step(t, black_box(&handles), None);
            begun.elapsed().as_nanos()
        })
        .collect();
    done.store(true, Ordering::Relaxed);
    let taken = reader.map_or(0, |reader| reader.join().expect("the reader does not panic"));
    assert_eq!(meter.reader().snapshot(None).all.scopes[0].block.output_tokens, (n * REQUESTS) as u64);
    took.sort_unstable();
    (took, taken)
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--test");
    let (n, turns) = if smoke { (1000, 1) } else { (1_000_000, 3) };
    println!("a step of {REQUESTS} requests in {CLASSES} classes, ns");
    for _ in 0..turns {
        for is_read in [false, true] {
            let (took, taken) = steps(n, is_read);
            let at = |share: f64| took[((n as f64 * share) as usize).min(n - 1)];
            let [p50, p99, p9999] = [0.5, 0.99, 0.9999].map(at);
            println!("{taken:4} snapshots: P50 {p50}, P99 {p99}, P99.99 {p9999}, most {}", took[n - 1]);
        }
    }
}
