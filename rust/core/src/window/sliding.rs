//! A sketch of what is recent, beside the sketch of everything.

use super::{Horizon, Reading, Ring};
use crate::error::Result;
use crate::sketch::{Dense, Sketch, Sparse};

/// A sliding window of a sketch.
#[derive(Clone, Debug)]
pub struct SlidingSketch {
    ring: Ring<Sketch<Sparse>>,
    total: Sketch<Dense>,
    horizon: Horizon,
    future: u64,
}

impl SlidingSketch {
    /// An empty window.
    ///
    /// # Errors
    ///
    /// A scale or a width outside its range, or a width that is no multiple of 60 ns.
    pub fn new(width_ns: i64, scale: u8) -> Result<Self> {
        Ok(Self {
            ring: Ring::new(width_ns, Sketch::new(scale, None)?)?,
            total: Sketch::new(scale, None)?,
            horizon: Horizon::default(),
            future: 0,
        })
    }

    /// Records a duration that was observed at `t`, `n` times.
    ///
    /// # Errors
    ///
    /// A count that would leave its range.
    pub fn record_ns(&mut self, t: i64, ns: i64, n: u64) -> Result<()> {
        if !self.horizon.admits(t) {
            self.future += 1;
            return Ok(());
        }
        self.horizon.accept(t);
        self.total.record_ns_n(ns, n)?;
        match self.ring.pane_at(t) {
            Some(pane) => pane.record_ns_n(ns, n),
            None => Ok(()),
        }
    }

    /// The window as it is at `now`.
    #[must_use]
    pub fn read(&self, now: i64) -> Reading<Sketch<Sparse>> {
        self.ring.read(now)
    }

    /// Everything that was recorded, however old.
    #[must_use]
    pub fn total(&self) -> &Sketch<Dense> {
        &self.total
    }

    /// The panes behind the window.
    #[must_use]
    pub fn ring(&self) -> &Ring<Sketch<Sparse>> {
        &self.ring
    }

    /// The records refused because their time lay more than a day ahead.
    #[must_use]
    pub fn future(&self) -> u64 {
        self.future
    }
}
