//! Any bytes as a log: by shapes or the general way, whole or in chunks, by one or by two, it comes to the same.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tokenpulse_core::request::Metric;
use tokenpulse_core::slo::Slo;
use tokenpulse_core::strata::Key;
use tokenpulse_core::tally::{Counter, Settings};
use tokenpulse_io::{Reading, Source, reduce};

fn result(log: &[u8], reading: Reading) -> String {
    let slo = Slo {
        name: "slo".to_owned(),
        ttft_ns: 500,
        tpot_ns: 40,
        e2e_ns: None,
        itl_ns: Some(100),
        labels: [("tenant".to_owned(), "a".to_owned())].into(),
    };
    let settings = Settings {
        slos: Arc::from([slo]),
        by: vec![Key::Label("tenant".to_owned()), Key::OutputLength],
        timeline_ns: Some(1_000),
        ttl_ns: 1_000_000,
        ..Settings::default()
    };
    let reduced = reduce(vec![Source::Bytes("log".to_owned(), log.to_vec())], &settings, reading, |_, _| true);
    reduced.map_or_else(
        |failure| format!("{failure:?}"),
        |reduction| {
            let run = &reduction.run;
            format!(
                "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {} {:?}",
                reduction.inputs,
                reduction.newest,
                run.total(),
                run.classes().collect::<Vec<_>>(),
                run.timeline().map(|timeline| timeline.iter().collect::<Vec<_>>()),
                Metric::ALL.map(|metric| run.slowest(metric)),
                Counter::ALL.map(|counter| run.counter(counter)),
                run.flow(),
                run.grid(),
                run.clamped(),
                run.last_emission(),
            )
        },
    )
}

fuzz_target!(|log: &[u8]| {
    let expected = result(log, Reading { threads: 1, plain: true, chunk: 0 });
    for (threads, chunk) in [(1, 0), (1, 40), (2, 100)] {
        let found = result(log, Reading { threads, plain: false, chunk });
        assert_eq!(found, expected, "{threads} {chunk}");
    }
});
