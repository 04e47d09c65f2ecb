//! Logs of KV caches and traces of block hashes: reading them, and what caches of other sizes would have made of a trace.

use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tokenpulse_core::bounds;
use tokenpulse_core::kv::{BLOCK_TOKENS, Curve, Point, Policy, Replay, Replayed, Settings, Totals, Trace};
use tokenpulse_io::{Failure, KvContent, KvEvents, KvInput, KvLog, Skip, Source, read_kv as read};

use crate::errors::{FormatError, to_python};
use crate::kv::{block_dict, refused_dict, report_from_name, sample_rate, settings_dict, tiers_dict};
use crate::reduction::{counts, os_error, tell};
use crate::whole::{Hashes, whole};

/// Refill rates that a curve is asked for: name, and the rate as a ratio.
const LIMITS: [(&str, u32, u32); 2] = [("0.05", 1, 20), ("0.15", 3, 20)];

/// Read logs of KV events, or a trace of block hashes, by path; `-` is standard input.
#[pyfunction]
#[pyo3(signature = (paths, *, stream, remember, ttl_ns, mode, rate, progress))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python hands them over")]
pub fn read_kv<'py>(
    py: Python<'py>,
    paths: Vec<String>,
    stream: &str,
    remember: Option<&Bound<'py, PyAny>>,
    ttl_ns: Option<i64>,
    mode: &str,
    rate: f64,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let usual = Settings::default();
    let settings = Settings {
        remember: remembered(remember, usual.remember)?,
        ttl_ns: ttl_ns.unwrap_or(usual.ttl_ns),
        report: report_from_name(stream)?,
        rate: sample_rate(mode, rate)?,
        ..usual
    };
    let sources = paths.into_iter().map(Source::Path).collect();
    let mut raised: Option<PyErr> = None;
    let log = py.detach(|| {
        read(sources, &settings, |done, total| {
            tell(progress.as_ref(), done, total).map_err(|error| raised = Some(error)).is_ok()
        })
    });
    match log {
        Ok(log) => log_dict(py, log),
        Err(Failure::Io(name, error)) => Err(os_error(&name, &error)),
        Err(Failure::Format(name, message)) => Err(FormatError::new_err(format!("{name}: {message}"))),
        Err(Failure::Settings(error)) => Err(to_python(error)),
        Err(Failure::Stopped) => Err(raised.unwrap_or_else(|| PyRuntimeError::new_err("stopped"))),
    }
}

fn remembered(remember: Option<&Bound<'_, PyAny>>, usual: u32) -> PyResult<u32> {
    let Some(remember) = remember else { return Ok(usual) };
    Ok(bounds::KV_REMEMBER.check(whole(remember, "remember")?).map_err(to_python)? as u32)
}

fn log_dict<'py>(py: Python<'py>, log: KvLog) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let inputs = PyList::empty(py);
    for input in &log.inputs {
        inputs.append(input_dict(py, input)?)?;
    }
    let (kind, events, trace) = match log.content {
        KvContent::Events(events) => ("events", Some(events_dict(py, &events)?), None),
        KvContent::Trace(trace) => ("trace", None, Some(Bound::new(py, PyKVTrace { trace })?)),
    };
    dict.set_item("kind", kind)?;
    dict.set_item("inputs", inputs)?;
    dict.set_item("events", events)?;
    dict.set_item("trace", trace)?;
    Ok(dict)
}

fn input_dict<'py>(py: Python<'py>, input: &KvInput) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("path", &input.path)?;
    dict.set_item("lines", input.lines)?;
    dict.set_item("events", input.events)?;
    dict.set_item("requests", input.requests)?;
    dict.set_item("passed", input.passed)?;
    let skipped = Skip::ALL.into_iter().map(|skip| (skip.name(), input.skipped[skip as usize]));
    dict.set_item("skipped", counts(py, skipped)?)?;
    let notices = PyList::empty(py);
    for notice in &input.notices {
        let entry = PyDict::new(py);
        entry.set_item("line", notice.line)?;
        entry.set_item("reason", notice.reason)?;
        entry.set_item("message", &notice.message)?;
        notices.append(entry)?;
    }
    dict.set_item("notices", notices)?;
    Ok(dict)
}

fn events_dict<'py>(py: Python<'py>, events: &KvEvents) -> PyResult<Bound<'py, PyDict>> {
    let totals = &events.totals;
    let dict = PyDict::new(py);
    dict.set_item("totals", totals_dict(py, totals, events.settings.rate.is_some())?)?;
    dict.set_item("resident", tiers_dict(py, events.resident)?)?;
    dict.set_item("blocks", events.blocks)?;
    dict.set_item("remembered", events.remembered)?;
    dict.set_item("rejected", refused_dict(py, totals.refused)?)?;
    dict.set_item("clamped", totals.clamped)?;
    dict.set_item("streams", events.caches)?;
    dict.set_item("first_event_ns", totals.first_event)?;
    dict.set_item("newest_ns", totals.newest())?;
    dict.set_item("settings", settings_dict(py, &events.settings)?)?;
    let loss = PyDict::new(py);
    loss.set_item("gaps", events.loss.gaps)?;
    loss.set_item("batches", events.loss.batches)?;
    loss.set_item("restarts", events.loss.restarts)?;
    dict.set_item("loss", loss)?;
    Ok(dict)
}

fn totals_dict<'py>(py: Python<'py>, totals: &Totals, sampled: bool) -> PyResult<Bound<'py, PyDict>> {
    block_dict(py, &totals.counts, &totals.spans, sampled.then_some(&totals.replicates))
}

/// The requests of a trace, each with the blocks that it asked for.
#[pyclass(name = "KVTrace", module = "tokenpulse._core", frozen)]
pub struct PyKVTrace {
    trace: Trace,
}

#[pymethods]
impl PyKVTrace {
    /// Requests, those without a block included.
    #[getter]
    fn requests(&self) -> usize {
        self.trace.requests().len()
    }

    /// Blocks asked for, each as often as it was.
    #[getter]
    fn references(&self) -> usize {
        self.trace.references().len()
    }

    /// Different blocks.
    #[getter]
    fn distinct(&self) -> u32 {
        self.trace.distinct()
    }

    /// The earliest time; None without requests.
    #[getter]
    fn first_ns(&self) -> Option<i64> {
        self.trace.first_ns()
    }

    /// The latest time.
    #[getter]
    fn last_ns(&self) -> Option<i64> {
        self.trace.last_ns()
    }

    /// The trace through a cache of so many blocks; None: room for all. `remember` and `ttl_ns` limit the memory of
    /// evicted blocks; None: no limit.
    fn replay<'py>(
        &self,
        py: Python<'py>,
        blocks: Option<&Bound<'py, PyAny>>,
        policy: &str,
        remember: Option<&Bound<'py, PyAny>>,
        ttl_ns: Option<i64>,
        block_tokens: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let most = Settings::unlimited();
        let settings =
            Settings { remember: remembered(remember, most.remember)?, ttl_ns: ttl_ns.unwrap_or(most.ttl_ns), ..most };
        let block_tokens = BLOCK_TOKENS.check(whole(block_tokens, "block_tokens")?).map_err(to_python)?;
        let replay = Replay {
            blocks: blocks.map(size).transpose()?,
            policy: Policy::from_name(policy).ok_or_else(|| {
                PyValueError::new_err(format!("policy must be lru, fifo, s3fifo or lfu, got {policy:?}"))
            })?,
            block_tokens: block_tokens as u32,
            settings,
        };
        let replayed = py.detach(|| replay.run(&self.trace)).map_err(to_python)?;
        replayed_dict(py, &replayed)
    }

    /// Hits, evictions and refills of LRU caches of these sizes, and the sizes worth knowing; with a rate, estimated
    /// from that share of the blocks.
    #[allow(clippy::needless_pass_by_value, reason = "as Python hands them over")]
    fn curve<'py>(
        &self,
        py: Python<'py>,
        sizes: Vec<Bound<'py, PyAny>>,
        rate: Option<f64>,
        seed: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let sizes = sizes.iter().map(size).collect::<PyResult<Vec<u64>>>()?;
        let seed = Hashes::new().read_bits(seed, "seed")?.first().copied().unwrap_or(0);
        let found = py.detach(|| Found::of(&self.trace, &sizes, rate, seed)).map_err(to_python)?;
        found.dict(py)
    }

    fn __repr__(&self) -> String {
        format!("KVTrace(requests={}, references={}, distinct={})", self.requests(), self.references(), self.distinct())
    }
}

/// The size of a cache; 0 is for the core to refuse.
fn size(blocks: &Bound<'_, PyAny>) -> PyResult<u64> {
    let size = whole(blocks, "blocks")?;
    u64::try_from(size).map_err(|_| PyValueError::new_err(format!("blocks must be at least 1, got {size}")))
}

fn replayed_dict<'py>(py: Python<'py>, replayed: &Replayed) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("lookups", replayed.lookups)?;
    dict.set_item("hits", replayed.hits)?;
    dict.set_item("queried_tokens", replayed.queried_tokens)?;
    dict.set_item("hit_tokens", replayed.hit_tokens)?;
    dict.set_item("totals", totals_dict(py, &replayed.totals, false)?)?;
    dict.set_item("blocks", replayed.blocks)?;
    dict.set_item("remembered", replayed.remembered)?;
    Ok(dict)
}

/// What a curve was asked for.
struct Found {
    curve: Curve,
    points: Vec<Point>,
    knee: Option<Point>,
    under: Vec<Option<Point>>,
}

impl Found {
    fn of(trace: &Trace, sizes: &[u64], rate: Option<f64>, seed: u64) -> tokenpulse_core::Result<Self> {
        let curve = match rate {
            None => Curve::exact(trace),
            Some(rate) => Curve::sampled(trace, rate, seed)?,
        };
        let mark = |size: Option<u64>| size.map(|size| curve.at(size)).transpose();
        let points = sizes.iter().map(|&size| curve.at(size)).collect::<Result<_, _>>()?;
        let knee = mark(curve.knee())?;
        let under = LIMITS.iter().map(|&(_, part, of)| mark(curve.refill_under(part, of))).collect::<Result<_, _>>()?;
        Ok(Self { curve, points, knee, under })
    }

    fn dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let (references, distinct) = self.curve.followed();
        dict.set_item("references", self.curve.references())?;
        dict.set_item("distinct", self.curve.distinct().round_ties_even() as u64)?;
        dict.set_item("sampled_references", references)?;
        dict.set_item("sampled_distinct", distinct)?;
        for (name, figure) in FIGURES {
            dict.set_item(name, self.column(py, figure))?;
        }
        dict.set_item("knee", self.knee.map(|point| self.point_dict(py, &point)).transpose()?)?;
        let under = PyDict::new(py);
        for ((name, ..), point) in LIMITS.into_iter().zip(&self.under) {
            under.set_item(name, point.map(|point| self.point_dict(py, &point)).transpose()?)?;
        }
        dict.set_item("refill_under", under)?;
        Ok(dict)
    }

    /// A figure of all points: whole numbers where they are exact.
    fn column<'py>(&self, py: Python<'py>, figure: fn(&Point) -> f64) -> Bound<'py, PyAny> {
        let column = self.points.iter().map(figure);
        if self.curve.is_exact() {
            let whole: Bound<'py, PyArray1<i64>> = column.map(|n| n as i64).collect::<Vec<_>>().into_pyarray(py);
            whole.into_any()
        } else {
            column.collect::<Vec<_>>().into_pyarray(py).into_any()
        }
    }

    fn point_dict<'py>(&self, py: Python<'py>, point: &Point) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("blocks", point.blocks)?;
        for (name, figure) in FIGURES {
            if self.curve.is_exact() {
                dict.set_item(name, figure(point) as u64)?;
            } else {
                dict.set_item(name, figure(point))?;
            }
        }
        Ok(dict)
    }
}

/// The figures of a point, by name.
type Figure = (&'static str, fn(&Point) -> f64);
const FIGURES: [Figure; 3] =
    [("hits", |point| point.hits), ("evicted", |point| point.evicted), ("refilled", |point| point.refilled)];
