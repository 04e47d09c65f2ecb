//! The neutral vectors of `tests/vectors` that need no log: sketch, slo, strata, window.

use std::collections::HashMap;

use serde_json::Value;
use tokenpulse_core::bounds::MAX_TIMELINE_BINS;
use tokenpulse_core::sketch::{
    Dense, ItlRule, Mapping, Rejection, Sketch, Unit, edge_seconds, ns_from_float, relative_error,
};
use tokenpulse_core::slo::{Fluidity, Slo};
use tokenpulse_core::strata::{Key, Strata, length_bin};
use tokenpulse_core::window::{Horizon, Ring, Timeline, check_widths};

fn vectors(stem: &str) -> Value {
    let path = format!("{}/../../tests/vectors/{stem}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The cases under a key, of which there must be some.
fn cases<'a>(vectors: &'a Value, key: &str) -> &'a [Value] {
    let cases = vectors[key].as_array().unwrap();
    assert!(!cases.is_empty(), "no cases under {key}");
    cases
}

fn ints(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect()
}

/// A float in C99 hexadecimal.
fn float(value: &Value) -> f64 {
    let text = value.as_str().unwrap();
    let (sign, digits) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    match digits {
        "nan" => return f64::NAN,
        "inf" => return sign * f64::INFINITY,
        _ => {}
    }
    let (mantissa, exponent) = digits.strip_prefix("0x").unwrap().split_once('p').unwrap();
    let (whole, fraction) = mantissa.split_once('.').unwrap();
    let bits = u64::from_str_radix(&format!("{whole}{fraction}"), 16).unwrap();
    // In two steps, so that neither factor leaves the range of doubles.
    let exponent = exponent.parse::<i32>().unwrap() - 4 * fraction.len() as i32;
    let half = exponent / 2;
    sign * bits as f64 * 2_f64.powi(half) * 2_f64.powi(exponent - half)
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(float).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from_digit(digit.into(), 16).unwrap())
        .collect()
}

fn unhex(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn sketch_of(case: &Value) -> Sketch<Dense> {
    let rule = case["itl_rule"].as_str().map(|name| ItlRule::from_name(name).unwrap());
    let mut sketch = Sketch::new(case["scale"].as_u64().unwrap() as u8, rule).unwrap();
    ints(&case["values_ns"]).into_iter().for_each(|ns| sketch.record_ns(ns));
    for (name, n) in case["rejected"].as_object().into_iter().flatten() {
        let reason = Rejection::ALL.into_iter().find(|reason| reason.name() == name).unwrap();
        sketch.reject(reason, n.as_u64().unwrap());
    }
    sketch
}

#[test]
fn sketch_index_and_edges() {
    let vectors = vectors("sketch");
    for case in cases(&vectors, "index") {
        let scale = case["scale"].as_u64().unwrap() as u8;
        let slot = Mapping::of(scale).slot(case["ns"].as_i64().unwrap());
        let expected = match &case["bucket"] {
            Value::String(name) if name == "zero" => 0,
            Value::String(_) => Mapping::slots(scale) - 1,
            index => (index.as_i64().unwrap() - i64::from(Mapping::first_index(scale)) + 1) as usize,
        };
        assert_eq!(slot, expected, "{case}");
    }
    for case in cases(&vectors, "edges") {
        let edge = edge_seconds(case["scale"].as_u64().unwrap() as u8, case["index"].as_i64().unwrap() as i32);
        assert_eq!(edge.to_bits(), float(&case["seconds"]).to_bits(), "{case}");
    }
    for case in cases(&vectors, "relative_error") {
        assert_eq!(relative_error(case["scale"].as_u64().unwrap() as u8), float(&case["error"]), "{case}");
    }
    for case in cases(&vectors, "seconds") {
        match ns_from_float(float(&case["seconds"]), Unit::Seconds) {
            Ok(ns) => assert_eq!(Some(ns), case["ns"].as_i64(), "{case}"),
            Err(reason) => assert_eq!(Some(reason.name()), case["rejected"].as_str(), "{case}"),
        }
    }
}

#[test]
fn sketch_readings() {
    let vectors = vectors("sketch");
    for case in cases(&vectors, "quantiles") {
        let estimates = sketch_of(case).quantiles(&floats(&case["q"])).unwrap();
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&estimates), bits(&floats(&case["seconds"])), "{case}");
    }
    for case in cases(&vectors, "cdf") {
        let sketch = sketch_of(case);
        for (x, share) in floats(&case["x"]).into_iter().zip(floats(&case["share"])) {
            assert_eq!(sketch.cdf(x).unwrap(), share, "{x}");
        }
    }
    for case in cases(&vectors, "splits") {
        let mut sketch = Sketch::<Dense>::new(6, None).unwrap();
        sketch.record_split(case["gap_ns"].as_i64().unwrap(), case["k"].as_u64().unwrap());
        assert_eq!(sketch.max_ns(), case["value_ns"].as_i64(), "{case}");
        assert_eq!(Some(sketch.count()), case["count"].as_u64(), "{case}");
        assert_eq!(sketch.sum_ns(), u128::from(case["sum_ns"].as_u64().unwrap()), "{case}");
    }
}

#[test]
fn sketch_merges_differences_and_bytes() {
    let vectors = vectors("sketch");
    for case in cases(&vectors, "merges") {
        let mut merged = sketch_of(&case["left"]);
        merged.merge(&sketch_of(&case["right"])).unwrap();
        assert_eq!(Value::from(hex(&merged.to_bytes())), case["hex"], "{case}");
    }
    for case in cases(&vectors, "differences") {
        let since = sketch_of(&case["later"]).since(&sketch_of(&case["earlier"])).unwrap();
        assert_eq!(Some(since.count()), case["count"].as_u64(), "{case}");
        assert_eq!(since.sum_ns(), u128::from(case["sum_ns"].as_u64().unwrap()), "{case}");
        assert_eq!((since.min_ns(), since.max_ns()), (case["min_ns"].as_i64(), case["max_ns"].as_i64()), "{case}");
    }
    for case in cases(&vectors, "bytes") {
        let sketch = sketch_of(case);
        assert_eq!(Value::from(hex(&sketch.to_bytes())), case["hex"], "{case}");
        assert_eq!(Sketch::<Dense>::from_bytes(&unhex(&case["hex"])).unwrap(), sketch, "{case}");
    }
    for case in cases(&vectors, "refused_bytes") {
        assert!(Sketch::<Dense>::from_bytes(&unhex(&case["hex"])).is_err(), "{}", case["name"]);
    }
}

#[test]
fn slo_fluidity() {
    for case in cases(&vectors("slo"), "fluidity") {
        let slo = Slo {
            name: String::new(),
            ttft_ns: case["ttft_ns"].as_i64().unwrap(),
            tpot_ns: case["tpot_ns"].as_i64().unwrap(),
            e2e_ns: None,
            itl_ns: None,
            labels: Vec::new(),
        };
        let mut fluidity = Fluidity::default();
        for (at, gap) in case["gaps"].as_array().unwrap().iter().map(ints).enumerate() {
            fluidity.emission(&slo, at == 0, gap[0], gap[1] as u64);
        }
        assert_eq!(
            (Some(fluidity.met), Some(fluidity.total)),
            (case["met"].as_u64(), case["deadlines"].as_u64()),
            "{case}"
        );
    }
}

#[test]
fn strata_bins_and_interning() {
    let vectors = vectors("strata");
    for case in cases(&vectors, "bins") {
        assert_eq!(length_bin(case[0].as_u64().unwrap()), case[1].as_str().unwrap());
    }
    for case in cases(&vectors, "interning") {
        let limit = case["max_classes"].as_u64().unwrap() as usize;
        let mut strata = Strata::new(vec![Key::Label("x".into())], limit).unwrap();
        // The class `other` is written as the last number there is, or as null.
        let classes: Vec<Option<usize>> =
            case["values"].as_array().unwrap().iter().map(|value| strata.class(0, 0, |_| value.as_str())).collect();
        let expected: Vec<Option<usize>> = case["classes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|class| class.as_u64().map(|class| class as usize).filter(|&class| class + 1 < limit))
            .collect();
        assert_eq!(classes, expected, "{case}");
        assert_eq!(Some(strata.over()), case["over"].as_u64(), "{case}");
    }
}

#[test]
fn windows() {
    let vectors = vectors("window");
    for case in cases(&vectors, "rings") {
        let mut ring = Ring::new(case["width_ns"].as_i64().unwrap(), 0_u64).unwrap();
        for t in ints(&case["events"]) {
            if let Some(pane) = ring.pane_at(t) {
                *pane += 1;
            }
        }
        assert_eq!(Some(ring.late()), case["late"].as_u64(), "{case}");
        for read in case["reads"].as_array().unwrap() {
            let reading = ring.read(read["now"].as_i64().unwrap());
            assert_eq!(Some(reading.content), read["count"].as_u64(), "{case}");
            assert_eq!(Some(reading.true_width_ns), read["width_ns"].as_i64(), "{case}");
        }
    }
    for width in cases(&vectors, "refused_widths") {
        assert!(Ring::new(width.as_i64().unwrap(), 0_u64).is_err(), "{width}");
    }
    for case in cases(&vectors, "window_sets") {
        assert_eq!(Some(check_widths(&ints(&case["widths_ns"])).is_ok()), case["good"].as_bool(), "{case}");
    }
    for case in cases(&vectors, "horizons") {
        let mut horizon = Horizon::default();
        let admitted: Vec<bool> = ints(&case["times"])
            .into_iter()
            .map(|t| {
                let admits = horizon.admits(t);
                if admits {
                    horizon.accept(t);
                }
                admits
            })
            .collect();
        assert_eq!(Value::from(admitted), case["admitted"], "{case}");
        assert_eq!(horizon.newest(), case["newest_ns"].as_i64(), "{case}");
    }
    for case in cases(&vectors, "timelines") {
        let mut timeline =
            Timeline::new(case["width_ns"].as_i64().unwrap(), case["bins_max"].as_i64().unwrap_or(MAX_TIMELINE_BINS));
        ints(&case["times"]).into_iter().for_each(|t| *timeline.bin_at(t, || 0_u64) += 1);
        assert_eq!(Some(timeline.width_ns()), case["final_width_ns"].as_i64(), "{case}");
        let bins: HashMap<i64, u64> = timeline.iter().map(|(start, &n)| (start, n)).collect();
        let expected: HashMap<i64, u64> =
            case["bins"].as_array().unwrap().iter().map(ints).map(|bin| (bin[0], bin[1] as u64)).collect();
        assert_eq!(bins, expected, "{case}");
    }
}
