//! An engine in miniature with a meter in its loop, in Rust alone: one thread steps, another reads.
//!
//! `cargo run --release -p tokenpulse-core --example engine`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokenpulse_core::Result;
use tokenpulse_core::meter::{Gauge, Meter, Origin, Settings, SloSet, Snapshot};
use tokenpulse_core::request::{Metric, Status};
use tokenpulse_core::slo::Slo;

const MS: i64 = 1_000_000;
const BATCH: usize = 32;

/// The core reads no clock: whoever embeds it does.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> i64 {
        self.0.elapsed().as_nanos() as i64
    }
}

/// Numbers that look random, so that the example needs no other crate.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Serves until it is told to stop: each step gives one token to every request of the batch.
fn serve(meter: &Meter, class: u32, clock: Clock, stop: &AtomicBool) {
    let mut numbers = Numbers(7);
    let (mut handles, mut left) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let mut t = clock.now();
    meter.ready(t);
    while !stop.load(Ordering::Relaxed) {
        let started = handles.len();
        while handles.len() < BATCH && numbers.below(4) == 0 {
            handles.push(meter.arrive(t, 100 + numbers.below(900) as i64, 0, class));
            left.push(1 + numbers.below(80));
        }
        meter.schedule(t, &handles[started..]);
        let mut gauges = [None; Gauge::ALL.len()];
        gauges[Gauge::Running as usize] = Some(handles.len() as i64);
        gauges[Gauge::BatchMax as usize] = Some(BATCH as i64);
        meter.gauge(t, gauges);

        thread::sleep(Duration::from_micros(2000 + 20 * handles.len() as u64)); // the GPU is at work

        t = clock.now(); // the one clock read of a step
        meter.step(t, &handles, None);
        let mut ended = Vec::new();
        for at in (0..handles.len()).rev() {
            left[at] -= 1;
            if left[at] == 0 {
                left.swap_remove(at);
                ended.push(handles.swap_remove(at));
            }
        }
        meter.end(t, &ended, Status::Stop, false);
    }
}

/// One line about the last minute, as far as it has come.
fn line(snapshot: &Snapshot) -> Result<String> {
    let (total, minute) = (&snapshot.all.scopes[0].block, &snapshot.all.scopes[2].block);
    let seconds = snapshot.windows[1].true_width_ns as f64 / 1e9;
    let ms = |metric: Metric, q: f64| minute.latency[metric as usize].quantile(q).map(|seconds| seconds * 1e3);
    Ok(format!(
        "{:4} requests, {:2} in flight, {:4.0} tokens/s, ttft p99 {:.2} ms, itl p50 {:.2} p99 {:.2} ms, {:3} good, \
         {} silent for 1 s",
        total.attempted,
        total.attempted - total.ended(),
        minute.output_tokens as f64 / seconds,
        ms(Metric::Ttft, 0.99)?,
        ms(Metric::Itl, 0.5)?,
        ms(Metric::Itl, 0.99)?,
        minute.slos[0].good,
        snapshot.all.open.streams.over[0],
    ))
}

fn main() -> Result<()> {
    let clock = Clock(Instant::now());
    let slo = Slo {
        name: "chat".to_owned(),
        ttft_ns: 20 * MS,
        tpot_ns: 5 * MS,
        e2e_ns: None,
        itl_ns: None,
        labels: Vec::new(),
    };
    let settings = Settings { slos: vec![SloSet { slo, objective: 0.99 }], ..Settings::default() };
    // An origin tells readers whose clock this is; a meter on the heap can do without.
    let meter = Arc::new(Meter::new(settings, Origin::default())?);
    let class = meter.classify(None, &[("tenant", "a")])?;
    let stop = Arc::new(AtomicBool::new(false));
    let engine = {
        let (meter, stop) = (Arc::clone(&meter), Arc::clone(&stop));
        thread::spawn(move || serve(&meter, class, clock, &stop))
    };
    let reader = meter.reader();
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(200));
        println!("{}", line(&reader.snapshot(Some(clock.now())))?);
    }
    stop.store(true, Ordering::Relaxed);
    engine.join().expect("the engine's thread does not panic");
    let last = reader.snapshot(None);
    let total = &last.all.scopes[0].block;
    println!("attempted {} = ended {} + in flight {}", total.attempted, total.ended(), total.attempted - total.ended());
    assert_eq!(last.rejected, [0; 6], "nothing was refused");
    Ok(())
}
