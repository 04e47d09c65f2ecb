//! The meter from outside: what it counts, that it allocates nothing while it counts, and what readers see meanwhile.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokenpulse_core::meter::{Increment, Memory, Meter, Named, Origin, Reader, Settings, SloSet, Snapshot};
use tokenpulse_core::request::{Metric, Status};
use tokenpulse_core::slo::Slo;

const SECOND: i64 = 1_000_000_000;

/// Counts what the current thread allocates.
struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

#[allow(unsafe_code, reason = "an allocator is unsafe by nature")]
// SAFETY: every call is the system allocator's own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn slo(name: &str, ttft_ns: i64, tpot_ns: i64, itl_ns: Option<i64>) -> SloSet {
    let slo = Slo { name: name.to_owned(), ttft_ns, tpot_ns, e2e_ns: None, itl_ns, labels: Vec::new() };
    SloSet { slo, objective: 0.99 }
}

fn four_sets() -> Vec<SloSet> {
    (1..=4).map(|n| slo(&format!("s{n}"), n * SECOND / 10, n * SECOND / 100, Some(n * SECOND / 20))).collect()
}

/// A generator of numbers that is the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// An engine's life in random steps; every kind of call is among them.
fn live(meter: &Meter, seed: u64, steps: usize, handles: &mut Vec<i64>, t: &mut i64) {
    let mut numbers = Numbers(seed);
    for _ in 0..steps {
        *t += numbers.next(20_000_000) as i64;
        let class = numbers.next(2) as u32;
        match numbers.next(16) {
            0..=2 if handles.len() < handles.capacity() => {
                handles.push(meter.arrive(*t, numbers.next(1000) as i64, 0, class));
            }
            3 if !handles.is_empty() => {
                let at = numbers.next(handles.len() as u64) as usize;
                let handle = handles.swap_remove(at);
                let status = Status::ALL[numbers.next(7) as usize];
                meter.end(*t, &[handle], status, numbers.next(5) == 0);
            }
            4 => meter.schedule(*t, handles),
            5 => meter.preempt(*t, &handles[..handles.len().min(2)]),
            6 => meter.resume(*t, &handles[..handles.len().min(3)]),
            7 => meter.prefill(*t, handles),
            8 => {
                let counts = [numbers.next(4) as i64, 2, -1, 300];
                let n = handles.len().min(4);
                meter.step(*t, &handles[..n], Some(&counts[..n]));
            }
            9 => meter.gauge(*t, [Some(handles.len() as i64), None, Some(7), Some(100), None]),
            10 => {
                let flops = Some(Increment::Float(1e12));
                meter.add(*t, [Some(Increment::Int(5)), None, None, None, None, flops, None]);
            }
            11 => meter.count(*t, Named::OomEvent, 1, class),
            12 => meter.step(*t - 3 * SECOND, handles, None),
            13 => meter.step(*t, &[-1, i64::MAX, 0, i64::MIN], None),
            14 => meter.observe(None, Metric::Itl, class, &[1 << 20, 0, 5 << 30, 7], [0; 4]),
            _ => meter.step(*t, handles, None),
        }
    }
}

#[test]
fn counting_allocates_nothing() {
    let settings = Settings { slos: four_sets(), max_requests: 64, ..Settings::default() };
    let meter = Meter::new(settings, Origin::default()).unwrap();
    meter.classify(None, &[("tenant", "a")]).unwrap();
    let (mut handles, mut t) = (Vec::with_capacity(64), SECOND);
    meter.step(t, &[], None);
    let before = ALLOCATIONS.get();
    live(&meter, 1, 20_000, &mut handles, &mut t);
    t += 7200 * SECOND;
    live(&meter, 2, 20_000, &mut handles, &mut t);
    assert_eq!(ALLOCATIONS.get() - before, 0);
    let snapshot = meter.reader().snapshot(None);
    assert!(snapshot.all.scopes[0].block.attempted > 1000 && ALLOCATIONS.get() > before);
    assert!(snapshot.all.scopes[0].block.status(Status::Lost) > 0, "some were left alone for two hours");
}

#[test]
fn nothing_that_it_is_told_makes_it_panic() {
    let settings =
        Settings { slos: four_sets(), max_requests: 8, windows_ns: vec![60, 600, 6_000_000], ..Settings::default() };
    let meter = Meter::new(settings, Origin::default()).unwrap();
    let mut numbers = Numbers(5);
    let odd = [0, 1, -1, i64::MAX, i64::MIN, 1 << 32, (1 << 32) | 1, 59, 60, 61, 4 << 40];
    let mut handles = vec![-1];
    for _ in 0..200_000 {
        let any = odd[numbers.next(odd.len() as u64) as usize];
        let t = if numbers.next(3) == 0 { any.max(0) } else { numbers.next(1 << 40) as i64 };
        let handle = handles[numbers.next(handles.len() as u64) as usize];
        match numbers.next(10) {
            0 => {
                let handle = meter.arrive(t, any, any, 0);
                if handles.len() < 100 { handles.push(handle) } else { handles[7] = handle }
            }
            1 => meter.end(t, &[handle, any], Status::ALL[numbers.next(8) as usize], true),
            2 => meter.step(t, &[handle, any, handle], Some(&[any, 1, numbers.next(1 << 32) as i64])),
            3 => meter.schedule(t, &[any, handle]),
            4 => meter.preempt(t, &[handle, handle]),
            5 => meter.resume(t, &[handle]),
            6 => meter.gauge(t, [Some(any); 5]),
            7 => meter
                .add(t, [Some(Increment::Float(f64::NAN)), Some(Increment::Int(any)), None, None, None, None, None]),
            8 => meter.count(t, Named::OutputTokens, any, 0),
            _ => meter.step(t, &handles, None),
        }
        if numbers.next(1000) == 0 {
            let snapshot = meter.reader().snapshot(Some(any.max(0)));
            assert_eq!(Snapshot::from_bytes(&snapshot.to_bytes()).unwrap(), snapshot);
        }
    }
}

/// What must hold of a snapshot at any moment, whatever is written meanwhile.
fn assert_whole(snapshot: &Snapshot) {
    let mut attempted = 0;
    for class in &snapshot.classes {
        let block = &class.scopes[0].block;
        assert!(block.ended() <= block.attempted, "{} ended of {}", block.ended(), block.attempted);
        attempted += block.attempted;
        for scope in &class.scopes {
            for sketch in &scope.block.latency {
                // The bytes are refused unless count, sum, min and max fit the buckets.
                let bytes = sketch.to_bytes();
                assert_eq!(
                    tokenpulse_core::sketch::Sketch::<tokenpulse_core::sketch::Sparse>::from_bytes(&bytes).unwrap(),
                    *sketch
                );
            }
        }
    }
    assert_eq!(snapshot.all.scopes[0].block.attempted, attempted);
}

#[test]
fn four_writers_and_two_readers() {
    // Threads have their own idea of the time here, and none is to find another's requests lost.
    let ttl_ns = 1000 * 3600 * SECOND;
    let settings = Settings { slos: four_sets(), max_requests: 256, shards: 4, ttl_ns, ..Settings::default() };
    let meter = Arc::new(Meter::new(settings, Origin::default()).unwrap());
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (reader, done) = (meter.reader(), Arc::clone(&done));
            std::thread::spawn(move || {
                let (mut read, mut last) = (0_u64, 0);
                while !done.load(Ordering::Relaxed) || read == 0 {
                    let snapshot = reader.snapshot(None);
                    assert_whole(&snapshot);
                    assert!(snapshot.all.scopes[0].block.output_tokens >= last, "totals never shrink");
                    last = snapshot.all.scopes[0].block.output_tokens;
                    read += 1;
                }
                read
            })
        })
        .collect();
    // Each thread streams requests of its own; every eighth is ended by the next thread.
    let inboxes: Arc<Vec<std::sync::Mutex<Vec<i64>>>> = Arc::new((0..4).map(|_| std::sync::Mutex::default()).collect());
    let (rounds, batch, tokens) = (120, 32, 20);
    let writers: Vec<_> = (0..4)
        .map(|me| {
            let (meter, inboxes) = (Arc::clone(&meter), Arc::clone(&inboxes));
            std::thread::spawn(move || {
                let mut t = SECOND;
                for _ in 0..rounds {
                    t += SECOND / 100;
                    let handles: Vec<i64> = (0..batch).map(|_| meter.arrive(t, 10, 0, 0)).collect();
                    assert!(handles.iter().all(|&handle| handle >= 0));
                    for _ in 0..tokens {
                        t += SECOND / 200;
                        meter.step(t, &handles, None);
                    }
                    let (mine, given): (Vec<i64>, Vec<i64>) = handles.iter().partition(|handle| *handle % 8 != 0);
                    meter.end(t, &mine, Status::Stop, false);
                    inboxes[(me + 1) % 4].lock().unwrap().extend(given);
                    let theirs = std::mem::take(&mut *inboxes[me].lock().unwrap());
                    meter.end(t, &theirs, Status::Length, false);
                    t += 600 * SECOND;
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    done.store(true, Ordering::Relaxed);
    assert!(readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>() >= 2);
    let last: Vec<i64> = inboxes.iter().flat_map(|inbox| inbox.lock().unwrap().clone()).collect();
    let newest = meter.reader().newest().unwrap();
    meter.end(newest, &last, Status::Abort, false);
    let snapshot = meter.reader().snapshot(None);
    assert_whole(&snapshot);
    let block = &snapshot.all.scopes[0].block;
    let requests = 4 * rounds as u64 * batch;
    assert_eq!(block.attempted, requests);
    assert_eq!(block.ended(), requests, "{:?} {:?}", block.by_status, snapshot.rejected);
    assert_eq!(block.output_tokens, requests * tokens as u64);
    assert_eq!(block.latency[Metric::Itl as usize].count(), requests * (tokens as u64 - 1));
    assert_eq!(snapshot.rejected, [0; 6]);
}

struct Words(Vec<AtomicU64>);

impl Memory for Words {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

#[test]
fn a_damaged_block_is_an_error_or_a_reading_but_no_panic() {
    let settings = Settings {
        slos: four_sets(),
        max_requests: 16,
        max_classes: 3,
        scale: 2,
        windows_ns: vec![6000, 60_000],
        ..Settings::default()
    };
    let words = Meter::words_needed(&settings).unwrap();
    let memory = Arc::new(Words((0..words).map(|_| AtomicU64::new(0)).collect()));
    let meter = Meter::create(settings, Origin::default(), Arc::clone(&memory) as Arc<dyn Memory>).unwrap();
    let (mut handles, mut t) = (Vec::with_capacity(16), 1000);
    meter.classify(None, &[("tenant", "a")]).unwrap();
    live(&meter, 3, 5000, &mut handles, &mut t);
    let whole = meter.reader().snapshot(None);
    let open = |memory: &Arc<Words>| Reader::open(Arc::clone(memory) as Arc<dyn Memory>);
    assert_eq!(open(&memory).unwrap().snapshot(None), whole);
    let mut numbers = Numbers(9);
    let (mut refused, mut read) = (0, 0);
    for round in 0..400 {
        let copy = Arc::new(Words(memory.0.iter().map(|word| AtomicU64::new(word.load(Ordering::Relaxed))).collect()));
        let end = if round % 2 == 0 { 200 } else { words as u64 };
        for _ in 0..8 {
            let value = [0, u64::MAX, 1 << 63, numbers.next(1 << 20)][numbers.next(4) as usize];
            copy.0[numbers.next(end) as usize].store(value, Ordering::Relaxed);
        }
        match open(&copy) {
            Err(error) => {
                assert_eq!(error.kind(), tokenpulse_core::ErrorKind::Decode, "{error}");
                refused += 1;
            }
            Ok(reader) => {
                let _ = reader.snapshot(Some(t + numbers.next(100_000) as i64)).to_bytes();
                read += 1;
            }
        }
    }
    assert!(refused > 10 && read > 10, "{refused} {read}");
    let short = Arc::new(Words(
        memory.0[..words / 2].iter().map(|word| AtomicU64::new(word.load(Ordering::Relaxed))).collect(),
    ));
    assert!(open(&short).is_err());
    assert!(open(&Arc::new(Words(Vec::new()))).is_err());
}
