//! A whole run in bins of equal width; past so many bins their width doubles.

use std::collections::VecDeque;

use super::Pane;

/// Bins over a run, aligned to multiples of their width; those without an event are not kept.
#[derive(Clone, Debug)]
pub struct Timeline<P> {
    width_ns: i64,
    most: i64,
    first: i64,
    bins: VecDeque<Option<Box<P>>>,
}

impl<P: Pane> Timeline<P> {
    /// No bin yet. The width is positive and doubles past `most` bins, of which there are at least 2.
    #[must_use]
    pub fn new(width_ns: i64, most: i64) -> Self {
        Self { width_ns, most, first: 0, bins: VecDeque::new() }
    }

    /// The width of the bins as they are now.
    #[must_use]
    pub fn width_ns(&self) -> i64 {
        self.width_ns
    }

    /// The bin of a time.
    pub fn bin_at(&mut self, t: i64, empty: impl FnOnce() -> P) -> &mut P {
        self.slot_at(t).get_or_insert_with(|| Box::new(empty()))
    }

    /// The place for the bin of a time.
    fn slot_at(&mut self, t: i64) -> &mut Option<Box<P>> {
        let mut number = t.div_euclid(self.width_ns);
        if self.bins.is_empty() {
            self.first = number;
        }
        loop {
            let last = self.first + self.bins.len() as i64 - 1;
            if number.max(last) - number.min(self.first) < self.most {
                break;
            }
            self.widen();
            number = t.div_euclid(self.width_ns);
        }
        while number < self.first {
            self.bins.push_front(None);
            self.first -= 1;
        }
        while number >= self.first + self.bins.len() as i64 {
            self.bins.push_back(None);
        }
        &mut self.bins[(number - self.first) as usize]
    }

    /// Doubles the width.
    pub fn widen(&mut self) {
        let narrow = std::mem::take(&mut self.bins);
        let first = self.first;
        self.width_ns = self.width_ns.saturating_mul(2);
        self.first >>= 1;
        for (number, bin) in (first..).zip(narrow) {
            let wide = (number >> 1) - self.first;
            if self.bins.len() as i64 <= wide {
                self.bins.push_back(bin);
            } else if let Some(bin) = bin {
                match &mut self.bins[wide as usize] {
                    Some(there) => there.absorb(&bin),
                    empty => *empty = Some(bin),
                }
            }
        }
    }

    /// Adds another run's bins, at the coarser of the two widths.
    pub fn merge(&mut self, mut other: Self, empty: impl Fn() -> P) {
        while self.width_ns < other.width_ns {
            self.widen();
        }
        while other.width_ns < self.width_ns {
            other.widen();
        }
        while let Some(bin) = other.bins.pop_front() {
            let start = other.first * other.width_ns;
            other.first += 1;
            let Some(bin) = bin else { continue };
            self.slot_at(start).get_or_insert_with(|| Box::new(empty())).absorb(&bin);
        }
    }

    /// The bins that hold something, with the times at which they start, in order.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &P)> {
        let numbered = (self.first..).zip(&self.bins);
        numbered.filter_map(|(number, bin)| Some((number * self.width_ns, bin.as_deref()?)))
    }
}
