//! A trace through a cache of a given size and policy.
//!
//! A request looks up all its blocks in order. A block that is there is used; one that is not is stored at once, and
//! then, if that makes one too many, the block that the policy names is evicted. What that comes to is counted by a
//! [`Tracker`], as it counts the events of a live cache: the rules of refills stand there.
//!
//! Constant time a reference, on average. No time of a trace is refused: it may go back, or make leaps.

use super::cache::{Cache, Fifo, Lfu, Lru, Policy, S3Fifo};
use super::trace::{BLOCK_TOKENS, Trace, check_blocks};
use super::{Judged, Settings, Tier, Totals, Tracker};
use crate::bounds;
use crate::error::Result;

/// How a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replay {
    /// How many blocks the cache holds; none: all there are.
    pub blocks: Option<u64>,
    /// Which block leaves.
    pub policy: Policy,
    /// Tokens that a block stands for.
    pub block_tokens: u32,
    /// What is remembered of evicted blocks. There is room for as many as the cache holds, whatever it says here.
    pub settings: Settings,
}

impl Default for Replay {
    fn default() -> Self {
        Self { blocks: None, policy: Policy::Lru, block_tokens: 512, settings: Settings::unlimited() }
    }
}

/// What a replay came to.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Blocks that were looked up, and those that were there.
    pub lookups: u64,
    /// See `lookups`.
    pub hits: u64,
    /// The tokens that they stand for.
    pub queried_tokens: u64,
    /// See `queried_tokens`.
    pub hit_tokens: u64,
    /// Everything that a tracker counts.
    pub totals: Totals,
    /// Blocks that are resident at the end.
    pub blocks: u64,
    /// Evicted blocks that are remembered at the end.
    pub remembered: u64,
}

/// The events of one request, in three calls: what is stored, then what was used, then what leaves.
///
/// That order is the one of the references, as long as no block leaves and comes back, and nothing is forgotten.
struct Events<'a> {
    tracker: &'a mut Tracker,
    totals: Totals,
    stored: Vec<u64>,
    touched: Vec<u64>,
    evicted: Vec<u64>,
    /// The request in which each block left last, if it did.
    left_in: Vec<u32>,
    request: u32,
}

impl<'a> Events<'a> {
    fn new(tracker: &'a mut Tracker, distinct: u32) -> Result<Self> {
        Ok(Self {
            tracker,
            totals: Totals::new(bounds::DEFAULT_SCALE)?,
            stored: Vec::new(),
            touched: Vec::new(),
            evicted: Vec::new(),
            left_in: vec![0; distinct as usize],
            request: 0,
        })
    }

    /// A block is stored, and another may leave for it.
    fn miss(&mut self, t: i64, block: u32, victim: Option<u32>) {
        if self.left_in[block as usize] == self.request {
            self.tell(t);
        }
        self.stored.push(u64::from(block));
        if let Some(victim) = victim {
            self.left_in[victim as usize] = self.request;
            self.evicted.push(u64::from(victim));
        }
    }

    fn tell(&mut self, t: i64) {
        // No time of a trace is refused.
        let sink = &mut Judged { totals: &mut self.totals, admits: true };
        let tracker = &mut *self.tracker;
        if !self.stored.is_empty() {
            tracker.store(t, &self.stored, Some(Tier::Gpu), 0, sink);
        }
        if !self.touched.is_empty() {
            tracker.touch(t, &self.touched, 0, sink);
        }
        if !self.evicted.is_empty() {
            tracker.evict(t, &self.evicted, Some(Tier::Gpu), 0, sink);
        }
        [&mut self.stored, &mut self.touched, &mut self.evicted].into_iter().for_each(Vec::clear);
    }
}

impl Replay {
    /// Replays a trace.
    ///
    /// # Errors
    ///
    /// A number that is out of its range.
    pub fn run(&self, trace: &Trace) -> Result<Replayed> {
        match self.policy {
            Policy::Lru => self.run_with::<Lru>(trace),
            Policy::Fifo => self.run_with::<Fifo>(trace),
            Policy::S3Fifo => self.run_with::<S3Fifo>(trace),
            Policy::Lfu => self.run_with::<Lfu>(trace),
        }
    }

    fn run_with<C: Cache>(&self, trace: &Trace) -> Result<Replayed> {
        let block_tokens = BLOCK_TOKENS.check(i64::from(self.block_tokens))? as u64;
        let everything = trace.distinct().max(1);
        let blocks = self.blocks.map_or(Ok(u64::from(everything)), check_blocks)?.min(u64::from(everything)) as u32;
        let forgets = self.settings.remember < everything || self.settings.ttl_ns < Settings::unlimited().ttl_ns;
        self.settings.check()?;
        // Room for what can come: all that a request stores may be there before anything leaves.
        let longest = trace.requests().map(|request| request.blocks.len()).max().unwrap_or(0) as u64;
        let max_blocks = (u64::from(blocks) + longest).min(u64::from(everything)) as u32;
        let remember = self.settings.remember.min(everything);
        let mut tracker = Tracker::reserved(Settings { remember, max_blocks, ..self.settings })?;
        let mut events = Events::new(&mut tracker, trace.distinct())?;
        let mut cache = C::new(blocks, trace.distinct());
        let (mut lookups, mut hits, mut queried_tokens, mut hit_tokens) = (0, 0, 0, 0);
        for request in trace.requests() {
            events.request = events.request.wrapping_add(1);
            let t = request.t_ns;
            let (each, last) = request.tokens(block_tokens);
            for (&block, left) in request.blocks.iter().zip((0..request.blocks.len()).rev()) {
                let tokens = if left == 0 { last } else { each };
                lookups += 1;
                queried_tokens += tokens;
                if cache.hit(block) {
                    hits += 1;
                    hit_tokens += tokens;
                    events.touched.push(u64::from(block));
                } else {
                    events.miss(t, block, cache.store(block));
                }
                if forgets {
                    events.tell(t);
                }
            }
            events.tell(t);
        }
        let totals = events.totals;
        let (blocks, remembered) = (tracker.blocks(), tracker.remembered());
        Ok(Replayed { lookups, hits, queried_tokens, hit_tokens, totals, blocks, remembered })
    }
}
