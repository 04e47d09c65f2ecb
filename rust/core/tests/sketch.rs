//! Properties of the sketch: exactness of merging, of bytes and of bulk recording, and the error bound.

use proptest::collection::vec;
use proptest::prelude::*;
use tokenpulse_core::sketch::{Dense, ItlRule, Sketch, Sparse, Store, Unit, relative_error};

/// Durations of every size: zeros, around each octave, the overflow range, the largest.
fn durations() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        0..2_000_i64,
        (0..63_u32, -2..=2_i64).prop_map(|(bits, off)| ((1_i64 << bits) + off).max(0)),
        0..5_000_000_000_000_i64,
        Just(i64::MAX),
    ]
}

fn floats() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        0.0..10.0_f64,
        Just(-0.0),
        Just(-1e-12),
        Just(f64::NAN),
        Just(f64::INFINITY),
        durations().prop_map(|ns| ns as f64 / 1e9),
    ]
}

fn sketch_of<S: Store>(scale: u8, values: &[i64]) -> Sketch<S> {
    let mut sketch = Sketch::new(scale, None).unwrap();
    values.iter().for_each(|&ns| sketch.record_ns(ns));
    sketch
}

proptest! {
    #[test]
    fn merging_in_any_order_and_grouping_is_the_sketch_of_the_union(
        parts in vec((vec(durations(), 0..40), 0..=8_u8), 1..6),
        order in any::<u64>(),
    ) {
        let coarsest = parts.iter().map(|(_, scale)| *scale).min().unwrap();
        let all: Vec<i64> = parts.iter().flat_map(|(values, _)| values.clone()).collect();
        let expected = sketch_of::<Dense>(coarsest, &all);
        let mut sketches: Vec<Sketch> = parts.iter().map(|(values, scale)| sketch_of(*scale, values)).collect();
        let mut draw = order;
        while sketches.len() > 1 {
            let mut next = |n: usize| { draw = draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1); (draw >> 33) as usize % n };
            let first = sketches.swap_remove(next(sketches.len()));
            let at = next(sketches.len());
            sketches[at].merge(&first).unwrap();
        }
        prop_assert_eq!(&sketches[0], &expected);
        prop_assert_eq!(sketches[0].to_bytes(), expected.to_bytes());
    }

    #[test]
    fn bytes_lose_nothing(values in vec(durations(), 0..100), scale in 0..=8_u8, bad in vec(floats(), 0..10)) {
        let mut sketch = sketch_of::<Dense>(scale, &values);
        bad.iter().for_each(|&value| sketch.record(value, Unit::Seconds));
        let decoded = Sketch::<Dense>::from_bytes(&sketch.to_bytes()).unwrap();
        prop_assert_eq!(&decoded, &sketch);
        prop_assert_eq!(decoded.to_bytes(), sketch.to_bytes());
    }

    #[test]
    fn damaged_bytes_are_an_error_or_a_sketch_but_never_a_panic(
        values in vec(durations(), 0..20),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = sketch_of::<Dense>(6, &values).to_bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(sketch) = Sketch::<Dense>::from_bytes(&bytes) {
            prop_assert_eq!(Sketch::<Dense>::from_bytes(&sketch.to_bytes()).unwrap(), sketch);
        }
    }

    #[test]
    fn columns_give_what_single_values_give(values in vec(floats(), 0..3000), ints in vec(any::<i64>(), 0..1200), fits in any::<bool>()) {
        let values: Vec<f64> = if fits { values.into_iter().map(|v| v.abs() % 4.0).filter(|v| v.is_finite()).collect() } else { values };
        let mut bulk = Sketch::<Dense>::new(6, None).unwrap();
        let mut single = bulk.clone();
        bulk.record_many(&values, Unit::Seconds);
        values.iter().for_each(|&value| single.record(value, Unit::Seconds));
        for unit in [Unit::Seconds, Unit::Nanoseconds] {
            bulk.record_many(&ints, unit);
            ints.iter().for_each(|&value| single.record(value, unit));
            let unsigned: Vec<u64> = ints.iter().map(|&value| value as u64).collect();
            bulk.record_many(&unsigned, unit);
            unsigned.iter().for_each(|&value| single.record(value, unit));
            let narrow: Vec<f32> = values.iter().map(|&value| value as f32).collect();
            bulk.record_many(&narrow, unit);
            narrow.iter().for_each(|&value| single.record(value, unit));
        }
        prop_assert_eq!(bulk, single);
    }

    #[test]
    fn sparse_and_dense_stores_give_the_same(values in vec(durations(), 0..200), scale in 0..=8_u8, q in 0.0..=1.0_f64) {
        let (dense, sparse) = (sketch_of::<Dense>(scale, &values), sketch_of::<Sparse>(scale, &values));
        prop_assert_eq!(&dense, &sparse);
        prop_assert_eq!(&sparse.to_store::<Dense>(), &dense);
        prop_assert_eq!(dense.quantile(q).unwrap().to_bits(), sparse.quantile(q).unwrap().to_bits());
        prop_assert_eq!(dense.to_bytes(), sparse.to_bytes());
    }

    #[test]
    fn quantiles_are_within_the_bound(mut values in vec(954..4_096_000_000_000_i64, 1..300), scale in 0..=8_u8, q in 0.0..=1.0_f64) {
        let sketch = sketch_of::<Dense>(scale, &values);
        values.sort_unstable();
        let rank = ((q * values.len() as f64).ceil() as usize).max(1);
        let exact = values[rank - 1] as f64 / 1e9;
        let estimate = sketch.quantile(q).unwrap();
        prop_assert!((estimate - exact).abs() <= exact * relative_error(scale) * (1.0 + 1e-12), "{estimate} for {exact}");
    }

    #[test]
    fn a_difference_is_what_came_since(before in vec(durations(), 0..50), after in vec(durations(), 0..50)) {
        let earlier = sketch_of::<Dense>(6, &before);
        let mut later = earlier.clone();
        after.iter().for_each(|&ns| later.record_ns(ns));
        let since = later.since(&earlier).unwrap();
        let alone = sketch_of::<Dense>(6, &after);
        prop_assert_eq!(since.buckets(), alone.buckets());
        prop_assert_eq!((since.count(), since.sum_ns()), (alone.count(), alone.sum_ns()));
        prop_assert_eq!((since.zero_count(), since.overflow_count()), (alone.zero_count(), alone.overflow_count()));
        if let (Some(min), Some(max)) = (alone.min_ns(), alone.max_ns()) {
            prop_assert!(since.min_ns().unwrap() <= min && max <= since.max_ns().unwrap());
        }
        prop_assert!(earlier.since(&later).is_err() || after.is_empty());
    }
}

#[test]
fn rules_keep_sketches_apart() {
    let mut token = Sketch::<Dense>::new(6, Some(ItlRule::Token)).unwrap();
    let mut chunk = Sketch::<Dense>::new(6, Some(ItlRule::Chunk)).unwrap();
    token.record_emission(10, 4);
    chunk.record_emission(10, 4);
    assert_eq!((token.count(), token.sum_ns(), token.max_ns()), (4, 10, Some(2)));
    assert_eq!((chunk.count(), chunk.sum_ns(), chunk.max_ns()), (1, 10, Some(10)));
    assert!(token.merge(&chunk).is_err());
    assert_eq!(token.count(), 4, "a refused merge changes nothing");
    let mut plain = Sketch::<Dense>::new(6, None).unwrap();
    plain.merge(&token).unwrap();
    assert_eq!(plain, token);
}

#[test]
fn a_count_beyond_its_range_is_refused() {
    let mut sketch = Sketch::<Dense>::new(6, None).unwrap();
    sketch.record_ns_n(1_000_000, i64::MAX as u64).unwrap();
    assert!(sketch.record_ns_n(1, 1 << 32).is_err());
    let same = sketch.clone();
    assert!(sketch.merge(&same).is_err());
    assert_eq!(sketch, same);
}
