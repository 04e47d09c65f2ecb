//! Reading a sketch: quantiles by nearest rank, and the distribution function that inverts them.

use super::mapping::edge_seconds;
use super::{Sketch, Store, seconds};
use crate::error::{Error, Result};

impl<S: Store> Sketch<S> {
    /// The estimate for the value of nearest rank `max(1, ceil(q * n))`, in seconds; NaN when empty.
    ///
    /// # Errors
    ///
    /// A `q` outside 0 to 1.
    pub fn quantile(&self, q: f64) -> Result<f64> {
        Ok(self.quantiles(&[q])?[0])
    }

    /// [`quantile`](Self::quantile) of several, in one pass over the buckets.
    ///
    /// # Errors
    ///
    /// A `q` outside 0 to 1.
    pub fn quantiles(&self, qs: &[f64]) -> Result<Vec<f64>> {
        let mut estimates = Vec::with_capacity(qs.len());
        self.quantiles_into(qs, &mut estimates)?;
        Ok(estimates)
    }

    /// [`quantiles`](Self::quantiles) that are appended to a list.
    ///
    /// # Errors
    ///
    /// A `q` outside 0 to 1.
    pub fn quantiles_into(&self, qs: &[f64], estimates: &mut Vec<f64>) -> Result<()> {
        if let Some(q) = qs.iter().find(|q| !(0.0..=1.0).contains(*q)) {
            return Err(Error::value("quantile", "between 0 and 1", q));
        }
        let start = estimates.len();
        estimates.resize(start + qs.len(), f64::NAN);
        if self.is_empty() {
            return Ok(());
        }
        let count = self.count();
        let estimates = &mut estimates[start..];
        let rank = |q: f64| ((q * count as f64).ceil() as u64).clamp(1, count);
        // Quantiles are mostly asked for in ascending order: one pass goes on as long as they are.
        let mut at = 0;
        while at < qs.len() {
            let mut seen = 0;
            let mut next = rank(qs[at]);
            self.store.visit(self.span(), |slot, n| {
                seen += n;
                while next <= seen {
                    estimates[at] = self.estimate(slot);
                    at += 1;
                    if at == qs.len() || qs[at] < qs[at - 1] {
                        return false;
                    }
                    next = rank(qs[at]);
                }
                true
            });
        }
        for (estimate, &q) in estimates.iter_mut().zip(qs) {
            if q == 0.0 {
                *estimate = self.min_seconds();
            } else if q == 1.0 {
                *estimate = self.max_seconds();
            }
        }
        Ok(())
    }

    /// The share of values whose estimate is at most `x` seconds; NaN when empty.
    ///
    /// # Errors
    ///
    /// An `x` that is NaN.
    pub fn cdf(&self, x: f64) -> Result<f64> {
        if x.is_nan() {
            return Err(Error::value("cdf argument", "a number of seconds", x));
        }
        if self.is_empty() {
            return Ok(f64::NAN);
        }
        if x < self.min_seconds() {
            return Ok(0.0);
        }
        if x >= self.max_seconds() {
            return Ok(1.0);
        }
        let mut below = 0;
        self.store.visit(self.span(), |slot, n| {
            let counts = self.estimate(slot) <= x;
            if counts {
                below += n;
            }
            counts
        });
        Ok(below as f64 / self.count() as f64)
    }

    /// The estimate for a value of this slot, in seconds.
    fn estimate(&self, slot: usize) -> f64 {
        let middle = if slot == 0 {
            0.0
        } else if slot == self.overflow_slot() {
            self.max_seconds()
        } else {
            let index = self.index(slot);
            let (lo, hi) = (edge_seconds(self.scale, index), edge_seconds(self.scale, index + 1));
            2.0 * lo * hi / (lo + hi)
        };
        middle.clamp(self.min_seconds(), self.max_seconds())
    }

    pub(crate) fn min_seconds(&self) -> f64 {
        seconds(self.min_ns as u128)
    }

    pub(crate) fn max_seconds(&self) -> f64 {
        seconds(self.max_ns as u128)
    }
}
