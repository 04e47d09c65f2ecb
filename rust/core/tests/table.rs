//! The checked-in tables and the index, derived again from the definition with big integers.

use num_bigint::BigUint;
use tokenpulse_core::sketch::tables::{EDGES, THRESHOLDS};
use tokenpulse_core::sketch::{Mapping, edge_floor_ns, edge_seconds};

const OCTAVES: std::ops::RangeInclusive<i64> = -20..=12;

/// `floor(factor * 2^(numerator / 256) * 2^bits)`.
fn scaled_power(factor: u64, numerator: u64, bits: u64) -> BigUint {
    let radicand = (BigUint::from(factor).pow(256) << numerator) << (256 * bits);
    // The 256th root as eight square roots: flooring each gives the floor of the whole.
    (0..8).fold(radicand, |power, _| power.sqrt())
}

/// `floor(10^9 * 2^(k / 2^scale))`, the integer form of edge `k`.
fn edge_ns(scale: u8, k: i64) -> u64 {
    let octave = k >> scale;
    let numerator = ((k - (octave << scale)) << (8 - scale)) as u64;
    let root = scaled_power(1_000_000_000, numerator, 64) >> (64 - octave);
    u64::try_from(root).unwrap()
}

fn edges_ns(scale: u8) -> Vec<u64> {
    (OCTAVES.start() << scale..=OCTAVES.end() << scale).map(|k| edge_ns(scale, k)).collect()
}

/// The slot by definition: the number of edges that lie strictly below the value.
fn slot(edges: &[u64], ns: u64) -> usize {
    edges.partition_point(|&edge| edge < ns)
}

#[test]
fn thresholds_and_edges_are_the_correctly_rounded_powers() {
    for j in 0..256 {
        let root = scaled_power(1_000_000_000, j as u64, 100);
        let mantissa = u64::try_from(&root >> (root.bits() - 64)).unwrap();
        assert_eq!(THRESHOLDS[j], mantissa, "threshold {j}");
        // 2^(j/256) is irrational but for j = 0, so adding half a unit and flooring rounds to nearest.
        let root = scaled_power(1, j as u64, 100);
        let rounded = u64::try_from((root + (BigUint::from(1_u8) << 47)) >> 48).unwrap();
        assert_eq!(EDGES[j], (1023 << 52) | (rounded - (1 << 52)), "edge {j}");
    }
}

#[test]
fn every_edge_and_its_neighbours_fall_where_the_definition_says() {
    for scale in 0..=8_u8 {
        let edges = edges_ns(scale);
        assert_eq!(edges.len(), Mapping::buckets(scale) + 1);
        for (k, &edge) in (OCTAVES.start() << scale..).zip(&edges) {
            assert_eq!(edge_floor_ns(scale, k as i32), edge as i64);
            for ns in edge - 1..=edge + 1 {
                assert_eq!(Mapping::of(scale).slot(ns as i64), slot(&edges, ns), "scale {scale}, {ns} ns");
            }
            let seconds = edge_seconds(scale, k as i32);
            assert!((seconds * 1e9 - edge as f64).abs() <= 1.0 + seconds * 1e-6);
        }
        for ns in (0..2000).chain([i64::MAX, i64::MAX - 1, 1 << 42, (1 << 42) + 1, 1 << 53]) {
            assert_eq!(Mapping::of(scale).slot(ns), slot(&edges, ns as u64), "scale {scale}, {ns} ns");
        }
    }
}

#[test]
fn ten_million_random_values_have_the_defined_index_at_every_scale() {
    let edges: Vec<Vec<u64>> = (0..=8).map(edges_ns).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut different = 0;
    for round in 0..10_000_000_u64 {
        // xorshift64*; every number of bits from 0 to 43 comes equally often.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let ns = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> (21 + round % 43);
        // The finest scale by definition; the coarser ones follow from it by halving, which is checked on the way.
        let finest = slot(&edges[8], ns);
        for scale in 0..=8_u8 {
            let top = Mapping::slots(scale) - 1;
            let expected = match finest {
                0 => 0,
                n if n == Mapping::slots(8) - 1 => top,
                n => ((n - 1) >> (8 - scale)) + 1,
            };
            different += usize::from(Mapping::of(scale).slot(ns as i64) != expected);
        }
    }
    assert_eq!(different, 0);
}
