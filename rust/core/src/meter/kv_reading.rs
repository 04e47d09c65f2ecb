//! What a meter shows of the KV cache at one moment.

use super::gather::Glance;
use super::layout::{pane, place, state};
use super::read::Reader;
use crate::bounds::{COUNT, PANES};
use crate::error::{Error, Result};
use crate::kv::{Counter, REPLICATES, Refused, Settings, Span, Tier, add};
use crate::sketch::{GatherRoom, Sketch, Sparse};
use crate::window::Pane;

/// The KV cache over a window, or over everything.
#[derive(Clone, Debug, PartialEq)]
pub struct KvScope {
    /// By [`Counter`].
    pub counts: [u64; Counter::ALL.len()],
    /// By [`Span`].
    pub spans: [Sketch<Sparse>; Span::ALL.len()],
    /// In a sample, by [`replicate_slot`](crate::kv::replicate_slot); otherwise all 0.
    pub replicates: [u64; 3 * REPLICATES],
    /// The panes of a window in which blocks were evicted or refilled, the oldest first.
    pub panes: Vec<KvPane>,
}

/// A pane of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvPane {
    /// When it begins.
    pub start: i64,
    /// Blocks evicted in it.
    pub evicted: u64,
    /// Blocks refilled in it.
    pub refilled: u64,
}

/// The KV cache.
#[derive(Clone, Debug, PartialEq)]
pub struct KvReading {
    /// What is followed.
    pub settings: Settings,
    /// Refusals, by [`Refused`].
    pub refused: [u64; Refused::ALL.len()],
    /// Times that lay before those of their block.
    pub clamped: u64,
    /// Blocks in each tier.
    pub tiers: [u64; Tier::ALL.len()],
    /// Blocks that are resident anywhere.
    pub blocks: u64,
    /// Blocks that are remembered as evicted.
    pub remembered: u64,
    /// Everything, then each window.
    pub scopes: Vec<KvScope>,
}

impl Reader {
    pub(super) fn read_kv(&self, glance: &mut Glance) -> Option<KvReading> {
        let settings = self.settings.kv?;
        let panes = self.read_kv_panes(glance);
        let counters = self.read_scopes(glance, self.layout.kv_counters());
        let spans = Span::ALL.map(|span| self.read_scopes(glance, self.layout.kv_span(span)));
        let mut room = GatherRoom::default();
        let words = self.cells(0).words;
        let scopes = panes.into_iter().zip(&counters).enumerate().map(|(scope, (panes, counters))| {
            let (counts, replicates) = counters.counts.split_at(Counter::ALL.len());
            KvScope {
                counts: std::array::from_fn(|counter| counts[counter]),
                spans: std::array::from_fn(|span| spans[span][scope].sketch(None, &self.settings, &mut room)),
                replicates: std::array::from_fn(|slot| replicates[slot]),
                panes,
            }
        });
        Some(KvReading {
            settings,
            refused: std::array::from_fn(|reason| words.get(state::KV_REFUSED + reason)),
            clamped: words.get(state::KV_CLAMPED),
            tiers: std::array::from_fn(|tier| words.get(state::KV_TIERS + tier)),
            blocks: words.get(state::KV_BLOCKS),
            remembered: words.get(state::KV_REMEMBERED),
            scopes: scopes.collect(),
        })
    }

    /// The panes of each scope; of everything there are none.
    fn read_kv_panes(&self, glance: &mut Glance) -> Vec<Vec<KvPane>> {
        let Glance { now, patience, .. } = glance;
        let (now, cells) = (*now, self.cells(0));
        let of_window = |(window, &pane_ns): (usize, &i64)| {
            let (Some(now), Some(stand)) = (now, cells.words.time(state::STAND)) else { return Vec::new() };
            let (asked, stands) = (pane(now, pane_ns), pane(stand, pane_ns));
            let read = |number: i64| {
                let at = self.layout.kv_pane(window, place(number));
                let (evicted, refilled) = (cells.words.get(at), cells.words.get(at + 1));
                KvPane { start: number.saturating_mul(pane_ns), evicted, refilled }
            };
            let panes = (asked.max(stands) - PANES..=asked.min(stands)).map(read);
            panes.filter(|pane| pane.evicted > 0 || pane.refilled > 0).collect()
        };
        let read = || std::iter::once(Vec::new()).chain(self.panes_ns.iter().enumerate().map(of_window)).collect();
        Self::settled(cells, patience, read).0
    }
}

impl KvReading {
    /// The same on a clock that is so many nanoseconds ahead.
    pub(super) fn shift(&mut self, ns: i64) {
        for pane in self.scopes.iter_mut().flat_map(|scope| &mut scope.panes) {
            pane.start = pane.start.saturating_add(ns);
        }
    }

    /// Whether two readings can be added.
    pub(super) fn fits(&self, other: &Self) -> Result<()> {
        if (self.settings.report, self.settings.rate) != (other.settings.report, other.settings.rate) {
            let followed =
                |Settings { report, rate, .. }: Settings| format!("{} at rate {}", report.name(), rate.unwrap_or(1.0));
            let got = format_args!("{} and {}", followed(self.settings), followed(other.settings));
            return Err(Error::value("following of the KV cache", "the same in both snapshots", got));
        }
        for (mine, theirs) in self.scopes.iter().zip(&other.scopes) {
            for (mine, theirs) in mine.spans.iter().zip(&theirs.spans) {
                if mine.count() > COUNT.max as u64 - theirs.count() {
                    return Err(COUNT.error(u128::from(mine.count()) + u128::from(theirs.count())));
                }
            }
        }
        Ok(())
    }

    /// Adds another cache's: as if one tracker had followed both, each block of its own.
    pub(super) fn absorb(&mut self, other: &Self) {
        add(&mut self.refused, &other.refused);
        add(&mut self.tiers, &other.tiers);
        self.clamped += other.clamped;
        self.blocks += other.blocks;
        self.remembered += other.remembered;
        for (mine, theirs) in self.scopes.iter_mut().zip(&other.scopes) {
            add(&mut mine.counts, &theirs.counts);
            add(&mut mine.replicates, &theirs.replicates);
            mine.spans.iter_mut().zip(&theirs.spans).for_each(|(mine, theirs)| mine.absorb(theirs));
            for &pane in &theirs.panes {
                match mine.panes.binary_search_by_key(&pane.start, |pane| pane.start) {
                    Ok(at) => {
                        mine.panes[at].evicted += pane.evicted;
                        mine.panes[at].refilled += pane.refilled;
                    }
                    Err(at) => mine.panes.insert(at, pane),
                }
            }
        }
    }
}
