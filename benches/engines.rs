//! A meter and what engines use in its place, behind one face.
//!
//! The peer is what engines do today: a map from request ids to places, columns of last times, histograms of fixed
//! buckets by class. It has no windows, no goodput, no sums of 128 bits and no checks of order, and nobody can read
//! it while it is written to.

use std::collections::HashMap;

use tokenpulse_core::meter::{Meter, Origin, Settings, SloSet};
use tokenpulse_core::request::{Metric, Status};
use tokenpulse_core::slo::Slo;

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;

/// TPOT limits of SLO sets, in milliseconds: steps are 20 ms apart or a little more.
pub type Limits = [i64];
pub const NO_SETS: &Limits = &[];
pub const KEPT: &Limits = &[30, 60, 90, 120];
/// The first one is missed by every request.
pub const MISSED: &Limits = &[15, 30, 60, 90];

/// What the loops ask of a meter and of its peer.
pub trait Engine {
    fn of(requests: usize, classes: usize, limits: &Limits) -> Self;
    fn arrive(&mut self, t: i64, class: usize) -> i64;
    fn schedule(&mut self, t: i64, handles: &[i64]);
    fn step(&mut self, t: i64, handles: &[i64]);
    /// Tokens that each have a time of their own.
    fn tokens(&mut self, times: &[i64], handles: &[i64]) {
        for (&t, handle) in times.iter().zip(handles) {
            self.step(t, std::slice::from_ref(handle));
        }
    }
    fn end(&mut self, t: i64, handle: i64);
    fn found(&self) -> Found;
    /// The peer has no such metric.
    fn prefill(&mut self, _t: i64, _handle: i64) {}
    /// The peer has no such metric.
    fn stall(&mut self, _t: i64, _until: i64, _handle: i64) {}
}

/// What both must agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub tokens: u64,
    pub gaps: u64,
    pub sum_of_gaps: u128,
    pub ended: u64,
}

/// A meter with the windows and burn rates of the default settings.
pub struct Metered {
    pub meter: Meter,
    classes: Vec<u32>,
}

impl Engine for Metered {
    fn of(requests: usize, classes: usize, limits: &Limits) -> Self {
        let slo = |(i, limit): (usize, &i64)| Slo {
            name: format!("set {i}"),
            ttft_ns: 500 * MS,
            tpot_ns: limit * MS,
            e2e_ns: (i == 1).then_some(60 * SECOND),
            itl_ns: (i == 2).then_some(200 * MS),
            labels: Vec::new(),
        };
        let settings = Settings {
            slos: limits.iter().enumerate().map(|set| SloSet { slo: slo(set), objective: 0.99 }).collect(),
            max_requests: requests.max(65_536) as u32,
            ..Settings::default()
        };
        let meter = Meter::new(settings, Origin::default()).unwrap();
        let class = |class: usize| meter.classify(None, &[("tenant", &class.to_string())]).unwrap();
        Self { classes: (0..classes).map(class).collect(), meter }
    }

    fn arrive(&mut self, t: i64, class: usize) -> i64 {
        self.meter.arrive(t, 100, 0, self.classes[class % self.classes.len()])
    }

    fn schedule(&mut self, t: i64, handles: &[i64]) {
        self.meter.schedule(t, handles);
    }

    #[inline]
    fn step(&mut self, t: i64, handles: &[i64]) {
        self.meter.step(t, handles, None);
    }

    #[inline]
    fn tokens(&mut self, times: &[i64], handles: &[i64]) {
        self.meter.tokens(times, handles, None);
    }

    fn end(&mut self, t: i64, handle: i64) {
        self.meter.end(t, &[handle], Status::Stop, false);
    }

    fn prefill(&mut self, t: i64, handle: i64) {
        self.meter.prefill(t, &[handle]);
    }

    fn stall(&mut self, t: i64, until: i64, handle: i64) {
        self.meter.preempt(t, &[handle]);
        self.meter.resume(until, &[handle]);
    }

    fn found(&self) -> Found {
        let snapshot = self.meter.reader().snapshot(None);
        assert_eq!((snapshot.rejected, snapshot.clamped, snapshot.dropped), ([0; 6], 0, 0));
        let block = &snapshot.all.scopes[0].block;
        let itl = &block.latency[Metric::Itl as usize];
        Found {
            tokens: block.output_tokens,
            gaps: itl.count(),
            sum_of_gaps: itl.sum_ns(),
            ended: block.by_status.iter().sum(),
        }
    }
}

/// The bounds that engines use for the time between tokens, in milliseconds.
const BOUNDS_MS: [i64; 19] =
    [10, 25, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000, 20_000, 40_000, 80_000];

/// Fixed buckets.
#[derive(Clone, Default)]
pub struct Histogram {
    counts: [u64; BOUNDS_MS.len() + 1],
    sum: u64,
}

impl Histogram {
    #[inline]
    fn record(&mut self, ns: i64) {
        const BOUNDS: [i64; BOUNDS_MS.len()] = {
            let (mut bounds, mut i) = (BOUNDS_MS, 0);
            while i < bounds.len() {
                bounds[i] *= MS;
                i += 1;
            }
            bounds
        };
        self.counts[BOUNDS.partition_point(|&bound| bound < ns)] += 1;
        self.sum += ns as u64;
    }

    pub fn n(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A quantile by interpolation, in seconds.
    pub fn quantile(&self, q: f64) -> f64 {
        let (rank, mut seen) = (q * self.n() as f64, 0);
        for (bucket, &count) in self.counts.iter().enumerate() {
            if count > 0 && (seen + count) as f64 >= rank {
                let below = if bucket == 0 { 0 } else { BOUNDS_MS[bucket - 1] } as f64;
                let above = BOUNDS_MS[bucket.min(BOUNDS_MS.len() - 1)] as f64;
                return (below + (above - below) * (rank - seen as f64) / count as f64) / 1e3;
            }
            seen += count;
        }
        f64::NAN
    }
}

/// The latencies of a class.
#[derive(Clone, Default)]
pub struct Histograms {
    pub ttft: Histogram,
    pub queue: Histogram,
    pub itl: Histogram,
    pub tpot: Histogram,
    pub e2e: Histogram,
    pub tokens: u64,
}

/// Requests by id, their times in columns.
pub struct Peer {
    places: HashMap<u64, usize>,
    free: Vec<usize>,
    next: u64,
    arrived: Vec<i64>,
    first: Vec<i64>,
    /// -1 before the first token.
    last: Vec<i64>,
    tokens: Vec<i64>,
    class: Vec<usize>,
    pub classes: Vec<Histograms>,
}

impl Engine for Peer {
    fn of(requests: usize, classes: usize, _limits: &Limits) -> Self {
        Self {
            places: HashMap::new(),
            free: (0..requests).rev().collect(),
            next: 0,
            arrived: vec![0; requests],
            first: vec![0; requests],
            last: vec![-1; requests],
            tokens: vec![0; requests],
            class: vec![0; requests],
            classes: vec![Histograms::default(); classes],
        }
    }

    fn arrive(&mut self, t: i64, class: usize) -> i64 {
        let place = self.free.pop().expect("there is room for all");
        let id = self.next;
        self.next += 1;
        self.places.insert(id, place);
        (self.arrived[place], self.last[place], self.tokens[place]) = (t, -1, 0);
        self.class[place] = class % self.classes.len();
        id as i64
    }

    fn schedule(&mut self, t: i64, handles: &[i64]) {
        for &id in handles {
            if let Some(&place) = self.places.get(&(id as u64)) {
                self.classes[self.class[place]].queue.record(t - self.arrived[place]);
            }
        }
    }

    #[inline]
    fn step(&mut self, t: i64, handles: &[i64]) {
        for &id in handles {
            let Some(&place) = self.places.get(&(id as u64)) else { continue };
            let class = &mut self.classes[self.class[place]];
            class.tokens += 1;
            self.tokens[place] += 1;
            match std::mem::replace(&mut self.last[place], t) {
                -1 => {
                    self.first[place] = t;
                    class.ttft.record(t - self.arrived[place]);
                }
                last => class.itl.record(t - last),
            }
        }
    }

    fn end(&mut self, _t: i64, handle: i64) {
        let Some(place) = self.places.remove(&(handle as u64)) else { return };
        let class = &mut self.classes[self.class[place]];
        class.e2e.record(self.last[place] - self.arrived[place]);
        if self.tokens[place] > 1 {
            class.tpot.record((self.last[place] - self.first[place]) / (self.tokens[place] - 1));
        }
        self.free.push(place);
    }

    fn found(&self) -> Found {
        let sum = |of: fn(&Histograms) -> u64| self.classes.iter().map(of).sum::<u64>();
        Found {
            tokens: sum(|class| class.tokens),
            gaps: sum(|class| class.itl.n()),
            sum_of_gaps: u128::from(sum(|class| class.itl.sum)),
            ended: sum(|class| class.e2e.n()),
        }
    }
}
