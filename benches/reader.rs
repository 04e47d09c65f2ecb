//! The log reader: bytes of event lines and request lines to the sums of a report, beside typed `serde_json`.
//!
//! The peer knows the two shapes beforehand, checks no order of events and keeps no sketch: what a reader written for
//! these files alone would do.

mod common;

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use common::{Random, criterion, size};
use criterion::{BatchSize, Criterion, Throughput};
use serde::Deserialize;
use tokenpulse_core::meter::{Meter, Origin, Settings as MeterSettings};
use tokenpulse_core::request::Metric;
use tokenpulse_core::sketch::ItlRule;
use tokenpulse_core::strata::Key;
use tokenpulse_core::tally::Settings;
use tokenpulse_io::{Reading, Replaying, Source, reduce, replay};

const IN_FLIGHT: usize = 64;

/// What both readers must agree on: requests, tokens, and the sums of TTFT, ITL and E2E in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    requests: u64,
    tokens: u64,
    ttft_ns: u128,
    itl_ns: u128,
    e2e_ns: u128,
}

/// A number in `low..high`.
fn between(random: &mut Random, low: i64, high: i64) -> i64 {
    low + (random.bits() % (high - low) as u64) as i64
}

/// The events of requests that are decoded together, a token each a step.
fn event_lines(bytes: usize) -> String {
    let mut random = Random(1);
    let mut text = String::with_capacity(bytes + (1 << 16));
    let mut t = 1_000_000_000_000_i64;
    let mut in_flight: Vec<(u64, i64)> = Vec::new();
    let mut arrived = 0;
    while text.len() < bytes {
        while in_flight.len() < IN_FLIGHT {
            let (prompt, tenant) = (between(&mut random, 10, 4_000), arrived % 4);
            writeln!(
                text,
                r#"{{"t_ns":{t},"id":"req-{arrived}","ev":"arrive","prompt_tokens":{prompt},"labels":{{"tenant":"a{tenant}"}}}}"#
            )
            .unwrap();
            let schedule = t + 1_000;
            writeln!(text, r#"{{"t_ns":{schedule},"id":"req-{arrived}","ev":"schedule"}}"#).unwrap();
            in_flight.push((arrived, between(&mut random, 1, 400)));
            arrived += 1;
        }
        t += between(&mut random, 8_000_000, 30_000_000);
        in_flight.retain_mut(|(id, left)| {
            writeln!(text, r#"{{"t_ns":{t},"id":"req-{id}","ev":"tokens","k":1}}"#).unwrap();
            *left -= 1;
            if *left == 0 {
                let end = t + 500;
                writeln!(text, r#"{{"t_ns":{end},"id":"req-{id}","ev":"end","status":"stop"}}"#).unwrap();
            }
            *left > 0
        });
    }
    // Whoever is left would have no E2E yet.
    for (id, _) in in_flight {
        t += 1_000;
        writeln!(text, r#"{{"t_ns":{t},"id":"req-{id}","ev":"tokens","k":1}}"#).unwrap();
        writeln!(text, r#"{{"t_ns":{t},"id":"req-{id}","ev":"end","status":"length"}}"#).unwrap();
    }
    text
}

/// Finished requests of up to 500 tokens.
fn request_lines(bytes: usize) -> String {
    let mut random = Random(2);
    let mut text = String::with_capacity(bytes + (1 << 16));
    let mut arrive = 1_000_000_000_000_i64;
    let mut id = 0;
    while text.len() < bytes {
        let (schedule, mut offset) = (arrive + 1_000, between(&mut random, 10_000_000, 1_000_000_000));
        write!(text, r#"{{"id":"r{id}","arrive_ns":{arrive},"schedule_ns":{schedule},"dt_ns":[{offset}"#).unwrap();
        for _ in 0..between(&mut random, 0, 500) {
            offset += between(&mut random, 8_000_000, 30_000_000);
            write!(text, ",{offset}").unwrap();
        }
        let prompt = between(&mut random, 1, 4_000);
        writeln!(text, r#"],"status":"stop","prompt_tokens":{prompt},"labels":{{"tenant":"a"}}}}"#).unwrap();
        id += 1;
        arrive += 3_000_000;
    }
    text
}

fn tokenpulse(log: Vec<u8>) -> Sums {
    let settings = Settings {
        scale: 6,
        itl_rule: ItlRule::Token,
        slos: Arc::from([]),
        by: Vec::new(),
        timeline_ns: None,
        ..Settings::default()
    };
    let sources = vec![Source::Bytes("log".to_owned(), log)];
    let reduction = reduce(sources, &settings, Reading { threads: 1, ..Reading::default() }, |_, _| true)
        .expect("the log is one of ours");
    let total = reduction.run.total();
    let sum = |metric| total.latency[metric as usize].sum_ns();
    Sums {
        requests: total.attempted,
        tokens: total.output_tokens,
        ttft_ns: sum(Metric::Ttft),
        itl_ns: sum(Metric::Itl),
        e2e_ns: sum(Metric::E2e),
    }
}

/// The same log through a meter, looked at each second.
fn through_a_meter(log: Vec<u8>) -> Sums {
    let settings = MeterSettings { burn: false, ..MeterSettings::default() };
    let meter = Meter::new(settings, Origin::default()).unwrap();
    let reader = meter.reader();
    let by = vec![Key::PromptLength];
    let reading = Reading { threads: 1, ..Reading::default() };
    let replaying = Replaying { every_ns: 1_000_000_000, by, reading };
    let mut read = 0;
    let on_pane = |t| {
        read += reader.snapshot(Some(t)).classes.len();
        true
    };
    replay(Source::Bytes("log".to_owned(), log), &meter, &replaying, |_, _| true, on_pane).unwrap();
    assert!(read > 0);
    let snapshot = reader.snapshot(None);
    let mut sums = Sums::default();
    for class in &snapshot.classes {
        let total = &class.scopes[0].block;
        sums.requests += total.attempted;
        sums.tokens += total.output_tokens;
        sums.ttft_ns += total.latency[Metric::Ttft as usize].sum_ns();
        sums.itl_ns += total.latency[Metric::Itl as usize].sum_ns();
        sums.e2e_ns += total.latency[Metric::E2e as usize].sum_ns();
    }
    sums
}

#[derive(Deserialize)]
struct EventLine<'a> {
    t_ns: i64,
    id: &'a str,
    ev: &'a str,
    k: Option<u64>,
}

fn peer_events(log: &[u8]) -> Sums {
    struct InFlight {
        arrive: i64,
        last: Option<i64>,
    }
    let mut sums = Sums::default();
    let mut in_flight: HashMap<String, InFlight> = HashMap::new();
    for line in log.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let event: EventLine<'_> = serde_json::from_slice(line).unwrap();
        let t = event.t_ns;
        match event.ev {
            "arrive" => {
                sums.requests += 1;
                in_flight.insert(event.id.to_owned(), InFlight { arrive: t, last: None });
            }
            "tokens" => {
                if let Some(request) = in_flight.get_mut(event.id) {
                    sums.tokens += event.k.unwrap_or(1);
                    match request.last.replace(t) {
                        None => sums.ttft_ns += (t - request.arrive) as u128,
                        Some(last) => sums.itl_ns += (t - last) as u128,
                    }
                }
            }
            "end" => {
                if let Some(request) = in_flight.remove(event.id) {
                    sums.e2e_ns += request.last.map_or(0, |last| (last - request.arrive) as u128);
                }
            }
            _ => {}
        }
    }
    sums
}

#[derive(Deserialize)]
struct RequestLine {
    dt_ns: Vec<i64>,
}

fn peer_requests(log: &[u8]) -> Sums {
    let mut sums = Sums::default();
    for line in log.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let request: RequestLine = serde_json::from_slice(line).unwrap();
        sums.requests += 1;
        sums.tokens += request.dt_ns.len() as u64;
        if let (Some(first), Some(last)) = (request.dt_ns.first(), request.dt_ns.last()) {
            sums.ttft_ns += *first as u128;
            sums.itl_ns += request.dt_ns.windows(2).map(|pair| (pair[1] - pair[0]) as u128).sum::<u128>();
            sums.e2e_ns += *last as u128;
        }
    }
    sums
}

fn compare(criterion: &mut Criterion, name: &str, log: &str, peer: fn(&[u8]) -> Sums) {
    let log = log.as_bytes();
    let expected = peer(log);
    assert!(expected.requests > IN_FLIGHT as u64 / 2 && expected.tokens > expected.requests);
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes(log.len() as u64));
    group.bench_function("tokenpulse", |bencher| {
        bencher.iter_batched(|| log.to_vec(), |log| assert_eq!(tokenpulse(log), expected), BatchSize::PerIteration);
    });
    group.bench_function("through a meter", |bencher| {
        bencher.iter_batched(
            || log.to_vec(),
            |log| assert_eq!(through_a_meter(log), expected),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("peer/serde_json", |bencher| {
        bencher.iter(|| assert_eq!(peer(log), expected));
    });
    group.finish();
}

fn main() {
    let mut criterion = criterion();
    let bytes = size(64_000_000, 1_000_000);
    compare(&mut criterion, "event lines", &event_lines(bytes), peer_events);
    compare(&mut criterion, "request lines", &request_lines(bytes), peer_requests);
    criterion.final_summary();
}
