//! How a reader knows that what it read belongs together, while the writer never waits for it.
//!
//! A shard has two sequences. One is odd while a call is under way, the other while panes are being closed. Between
//! two equal and even values nothing was written, or no pane was closed.

use super::atomic::{AtomicU64, Ordering, fence};

/// How often a reader reads again in all, before it takes what it can have.
pub(super) struct Patience {
    /// Because a call was under way.
    calls: u32,
    /// Because panes were being closed: when this is used up, the writer is taken for one that died doing so.
    turns: u32,
}

impl Patience {
    pub(super) const fn new() -> Self {
        if cfg!(loom) { Self { calls: 3, turns: 4 } } else { Self { calls: 200, turns: 4000 } }
    }
}

/// Of one thing, so often because a call was under way.
const CALLS_EACH: u32 = 6;
/// After so many attempts the writer is given time.
const ATTEMPTS_AT_ONCE: u32 = if cfg!(loom) { 0 } else { 64 };
/// So many attempts one that gives time counts for.
const YIELD: u32 = if cfg!(loom) { 0 } else { 40 };

/// Says that writing begins.
#[inline(always)]
pub(super) fn begin(sequence: &AtomicU64) {
    sequence.store(sequence.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    // What is written next is not seen before this.
    fence(Ordering::Release);
}

/// Says that writing is over.
#[inline(always)]
pub(super) fn end(sequence: &AtomicU64) {
    // What was written is seen before this.
    fence(Ordering::Release);
    sequence.store(sequence.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Reads something until no pane was closed meanwhile and, if it can be had in a few attempts, between two calls; and
/// says whether it was had so.
pub(super) fn settled<T>(
    turns: &AtomicU64,
    calls: &AtomicU64,
    patience: &mut Patience,
    mut read: impl FnMut() -> T,
) -> (T, bool) {
    let (mut attempts, mut calls_left) = (0, CALLS_EACH);
    loop {
        let before = (turns.load(Ordering::Relaxed), calls.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let found = read();
        fence(Ordering::Acquire);
        let after = (turns.load(Ordering::Relaxed), calls.load(Ordering::Relaxed));
        attempts += 1;
        let turned = before.0 % 2 == 1 || after.0 != before.0;
        let called = before.1 % 2 == 1 || after.1 != before.1;
        if turned && patience.turns > 0 {
            patience.turns -= 1;
            // A writer that was put to sleep needs time, not attempts; and time is dear where many want it.
            if attempts > ATTEMPTS_AT_ONCE {
                patience.turns = patience.turns.saturating_sub(YIELD);
                super::atomic::yield_now();
            }
        } else if called && calls_left > 0 && patience.calls > 0 {
            patience.calls -= 1;
            calls_left -= 1;
        } else {
            return (found, !turned && !called);
        }
    }
}

/// Writes the word that says that everything before it is there.
pub(super) fn publish(word: &AtomicU64, value: u64) {
    fence(Ordering::Release);
    word.store(value, Ordering::Relaxed);
}

/// Reads such a word.
pub(super) fn published(word: &AtomicU64) -> u64 {
    let value = word.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    value
}

/// Models of the protocol, every interleaving of which is tried: `RUSTFLAGS="--cfg loom" cargo test`.
#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    struct Shard {
        turns: AtomicU64,
        calls: AtomicU64,
        /// The open pane, the closed panes, and what is older.
        cells: [AtomicU64; 3],
        /// The sum beside the counts.
        sum: AtomicU64,
    }

    impl Shard {
        fn new() -> Arc<Self> {
            let zero = || AtomicU64::new(0);
            Arc::new(Self { turns: zero(), calls: zero(), cells: [zero(), zero(), zero()], sum: zero() })
        }

        fn add(word: &AtomicU64, n: u64) {
            word.store(word.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        }

        fn record(&self) {
            begin(&self.calls);
            Self::add(&self.cells[0], 1);
            Self::add(&self.sum, 10);
            end(&self.calls);
        }

        fn turn(&self) {
            begin(&self.calls);
            begin(&self.turns);
            let n = self.cells[0].load(Ordering::Relaxed);
            Self::add(&self.cells[1], n);
            Self::add(&self.cells[2], n);
            self.cells[0].store(0, Ordering::Relaxed);
            end(&self.turns);
            end(&self.calls);
        }

        /// The total, the window, the sum; and whether they were had in peace.
        fn read(&self) -> ((u64, u64, u64), bool) {
            settled(&self.turns, &self.calls, &mut Patience::new(), || {
                let open = self.cells[0].load(Ordering::Relaxed);
                let window = open + self.cells[1].load(Ordering::Relaxed);
                (open + self.cells[2].load(Ordering::Relaxed), window, self.sum.load(Ordering::Relaxed))
            })
        }
    }

    /// Tries every interleaving with few preemptions of something written and a reading.
    ///
    /// The model checker looks for other threads' accesses before a store, and takes a load of the store's own thread
    /// for the last: so the thread that loads before it stores must be the first to run.
    fn interleave(before: fn(&Shard), write: fn(&Shard), holds: fn((u64, u64, u64)) -> bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let shard = Shard::new();
            before(&shard);
            let reader = {
                let shard = Arc::clone(&shard);
                thread::spawn(move || {
                    let (read, whole) = shard.read();
                    assert!(!whole || holds(read), "{read:?}");
                })
            };
            write(&shard);
            reader.join().unwrap();
            assert_eq!(shard.read(), ((1, 1, 10), true));
        });
    }

    #[test]
    fn a_closing_pane_is_counted_once() {
        // Before, after or in between: one observation, in the total and in the window.
        interleave(Shard::record, Shard::turn, |read| read == (1, 1, 10));
    }

    #[test]
    fn a_call_is_seen_whole() {
        interleave(|_| (), Shard::record, |(total, window, sum)| (window, sum) == (total, 10 * total));
    }

    #[test]
    fn what_is_published_is_whole() {
        loom::model(|| {
            let block = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let writer = {
                let block = Arc::clone(&block);
                thread::spawn(move || {
                    block[1].store(7, Ordering::Relaxed);
                    publish(&block[0], 42);
                })
            };
            if published(&block[0]) == 42 {
                assert_eq!(block[1].load(Ordering::Relaxed), 7);
            }
            writer.join().unwrap();
        });
    }
}
