//! A meter: what an engine calls on every step, and what others read meanwhile.
//!
//! Guarantees. Taking an event costs constant time: it changes one count of one sketch, and the sketch's sum and ends;
//! windows and totals are made when a pane is over and when something is read. Nothing on the way allocates, reads a
//! clock or waits for a reader, and bad data is counted by reason. Memory is fixed when the meter is made: requests,
//! classes and panes that find no room are counted. All of it lies in one flat block of 64-bit words, on the heap or
//! in a mapped file, so that another process can read it, also when its writer is gone.
//!
//! Threads. A meter is divided into shards; a thread writes to its own. Only when two threads write to the same shard
//! at the same moment does one wait for the other's call to end. A request belongs to the shard it arrived on, and may
//! be told of from any thread.

mod cells;
mod figures;
mod flight;
mod gather;
mod handle;
mod header;
mod kv;
mod kv_reading;
mod layout;
mod memory;
mod names;
mod read;
mod sequence;
mod settings;
mod shard;
mod snapshot;
mod step;

/// The atomics that the words of a block are; a model checker puts its own in their place.
mod atomic {
    #[cfg(loom)]
    pub(super) use loom::{
        sync::atomic::{AtomicU64, Ordering, fence},
        thread::yield_now,
    };
    #[cfg(not(loom))]
    pub(super) use std::{
        sync::atomic::{AtomicU64, Ordering, fence},
        thread::yield_now,
    };
}

pub use kv_reading::{KvPane, KvReading, KvScope};
pub use layout::MAGIC;
pub use memory::Memory;
pub use names::{Added, Gauge, Increment, Named, Refused};
pub use read::Reader;
pub use settings::{Origin, Settings, SloSet};
pub use snapshot::{
    AddedFigure, BurnWindow, ClassReading, GaugeFigure, Open, SILENCE_NS, Scope, Silence, Snapshot, WindowInfo,
};

pub(crate) use header::{Label, Preamble, key_of, labels_of};

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::bounds::{MAX_LABEL_KEYS, REQUEST_TOKENS};
use crate::error::{Error, Result};
use crate::kv::{Tier, Tracker};
use crate::request::{Event, Metric, Status};
use crate::strata::length_bin;
use handle::shard_of;
use layout::{Layout, header as head};
use memory::{Heap, Words};
use shard::{Shard, Writer};

/// Labels of a class, sorted by name.
type ClassKey = Vec<(String, String)>;

/// A meter; see the [module](self).
pub struct Meter {
    memory: Arc<dyn Memory>,
    layout: Arc<Layout>,
    settings: Arc<Settings>,
    panes_ns: Vec<i64>,
    origin: Origin,
    classes: Mutex<HashMap<ClassKey, u32>>,
    shards: Vec<Mutex<Shard>>,
}

/// Handles of several shards are sorted out so many at a time.
const SORTED: usize = 256;

impl Meter {
    /// The words of memory that a meter takes; untouched ones cost nothing where the system gives pages on demand.
    ///
    /// # Errors
    ///
    /// Settings out of range.
    pub fn words_needed(settings: &Settings) -> Result<usize> {
        Ok(Layout::of(settings)?.words)
    }

    /// A meter on the heap.
    ///
    /// # Errors
    ///
    /// Settings out of range.
    pub fn new(settings: Settings, origin: Origin) -> Result<Self> {
        let words = Self::words_needed(&settings)?;
        Self::create(settings, origin, Arc::new(Heap::new(words)))
    }

    /// A meter in memory that is all zero, and of the length that is needed.
    ///
    /// # Errors
    ///
    /// Settings out of range, or memory of another length.
    pub fn create(settings: Settings, origin: Origin, memory: Arc<dyn Memory>) -> Result<Self> {
        let layout = Arc::new(Layout::of(&settings)?);
        let words = Words(memory.words());
        if words.0.len() != layout.words {
            return Err(Error::value("memory of the meter", format_args!("{} words", layout.words), words.0.len()));
        }
        header::write(words, &settings, &origin, &layout)?;
        let mut tracker = settings.kv.map(Tracker::reserved).transpose()?.map(Box::new);
        let shards = (0..settings.shards).map(|_| Mutex::new(Shard::new(tracker.take()))).collect();
        let panes_ns = settings.panes_ns().collect();
        let settings = Arc::new(settings);
        let meter = Self { classes: Mutex::default(), memory, layout, settings, panes_ns, origin, shards };
        meter.classify(None, &[])?;
        Ok(meter)
    }

    /// What the meter measures by.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Who writes it, and on which clock.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// A reader of the meter.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.memory), Arc::clone(&self.layout), Arc::clone(&self.settings), self.origin)
    }

    /// The class of these labels and, if it is given, of the prompt's length; past the limit it is the class `other`.
    ///
    /// Meant to be asked once for each kind of request: this allocates.
    ///
    /// # Errors
    ///
    /// Too many labels, a label twice, or a length out of range.
    pub fn classify(&self, prompt_tokens: Option<i64>, labels: &[(&str, &str)]) -> Result<u32> {
        if labels.len() > MAX_LABEL_KEYS {
            return Err(Error::value("number of labels", format_args!("at most {MAX_LABEL_KEYS}"), labels.len()));
        }
        let mut key: ClassKey = labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        if let Some(tokens) = prompt_tokens {
            key.push(("prompt_length".to_owned(), length_bin(REQUEST_TOKENS.check(tokens)? as u64)));
        }
        key.sort();
        if let Some(pair) = key.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::value("labels", "different from each other", format_args!("{:?} twice", pair[0].0)));
        }
        let mut classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&class) = classes.get(&key) {
            return Ok(class);
        }
        let words = Words(self.memory.words());
        let bears = |(name, value): &(String, String)| key.iter().any(|label| label.0 == *name && label.1 == *value);
        let judging = self.settings.slos.iter().map(|set| set.slo.labels.iter().all(bears));
        let judges = judging.enumerate().fold(0, |bits, (set, judges)| bits | u64::from(judges) << set);
        let class = classes.len() as u32;
        let other = self.settings.max_classes - 1;
        if class < other && header::set_class(words, class as usize, &key, judges) {
            words.publish(head::CLASSES, u64::from(class) + 1);
            classes.insert(key, class);
            return Ok(class);
        }
        // `other` bears no labels: it is judged by the sets that ask for none.
        let unconditional = self.settings.slos.iter().map(|set| set.slo.labels.is_empty());
        let judges = unconditional.enumerate().fold(0, |bits, (set, judges)| bits | u64::from(judges) << set);
        words.set(Layout::class(other as usize), judges);
        words.add(head::OVER, 1);
        Ok(other)
    }

    /// The number of a class, if there is one.
    ///
    /// # Errors
    ///
    /// A number that `classify` has not given.
    pub fn check_class(&self, class: i64) -> Result<u32> {
        let known = Words(self.memory.words()).get(head::CLASSES) as i64;
        let other = i64::from(self.settings.max_classes) - 1;
        if (0..known).contains(&class) || class == other {
            Ok(class as u32)
        } else {
            Err(Error::value("class", format_args!("between 0 and {}, or {other}", known - 1), class))
        }
    }

    /// Does something as the writer of a shard.
    #[inline]
    fn write<T>(&self, number: usize, write: impl FnOnce(&mut Writer<'_>) -> T) -> T {
        let mut shard = self.shards[number].lock().unwrap_or_else(PoisonError::into_inner);
        let block = Words(self.memory.words());
        write(&mut Writer {
            block,
            words: block.part(self.layout.shard(number), self.layout.shard_words),
            number,
            layout: &self.layout,
            settings: &self.settings,
            panes_ns: &self.panes_ns,
            shard: &mut shard,
        })
    }

    /// The shard of this thread.
    #[inline]
    fn own(&self) -> usize {
        if self.shards.len() == 1 { 0 } else { thread_number() % self.shards.len() }
    }

    /// Does something with the handles of each shard. -1 and what else no shard has goes to the thread's own.
    #[inline]
    fn each_shard(
        &self,
        handles: &[i64],
        counts: Option<&[i64]>,
        mut take: impl FnMut(&mut Writer<'_>, &[i64], Option<&[i64]>),
    ) {
        if self.shards.len() == 1 {
            return self.write(0, |writer| take(writer, handles, counts));
        }
        let own = self.own();
        let shard = |handle: i64| Some(shard_of(handle)).filter(|&shard| shard < self.shards.len()).unwrap_or(own);
        let first = handles.first().map_or(own, |&handle| shard(handle));
        if handles.iter().all(|&handle| shard(handle) == first) {
            return self.write(first, |writer| take(writer, handles, counts));
        }
        for number in 0..self.shards.len() {
            let (mut sorted, mut sorted_counts, mut n) = ([0; SORTED], [1; SORTED], 0);
            for (at, &handle) in handles.iter().enumerate() {
                if shard(handle) == number {
                    sorted[n] = handle;
                    sorted_counts[n] = counts.and_then(|counts| counts.get(at).copied()).unwrap_or(1);
                    n += 1;
                }
                if n == SORTED || (n > 0 && at + 1 == handles.len()) {
                    let counts = counts.map(|_| &sorted_counts[..n]);
                    self.write(number, |writer| take(writer, &sorted[..n], counts));
                    n = 0;
                }
            }
        }
    }

    /// A request arrives: its handle, or -1 where it was refused.
    #[inline]
    pub fn arrive(&self, t: i64, prompt_tokens: i64, cached_tokens: i64, class: u32) -> i64 {
        self.write(self.own(), |writer| writer.arrive(t, prompt_tokens, cached_tokens, class as usize))
    }

    /// Requests arrive together: prompt tokens, cached tokens and class of each. Their handles, -1 where refused.
    pub fn arrive_many(&self, t: i64, arrivals: &[(i64, i64, u32)]) -> Vec<i64> {
        let mut handles = Vec::with_capacity(arrivals.len());
        let arrival = |at: usize| {
            let (prompt_tokens, cached_tokens, class) = arrivals[at];
            (prompt_tokens, cached_tokens, class as usize)
        };
        self.write(self.own(), |writer| {
            writer.arrive_many(t, arrivals.len(), arrival, |handle| handles.push(handle));
        });
        handles
    }

    /// A request arrives with the id of another: true if that is not in flight (any more); else it is refused.
    pub fn arrive_again(&self, t: i64, handle: i64) -> bool {
        match self.shards.get(shard_of(handle)) {
            Some(_) => self.write(shard_of(handle), |writer| writer.arrive_again(t, handle)),
            None => true,
        }
    }

    /// Whether the request of a handle is in flight.
    #[must_use]
    pub fn is_in_flight(&self, handle: i64) -> bool {
        shard_of(handle) < self.shards.len() && self.write(shard_of(handle), |writer| writer.is_in_flight(handle))
    }

    /// A step of the engine: tokens of these requests became visible at `t`, one each where there are no counts.
    #[inline]
    pub fn step(&self, t: i64, handles: &[i64], counts: Option<&[i64]>) {
        if self.shards.len() == 1 {
            self.write(0, |writer| writer.step(t, handles, counts, Some(handles.len())));
            return;
        }
        let mut accepted = 0;
        self.each_shard(handles, counts, |writer, handles, counts| {
            accepted += writer.step(t, handles, counts, None);
        });
        if accepted > 0 {
            self.write(self.own(), |writer| writer.batch_of(t, handles.len()));
        }
    }

    /// Tokens became visible, each at a time of its own: as many steps of one request each, of one token where there
    /// are no counts, but for the histogram of batch sizes, which counts none. Of columns of unequal length what is
    /// over is left.
    #[inline]
    pub fn tokens(&self, times: &[i64], handles: &[i64], counts: Option<&[i64]>) {
        if self.shards.len() == 1 {
            return self.write(0, |writer| writer.tokens(times, handles, counts));
        }
        let n = times.len().min(handles.len()).min(counts.map_or(usize::MAX, <[i64]>::len));
        for at in 0..n {
            self.each_shard(&handles[at..=at], counts.map(|counts| &counts[at..=at]), |writer, handles, counts| {
                writer.step(times[at], handles, counts, None);
            });
        }
    }

    /// Requests were put into a running batch for the first time.
    pub fn schedule(&self, t: i64, handles: &[i64]) {
        self.events(t, handles, Event::Schedule);
    }

    /// The computation of prompts began.
    pub fn prefill(&self, t: i64, handles: &[i64]) {
        self.events(t, handles, Event::Prefill);
    }

    /// Requests lost their place in the running batch.
    pub fn preempt(&self, t: i64, handles: &[i64]) {
        self.events(t, handles, Event::Preempt);
    }

    /// Requests regained it.
    pub fn resume(&self, t: i64, handles: &[i64]) {
        self.events(t, handles, Event::Resume);
    }

    fn events(&self, t: i64, handles: &[i64], event: Event) {
        self.each_shard(handles, None, |writer, handles, _| writer.events(t, handles, event));
    }

    /// Requests ended.
    pub fn end(&self, t: i64, handles: &[i64], status: Status, degraded: bool) {
        self.each_shard(handles, None, |writer, handles, _| writer.end(t, handles, status, degraded));
    }

    /// Records durations in nanoseconds that were measured elsewhere. Without a time they count at the newest. Of values
    /// that are no such durations it can be told how many there were, by [`Rejection`](crate::sketch::Rejection).
    pub fn observe(&self, t: Option<i64>, metric: Metric, class: u32, ns: &[i64], refused: [u64; 4]) {
        self.write(self.own(), |writer| writer.observe(t, metric, class as usize, ns, refused));
    }

    /// Sets gauges, in the order of [`Gauge::ALL`]; what is not given holds on.
    pub fn gauge(&self, t: i64, values: [Option<i64>; 5]) {
        self.write(0, |writer| writer.gauge(t, values));
    }

    /// Adds increments, in the order of [`Added::ALL`].
    pub fn add(&self, t: i64, values: [Option<Increment>; 7]) {
        self.write(self.own(), |writer| writer.add(t, values));
    }

    /// Counts something by name.
    pub fn count(&self, t: i64, name: Named, n: i64, class: u32) {
        self.write(self.own(), |writer| writer.count(t, name, n, class as usize));
    }

    /// Blocks of the KV cache were stored in a tier; none stands for one that is unknown. Like what follows about the
    /// cache, it does nothing where the settings do not say that it is followed.
    pub fn kv_store(&self, t: i64, hashes: &[u64], tier: Option<Tier>, group: i64) {
        self.write(0, |writer| writer.kv(|tracker, sink| tracker.store(t, hashes, tier, group, sink)));
    }

    /// Blocks of the KV cache, or copies of them, left a tier for want of space.
    pub fn kv_evict(&self, t: i64, hashes: &[u64], tier: Option<Tier>, group: i64) {
        self.write(0, |writer| writer.kv(|tracker, sink| tracker.evict(t, hashes, tier, group, sink)));
    }

    /// Resident blocks of the KV cache were used.
    pub fn kv_touch(&self, t: i64, hashes: &[u64], group: i64) {
        self.write(0, |writer| writer.kv(|tracker, sink| tracker.touch(t, hashes, group, sink)));
    }

    /// A request looked for its prompt in the KV cache: tokens asked for and tokens found.
    pub fn kv_lookup(&self, t: i64, queried: i64, hit: i64, preempted: bool) {
        self.write(0, |writer| writer.kv(|tracker, sink| tracker.lookup(t, queried, hit, preempted, sink)));
    }

    /// The KV cache was emptied.
    pub fn kv_clear(&self, t: i64) {
        self.write(0, |writer| writer.kv(|tracker, sink| tracker.clear(t, sink)));
    }

    /// The engine is ready to serve.
    pub fn ready(&self, t: i64) {
        self.write(0, |writer| writer.ready(t));
    }
}

/// A number for this thread, the first one's 0.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}
