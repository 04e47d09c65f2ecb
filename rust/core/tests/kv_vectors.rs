//! The neutral vectors of the KV cache: calls of a tracker, alone and within a meter, and what they come to.

use serde_json::{Map, Value, json};
use tokenpulse_core::kv::{Counter, REPLICATES, Refused, Report, Settings, Span, Tier, Totals, Tracker};
use tokenpulse_core::meter::{self, KvScope, Meter, Origin};
use tokenpulse_core::sketch::{Sketch, Store};

fn vectors(stem: &str) -> Value {
    let path = format!("{}/../../tests/vectors/{stem}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn settings_of(case: &Value) -> Settings {
    let given = &case["settings"];
    let mut settings = Settings::default();
    let count = |name: &str, default: u32| given[name].as_u64().map_or(default, |n| n as u32);
    settings.remember = count("remember", settings.remember);
    settings.max_blocks = count("max_blocks", settings.max_blocks);
    settings.ttl_ns = given["ttl_ns"].as_i64().unwrap_or(settings.ttl_ns);
    settings.report = given["report"].as_str().map_or(settings.report, |name| Report::from_name(name).unwrap());
    settings.rate = (given["mode"] == "sampled").then(|| given["rate"].as_f64().unwrap());
    settings
}

/// The hashes of a call; a negative one is its two's complement.
fn hashes_of(arguments: &Value) -> Vec<u64> {
    let word = |hash: &Value| hash.as_u64().unwrap_or_else(|| hash.as_i64().unwrap() as u64);
    match &arguments["hashes"] {
        Value::Object(repeated) => vec![word(&repeated["hash"]); repeated["times"].as_u64().unwrap() as usize],
        listed => listed.as_array().unwrap().iter().map(word).collect(),
    }
}

/// Whatever takes the calls of a cache.
trait Cache {
    fn store(&mut self, t: i64, hashes: &[u64], tier: Option<Tier>, group: i64);
    fn evict(&mut self, t: i64, hashes: &[u64], tier: Option<Tier>, group: i64);
    fn touch(&mut self, t: i64, hashes: &[u64], group: i64);
    fn lookup(&mut self, t: i64, queried: i64, hit: i64, preempted: bool);
    fn clear(&mut self, t: i64);

    /// What it shows at a moment, as the vectors name it.
    fn reading(&self, now: Option<i64>) -> Value;

    fn call(&mut self, call: &Value) {
        let (method, arguments) = (call[0].as_str().unwrap(), &call[1]);
        let t = arguments["t"].as_i64().unwrap();
        let int = |name: &str| arguments[name].as_i64().unwrap_or(0);
        let tier = arguments["tier"].as_str().map_or(Some(Tier::Gpu), Tier::from_name);
        match method {
            "store" => self.store(t, &hashes_of(arguments), tier, int("group")),
            "evict" => self.evict(t, &hashes_of(arguments), tier, int("group")),
            "touch" => self.touch(t, &hashes_of(arguments), int("group")),
            "lookup" => self.lookup(t, int("queried_tokens"), int("hit_tokens"), arguments["preempted"] == true),
            "clear" => self.clear(t),
            _ => panic!("no call is named {method}"),
        }
    }
}

/// A tracker that tells totals; it has no windows.
struct Alone(Tracker, Totals);

impl Cache for Alone {
    fn store(&mut self, t: i64, hashes: &[u64], tier: Option<Tier>, group: i64) {
        self.0.store(t, hashes, tier, group, &mut self.1);
    }
    fn evict(&mut self, t: i64, hashes: &[u64], tier: Option<Tier>, group: i64) {
        self.0.evict(t, hashes, tier, group, &mut self.1);
    }
    fn touch(&mut self, t: i64, hashes: &[u64], group: i64) {
        self.0.touch(t, hashes, group, &mut self.1);
    }
    fn lookup(&mut self, t: i64, queried: i64, hit: i64, preempted: bool) {
        self.0.lookup(t, queried, hit, preempted, &mut self.1);
    }
    fn clear(&mut self, t: i64) {
        self.0.clear(t, &mut self.1);
    }

    fn reading(&self, _: Option<i64>) -> Value {
        let Self(tracker, totals) = self;
        json!({
            "newest_ns": totals.newest(),
            "first_event_ns": totals.first_event,
            "resident": tiers(tracker.resident()),
            "blocks": tracker.blocks(),
            "remembered": tracker.remembered(),
            "rejected": named(Refused::ALL.map(|reason| (reason.name(), totals.refused[reason as usize]))),
            "clamped": totals.clamped,
            "total": block(&totals.counts, totals.spans.each_ref().map(sketch_figures), &totals.replicates),
        })
    }
}

impl Cache for Meter {
    fn store(&mut self, t: i64, hashes: &[u64], tier: Option<Tier>, group: i64) {
        self.kv_store(t, hashes, tier, group);
    }
    fn evict(&mut self, t: i64, hashes: &[u64], tier: Option<Tier>, group: i64) {
        self.kv_evict(t, hashes, tier, group);
    }
    fn touch(&mut self, t: i64, hashes: &[u64], group: i64) {
        self.kv_touch(t, hashes, group);
    }
    fn lookup(&mut self, t: i64, queried: i64, hit: i64, preempted: bool) {
        self.kv_lookup(t, queried, hit, preempted);
    }
    fn clear(&mut self, t: i64) {
        self.kv_clear(t);
    }

    fn reading(&self, now: Option<i64>) -> Value {
        let snapshot = self.reader().snapshot(now);
        let kv = snapshot.kv.unwrap();
        let scope =
            |scope: &KvScope| block(&scope.counts, scope.spans.each_ref().map(sketch_figures), &scope.replicates);
        let panes =
            |scope: &KvScope| scope.panes.iter().map(|pane| json!([pane.start, pane.evicted, pane.refilled])).collect();
        let windows = snapshot.windows.iter().zip(&kv.scopes[1..]).map(|(window, of_window)| {
            json!({
                "width_ns": window.width_ns,
                "true_width_ns": window.true_width_ns,
                "late": window.late,
                "block": scope(of_window),
                "panes": Value::Array(panes(of_window)),
            })
        });
        json!({
            "t_ns": snapshot.now,
            "newest_ns": snapshot.newest,
            "first_event_ns": snapshot.first_event,
            "resident": tiers(kv.tiers),
            "blocks": kv.blocks,
            "remembered": kv.remembered,
            "rejected": named(Refused::ALL.map(|reason| (reason.name(), kv.refused[reason as usize]))),
            "clamped": kv.clamped,
            "total": scope(&kv.scopes[0]),
            "windows": windows.collect::<Vec<_>>(),
        })
    }
}

fn tiers(blocks: [u64; 4]) -> Value {
    Tier::ALL.into_iter().map(|tier| (tier.name(), blocks[tier as usize])).collect()
}

/// An object of those that are not 0.
fn named<'a>(pairs: impl IntoIterator<Item = (&'a str, u64)>) -> Map<String, Value> {
    pairs.into_iter().filter(|&(_, n)| n > 0).map(|(name, n)| (name.to_owned(), n.into())).collect()
}

fn sketch_figures<S: Store>(sketch: &Sketch<S>) -> Option<Value> {
    (sketch.count() > 0).then(|| json!([sketch.count(), sketch.sum_ns() as u64, sketch.min_ns(), sketch.max_ns()]))
}

/// What was counted, without what is 0 or empty.
fn block(counts: &[u64; 16], spans: [Option<Value>; 3], replicates: &[u64; 3 * REPLICATES]) -> Value {
    let count = |counter: Counter| counts[counter as usize];
    let is_lookup = |counter: &Counter| *counter as usize >= Counter::Lookups as usize;
    let counted = Counter::ALL.into_iter().filter(|counter| !is_lookup(counter));
    let mut block = named(counted.map(|counter| (counter.name(), count(counter))));
    for [n, queried, hit] in
        [[Counter::Lookups, Counter::Queried, Counter::Hit], [Counter::Relookups, Counter::Requeried, Counter::Rehit]]
    {
        if count(n) > 0 {
            let figures = json!({"n": count(n), "queried": count(queried), "hit": count(hit)});
            block.insert(n.name().to_owned(), figures);
        }
    }
    for (span, figures) in Span::ALL.into_iter().zip(spans) {
        figures.into_iter().for_each(|figures| drop(block.insert(span.name().to_owned(), figures)));
    }
    let parts = replicates.chunks(3).enumerate().filter(|(_, part)| part.iter().any(|&n| n > 0));
    let parts: Map<String, Value> = parts.map(|(number, part)| (number.to_string(), json!(part))).collect();
    if !parts.is_empty() {
        block.insert("replicates".to_owned(), parts.into());
    }
    block.into()
}

/// What a reading has at a path such as `windows.0.block`.
fn at<'a>(reading: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(reading, |value, part| match part.parse::<usize>() {
        Ok(place) => value.get(place),
        Err(_) => value.get(part),
    })
}

/// Drives each case that needs no other events, and compares all that the cache shows. How many figures that was.
fn compare(make: impl Fn(&Value) -> Box<dyn Cache>) -> u32 {
    let vectors = vectors("kv");
    let mut compared = 0;
    for case in vectors["cases"].as_array().unwrap() {
        if case.get("meter").is_some() {
            continue;
        }
        let mut cache = make(case);
        case["calls"].as_array().unwrap().iter().for_each(|call| cache.call(call));
        for snapshot in case["snapshots"].as_array().unwrap() {
            let reading = cache.reading(snapshot["t"].as_i64());
            for (path, expected) in snapshot["expect"].as_object().unwrap() {
                if let Some(found) = at(&reading, path) {
                    assert_eq!(found, expected, "{path} of: {}", case["name"]);
                    compared += 1;
                }
            }
        }
    }
    compared
}

#[test]
fn cases_without_windows() {
    for make in [Tracker::new, Tracker::reserved] {
        let compared = compare(|case| {
            let tracker = make(settings_of(case)).unwrap();
            Box::new(Alone(tracker, Totals::new(6).unwrap()))
        });
        assert!(compared > 150, "{compared} figures compared");
    }
}

#[test]
fn cases_within_a_meter() {
    let compared = compare(|case| {
        let mut settings = meter::Settings { kv: Some(settings_of(case)), ..meter::Settings::default() };
        if let Some(widths) = case["settings"]["windows_ns"].as_array() {
            settings.windows_ns = widths.iter().map(|width| width.as_i64().unwrap()).collect();
        }
        Box::new(Meter::new(settings, Origin::default()).unwrap())
    });
    assert!(compared > 170, "{compared} figures compared");
}
