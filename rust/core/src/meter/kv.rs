//! The blocks of the KV cache: what the tracker tells goes to the cells and the panes of the first shard.

use super::cells::Placing;
use super::layout::{pane, place, state};
use super::shard::Writer;
use crate::bounds::PANES;
use crate::kv::{Counter, Outcome, Sink, Span, Tracker, replicate_slot};

/// A writer while the tracker takes a call.
pub(super) struct Tracked<'w, 'a> {
    writer: &'w mut Writer<'a>,
    /// Where the call counts, once an event of it was accepted.
    placing: Option<Placing>,
}

impl<'a> Writer<'a> {
    /// Has the tracker take a call, if there is a tracker.
    pub(super) fn kv(&mut self, call: impl FnOnce(&mut Tracker, &mut Tracked<'_, 'a>)) {
        let Some(mut tracker) = self.shard.kv.take() else { return };
        self.enter();
        call(&mut tracker, &mut Tracked { writer: self, placing: None });
        for (tier, blocks) in tracker.resident().into_iter().enumerate() {
            self.words.set(state::KV_TIERS + tier, blocks);
        }
        self.words.set(state::KV_BLOCKS, tracker.blocks());
        self.words.set(state::KV_REMEMBERED, tracker.remembered());
        self.leave();
        self.shard.kv = Some(tracker);
    }

    /// Counts evictions and refills in the panes of each window that its ring still has.
    fn count_kv_panes(&self, t: i64, evicted: u64, refilled: u64) {
        let stand = self.shard.stand.unwrap_or(t);
        for (window, &pane_ns) in self.panes_ns.iter().enumerate() {
            let number = pane(t, pane_ns);
            if number >= pane(stand, pane_ns) - PANES {
                let at = self.layout.kv_pane(window, place(number));
                self.words.add(at, evicted);
                self.words.add(at + 1, refilled);
            }
        }
    }
}

impl Sink for Tracked<'_, '_> {
    fn admit(&mut self, t: i64) -> bool {
        self.writer.admit(t)
    }

    fn accept(&mut self, t: i64) {
        self.writer.accept(t);
        self.placing = Some(self.writer.placing(t));
    }

    #[inline]
    fn observe(&mut self, span: Span, ns: &[i64]) {
        if let Some(placing) = self.placing {
            self.writer.record_all(placing, self.writer.layout.kv_span(span), ns);
        }
    }

    fn sampled(&mut self, replicate: usize, what: Counter) {
        if let Some(placing) = self.placing {
            let slot = Counter::ALL.len() + replicate_slot(replicate, what);
            self.writer.cells().count(placing, self.writer.layout.kv_counters(), slot, 1);
        }
    }

    fn finish(&mut self, outcome: &Outcome) {
        let words = self.writer.words;
        for (reason, &n) in outcome.refused.iter().enumerate().filter(|&(_, &n)| n > 0) {
            words.add(state::KV_REFUSED + reason, n);
        }
        let Some(placing) = self.placing else { return };
        words.add(state::KV_CLAMPED, outcome.clamped);
        let cell = self.writer.layout.kv_counters();
        for (counter, &n) in outcome.counts.iter().enumerate() {
            self.writer.cells().count(placing, cell, counter, n);
        }
        let [evicted, refilled] = [Counter::Evicted, Counter::Refilled].map(|what| outcome.counts[what as usize]);
        if evicted + refilled > 0 {
            self.writer.count_kv_panes(outcome.t, evicted, refilled);
        }
        self.writer.note(placing, outcome.accepted);
    }
}
