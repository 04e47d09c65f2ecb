//! Where everything lies in a meter's flat block of 64-bit words.
//!
//! ```text
//! header | preamble (settings and origin, encoded) | classes (labels) | shard 0 | shard 1 | ...
//! shard:  state | gauges | burn | kv panes | extremes | levels | chains | segments | slots | milestones | deadlines
//! ```
//!
//! A *cell* is one sketch of one class (or its counters, or what the whole shard counts). A *level* holds every cell
//! once. With `w` windows there are `2w + 1` levels: for each window its open pane and the sum of its closed panes
//! that the ring still has; and what no open pane holds any more. An observation goes to one cell of one level.

use super::settings::Settings;
use crate::bounds;
use crate::error::{Error, Result};
use crate::kv;
use crate::request::Metric;
use crate::sketch::Mapping;

/// The first word of every block: `TPMETER` and the byte 1, as they lie in memory.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TPMETER\x01");
/// The version of the layout.
pub(super) const VERSION: u64 = 2;

/// Words of the header, by place.
pub(super) mod header {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const WORDS: usize = 2;
    pub const PREAMBLE_BYTES: usize = 3;
    pub const CLASSES: usize = 4;
    pub const OVER: usize = 5;
    pub const LEN: usize = 16;
}

/// Bytes of encoded settings that a block has room for.
pub(super) const PREAMBLE_BYTES: usize = 64 << 10;
const PREAMBLE: usize = PREAMBLE_BYTES / 8;

/// Words of one class: the SLO sets that judge it, the length of its labels, its labels.
pub(super) const CLASS: usize = 2 + bounds::CLASS_KEY_BYTES.div_ceil(8);

/// Words of a shard's state, by place. Times are kept as `t + 1`, 0 where there is none.
pub(super) mod state {
    /// Odd while a call is under way.
    pub const CALLS: usize = 0;
    /// Odd while closed panes change: when one is closed, leaves its ring, or is added to late.
    pub const TURNS: usize = 1;
    pub const NEWEST: usize = 2;
    /// The time at which the rings stand.
    pub const STAND: usize = 3;
    pub const FIRST_EVENT: usize = 4;
    pub const FIRST_ARRIVAL: usize = 5;
    pub const FIRST_EMISSION: usize = 6;
    pub const LAST_EMISSION: usize = 7;
    pub const READY: usize = 8;
    /// Slots that were ever used.
    pub const SLOTS: usize = 9;
    pub const CLAMPED: usize = 10;
    /// Observations that a window lacks because there was no segment left for them.
    pub const DROPPED: usize = 11;
    pub const GAUGED: usize = 12;
    pub const REFUSED: usize = 16;
    pub const REFUSED_VALUES: usize = 24;
    pub const LATE: usize = 32;
    /// Five of: value, the time it was set.
    pub const HELD: usize = 48;
    /// Five gauges' totals.
    pub const GAUGES: usize = 64;
    /// The first free segment, and how many were ever used.
    pub const FREE_SEGMENT: usize = 96;
    pub const SEGMENTS: usize = 97;
    /// Of the KV cache: refusals by reason, clamped times, blocks in each tier, blocks, blocks remembered.
    pub const KV_REFUSED: usize = 100;
    pub const KV_CLAMPED: usize = 106;
    pub const KV_TIERS: usize = 107;
    pub const KV_BLOCKS: usize = 111;
    pub const KV_REMEMBERED: usize = 112;
    pub const LEN: usize = 128;
}

/// Panes that a ring keeps.
pub(super) const RING: usize = bounds::PANES as usize + 1;
/// Gauges.
pub(super) const GAUGES: usize = 5;
/// Words of a gauge in a pane: integral (two), covered time, max + 1.
pub(super) const GAUGE: usize = 4;

/// Widths behind burn rates, in seconds: five minutes to thirty days.
pub(super) const BURN_SECONDS: [i64; 6] = [300, 1800, 3600, 21_600, 259_200, 2_592_000];

/// The width of a pane behind burn rates.
pub(super) const fn burn_pane_ns(ring: usize) -> i64 {
    BURN_SECONDS[ring] * 1_000_000_000 / bounds::PANES
}

/// Words before a cell's counts: sum (two), `i64::MAX - min`, `max + 1`; all 0 when empty.
pub(super) const CELL_HEAD: usize = 4;
/// Sizes of batches that are told apart; the last stands for all above.
pub(super) const BATCH_SIZES: usize = 8193;

/// Counters of a class, by place.
pub(super) mod counter {
    pub const ATTEMPTED: usize = 0;
    pub const BY_STATUS: usize = 1;
    pub const DEGRADED: usize = 9;
    pub const PREEMPTED: usize = 10;
    pub const PREEMPTIONS: usize = 11;
    pub const PROMPT_TOKENS: usize = 12;
    pub const CACHED_TOKENS: usize = 13;
    pub const OUTPUT_TOKENS: usize = 14;
    pub const MISSING: usize = 15;
    pub const NAMED: usize = 23;
    /// The first SLO set's.
    pub const SLOS: usize = 26;
    /// Counters of a set.
    pub const SLO: usize = 28;
    pub const GOOD: usize = 0;
    pub const GOOD_TOKENS: usize = 1;
    pub const OVER: usize = 2;
    pub const FAILED: usize = 18;
    pub const MET: usize = 26;
    pub const DEADLINES: usize = 27;
}

/// What is added up as it comes: high and low half of the sum (by 2^32), and how often; of each kind.
pub(super) const ADDED: usize = 7 * 3;

/// Counters of the KV cache: those of every block, then of each part of a sample evicted, refilled, forgotten.
pub(super) const KV_COUNTERS: usize = kv::Counter::ALL.len() + kv::REPLICATES * 3;
/// Words of a pane of the KV cache: evicted, refilled.
pub(super) const KV_PANE: usize = 2;

/// Words of a segment, the link to the next one first.
pub(super) const SEGMENT: usize = 128;
/// Words of a slot's hot part: identity, last event, class with flags and tokens, the time until which no deadline can
/// be missed.
pub(super) const SLOT: usize = 4;
/// Words of a slot's cold part: arrival, first emission, beginning of the prefill, stall, last emission.
pub(super) const MILESTONES: usize = 5;
/// Words of a deadline: when it is due, deadlines missed beyond tokens, and (packed) misses and tokens so far.
pub(super) const DEADLINE: usize = 3;

/// What a cell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A sketch of durations.
    Sketch,
    /// A count for each number there is: counters, and the sizes of batches.
    Numbers,
}

/// A cell's place within a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub number: u32,
    pub offset: usize,
    pub slots: usize,
    pub kind: Kind,
}

/// Places of one shard's parts, from the shard's beginning, and sizes that follow from the settings.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub windows: usize,
    pub slos: usize,
    pub max_classes: usize,
    pub max_requests: usize,
    /// Slots of a sketch.
    pub sketch_slots: usize,
    sketch_words: usize,
    pub class_counters: usize,
    class_words: usize,
    pub gauges: usize,
    pub burn: usize,
    /// Words of a pane in a burn ring: good and judged of each set, bad and judged.
    pub burn_words: usize,
    kv_panes: usize,
    /// Whether the blocks of a KV cache are followed.
    pub kv: bool,
    pub extremes: usize,
    pub levels: usize,
    pub level_words: usize,
    pub chains: usize,
    pub segments: usize,
    pub max_segments: usize,
    pub slots: usize,
    pub milestones: usize,
    pub deadlines: usize,
    pub shard_words: usize,
    pub words: usize,
}

impl Layout {
    pub(super) fn of(settings: &Settings) -> Result<Self> {
        settings.check()?;
        let windows = settings.windows_ns.len();
        let sets = settings.slos.len();
        let max_classes = settings.max_classes as usize;
        let max_requests = settings.max_requests as usize;
        let sketch_slots = Mapping::slots(settings.scale);
        let sketch_words = (CELL_HEAD + sketch_slots).next_multiple_of(8);
        let class_counters = counter::SLOS + sets * counter::SLO;
        let class_words = (Metric::ALL.len() + sets) * sketch_words + (CELL_HEAD + class_counters).next_multiple_of(8);
        let kv = settings.kv.is_some();
        let kv_words = kv::Span::ALL.len() * sketch_words + (CELL_HEAD + KV_COUNTERS).next_multiple_of(8);
        let global_words = (CELL_HEAD + BATCH_SIZES).next_multiple_of(8) + (CELL_HEAD + ADDED).next_multiple_of(8);
        let level_words = max_classes * class_words + global_words + if kv { kv_words } else { 0 };
        let cells = Self::cells_of(max_classes, sets, kv);
        let burn_words = 2 * sets + 2;
        let max_segments = if windows == 0 { 0 } else { (max_classes * 512).max(16 << 10) };
        let mut at = state::LEN;
        let mut place = |words: usize| {
            let start = at;
            at = (at + words).next_multiple_of(8);
            start
        };
        let gauges = place(windows * RING * GAUGES * GAUGE);
        let burn = place(if settings.burn { BURN_SECONDS.len() * RING * burn_words } else { 0 });
        let kv_panes = place(if kv { windows * RING * KV_PANE } else { 0 });
        let extremes = place(windows * cells * RING * 2);
        let levels = place((2 * windows + 1) * level_words);
        let chains = place(windows * RING);
        let segments = place(max_segments * SEGMENT);
        let hot = place(max_requests * SLOT);
        let milestones = place(max_requests * MILESTONES);
        let deadlines = place(max_requests * sets * DEADLINE);
        let shard_words = place(0).next_multiple_of(512);
        let words = Self::shards_start(max_classes) + shard_words * settings.shards as usize;
        if words > bounds::BLOCK_WORDS {
            let expected =
                "at most 16 GiB, with fewer classes, requests, SLO sets, windows or shards, or a coarser scale";
            return Err(Error::value("memory of the meter", expected, format_args!("{} GiB", words >> 27)));
        }
        Ok(Self {
            windows,
            slos: sets,
            max_classes,
            max_requests,
            sketch_slots,
            sketch_words,
            class_counters,
            class_words,
            gauges,
            burn,
            burn_words,
            kv_panes,
            kv,
            extremes,
            levels,
            level_words,
            chains,
            segments,
            max_segments,
            slots: hot,
            milestones,
            deadlines,
            shard_words,
            words,
        })
    }

    const fn cells_of(max_classes: usize, slos: usize, kv: bool) -> usize {
        max_classes * (Metric::ALL.len() + slos + 1) + 2 + if kv { kv::Span::ALL.len() + 1 } else { 0 }
    }

    pub(super) const PREAMBLE: usize = header::LEN;
    const CLASSES: usize = Self::PREAMBLE + PREAMBLE;

    pub(super) const fn class(number: usize) -> usize {
        Self::CLASSES + number * CLASS
    }

    const fn shards_start(max_classes: usize) -> usize {
        Self::class(max_classes).next_multiple_of(512)
    }

    /// Where a shard begins.
    pub(super) fn shard(&self, number: usize) -> usize {
        Self::shards_start(self.max_classes) + number * self.shard_words
    }

    /// Cells of a class, sketches first: the metrics, the fluidity of each SLO set, the counters.
    pub(super) const fn units(&self) -> usize {
        Metric::ALL.len() + self.slos + 1
    }

    /// The sketch of a metric, or after the metrics that of an SLO set's fluidity.
    #[inline(always)]
    pub(super) fn sketch(&self, class: usize, unit: usize) -> Cell {
        Cell {
            number: (class * self.units() + unit) as u32,
            offset: class * self.class_words + unit * self.sketch_words,
            slots: self.sketch_slots,
            kind: Kind::Sketch,
        }
    }

    /// The counters of a class.
    #[inline(always)]
    pub(super) fn counters(&self, class: usize) -> Cell {
        let unit = self.units() - 1;
        Cell {
            number: (class * self.units() + unit) as u32,
            offset: class * self.class_words + unit * self.sketch_words,
            slots: self.class_counters,
            kind: Kind::Numbers,
        }
    }

    /// The histogram of batch sizes.
    pub(super) fn batch(&self) -> Cell {
        Cell {
            number: (self.max_classes * self.units()) as u32,
            offset: self.max_classes * self.class_words,
            slots: BATCH_SIZES,
            kind: Kind::Numbers,
        }
    }

    /// What is added up without a class.
    pub(super) fn added(&self) -> Cell {
        let batch = self.batch();
        Cell {
            number: batch.number + 1,
            offset: batch.offset + (CELL_HEAD + BATCH_SIZES).next_multiple_of(8),
            slots: ADDED,
            kind: Kind::Numbers,
        }
    }

    /// The sketch of something measured on the blocks of the KV cache.
    #[inline(always)]
    pub(super) fn kv_span(&self, span: kv::Span) -> Cell {
        let added = self.added();
        Cell {
            number: added.number + 1 + span as u32,
            offset: added.offset + (CELL_HEAD + ADDED).next_multiple_of(8) + span as usize * self.sketch_words,
            slots: self.sketch_slots,
            kind: Kind::Sketch,
        }
    }

    /// The counters of the KV cache.
    #[inline(always)]
    pub(super) fn kv_counters(&self) -> Cell {
        let last = self.kv_span(kv::Span::Gap);
        Cell {
            number: last.number + 1,
            offset: last.offset + self.sketch_words,
            slots: KV_COUNTERS,
            kind: Kind::Numbers,
        }
    }

    /// The cells that belong to no class.
    fn classless(&self) -> impl Iterator<Item = Cell> {
        let kv = kv::Span::ALL.map(|span| self.kv_span(span)).into_iter().chain([self.kv_counters()]);
        [self.batch(), self.added()].into_iter().chain(kv.filter(|_| self.kv))
    }

    /// The cell of a number, which may be any number at all.
    pub(super) fn cell(&self, number: u32) -> Option<Cell> {
        let (class, unit) = (number as usize / self.units(), number as usize % self.units());
        if class < self.max_classes {
            Some(if unit + 1 == self.units() { self.counters(class) } else { self.sketch(class, unit) })
        } else {
            self.classless().find(|cell| cell.number == number)
        }
    }

    /// Every cell of the classes in use, and those without a class.
    pub(super) fn cells(&self, classes: impl Iterator<Item = usize>) -> impl Iterator<Item = Cell> {
        let sketches = move |class| (0..self.units() - 1).map(move |unit| self.sketch(class, unit));
        let of_class = move |class| sketches(class).chain(std::iter::once(self.counters(class)));
        classes.flat_map(of_class).chain(self.classless())
    }

    /// Where level `level` begins: `0..=windows` are the open panes and what is older, the others the closed panes.
    #[inline(always)]
    pub(super) fn level(&self, level: usize) -> usize {
        self.levels + level * self.level_words
    }

    /// Where the sum of window `window`'s closed panes begins.
    #[inline(always)]
    pub(super) fn closed(&self, window: usize) -> usize {
        self.level(self.windows + 1 + window)
    }

    /// Where a cell's extremes in a pane of a window lie: `i64::MAX - min`, `max + 1`.
    pub(super) fn extreme(&self, window: usize, cell: Cell, place: usize) -> usize {
        let cells = Self::cells_of(self.max_classes, self.slos, self.kv);
        self.extremes + ((window * cells + cell.number as usize) * RING + place) * 2
    }

    pub(super) fn chain(&self, window: usize, place: usize) -> usize {
        self.chains + window * RING + place
    }

    pub(super) fn gauge(&self, window: usize, place: usize, gauge: usize) -> usize {
        self.gauges + ((window * RING + place) * GAUGES + gauge) * GAUGE
    }

    /// Where a pane of the KV cache lies.
    pub(super) fn kv_pane(&self, window: usize, place: usize) -> usize {
        self.kv_panes + (window * RING + place) * KV_PANE
    }

    pub(super) fn burn(&self, ring: usize, place: usize) -> usize {
        self.burn + (ring * RING + place) * self.burn_words
    }
}

/// The number of the pane that holds a time.
pub(super) fn pane(t: i64, pane_ns: i64) -> i64 {
    t.div_euclid(pane_ns)
}

/// The place of a pane in its ring.
pub(super) fn place(pane: i64) -> usize {
    pane.rem_euclid(RING as i64) as usize
}
