//! The neutral vectors of `tests/vectors` that are logs: request, log, and the verdicts and classes of slo and strata.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokenpulse_core::request::{Metric, Status};
use tokenpulse_core::sketch::{ItlRule, Sketch, Store};
use tokenpulse_core::slo::Slo;
use tokenpulse_core::strata::Key;
use tokenpulse_core::tally::{Block, Counter, Settings};
use tokenpulse_io::{Failure, Reading, Reduction, Skip, Source, reduce};

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

fn settings(case: &Value) -> Settings {
    Settings {
        scale: 6,
        itl_rule: ItlRule::from_name(case["itl_rule"].as_str().unwrap_or("token")).unwrap(),
        slos: Arc::from([]),
        by: case["by"].as_array().into_iter().flatten().map(|key| Key::from_name(key.as_str().unwrap())).collect(),
        timeline_ns: None,
        ttl_ns: case["ttl_ns"].as_i64().unwrap_or(3_600_000_000_000),
        ..Settings::default()
    }
}

fn text(lines: &[Value]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.to_string(), "\n".to_owned()]).collect::<String>().into_bytes()
}

fn read(inputs: Vec<Vec<u8>>, settings: &Settings) -> Result<Reduction, Failure> {
    let named = inputs.into_iter().enumerate().map(|(at, bytes)| Source::Bytes(format!("input {at}"), bytes));
    reduce(named.collect(), settings, Reading::default(), |_, _| true)
}

/// What occurred, by name.
fn counts(named: impl Iterator<Item = (impl Into<String>, u64)>) -> Value {
    named.filter(|&(_, n)| n > 0).map(|(name, n)| (name.into(), Value::from(n))).collect::<Map<_, _>>().into()
}

fn by_status(n: impl Fn(Status) -> u64) -> impl Iterator<Item = (String, u64)> {
    Status::ALL.into_iter().map(move |status| (status.name().to_owned(), n(status)))
}

fn latency<S: Store>(sketches: &[Sketch<S>; 8]) -> Value {
    let told = Metric::ALL.into_iter().zip(sketches).filter(|(_, sketch)| !sketch.is_empty());
    told.map(|(metric, sketch)| {
        let figures = json!([sketch.count(), sketch.sum_ns() as u64, sketch.min_ns(), sketch.max_ns()]);
        (metric.name().to_owned(), figures)
    })
    .collect::<Map<_, _>>()
    .into()
}

/// What can be expected of a block, under the names of the vectors.
fn told_of_block<S: Store>(block: &Block<S>) -> Map<String, Value> {
    let missing = Metric::ALL.into_iter().map(|metric| (metric.name(), block.missing[metric as usize]));
    let told = json!({
        "attempted": block.attempted,
        "in_flight": block.attempted - block.ended(),
        "by_status": counts(by_status(|status| block.status(status))),
        "degraded": block.degraded,
        "preempted": block.preempted,
        "preemptions": block.preemptions,
        "prompt_tokens": block.prompt_tokens,
        "output_tokens": block.output_tokens,
        "missing": counts(missing),
        "latency": latency(&block.latency),
    });
    told.as_object().unwrap().clone()
}

/// The same of a whole reduction.
fn told(reduction: &Reduction) -> Map<String, Value> {
    let (run, input) = (&reduction.run, &reduction.inputs[0]);
    let rejected = Counter::ALL.into_iter();
    let notices = reduction.inputs.iter().flat_map(|input| &input.notices);
    let slowest = Metric::ALL.into_iter().map(|metric| {
        let entries = run.slowest(metric).entries().map(|(ns, id)| json!([ns, id])).collect();
        (metric.name().to_owned(), entries)
    });
    let more = json!({
        "slowest": slowest.filter(|(_, entries)| entries != &json!([])).collect::<Map<_, _>>(),
        "rejected": counts(rejected.map(|counter| (counter.name(), run.counter(counter)))),
        "clamped": run.clamped(),
        "first_arrival_ns": run.first_arrival(),
        "last_emission_ns": run.last_emission(),
        "newest_ns": reduction.newest,
        "lines": input.lines,
        "format": input.format(),
        "skipped": counts(Skip::ALL.into_iter().map(|skip| (skip.name(), input.skipped[skip as usize]))),
        "notices": notices.map(|notice| json!([notice.line, notice.reason])).collect::<Value>(),
    });
    told_of_block(run.total()).into_iter().chain(more.as_object().unwrap().clone()).collect()
}

fn check(told: &Map<String, Value>, expect: &Value, case: &Value) {
    for (name, value) in expect.as_object().unwrap().iter().filter(|(name, _)| *name != "key") {
        // Of the slowest only the metrics that are named are compared.
        match (told.get(name), value) {
            (Some(Value::Object(told)), Value::Object(expect)) if name == "slowest" => {
                assert!(!expect.is_empty() && expect.iter().all(|(metric, entries)| told.get(metric) == Some(entries)));
            }
            (told, value) => assert_eq!(told, Some(value), "{name} in {case}"),
        }
    }
}

#[test]
fn request() {
    for case in cases(&vectors("request"), "cases") {
        let inputs = match case["inputs"].as_array() {
            Some(inputs) => inputs.iter().map(|lines| text(lines.as_array().unwrap())).collect(),
            None => vec![text(case["lines"].as_array().unwrap())],
        };
        check(&told(&read(inputs, &settings(case)).unwrap()), &case["expect"], case);
    }
}

/// The line must be skipped for the reason; a good one comes first, so that the input's format is known.
fn check_skipped(line: &[u8], reason: &Value) {
    let input = [b"{\"t_ns\":0,\"ev\":\"ready\"}\n", line].concat();
    let reduction = read(vec![input], &settings(&Value::Null)).unwrap();
    assert_eq!(told(&reduction)["skipped"], json!({ reason.as_str().unwrap(): 1 }), "{}", line.escape_ascii());
}

#[test]
fn log() {
    let vectors = vectors("log");
    for case in cases(&vectors, "skipped").iter().chain(cases(&vectors, "order")) {
        check_skipped(case["line"].as_str().unwrap().as_bytes(), &case["reason"]);
    }
    for case in cases(&vectors, "hex") {
        let digits = case["hex"].as_str().unwrap();
        let bytes = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
        check_skipped(&bytes.collect::<Vec<_>>(), &case["reason"]);
    }
    for case in cases(&vectors, "read") {
        let reduction = read(vec![case["text"].as_str().unwrap().into()], &settings(case)).unwrap();
        check(&told(&reduction), &case["expect"], case);
        for ((combination, _), key) in reduction.run.classes().zip(case["keys"].as_array().into_iter().flatten()) {
            assert_eq!(json!(combination.unwrap()), key.as_object().unwrap().values().cloned().collect::<Value>());
        }
    }
    for input in cases(&vectors, "unknown_format") {
        let read = read(vec![input.as_str().unwrap().into()], &settings(&Value::Null));
        assert!(matches!(read, Err(Failure::Format(..))), "{input}");
    }
}

#[test]
fn slo_verdicts() {
    for case in cases(&vectors("slo"), "verdicts") {
        let limit = |name: &str| case["slo"][name].as_f64().map(|seconds| (seconds * 1e9).round_ties_even() as i64);
        let labels = case["slo"]["where"].as_object().into_iter().flatten();
        let slo = Slo {
            name: "slo".into(),
            ttft_ns: limit("ttft").unwrap(),
            tpot_ns: limit("tpot").unwrap(),
            e2e_ns: limit("e2e"),
            itl_ns: limit("itl"),
            labels: labels.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect(),
        };
        let settings = Settings { slos: Arc::from([slo]), ..settings(case) };
        let reduction = read(vec![text(std::slice::from_ref(&case["line"]))], &settings).unwrap();
        let tally = &reduction.run.total().slos[0];
        let told = json!({
            "good": tally.good,
            "output_tokens": tally.good_output_tokens,
            "missed": counts(tally.over_by_name().chain(by_status(|status| tally.failed[status as usize]))),
            "met": tally.met,
            "deadlines": tally.deadlines,
        });
        for (name, value) in told.as_object().unwrap() {
            assert_eq!(value, &case[name], "{name} in {case}");
        }
    }
}

#[test]
fn strata_classes() {
    for case in cases(&vectors("strata"), "by") {
        let reduction = read(vec![text(case["lines"].as_array().unwrap())], &settings(case)).unwrap();
        let classes: Vec<_> = reduction.run.classes().collect();
        let expected = case["expect"].as_array().unwrap();
        assert_eq!(classes.len(), expected.len(), "{case}");
        for ((combination, block), expect) in classes.into_iter().zip(expected) {
            let names = case["by"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
            let key: Map<String, Value> = names.zip(combination.unwrap().iter().map(|value| json!(value))).collect();
            assert_eq!(Value::from(key), expect["key"], "{case}");
            check(&told_of_block(block), expect, case);
        }
    }
}
