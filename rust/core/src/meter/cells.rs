//! What is done with the cells of a block: adding to them, closing an open pane, forgetting a closed one.
//!
//! One observation changes one cell of one level. When a pane is over, its cells move to the level above and, if the
//! ring still has the pane, to the sum of the window's closed panes and (as a list of counts) to the pane's chain of
//! segments, from which they are subtracted when the pane leaves the ring. So totals and windows cost nothing while
//! tokens come, and reading one adds up at most a handful of arrays.

use super::atomic::Ordering::Relaxed;
use super::layout::{CELL_HEAD, Cell, Kind, Layout, RING, SEGMENT, place, state};
use super::memory::Words;
use crate::sketch::Mapping;

/// Bits of an entry's count in a chain; the rest is the slot.
const COUNT_BITS: u32 = 48;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

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
            Kind::Batch => (value as usize).min(cell.slots - 1),
            Kind::Counters => 0,
        }
    }

    /// The slots that may be other than empty, given the head's two extremes.
    pub(super) fn span(self, cell: Cell, low: u64, high: u64) -> std::ops::Range<usize> {
        if cell.kind == Kind::Counters {
            return 0..cell.slots;
        }
        if high == 0 {
            return 0..0;
        }
        let bound = |value: i64| self.slot_of(cell, value.max(0)).min(cell.slots - 1);
        bound((i64::MAX as u64).wrapping_sub(low) as i64)..bound(high.wrapping_sub(1) as i64) + 1
    }

    /// Adds to a cell of a level.
    #[inline(always)]
    fn add(self, base: usize, cell: Cell, slot: usize, sample: Sample) {
        let head = base + cell.offset;
        self.words.add(head + CELL_HEAD + slot, sample.n);
        self.words.add_wide(head, sample.sum);
        self.words.raise(head + 2, (i64::MAX - sample.value) as u64);
        self.words.raise(head + 3, sample.value as u64 + 1);
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

    /// Adds to a counter.
    #[inline(always)]
    pub(super) fn count(self, placing: Placing, cell: Cell, slot: usize, n: u64) {
        if n == 0 {
            return;
        }
        self.words.add(self.layout.level(placing.level) + cell.offset + slot, n);
        if placing.level > 0 {
            self.count_late(placing, cell, slot, n);
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
        for (window, at) in self.closed_panes(placing) {
            let mut chain = Chain::of(self, window, at);
            if chain.reserve(4) {
                chain.push(u64::from(cell.number) << 32 | 1);
                chain.push(sample.sum as u64);
                chain.push((sample.sum >> 64) as u64);
                chain.push(entry(slot, sample.n));
                self.add(self.layout.closed(window), cell, slot, sample);
                let extreme = self.layout.extreme(window, cell, at);
                self.words.raise(extreme, (i64::MAX - sample.value) as u64);
                self.words.raise(extreme + 1, sample.value as u64 + 1);
            }
        }
    }

    #[cold]
    fn count_late(self, placing: Placing, cell: Cell, slot: usize, n: u64) {
        for (window, at) in self.closed_panes(placing) {
            let mut chain = Chain::of(self, window, at);
            if chain.reserve(1 + entries(n)) {
                chain.push(u64::from(cell.number) << 32 | entries(n));
                chain.push_all(slot, n);
                self.words.add(self.layout.closed(window) + cell.offset + slot, n);
            }
        }
    }

    /// Moves what a window's open pane holds to the level above, and (where `keep` gives its place) to the ring.
    pub(super) fn close(self, window: usize, cell: Cell, keep: Option<usize>) {
        let from = self.layout.level(window) + cell.offset;
        let above = self.layout.level(window + 1) + cell.offset;
        let closed = self.layout.closed(window) + cell.offset;
        let (words, counters) = (self.words, cell.kind == Kind::Counters);
        let (low, high) = if counters { (0, 1) } else { (words.get(from + 2), words.get(from + 3)) };
        if high == 0 {
            return;
        }
        let first = if counters { 0 } else { CELL_HEAD };
        let span = self.span(cell, low, high);
        let from_slots = words.part(from + first, cell.slots).0.get(span.clone()).unwrap_or(&[]);
        let needed: u64 = from_slots.iter().map(|slot| entries(slot.load(Relaxed))).sum();
        if counters && needed == 0 {
            return;
        }
        let mut chain = keep.map(|at| (Chain::of(self, window, at), at));
        let head = if counters { 1 } else { 3 };
        if let Some((chain, at)) = &mut chain
            && chain.reserve(needed + head)
        {
            chain.push(u64::from(cell.number) << 32 | needed);
            if !counters {
                chain.push(words.get(from));
                chain.push(words.get(from + 1));
                words.add_wide(closed, words.wide(from));
                // The window's own extremes are those of its panes.
                words.set(closed + 2, words.get(closed + 2).max(low));
                words.set(closed + 3, words.get(closed + 3).max(high));
                let extreme = self.layout.extreme(window, cell, *at);
                words.raise(extreme, low);
                words.raise(extreme + 1, high);
            }
        } else {
            chain = None;
        }
        if !counters {
            words.add_wide(above, words.wide(from));
            words.raise(above + 2, low);
            words.raise(above + 3, high);
            (0..CELL_HEAD).for_each(|word| words.set(from + word, 0));
        }
        for (slot, word) in span.zip(from_slots) {
            let n = word.load(Relaxed);
            if n > 0 {
                let at = first + slot;
                if let Some((chain, _)) = &mut chain {
                    chain.push_all(slot, n);
                    words.add(closed + at, n);
                }
                words.add(above + at, n);
                word.store(0, Relaxed);
            }
        }
    }

    /// Takes a closed pane out of its window.
    pub(super) fn expire(self, window: usize, at: usize) {
        let words = self.words;
        Chain::drain(self, window, at, |cell, sum, entries| {
            let closed = self.layout.closed(window) + cell.offset;
            let first = if cell.kind == Kind::Counters {
                0
            } else {
                words.set_wide(closed, words.wide(closed).wrapping_sub(sum));
                let extreme = self.layout.extreme(window, cell, at);
                words.set(extreme, 0);
                words.set(extreme + 1, 0);
                CELL_HEAD
            };
            for (slot, n) in entries {
                words.sub(closed + first + slot, n);
            }
        });
    }
}

/// How many entries a count takes.
fn entries(n: u64) -> u64 {
    if n <= COUNT { u64::from(n > 0) } else { n.div_ceil(COUNT) }
}

fn entry(slot: usize, n: u64) -> u64 {
    (slot as u64) << COUNT_BITS | n
}

/// The segments of one pane of one window: word 0 of a segment is the next one's number + 1, the others are taken in
/// order. A chain's head keeps its last segment and how much of that is used, and its first segment.
pub(super) struct Chain<'a> {
    cells: Cells<'a>,
    head: usize,
    reserved: bool,
}

/// Words of a segment that hold something.
const ROOM: usize = SEGMENT - 1;

impl<'a> Chain<'a> {
    fn of(cells: Cells<'a>, window: usize, at: usize) -> Self {
        Self { cells, head: cells.layout.chain(window, at), reserved: false }
    }

    fn segment(cells: Cells<'_>, number: u64) -> usize {
        cells.layout.segments + number as usize * SEGMENT
    }

    /// (first segment + 1, last segment + 1, words used of the last), as the head packs them.
    fn head(self_: u64) -> (u64, u64, usize) {
        (self_ & 0xfff_ffff, self_ >> 28 & 0xfff_ffff, (self_ >> 56) as usize)
    }

    /// Makes room for so many words; false (and counted) where there are not enough segments left.
    fn reserve(&mut self, needed: u64) -> bool {
        let Cells { words, layout, .. } = self.cells;
        let (_, last, used) = Self::head(words.get(self.head));
        let room = if last == 0 { 0 } else { ROOM - used.min(ROOM) };
        let more = (needed as usize).saturating_sub(room).div_ceil(ROOM);
        // The free list is as long as what was used less what is in use: walking it tells.
        let fresh = layout.max_segments - (words.get(state::SEGMENTS) as usize).min(layout.max_segments);
        let mut missing = more.saturating_sub(fresh);
        let mut free = words.get(state::FREE_SEGMENT);
        while missing > 0 && free != 0 {
            free = words.get(Self::segment(self.cells, free - 1));
            missing -= 1;
        }
        self.reserved = missing == 0;
        if !self.reserved {
            words.add(state::DROPPED, 1);
        }
        self.reserved
    }

    fn push_all(&mut self, slot: usize, mut n: u64) {
        while n > COUNT {
            self.push(entry(slot, COUNT));
            n -= COUNT;
        }
        self.push(entry(slot, n));
    }

    fn push(&mut self, word: u64) {
        let words = self.cells.words;
        let (first, mut last, mut used) = Self::head(words.get(self.head));
        let mut first = first;
        if last == 0 || used >= ROOM {
            let Some(taken) = self.take() else { return };
            if last == 0 {
                first = taken + 1;
            } else {
                words.set(Self::segment(self.cells, last - 1), taken + 1);
            }
            last = taken + 1;
            used = 0;
        }
        words.set(Self::segment(self.cells, last - 1) + 1 + used, word);
        words.set(self.head, first | last << 28 | (used as u64 + 1) << 56);
    }

    /// A segment that is free.
    fn take(&mut self) -> Option<u64> {
        let Cells { words, layout, .. } = self.cells;
        let free = words.get(state::FREE_SEGMENT);
        let taken = if free != 0 {
            words.set(state::FREE_SEGMENT, words.get(Self::segment(self.cells, free - 1)));
            free - 1
        } else {
            let fresh = words.get(state::SEGMENTS);
            if fresh as usize >= layout.max_segments {
                return None;
            }
            words.set(state::SEGMENTS, fresh + 1);
            fresh
        };
        words.set(Self::segment(self.cells, taken), 0);
        Some(taken)
    }

    /// Hands every record of a pane to `visit`: cell, sum and entries.
    pub(super) fn visit(cells: Cells<'a>, window: usize, at: usize, visit: impl FnMut(Cell, u128, Entries<'_, 'a>)) {
        Self::walk(cells, cells.words.get(cells.layout.chain(window, at)), visit);
    }

    fn walk(cells: Cells<'a>, head: u64, mut visit: impl FnMut(Cell, u128, Entries<'_, 'a>)) {
        let (first, last, used) = Self::head(head);
        let mut cursor = Cursor { cells, segment: first, last, used, word: 0, left: cells.layout.max_segments };
        while let Some(head) = cursor.next() {
            let Some(cell) = cells.layout.cell((head >> 32) as u32) else { return };
            let sum = if cell.kind == Kind::Counters {
                0
            } else {
                let (low, high) = (cursor.next().unwrap_or(0), cursor.next().unwrap_or(0));
                u128::from(low) | u128::from(high) << 64
            };
            visit(cell, sum, Entries { cursor: &mut cursor, left: head as u32, slots: cell.slots });
        }
    }

    /// The same, and gives the segments back.
    fn drain(cells: Cells<'a>, window: usize, at: usize, visit: impl FnMut(Cell, u128, Entries<'_, 'a>)) {
        let words = cells.words;
        let place = cells.layout.chain(window, at);
        let head = words.get(place);
        if head == 0 {
            return;
        }
        Self::walk(cells, head, visit);
        let (first, last, _) = Self::head(head);
        words.set(Self::segment(cells, last - 1), words.get(state::FREE_SEGMENT));
        words.set(state::FREE_SEGMENT, first);
        words.set(place, 0);
    }
}

/// A reader of a chain's words.
struct Cursor<'a> {
    cells: Cells<'a>,
    segment: u64,
    last: u64,
    used: usize,
    word: usize,
    /// Segments that may still be followed: a chain that was damaged ends.
    left: usize,
}

impl Iterator for Cursor<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.segment == 0 || self.segment as usize > self.cells.layout.max_segments {
            return None;
        }
        let start = Chain::segment(self.cells, self.segment - 1);
        if self.word == ROOM && self.segment != self.last {
            self.left = self.left.checked_sub(1)?;
            self.segment = self.cells.words.get(start);
            self.word = 0;
            return self.next();
        }
        if self.segment == self.last && self.word >= self.used {
            return None;
        }
        self.word += 1;
        Some(self.cells.words.get(start + self.word))
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
