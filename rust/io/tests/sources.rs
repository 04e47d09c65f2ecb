//! Compressed inputs give what plain ones give; damaged ones give what came before the damage, and are counted.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use tokenpulse_core::sketch::ItlRule;
use tokenpulse_core::tally::Settings;
use tokenpulse_io::{Failure, Reading, Reduction, Skip, Source, reduce};

fn log(requests: u64) -> Vec<u8> {
    let lines = (0..requests).map(|i| {
        let t = 1_000_000 * i;
        format!("{{\"id\":{i},\"arrive_ns\":{t},\"token_ns\":[{},{}]}}\n", t + 700 + i, t + 1_900 + 3 * i)
    });
    lines.collect::<String>().into_bytes()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

fn read(bytes: Vec<u8>) -> Result<Reduction, Failure> {
    let settings = Settings {
        scale: 6,
        itl_rule: ItlRule::Token,
        slos: Arc::from([]),
        by: Vec::new(),
        timeline_ns: None,
        ..Settings::default()
    };
    reduce(vec![Source::Bytes("log".into(), bytes)], &settings, Reading::default(), |_, _| true)
}

fn latency(reduction: &Reduction) -> Vec<Vec<u8>> {
    reduction.run.total().latency.iter().map(tokenpulse_core::sketch::Sketch::to_bytes).collect()
}

#[test]
fn compressed_inputs_are_the_plain_ones() {
    let plain = log(5_000);
    let expected = read(plain.clone()).unwrap();
    assert_eq!(expected.run.total().attempted, 5_000);
    let cut = plain.len() / 3;
    let skippable = [b"\x50\x2a\x4d\x18\x03\0\0\0abc".to_vec(), zstd(&plain)].concat();
    for packed in [
        gzip(&plain),
        zstd(&plain),
        skippable,
        // Several members, several frames: the cut may fall within a line.
        [gzip(&plain[..cut]), gzip(&plain[cut..])].concat(),
        [zstd(&plain[..cut]), zstd(&plain[cut..])].concat(),
    ] {
        let reduction = read(packed).unwrap();
        assert_eq!(latency(&reduction), latency(&expected));
        assert_eq!(reduction.inputs[0].lines, 5_000);
        assert_eq!(reduction.inputs[0].skipped, [0; 11]);
    }
}

#[test]
fn what_came_before_the_damage_counts() {
    let plain = log(20_000);
    for packed in [gzip(&plain), zstd(&plain)] {
        for keep in [packed.len() - 1, packed.len() / 2] {
            let reduction = read(packed[..keep].to_vec()).unwrap();
            let input = &reduction.inputs[0];
            assert_eq!(input.skipped[Skip::Truncated as usize], 1);
            assert_eq!(input.notices.last().unwrap().reason, "truncated");
            let attempted = reduction.run.total().attempted;
            assert_eq!(attempted, input.lines);
            assert!(attempted > 0 && attempted <= 20_000, "{attempted} of {keep} bytes");
        }
    }
}

#[test]
fn members_of_a_gzip_file_may_be_padded_with_zeros() {
    let (first, second) = (log(3), log(2));
    let expected = read([&first[..], &second].concat()).unwrap();
    let padding = vec![0; 700];
    for packed in
        [[&gzip(&first)[..], &padding, &gzip(&second)].concat(), [&gzip(&first)[..], &gzip(&second), &padding].concat()]
    {
        let found = read(packed).unwrap();
        assert_eq!(found.inputs[0].skipped, expected.inputs[0].skipped);
        assert_eq!(found.inputs[0].lines, 5);
        assert_eq!(latency(&found), latency(&expected));
    }
}

#[test]
fn a_later_member_counts_up_to_its_damage() {
    let first = gzip(&log(3));
    let second = gzip(&log(5_000));
    let mut before = 0;
    for cut in [20, 60, 300, second.len() / 2, second.len() - 9] {
        let damaged = [&first[..], &second[..cut], &[0xff; 40]].concat();
        let truncated = [&first[..], &second[..cut]].concat();
        for packed in [damaged, truncated] {
            let found = read(packed).unwrap();
            assert_eq!(found.inputs[0].skipped[Skip::Truncated as usize], 1, "{cut}");
            assert!(found.inputs[0].lines >= before.max(3), "{cut}");
            before = before.max(found.inputs[0].lines);
        }
    }
    assert!(before > 5_000);
}

#[test]
fn nothing_but_damage_is_an_unknown_format() {
    for bytes in [b"\x1f\x8bnot gzip".to_vec(), b"\x28\xb5\x2f\xfdnot zstd".to_vec(), vec![0; 100]] {
        assert!(matches!(read(bytes), Err(Failure::Format(..))));
    }
}

#[test]
fn lines_longer_than_are_read_are_passed_over() {
    let good = log(1);
    for (length, skipped) in [((64 << 20) - 1, 0), ((64 << 20) + 1, 1), (150 << 20, 1)] {
        let mut long = b"{\"ev\":\"ready\",\"t_ns\":1,\"x\":\"".to_vec();
        long.resize(length - 2, b'x');
        long.extend(b"\"}");
        let reduction = read([&good[..], &long, b"\n", &good].concat()).unwrap();
        assert_eq!(reduction.inputs[0].skipped[Skip::TooLong as usize], skipped, "{length}");
        assert_eq!(reduction.run.total().attempted, 2);
        let at_the_end = read([&good[..], &long].concat()).unwrap();
        assert_eq!(at_the_end.inputs[0].skipped[Skip::TooLong as usize], skipped, "{length}");
    }
}
