//! A step of the engine: the hot path.
//!
//! All tokens of a step bear one time. A request whose last token came with the step before has the gap between the
//! two steps, as most others have: those are counted by class, and recorded once a class. Whoever is not so plain
//! (a first token, an end of patience, a gap that needs a close look) is put aside and taken as a single event.

use std::sync::atomic::Ordering::Relaxed;

use super::cells::{Placing, Sample};
use super::flight::{class_of, identity, identity_mask};
use super::layout::{CELL_HEAD, SLOT, counter, state};
use super::shard::Shard;
use crate::request::{Event, Metric, flag};

/// Handles that are gone through at a time.
const BLOCK: usize = 256;
/// The most tokens of an emission that the fast path takes.
const FEW: i64 = 255;
/// What a plain request's slot must say.
const PLAIN: u8 = flag::ACTIVE | flag::EMITTED;
const PLAIN_MASK: u64 = identity_mask(flag::ACTIVE | flag::EMITTED | flag::APART);
/// Counts of a class are spread over so many words, so that one increment need not wait for the one before.
const LANES: usize = 4;

/// Room to work in, made once.
pub(super) struct Scratch {
    /// By class: requests that share the step's gap.
    shared: Box<[[u32; LANES]]>,
    /// By class: tokens, sum and extremes of the other gaps.
    own: Box<[Own]>,
    aside: [u16; BLOCK],
}

#[derive(Clone, Copy)]
struct Own {
    tokens: u64,
    sum: u64,
    low: u64,
    high: u64,
}

const EMPTY: Own = Own { tokens: 0, sum: 0, low: u64::MAX, high: 0 };

impl Scratch {
    pub(super) fn new(classes: usize) -> Self {
        let classes = classes.next_power_of_two();
        Self { shared: vec![[0; LANES]; classes].into(), own: vec![EMPTY; classes].into(), aside: [0; BLOCK] }
    }
}

/// Gaps above this are recorded one by one: the sum of the smaller ones of a step fits a word.
const OWN_LIMIT_NS: u64 = 1 << 39;

impl Shard {
    /// Takes a step: tokens of each of these requests (one each, where there are no counts). Returns how many were
    /// accepted.
    #[inline]
    pub(super) fn step(&mut self, t: i64, handles: &[i64], counts: Option<&[i64]>, size: Option<usize>) -> u64 {
        if !self.begin(t, handles.len()) {
            return 0;
        }
        if self.is_ahead(t) {
            let k = |at: usize| counts.and_then(|counts| counts.get(at).copied()).unwrap_or(1);
            if handles.iter().enumerate().any(|(at, &handle)| self.emits(handle, t, k(at))) {
                self.accept(t);
            }
        }
        let placing = self.placing(t);
        let mut accepted = 0;
        for start in (0..handles.len()).step_by(BLOCK) {
            let end = (start + BLOCK).min(handles.len());
            let Some(block) = handles.get(start..end) else { break };
            accepted += match counts.and_then(|counts| counts.get(start..end)) {
                None => self.block::<false>(placing, block, &[]),
                Some(counts) => self.block::<true>(placing, block, counts),
            };
        }
        if accepted > 0 {
            self.settle(placing);
            self.last_step = t;
            if let Some(size) = size {
                self.batch(placing, size);
            }
        }
        self.leave();
        accepted
    }

    /// Counts a step that other shards took part in.
    pub(super) fn batch_of(&mut self, t: i64, size: usize) {
        if self.begin(t, 0) {
            self.accept(t);
            let placing = self.placing(t);
            self.batch(placing, size);
            self.leave();
        }
    }

    #[inline]
    fn emits(&self, handle: i64, t: i64, k: i64) -> bool {
        crate::bounds::EMISSION_TOKENS.contains(k) && self.moves_on(handle, t, Event::Tokens(1))
    }

    /// Takes up to [`BLOCK`] requests' tokens.
    #[inline(always)]
    fn block<const COUNTED: bool>(&mut self, placing: Placing, handles: &[i64], counts: &[i64]) -> u64 {
        let t = placing.t;
        let shared_gap = t.wrapping_sub(self.last_step) as u64;
        let own_limit = self.close_look_ns.min(OWN_LIMIT_NS);
        // A last event that no request has stands for "no gap is shared".
        let shares = shared_gap < own_limit && self.last_step >= 0;
        let last_step = if shares { self.last_step } else { -1 };
        let rule = self.settings.itl_rule;
        let mut asides = 0;
        {
            let cells = super::cells::Cells {
                words: super::memory::Words(self.memory.words())
                    .part(self.layout.shard(self.number), self.layout.shard_words),
                layout: &self.layout,
                mapping: crate::sketch::Mapping::of(self.settings.scale),
                panes_ns: &self.panes_ns,
            };
            let slots = cells.words.part(self.layout.slots, self.slots_used as usize * SLOT).0.as_chunks::<SLOT>().0;
            let shard_bits = (self.number as u64) << 24;
            let Scratch { shared, own, aside } = &mut *self.scratch;
            let class_mask = shared.len() - 1;
            let own = &mut own[..shared.len()];
            let base = self.layout.level(placing.level);
            for (at, &handle) in handles.iter().enumerate() {
                let k = if COUNTED { counts.get(at).copied().unwrap_or(0) } else { 1 };
                let slot = slots.get((handle as u64 as u32 as u64 ^ shard_bits) as usize);
                let taken = slot.is_some_and(|[identity_word, last, tokens, safe_until]| {
                    let identity_word = identity_word.load(Relaxed);
                    let last_event = last.load(Relaxed) as i64;
                    let gap = t.wrapping_sub(last_event) as u64;
                    let plain = (identity_word ^ identity(handle, PLAIN)) & PLAIN_MASK == 0
                        && t <= safe_until.load(Relaxed) as i64
                        && gap < own_limit
                        && placing.level == 0
                        && (!COUNTED || (1..=FEW).contains(&k));
                    if !plain {
                        return false;
                    }
                    last.store(t as u64, Relaxed);
                    tokens.store(tokens.load(Relaxed).wrapping_add(k as u64), Relaxed);
                    let class = class_of(identity_word) & class_mask;
                    if k == 1 && last_event == last_step {
                        shared[class][at % LANES] += 1;
                        return true;
                    }
                    let own = &mut own[class];
                    own.tokens += k as u64;
                    let cell = base + cells.layout.sketch(class, Metric::Itl as usize).offset;
                    rule.samples(gap as i64, k as u64, |value, n, sum| {
                        own.sum += sum as u64;
                        own.low = own.low.min(value as u64);
                        own.high = own.high.max(value as u64 + 1);
                        cells.words.add(cell + CELL_HEAD + cells.mapping.slot(value), n);
                    });
                    true
                });
                if !taken {
                    if let Some(place) = aside.get_mut(asides) {
                        *place = at as u16;
                    }
                    asides += 1;
                }
            }
        }
        let mut accepted = (handles.len() - asides) as u64;
        if accepted > 0 {
            self.note(placing, accepted);
        }
        for place in 0..asides {
            let at = usize::from(self.scratch.aside.get(place).copied().unwrap_or(0));
            let k = if COUNTED { counts.get(at).copied().unwrap_or(0) } else { 1 };
            let Some(&handle) = handles.get(at) else { break };
            accepted += u64::from(self.take_tokens(handle, t, k));
        }
        accepted
    }

    #[inline(never)]
    fn take_tokens(&mut self, handle: i64, t: i64, k: i64) -> bool {
        self.take(handle, t, Event::Tokens(u64::try_from(k).unwrap_or(0)))
    }

    /// Records what the blocks of a step have counted by class.
    #[inline(always)]
    fn settle(&mut self, placing: Placing) {
        let gap = placing.t.wrapping_sub(self.last_step);
        let mut any = false;
        for class in self.classes() {
            let Some(lanes) = self.scratch.shared.get_mut(class) else { continue };
            let shared: u64 = std::mem::take(lanes).into_iter().map(u64::from).sum();
            let own = self.scratch.own.get_mut(class).map_or(EMPTY, |own| std::mem::replace(own, EMPTY));
            if shared + own.tokens == 0 {
                continue;
            }
            any = true;
            let cells = self.cells();
            let cell = self.layout.sketch(class, Metric::Itl as usize);
            if shared > 0 {
                let sum = gap as u128 * u128::from(shared);
                cells.record(placing, cell, Sample { value: gap, n: shared, sum });
            }
            if own.tokens > 0 {
                let head = self.layout.level(placing.level) + cell.offset;
                cells.words.add_wide(head, u128::from(own.sum));
                cells.words.raise(head + 2, i64::MAX as u64 - own.low);
                cells.words.raise(head + 3, own.high);
            }
            cells.count(placing, self.layout.counters(class), counter::OUTPUT_TOKENS, shared + own.tokens);
        }
        if any {
            self.words().raise(state::LAST_EMISSION, placing.t as u64 + 1);
        }
    }
}
