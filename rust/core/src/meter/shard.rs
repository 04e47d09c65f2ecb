//! One shard: the writer's side of a part of the block, and what moves it on in time.
//!
//! A shard has one writer at a time (`&mut self`). Nothing here allocates, waits, reads a clock or can panic on what
//! it is given.

use super::cells::{Cells, Placing, Sample};
use super::layout::{BURN_SECONDS, GAUGE, GAUGES, KV_PANE, Layout, RING, burn_pane_ns, header, pane, place, state};
use super::memory::Words;
use super::names::Refused;
use super::settings::Settings;
use super::step::Scratch;
use crate::bounds::PANES;
use crate::kv::Tracker;
use crate::sketch::Mapping;
use crate::window::Horizon;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// What the writer of a shard keeps for itself.
pub(super) struct Shard {
    pub(super) horizon: Horizon,
    /// The time at which the rings stand.
    pub(super) stand: Option<i64>,
    /// The finest open pane begins here, and from the other on something must be closed.
    pub(super) open_from: i64,
    turn_at: i64,
    /// Of each ring behind burn rates: where the open pane begins, and its words.
    pub(super) burn_open: [(i64, usize); BURN_SECONDS.len()],
    /// The pane of the last sweep.
    pub(super) swept: Option<i64>,
    pub(super) free: u32,
    pub(super) slots_used: u32,
    /// The time of the step before.
    pub(super) last_step: i64,
    pub(super) scratch: Scratch,
    /// The blocks of the KV cache, in the first shard of a meter that follows them.
    pub(super) kv: Option<Box<Tracker>>,
}

impl Shard {
    /// From this time on something must be closed.
    pub(super) fn turn_at(&self) -> i64 {
        self.turn_at
    }

    pub(super) fn new(kv: Option<Box<Tracker>>) -> Self {
        Self {
            horizon: Horizon::default(),
            stand: None,
            open_from: i64::MIN,
            turn_at: i64::MIN,
            burn_open: [(i64::MAX, 0); BURN_SECONDS.len()],
            swept: None,
            free: NONE,
            slots_used: 0,
            last_step: i64::MIN,
            scratch: Scratch::new(),
            kv,
        }
    }
}

/// The writer of a shard, for one call.
pub(super) struct Writer<'a> {
    /// The whole block.
    pub(super) block: Words<'a>,
    /// The shard's part of it.
    pub(super) words: Words<'a>,
    pub(super) number: usize,
    pub(super) layout: &'a Layout,
    pub(super) settings: &'a Settings,
    pub(super) panes_ns: &'a [i64],
    pub(super) shard: &'a mut Shard,
}

impl<'a> Writer<'a> {
    #[inline(always)]
    pub(super) fn cells(&self) -> Cells<'a> {
        Cells {
            words: self.words,
            layout: self.layout,
            mapping: Mapping::of(self.settings.scale),
            panes_ns: self.panes_ns,
        }
    }

    /// The classes in use.
    pub(super) fn classes(&self) -> impl Iterator<Item = usize> + use<> {
        let known = self.block.get(header::CLASSES) as usize;
        let other = self.layout.max_classes - 1;
        (0..known.min(other)).chain([other])
    }

    /// The SLO sets that judge a class, as bits.
    #[inline]
    pub(super) fn judges(&self, class: usize) -> u64 {
        if self.layout.slos == 0 { 0 } else { self.block.get(Layout::class(class)) }
    }

    /// Says that a call is under way.
    #[inline]
    pub(super) fn enter(&self) {
        self.words.begin(state::CALLS);
    }

    /// Says that it is over.
    #[inline]
    pub(super) fn leave(&self) {
        let words = self.words;
        if let Some(newest) = self.shard.horizon.newest() {
            words.set_time(state::NEWEST, newest);
        }
        words.end(state::CALLS);
    }

    /// Begins a call at a time: false, and all its events are counted, where the time lies too far ahead.
    #[inline]
    pub(super) fn begin(&mut self, t: i64, events: usize) -> bool {
        self.enter();
        let admitted = self.admit(t);
        if !admitted {
            self.refuse(Refused::Future, events as u64);
            self.leave();
        }
        admitted
    }

    /// Whether the events of a call at this time may be looked at further. The rings move where the time is believed.
    #[inline]
    pub(super) fn admit(&mut self, t: i64) -> bool {
        let admitted = self.shard.horizon.admits(t);
        self.advance();
        admitted
    }

    #[cold]
    pub(super) fn refuse(&self, reason: Refused, n: u64) {
        self.words.add(state::REFUSED + reason as usize, n);
    }

    /// An event of this time will be accepted: the newest time and the rings move on first.
    #[inline]
    pub(super) fn accept(&mut self, t: i64) {
        self.shard.horizon.accept(t);
        self.advance();
    }

    /// Times were accepted that turn no pane.
    pub(super) fn accept_plainly(&mut self, newest: i64) {
        self.shard.horizon.accept_run(newest);
        self.advance();
    }

    /// Whether a time lies ahead of where the rings stand.
    #[inline]
    pub(super) fn is_ahead(&self, t: i64) -> bool {
        self.shard.stand.is_none_or(|stand| t > stand)
    }

    /// Moves the rings to the newest time.
    #[inline]
    fn advance(&mut self) {
        if let Some(newest) = self.shard.horizon.newest()
            && self.is_ahead(newest)
        {
            let old = self.shard.stand.replace(newest);
            if newest >= self.shard.turn_at {
                self.turn(old, newest);
            }
            self.words.set_time(state::STAND, newest);
        }
    }

    /// Closes the panes that are over, and forgets those that leave their rings.
    #[cold]
    fn turn(&mut self, old: Option<i64>, newest: i64) {
        let first_burn_pane_ns = burn_pane_ns(0);
        let end = |pane_ns: i64| pane(newest, pane_ns).saturating_add(1).saturating_mul(pane_ns);
        let finest = self.panes_ns.first().copied();
        self.shard.open_from = finest.map_or(i64::MIN, |pane_ns| pane(newest, pane_ns) * pane_ns);
        self.shard.turn_at =
            end(finest.unwrap_or(first_burn_pane_ns)).min(end(first_burn_pane_ns)).min(end(self.settings.sweep_ns()));
        for ring in 0..BURN_SECONDS.len() {
            let number = pane(newest, burn_pane_ns(ring));
            self.shard.burn_open[ring] = (number * burn_pane_ns(ring), self.layout.burn(ring, place(number)));
        }
        let Some(old) = old else { return };
        let words = self.words;
        words.begin(state::TURNS);
        self.turn_windows(old, newest);
        if self.settings.burn {
            for ring in 0..BURN_SECONDS.len() {
                let pane_ns = burn_pane_ns(ring);
                for entered in entered(pane(old, pane_ns), pane(newest, pane_ns)) {
                    let start = self.layout.burn(ring, place(entered));
                    (0..self.layout.burn_words).for_each(|word| words.set(start + word, 0));
                }
            }
        }
        // The rings stand at the new time within the turn: a reader takes both or neither.
        words.set_time(state::STAND, newest);
        words.end(state::TURNS);
        let sweep_pane = pane(newest, self.settings.sweep_ns());
        if sweep_pane != pane(old, self.settings.sweep_ns()) {
            self.shard.swept = Some(sweep_pane);
            self.sweep(newest);
        }
    }

    fn turn_windows(&self, old: i64, newest: i64) {
        let cells = self.cells();
        for (window, &pane_ns) in self.panes_ns.iter().enumerate() {
            let (from, to) = (pane(old, pane_ns), pane(newest, pane_ns));
            if from == to {
                // A wider pane holds this one.
                break;
            }
            let oldest = to.saturating_sub(PANES);
            for leaving in (from - PANES)..from.min(oldest) {
                cells.expire(window, place(leaving));
            }
            let keep = (from >= oldest).then(|| place(from));
            for cell in self.layout.cells(self.classes()) {
                cells.close(window, cell, keep);
            }
            for entered in entered(from, to) {
                let start = self.layout.gauge(window, place(entered), 0);
                (0..GAUGES * GAUGE).for_each(|word| cells.words.set(start + word, 0));
                if self.layout.kv {
                    let start = self.layout.kv_pane(window, place(entered));
                    (0..KV_PANE).for_each(|word| cells.words.set(start + word, 0));
                }
            }
        }
    }

    /// Where what happens at a time is counted.
    #[inline(always)]
    pub(super) fn placing(&self, t: i64) -> Placing {
        if t >= self.shard.open_from { Placing { level: 0, t } } else { self.placing_late(t) }
    }

    #[cold]
    fn placing_late(&self, t: i64) -> Placing {
        let stand = self.shard.stand.unwrap_or(t);
        let open = self.panes_ns.iter().position(|&pane_ns| pane(t, pane_ns) == pane(stand, pane_ns));
        Placing { level: open.unwrap_or(self.layout.windows), t }
    }

    /// Notes `n` accepted events of a time.
    #[inline]
    pub(super) fn note(&self, placing: Placing, n: u64) {
        self.earliest(state::FIRST_EVENT, placing.t);
        if placing.level > 0 {
            self.note_late(placing, n);
        }
    }

    #[cold]
    fn note_late(&self, placing: Placing, n: u64) {
        let stand = self.shard.stand.unwrap_or(placing.t);
        for (window, &pane_ns) in self.panes_ns.iter().enumerate() {
            if pane(placing.t, pane_ns) < pane(stand, pane_ns) - PANES {
                self.words.add(state::LATE + window, n);
            }
        }
    }

    #[inline]
    pub(super) fn earliest(&self, at: usize, t: i64) {
        let words = self.words;
        if words.time(at).is_none_or(|first| t < first) {
            words.set_time(at, t);
        }
    }

    /// Counts one observation of the histogram of batch sizes.
    pub(super) fn batch(&self, placing: Placing, size: usize) {
        let cell = self.layout.batch();
        self.cells().record(placing, cell, Sample::once(size as i64));
    }
}

/// The panes that a ring newly has, at most all of them.
fn entered(from: i64, to: i64) -> std::ops::RangeInclusive<i64> {
    (from + 1).max(to - RING as i64 + 1)..=to
}
