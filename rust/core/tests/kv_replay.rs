//! Replays against caches that are plain lists, and curves against replays at every size.

use proptest::collection::vec;
use proptest::prelude::*;
use tokenpulse_core::kv::{
    BLOCK_TOKENS, Counter, Curve, Policy, Replay, Replayed, Settings, Span, Tier, Totals, Trace, TraceBuilder, Tracker,
};

/// A resident block of a plain cache: what it was stored as, when it was used last, how often, and whether it is in the
/// long queue of S3-FIFO. Times are numbers of references.
#[derive(Clone, Copy)]
struct Entry {
    block: u64,
    used: usize,
    uses: u32,
    main: bool,
}

/// A cache as a list, the block that has stood longest first.
struct Plain {
    policy: Policy,
    room: usize,
    entries: Vec<Entry>,
    ghost: Vec<u64>,
}

impl Plain {
    fn new(policy: Policy, room: usize) -> Self {
        Self { policy, room, entries: Vec::new(), ghost: Vec::new() }
    }

    fn main_room(&self) -> usize {
        self.room - (self.room / 10).max(1)
    }

    fn in_queue(&self, main: bool) -> usize {
        self.entries.iter().filter(|entry| entry.main == main).count()
    }

    fn hit(&mut self, block: u64, now: usize) -> bool {
        let found = self.entries.iter_mut().find(|entry| entry.block == block);
        found.map(|entry| (entry.used, entry.uses) = (now, entry.uses + 1)).is_some()
    }

    /// The victim, if one must leave.
    fn store(&mut self, block: u64, now: usize) -> Option<u64> {
        let victim = (self.entries.len() == self.room).then(|| match self.policy {
            Policy::Lru => self.least_by(|entry| (entry.used, 0)),
            Policy::Fifo => self.entries.remove(0).block,
            Policy::Lfu => self.least_by(|entry| (entry.uses as usize, entry.used)),
            Policy::S3Fifo => self.evict_s3(),
        });
        let remembered = self.ghost.iter().position(|&ghost| ghost == block).map(|at| self.ghost.remove(at));
        self.entries.push(Entry { block, used: now, uses: 0, main: remembered.is_some() });
        victim
    }

    fn least_by(&mut self, key: impl Fn(&Entry) -> (usize, usize)) -> u64 {
        let (at, _) = self.entries.iter().enumerate().min_by_key(|(_, entry)| key(entry)).unwrap();
        self.entries.remove(at).block
    }

    fn pop(&mut self, main: bool) -> Entry {
        let at = self.entries.iter().position(|entry| entry.main == main).unwrap();
        self.entries.remove(at)
    }

    fn evict_s3(&mut self) -> u64 {
        if self.in_queue(false) >= self.room - self.main_room() {
            while self.in_queue(false) > 0 {
                let entry = self.pop(false);
                if entry.uses <= 1 {
                    self.ghost.push(entry.block);
                    if self.ghost.len() > self.main_room() {
                        self.ghost.remove(0);
                    }
                    return entry.block;
                }
                self.entries.push(Entry { uses: 0, main: true, ..entry });
                if self.in_queue(true) > self.main_room() {
                    break;
                }
            }
        }
        loop {
            let entry = self.pop(true);
            if entry.uses == 0 {
                return entry.block;
            }
            self.entries.push(Entry { uses: entry.uses.min(3) - 1, ..entry });
        }
    }
}

/// A replay with a plain cache, event by event.
fn plainly(requests: &[Vec<u64>], policy: Policy, room: u64, settings: Settings) -> (u64, Totals, Tracker) {
    let mut cache = Plain::new(policy, room as usize);
    let mut tracker = Tracker::new(Settings { max_blocks: Settings::unlimited().max_blocks, ..settings }).unwrap();
    let mut totals = Totals::new(6).unwrap();
    let (mut now, mut hits) = (0, 0);
    for (request, t) in requests.iter().zip(times(requests.len())) {
        for &block in request {
            now += 1;
            if cache.hit(block, now) {
                hits += 1;
                tracker.touch(t, &[block], 0, &mut totals);
            } else {
                tracker.store(t, &[block], Some(Tier::Gpu), 0, &mut totals);
                if let Some(victim) = cache.store(block, now) {
                    tracker.evict(t, &[victim], Some(Tier::Gpu), 0, &mut totals);
                }
            }
        }
    }
    (hits, totals, tracker)
}

/// Times that mostly grow, and now and then go back.
fn times(n: usize) -> impl Iterator<Item = i64> {
    (0..n as i64).map(|i| 1_000_000 * (i + 10) - if i % 7 == 3 { 4_500_000 } else { 0 })
}

fn trace(requests: &[Vec<u64>]) -> Trace {
    let mut builder = TraceBuilder::default();
    for (request, t) in requests.iter().zip(times(requests.len())) {
        builder.push(t, request, None).unwrap();
    }
    builder.finish()
}

fn replay(trace: &Trace, policy: Policy, blocks: Option<u64>, settings: Settings) -> Replayed {
    Replay { blocks, policy, settings, ..Replay::default() }.run(trace).unwrap()
}

fn figures(totals: &Totals) -> (Vec<u64>, Vec<Vec<u8>>, u64, Vec<u64>) {
    let spans = totals.spans.iter().map(tokenpulse_core::sketch::Sketch::to_bytes).collect();
    (totals.counts.to_vec(), spans, totals.clamped, totals.refused.to_vec())
}

/// Requests over few blocks, some of which are asked for far more often; hashes use all bits.
fn requests() -> impl Strategy<Value = Vec<Vec<u64>>> {
    let block = prop_oneof![0..6_u64, 0..40_u64].prop_map(|block| block.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    vec(vec(block, 0..12), 1..60)
}

fn settings() -> impl Strategy<Value = Settings> {
    let (remember, ttl_ns) = (prop_oneof![0..20_u32, Just(u32::MAX)], prop_oneof![1..20_000_000_i64, Just(i64::MAX)]);
    (remember, ttl_ns).prop_map(|(remember, ttl_ns)| {
        let most = Settings::unlimited();
        Settings { remember: remember.min(most.remember), ttl_ns, ..most }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn replays_are_those_of_plain_lists(requests in requests(), settings in settings(), blocks in 1..45_u64) {
        let trace = trace(&requests);
        for policy in Policy::ALL {
            let replayed = replay(&trace, policy, Some(blocks), settings);
            let (hits, totals, tracker) = plainly(&requests, policy, blocks, settings);
            prop_assert_eq!(replayed.hits, hits, "{:?}", policy);
            prop_assert_eq!(replayed.lookups, requests.iter().map(|request| request.len() as u64).sum::<u64>());
            prop_assert_eq!(figures(&replayed.totals), figures(&totals), "{:?}", policy);
            prop_assert_eq!(replayed.totals.count(Counter::Touched), hits);
            prop_assert_eq!(replayed.totals.refused, [0; 6]);
            prop_assert_eq!((replayed.blocks, replayed.remembered), (tracker.blocks(), tracker.remembered()));
        }
    }

    #[test]
    fn a_curve_is_the_replays_of_every_size(requests in requests()) {
        let trace = trace(&requests);
        // A sample of everything is no other curve.
        let curves = [Curve::exact(&trace), Curve::sampled(&trace, 1.0, 3).unwrap()];
        let (mut heights, mut rates) = (Vec::new(), Vec::new());
        for blocks in 1..=u64::from(trace.distinct().max(1)) + 2 {
            let replayed = replay(&trace, Policy::Lru, Some(blocks), Settings::unlimited());
            let (evicted, refilled) =
                (replayed.totals.count(Counter::Evicted), replayed.totals.count(Counter::Refilled));
            for curve in &curves {
                let point = curve.at(blocks).unwrap();
                prop_assert_eq!(
                    (point.hits, point.evicted, point.refilled),
                    (replayed.hits as f64, evicted as f64, refilled as f64)
                );
            }
            if blocks <= u64::from(trace.distinct()) {
                heights.push(replayed.hits as i64);
                rates.push((evicted, refilled));
            }
        }
        let n = heights.len() as i64;
        let height = |&size: &i64| heights[size as usize - 1] * n - size * heights[heights.len() - 1];
        // Of equal ones `max_by_key` gives the last.
        let knee = (1..=n).rev().max_by_key(height).map(|size| size as u64);
        let under = |part, of| {
            let fails = rates.iter().rposition(|&(evicted, refilled)| evicted > 0 && refilled * of >= evicted * part);
            (!rates.is_empty()).then(|| fails.map_or(1, |at| at as u64 + 2))
        };
        for curve in &curves {
            prop_assert_eq!(curve.knee(), knee);
            prop_assert_eq!(curve.refill_under(1, 20), under(1, 20));
            prop_assert_eq!(curve.refill_under(3, 20), under(3, 20));
        }
    }

    #[test]
    fn a_sampled_curve_keeps_its_bounds(requests in requests(), rate in 0.001..1.0_f64, seed: u64) {
        let trace = trace(&requests);
        let curve = Curve::sampled(&trace, rate, seed).unwrap();
        let references = trace.references().len() as f64;
        let (mut hits, mut refilled) = (0.0, f64::INFINITY);
        for blocks in (1..100).chain([1 << 40, u64::MAX]) {
            let point = curve.at(blocks).unwrap();
            prop_assert!(hits <= point.hits && point.hits <= references);
            prop_assert!(0.0 <= point.refilled && point.refilled <= refilled && point.refilled <= point.evicted);
            (hits, refilled) = (point.hits, point.refilled);
        }
        let last = curve.at(u64::MAX).unwrap();
        prop_assert_eq!((last.evicted, last.refilled), (0.0, 0.0));
        prop_assert!(curve.knee().is_some() == (references > 0.0));
    }
}

#[test]
fn without_a_size_there_is_room_for_everything() {
    let trace = trace(&[vec![1, 2, 3], vec![1, 2, 4]]);
    for policy in Policy::ALL {
        let replayed = replay(&trace, policy, None, Settings::unlimited());
        assert_eq!((replayed.lookups, replayed.hits, replayed.blocks), (6, 2, 4));
        assert_eq!(replayed.totals.count(Counter::Evicted), 0);
        let one = replay(&trace, policy, Some(1), Settings::unlimited());
        assert_eq!((one.hits, one.blocks, one.remembered), (0, 1, 3));
        assert_eq!(one.totals.spans[Span::Gap as usize].count(), 2);
    }
}

#[test]
fn the_last_block_has_what_is_left_of_the_prompt() {
    let mut builder = TraceBuilder::default();
    // 2 blocks and a part; 3 whole ones; more than fits; less than two; a length that is not known.
    for (t, tokens) in [(0, Some(1_100)), (1, Some(1_536)), (2, Some(2_000)), (3, Some(1_000)), (4, None)] {
        builder.push(t, &[1, 2, 3], tokens).unwrap();
    }
    builder.push(5, &[], Some(300)).unwrap();
    let replayed = replay(&builder.finish(), Policy::Lru, None, Settings::unlimited());
    assert_eq!((replayed.queried_tokens, replayed.hit_tokens), (1_100 + 4 * 1_536, 4 * 1_536));
}

#[test]
fn nothing_at_all_is_a_trace() {
    let trace = Trace::default();
    assert_eq!((trace.first_ns(), trace.last_ns(), trace.distinct()), (None, None, 0));
    for policy in Policy::ALL {
        assert_eq!(replay(&trace, policy, Some(3), Settings::unlimited()).lookups, 0);
    }
    for curve in [Curve::exact(&trace), Curve::sampled(&trace, 0.01, 0).unwrap()] {
        assert_eq!((curve.knee(), curve.refill_under(1, 20)), (None, None));
        let point = curve.at(7).unwrap();
        assert_eq!((point.hits, point.evicted, point.refilled), (0.0, 0.0, 0.0));
    }
}

#[test]
fn what_is_out_of_range_is_refused() {
    let trace = trace(&[vec![1, 2]]);
    let fails = |replay: Replay| replay.run(&trace).unwrap_err().to_string();
    assert_eq!(fails(Replay { blocks: Some(0), ..Replay::default() }), "blocks must be at least 1, got 0");
    assert!(fails(Replay { block_tokens: 0, ..Replay::default() }).starts_with(BLOCK_TOKENS.name));
    let settings = Settings { ttl_ns: 0, ..Settings::unlimited() };
    assert!(Replay { settings, ..Replay::default() }.run(&trace).is_err());
    assert!(Curve::exact(&trace).at(0).is_err());
    for rate in [0.0, -0.5, 1.001, f64::NAN, f64::INFINITY] {
        assert!(Curve::sampled(&trace, rate, 0).is_err(), "{rate}");
    }
    assert!(TraceBuilder::default().push(-1, &[1], None).is_err());
}
