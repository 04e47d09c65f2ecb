//! Logs of KV events and traces of block hashes: every form of line, every fault, numbered batches, several caches.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tokenpulse_core::kv::{Counter, Curve, Policy, Refused, Replay, Report, Settings, Span};
use tokenpulse_io::{Failure, KvContent, KvEvents, KvLog, Loss, Skip, Source, read_kv};

fn read_all(inputs: &[&[u8]], settings: &Settings) -> Result<KvLog, Failure> {
    let sources = inputs.iter().enumerate().map(|(at, bytes)| Source::Bytes(format!("input {at}"), bytes.to_vec()));
    read_kv(sources.collect(), settings, |_, _| true)
}

fn read(text: &str) -> KvLog {
    read_all(&[text.as_bytes()], &Settings::default()).unwrap()
}

fn events(log: &KvLog) -> &KvEvents {
    match &log.content {
        KvContent::Events(events) => events,
        KvContent::Trace(_) => panic!("a trace"),
    }
}

/// The counts that are not 0.
fn counts(log: &KvLog) -> Vec<(&'static str, u64)> {
    let counts = events(log).totals.counts;
    Counter::ALL.into_iter().zip(counts).filter(|&(_, n)| n > 0).map(|(counter, n)| (counter.name(), n)).collect()
}

fn refused(log: &KvLog) -> Vec<(&'static str, u64)> {
    let refused = events(log).totals.refused;
    Refused::ALL.into_iter().zip(refused).filter(|&(_, n)| n > 0).map(|(reason, n)| (reason.name(), n)).collect()
}

fn skipped(log: &KvLog) -> Vec<(&'static str, u64)> {
    let skipped = log.inputs[0].skipped;
    Skip::ALL.into_iter().map(|skip| (skip.name(), skipped[skip as usize])).filter(|&(_, n)| n > 0).collect()
}

#[test]
fn event_lines_of_ours() {
    let log = read(concat!(
        r#"{"t_ns":1,"ev":"kv_store","hashes":[1,18446744073709551615,-1],"tier":"gpu","group":0}"#,
        "\n\n",
        r#"{"hashes": [ 2 , "3", "-9223372036854775808"], "ev": "kv_store", "tier": "cpu", "t_ns": 2, "id": "x"}"#,
        "\n",
        r#"{"t_ns":3,"ev":"kv_store","hashes":["9223372036854775808"]}"#,
        "\n",
        r#"{"t_ns":9,"ev":"kv_evict","hashes":[1]}"#,
        "\n",
        r#"{"t_ns":1e1,"ev":"kv_store","hashes":[1],"tier":null,"group":null}"#,
        "\n",
        r#"{"t_ns":10,"ev":"kv_lookup","queried":374,"hit":128}"#,
        "\n",
        r#"{"t_ns":10,"ev":"kv_lookup","queried":5,"hit":5,"preempted":true}"#,
        "\n",
        r#"{"t_ns":11,"ev":"kv_clear"}"#,
        "\n",
        r#"{"t_ns":11,"ev":"gauge","running":3,"batch":8}"#,
        "\n",
        r#"{"ev":"tokens"}"#,
        "\n",
        r#"{"id":"r","arrive_ns":5}"#,
    ));
    // -1 is the hash before it; 2^63 is offloaded as -2^63 and then brought up.
    let expected = [
        ("stored", 3),
        ("repeated", 1),
        ("evicted", 1),
        ("refilled", 1),
        ("onloaded", 1),
        ("offloaded", 3),
        ("cleared", 1),
        ("lookups", 1),
        ("queried", 374),
        ("hit", 128),
        ("relookups", 1),
        ("requeried", 5),
        ("rehit", 5),
    ];
    assert_eq!(counts(&log), expected);
    let input = &log.inputs[0];
    assert_eq!((input.lines, input.events, input.passed, input.requests), (11, 8, 3, 0));
    assert_eq!((input.skipped, input.notices.len()), ([0; 11], 0));
    let events = events(&log);
    assert_eq!((events.caches, events.blocks, events.remembered), (1, 0, 0));
    assert_eq!((events.totals.first_event, events.totals.newest()), (Some(1), Some(11)));
    let gap = &events.totals.spans[Span::Gap as usize];
    assert_eq!((gap.count(), gap.sum_ns()), (1, 1));
}

#[test]
fn batches_in_every_encoding() {
    let stored = r#"["BlockStored",[7,8],null,[1,2,3],16,null,"CPU_TIERED",null,[null],3]"#;
    let log = read(&format!(
        "{}\n{}\n{}\n",
        format_args!(
            r#"{{"recv":1.5,"topic":"kv","seq":0,"batch":[1.000000001,[{{"medium":"GPU","token_ids":[1, 2, 300000],"block_hashes":[5, 18446744073709551615],"type":"BlockStored","group_idx":0}},{stored}],0]}}"#
        ),
        r#"{"topic":"kv","seq":1,"batch":{"events":[{"type":"BlockRemoved","block_hashes":[5],"medium":null},["BlockRemoved",[7],"cpu",3]],"ts":2,"data_parallel_rank":0}}"#,
        r#"{"topic":"kv","seq":2,"batch":[3,[["AllBlocksCleared"],{"type":"AllBlocksCleared"}],0,"more"]}"#,
    ));
    assert_eq!(counts(&log), [("stored", 2), ("evicted", 2), ("offloaded", 2), ("cleared", 2)]);
    assert_eq!((log.inputs[0].events, log.inputs[0].lines, skipped(&log)), (6, 3, vec![]));
    // Events that are alike are taken together, and others not.
    let alike = [r#"["BlockRemoved",[1]]"#, r#"["BlockStored",[1,2]]"#, r#"["BlockStored",[3],0,0,0,0,"cpu"]"#];
    let order = [1, 0, 0, 1, 1, 2, 2, 0].map(|event: usize| alike[event]).join(",");
    let together = read(&format!(r#"{{"batch":[1,[{order}]]}}"#));
    let expected = [("stored", 3), ("repeated", 4), ("evicted", 1), ("released", 1), ("refilled", 1), ("offloaded", 1)];
    assert_eq!((counts(&together), refused(&together)), (expected.to_vec(), vec![("unknown", 1)]));
    assert_eq!(together.inputs[0].events, 8);
    let totals = &events(&log).totals;
    assert_eq!((totals.first_event, totals.newest()), (Some(1_000_000_001), Some(3_000_000_000)));
    assert_eq!(totals.spans[Span::Lifetime as usize].sum_ns(), 2 * 999_999_999);
    assert_eq!(events(&log).loss, Loss::default());
}

#[test]
fn media_are_tiers() {
    let stored = |medium: &str| {
        let line = format!(r#"{{"batch":[1,[{{"type":"BlockStored","block_hashes":[1],"medium":{medium}}}]]}}"#);
        let log = read(&line);
        let resident = events(&log).resident;
        resident.iter().position(|&n| n == 1).ok_or(refused(&log))
    };
    for (medium, tier) in [
        ("null", 0),
        (r#""GPU""#, 0),
        (r#""gpu:0""#, 0),
        (r#""CPU""#, 1),
        (r#""cpu_pinned""#, 1),
        (r#""DISK""#, 2),
        (r#""Ssd""#, 2),
        (r#""nvme0""#, 2),
        (r#""FS""#, 2),
        (r#""file_system""#, 2),
        (r#""STORAGE""#, 2),
        (r#""Remote""#, 3),
        (r#""external_store""#, 3),
    ] {
        assert_eq!(stored(medium), Ok(tier), "{medium}");
    }
    for medium in [r#""tape""#, r#""""#, r#""gp""#] {
        assert_eq!(stored(medium), Err(vec![("tier", 1)]), "{medium}");
    }
}

#[test]
fn lines_at_fault_are_counted_by_reason() {
    let good = r#"{"t_ns":1,"ev":"kv_clear"}"#;
    let batch = |events: &str| format!(r#"{{"topic":"kv","batch":[1,[{events}],null]}}"#);
    let faults = [
        ("{", "not_json"),
        (r#"{"ev":"kv_clear","t_ns":1}}"#, "not_json"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":[01]}"#, "not_json"),
        (r#"{"ev":"kv_clear","t_ns":1,"token_ids":[1,2,]}"#, "not_json"),
        (r#"{"ev":"kv_clear","t_ns":1,"token_ids":[1 2]}"#, "not_json"),
        ("[1]", "not_object"),
        ("{}", "unknown_kind"),
        (r#"{"ev":"kv_move","t_ns":1}"#, "unknown_kind"),
        (r#"{"ev":7,"t_ns":1}"#, "unknown_kind"),
        (r#"{"ev":"kv_clear"}"#, "missing_field"),
        (r#"{"ev":"kv_store","t_ns":1}"#, "missing_field"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":null}"#, "missing_field"),
        (r#"{"ev":"kv_lookup","t_ns":1,"hit":1}"#, "missing_field"),
        (r#"{"ev":"kv_lookup","t_ns":1,"queried":1}"#, "missing_field"),
        (r#"{"ev":"kv_clear","t_ns":"1"}"#, "wrong_type"),
        (r#"{"ev":"kv_clear","t_ns":1.5}"#, "wrong_type"),
        (r#"{"ev":"kv_clear","t_ns":9223372036854775808}"#, "bad_value"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":7}"#, "wrong_type"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":[1,null]}"#, "wrong_type"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":[1.5]}"#, "wrong_type"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":["a"]}"#, "wrong_type"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":["+1"]}"#, "wrong_type"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":[1,"18446744073709551616"]}"#, "bad_value"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":[18446744073709551616]}"#, "bad_value"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":[-9223372036854775809]}"#, "bad_value"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":[1],"tier":1}"#, "wrong_type"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":[1],"group":"0"}"#, "wrong_type"),
        (r#"{"ev":"kv_store","t_ns":1,"hashes":[1],"group":1e30}"#, "bad_value"),
        (r#"{"ev":"kv_lookup","t_ns":1,"queried":1,"hit":[]}"#, "wrong_type"),
        (r#"{"ev":"kv_lookup","t_ns":1,"queried":1,"hit":1,"preempted":1}"#, "wrong_type"),
        (r#"{"batch":7}"#, "wrong_type"),
        (r#"{"topic":7,"batch":[1,[]]}"#, "wrong_type"),
        (r#"{"seq":"a","batch":[1,[]]}"#, "wrong_type"),
        (r#"{"batch":[]}"#, "missing_field"),
        (r#"{"batch":[null,[]]}"#, "missing_field"),
        (r#"{"batch":[1]}"#, "missing_field"),
        (r#"{"batch":[1,{}]}"#, "wrong_type"),
        (r#"{"batch":["1",[]]}"#, "wrong_type"),
        (r#"{"batch":[NaN,[]]}"#, "bad_value"),
        (r#"{"batch":[1e300,[]]}"#, "bad_value"),
        (r#"{"batch":[1,[],"0"]}"#, "wrong_type"),
        (&batch("7"), "wrong_type"),
        (&batch("{}"), "missing_field"),
        (&batch(r#"{"type":1}"#), "wrong_type"),
        (&batch(r#"{"type":"BlockMoved","block_hashes":[1]}"#), "unknown_kind"),
        (&batch(r#"{"type":"BlockStored"}"#), "missing_field"),
        (&batch(r#"{"type":"BlockStored","block_hashes":["ab"]}"#), "wrong_type"),
        (&batch(r#"{"type":"BlockStored","block_hashes":[1],"medium":0}"#), "wrong_type"),
        (&batch(r#"{"type":"BlockStored","block_hashes":[1],"group_idx":[]}"#), "wrong_type"),
        (&batch(r#"["BlockStored"]"#), "missing_field"),
    ];
    for (line, reason) in faults {
        let log = read(&format!("{good}\n{line}\n"));
        assert_eq!(skipped(&log), [(reason, 1)], "{line}");
        assert_eq!((log.inputs[0].lines, log.inputs[0].notices[0].line), (2, 2), "{line}");
        assert_eq!(counts(&log), [("cleared", 1)], "{line}");
    }
    let deep = format!("{good}\n{}{}\n", r#"{"x":"#, "[".repeat(200));
    assert_eq!(skipped(&read(&deep)), [("too_deep", 1)]);
    let log = read_all(&[b"{\"t_ns\":1,\"ev\":\"kv_clear\"}\n{\"x\":\"\xff\"}\n"], &Settings::default()).unwrap();
    assert_eq!(skipped(&log), [("not_utf8", 1)]);
    // What an unknown event stands beside is taken.
    let log = read(&batch(r#"["BlockMoved"],["BlockStored",[1]],["BlockMoved"]"#));
    assert_eq!((counts(&log), skipped(&log)), (vec![("stored", 1)], vec![("unknown_kind", 2)]));
}

#[test]
fn what_a_tracker_refuses_is_no_fault_of_the_line() {
    let log = read(concat!(
        r#"{"t_ns":-1,"ev":"kv_store","hashes":[1,2]}"#,
        "\n",
        r#"{"t_ns":1,"ev":"kv_store","hashes":[1],"tier":"moon"}"#,
        "\n",
        r#"{"t_ns":1,"ev":"kv_store","hashes":[1],"group":4096}"#,
        "\n",
        r#"{"t_ns":1,"ev":"kv_evict","hashes":[1,2,3]}"#,
        "\n",
        r#"{"t_ns":1,"ev":"kv_lookup","queried":3,"hit":4}"#,
        "\n",
        r#"{"t_ns":1,"ev":"kv_lookup","queried":-3,"hit":-4}"#,
        "\n",
        r#"{"t_ns":100000000000000,"ev":"kv_clear"}"#,
        "\n",
        r#"{"t_ns":3,"ev":"kv_evict","hashes":[1]}"#,
    ));
    assert_eq!(counts(&log), []);
    assert_eq!(refused(&log), [("negative", 2), ("future", 1), ("tier", 1), ("invalid", 3), ("unknown", 4)]);
    assert_eq!((log.inputs[0].events, skipped(&log)), (8, vec![]));
    // The first of each reason is named.
    let notices: Vec<_> = log.inputs[0].notices.iter().map(|notice| (notice.line, notice.reason)).collect();
    assert_eq!(notices, [(1, "negative"), (2, "tier"), (3, "invalid"), (4, "unknown"), (7, "future")]);
}

#[test]
fn a_line_is_one_reading_of_the_clock() {
    let batch = |t: i64| {
        format!("{{\"batch\":[{t},[[\"BlockStored\",[{t}]],[\"AllBlocksCleared\"],[\"BlockRemoved\",[1,2]]]]}}\n")
    };
    // More than a day ahead: all of it is refused. The second time in a row it is believed.
    let log = read(&[1, 100_000, 2].map(batch).concat());
    assert_eq!(refused(&log), [("future", 4), ("unknown", 4)]);
    assert_eq!(counts(&log), [("stored", 2), ("cleared", 2)]);
    let log = read(&[1, 100_000, 100_001].map(batch).concat());
    assert_eq!(
        (refused(&log), counts(&log)),
        (vec![("future", 4), ("unknown", 4)], vec![("stored", 2), ("cleared", 2)])
    );
    assert_eq!((log.inputs[0].events, events(&log).totals.newest()), (9, Some(100_001_000_000_000)));
}

/// A batch of one engine that stores block `seq`.
fn batch(topic: &str, rank: &str, seq: &str, event: &str) -> String {
    format!("{{\"topic\":\"{topic}\",\"seq\":{seq},\"batch\":[{seq},[[\"{event}\",[{seq}]]],{rank}]}}\n")
}

#[test]
fn numbers_of_batches_tell_what_was_lost() {
    let numbers = ["0", "1", "4", "5", "5", "2", "3", "7"];
    let log = read(&numbers.map(|seq| batch("kv", "0", seq, "BlockStored")).concat());
    assert_eq!(events(&log).loss, Loss { gaps: 2, batches: 5, restarts: 2 });
    let notices: Vec<_> = log.inputs[0].notices.iter().map(|notice| (notice.line, notice.reason)).collect();
    assert_eq!(notices, [(3, "gap"), (5, "restart"), (6, "restart"), (8, "gap")]);
    assert_eq!((counts(&log), skipped(&log)), (vec![("stored", 7), ("repeated", 1)], vec![]));
    // From the least to the greatest number.
    let ends = [-1, 0, i64::MAX].map(|seq| format!("{{\"seq\":{seq},\"batch\":[1,[]]}}\n")).concat();
    let log = read(&ends);
    assert_eq!(events(&log).loss, Loss { gaps: 1, batches: i64::MAX as u64 - 1, restarts: 0 });
    assert_eq!(skipped(&log), [("bad_value", 1)]);
}

#[test]
fn a_batch_at_fault_is_not_taken_for_lost() {
    let fault = r#"{"topic":"kv","seq":1,"batch":[1,[["BlockStored",["x"]]],0]}"#.to_owned() + "\n";
    let log = read(&[batch("kv", "0", "0", "BlockStored"), fault, batch("kv", "0", "2", "BlockStored")].concat());
    assert_eq!(events(&log).loss, Loss::default());
    assert_eq!((counts(&log), skipped(&log)), (vec![("stored", 2)], vec![("wrong_type", 1)]));
}

#[test]
fn a_publisher_that_begins_anew_has_an_empty_cache() {
    let line = |seq: i64, t: i64, event: &str| format!("{{\"seq\":{seq},\"batch\":[{t},[[\"{event}\",[7]]]]}}\n");
    let log = read(&[line(0, 1, "BlockStored"), line(1, 2, "BlockRemoved"), line(2, 3, "BlockStored")].concat());
    assert_eq!(counts(&log), [("stored", 2), ("evicted", 1), ("refilled", 1)]);
    // The block is computed again, though nothing removed it; what was evicted before is still remembered.
    let log = read(&[line(0, 1, "BlockStored"), line(0, 2, "BlockStored")].concat());
    assert_eq!(counts(&log), [("stored", 2), ("cleared", 1)]);
    let text = [line(0, 1, "BlockStored"), line(1, 2, "BlockRemoved"), line(0, 3, "BlockStored")].concat();
    assert_eq!(counts(&read(&text)), [("stored", 2), ("evicted", 1), ("refilled", 1), ("cleared", 1)]);
    // Two days later the first batch is not believed, and the second is the first of the new cache.
    let days = 200_000;
    let text = [line(0, 1, "BlockStored"), line(0, days, "BlockStored"), line(1, days + 1, "BlockStored")].concat();
    assert_eq!(counts(&read(&text)), [("stored", 2), ("cleared", 1)]);
    // Any other number that does not follow is only told of.
    let log = read(&[line(4, 1, "BlockStored"), line(3, 2, "BlockStored")].concat());
    assert_eq!(counts(&log), [("stored", 1), ("repeated", 1)]);
    assert_eq!(events(&log).loss.restarts, 1);
}

#[test]
fn each_publisher_is_a_cache() {
    let stored = ["0", "1", "null"].map(|rank| batch("kv", rank, "3", "BlockStored")).concat();
    let others = batch("other", "0", "3", "BlockStored") + r#"{"t_ns":1,"ev":"kv_store","hashes":[3]}"# + "\n";
    let removed = batch("kv", "1", "4", "BlockRemoved") + &batch("kv", "0", "3", "BlockRemoved");
    let text = stored + &others + &removed;
    let log = read(&text);
    assert_eq!(counts(&log), [("stored", 5), ("evicted", 1)]);
    assert_eq!(refused(&log), [("unknown", 1)]);
    let events_read = events(&log);
    assert_eq!((events_read.caches, events_read.blocks, events_read.remembered), (5, 4, 1));
    assert_eq!(events_read.resident, [4, 0, 0, 0]);
    assert_eq!(events_read.loss, Loss { gaps: 0, batches: 0, restarts: 1 });
    // Another file has other caches.
    let two = read_all(&[text.as_bytes(), text.as_bytes()], &Settings::default()).unwrap();
    assert_eq!(counts(&two), [("stored", 10), ("evicted", 2)]);
    assert_eq!((events(&two).caches, events(&two).blocks), (10, 8));
    assert_eq!(two.inputs.len(), 2);
    // There is an end to what one input may have.
    let many: String = (0..1_100).map(|rank| batch("kv", &rank.to_string(), "1", "BlockStored")).collect();
    let log = read(&many);
    assert_eq!((events(&log).caches, skipped(&log)), (1_024, vec![("bad_value", 1_100 - 1_024)]));
}

#[test]
fn settings_are_those_of_each_tracker() {
    let lines = "{\"t_ns\":1,\"ev\":\"kv_store\",\"hashes\":[1,1]}\n{\"t_ns\":2,\"ev\":\"kv_evict\",\"hashes\":[1]}\n";
    let with = |settings: Settings| counts(&read_all(&[lines.as_bytes()], &settings).unwrap());
    assert_eq!(with(Settings::default()), [("stored", 1), ("repeated", 1), ("released", 1)]);
    let full = Settings { report: Report::Full, remember: 0, ..Settings::default() };
    assert_eq!(with(full), [("stored", 1), ("repeated", 1), ("evicted", 1), ("forgotten", 1)]);
    let failed = read_all(&[lines.as_bytes()], &Settings { rate: Some(0.0), ..Settings::default() });
    assert!(matches!(failed, Err(Failure::Settings(_))));
}

#[test]
fn requests_with_block_hashes_are_a_trace() {
    let first = concat!(
        r#"{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 18446744073709551615]}"#,
        "\n",
        r#"{"hash_ids": ["7", -1, 0], "timestamp": 1.5}"#,
        "\n",
        r#"{"timestamp": 2e3, "input_length": null, "hash_ids": []}"#,
        "\n",
    );
    let second = concat!(
        r#"{"timestamp": -1, "hash_ids": [1]}"#,
        "\n",
        r#"{"timestamp": 1e300, "hash_ids": [1]}"#,
        "\n",
        r#"{"timestamp": NaN, "hash_ids": [1]}"#,
        "\n",
        r#"{"timestamp": 9223372036855, "hash_ids": [1]}"#,
        "\n",
        r#"{"timestamp": "1", "hash_ids": [1]}"#,
        "\n",
        r#"{"hash_ids": [1]}"#,
        "\n",
        r#"{"timestamp": 1, "hash_ids": 1}"#,
        "\n",
        r#"{"timestamp": 1, "hash_ids": [1], "input_length": -5}"#,
        "\n",
        r#"{"timestamp": 1, "hash_ids": [1, 0]}"#,
    );
    let log = read_all(&[first.as_bytes(), second.as_bytes()], &Settings::default()).unwrap();
    let KvContent::Trace(trace) = &log.content else { panic!("no trace") };
    assert_eq!((trace.first_ns(), trace.last_ns()), (Some(0), Some(2_000_000_000)));
    assert_eq!(trace.hashes(), [0, 1, u64::MAX, 7]);
    assert_eq!(trace.references(), [0, 1, 2, 3, 2, 0, 1, 0]);
    let requests: Vec<_> = trace.requests().map(|request| (request.t_ns, request.input_tokens)).collect();
    assert_eq!(requests, [(0, Some(1_100)), (1_500_000, None), (2_000_000_000, None), (1_000_000, None)]);
    assert_eq!((log.inputs[0].requests, log.inputs[1].requests), (3, 1));
    let skipped = log.inputs[1].skipped;
    let of = |skip: Skip| skipped[skip as usize];
    assert_eq!((of(Skip::BadValue), of(Skip::WrongType), of(Skip::MissingField)), (5, 2, 1));
}

#[test]
fn a_log_is_about_one_thing() {
    let event: &[u8] = b"{\"t_ns\":1,\"ev\":\"kv_clear\"}\n";
    let request: &[u8] = b"{\"timestamp\":1,\"hash_ids\":[1]}\n";
    let other: &[u8] = b"{\"id\":1,\"arrive_ns\":1}\n";
    let read = |inputs: &[&[u8]]| match read_all(inputs, &Settings::default()) {
        Ok(_) => "read".to_owned(),
        Err(Failure::Format(name, message)) => format!("{name}: {message}"),
        Err(other) => panic!("{other:?}"),
    };
    let both = "expected either KV events or block hashes, found events here and hashes in input";
    assert_eq!(read(&[event, request]), format!("input 0: {both} 1"));
    assert_eq!(read(&[&[event, request].concat()]), format!("input 0: {both} 0"));
    let none = "expected KV events or block hashes, found none";
    assert_eq!(read(&[b"x\n"]), format!("input 0: {none}; line 1: expected a JSON object"));
    assert_eq!(read(&[event, b"{}"]), format!("input 1: {none}; line 1: expected a field ev, batch or hash_ids"));
    for nothing in [&[other][..], &[b""], &[b"\n", b""]] {
        assert_eq!(read(nothing), format!("input 0: {none}"));
    }
    assert_eq!(read(&[b"", other, event]), "read");
    assert_eq!(read(&[b"", other, request]), "read");
}

#[test]
fn a_damaged_input_gives_what_came_before() {
    let lines = (0..20_000).map(|i| format!("{{\"t_ns\":{i},\"ev\":\"kv_store\",\"hashes\":[{i}]}}\n"));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    lines.for_each(|line| encoder.write_all(line.as_bytes()).unwrap());
    let packed = encoder.finish().unwrap();
    let whole = read_all(&[&packed], &Settings::default()).unwrap();
    assert_eq!((counts(&whole), skipped(&whole)), (vec![("stored", 20_000)], vec![]));
    let cut = read_all(&[&packed[..packed.len() / 2]], &Settings::default()).unwrap();
    assert_eq!(skipped(&cut), [("truncated", 1)]);
    assert_eq!(counts(&cut), [("stored", cut.inputs[0].lines)]);
    assert!(cut.inputs[0].lines > 1_000);
}

#[test]
fn the_reading_stops_when_it_is_told_to() {
    let lines = "{\"t_ns\":1,\"ev\":\"kv_clear\"}\n".repeat(40_000);
    let mut told = 0;
    let failed = read_kv(vec![Source::Bytes("log".into(), lines.into())], &Settings::default(), |done, total| {
        told += 1;
        assert!(done <= total);
        told < 2
    });
    assert!(matches!(failed, Err(Failure::Stopped)));
    assert_eq!(told, 2);
    let missing = read_kv(vec![Source::Path("no such file".into())], &Settings::default(), |_, _| true);
    assert!(matches!(missing, Err(Failure::Io(..))));
}

/// The published trace of conversations, and its curve.
fn mooncake() -> KvLog {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/mooncake_conversation.jsonl.gz");
    read_kv(vec![Source::Path(path.into())], &Settings::default(), |_, _| true).unwrap()
}

#[test]
fn a_sample_of_a_published_trace_gives_its_curve() {
    let log = mooncake();
    let KvContent::Trace(trace) = &log.content else { panic!("no trace") };
    assert_eq!((trace.references().len(), trace.distinct(), log.inputs[0].requests), (288_500, 182_790, 12_031));
    let exact = Curve::exact(trace);
    let steps = [10_u64, 12, 15, 20, 25, 30, 40, 50, 60, 80];
    let sizes = (0..5).flat_map(|power| steps.map(|step| step * 10_u64.pow(power)));
    let sizes: Vec<u64> = sizes.filter(|&size| size < 182_790).chain([182_790]).collect();
    assert_eq!(sizes.len(), 44);
    let rate = |part: f64, of: f64| if of > 0.0 { part / of } else { 0.0 };
    for (sampled, hit_bound, refill_bound) in [(0.1, 0.01, 0.005), (0.01, 0.03, 0.02)] {
        let errors = |seed| {
            let curve = Curve::sampled(trace, sampled, seed).unwrap();
            let mut sums = [0.0, 0.0];
            for &size in &sizes {
                let (exact, estimate) = (exact.at(size).unwrap(), curve.at(size).unwrap());
                sums[0] += (rate(exact.hits, 288_500.0) - rate(estimate.hits, 288_500.0)).abs();
                sums[1] += (rate(exact.refilled, exact.evicted) - rate(estimate.refilled, estimate.evicted)).abs();
            }
            sums.map(|sum| sum / sizes.len() as f64)
        };
        let errors: Vec<_> = (0..9).map(errors).collect();
        for (which, bound) in [hit_bound, refill_bound].into_iter().enumerate() {
            let mut errors: Vec<f64> = errors.iter().map(|errors| errors[which]).collect();
            errors.sort_by(f64::total_cmp);
            assert!(errors[4] <= bound, "{errors:?} at {sampled}");
        }
    }
}

#[test]
fn a_published_trace_replayed_is_a_point_of_its_curve() {
    let log = mooncake();
    let KvContent::Trace(trace) = &log.content else { panic!("no trace") };
    let curve = Curve::exact(trace);
    for blocks in [1, 24, 1_000, 30_000, 182_789, 182_790] {
        let replay = Replay { blocks: Some(blocks), policy: Policy::Lru, ..Replay::default() };
        let (replayed, point) = (replay.run(trace).unwrap(), curve.at(blocks).unwrap());
        let counted = |counter| replayed.totals.count(counter) as f64;
        assert_eq!(replayed.hits as f64, point.hits);
        assert_eq!((counted(Counter::Evicted), counted(Counter::Refilled)), (point.evicted, point.refilled));
    }
}

proptest! {
    /// Whatever stands there is read or refused, and nothing is taken that was refused.
    #[test]
    fn no_line_does_harm(
        text in r#"(\{|\}|\[|\]|,|:|"|"ev":"kv_(store|evict|lookup|clear)"|"t_ns":[0-9]{1,3}|"hashes":\[[0-9, "-]{0,40}\]|"batch":\[1,\[\["BlockStored",\[1\]\]\]|"hash_ids":\[1\]|[0-9]{1,22}|null|\n){0,60}"#,
    ) {
        let good = "{\"t_ns\":1,\"ev\":\"kv_clear\"}\n";
        match read_all(&[good.as_bytes(), text.as_bytes()], &Settings::default()) {
            Ok(log) => {
                let input = &log.inputs[1];
                prop_assert!(input.lines >= input.skipped.iter().sum::<u64>());
            }
            Err(failure) => prop_assert!(matches!(failure, Failure::Format(..))),
        }
    }
}
