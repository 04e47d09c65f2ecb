//! What a meter takes beside requests: gauges, increments, counts, values by the list.

use super::cells::{Placing, Sample};
use super::layout::{Cell, GAUGE, GAUGES, counter, pane, place, state};
use super::names::{Added, Gauge, Increment, Named, Refused};
use super::shard::Writer;
use crate::bounds::{PANES, REQUEST_TOKENS};
use crate::request::Metric;
use crate::sketch::Rejection;

impl Writer<'_> {
    /// Sets gauges; what is not given holds on.
    pub(super) fn gauge(&mut self, t: i64, values: [Option<i64>; GAUGES]) {
        if !self.begin(t, 1) {
            return;
        }
        let refused = if values.iter().flatten().any(|&value| value < 0) {
            Some(Refused::Invalid)
        } else if self.words.time(state::GAUGED).is_some_and(|last| t < last) {
            Some(Refused::Negative)
        } else {
            None
        };
        if let Some(reason) = refused {
            self.refuse(reason, 1);
        } else {
            self.accept(t);
            self.words.set_time(state::GAUGED, t);
            for gauge in Gauge::ALL {
                if let Some(value) = values[gauge as usize] {
                    self.set_gauge(gauge as usize, t, value);
                }
            }
            self.earliest(state::FIRST_EVENT, t);
        }
        self.leave();
    }

    fn set_gauge(&self, gauge: usize, t: i64, value: i64) {
        let words = self.words;
        let held = state::HELD + 2 * gauge;
        let total = state::GAUGES + GAUGE * gauge;
        if let Some(since) = words.time(held + 1) {
            let before = words.get(held) as i64;
            self.hold(gauge, before, since, t);
            words.add_wide(total, before as u128 * (t - since) as u128);
            words.add(total + 2, (t - since) as u64);
        }
        words.set(held, value as u64);
        words.set_time(held + 1, t);
        words.raise(total + 3, value as u64 + 1);
        let stand = self.shard.stand.unwrap_or(t);
        for (window, &pane_ns) in self.panes_ns.iter().enumerate() {
            let number = pane(t, pane_ns);
            if number >= pane(stand, pane_ns) - PANES {
                words.raise(self.layout.gauge(window, place(number), gauge) + 3, value as u64 + 1);
            }
        }
    }

    /// Adds a value that held from one time to another to the panes that the rings still have.
    fn hold(&self, gauge: usize, value: i64, from: i64, to: i64) {
        if from >= to {
            return;
        }
        let (words, stand) = (self.words, self.shard.stand.unwrap_or(to));
        for (window, &pane_ns) in self.panes_ns.iter().enumerate() {
            let oldest = pane(stand, pane_ns) - PANES;
            for (number, covered) in parts(from, to, pane_ns, oldest) {
                let at = self.layout.gauge(window, place(number), gauge);
                words.add_wide(at, value as u128 * u128::from(covered));
                words.add(at + 2, covered);
                words.raise(at + 3, value as u64 + 1);
            }
        }
    }

    /// Adds increments, by [`Added`].
    pub(super) fn add(&mut self, t: i64, values: [Option<Increment>; 7]) {
        if !self.begin(t, 1) {
            return;
        }
        if values.iter().flatten().all(|increment| increment.whole().is_some()) {
            self.accept(t);
            let placing = self.placing(t);
            let (cells, cell) = (self.cells(), self.layout.added());
            for kind in Added::ALL {
                if let Some(whole) = values[kind as usize].and_then(Increment::whole) {
                    let first = 3 * kind as usize;
                    cells.count(placing, cell, first, whole >> 32);
                    cells.count(placing, cell, first + 1, whole & 0xffff_ffff);
                    cells.count(placing, cell, first + 2, 1);
                }
            }
            self.note(placing, 1);
        } else {
            self.refuse(Refused::Invalid, 1);
        }
        self.leave();
    }

    /// Counts something by name.
    pub(super) fn count(&mut self, t: i64, name: Named, n: i64, class: usize) {
        if !self.begin(t, 1) {
            return;
        }
        if REQUEST_TOKENS.contains(n) {
            self.accept(t);
            let placing = self.placing(t);
            let slot = match name {
                Named::OomEvent | Named::SemanticLookup | Named::SemanticHit => counter::NAMED + name as usize,
                Named::PromptTokens => counter::PROMPT_TOKENS,
                Named::CachedTokens => counter::CACHED_TOKENS,
                Named::OutputTokens => counter::OUTPUT_TOKENS,
            };
            self.cells().count(placing, self.layout.counters(class), slot, n as u64);
            self.note(placing, 1);
        } else {
            self.refuse(Refused::Invalid, 1);
        }
        self.leave();
    }

    /// Remembers when the engine was ready.
    pub(super) fn ready(&mut self, t: i64) {
        if !self.begin(t, 1) {
            return;
        }
        if self.words.get(state::READY) == 0 {
            self.accept(t);
            self.words.set_time(state::READY, t);
            self.note(self.placing(t), 1);
        } else {
            self.refuse(Refused::Duplicate, 1);
        }
        self.leave();
    }

    /// Records durations that were observed at a time; without one, at the newest. Of others it is told how many were
    /// refused, by [`Rejection`].
    pub(super) fn observe(&mut self, t: Option<i64>, metric: Metric, class: usize, ns: &[i64], refused: [u64; 4]) {
        match t {
            Some(t) if !self.begin(t, 1) => return,
            Some(_) => {}
            None => self.enter(),
        }
        for (reason, n) in refused.into_iter().enumerate() {
            self.words.add(state::REFUSED_VALUES + reason, n);
        }
        let negative = ns.iter().filter(|&&ns| ns < 0).count();
        self.words.add(state::REFUSED_VALUES + Rejection::Negative as usize, negative as u64);
        if negative < ns.len() {
            let placing = self.placing_of(t);
            let cell = self.layout.sketch(class, metric as usize);
            if negative == 0 {
                self.record_all(placing, cell, ns);
            } else {
                let cells = self.cells();
                ns.iter().filter(|&&ns| ns >= 0).for_each(|&ns| cells.record(placing, cell, Sample::once(ns)));
            }
            if t.is_some() || self.shard.stand.is_some() {
                self.note(placing, (ns.len() - negative) as u64);
            }
        }
        self.leave();
    }

    /// Records durations of one time, none of them negative.
    pub(super) fn record_all(&self, placing: Placing, cell: Cell, ns: &[i64]) {
        let cells = self.cells();
        if placing.level == 0 && ns.len() > 1 {
            cells.record_column(cell, self.settings.scale, ns);
        } else {
            ns.iter().for_each(|&ns| cells.record(placing, cell, Sample::once(ns)));
        }
    }

    /// Where values go: at a time that is accepted with the first of them, at the newest, or in the totals alone.
    fn placing_of(&mut self, t: Option<i64>) -> Placing {
        if let Some(t) = t {
            self.accept(t);
        }
        match t.or(self.shard.stand) {
            Some(t) => self.placing(t),
            None => Placing { level: self.layout.windows, t: 0 },
        }
    }
}

/// A stretch of time cut at the borders of panes, from pane `oldest` on: (pane, how much of it).
pub(super) fn parts(from: i64, to: i64, pane_ns: i64, oldest: i64) -> impl Iterator<Item = (i64, u64)> {
    let first = pane(from, pane_ns).max(oldest);
    (first..=pane(to - 1, pane_ns)).map(move |number| {
        let (start, end) = (number * pane_ns, number.saturating_add(1).saturating_mul(pane_ns));
        (number, (to.min(end) - from.max(start)) as u64)
    })
}
