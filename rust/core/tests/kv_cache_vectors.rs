//! The neutral vectors of caches: traces through every policy, and curves of hits and refills over all sizes.

use serde_json::{Map, Value, json};
use tokenpulse_core::kv::{Counter, Curve, Policy, Replay, Replayed, Settings, Span, Trace, TraceBuilder};

fn cases(key: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/vectors/kv_cache.json", env!("CARGO_MANIFEST_DIR"));
    let mut vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let Value::Array(cases) = vectors[key].take() else { panic!("no cases under {key}") };
    assert!(!cases.is_empty());
    cases
}

fn hashes(listed: &Value) -> Vec<u64> {
    listed.as_array().unwrap().iter().map(|hash| hash.as_u64().unwrap()).collect()
}

/// A trace of requests as `[t_ms, blocks]` or `[t_ms, blocks, input tokens]`.
fn trace_of<'a>(requests: impl IntoIterator<Item = &'a Value>) -> Trace {
    let mut trace = TraceBuilder::default();
    for request in requests {
        let t_ns = request[0].as_i64().unwrap() * 1_000_000;
        trace.push(t_ns, &hashes(&request[1]), request[2].as_u64()).unwrap();
    }
    trace.finish()
}

fn replay_of(case: &Value) -> Replay {
    let mut replay = Replay {
        blocks: case["blocks"].as_u64(),
        policy: Policy::from_name(case["policy"].as_str().unwrap()).unwrap(),
        ..Replay::default()
    };
    if let Some(tokens) = case["block_tokens"].as_u64() {
        replay.block_tokens = tokens as u32;
    }
    let unlimited = Settings::unlimited();
    replay.settings.remember = case["remember"].as_u64().map_or(unlimited.remember, |n| n as u32);
    replay.settings.ttl_ns = case["ttl_ns"].as_i64().unwrap_or(unlimited.ttl_ns);
    replay
}

/// What a replay came to, as the vectors name it: totals without what is 0 or empty.
fn figures(replayed: &Replayed) -> Value {
    let totals = &replayed.totals;
    let counted = Counter::ALL.into_iter().filter(|&counter| totals.count(counter) > 0);
    let mut named: Map<String, Value> =
        counted.map(|counter| (counter.name().to_owned(), totals.count(counter).into())).collect();
    for span in Span::ALL {
        let sketch = &totals.spans[span as usize];
        if sketch.count() > 0 {
            let figures = json!([sketch.count(), sketch.sum_ns() as u64, sketch.min_ns(), sketch.max_ns()]);
            named.insert(span.name().to_owned(), figures);
        }
    }
    json!({
        "lookups": replayed.lookups,
        "hits": replayed.hits,
        "queried_tokens": replayed.queried_tokens,
        "hit_tokens": replayed.hit_tokens,
        "totals": named,
        "blocks": replayed.blocks,
        "remembered": replayed.remembered,
    })
}

#[test]
fn replays() {
    for case in cases("replays") {
        let found = figures(&replay_of(&case).run(&trace_of(case["trace"].as_array().unwrap())).unwrap());
        for (name, expected) in case["expect"].as_object().unwrap() {
            assert_eq!(&found[name], expected, "{name} of: {}", case["name"]);
        }
    }
}

#[test]
fn curves() {
    for case in cases("curves") {
        let curve = Curve::exact(&trace_of([&json!([0, case["references"]])]));
        assert_eq!(curve.distinct(), case["distinct"].as_f64().unwrap(), "{}", case["name"]);
        for (place, size) in hashes(&case["sizes"]).into_iter().enumerate() {
            let point = curve.at(size).unwrap();
            let expected = ["hits", "evicted", "refilled"].map(|name| case[name][place].as_f64().unwrap());
            assert_eq!([point.hits, point.evicted, point.refilled], expected, "{size} blocks of: {}", case["name"]);
        }
        assert_eq!(curve.knee(), case["knee"].as_u64(), "{}", case["name"]);
        for (limit, part) in [("0.05", 1), ("0.15", 3)] {
            let expected = case["refill_under"][limit].as_u64();
            assert_eq!(curve.refill_under(part, 20), expected, "{limit} of: {}", case["name"]);
        }
    }
}
