//! What a reader adds up: a cell over one scope, and which panes of a shard's rings count at the moment asked for.

use std::ops::Range;

use super::atomic::Ordering::Relaxed;
use super::cells::{Cells, values_of};
use super::layout::{CELL_HEAD, Cell};
use super::sequence::Patience;
use super::settings::Settings;
use crate::request::Metric;
use crate::sketch::{GatherRoom, Sketch, Sparse};

/// Counts of a cell over some scope, as they are added up.
pub(super) struct Gathered {
    pub(super) counts: Vec<u64>,
    pub(super) span: Range<usize>,
    pub(super) sum: u128,
    pub(super) low: u64,
    pub(super) high: u64,
    /// Whether it was written to while it was read.
    pub(super) torn: bool,
}

impl Gathered {
    pub(super) fn new(slots: usize) -> Self {
        Self { counts: vec![0; slots], span: 0..0, sum: 0, low: 0, high: 0, torn: false }
    }

    pub(super) fn clear(&mut self) {
        self.counts[self.span.clone()].fill(0);
        (self.span, self.sum, self.low, self.high, self.torn) = (0..0, 0, 0, 0, false);
    }

    pub(super) fn widen(&mut self, span: &Range<usize>) {
        if self.span.is_empty() {
            self.span = span.clone();
        } else if !span.is_empty() {
            self.span = self.span.start.min(span.start)..self.span.end.max(span.end);
        }
    }

    pub(super) fn absorb(&mut self, other: &Self) {
        if other.span.is_empty() {
            return;
        }
        self.widen(&other.span);
        let theirs = &other.counts[other.span.clone()];
        let mine = &mut self.counts[other.span.clone()];
        mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine = mine.wrapping_add(*theirs));
        self.sum = self.sum.wrapping_add(other.sum);
        self.low = self.low.max(other.low);
        self.high = self.high.max(other.high);
        self.torn |= other.torn;
    }

    /// Adds a cell of a level.
    pub(super) fn add(&mut self, cells: Cells<'_>, cell: Cell, base: usize) {
        let at = base + cell.offset;
        let ends = (cells.words.get(at + 2), cells.words.get(at + 3));
        self.add_between(cells, cell, base, ends);
        self.low = self.low.max(ends.0);
        self.high = self.high.max(ends.1);
    }

    /// Adds what lies between two ends in a cell of a level.
    pub(super) fn add_between(&mut self, cells: Cells<'_>, cell: Cell, base: usize, (low, high): (u64, u64)) {
        let words = cells.words;
        let at = base + cell.offset;
        if high == 0 {
            return;
        }
        let span = cells.span(cell, low, high);
        let theirs = words.part(at + CELL_HEAD + span.start, span.len()).0;
        self.widen(&span);
        for (mine, theirs) in self.counts[span].iter_mut().zip(theirs) {
            *mine = mine.wrapping_add(theirs.load(Relaxed));
        }
        self.sum = self.sum.wrapping_add(words.wide(at));
    }

    /// Takes back what was counted as less than nothing: panes were closed all the time that a cell was read.
    pub(super) fn mend(&mut self) {
        self.torn = true;
        let counts = &mut self.counts[self.span.clone()];
        counts.iter_mut().filter(|n| **n > i64::MAX as u64).for_each(|n| *n = 0);
        if self.sum > u128::MAX / 2 {
            self.sum = 0;
        }
    }

    pub(super) fn sketch(&self, metric: Option<Metric>, settings: &Settings, room: &mut GatherRoom) -> Sketch<Sparse> {
        let rule = (metric == Some(Metric::Itl)).then_some(settings.itl_rule);
        let ends = values_of((self.low, self.high));
        Sketch::gather(
            settings.scale,
            rule,
            (self.span.start, &self.counts[self.span.clone()]),
            self.sum,
            ends,
            self.torn,
            room,
        )
    }
}

/// What of a shard's rings counts at the moment that is asked for, as of one turn of the panes.
pub(super) struct Sight {
    pub(super) turns: Option<u64>,
    pub(super) windows: Vec<SightOfWindow>,
}

#[derive(Default)]
pub(super) struct SightOfWindow {
    /// Whether the open panes count.
    pub(super) open: bool,
    /// Places of the closed panes that count.
    pub(super) within: Vec<usize>,
    /// What the closed panes hold that do not count, by cell: (cell, slot, count) and (cell, sum).
    pub(super) counts: Vec<(u32, usize, u64)>,
    pub(super) sums: Vec<(u32, u128)>,
}

/// One reading of a block.
pub(super) struct Glance {
    pub(super) now: Option<i64>,
    pub(super) patience: Patience,
    /// By shard.
    pub(super) sights: Vec<Sight>,
}

/// Room to gather cells in, kept from cell to cell.
pub(super) struct Room {
    pub(super) scopes: Vec<Gathered>,
    pub(super) open: Gathered,
    pub(super) own: Vec<Gathered>,
}

impl SightOfWindow {
    /// Takes out of a scope what panes hold that do not count.
    pub(super) fn subtract_from(&self, scope: &mut Gathered, cell: u32) {
        let first = self.counts.partition_point(|&(number, ..)| number < cell);
        for &(_, slot, n) in self.counts[first..].iter().take_while(|&&(number, ..)| number == cell) {
            scope.counts[slot] = scope.counts[slot].wrapping_sub(n);
            scope.widen(&(slot..slot + 1));
        }
        let first = self.sums.partition_point(|&(number, _)| number < cell);
        for &(_, sum) in self.sums[first..].iter().take_while(|&&(number, _)| number == cell) {
            scope.sum = scope.sum.wrapping_sub(sum);
        }
    }
}
