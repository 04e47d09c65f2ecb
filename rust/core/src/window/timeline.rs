//! A whole run in bins of equal width; past so many bins their width doubles.

use std::collections::VecDeque;

use super::Pane;

/// Bins over a run, aligned to multiples of their width; those without an event are not kept.
#[derive(Clone, Debug)]
pub struct Timeline<P> {
    width_ns: i64,
    most: i64,
    first: i64,
    bins: VecDeque<Option<P>>,
    /// From where to where the bin reaches that was asked for last, and its place.
    near: (i64, i64, usize),
}

impl<P: Pane> Timeline<P> {
    /// No bin yet. The width is positive and doubles past `most` bins, of which there are at least 2.
    #[must_use]
    pub fn new(width_ns: i64, most: i64) -> Self {
        Self { width_ns, most, first: 0, bins: VecDeque::new(), near: (0, 0, 0) }
    }

    /// The width of the bins as they are now.
    #[must_use]
    pub fn width_ns(&self) -> i64 {
        self.width_ns
    }

    /// Where the bin of a time ends, as wide as bins are now.
    #[must_use]
    pub fn end_of_bin(&self, t: i64) -> i64 {
        t.div_euclid(self.width_ns).saturating_add(1).saturating_mul(self.width_ns)
    }

    /// The bin of a time.
    pub fn bin_at(&mut self, t: i64, empty: impl FnOnce() -> P) -> &mut P {
        let (start, end, at) = self.near;
        let at = if start <= t && t < end { at } else { self.place(t) };
        self.bins[at].get_or_insert_with(empty)
    }

    /// The place for the bin of a time.
    fn place(&mut self, t: i64) -> usize {
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
        let at = (number - self.first) as usize;
        let start = number * self.width_ns;
        self.near = (start, start.saturating_add(self.width_ns), at);
        at
    }

    /// Doubles the width.
    pub fn widen(&mut self) {
        self.near = (0, 0, 0);
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
    pub fn merge(&mut self, mut other: Self) {
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
            let at = self.place(start);
            match &mut self.bins[at] {
                Some(there) => there.absorb(&bin),
                empty => *empty = Some(bin),
            }
        }
    }

    /// The bins that hold something, with the times at which they start, in order.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &P)> {
        let numbered = (self.first..).zip(&self.bins);
        numbered.filter_map(|(number, bin)| Some((number * self.width_ns, bin.as_ref()?)))
    }
}
