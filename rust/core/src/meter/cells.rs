//! What is done with the cells of a block: adding to them, closing an open pane, forgetting a closed one.
//!
//! One observation changes one cell of one level. When a pane is over, its cells move to the level above and, if the
//! ring still has the pane, to the sum of the window's closed panes and (as a list of counts) to the pane's chain of
//! segments, from which they are subtracted when the pane leaves the ring. So totals and windows cost nothing while
//! tokens come, and reading one adds up at most a handful of arrays.

use super::atomic::Ordering::Relaxed;
use super::layout::{CELL_HEAD, Cell, Kind, Layout, RING, SEGMENT, place, state};
use super::memory::Words;
use crate::sketch::{Mapping, slots_of};

/// Bits of an entry's count in a chain; the rest is the slot.
const COUNT_BITS: u32 = 48;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Words of a record before its entries: cell and length, sum.
const RECORD_HEAD: u64 = 3;

/// A value, how often it came, and what its sum grows by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub value: i64,
    pub n: u64,
    pub sum: u128,
}

impl Sample {
    #[inline(always)]
    pub(super) fn once(value: i64) -> Self {
        Self { value, n: 1, sum: value as u128 }
    }
}

/// The two ends of a value alone, as the head of a cell keeps them: both grow, and are 0 where there is nothing.
#[inline(always)]
pub(super) const fn ends_of(value: i64) -> (u64, u64) {
    ((i64::MAX - value) as u64, value as u64 + 1)
}

/// The least and the greatest value, given the two ends.
#[inline(always)]
pub(super) const fn values_of((low, high): (u64, u64)) -> (i64, i64) {
    ((i64::MAX as u64).wrapping_sub(low) as i64, high.wrapping_sub(1) as i64)
}

/// Where a time's observations go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placing {
    /// The level whose cells take them.
    pub level: usize,
    /// The time, for the closed panes of the windows below that level.
    pub t: i64,
}

/// A shard's words with their layout.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    pub words: Words<'a>,
    pub layout: &'a Layout,
    pub mapping: &'static Mapping,
    pub panes_ns: &'a [i64],
}

impl Cells<'_> {
    #[inline(always)]
    pub(super) fn slot_of(self, cell: Cell, value: i64) -> usize {
        match cell.kind {
            Kind::Sketch => self.mapping.slot(value),
            Kind::Numbers => (value as usize).min(cell.slots - 1),
        }
    }

    /// The slots that may be other than empty, given the head's two extremes.
    pub(super) fn span(self, cell: Cell, low: u64, high: u64) -> std::ops::Range<usize> {
        if high == 0 {
            return 0..0;
        }
        let bound = |value: i64| self.slot_of(cell, value.max(0)).min(cell.slots - 1);
        let (least, greatest) = values_of((low, high));
        let end = bound(greatest) + 1;
        // The two are read one after the other, and may not fit.
        bound(least).min(end)..end
    }

    /// Adds to a cell of a level.
    #[inline(always)]
    fn add(self, base: usize, cell: Cell, slot: usize, sample: Sample) {
        let head = base + cell.offset;
        self.words.add(head + CELL_HEAD + slot, sample.n);
        self.words.add_wide(head, sample.sum);
        self.words.raise_both(head + 2, ends_of(sample.value));
    }

    /// Adds to a cell of the finest open panes, in a slot that is known.
    #[inline(always)]
    pub(super) fn add_at(self, cell: Cell, slot: usize, sample: Sample) {
        self.add(self.layout.level(0), cell, slot, sample);
    }

    /// Records an observation.
    #[inline(always)]
    pub(super) fn record(self, placing: Placing, cell: Cell, sample: Sample) {
        let slot = self.slot_of(cell, sample.value);
        self.add(self.layout.level(placing.level), cell, slot, sample);
        if placing.level > 0 {
            self.record_late(placing, cell, slot, sample);
        }
    }

    /// Records a column of durations, none of them negative, in the finest open panes.
    pub(super) fn record_column(self, cell: Cell, scale: u8, column: &[i64]) {
        let head = self.layout.level(0) + cell.offset;
        let counts = self.words.part(head + CELL_HEAD, cell.slots);
        let mut slots = [0; 64];
        for block in column.chunks(slots.len()) {
            slots_of(scale, block, &mut slots);
            let (mut sum, mut low, mut high) = (0, i64::MAX, 0);
            for (&slot, &value) in slots.iter().zip(block) {
                counts.add(usize::from(slot), 1);
                sum += value as u128;
                low = low.min(value);
                high = high.max(value);
            }
            self.words.add_wide(head, sum);
            self.words.raise_both(head + 2, (ends_of(low).0, ends_of(high).1));
        }
    }

    /// Adds to a counter.
    #[inline(always)]
    pub(super) fn count(self, placing: Placing, cell: Cell, slot: usize, n: u64) {
        if n > 0 {
            self.record(placing, cell, Sample { value: slot as i64, n, sum: 0 });
        }
    }

    /// The windows whose pane of a time is closed but still in the ring.
    fn closed_panes(self, placing: Placing) -> impl Iterator<Item = (usize, usize)> {
        let stand = self.words.time(state::STAND).unwrap_or(0);
        (0..placing.level.min(self.layout.windows)).filter_map(move |window| {
            let pane_ns = *self.panes_ns.get(window)?;
            let (pane, newest) = (placing.t.div_euclid(pane_ns), stand.div_euclid(pane_ns));
            (pane < newest && pane >= newest - (RING as i64 - 1)).then(|| (window, place(pane)))
        })
    }

    #[cold]
    fn record_late(self, placing: Placing, cell: Cell, slot: usize, sample: Sample) {
        // What a reader knows of the closed panes does not hold any more.
        self.words.begin(state::TURNS);
        for (window, at) in self.closed_panes(placing) {
            let mut chain = Chain::of(self, window, at);
            if chain.has_room(RECORD_HEAD + 1) {
                let record = chain.begin(cell, sample.sum);
                let entries = chain.push_all(slot, sample.n);
                chain.finish(record, cell, entries);
                self.add(self.layout.closed(window), cell, slot, sample);
                self.words.raise_both(self.layout.extreme(window, cell, at), ends_of(sample.value));
            }
        }
        self.words.end(state::TURNS);
    }

    /// Moves what a window's open pane holds to the level above, and (where `keep` gives its place) to the ring.
    pub(super) fn close(self, window: usize, cell: Cell, keep: Option<usize>) {
        let from = self.layout.level(window) + cell.offset;
        let above = self.layout.level(window + 1) + cell.offset;
        let closed = self.layout.closed(window) + cell.offset;
        let words = self.words;
        let (low, high) = (words.get(from + 2), words.get(from + 3));
        if high == 0 {
            return;
        }
        let span = self.span(cell, low, high);
        let slots = |base: usize| words.part(base + CELL_HEAD + span.start, span.len()).0;
        let mut chain = keep.map(|at| (Chain::of(self, window, at), at));
        if chain.as_ref().is_some_and(|(chain, _)| !chain.has_room(RECORD_HEAD + span.len() as u64)) {
            chain = None;
        }
        let sum = words.wide(from);
        let record = chain.as_mut().map(|(chain, at)| {
            words.raise_both(self.layout.extreme(window, cell, *at), (low, high));
            words.add_wide(closed, sum);
            // Never lowered: they tell the ends of all that the window ever held.
            words.raise_both(closed + 2, (low, high));
            chain.begin(cell, sum)
        });
        words.add_wide(above, sum);
        words.raise_both(above + 2, (low, high));
        words.set_wide(from, 0);
        let mut entries = 0;
        let levels = slots(from).iter().zip(slots(above)).zip(slots(closed));
        for (slot, ((from, above), closed)) in span.clone().zip(levels) {
            let n = from.load(Relaxed);
            if n > 0 {
                if let Some((chain, _)) = &mut chain {
                    entries += chain.push_all(slot, n);
                    closed.store(closed.load(Relaxed).wrapping_add(n), Relaxed);
                }
                above.store(above.load(Relaxed).wrapping_add(n), Relaxed);
                from.store(0, Relaxed);
            }
        }
        // Last, for as long as they stand a reader looks at the slots: a writer that dies here loses nothing.
        words.set(from + 2, 0);
        words.set(from + 3, 0);
        if let (Some((chain, _)), Some(record)) = (&chain, record) {
            chain.finish(record, cell, entries);
        }
    }

    /// Takes a closed pane out of its window.
    pub(super) fn expire(self, window: usize, at: usize) {
        let words = self.words;
        Chain::visit(self, window, at, |cell, sum, entries| {
            let closed = self.layout.closed(window) + cell.offset;
            words.set_wide(closed, words.wide(closed).wrapping_sub(sum));
            let extreme = self.layout.extreme(window, cell, at);
            words.set(extreme, 0);
            words.set(extreme + 1, 0);
            let slots = words.part(closed + CELL_HEAD, cell.slots);
            for (slot, n) in entries {
                slots.sub(slot, n);
            }
        });
        Chain::free(self, window, at);
    }
}

/// The first word of a record: its cell, and how many entries follow the sum.
fn record(cell: Cell, entries: u64) -> u64 {
    u64::from(cell.number) << 32 | entries
}

fn entry(slot: usize, n: u64) -> u64 {
    (slot as u64) << COUNT_BITS | n
}

/// The segments of one pane of one window: word 0 of a segment is the next one's number + 1, the others are taken in
/// order. The chain's head keeps its first and its last segment and how much of the last is used.
pub(super) struct Chain<'a> {
    cells: Cells<'a>,
    head: usize,
    /// Numbers of segments are kept + 1, 0 for none.
    first: u64,
    last: u64,
    /// Where the next word goes, and where the segment ends.
    at: usize,
    end: usize,
}

/// Bits of a segment's number in a chain's head.
const SEGMENT_BITS: u32 = 28;
const SEGMENT_NUMBER: u64 = (1 << SEGMENT_BITS) - 1;

impl<'a> Chain<'a> {
    fn of(cells: Cells<'a>, window: usize, at: usize) -> Self {
        let head = cells.layout.chain(window, at);
        let (first, last, used) = Self::unpack(cells.words.get(head));
        let start = Self::segment(cells, last);
        let (at, end) = if last == 0 { (0, 0) } else { (start + 1 + used, start + SEGMENT) };
        Self { cells, head, first, last, at, end }
    }

    /// Where a segment begins, given its number + 1.
    fn segment(cells: Cells<'_>, number: u64) -> usize {
        cells.layout.segments + number.saturating_sub(1) as usize * SEGMENT
    }

    fn unpack(head: u64) -> (u64, u64, usize) {
        let used = (head >> (2 * SEGMENT_BITS)) as usize;
        (head & SEGMENT_NUMBER, head >> SEGMENT_BITS & SEGMENT_NUMBER, used.min(SEGMENT - 1))
    }

    /// Whether there is room for so many words; if not, it is counted.
    fn has_room(&self, needed: u64) -> bool {
        let Cells { words, layout, .. } = self.cells;
        let more = (needed as usize).saturating_sub(self.end - self.at).div_ceil(SEGMENT - 1);
        let fresh = layout.max_segments.saturating_sub(words.get(state::SEGMENTS) as usize);
        let mut missing = more.saturating_sub(fresh);
        let mut free = words.get(state::FREE_SEGMENT);
        while missing > 0 && free != 0 {
            free = words.get(Self::segment(self.cells, free));
            missing -= 1;
        }
        if missing > 0 {
            words.add(state::DROPPED, 1);
        }
        missing == 0
    }

    /// Begins a record: where its first word is, which is written when it is known how long it has become.
    fn begin(&mut self, cell: Cell, sum: u128) -> usize {
        self.push(record(cell, 0));
        let begun = self.at - 1;
        self.push(sum as u64);
        self.push((sum >> 64) as u64);
        begun
    }

    /// Writes a count, and says how many entries it took.
    #[inline(always)]
    fn push_all(&mut self, slot: usize, mut n: u64) -> u64 {
        if n <= COUNT {
            self.push(entry(slot, n));
            return 1;
        }
        let mut entries = 1;
        while n > COUNT {
            self.push(entry(slot, COUNT));
            n -= COUNT;
            entries += 1;
        }
        self.push(entry(slot, n));
        entries
    }

    #[inline(always)]
    fn push(&mut self, word: u64) {
        if self.at == self.end && !self.extend() {
            return;
        }
        self.cells.words.set(self.at, word);
        self.at += 1;
    }

    /// Takes a segment that is free.
    #[cold]
    fn extend(&mut self) -> bool {
        let Cells { words, layout, .. } = self.cells;
        let free = words.get(state::FREE_SEGMENT);
        let taken = if free == 0 { words.get(state::SEGMENTS) + 1 } else { free };
        if free == 0 && taken as usize > layout.max_segments {
            return false;
        }
        let start = Self::segment(self.cells, taken);
        if free == 0 {
            words.set(state::SEGMENTS, taken);
        } else {
            words.set(state::FREE_SEGMENT, words.get(start));
        }
        words.set(start, 0);
        if self.last == 0 {
            self.first = taken;
        } else {
            words.set(Self::segment(self.cells, self.last), taken);
        }
        (self.last, self.at, self.end) = (taken, start + 1, start + SEGMENT);
        true
    }

    /// Writes down how long a record has become, and where the chain ends now.
    fn finish(&self, begun: usize, cell: Cell, entries: u64) {
        self.cells.words.set(begun, record(cell, entries));
        let used = (self.at + SEGMENT - 1 - self.end) as u64;
        self.cells.words.set(self.head, self.first | self.last << SEGMENT_BITS | used << (2 * SEGMENT_BITS));
    }

    /// Hands every record of a pane to `visit`: cell, sum and entries.
    pub(super) fn visit(
        cells: Cells<'a>,
        window: usize,
        at: usize,
        mut visit: impl FnMut(Cell, u128, Entries<'_, 'a>),
    ) {
        let (first, last, used) = Self::unpack(cells.words.get(cells.layout.chain(window, at)));
        let mut cursor = Cursor { cells, next: first, last, used, at: 0, end: 0, left: cells.layout.max_segments };
        while let Some(head) = cursor.next() {
            let Some(cell) = cells.layout.cell((head >> 32) as u32) else { return };
            let (low, high) = (cursor.next().unwrap_or(0), cursor.next().unwrap_or(0));
            let sum = u128::from(low) | u128::from(high) << 64;
            visit(cell, sum, Entries { cursor: &mut cursor, left: head as u32, slots: cell.slots });
        }
    }

    /// Gives the segments of a pane back.
    fn free(cells: Cells<'a>, window: usize, at: usize) {
        let words = cells.words;
        let place = cells.layout.chain(window, at);
        let (first, last, _) = Self::unpack(words.get(place));
        if first != 0 {
            words.set(Self::segment(cells, last), words.get(state::FREE_SEGMENT));
            words.set(state::FREE_SEGMENT, first);
            words.set(place, 0);
        }
    }
}

/// A reader of a chain's words.
struct Cursor<'a> {
    cells: Cells<'a>,
    next: u64,
    last: u64,
    used: usize,
    at: usize,
    end: usize,
    /// Segments that may still be followed: a chain that was damaged ends.
    left: usize,
}

impl Cursor<'_> {
    #[cold]
    fn follow(&mut self) -> bool {
        if self.next == 0 || self.next as usize > self.cells.layout.max_segments || self.left == 0 {
            return false;
        }
        self.left -= 1;
        let start = Chain::segment(self.cells, self.next);
        let is_last = self.next == self.last;
        self.next = if is_last { 0 } else { self.cells.words.get(start) };
        (self.at, self.end) = (start + 1, start + 1 + if is_last { self.used } else { SEGMENT - 1 });
        self.at < self.end
    }
}

impl Iterator for Cursor<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.at == self.end && !self.follow() {
            return None;
        }
        let word = self.cells.words.get(self.at);
        self.at += 1;
        Some(word)
    }
}

/// The counts of one record: (slot, count).
pub(super) struct Entries<'b, 'a> {
    cursor: &'b mut Cursor<'a>,
    left: u32,
    slots: usize,
}

impl Iterator for Entries<'_, '_> {
    type Item = (usize, u64);

    fn next(&mut self) -> Option<(usize, u64)> {
        self.left = self.left.checked_sub(1)?;
        let entry = self.cursor.next()?;
        Some((((entry >> COUNT_BITS) as usize).min(self.slots - 1), entry & COUNT))
    }
}

impl Drop for Entries<'_, '_> {
    /// What was not asked for is passed over.
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}
