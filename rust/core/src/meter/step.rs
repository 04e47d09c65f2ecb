//! A step of the engine: the hot path.
//!
//! All tokens of a step bear one time. A request whose last token came with the step before has the gap between the
//! two steps, as most others have: those are counted by class, and recorded once a class. Whoever is not so plain
//! (a first token, a gap that needs a close look) is put aside and taken as a single event.

use super::atomic::{AtomicU64, Ordering::Relaxed};
use super::cells::{Cells, Placing, Sample, ends_of};
use super::handle::{class_of, nearly_full, place_of, tokens_of};
use super::layout::{CELL_HEAD, SLOT, counter, state};
use super::shard::Writer;
use crate::bounds::{EMISSION_TOKENS, METER_CLASSES};
use crate::request::{Event, Metric};
use crate::sketch::{ItlRule, slots_of};

/// Handles that are gone through at a time.
const BLOCK: usize = 256;
/// The most tokens of an emission that the fast path takes.
const FEW: i64 = 255;
/// Counts of a class are spread over so many words, so that one increment need not wait for the one before.
const LANES: usize = 4;
/// Classes at most: a class's number is cut to it, so that no bound need be looked at.
const CLASSES: usize = METER_CLASSES.max as usize;
/// Longer gaps are recorded one by one: the sum of the shorter ones of a step fits a word.
const OWN_LIMIT_NS: u64 = 1 << 39;
/// From so many slots on they do not stay in the cache, and are asked for ahead.
const FAR_SLOTS: usize = 1 << 15;

/// Requests of a block that are looked at to tell whether gaps are shared.
const PROBED: usize = 8;

type Slots<'a> = &'a [[AtomicU64; SLOT]];

/// Room to work in, made once.
pub(super) struct Scratch {
    /// By class: requests that share the step's gap.
    shared: Box<[[u32; LANES]; CLASSES]>,
    /// By class: what other gaps come to.
    own: Box<[Own; CLASSES]>,
    gaps: Gaps,
    /// Places in the block of those that are not done yet.
    rest: [u16; BLOCK],
}

#[derive(Clone, Copy)]
struct Own {
    tokens: u64,
    sum: u64,
    /// As a cell's head keeps them.
    low: u64,
    high: u64,
}

const EMPTY: Own = Own { tokens: 0, sum: 0, low: 0, high: 0 };

impl Scratch {
    pub(super) fn new() -> Self {
        Self { shared: boxed([0; LANES]), own: boxed(EMPTY), gaps: Gaps::new(), rest: [0; BLOCK] }
    }
}

/// An array for every class, made where it is to stay.
fn boxed<T: Clone>(empty: T) -> Box<[T; CLASSES]> {
    let made = vec![empty; CLASSES].into_boxed_slice().try_into();
    made.unwrap_or_else(|_| unreachable!("has just that length"))
}

/// A step, as its blocks see it.
#[derive(Clone, Copy)]
struct Step<'a> {
    t: i64,
    /// The time of the step before; -1 where its gap is not to be shared.
    before: i64,
    slots: Slots<'a>,
}

impl<'a> Step<'a> {
    #[inline(always)]
    fn slot(self, handle: i64) -> Option<&'a [AtomicU64; SLOT]> {
        self.slots.get(place_of(handle))
    }
}

/// Takes the requests whose last token came with the step before; the others' places are written to `rest`, and how
/// many they are is returned.
#[inline(never)]
fn take_shared(
    step: Step<'_>,
    handles: &[i64],
    shared: &mut [[u32; LANES]; CLASSES],
    rest: &mut [u16; BLOCK],
) -> usize {
    let mut left = 0;
    let mut take = |at: usize, handle: i64, lane: usize| {
        if let Some([identity, last, packed, safe_until]) = step.slot(handle)
            && identity.load(Relaxed) == handle as u64
            && last.load(Relaxed) == step.before as u64
            && step.t <= safe_until.load(Relaxed) as i64
        {
            let before = packed.load(Relaxed);
            last.store(step.t as u64, Relaxed);
            packed.store(before.wrapping_add(1), Relaxed);
            shared[class_of(before) % CLASSES][lane] += 1;
        } else {
            rest[left % BLOCK] = at as u16;
            left += 1;
        }
    };
    let (fours, ones) = handles.as_chunks::<LANES>();
    for (four, handles) in fours.iter().enumerate() {
        for (lane, &handle) in handles.iter().enumerate() {
            take(four * LANES + lane, handle, lane);
        }
    }
    for (lane, &handle) in ones.iter().enumerate() {
        take(fours.len() * LANES + lane, handle, lane % LANES);
    }
    left
}

/// The gaps of a block that are requests' own.
pub(super) struct Gaps {
    n: usize,
    /// What is observed: the gap, or what the ITL rule makes of it.
    values: [i64; BLOCK],
    classes: [u16; BLOCK],
    tokens: [u8; BLOCK],
    slots: [u16; BLOCK],
    /// Requests whose deadlines have passed: the slot's place, its third word before, and the tokens that came.
    behind: [(u32, u64, u8); BLOCK],
    n_behind: usize,
}

impl Gaps {
    const fn new() -> Self {
        Self {
            n: 0,
            values: [0; BLOCK],
            classes: [0; BLOCK],
            tokens: [1; BLOCK],
            slots: [0; BLOCK],
            behind: [(0, 0, 0); BLOCK],
            n_behind: 0,
        }
    }

    fn clear(&mut self) {
        (self.n, self.n_behind) = (0, 0);
    }
}

/// Takes the requests whose gap is their own: those at the places in `rest`, of which there are `left`, or (where
/// that is none) all. The places of the others are written to `rest`, and how many they are is returned.
#[inline(never)]
fn take_own<const COUNTED: bool, const ALL: bool>(
    step: Step<'_>,
    (handles, counts): (&[i64], &[i64]),
    limit: u64,
    gaps: &mut Gaps,
    rest: &mut [u16; BLOCK],
    left: usize,
) -> usize {
    let (mut n, mut still_left) = (0, 0);
    gaps.n_behind = 0;
    let mut take = |at: usize, handle: i64, rest: &mut [u16; BLOCK]| {
        let k = if COUNTED { counts.get(at).copied().unwrap_or(0) } else { 1 };
        if let Some([identity, last, packed, safe_until]) = step.slot(handle)
            && identity.load(Relaxed) == handle as u64
            && let gap = step.t.wrapping_sub(last.load(Relaxed) as i64)
            && (gap as u64) < limit
            && let before = packed.load(Relaxed)
            && let behind = step.t > safe_until.load(Relaxed) as i64
            && !(behind && nearly_full(tokens_of(before)))
            && (!COUNTED || (1..=FEW).contains(&k))
        {
            if behind {
                gaps.behind[gaps.n_behind % BLOCK] = (place_of(handle) as u32, before, k as u8);
                gaps.n_behind += 1;
            }
            last.store(step.t as u64, Relaxed);
            packed.store(before.wrapping_add(k as u64), Relaxed);
            gaps.values[n % BLOCK] = gap;
            gaps.classes[n % BLOCK] = (class_of(before) % CLASSES) as u16;
            if COUNTED {
                gaps.tokens[n % BLOCK] = k as u8;
            }
            n += 1;
        } else {
            rest[still_left % BLOCK] = at as u16;
            still_left += 1;
        }
    };
    if ALL {
        for (at, &handle) in handles.iter().enumerate() {
            take(at, handle, rest);
        }
    } else {
        for place in 0..left.min(BLOCK) {
            let at = usize::from(rest[place]);
            take(at, handles.get(at).copied().unwrap_or(-1), rest);
        }
    }
    gaps.n = n;
    still_left
}

/// Counts the gaps in the cells of the finest open panes; their sums and ends are kept by class until the step ends.
#[inline(never)]
fn record_own<const COUNTED: bool>(
    cells: Cells<'_>,
    (scale, rule): (u8, ItlRule),
    gaps: &mut Gaps,
    own: &mut [Own; CLASSES],
) {
    let n = gaps.n.min(BLOCK);
    if COUNTED {
        for ((value, &k), &class) in gaps.values.iter_mut().zip(&gaps.tokens).zip(&gaps.classes).take(n) {
            own[usize::from(class) % CLASSES].sum += *value as u64;
            if k > 1 && rule == ItlRule::Token {
                *value /= i64::from(k);
            }
        }
    }
    slots_of(scale, &gaps.values[..n], &mut gaps.slots);
    let first = cells.layout.level(0) + cells.layout.sketch(0, Metric::Itl as usize).offset + CELL_HEAD;
    let stride = cells.layout.sketch(1, 0).offset - cells.layout.sketch(0, 0).offset;
    let counts = cells.words.part(first, cells.words.0.len() - first);
    for at in 0..n {
        let (value, slot, class) = (gaps.values[at], usize::from(gaps.slots[at]), usize::from(gaps.classes[at]));
        let own = &mut own[class % CLASSES];
        let (low, high) = ends_of(value);
        // New ends are rare: a branch costs less than a store each time.
        if low > own.low {
            own.low = low;
        }
        if high > own.high {
            own.high = high;
        }
        let cell = class * stride;
        if COUNTED {
            let k = u64::from(gaps.tokens[at]);
            own.tokens += k;
            counts.add(cell + slot, if rule == ItlRule::Token { k } else { 1 });
            if k > 1 && rule == ItlRule::Stamp {
                counts.add(cell, k - 1);
                own.low = ends_of(0).0;
            }
        } else {
            own.tokens += 1;
            own.sum += value as u64;
            counts.add(cell + slot, 1);
        }
    }
}

/// Whether of a few requests any had its last token with the step before.
#[inline(always)]
fn any_shared(step: Step<'_>, handles: &[i64]) -> bool {
    let few = handles.iter().step_by(handles.len().div_ceil(PROBED).max(1));
    few.filter_map(|&handle| step.slot(handle)).any(|[_, last, ..]| last.load(Relaxed) == step.before as u64)
}

/// Asks for the slots of a block, so that they come while others are worked on.
#[inline(never)]
fn ask_ahead(step: Step<'_>, handles: &[i64]) {
    let words = handles.iter().filter_map(|&handle| step.slot(handle));
    std::hint::black_box(words.fold(0, |all, slot| all ^ slot[0].load(Relaxed)));
}

impl Writer<'_> {
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
                Some(counts) if counts.iter().any(|&k| k != 1) => self.block::<true>(placing, block, counts),
                _ => self.block::<false>(placing, block, &[]),
            };
        }
        if accepted > 0 {
            self.settle(placing);
            self.shard.last_step = t;
            if let Some(size) = size {
                self.batch(placing, size);
            }
        }
        self.leave();
        accepted
    }

    /// Takes tokens that each have a time of their own.
    pub(super) fn tokens(&mut self, times: &[i64], handles: &[i64], counts: Option<&[i64]>) {
        let n = times.len().min(handles.len()).min(counts.map_or(usize::MAX, <[i64]>::len));
        let mut at = 0;
        while at < n {
            let singles = counts.map_or(n, |counts| counts[at..n].iter().take_while(|&&k| k == 1).count() + at);
            at += self.plain_tokens(&times[at..singles], &handles[at..singles]);
            if at < n {
                self.step(times[at], &handles[at..=at], counts.map(|counts| &counts[at..=at]), None);
                at += 1;
            }
        }
    }

    /// Takes the tokens up to the first that is not plain, whose time turns a pane, or lies before the open one; how
    /// many they are.
    fn plain_tokens(&mut self, times: &[i64], handles: &[i64]) -> usize {
        let slots = self.words.part(self.layout.slots, self.shard.slots_used as usize * SLOT).0.as_chunks().0;
        let limit = self.settings.close_look_ns().min(OWN_LIMIT_NS);
        let open = self.shard.open_from..self.shard.turn_at();
        let cells = self.cells();
        let (mut taken, mut oldest, mut newest) = (0, i64::MAX, i64::MIN);
        self.enter();
        for (times, handles) in times.chunks(BLOCK).zip(handles.chunks(BLOCK)) {
            if self.shard.slots_used as usize >= FAR_SLOTS {
                ask_ahead(Step { t: 0, before: 0, slots }, handles);
            }
            let Scratch { own, gaps, .. } = &mut self.shard.scratch;
            gaps.clear();
            for (&t, &handle) in times.iter().zip(handles) {
                let step = Step { t, before: 0, slots };
                if open.contains(&t)
                    && let Some([identity, last, packed, safe_until]) = step.slot(handle)
                    && identity.load(Relaxed) == handle as u64
                    && let gap = t.wrapping_sub(last.load(Relaxed) as i64)
                    && (gap as u64) < limit
                    && t <= safe_until.load(Relaxed) as i64
                {
                    let before = packed.load(Relaxed);
                    last.store(t as u64, Relaxed);
                    packed.store(before.wrapping_add(1), Relaxed);
                    gaps.values[gaps.n % BLOCK] = gap;
                    gaps.classes[gaps.n % BLOCK] = (class_of(before) % CLASSES) as u16;
                    gaps.n += 1;
                    newest = newest.max(t);
                    oldest = oldest.min(t);
                } else {
                    break;
                }
            }
            record_own::<false>(cells, (self.settings.scale, self.settings.itl_rule), gaps, own);
            taken += gaps.n;
            if gaps.n < handles.len() {
                break;
            }
        }
        if taken > 0 {
            self.accept_plainly(newest);
            self.note(Placing { level: 0, t: oldest }, taken as u64);
            self.settle(Placing { level: 0, t: newest });
        }
        self.leave();
        taken
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
        EMISSION_TOKENS.contains(k) && self.moves_on(handle, t, Event::Tokens(1))
    }

    /// Takes up to [`BLOCK`] requests' tokens; how many were accepted.
    #[inline(always)]
    fn block<const COUNTED: bool>(&mut self, placing: Placing, handles: &[i64], counts: &[i64]) -> u64 {
        let t = placing.t;
        let limit = self.settings.close_look_ns().min(OWN_LIMIT_NS);
        let last_step = self.shard.last_step;
        let shares = last_step >= 0 && (t.wrapping_sub(last_step) as u64) < limit;
        let slots = self.words.part(self.layout.slots, self.shard.slots_used as usize * SLOT);
        let step = Step { t, before: if shares { last_step } else { -1 }, slots: slots.0.as_chunks().0 };
        if self.shard.slots_used as usize >= FAR_SLOTS {
            ask_ahead(step, handles);
        }
        let cells = self.cells();
        let Scratch { shared, own, gaps, rest } = &mut self.shard.scratch;
        let mut left = handles.len();
        let by = (handles, counts);
        if placing.level > 0 || counts.iter().any(|&k| k > FEW) {
            rest.iter_mut().zip(0..).for_each(|(place, at)| *place = at);
        } else {
            // Of a request that is named twice the tokens are taken in order: either both wait, or none. So where there
            // are counts, all go one way.
            if COUNTED || !shares || !any_shared(step, handles) {
                left = take_own::<COUNTED, true>(step, by, limit, gaps, rest, left);
            } else {
                left = take_shared(step, handles, shared, rest);
                gaps.clear();
                if left > 0 {
                    left = take_own::<COUNTED, false>(step, by, limit, gaps, rest, left);
                }
            }
            record_own::<COUNTED>(cells, (self.settings.scale, self.settings.itl_rule), gaps, own);
            let behind = gaps.n_behind.min(BLOCK);
            for at in 0..behind {
                let (index, before, k) = self.shard.scratch.gaps.behind[at];
                let class = class_of(before).min(self.layout.max_classes - 1);
                self.move_deadlines((index as usize, class), t, u64::from(k), false, tokens_of(before));
            }
        }
        let mut accepted = (handles.len() - left) as u64;
        if accepted > 0 {
            self.note(placing, accepted);
        }
        for place in 0..left.min(BLOCK) {
            let at = usize::from(self.shard.scratch.rest[place]);
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
        if placing.level > 0 {
            return;
        }
        let gap = placing.t.wrapping_sub(self.shard.last_step);
        let cells = self.cells();
        // Only where a gap is shared has it a slot.
        let slot = cells.mapping.slot(gap.max(0));
        let mut any = 0;
        for class in self.classes() {
            let (Some(lanes), Some(own)) =
                (self.shard.scratch.shared.get_mut(class), self.shard.scratch.own.get_mut(class))
            else {
                break;
            };
            let shared: u64 = lanes.iter().map(|&lane| u64::from(lane)).sum();
            let tokens = shared + own.tokens;
            if tokens == 0 {
                continue;
            }
            any |= tokens;
            let cell = self.layout.sketch(class, Metric::Itl as usize);
            if shared > 0 {
                *lanes = [0; LANES];
                cells.add_at(cell, slot, Sample { value: gap, n: shared, sum: gap as u128 * u128::from(shared) });
            }
            if own.tokens > 0 {
                let own = std::mem::replace(own, EMPTY);
                let head = self.layout.level(0) + cell.offset;
                cells.words.add_wide(head, u128::from(own.sum));
                cells.words.raise_both(head + 2, (own.low, own.high));
            }
            cells.count(placing, self.layout.counters(class), counter::OUTPUT_TOKENS, tokens);
        }
        if any > 0 {
            self.words.raise(state::LAST_EMISSION, placing.t as u64 + 1);
        }
    }
}
