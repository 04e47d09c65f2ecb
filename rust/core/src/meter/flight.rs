//! Requests in flight: their slots, their events one by one, and their ends.

use super::cells::{Placing, Sample};
use super::handle::{fits, freed, in_use, load, names, nearly_full, next_handle, place_of, store_hot};
use super::layout::{DEADLINE, MILESTONES, SLOT, burn_pane_ns, counter, pane, place, state};
use super::names::Refused;
use super::shard::{NONE, Writer};
use crate::bounds::{EMISSION_TOKENS, PANES, REQUEST_TOKENS};
use crate::request::{Ending, Event, Metric, Observation, Request, Slot, Status};
use crate::slo::Verdict;

/// A request in flight, taken out of its slot.
struct Taken {
    handle: i64,
    index: usize,
    class: usize,
    request: Request,
}

impl Writer<'_> {
    /// The slot that a handle means, if its request is in flight.
    #[inline]
    fn index(&self, handle: i64) -> Option<usize> {
        let index = place_of(handle);
        let in_flight = index < self.shard.slots_used as usize && names(handle, self.words.get(self.hot(index)));
        in_flight.then_some(index)
    }

    pub(super) fn is_in_flight(&self, handle: i64) -> bool {
        self.index(handle).is_some()
    }

    fn hot(&self, index: usize) -> usize {
        self.layout.slots + index * SLOT
    }

    fn cold(&self, index: usize) -> usize {
        self.layout.milestones + index * MILESTONES
    }

    fn load(&self, handle: i64, index: usize) -> Taken {
        let (slot, class) = load(self.words, self.hot(index), self.cold(index));
        Taken { handle, index, class: class.min(self.layout.max_classes - 1), request: slot.unpack() }
    }

    fn store(&self, taken: &Taken) {
        let slot = Slot::pack(&taken.request);
        store_hot(self.words, self.hot(taken.index), taken.handle, taken.class, &slot);
        for (word, milestone) in slot.milestones.into_iter().enumerate() {
            self.words.set(self.cold(taken.index) + word, milestone as u64);
        }
    }

    fn is_lost(&self, request: &Request, t: i64) -> bool {
        t.saturating_sub(request.last_event()) > self.settings.ttl_ns
    }

    /// Whether a request's event will be accepted, or find the request lost.
    pub(super) fn moves_on(&self, handle: i64, t: i64, event: Event) -> bool {
        self.index(handle).is_some_and(|index| {
            let mut request = self.load(handle, index).request;
            self.is_lost(&request, t) || request.take(t, event).is_ok()
        })
    }

    /// Takes an arrival: its handle, or -1.
    pub(super) fn arrive(&mut self, t: i64, prompt_tokens: i64, cached_tokens: i64, class: usize) -> i64 {
        let mut handle = -1;
        self.arrive_many(t, 1, |_| (prompt_tokens, cached_tokens, class), |arrived| handle = arrived);
        handle
    }

    /// Takes arrivals at one time: (prompt tokens, cached tokens, class) of each. Each one's handle is handed on.
    pub(super) fn arrive_many(
        &mut self,
        t: i64,
        n: usize,
        arrival: impl Fn(usize) -> (i64, i64, usize),
        mut handle: impl FnMut(i64),
    ) {
        if !self.begin(t, n) {
            (0..n).for_each(|_| handle(-1));
            return;
        }
        for at in 0..n {
            let (prompt_tokens, cached_tokens, class) = arrival(at);
            handle(self.arrive_within(t, prompt_tokens, cached_tokens, class));
        }
        self.leave();
    }

    fn arrive_within(&mut self, t: i64, prompt_tokens: i64, cached_tokens: i64, class: usize) -> i64 {
        if !REQUEST_TOKENS.contains(prompt_tokens) || !REQUEST_TOKENS.contains(cached_tokens) {
            self.refuse(Refused::Invalid, 1);
            return -1;
        }
        if !self.has_room() {
            self.make_room(t);
        }
        if !self.has_room() {
            self.refuse(Refused::Full, 1);
            return -1;
        }
        self.accept(t);
        let index = self.take_slot();
        let handle = next_handle(self.words.get(self.hot(index)), self.number, index);
        self.words.set(self.hot(index) + 3, i64::MAX as u64);
        self.store(&Taken { handle, index, class, request: Request::arrive(t) });
        let placing = self.placing(t);
        let cell = self.layout.counters(class);
        let cells = self.cells();
        cells.count(placing, cell, counter::ATTEMPTED, 1);
        cells.count(placing, cell, counter::PROMPT_TOKENS, prompt_tokens as u64);
        cells.count(placing, cell, counter::CACHED_TOKENS, cached_tokens as u64);
        self.earliest(state::FIRST_ARRIVAL, t);
        self.note(placing, 1);
        handle
    }

    fn has_room(&self) -> bool {
        self.shard.free != NONE || (self.shard.slots_used as usize) < self.layout.max_requests
    }

    fn take_slot(&mut self) -> usize {
        if self.shard.free == NONE {
            self.shard.slots_used += 1;
            self.words.set(state::SLOTS, u64::from(self.shard.slots_used));
            return self.shard.slots_used as usize - 1;
        }
        let index = self.shard.free as usize;
        self.shard.free = self.words.get(self.hot(index) + 2) as u32;
        index
    }

    /// Looks for lost requests when the table is full, at most once in each pane of the longest window.
    #[cold]
    fn make_room(&mut self, t: i64) {
        let pane = pane(t, self.settings.sweep_ns());
        if self.shard.swept.is_none_or(|swept| pane > swept) {
            self.shard.swept = Some(pane);
            if (0..self.shard.slots_used as usize).any(|index| self.is_overdue(index, t)) {
                self.accept(t);
                self.sweep(t);
            }
        }
    }

    fn is_overdue(&self, index: usize, t: i64) -> bool {
        let hot = self.hot(index);
        in_use(self.words.get(hot)) && t.saturating_sub(self.words.get(hot + 1) as i64) > self.settings.ttl_ns
    }

    /// Ends every request that has been silent for too long.
    pub(super) fn sweep(&mut self, at: i64) {
        for index in 0..self.shard.slots_used as usize {
            if self.is_overdue(index, at) {
                let taken = self.load(-1, index);
                self.finish(&taken, taken.request.last_event(), at, Status::Lost, false);
            }
        }
    }

    /// An arrival with the id of a request that may be in flight: true if the id is free.
    pub(super) fn arrive_again(&mut self, t: i64, handle: i64) -> bool {
        let Some(index) = self.index(handle) else { return true };
        if !self.begin(t, 1) {
            return false;
        }
        let taken = self.load(handle, index);
        let lost = self.is_lost(&taken.request, t);
        if lost {
            self.lose(handle, t);
        } else if t < taken.request.last_event() {
            self.refuse(Refused::Negative, 1);
        } else {
            self.refuse(Refused::Duplicate, 1);
        }
        self.leave();
        lost
    }

    /// Takes one event each of several requests, all at one time.
    pub(super) fn events(&mut self, t: i64, handles: &[i64], event: Event) {
        if !self.begin(t, handles.len()) {
            return;
        }
        if self.is_ahead(t) && handles.iter().any(|&handle| self.moves_on(handle, t, event)) {
            self.accept(t);
        }
        for &handle in handles {
            self.take(handle, t, event);
        }
        self.leave();
    }

    /// Takes one event; whether it was accepted. The rings have moved to its time.
    pub(super) fn take(&mut self, handle: i64, t: i64, event: Event) -> bool {
        if let Event::Tokens(k) = event
            && !EMISSION_TOKENS.contains(k as i64)
        {
            self.refuse(Refused::Invalid, 1);
            return false;
        }
        let Some(index) = self.index(handle) else {
            self.refuse(Refused::Unknown, 1);
            return false;
        };
        let mut taken = self.load(handle, index);
        if self.is_lost(&taken.request, t) {
            self.refuse(Refused::Unknown, 1);
            self.lose(handle, t);
            return false;
        }
        let tokens = taken.request.tokens();
        if let Event::Tokens(k) = event
            && !fits(tokens, k)
        {
            self.refuse(Refused::Invalid, 1);
            return false;
        }
        match taken.request.take(t, event) {
            Err(refusal) => {
                self.refuse(refusal.into(), 1);
                false
            }
            Ok(observation) => {
                self.store(&taken);
                let placing = self.placing(t);
                self.observe_event(&taken, placing, event, observation, tokens);
                self.note(placing, 1);
                true
            }
        }
    }

    fn observe_event(&self, taken: &Taken, placing: Placing, event: Event, observation: Observation, before: u64) {
        let (cells, t) = (self.cells(), placing.t);
        let latency = |metric: Metric, ns: Option<i64>| {
            if let Some(ns) = ns {
                cells.record(placing, self.layout.sketch(taken.class, metric as usize), Sample::once(ns));
            }
        };
        let counters = self.layout.counters(taken.class);
        if let Event::Tokens(k) = event {
            cells.count(placing, counters, counter::OUTPUT_TOKENS, k);
            let words = self.words;
            words.raise(state::LAST_EMISSION, t as u64 + 1);
            self.earliest(state::FIRST_EMISSION, t);
            let first = matches!(observation, Observation::First { .. });
            self.move_deadlines((taken.index, taken.class), t, k, first, before);
            if nearly_full(before + k) {
                // No time is safe: the fast path does not count tokens to their limit.
                words.set(self.hot(taken.index) + 3, i64::MIN as u64);
            }
        }
        match observation {
            Observation::Queue(ns) => latency(Metric::Queue, Some(ns)),
            Observation::Scheduling(ns) => latency(Metric::Scheduling, ns),
            Observation::First { ttft, prefill } => {
                latency(Metric::Ttft, Some(ttft));
                latency(Metric::Prefill, prefill);
            }
            Observation::Gap(gap) => {
                let Event::Tokens(k) = event else { return };
                let cell = self.layout.sketch(taken.class, Metric::Itl as usize);
                self.settings.itl_rule.samples(gap, k, |value, n, sum| {
                    cells.record(placing, cell, Sample { value, n, sum });
                });
                self.note_long_gap(taken, self.settings.itl_rule.largest(gap, k));
            }
            Observation::Preempted => cells.count(placing, counters, counter::PREEMPTIONS, 1),
            Observation::Resumed => {}
        }
    }

    /// Moves the deadlines of a request's SLO sets, as [`Fluidity`](crate::slo::Fluidity) defines them: a token is due
    /// at a time that grows by the limit with each token, and begins anew at a token that came too late.
    pub(super) fn move_deadlines(&self, (index, class): (usize, usize), t: i64, k: u64, first: bool, before: u64) {
        let judges = self.judges(class);
        if judges == 0 {
            return;
        }
        let words = self.words;
        let mut safe_until = i64::MAX;
        for (set, slo) in self.settings.slos.iter().map(|set| &set.slo).enumerate() {
            if judges >> set & 1 == 0 {
                continue;
            }
            let at = self.deadline(index, set);
            let packed = words.get(at + 2);
            let (due, limit) = if first {
                words.set(at + 1, 0);
                let arrival = words.get(self.cold(index)) as i64;
                (arrival.saturating_add(slo.ttft_ns), slo.ttft_ns)
            } else {
                let since = (before as u32).wrapping_sub(packed as u32);
                (later(words.get(at) as i64, slo.tpot_ns, u64::from(since)), slo.tpot_ns)
            };
            // Misses are kept in the high half, and with them whether the limit of a gap was reached.
            let mut missed = if first { 0 } else { packed >> 32 };
            let next = if t <= due {
                later(due, slo.tpot_ns, k)
            } else {
                missed += 1;
                if t - due >= limit {
                    words.add(at + 1, ((t - due) / limit) as u64);
                }
                later(t, slo.tpot_ns, k)
            };
            words.set(at, next as u64);
            words.set(at + 2, missed << 32 | u64::from((before + k) as u32));
            safe_until = safe_until.min(next);
        }
        words.set(self.hot(index) + 3, safe_until as u64);
    }

    fn deadline(&self, index: usize, set: usize) -> usize {
        self.layout.deadlines + (index * self.layout.slos + set) * DEADLINE
    }

    /// Remembers which sets' limits of a gap were reached.
    fn note_long_gap(&self, taken: &Taken, largest: i64) {
        let judges = self.judges(taken.class);
        for (set, slo) in self.settings.slos.iter().map(|set| &set.slo).enumerate() {
            if judges >> set & 1 == 1 && slo.itl_ns.is_some_and(|limit| largest >= limit) {
                let at = self.deadline(taken.index, set) + 2;
                self.words.set(at, self.words.get(at) | LONG_GAP);
            }
        }
    }

    /// Ends several requests at one time.
    pub(super) fn end(&mut self, t: i64, handles: &[i64], status: Status, degraded: bool) {
        if !self.begin(t, handles.len()) {
            return;
        }
        if self.is_ahead(t) && handles.iter().any(|&handle| self.index(handle).is_some()) {
            self.accept(t);
        }
        for &handle in handles {
            match self.index(handle).map(|index| self.load(handle, index)) {
                None => self.refuse(Refused::Unknown, 1),
                Some(taken) if self.is_lost(&taken.request, t) => {
                    self.refuse(Refused::Unknown, 1);
                    self.lose(handle, t);
                }
                Some(taken) => self.finish(&taken, t, t.max(taken.request.last_event()), status, degraded),
            }
        }
        self.leave();
    }

    /// Ends a request that was found lost at `t`.
    fn lose(&mut self, handle: i64, t: i64) {
        self.accept(t);
        // The sweep may have found it first.
        if let Some(index) = self.index(handle) {
            let taken = self.load(handle, index);
            self.finish(&taken, taken.request.last_event(), t, Status::Lost, false);
        }
    }

    fn finish(&mut self, taken: &Taken, t: i64, counted_at: i64, status: Status, degraded: bool) {
        let ending = taken.request.clone().end(t, status);
        let placing = self.placing(counted_at);
        let words = self.words;
        words.add(state::CLAMPED, u64::from(ending.clamped));
        let (cells, counters) = (self.cells(), self.layout.counters(taken.class));
        cells.count(placing, counters, counter::BY_STATUS + status as usize, 1);
        cells.count(placing, counters, counter::DEGRADED, u64::from(degraded));
        cells.count(placing, counters, counter::PREEMPTED, u64::from(ending.stall.is_some()));
        for metric in Metric::ALL {
            cells.count(placing, counters, counter::MISSING + metric as usize, u64::from(ending.lacks(metric)));
        }
        for (metric, ns) in ending.observed() {
            cells.record(placing, self.layout.sketch(taken.class, metric as usize), Sample::once(ns));
        }
        self.judge(taken, placing, &ending);
        self.note(placing, 1);
        let hot = self.hot(taken.index);
        words.set(hot, freed(words.get(hot)));
        words.set(hot + 2, u64::from(self.shard.free));
        self.shard.free = taken.index as u32;
    }

    fn judge(&self, taken: &Taken, placing: Placing, ending: &Ending) {
        let (cells, counters) = (self.cells(), self.layout.counters(taken.class));
        let judges = self.judges(taken.class);
        let has_verdict = ending.status != Status::Abort;
        for (set, slo) in self.settings.slos.iter().map(|set| &set.slo).enumerate() {
            if judges >> set & 1 == 0 {
                continue;
            }
            let at = self.deadline(taken.index, set);
            let packed = self.words.get(at + 2);
            let long_gap = ending.tokens > 0 && packed & LONG_GAP != 0;
            let verdict = slo.judge(ending, long_gap.then_some(i64::MAX));
            let first = counter::SLOS + set * counter::SLO;
            let count = |slot: usize, n: u64| cells.count(placing, counters, first + slot, n);
            match verdict {
                Verdict::Abstained => {}
                Verdict::Good => {
                    count(counter::GOOD, 1);
                    count(counter::GOOD_TOKENS, ending.tokens);
                }
                Verdict::NoTokens => count(counter::OVER, 1),
                Verdict::Over(limits) => count(counter::OVER + usize::from(limits & 15), 1),
                Verdict::Failed(status) => count(counter::FAILED + status as usize, 1),
            }
            if ending.status.succeeded() && ending.tokens >= 1 {
                let fluidity = crate::slo::Fluidity::of(
                    ending.tokens - ((packed & !LONG_GAP) >> 32).min(ending.tokens),
                    ending.tokens.saturating_add(self.words.get(at + 1)),
                );
                count(counter::MET, fluidity.met);
                count(counter::DEADLINES, fluidity.total);
                let cell = self.layout.sketch(taken.class, Metric::ALL.len() + set);
                cells.record(placing, cell, Sample::once(fluidity.index_billionths()));
            }
            if has_verdict {
                self.count_burn(placing.t, 2 * set, u64::from(verdict == Verdict::Good));
            }
        }
        if has_verdict {
            let bad = !ending.status.succeeded();
            self.count_burn(placing.t, 2 * self.layout.slos, u64::from(bad));
        }
    }

    /// Counts a judged request in the rings behind burn rates, and whether it adds to the word before.
    fn count_burn(&self, t: i64, word: usize, n: u64) {
        if !self.settings.burn {
            return;
        }
        for (ring, &(open_from, open)) in self.shard.burn_open.iter().enumerate() {
            let mut at = open;
            if t < open_from {
                let number = pane(t, burn_pane_ns(ring));
                if number < pane(open_from, burn_pane_ns(ring)) - PANES {
                    continue;
                }
                at = self.layout.burn(ring, place(number));
            }
            self.words.add(at + word, n);
            self.words.add(at + word + 1, 1);
        }
    }
}

/// The bit that says that a gap reached a set's limit.
const LONG_GAP: u64 = 1 << 63;

/// A deadline, so many limits later, at most the end of time.
fn later(due: i64, limit_ns: i64, tokens: u64) -> i64 {
    let due = i128::from(due) + i128::from(limit_ns) * i128::from(tokens);
    due.min(i128::from(i64::MAX)) as i64
}
