//! What a meter measures by, and what it may grow to.

use crate::bounds;
use crate::error::{Error, Result};
use crate::kv;
use crate::sketch::ItlRule;
use crate::slo::Slo;
use crate::tally;
use crate::window::check_widths;

/// A set of limits and the attainment that is aimed at.
#[derive(Clone, Debug, PartialEq)]
pub struct SloSet {
    /// The limits.
    pub slo: Slo,
    /// The share of judged requests that should be good, between 0 and 1.
    pub objective: f64,
}

/// What a meter measures by.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The sets of limits; at most [`bounds::MAX_SLOS`].
    pub slos: Vec<SloSet>,
    /// The widths of the sliding windows, ascending: each one's pane divides the next one's.
    pub windows_ns: Vec<i64>,
    /// Whether the counts behind burn rates are kept.
    pub burn: bool,
    /// The scale of all sketches.
    pub scale: u8,
    /// How emissions of several tokens are recorded.
    pub itl_rule: ItlRule,
    /// Requests that may be in flight at once, in each shard.
    pub max_requests: u32,
    /// Classes, `other` included.
    pub max_classes: u32,
    /// How long a request may be silent before it is lost.
    pub ttl_ns: i64,
    /// Parts that may be written to at the same time.
    pub shards: u32,
    /// How the blocks of the KV cache are followed, if they are.
    pub kv: Option<kv::Settings>,
}

impl Default for Settings {
    fn default() -> Self {
        let second = 1_000_000_000;
        Self {
            slos: Vec::new(),
            windows_ns: vec![15 * second, 60 * second, 300 * second, 3600 * second],
            burn: true,
            scale: bounds::DEFAULT_SCALE,
            itl_rule: ItlRule::Token,
            max_requests: 65_536,
            max_classes: bounds::MAX_CLASSES as u32,
            ttl_ns: 3600 * second,
            shards: 1,
            kv: None,
        }
    }
}

impl Settings {
    /// Whether a meter can be made of these.
    ///
    /// # Errors
    ///
    /// A value error that names the first setting that is out of its range.
    pub fn check(&self) -> Result<()> {
        bounds::SCALE.check(i64::from(self.scale))?;
        bounds::METER_REQUESTS.check(i64::from(self.max_requests))?;
        bounds::METER_CLASSES.check(i64::from(self.max_classes))?;
        bounds::SHARDS.check(i64::from(self.shards))?;
        bounds::LIMIT_NS.check(self.ttl_ns)?;
        self.kv.as_ref().map_or(Ok(()), kv::Settings::check)?;
        check_widths(&self.windows_ns)?;
        if self.windows_ns.len() > bounds::MAX_WINDOWS {
            let expected = format_args!("at most {}", bounds::MAX_WINDOWS);
            return Err(Error::value("number of windows", expected, self.windows_ns.len()));
        }
        let pairs = self.windows_ns.iter().zip(self.windows_ns.iter().skip(1));
        if let Some((twice, _)) = pairs.into_iter().find(|(narrow, wide)| narrow == wide) {
            return Err(Error::value("windows", "different from each other", format_args!("{twice} ns twice")));
        }
        if self.slos.len() > bounds::MAX_SLOS {
            let expected = format_args!("at most {}", bounds::MAX_SLOS);
            return Err(Error::value("number of SLO sets", expected, self.slos.len()));
        }
        for SloSet { slo, objective } in &self.slos {
            let limits = [Some(slo.ttft_ns), Some(slo.tpot_ns), slo.e2e_ns, slo.itl_ns];
            limits.into_iter().flatten().try_for_each(|ns| bounds::LIMIT_NS.check(ns).map(|_| ()))?;
            if !(0.0..1.0).contains(objective) || *objective == 0.0 {
                return Err(Error::value("SLO objective", "between 0 and 1, both excluded", objective));
            }
        }
        Ok(())
    }

    /// What blocks of counts and sketches are made by.
    pub(crate) fn tally(&self) -> tally::Settings {
        tally::Settings {
            scale: self.scale,
            itl_rule: self.itl_rule,
            slos: self.slos.iter().map(|set| set.slo.clone()).collect(),
            ttl_ns: self.ttl_ns,
            ..tally::Settings::default()
        }
    }

    /// Gaps from here on are looked at closely: a request may be lost, or a limit of an SLO set reached.
    pub(super) fn close_look_ns(&self) -> u64 {
        let limits = self.slos.iter().filter_map(|set| set.slo.itl_ns);
        limits.chain([self.ttl_ns.saturating_add(1)]).min().unwrap_or(0) as u64
    }

    /// The widths of the windows' panes.
    pub(super) fn panes_ns(&self) -> impl Iterator<Item = i64> {
        self.windows_ns.iter().map(|width| width / bounds::PANES)
    }

    /// The width of the panes after which silent requests are looked for: those of the longest window.
    pub(super) fn sweep_ns(&self) -> i64 {
        self.panes_ns().last().unwrap_or(60_000_000_000)
    }
}

/// Who writes a block, and on which clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Whether times are those of the system's monotonic clock.
    pub monotonic: bool,
    /// One moment on the meter's clock...
    pub anchor_monotonic_ns: i64,
    /// ...and the same moment since the Unix epoch.
    pub anchor_unix_ns: i64,
    /// The process that writes.
    pub pid: u32,
    /// When that process began, on the monotonic clock; 0 where unknown.
    pub process_start_ns: i64,
    /// A hash of the system's boot, to tell clocks apart; 0 where unknown.
    pub boot: u64,
}
