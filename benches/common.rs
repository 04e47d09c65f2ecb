//! What the benchmarks share: their length, and numbers that are the same in every run.

use std::time::Duration;

use criterion::Criterion;

/// Whether only to see that everything works: small inputs, short times.
pub fn smoke() -> bool {
    std::env::var_os("BENCH_SMOKE").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Of two sizes the one that this run wants.
pub fn size(full: usize, smoke_size: usize) -> usize {
    if smoke() { smoke_size } else { full }
}

/// The harness, with options of the command line taken over.
pub fn criterion() -> Criterion {
    let (warm_up, measurement) = if smoke() { (20, 50) } else { (1_000, 4_000) };
    Criterion::default()
        .without_plots()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(warm_up))
        .measurement_time(Duration::from_millis(measurement))
        .configure_from_args()
}

/// `SplitMix64` (Steele, Lea, Flood 2014): a fixed stream of numbers for a seed.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
