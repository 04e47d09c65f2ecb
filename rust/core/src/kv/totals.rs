//! A sink that adds everything up: what a log or a replay comes to.

use super::{Counter, Outcome, REPLICATES, Refused, Sink, Span, replicate_slot};
use crate::error::Result;
use crate::sketch::{Dense, Sketch, Unit};
use crate::window::Horizon;

/// Counts and sketches of a whole run.
#[derive(Clone, Debug)]
pub struct Totals {
    /// By [`Counter`].
    pub counts: [u64; Counter::ALL.len()],
    /// By [`Span`].
    pub spans: [Sketch<Dense>; Span::ALL.len()],
    /// By [`replicate_slot`].
    pub replicates: [u64; 3 * REPLICATES],
    /// By [`Refused`].
    pub refused: [u64; Refused::ALL.len()],
    /// Times that lay before those of their block.
    pub clamped: u64,
    /// The time of the first event, the least of all.
    pub first_event: Option<i64>,
    horizon: Horizon,
}

/// Adds counts to others, one by one.
pub(crate) fn add(mine: &mut [u64], theirs: &[u64]) {
    mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
}

impl Totals {
    /// Nothing yet.
    ///
    /// # Errors
    ///
    /// A scale out of range.
    pub fn new(scale: u8) -> Result<Self> {
        let empty = Sketch::new(scale, None)?;
        Ok(Self {
            counts: [0; Counter::ALL.len()],
            spans: [empty.clone(), empty.clone(), empty],
            replicates: [0; 3 * REPLICATES],
            refused: [0; Refused::ALL.len()],
            clamped: 0,
            first_event: None,
            horizon: Horizon::default(),
        })
    }

    /// A count.
    #[must_use]
    pub fn count(&self, counter: Counter) -> u64 {
        self.counts[counter as usize]
    }

    /// The newest time that was taken.
    #[must_use]
    pub fn newest(&self) -> Option<i64> {
        self.horizon.newest()
    }

    /// Adds another run's, of the same scale.
    ///
    /// # Errors
    ///
    /// Sketches whose counts would leave their range.
    pub fn absorb(&mut self, other: &Self) -> Result<()> {
        self.spans.iter_mut().zip(&other.spans).try_for_each(|(mine, theirs)| mine.merge(theirs))?;
        add(&mut self.counts, &other.counts);
        add(&mut self.refused, &other.refused);
        add(&mut self.replicates, &other.replicates);
        self.clamped += other.clamped;
        let earlier = |first: i64| self.first_event.map_or(first, |mine| mine.min(first));
        self.first_event = other.first_event.map(earlier).or(self.first_event);
        if let Some(newest) = other.newest() {
            self.horizon.accept(newest);
        }
        Ok(())
    }
}

/// Totals of calls whose times were judged before: they are all admitted, or none.
#[derive(Debug)]
pub struct Judged<'a> {
    /// Where they add up.
    pub totals: &'a mut Totals,
    /// Whether they are admitted.
    pub admits: bool,
}

impl Sink for Judged<'_> {
    #[inline]
    fn admit(&mut self, _: i64) -> bool {
        self.admits
    }

    #[inline]
    fn accept(&mut self, t: i64) {
        self.totals.accept(t);
    }

    #[inline]
    fn observe(&mut self, span: Span, ns: &[i64]) {
        self.totals.observe(span, ns);
    }

    #[inline]
    fn sampled(&mut self, replicate: usize, what: Counter) {
        self.totals.sampled(replicate, what);
    }

    #[inline]
    fn finish(&mut self, outcome: &Outcome) {
        self.totals.finish(outcome);
    }
}

impl Sink for Totals {
    fn admit(&mut self, t: i64) -> bool {
        self.horizon.admits(t)
    }

    fn accept(&mut self, t: i64) {
        self.horizon.accept(t);
        self.first_event = Some(self.first_event.map_or(t, |first| first.min(t)));
    }

    #[inline]
    fn observe(&mut self, span: Span, ns: &[i64]) {
        match *ns {
            [ns] => self.spans[span as usize].record_ns(ns),
            _ => self.spans[span as usize].record_many(ns, Unit::Nanoseconds),
        }
    }

    fn sampled(&mut self, replicate: usize, what: Counter) {
        self.replicates[replicate_slot(replicate, what)] += 1;
    }

    fn finish(&mut self, outcome: &Outcome) {
        add(&mut self.counts, &outcome.counts);
        add(&mut self.refused, &outcome.refused);
        self.clamped += outcome.clamped;
    }
}
