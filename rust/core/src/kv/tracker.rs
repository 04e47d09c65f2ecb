//! What the events of a cache come to: the one place that knows when a block is evicted, and when refilled.
//!
//! Guarantees. An event costs constant time on average. A refused event changes nothing but its count. Nothing here can
//! panic on what it is given, and a tracker made by [`Tracker::reserved`] never allocates. The tracker reads no clock
//! and keeps no figure: it tells a [`Sink`].

use super::blocks::Blocks;
use super::pool::Block;
use super::sampled::Sample;
use super::{Counter, Refused, Report, Settings, Span, Tier};
use crate::bounds::{KV_GROUP, REQUEST_TOKENS};
use crate::error::Result;

/// Events of a call that are prepared together.
const AHEAD: usize = 32;

/// Takes what the events of a tracker come to.
pub trait Sink {
    /// Whether a call of this time, which is not negative, may be looked at further. Asked once a call, before
    /// anything else.
    fn admit(&mut self, t: i64) -> bool;

    /// An event of this time is about to be taken, the first of its call.
    fn accept(&mut self, t: i64);

    /// Durations, none of them negative, were measured at the call's time; only after [`accept`](Self::accept).
    fn observe(&mut self, span: Span, ns: &[i64]);

    /// In a sample: a block of this part was evicted, refilled or forgotten.
    fn sampled(&mut self, replicate: usize, what: Counter);

    /// What the call came to; the last of it, whatever happened.
    fn finish(&mut self, outcome: &Outcome);
}

/// What a call came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The time of the call.
    pub t: i64,
    /// Its events that were taken.
    pub accepted: u64,
    /// Those that were refused, by [`Refused`].
    pub refused: [u64; Refused::ALL.len()],
    /// What is counted, by [`Counter`]; all 0 where no event was taken.
    pub counts: [u64; Counter::ALL.len()],
    /// Times that lay before those of the block that they were about.
    pub clamped: u64,
}

/// A call while it is taken.
struct Call<'a, S> {
    sink: &'a mut S,
    outcome: Outcome,
}

impl<'a, S: Sink> Call<'a, S> {
    fn new(t: i64, sink: &'a mut S) -> Self {
        Self { sink, outcome: Outcome { t, ..Outcome::default() } }
    }

    fn refuse(&mut self, reason: Refused, n: u64) {
        self.outcome.refused[reason as usize] += n;
    }

    #[inline]
    fn count(&mut self, counter: Counter, n: u64) {
        self.outcome.counts[counter as usize] += n;
    }

    /// Counts what can befall a block, also in its part of the sample.
    #[inline]
    fn fate(&mut self, counter: Counter, n: u64, replicate: Option<usize>) {
        self.count(counter, n);
        if let Some(replicate) = replicate {
            (0..n).for_each(|_| self.sink.sampled(replicate, counter));
        }
    }

    fn finish(self) {
        self.sink.finish(&self.outcome);
    }
}

/// Durations of a call that its sink has not been told of: a sketch takes many together in less time than one after the
/// other.
#[derive(Debug)]
struct Measured {
    /// By [`Span`].
    spans: [[i64; AHEAD]; Span::ALL.len()],
    len: [usize; Span::ALL.len()],
}

impl Measured {
    #[inline]
    fn push(&mut self, span: Span, ns: i64, sink: &mut impl Sink) {
        if self.len[span as usize] == AHEAD {
            self.tell(span, sink);
        }
        self.spans[span as usize][self.len[span as usize]] = ns;
        self.len[span as usize] += 1;
    }

    #[inline]
    fn tell(&mut self, span: Span, sink: &mut impl Sink) {
        let len = std::mem::take(&mut self.len[span as usize]);
        if len > 0 {
            sink.observe(span, &self.spans[span as usize][..len]);
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Tracker {
    settings: Settings,
    sample: Option<Sample>,
    blocks: Blocks,
    newest: i64,
    measured: Measured,
}

impl Tracker {
    /// A tracker whose memory grows as blocks come.
    ///
    /// # Errors
    ///
    /// Settings out of range.
    pub fn new(settings: Settings) -> Result<Self> {
        Self::with_room(settings, false)
    }

    /// A tracker that has all its memory from the beginning; what is never touched costs nothing where the system gives
    /// pages on demand.
    ///
    /// # Errors
    ///
    /// Settings out of range.
    pub fn reserved(settings: Settings) -> Result<Self> {
        Self::with_room(settings, true)
    }

    fn with_room(settings: Settings, reserved: bool) -> Result<Self> {
        settings.check()?;
        Ok(Self {
            sample: Sample::of(&settings),
            blocks: Blocks::new(settings.max_blocks, settings.remember, reserved),
            newest: 0,
            measured: Measured { spans: [[0; AHEAD]; Span::ALL.len()], len: [0; Span::ALL.len()] },
            settings,
        })
    }

    /// What it follows.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Blocks that are resident anywhere.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        u64::from(self.blocks.resident())
    }

    /// Blocks that are resident in each tier.
    #[must_use]
    pub fn resident(&self) -> [u64; Tier::ALL.len()] {
        self.blocks.residency.tiers()
    }

    /// Blocks that are remembered as evicted.
    #[must_use]
    pub fn remembered(&self) -> u64 {
        u64::from(self.blocks.remembered())
    }

    /// Blocks were stored in a tier; none stands for one that is unknown.
    pub fn store<S: Sink>(&mut self, t: i64, hashes: &[u64], tier: Option<Tier>, group: i64, sink: &mut S) {
        let Some((mut call, tier)) = Self::begin_blocks(t, hashes.len(), tier, group, sink) else { return };
        self.each(hashes, group as u32, false, &mut call, |tracker, block, replicate, call| {
            tracker.store_one(block, tier, replicate, call);
        });
        self.finish(call);
    }

    /// Blocks, or copies of them, left a tier for want of space.
    pub fn evict<S: Sink>(&mut self, t: i64, hashes: &[u64], tier: Option<Tier>, group: i64, sink: &mut S) {
        let Some((mut call, tier)) = Self::begin_blocks(t, hashes.len(), tier, group, sink) else { return };
        self.each(hashes, group as u32, true, &mut call, |tracker, block, replicate, call| {
            tracker.evict_one(block, tier, replicate, call);
        });
        self.finish(call);
    }

    /// Resident blocks were used.
    pub fn touch<S: Sink>(&mut self, t: i64, hashes: &[u64], group: i64, sink: &mut S) {
        // A use has no tier.
        let any = Some(Tier::Gpu);
        let Some((mut call, _)) = Self::begin_blocks(t, hashes.len(), any, group, sink) else { return };
        self.each(hashes, group as u32, false, &mut call, |tracker, block, _, call| tracker.touch_one(block, call));
        call.finish();
    }

    /// A request looked for its prompt: tokens asked for and tokens found, at its admission or again after a preemption.
    pub fn lookup<S: Sink>(&mut self, t: i64, queried: i64, hit: i64, preempted: bool, sink: &mut S) {
        let Some(mut call) = Self::begin(t, 1, sink) else { return };
        if REQUEST_TOKENS.contains(queried) && REQUEST_TOKENS.contains(hit) && hit <= queried {
            self.accept(&mut call);
            let counters = if preempted {
                [Counter::Relookups, Counter::Requeried, Counter::Rehit]
            } else {
                [Counter::Lookups, Counter::Queried, Counter::Hit]
            };
            counters.into_iter().zip([1, queried as u64, hit as u64]).for_each(|(counter, n)| call.count(counter, n));
        } else {
            call.refuse(Refused::Invalid, 1);
        }
        call.finish();
    }

    /// The cache was emptied; that is no eviction.
    pub fn clear<S: Sink>(&mut self, t: i64, sink: &mut S) {
        let Some(mut call) = Self::begin(t, 1, sink) else { return };
        self.accept(&mut call);
        self.blocks.clear();
        call.count(Counter::Cleared, 1);
        call.finish();
    }

    /// Ends a call about blocks.
    #[inline]
    fn finish<S: Sink>(&mut self, call: Call<'_, S>) {
        Span::ALL.into_iter().for_each(|span| self.measured.tell(span, call.sink));
        call.finish();
    }

    /// Begins a call; none where its time is refused.
    fn begin<S: Sink>(t: i64, events: usize, sink: &mut S) -> Option<Call<'_, S>> {
        let refused = if t < 0 {
            Some(Refused::Negative)
        } else if sink.admit(t) {
            None
        } else {
            Some(Refused::Future)
        };
        let mut call = Call::new(t, sink);
        match refused {
            None => Some(call),
            Some(reason) => {
                call.refuse(reason, events as u64);
                call.finish();
                None
            }
        }
    }

    /// An event is about to be taken: what is too old by its time is forgotten first.
    #[inline(always)]
    fn accept<S: Sink>(&mut self, call: &mut Call<'_, S>) {
        if call.outcome.accepted == 0 {
            self.accept_first(call);
        }
        call.outcome.accepted += 1;
    }

    fn accept_first<S: Sink>(&mut self, call: &mut Call<'_, S>) {
        call.sink.accept(call.outcome.t);
        self.newest = self.newest.max(call.outcome.t);
        let sample = self.sample;
        while let Some(block) = self.blocks.forget_overdue(self.newest, self.settings.ttl_ns) {
            call.fate(Counter::Forgotten, 1, sample.and_then(|sample| sample.replicate(block.hash)));
        }
    }

    /// Begins a call about blocks; none where its time, its tier or its group is refused.
    fn begin_blocks<S: Sink>(
        t: i64,
        events: usize,
        tier: Option<Tier>,
        group: i64,
        sink: &mut S,
    ) -> Option<(Call<'_, S>, Tier)> {
        let mut call = Self::begin(t, events, sink)?;
        let refused = match tier {
            Some(tier) if KV_GROUP.contains(group) => return Some((call, tier)),
            Some(_) => Refused::Invalid,
            None => Refused::Tier,
        };
        call.refuse(refused, events as u64);
        call.finish();
        None
    }

    /// Takes the events of a call, one a hash; each block that is followed comes with its part of the sample.
    #[inline(always)]
    fn each<S: Sink>(
        &mut self,
        hashes: &[u64],
        group: u32,
        evicts: bool,
        call: &mut Call<'_, S>,
        take: impl Fn(&mut Self, Block, Option<usize>, &mut Call<'_, S>),
    ) {
        for hashes in hashes.chunks(AHEAD) {
            let (alone, mut together);
            let blocks = if let [hash] = *hashes {
                alone = Block::new(hash, group);
                std::slice::from_ref(&alone)
            } else {
                together = [Block::new(0, 0); AHEAD];
                together.iter_mut().zip(hashes).for_each(|(block, &hash)| *block = Block::new(hash, group));
                let blocks = &together[..hashes.len()];
                if self.sample.is_none() {
                    self.blocks.prefetch(blocks, evicts);
                }
                blocks
            };
            for &block in blocks {
                let replicate = match self.sample {
                    None => None,
                    Some(sample) => match sample.replicate(block.hash) {
                        None => {
                            // Its events are taken, and nothing comes of them.
                            self.accept(call);
                            continue;
                        }
                        followed => followed,
                    },
                };
                take(self, block, replicate, call);
            }
        }
    }

    #[inline]
    fn store_one<S: Sink>(&mut self, block: Block, tier: Tier, replicate: Option<usize>, call: &mut Call<'_, S>) {
        let t = call.outcome.t;
        let Some(found) = self.blocks.find(block) else {
            if self.blocks.residency.pool().room() == 0 {
                return call.refuse(Refused::Full, 1);
            }
            self.accept(call);
            let computed = tier == Tier::Gpu;
            let evicted = self.blocks.insert(block, tier, t, computed);
            call.count(if computed { Counter::Stored } else { Counter::Offloaded }, 1);
            if let Some(evicted) = evicted {
                call.fate(Counter::Refilled, 1, replicate);
                call.outcome.clamped += u64::from(t < evicted);
                self.measured.push(Span::Gap, (t - evicted).max(0), call.sink);
            }
            return;
        };
        let number = found.number;
        let resident = self.blocks.residency.pool().entry(number);
        let (repeated, below) = (resident.copies(tier) > 0, resident.is_below(tier));
        if repeated && self.settings.report == Report::Full {
            self.accept(call);
        } else if resident.copies(tier) < crate::bounds::KV_COPIES {
            self.accept(call);
            self.blocks.residency.add_copy(number, tier);
        } else {
            return call.refuse(Refused::Full, 1);
        }
        self.blocks.residency.touch(number, t);
        let counter = if repeated {
            Counter::Repeated
        } else if below {
            Counter::Onloaded
        } else {
            Counter::Offloaded
        };
        call.count(counter, 1);
    }

    #[inline]
    fn evict_one<S: Sink>(&mut self, block: Block, tier: Tier, replicate: Option<usize>, call: &mut Call<'_, S>) {
        let has_it = |number: u32| self.blocks.residency.pool().entry(number).copies(tier) > 0;
        let Some(found) = self.blocks.find(block).filter(|found| has_it(found.number)) else {
            return call.refuse(Refused::Unknown, 1);
        };
        self.accept(call);
        let resident = self.blocks.residency.take_copy(found.number, tier, self.settings.report == Report::Full);
        if resident.is_anywhere() {
            return call.count(Counter::Released, 1);
        }
        let t = call.outcome.t.max(resident.used);
        call.outcome.clamped += u64::from(call.outcome.t < resident.used);
        call.fate(Counter::Evicted, 1, replicate);
        self.measured.push(Span::Lifetime, t - resident.stored, call.sink);
        self.measured.push(Span::Idle, t - resident.used, call.sink);
        if let Some(forgotten) = self.blocks.evict(block, found, t) {
            let replicate = self.sample.and_then(|sample| sample.replicate(forgotten.hash));
            call.fate(Counter::Forgotten, 1, replicate);
        }
    }

    #[inline]
    fn touch_one<S: Sink>(&mut self, block: Block, call: &mut Call<'_, S>) {
        let Some(found) = self.blocks.find(block) else {
            return call.refuse(Refused::Unknown, 1);
        };
        self.accept(call);
        self.blocks.residency.touch(found.number, call.outcome.t);
        call.count(Counter::Touched, 1);
    }
}
