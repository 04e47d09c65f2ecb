//! However a log is read - by shapes or the general way, by one or by many, in chunks of any size - it comes to the
//! same, notices and all.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use tokenpulse_core::request::Metric;
use tokenpulse_core::sketch::ItlRule;
use tokenpulse_core::slo::Slo;
use tokenpulse_core::strata::Key;
use tokenpulse_core::tally::{Counter, Settings};
use tokenpulse_io::{Failure, Reading, Source, reduce};

/// All that a reading comes to, as text that can be compared.
fn result(log: &[u8], reading: Reading) -> String {
    let slo = |name: &str, label: Option<&str>| Slo {
        name: name.to_owned(),
        ttft_ns: 500,
        tpot_ns: 40,
        e2e_ns: Some(5_000),
        itl_ns: Some(100),
        labels: label.map(|label| ("tenant".to_owned(), label.to_owned())).into_iter().collect(),
    };
    let settings = Settings {
        itl_rule: ItlRule::Token,
        slos: Arc::from([slo("all", None), slo("one", Some("a"))]),
        by: vec![Key::Label("tenant".to_owned()), Key::PromptLength],
        timeline_ns: Some(1_000),
        ttl_ns: 1_000_000,
        ..Settings::default()
    };
    match reduce(vec![Source::Bytes("log".to_owned(), log.to_vec())], &settings, reading, |_, _| true) {
        Err(Failure::Format(name, found)) => format!("format {name} {found}"),
        Err(other) => panic!("{other:?}"),
        Ok(reduction) => {
            let run = &reduction.run;
            let classes: Vec<_> = run.classes().collect();
            let bins: Vec<_> = run.timeline().unwrap().iter().collect();
            let slowest: Vec<_> = Metric::ALL.iter().map(|&metric| run.slowest(metric)).collect();
            let counters: Vec<_> = Counter::ALL.iter().map(|&counter| run.counter(counter)).collect();
            format!(
                "{:?} {:?} {:?} {:?} {classes:?} {} {bins:?} {slowest:?} {counters:?} {} {:?} {:?} {:?}",
                reduction.inputs,
                reduction.newest,
                run.total(),
                run.first_arrival(),
                run.classes_over(),
                run.clamped(),
                run.last_emission(),
                run.flow(),
                run.grid(),
            )
        }
    }
}

/// That every way of reading gives what the general way gives.
fn check(log: &[u8]) {
    let expected = result(log, Reading { threads: 1, plain: true, ..Reading::default() });
    for (threads, plain, chunk) in [(1, false, 0), (1, false, 100), (3, false, 64), (2, true, 300), (2, false, 1)] {
        let found = result(log, Reading { threads, plain, chunk, ..Reading::default() });
        assert!(found == expected, "{threads} {plain} {chunk}\n{}\n{expected}\n{found}", String::from_utf8_lossy(log));
    }
}

/// A number as a log may bear it: mostly plain.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (0_u64..3_000).prop_map(|n| n.to_string()),
        4 => (0_u64..100).prop_map(|n| (1_764_380_000_000_000_000 + n).to_string()),
        1 => select(vec![
            "-1", "00", "01", "1.0", "1e3", "1E2", "2.5", "null", "true", "\"7\"", "NaN", "9223372036854775807",
            "9223372036854775808", "18446744073709551616", "1099511627777", "-0", "-7", "[1]", "", "-Infinity",
        ]).prop_map(str::to_owned),
    ]
}

fn numbers() -> impl Strategy<Value = String> {
    let comma = select(vec![",", ",", ",", ", ", ",  ", " ,"]);
    prop_oneof![
        8 => (prop::collection::vec(0_i64..300, 0..40), comma.clone()).prop_map(|(gaps, comma)| {
            let mut t = 0;
            let times = gaps.iter().map(|gap| { t += gap; t.to_string() });
            format!("[{}]", times.collect::<Vec<_>>().join(comma))
        }),
        1 => (prop::collection::vec(number(), 0..6), comma).prop_map(|(numbers, comma)| format!("[{}]", numbers.join(comma))),
        1 => number(),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => select(vec!["r1", "r2", "r3", "a", "tenant-with-a-name-longer-than-most", "é"]).prop_map(|text| format!("\"{text}\"")),
        1 => select(vec!["\"r\\u0031\"", "\"\\n\"", "\"r1", "\"\"", "7", "-7", "7.0", "null", "\"\u{1}\"", "\"a\\\"b\""]).prop_map(str::to_owned),
    ]
}

fn member() -> impl Strategy<Value = String> {
    let key = |names: &'static [&'static str]| select(names.to_vec());
    let numeric = key(&[
        "t_ns",
        "k",
        "prompt_tokens",
        "ctx",
        "arrive_ns",
        "arrival_mono_ns",
        "schedule_ns",
        "prefill_ns",
        "output_tokens",
        "first_token_ns",
        "last_token_ns",
        "end_ns",
        "other",
        "running",
    ]);
    let arrays = key(&["token_ns", "dt_ns", "n", "preempt_ns", "resume_ns", "hashes"]);
    prop_oneof![
        6 => (numeric, number()).prop_map(|(key, value)| format!("\"{key}\":{value}")),
        3 => (arrays, numbers()).prop_map(|(key, value)| format!("\"{key}\":{value}")),
        2 => text().prop_map(|value| format!("\"id\":{value}")),
        1 => select(vec!["stop", "length", "abort", "lost", "x"]).prop_map(|name| format!("\"status\":\"{name}\"")),
        1 => select(vec!["true", "false", "null", "1"]).prop_map(|value| format!("\"degraded\": {value}")),
        2 => (text(), select(vec!["tenant", "model"])).prop_map(|(value, key)| format!("\"labels\":{{\"{key}\":{value}}}")),
        1 => Just("\"labels\":{\"tenant\":1,\"x\":true,\"y\":null}".to_owned()),
        1 => Just("\"nested\":{\"a\":[1,{\"b\":[]}]}".to_owned()),
    ]
}

/// A line of some kind, with members that fit it and some that do not.
fn line() -> impl Strategy<Value = String> {
    let kind = prop_oneof![
        4 => (number(), text(), select(vec!["tokens", "tokens", "schedule", "prefill", "preempt", "resume", "gauge", "x"]))
            .prop_map(|(t, id, ev)| vec![format!("\"t_ns\":{t}"), format!("\"id\":{id}"), format!("\"ev\":\"{ev}\"")]),
        2 => (number(), text(), select(vec!["stop", "error"])).prop_map(|(t, id, status)| {
            vec![format!("\"t_ns\":{t}"), format!("\"id\":{id}"), "\"ev\":\"end\"".into(), format!("\"status\":\"{status}\"")]
        }),
        2 => (0_u32..5_000, text(), text()).prop_map(|(t, id, tenant)| {
            vec![format!("\"t_ns\":{t}"), format!("\"id\":{id}"), "\"ev\":\"arrive\"".into(), format!("\"labels\":{{\"tenant\":{tenant}}}")]
        }),
        3 => (text(), 0_u32..5_000, select(vec!["token_ns", "dt_ns"]), numbers()).prop_map(|(id, t, key, times)| {
            vec![format!("\"id\":{id}"), format!("\"arrive_ns\":{t}"), format!("\"{key}\":{times}")]
        }),
        1 => Just(Vec::new()),
    ];
    let style = select(vec![(",", ""), (",", ""), (", ", ""), (",", "\r"), (" , ", "  ")]);
    let more = prop::collection::vec(member(), 0..3);
    let odd = prop_oneof![
        20 => Just(None),
        1 => select(vec!["", "   ", "[]", "{", "nonsense", "{}", "{\"ev\":\"tokens\"}", "\u{feff}{}", "1"]).prop_map(Some),
    ];
    (kind, prop_oneof![3 => Just(Vec::new()), 1 => more], style, odd).prop_map(
        |(mut members, more, (comma, end), odd)| {
            members.extend(more);
            odd.map_or_else(|| format!("{{{}}}{end}", members.join(comma)), str::to_owned)
        },
    )
}

/// Lines that are much like those before: what shapes live on.
fn log() -> impl Strategy<Value = Vec<u8>> {
    let repeats = (line(), 1_usize..6, prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2));
    let flip = prop_oneof![6 => Just(false), 1 => Just(true)];
    (prop::collection::vec((repeats, flip), 0..20), any::<bool>()).prop_map(|(groups, ends)| {
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for ((line, times, changes), flips) in groups {
            lines.extend(std::iter::repeat_n(line.clone().into_bytes(), times));
            let mut changed = line.into_bytes();
            for (place, byte) in changes {
                if flips && !changed.is_empty() {
                    let at = place.index(changed.len());
                    changed[at] = byte;
                }
            }
            lines.push(changed);
        }
        let mut log = lines.join(&b'\n');
        if ends {
            log.push(b'\n');
        }
        log
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_way_of_reading_gives_the_same(log in log()) {
        check(&log);
    }
}

#[test]
fn many_chunks_are_applied_in_their_order() {
    let mut log = String::new();
    for i in 0..60_000_u64 {
        let (t, id) = (i * 100, i / 3);
        let line = match i % 3 {
            0 => {
                format!("{{\"t_ns\":{t},\"id\":{id},\"ev\":\"arrive\",\"labels\":{{\"tenant\":\"t{}\"}}}}\n", id % 300)
            }
            1 => format!("{{\"t_ns\":{t},\"id\":\"{id}\",\"ev\":\"tokens\",\"k\":{}}}\n", 1 + i % 2),
            _ => format!("{{\"t_ns\":{t},\"id\":\"{id}\",\"ev\":\"end\",\"status\":\"stop\"}}\n"),
        };
        log.push_str(&line);
    }
    let expected = result(log.as_bytes(), Reading { threads: 1, plain: true, ..Reading::default() });
    assert!(!expected.contains("unknown"));
    for threads in [1, 2, 4] {
        for chunk in [0, 5_000] {
            assert!(
                result(log.as_bytes(), Reading { threads, chunk, ..Reading::default() }) == expected,
                "{threads} {chunk}"
            );
        }
    }
}
