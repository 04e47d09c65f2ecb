//! Reading a block while another thread or process writes it.
//!
//! The writer never waits. A reader copies one cell at a time and looks at the shard's two sequences: when panes were
//! closed meanwhile it reads the cell again, and when only a call was under way it reads again a few times, and then
//! takes what it has: the counts of events in flight may then lack an event, never hold one twice.

use std::sync::Arc;

use super::cells::{Cells, Chain};
use super::figures::parts;
use super::gather::{Gathered, Glance, Room, Sight, SightOfWindow};
use super::handle::{in_use, load};
use super::header;
use super::layout::{
    BURN_SECONDS, Cell, GAUGE, GAUGES, Layout, MILESTONES, RING, SLOT, counter, header as head, pane, place, state,
};
use super::memory::{Memory, Words};
use super::sequence::{self, Patience};
use super::settings::{Origin, Settings};
use super::snapshot::{AddedFigure, BurnWindow, ClassReading, GaugeFigure, Scope, Snapshot, WindowInfo, earlier};
use crate::bounds::PANES;
use crate::error::Result;
use crate::request::{Metric, Status};
use crate::sketch::{GatherRoom, Mapping};
use crate::tally;

/// A reader of a block: cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Reader {
    memory: Arc<dyn Memory>,
    pub(super) layout: Arc<Layout>,
    pub(super) settings: Arc<Settings>,
    tally_settings: Arc<tally::Settings>,
    origin: Origin,
    pub(super) panes_ns: Arc<[i64]>,
}

impl Reader {
    /// A reader of a block.
    ///
    /// # Errors
    ///
    /// A decode error for what is no block of this version, or not whole.
    pub fn open(memory: Arc<dyn Memory>) -> Result<Self> {
        let (settings, origin, layout) = header::read(Words(memory.words()))?;
        Ok(Self::new(memory, Arc::new(layout), Arc::new(settings), origin))
    }

    pub(super) fn new(memory: Arc<dyn Memory>, layout: Arc<Layout>, settings: Arc<Settings>, origin: Origin) -> Self {
        let panes_ns = settings.panes_ns().collect();
        let tally_settings = Arc::new(settings.tally());
        Self { memory, layout, settings, tally_settings, origin, panes_ns }
    }

    /// Who writes the block.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// What the meter measures by.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The newest time that the meter has seen.
    #[must_use]
    pub fn newest(&self) -> Option<i64> {
        (0..self.shards()).filter_map(|shard| self.cells(shard).words.time(state::NEWEST)).max()
    }

    fn shards(&self) -> usize {
        self.settings.shards as usize
    }

    pub(super) fn cells(&self, shard: usize) -> Cells<'_> {
        Cells {
            words: Words(self.memory.words()).part(self.layout.shard(shard), self.layout.shard_words),
            layout: &self.layout,
            mapping: Mapping::of(self.settings.scale),
            panes_ns: &self.panes_ns,
        }
    }

    /// The meter at `now`; none: at the newest time that it has seen. Changes nothing, from any thread.
    #[must_use]
    pub fn snapshot(&self, now: Option<i64>) -> Snapshot {
        let now = now.or_else(|| self.newest());
        let sights = (0..self.shards()).map(|_| Sight { turns: None, windows: Vec::new() }).collect();
        let glance = &mut Glance { now, patience: Patience::new(), sights };
        let block = Words(self.memory.words());
        let known = (block.published(head::CLASSES) as usize).min(self.layout.max_classes - 1);
        let mut numbers: Vec<usize> = (0..known).collect();
        numbers.push(self.layout.max_classes - 1);
        let scopes = self.layout.windows + 1;
        let mut all = ClassReading::new(Vec::new(), false, scopes, &self.tally_settings);
        let mut classes: Vec<ClassReading> = numbers
            .iter()
            .map(|&number| {
                let other = number == self.layout.max_classes - 1;
                let key = if other { Vec::new() } else { header::class_key(block, number) };
                ClassReading::new(key, other, scopes, &self.tally_settings)
            })
            .collect();
        let mut used = vec![false; classes.len()];
        self.read_counters(glance, &numbers, &mut classes, &mut all, &mut used);
        self.read_sketches(glance, &numbers, &mut classes, &mut all, &mut used);
        self.read_open(now, &numbers, &mut classes, &mut all);
        let mut used = used.into_iter();
        classes.retain(|_| used.next().unwrap_or(false));
        let mut snapshot = Snapshot {
            settings: (*self.settings).clone(),
            origin: self.origin,
            now,
            newest: None,
            first_event: None,
            first_arrival: None,
            first_emission: None,
            last_emission: None,
            ready: None,
            rejected: [0; 6],
            refused_values: [0; 4],
            clamped: 0,
            over: block.get(head::OVER),
            dropped: 0,
            windows: Vec::new(),
            classes,
            all,
            gauges: self.read_gauges(glance),
            added: self.read_added(glance),
            batch_sizes: self.read_batches(glance),
            burn: None,
            kv: self.read_kv(glance),
        };
        self.read_state(now, &mut snapshot);
        snapshot.burn = self.settings.burn.then(|| self.read_burn(glance, snapshot.newest, snapshot.first_event));
        snapshot
    }

    fn read_state(&self, now: Option<i64>, snapshot: &mut Snapshot) {
        let mut late = vec![0; self.layout.windows];
        for shard in 0..self.shards() {
            let words = self.cells(shard).words;
            snapshot.newest = snapshot.newest.max(words.time(state::NEWEST));
            snapshot.last_emission = snapshot.last_emission.max(words.time(state::LAST_EMISSION));
            snapshot.first_event = earlier(snapshot.first_event, words.time(state::FIRST_EVENT));
            snapshot.first_arrival = earlier(snapshot.first_arrival, words.time(state::FIRST_ARRIVAL));
            snapshot.first_emission = earlier(snapshot.first_emission, words.time(state::FIRST_EMISSION));
            snapshot.ready = earlier(snapshot.ready, words.time(state::READY));
            snapshot.clamped = snapshot.clamped.wrapping_add(words.get(state::CLAMPED));
            snapshot.dropped = snapshot.dropped.wrapping_add(words.get(state::DROPPED));
            let add = |sums: &mut [u64], at: usize| {
                let word = |each: usize| words.get(at + each);
                sums.iter_mut().enumerate().for_each(|(each, sum)| *sum = sum.wrapping_add(word(each)));
            };
            add(&mut snapshot.rejected, state::REFUSED);
            add(&mut snapshot.refused_values, state::REFUSED_VALUES);
            add(&mut late, state::LATE);
        }
        for (window, width_ns) in self.settings.windows_ns.iter().copied().enumerate() {
            let true_width_ns = true_width(now, snapshot.newest, snapshot.first_event, width_ns);
            snapshot.windows.push(WindowInfo { width_ns, true_width_ns, late: late[window] });
        }
    }

    /// Reads something of a shard whose parts belong together.
    pub(super) fn settled<T>(cells: Cells<'_>, patience: &mut Patience, mut read: impl FnMut() -> T) -> (T, bool) {
        match (cells.words.0.get(state::TURNS), cells.words.0.get(state::CALLS)) {
            (Some(turning), Some(calling)) => sequence::settled(turning, calling, patience, read),
            _ => (read(), false),
        }
    }

    /// What of a shard's rings counts at `now`.
    fn sight(&self, cells: Cells<'_>, now: Option<i64>) -> Vec<SightOfWindow> {
        let (Some(stand), Some(now)) = (cells.words.time(state::STAND), now) else {
            return self.panes_ns.iter().map(|_| SightOfWindow::default()).collect();
        };
        let of_window = |(window, &pane_ns): (usize, &i64)| {
            let (stands, asked) = (pane(stand, pane_ns), pane(now, pane_ns));
            let covered = asked - PANES..=asked;
            let mut sight = SightOfWindow { open: covered.contains(&stands), ..SightOfWindow::default() };
            for number in stands - PANES..stands {
                let at = place(number);
                if covered.contains(&number) {
                    sight.within.push(at);
                } else {
                    Chain::visit(cells, window, at, |cell, sum, entries| {
                        sight.sums.push((cell.number, sum));
                        sight.counts.extend(entries.map(|(slot, n)| (cell.number, slot, n)));
                    });
                }
            }
            sight.counts.sort_unstable_by_key(|&(cell, ..)| cell);
            sight.sums.sort_unstable_by_key(|&(cell, _)| cell);
            sight
        };
        self.panes_ns.iter().enumerate().map(of_window).collect()
    }

    /// Reads a cell of every shard over every scope, everything first.
    fn read_cell(&self, glance: &mut Glance, cell: Cell, room: &mut Room) {
        let Glance { now, patience, sights } = glance;
        let (now, alone) = (*now, sights.len() == 1);
        let Room { scopes, open, own } = room;
        scopes.iter_mut().for_each(Gathered::clear);
        for (shard, sight) in sights.iter_mut().enumerate() {
            let cells = self.cells(shard);
            let ((), whole) = Self::settled(cells, patience, || {
                let turns = cells.words.get(state::TURNS);
                if sight.turns != Some(turns) {
                    *sight = Sight { turns: Some(turns), windows: self.sight(cells, now) };
                }
                own.iter_mut().for_each(Gathered::clear);
                open.clear();
                for (window, sight) in sight.windows.iter().enumerate() {
                    open.add(cells, cell, self.layout.level(window));
                    if now.is_none() {
                        // Nothing had been seen yet when the reading began.
                        continue;
                    }
                    let scope = &mut own[window + 1];
                    if sight.open {
                        scope.absorb(open);
                    }
                    let closed = self.layout.closed(window);
                    let head = closed + cell.offset;
                    let ever = (cells.words.get(head + 2), cells.words.get(head + 3));
                    // The head tells the ends of all that it ever held, the panes those of what it holds.
                    let now_held = if ever.1 > 0 { self.ends(cells, cell, window, &sight.within) } else { (0, 0) };
                    scope.low = scope.low.max(now_held.0);
                    scope.high = scope.high.max(now_held.1);
                    let ends = if sight.sums.is_empty() { now_held } else { ever };
                    scope.add_between(cells, cell, closed, ends);
                    sight.subtract_from(scope, cell.number);
                }
                let total = &mut own[0];
                total.absorb(open);
                total.add(cells, cell, self.layout.level(self.layout.windows));
            });
            if !whole {
                own.iter_mut().for_each(Gathered::mend);
            }
            if alone {
                std::mem::swap(scopes, own);
            } else {
                scopes.iter_mut().zip(own.iter()).for_each(|(scope, own)| scope.absorb(own));
            }
        }
    }

    /// The ends of a cell over some closed panes of a window.
    fn ends(&self, cells: Cells<'_>, cell: Cell, window: usize, places: &[usize]) -> (u64, u64) {
        let panes = cells.words.part(self.layout.extreme(window, cell, 0), 2 * RING);
        let ends = |(low, high): (u64, u64), &at: &usize| (low.max(panes.get(2 * at)), high.max(panes.get(2 * at + 1)));
        places.iter().fold((0, 0), ends)
    }

    /// Reads a cell that belongs to no class.
    pub(super) fn read_scopes(&self, glance: &mut Glance, cell: Cell) -> Vec<Gathered> {
        let mut room = self.room(cell.slots);
        self.read_cell(glance, cell, &mut room);
        room.scopes
    }

    fn room(&self, slots: usize) -> Room {
        Room { scopes: self.gathered(slots), open: Gathered::new(slots), own: self.gathered(slots) }
    }

    fn gathered(&self, slots: usize) -> Vec<Gathered> {
        (0..=self.layout.windows).map(|_| Gathered::new(slots)).collect()
    }

    fn read_sketches(
        &self,
        glance: &mut Glance,
        numbers: &[usize],
        classes: &mut [ClassReading],
        all: &mut ClassReading,
        used: &mut [bool],
    ) {
        let mut room = self.room(self.layout.sketch_slots);
        let mut gather = GatherRoom::default();
        let mut sums = self.gathered(self.layout.sketch_slots);
        for unit in 0..self.layout.units() - 1 {
            let metric = Metric::ALL.get(unit).copied();
            let place = |scope: &mut Scope, sketch| match metric {
                Some(metric) => scope.block.latency[metric as usize] = sketch,
                None => scope.block.slos[unit - Metric::ALL.len()].fluidity = sketch,
            };
            sums.iter_mut().for_each(Gathered::clear);
            for ((&number, class), used) in numbers.iter().zip(classes.iter_mut()).zip(used.iter_mut()) {
                self.read_cell(glance, self.layout.sketch(number, unit), &mut room);
                *used |= !room.scopes[0].span.is_empty();
                for ((scope, gathered), sum) in class.scopes.iter_mut().zip(&room.scopes).zip(&mut sums) {
                    if !gathered.span.is_empty() {
                        sum.absorb(gathered);
                        place(scope, gathered.sketch(metric, &self.settings, &mut gather));
                    }
                }
            }
            for (scope, sum) in all.scopes.iter_mut().zip(&sums) {
                place(scope, sum.sketch(metric, &self.settings, &mut gather));
            }
        }
    }

    fn read_counters(
        &self,
        glance: &mut Glance,
        numbers: &[usize],
        classes: &mut [ClassReading],
        all: &mut ClassReading,
        used: &mut [bool],
    ) {
        let mut room = self.room(self.layout.class_counters);
        let mut sums = self.gathered(self.layout.class_counters);
        for ((&number, class), used) in numbers.iter().zip(classes.iter_mut()).zip(used.iter_mut()) {
            self.read_cell(glance, self.layout.counters(number), &mut room);
            *used |= room.scopes[0].counts.iter().any(|&n| n > 0);
            for ((scope, gathered), sum) in class.scopes.iter_mut().zip(&room.scopes).zip(&mut sums) {
                sum.absorb(gathered);
                fill_counters(scope, &gathered.counts);
            }
        }
        for (scope, sum) in all.scopes.iter_mut().zip(&sums) {
            fill_counters(scope, &sum.counts);
        }
    }

    fn read_batches(&self, glance: &mut Glance) -> Vec<Vec<(u32, u64)>> {
        let sizes = |gathered: &Gathered| {
            let counted = gathered.counts.iter().enumerate().filter(|&(_, &n)| n > 0);
            counted.map(|(size, &n)| (size as u32, n)).collect()
        };
        self.read_scopes(glance, self.layout.batch()).iter().map(sizes).collect()
    }

    fn read_added(&self, glance: &mut Glance) -> Vec<[AddedFigure; 7]> {
        let figures = |gathered: &Gathered| {
            std::array::from_fn(|kind| {
                let [high, low, times] = std::array::from_fn(|part| gathered.counts[3 * kind + part]);
                AddedFigure { sum: (u128::from(high) << 32) + u128::from(low), times }
            })
        };
        self.read_scopes(glance, self.layout.added()).iter().map(figures).collect()
    }

    /// Gauges belong to the first shard.
    fn read_gauges(&self, glance: &mut Glance) -> Vec<[Option<GaugeFigure>; GAUGES]> {
        let Glance { now, patience, .. } = glance;
        let now = *now;
        let cells = self.cells(0);
        let words = cells.words;
        let scope = |window: Option<usize>| {
            std::array::from_fn(|gauge| {
                let held = state::HELD + 2 * gauge;
                let (now, since) = (now?, words.time(held + 1)?);
                let value = words.get(held) as i64;
                let mut figure = GaugeFigure { last: value, integral: 0, covered_ns: 0, max: 0 };
                let mut high = 0;
                let mut add = |at: usize| {
                    figure.integral = figure.integral.wrapping_add(words.wide(at));
                    figure.covered_ns = figure.covered_ns.wrapping_add(words.get(at + 2));
                    high = high.max(words.get(at + 3));
                };
                let mut held_for = now.saturating_sub(since).max(0) as u64;
                if let Some(window) = window {
                    let (width_ns, pane_ns) = (self.settings.windows_ns[window], self.panes_ns[window]);
                    if now.saturating_sub(since) > width_ns {
                        return None;
                    }
                    let newest = pane(words.time(state::STAND)?, pane_ns);
                    let oldest = pane(now, pane_ns).max(newest) - PANES;
                    for number in oldest..=pane(now, pane_ns).min(newest) {
                        add(self.layout.gauge(window, place(number), gauge));
                    }
                    held_for =
                        if held_for == 0 { 0 } else { parts(since, now, pane_ns, oldest).map(|(_, ns)| ns).sum() };
                } else {
                    add(state::GAUGES + GAUGE * gauge);
                }
                figure.integral = figure.integral.wrapping_add((value as u128).wrapping_mul(u128::from(held_for)));
                figure.covered_ns = figure.covered_ns.wrapping_add(held_for);
                if held_for > 0 {
                    high = high.max((value as u64).saturating_add(1));
                }
                // Where no pane knows of the gauge, as before it was first set, there is none.
                (high > 0).then(|| GaugeFigure { max: (high - 1) as i64, ..figure })
            })
        };
        let scopes = || std::iter::once(None).chain((0..self.layout.windows).map(Some)).map(scope).collect();
        Self::settled(cells, patience, scopes).0
    }

    fn read_burn(&self, glance: &mut Glance, newest: Option<i64>, first_event: Option<i64>) -> Vec<BurnWindow> {
        let Glance { now, patience, .. } = glance;
        let now = *now;
        let ring = |(ring, seconds): (usize, i64)| {
            let width_ns = seconds * 1_000_000_000;
            let pane_ns = width_ns / PANES;
            let mut sums: Vec<u64> = vec![0; self.layout.burn_words];
            for shard in 0..self.shards() {
                let cells = self.cells(shard);
                let (found, _) = Self::settled(cells, patience, || {
                    let mut sums: Vec<u64> = vec![0; self.layout.burn_words];
                    let (Some(now), Some(stand)) = (now, cells.words.time(state::STAND)) else { return sums };
                    let (asked, stands) = (pane(now, pane_ns), pane(stand, pane_ns));
                    for number in asked.max(stands) - PANES..=asked.min(stands) {
                        let at = self.layout.burn(ring, place(number));
                        for (word, sum) in sums.iter_mut().enumerate() {
                            *sum = sum.wrapping_add(cells.words.get(at + word));
                        }
                    }
                    sums
                });
                sums.iter_mut().zip(found).for_each(|(sum, found): (&mut u64, u64)| *sum = sum.wrapping_add(found));
            }
            let mut pairs = sums.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect::<Vec<[u64; 2]>>();
            let availability = pairs.pop().unwrap_or_default();
            let true_width_ns = true_width(now, newest, first_event, width_ns);
            BurnWindow { width_ns, true_width_ns, slos: pairs, availability }
        };
        BURN_SECONDS.into_iter().enumerate().map(ring).collect()
    }

    fn read_open(&self, now: Option<i64>, numbers: &[usize], classes: &mut [ClassReading], all: &mut ClassReading) {
        let Some(now) = now else { return };
        for shard in 0..self.shards() {
            let words = self.cells(shard).words;
            let used = (words.get(state::SLOTS) as usize).min(self.layout.max_requests);
            for index in 0..used {
                let hot = self.layout.slots + index * SLOT;
                if !in_use(words.get(hot)) {
                    continue;
                }
                let (slot, number) = load(words, hot, self.layout.milestones + index * MILESTONES);
                let at = if number + 1 >= self.layout.max_classes { numbers.len() - 1 } else { number };
                let Some(class) = classes.get_mut(at) else { continue };
                let count = |open: &mut super::snapshot::Open| match slot.last_emission() {
                    Some(last) => open.streams.count(now.saturating_sub(last).max(0)),
                    None => open.waits.count(now.saturating_sub(slot.milestones[0]).max(0)),
                };
                count(&mut class.open);
                count(&mut all.open);
            }
        }
    }
}

fn fill_counters(scope: &mut Scope, counts: &[u64]) {
    let block = &mut scope.block;
    block.attempted = counts[counter::ATTEMPTED];
    for status in Status::ALL {
        block.by_status[status as usize] = counts[counter::BY_STATUS + status as usize];
    }
    block.degraded = counts[counter::DEGRADED];
    block.preempted = counts[counter::PREEMPTED];
    block.preemptions = counts[counter::PREEMPTIONS];
    block.prompt_tokens = counts[counter::PROMPT_TOKENS];
    block.output_tokens = counts[counter::OUTPUT_TOKENS];
    scope.cached_tokens = counts[counter::CACHED_TOKENS];
    scope.named.copy_from_slice(&counts[counter::NAMED..counter::NAMED + 3]);
    block.missing.copy_from_slice(&counts[counter::MISSING..counter::MISSING + 8]);
    for (slo, counts) in block.slos.iter_mut().zip(counts[counter::SLOS..].chunks_exact(counter::SLO)) {
        slo.good = counts[counter::GOOD];
        slo.good_output_tokens = counts[counter::GOOD_TOKENS];
        slo.over.copy_from_slice(&counts[counter::OVER..counter::OVER + 16]);
        slo.failed.copy_from_slice(&counts[counter::FAILED..counter::FAILED + 8]);
        slo.met = counts[counter::MET];
        slo.deadlines = counts[counter::DEADLINES];
    }
}

/// How much time a window covers at `now`: of the past, only what the ring still has.
fn true_width(now: Option<i64>, newest: Option<i64>, first_event: Option<i64>, width_ns: i64) -> i64 {
    let (Some(now), Some(newest), Some(first)) = (now, newest, first_event) else { return 0 };
    let pane_ns = width_ns / PANES;
    let oldest = (pane(now, pane_ns).max(pane(newest, pane_ns)) - PANES) * pane_ns;
    now.saturating_sub(oldest).min(now.saturating_sub(first)).max(0)
}
