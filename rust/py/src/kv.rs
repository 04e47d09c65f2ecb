//! `KVTracker`: the blocks of a KV cache, followed in a meter or in one of its own.

use std::sync::{Arc, OnceLock};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tokenpulse_core::bounds;
use tokenpulse_core::kv::{Counter, REPLICATES, Refused, Report, Settings, Span, Tier, replicate_slot};
use tokenpulse_core::meter::{self, KvReading, KvScope, Meter, Snapshot};
use tokenpulse_core::sketch::{Sketch, Store};

use crate::errors::to_python;
use crate::meter::Held;
use crate::reduction::{IntoPySketch, counts};
use crate::snapshot::PySnapshot;
use crate::whole::{Hashes, any_time, whole};

#[doc = include_str!("../doc/kv_tracker.md")]
#[pyclass(name = "KVTracker", module = "tokenpulse._core", frozen, subclass)]
pub struct PyKVTracker {
    /// Of a meter of its own.
    settings: meter::Settings,
    /// The windows that were asked for.
    windows_ns: Option<Vec<i64>>,
    /// The meter that it writes to, from the first use on: of its own, or the one that it was given to.
    held: OnceLock<Arc<Held>>,
}

impl PyKVTracker {
    /// How blocks are followed.
    pub fn settings(&self) -> Settings {
        self.settings.kv.unwrap_or_default()
    }

    /// Nothing, if a meter with these windows can have it.
    pub fn check_free(&self, windows_ns: &[i64]) -> PyResult<()> {
        if self.held.get().is_some() {
            return Err(taken());
        }
        match &self.windows_ns {
            Some(own) if own != windows_ns => Err(PyValueError::new_err(format!(
                "kv must have no windows of its own or those of the meter, {windows_ns:?} ns, got {own:?} ns"
            ))),
            _ => Ok(()),
        }
    }

    /// From now on it writes to this meter.
    pub fn bind(&self, held: &Arc<Held>) -> PyResult<()> {
        self.held.set(held.clone()).map_err(|_| taken())
    }

    #[inline]
    fn held(&self) -> PyResult<&Held> {
        match self.held.get() {
            Some(held) => Ok(held),
            None => self.alone(),
        }
    }

    #[cold]
    fn alone(&self) -> PyResult<&Held> {
        let own = Arc::new(Held::on_heap(self.settings.clone())?);
        Ok(self.held.get_or_init(|| own))
    }

    #[inline]
    fn meter(&self) -> PyResult<&Meter> {
        let held = self.held()?;
        held.writable()?;
        Ok(&held.meter)
    }

    /// Has the meter take a call about blocks.
    #[inline]
    fn blocks(
        &self,
        t: &Bound<'_, PyAny>,
        hashes: &Bound<'_, PyAny>,
        group: Option<&Bound<'_, PyAny>>,
        take: impl FnOnce(&Meter, i64, &[u64], i64),
    ) -> PyResult<()> {
        let t = any_time(t)?;
        let group = group.map_or(Ok(0), |group| whole(group, "group"))?;
        take(self.meter()?, t, Hashes::new().read_bits(hashes, "hashes")?, group);
        Ok(())
    }
}

#[cold]
fn taken() -> PyErr {
    PyValueError::new_err("kv must be a KVTracker that was not used yet and belongs to no meter")
}

#[pymethods]
impl PyKVTracker {
    #[new]
    #[pyo3(signature = (*, remember, ttl_ns, report, mode, rate, windows_ns, max_blocks, scale))]
    #[allow(clippy::too_many_arguments, reason = "as Python hands them over")]
    fn new(
        py: Python<'_>,
        remember: &Bound<'_, PyAny>,
        ttl_ns: i64,
        report: &str,
        mode: &str,
        rate: f64,
        windows_ns: Option<Vec<i64>>,
        max_blocks: &Bound<'_, PyAny>,
        scale: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let kv = Settings {
            remember: bounds::KV_REMEMBER.check(whole(remember, "remember")?).map_err(to_python)? as u32,
            ttl_ns,
            report: report_from_name(report)?,
            rate: sample_rate(mode, rate)?,
            max_blocks: bounds::KV_BLOCKS.check(whole(max_blocks, "max_blocks")?).map_err(to_python)? as u32,
        };
        let mut settings = meter::Settings {
            scale: bounds::SCALE.check(whole(scale, "scale")?).map_err(to_python)? as u8,
            max_requests: 1,
            max_classes: bounds::METER_CLASSES.min as u32,
            burn: false,
            kv: Some(kv),
            ..meter::Settings::default()
        };
        if let Some(windows_ns) = &windows_ns {
            settings.windows_ns.clone_from(windows_ns);
        }
        settings.check().map_err(to_python)?;
        // As for a meter: the library is loaded here, not within an engine's first step.
        py.import("numpy")?;
        Ok(Self { settings, windows_ns, held: OnceLock::new() })
    }

    /// Blocks were stored in a tier: one event for each hash.
    #[pyo3(signature = (t, hashes, tier = "gpu", group = None))]
    fn store(
        &self,
        t: &Bound<'_, PyAny>,
        hashes: &Bound<'_, PyAny>,
        tier: &str,
        group: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.blocks(t, hashes, group, |meter, t, hashes, group| meter.kv_store(t, hashes, Tier::from_name(tier), group))
    }

    /// Blocks, or copies of them, left a tier for want of space: one event for each hash.
    #[pyo3(signature = (t, hashes, tier = "gpu", group = None))]
    fn evict(
        &self,
        t: &Bound<'_, PyAny>,
        hashes: &Bound<'_, PyAny>,
        tier: &str,
        group: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.blocks(t, hashes, group, |meter, t, hashes, group| meter.kv_evict(t, hashes, Tier::from_name(tier), group))
    }

    /// Resident blocks were used: one event for each hash.
    #[pyo3(signature = (t, hashes, group = None))]
    fn touch(&self, t: &Bound<'_, PyAny>, hashes: &Bound<'_, PyAny>, group: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.blocks(t, hashes, group, Meter::kv_touch)
    }

    /// A request looked for its prompt: tokens asked for and tokens found, at its admission or again after a preemption.
    #[pyo3(signature = (t, queried_tokens, hit_tokens, preempted = false))]
    fn lookup(
        &self,
        t: &Bound<'_, PyAny>,
        queried_tokens: &Bound<'_, PyAny>,
        hit_tokens: &Bound<'_, PyAny>,
        preempted: bool,
    ) -> PyResult<()> {
        let (queried, hit) = (whole(queried_tokens, "queried_tokens")?, whole(hit_tokens, "hit_tokens")?);
        self.meter()?.kv_lookup(any_time(t)?, queried, hit, preempted);
        Ok(())
    }

    /// The cache was emptied, which is no eviction; what is remembered stays.
    #[pyo3(signature = (t))]
    fn clear(&self, t: &Bound<'_, PyAny>) -> PyResult<()> {
        self.meter()?.kv_clear(any_time(t)?);
        Ok(())
    }

    /// What the tracker, or the meter that it belongs to, holds at t or at the newest time.
    #[pyo3(signature = (t = None))]
    fn _snapshot(&self, py: Python<'_>, t: Option<&Bound<'_, PyAny>>) -> PyResult<PySnapshot> {
        match self.held.get() {
            Some(held) => held.snapshot(py, t),
            // Looking is no use: a meter can still have it.
            None => Held::on_heap(self.settings.clone())?.snapshot(py, t),
        }
    }

    /// Evicted blocks that are remembered.
    #[getter]
    fn remember(&self) -> u32 {
        self.settings().remember
    }

    /// For how long, in nanoseconds.
    #[getter]
    fn ttl_ns(&self) -> i64 {
        self.settings().ttl_ns
    }

    /// What the stream says of copies: "copies" or "full".
    #[getter]
    fn report(&self) -> &'static str {
        self.settings().report.name()
    }

    /// "exact" or "sampled".
    #[getter]
    fn mode(&self) -> &'static str {
        mode_name(&self.settings())
    }

    /// The share of all blocks that is followed.
    #[getter]
    fn rate(&self) -> f64 {
        self.settings().rate.unwrap_or(1.0)
    }

    /// Blocks that may be resident.
    #[getter]
    fn max_blocks(&self) -> u32 {
        self.settings().max_blocks
    }

    /// The widths of the windows in nanoseconds; None: the meter's, or the usual ones.
    #[getter]
    fn windows_ns(&self) -> Option<Vec<i64>> {
        self.windows_ns.clone()
    }

    /// The scale of the sketches: the meter's, where it belongs to one.
    #[getter]
    fn scale(&self) -> u8 {
        self.held.get().map_or(self.settings.scale, |held| held.meter.settings().scale)
    }

    fn __repr__(&self) -> String {
        let Settings { remember, report, .. } = self.settings();
        format!("KVTracker(remember={remember}, report={:?}, mode={:?})", report.name(), self.mode())
    }
}

pub fn report_from_name(name: &str) -> PyResult<Report> {
    Report::from_name(name).ok_or_else(|| PyValueError::new_err(format!("report must be copies or full, got {name:?}")))
}

/// The rate of a sample, if there is to be one.
pub fn sample_rate(mode: &str, rate: f64) -> PyResult<Option<f64>> {
    match mode {
        "exact" => Ok(None),
        "sampled" => Ok(Some(rate)),
        _ => Err(PyValueError::new_err(format!("mode must be exact or sampled, got {mode:?}"))),
    }
}

pub fn mode_name(settings: &Settings) -> &'static str {
    if settings.rate.is_some() { "sampled" } else { "exact" }
}

pub fn settings_dict<'py>(py: Python<'py>, settings: &Settings) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("remember", settings.remember)?;
    dict.set_item("ttl_ns", settings.ttl_ns)?;
    dict.set_item("report", settings.report.name())?;
    dict.set_item("mode", mode_name(settings))?;
    dict.set_item("rate", settings.rate.unwrap_or(1.0))?;
    dict.set_item("max_blocks", settings.max_blocks)?;
    Ok(dict)
}

pub fn tiers_dict<'py>(py: Python<'py>, blocks: [u64; Tier::ALL.len()]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    Tier::ALL.into_iter().zip(blocks).try_for_each(|(tier, blocks)| dict.set_item(tier.name(), blocks))?;
    Ok(dict)
}

pub fn refused_dict<'py>(py: Python<'py>, refused: [u64; Refused::ALL.len()]) -> PyResult<Bound<'py, PyDict>> {
    counts(py, Refused::ALL.into_iter().map(Refused::name).zip(refused))
}

/// Counts and sketches of a cache over everything, or over a window; parts of a sample only where there is one.
pub fn block_dict<'py, S: Store>(
    py: Python<'py>,
    counts: &[u64; Counter::ALL.len()],
    spans: &[Sketch<S>; Span::ALL.len()],
    replicates: Option<&[u64; 3 * REPLICATES]>,
) -> PyResult<Bound<'py, PyDict>>
where
    Sketch<S>: IntoPySketch,
{
    let dict = PyDict::new(py);
    let looked_up = [
        ("lookups", [Counter::Lookups, Counter::Queried, Counter::Hit]),
        ("relookups", [Counter::Relookups, Counter::Requeried, Counter::Rehit]),
    ];
    let plain = Counter::ALL.into_iter().filter(|counter| !looked_up.iter().any(|(_, three)| three.contains(counter)));
    plain.into_iter().try_for_each(|counter| dict.set_item(counter.name(), counts[counter as usize]))?;
    for (name, three) in looked_up {
        let part = PyDict::new(py);
        for (name, counter) in ["n", "queried", "hit"].into_iter().zip(three) {
            part.set_item(name, counts[counter as usize])?;
        }
        dict.set_item(name, part)?;
    }
    for (span, sketch) in Span::ALL.into_iter().zip(spans) {
        dict.set_item(span.name(), sketch.clone().into_py().into_pyobject(py)?)?;
    }
    let fates = [Counter::Evicted, Counter::Refilled, Counter::Forgotten];
    let parts = replicates.map(|counts| {
        let part = |replicate| fates.map(|what| counts[replicate_slot(replicate, what)]);
        (0..REPLICATES).map(part).collect::<Vec<_>>()
    });
    dict.set_item("replicates", parts)?;
    Ok(dict)
}

/// What a snapshot holds of the KV cache.
pub fn reading_dict<'py>(py: Python<'py>, snapshot: &Snapshot, kv: &KvReading) -> PyResult<Bound<'py, PyDict>> {
    let block =
        |scope: &KvScope| block_dict(py, &scope.counts, &scope.spans, kv.settings.rate.map(|_| &scope.replicates));
    let dict = PyDict::new(py);
    dict.set_item("settings", settings_dict(py, &kv.settings)?)?;
    dict.set_item("t_ns", snapshot.now)?;
    dict.set_item("newest_ns", snapshot.newest)?;
    dict.set_item("first_event_ns", snapshot.first_event)?;
    dict.set_item("resident", tiers_dict(py, kv.tiers)?)?;
    dict.set_item("blocks", kv.blocks)?;
    dict.set_item("remembered", kv.remembered)?;
    dict.set_item("rejected", refused_dict(py, kv.refused)?)?;
    dict.set_item("clamped", kv.clamped)?;
    let mut scopes = kv.scopes.iter();
    dict.set_item("total", scopes.next().map(block).transpose()?)?;
    let windows = PyList::empty(py);
    for (window, scope) in snapshot.windows.iter().zip(scopes) {
        let entry = PyDict::new(py);
        entry.set_item("width_ns", window.width_ns)?;
        entry.set_item("true_width_ns", window.true_width_ns)?;
        entry.set_item("late", window.late)?;
        entry.set_item("block", block(scope)?)?;
        let panes: Vec<_> =
            scope.panes.iter().map(|pane| vec![pane.start, pane.evicted as i64, pane.refilled as i64]).collect();
        entry.set_item("panes", panes)?;
        windows.append(entry)?;
    }
    dict.set_item("windows", windows)?;
    Ok(dict)
}
