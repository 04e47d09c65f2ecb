//! A block of either kind of store, so that one observation can go to total, class and bin alike.

use super::Block;
use crate::request::{Ending, Metric};
use crate::sketch::{Dense, Gaps, Sparse};
use crate::slo::{Fluidity, Slo};

/// A block of either kind of store.
pub(super) enum AnyBlock<'a> {
    Dense(&'a mut Block<Dense>),
    Sparse(&'a mut Block<Sparse>),
}

/// Runs one expression on the block inside, whichever it is.
macro_rules! on {
    ($any:expr, $block:ident => $body:expr) => {
        match $any {
            AnyBlock::Dense($block) => $body,
            AnyBlock::Sparse($block) => $body,
        }
    };
}

impl AnyBlock<'_> {
    #[inline]
    pub(super) fn arrival(&mut self, prompt_tokens: u64) {
        on!(self, block => {
            block.attempted += 1;
            block.prompt_tokens += prompt_tokens;
        });
    }

    #[inline]
    pub(super) fn tokens(&mut self, k: u64) {
        on!(self, block => block.output_tokens += k);
    }

    /// Counts tokens in place of those that were counted.
    pub(super) fn recount(&mut self, counted: u64, tokens: u64) {
        on!(self, block => block.output_tokens = block.output_tokens + tokens - counted);
    }

    #[inline]
    pub(super) fn gap(&mut self, gap_ns: i64, k: u64) {
        on!(self, block => {
            block.output_tokens += k;
            block.observe_gap(gap_ns, k);
        });
    }

    #[inline]
    pub(super) fn gaps(&mut self, gaps: &Gaps) {
        on!(self, block => block.observe_gaps(gaps));
    }

    #[inline]
    pub(super) fn preemptions(&mut self, n: u64) {
        on!(self, block => block.preemptions += n);
    }

    #[inline]
    pub(super) fn observe(&mut self, metric: Metric, ns: i64) {
        on!(self, block => block.observe(metric, ns));
    }

    pub(super) fn end(&mut self, ending: &Ending, degraded: bool) {
        on!(self, block => block.end(ending, degraded));
    }

    pub(super) fn judge(
        &mut self,
        index: usize,
        slo: &Slo,
        ending: &Ending,
        max_itl: Option<i64>,
        fluidity: &Fluidity,
    ) {
        on!(self, block => block.judge(index, slo, ending, max_itl, fluidity));
    }
}
