//! A sliding window: a ring of 61 panes, aligned to multiples of a sixtieth of its width.
//!
//! Guarantee: reading covers the panes that end after `now - width`, so the true width lies between the width and a
//! pane more, and is told. Writing takes constant time; a gap of any length costs no more than the ring. Reading
//! changes nothing.

use super::Pane;
use crate::bounds::{PANES, WIDTH_NS};
use crate::error::{Error, Result};

/// A sliding window of panes.
#[derive(Clone, Debug)]
pub struct Ring<P> {
    pane_ns: i64,
    /// Pane `i` of the ring holds the stretch whose number is `i` modulo the ring's length, if it is recent.
    panes: Vec<P>,
    numbers: Vec<Option<i64>>,
    newest: Option<i64>,
    first_event: Option<i64>,
    late: u64,
    empty: P,
}

/// What a window shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading<P> {
    /// The sum of the panes covered.
    pub content: P,
    /// How much time they cover, up to `now`.
    pub true_width_ns: i64,
}

/// Whether a window may be so wide.
fn check_width(width_ns: i64) -> Result<()> {
    WIDTH_NS.check(width_ns)?;
    if width_ns % PANES != 0 {
        let below = width_ns / PANES * PANES;
        let expected = format_args!("a multiple of {PANES} ns, such as {below}");
        return Err(Error::value("window width", expected, format_args!("{width_ns} ns")));
    }
    Ok(())
}

/// Whether windows of these widths go together: each one's pane divides the next one's.
///
/// # Errors
///
/// A width that no window may have, or a pane that does not divide the next.
pub fn check_widths(widths_ns: &[i64]) -> Result<()> {
    widths_ns.iter().try_for_each(|&width| check_width(width))?;
    for pair in widths_ns.windows(2) {
        if pair[1] % pair[0] != 0 {
            let expected = format_args!("a multiple of the one before it, {} ns", pair[0]);
            return Err(Error::value("window width", expected, format_args!("{} ns", pair[1])));
        }
    }
    Ok(())
}

impl<P: Pane + Clone> Ring<P> {
    /// An empty window; `empty` is an empty pane.
    ///
    /// # Errors
    ///
    /// A width outside [`WIDTH_NS`], or no multiple of 60 ns.
    pub fn new(width_ns: i64, empty: P) -> Result<Self> {
        check_width(width_ns)?;
        let length = PANES as usize + 1;
        Ok(Self {
            pane_ns: width_ns / PANES,
            panes: vec![empty.clone(); length],
            numbers: vec![None; length],
            newest: None,
            first_event: None,
            late: 0,
            empty,
        })
    }

    /// The width of a pane.
    #[must_use]
    pub fn pane_ns(&self) -> i64 {
        self.pane_ns
    }

    /// The nominal width.
    #[must_use]
    pub fn width_ns(&self) -> i64 {
        self.pane_ns * PANES
    }

    /// The events that came when the ring no longer had their pane.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The pane of a time, or none (and it is counted as late) where the ring no longer has it.
    pub fn pane_at(&mut self, t: i64) -> Option<&mut P> {
        let number = t.div_euclid(self.pane_ns);
        self.first_event = Some(self.first_event.map_or(t, |first| first.min(t)));
        if self.newest.is_some_and(|newest| number < newest - PANES) {
            self.late += 1;
            return None;
        }
        self.newest = Some(self.newest.map_or(number, |newest| newest.max(number)));
        let place = number.rem_euclid(PANES + 1) as usize;
        if self.numbers[place] != Some(number) {
            self.numbers[place] = Some(number);
            self.panes[place] = self.empty.clone();
        }
        Some(&mut self.panes[place])
    }

    /// The window as it is at `now`.
    #[must_use]
    pub fn read(&self, now: i64) -> Reading<P> {
        let current = now.div_euclid(self.pane_ns);
        // The first pane that ends after now - width; there may be 61 of them.
        let oldest = (now - self.width_ns()).div_euclid(self.pane_ns);
        let mut content = self.empty.clone();
        for (pane, number) in self.panes.iter().zip(&self.numbers) {
            if number.is_some_and(|number| (oldest..=current).contains(&number)) {
                content.absorb(pane);
            }
        }
        let since_first = self.first_event.map_or(0, |first| (now - first).max(0));
        // Of the past, what the ring has lost is not covered.
        let oldest = self.newest.map_or(oldest, |newest| oldest.max(newest - PANES));
        Reading { content, true_width_ns: since_first.min(now - oldest * self.pane_ns).max(0) }
    }
}
