//! Reading logs, and what they come to as plain Python dicts.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use pyo3::{IntoPyObjectExt, intern};
use tokenpulse_core::request::{Metric, Status};
use tokenpulse_core::sketch::{ItlRule, Sketch, Store};
use tokenpulse_core::slo::Slo;
use tokenpulse_core::strata::Key;
use tokenpulse_core::tally::{Block, Counter, Flow, GRID_SCALE, Grid, Run, Settings, SloTally};
use tokenpulse_core::{Error, bounds};
use tokenpulse_io::{Failure, Input, Reading, Reduction, Skip, Source, reduce};

use crate::errors::{FormatError, to_python};
use crate::sketch::PySketch;

/// One SLO set as Python hands it over: name, limits in ns (ttft, tpot, e2e, itl), labels.
pub type Limits = (String, i64, i64, Option<i64>, Option<i64>, std::collections::BTreeMap<String, String>);

/// A sketch in whatever store, as Python's.
pub trait IntoPySketch {
    fn into_py(self) -> PySketch;
}

impl IntoPySketch for Sketch<tokenpulse_core::sketch::Dense> {
    fn into_py(self) -> PySketch {
        PySketch::dense(self)
    }
}

impl IntoPySketch for Sketch<tokenpulse_core::sketch::Sparse> {
    fn into_py(self) -> PySketch {
        PySketch::sparse(self)
    }
}

/// Read logs by path; `-` is standard input.
#[pyfunction]
#[pyo3(signature = (paths, slos, itl_rule, by, timeline_ns, ttl_ns, progress, *, from_ns = None, to_ns = None, timeline_bins = bounds::MAX_TIMELINE_BINS, threads = 0, heads = None))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python hands them over")]
pub fn reduce_paths<'py>(
    py: Python<'py>,
    paths: Vec<String>,
    slos: Vec<Limits>,
    itl_rule: &str,
    by: Vec<String>,
    timeline_ns: Option<i64>,
    ttl_ns: i64,
    progress: Option<Py<PyAny>>,
    from_ns: Option<i128>,
    to_ns: Option<i128>,
    timeline_bins: i64,
    threads: usize,
    heads: Option<HashMap<String, Vec<u8>>>,
) -> PyResult<Bound<'py, PyDict>> {
    let settings = settings(slos, itl_rule, &by, (timeline_ns, timeline_bins), ttl_ns, (from_ns, to_ns))?;
    run(py, sources_of(paths, heads), &settings, Reading { threads, ..Reading::default() }, progress.as_ref())
}

/// Read logs already in memory, each with its name.
#[pyfunction]
#[pyo3(signature = (named, slos, itl_rule, by, timeline_ns, ttl_ns, *, from_ns = None, to_ns = None, timeline_bins = bounds::MAX_TIMELINE_BINS, threads = 0, plain = false, chunk = 0))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python hands them over")]
pub fn reduce_bytes<'py>(
    py: Python<'py>,
    named: Vec<(String, Vec<u8>)>,
    slos: Vec<Limits>,
    itl_rule: &str,
    by: Vec<String>,
    timeline_ns: Option<i64>,
    ttl_ns: i64,
    from_ns: Option<i128>,
    to_ns: Option<i128>,
    timeline_bins: i64,
    threads: usize,
    plain: bool,
    chunk: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let settings = settings(slos, itl_rule, &by, (timeline_ns, timeline_bins), ttl_ns, (from_ns, to_ns))?;
    let sources = named.into_iter().map(|(name, bytes)| Source::Bytes(name, bytes)).collect();
    run(py, sources, &settings, Reading { threads, plain, chunk, ..Reading::default() }, None)
}

/// Inputs by path; of some the first bytes have been read already.
pub fn sources_of(paths: Vec<String>, heads: Option<HashMap<String, Vec<u8>>>) -> Vec<Source> {
    let mut heads = heads.unwrap_or_default();
    let source = |path: String| match heads.remove(&path) {
        Some(head) => Source::Begun { path, head },
        None => Source::Path(path),
    };
    paths.into_iter().map(source).collect()
}

/// What a run is measured by, as Python hands it over: of the timeline width and number of bins, of the cut both ends.
pub fn settings(
    slos: Vec<Limits>,
    itl_rule: &str,
    by: &[String],
    (timeline_ns, timeline_bins): (Option<i64>, i64),
    ttl_ns: i64,
    (from_ns, to_ns): (Option<i128>, Option<i128>),
) -> PyResult<Settings> {
    let slos: PyResult<Vec<Slo>> = slos.into_iter().map(slo).collect();
    let time = |ns: i128| {
        let time = i64::try_from(ns).ok().filter(|&ns| bounds::TIME_NS.contains(ns));
        time.ok_or_else(|| to_python(bounds::TIME_NS.error(ns)))
    };
    let (from_ns, to_ns) = (from_ns.map(time).transpose()?, to_ns.map(time).transpose()?);
    if let (Some(from), Some(to)) = (from_ns, to_ns)
        && from >= to
    {
        return Err(to_python(Error::value("from_ns", format_args!("before to_ns, {to}"), from)));
    }
    Ok(Settings {
        scale: bounds::DEFAULT_SCALE,
        itl_rule: ItlRule::from_name(itl_rule).map_err(to_python)?,
        slos: Arc::from(slos?),
        by: by.iter().map(|name| Key::from_name(name)).collect(),
        timeline_ns: timeline_ns.map(|ns| bounds::BIN_NS.check(ns)).transpose().map_err(to_python)?,
        timeline_bins: bounds::TIMELINE_BINS.check(timeline_bins).map_err(to_python)?,
        ttl_ns: bounds::LIMIT_NS.check(ttl_ns).map_err(to_python)?,
        from_ns,
        to_ns,
    })
}

/// The set of limits that Python handed over.
pub fn slo((name, ttft_ns, tpot_ns, e2e_ns, itl_ns, labels): Limits) -> PyResult<Slo> {
    let limit = |ns: i64| bounds::LIMIT_NS.check(ns).map_err(to_python);
    Ok(Slo {
        name,
        ttft_ns: limit(ttft_ns)?,
        tpot_ns: limit(tpot_ns)?,
        e2e_ns: e2e_ns.map(limit).transpose()?,
        itl_ns: itl_ns.map(limit).transpose()?,
        labels: labels.into_iter().collect(),
    })
}

fn run<'py>(
    py: Python<'py>,
    sources: Vec<Source>,
    settings: &Settings,
    reading: Reading,
    progress: Option<&Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let reduction = self::reading(py, progress, |progress| reduce(sources, settings, reading, progress))?;
    reduction_dict(py, &reduction)
}

/// Reads without the interpreter's lock, but for telling how far the reading has come.
pub fn reading(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    read: impl FnOnce(&mut dyn FnMut(u64, u64) -> bool) -> Result<Reduction, Failure> + Send,
) -> PyResult<Reduction> {
    let mut raised: Option<PyErr> = None;
    let reduced = py
        .detach(|| read(&mut |done, total| tell(progress, done, total).map_err(|error| raised = Some(error)).is_ok()));
    match reduced {
        Ok(reduction) => Ok(reduction),
        Err(Failure::Io(name, error)) => Err(os_error(&name, &error)),
        Err(Failure::Format(name, found)) => Err(none_of_ours(&name, &found)),
        Err(Failure::Settings(error)) => Err(to_python(error)),
        Err(Failure::Stopped) => Err(raised.unwrap_or_else(|| PyRuntimeError::new_err("stopped"))),
    }
}

/// An input in which no line is one of ours.
pub fn none_of_ours(name: &str, found: &str) -> PyErr {
    FormatError::new_err(format!("{name}: expected tokenpulse request or event lines, found none{found}"))
}

/// Tells how far a reading has come. What Python raises meanwhile, be it an interrupt, is the error.
pub fn tell(progress: Option<&Py<PyAny>>, done: u64, total: u64) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        progress.map_or(Ok(()), |progress| progress.call1(py, (done, total)).map(|_| ()))
    })
}

/// The `OSError` that Python's `open` would raise.
pub fn os_error(name: &str, error: &io::Error) -> PyErr {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text).to_owned();
    let code = match error.raw_os_error() {
        Some(code) => code,
        None if error.kind() == io::ErrorKind::IsADirectory => 21,
        None => 5,
    };
    PyOSError::new_err((code, text, name.to_owned()))
}

/// A reduction as Python's dict.
pub fn reduction_dict<'py>(py: Python<'py>, reduction: &Reduction) -> PyResult<Bound<'py, PyDict>> {
    let run = &reduction.run;
    let dict = PyDict::new(py);
    set_inputs(&dict, &reduction.inputs)?;
    dict.set_item("first_arrival_ns", run.first_arrival())?;
    dict.set_item("last_emission_ns", run.last_emission())?;
    dict.set_item("newest_ns", reduction.newest)?;
    let rejected = Counter::ALL.into_iter();
    dict.set_item("rejected", counts(py, rejected.map(|counter| (counter.name(), run.counter(counter))))?)?;
    dict.set_item("clamped", run.clamped())?;
    dict.set_item("oom_events", run.oom_events())?;
    dict.set_item("total", block_dict(py, run.total())?)?;
    let slowest = PyDict::new(py);
    for metric in Metric::ALL {
        slowest.set_item(metric.name(), run.slowest(metric).entries().collect::<Vec<_>>())?;
    }
    dict.set_item("slowest", slowest)?;
    dict.set_item("by", by_list(py, run)?)?;
    dict.set_item("by_interned_over", run.classes_over())?;
    let asked = run.settings().timeline_ns;
    let timeline = run.timeline().zip(asked).map(|(timeline, asked)| {
        let bins = PyList::empty(py);
        for (start, block) in timeline.iter() {
            let bin = PyDict::new(py);
            bin.set_item("start_ns", start)?;
            bin.set_item("block", block_dict(py, block)?)?;
            bins.append(bin)?;
        }
        let dict = PyDict::new(py);
        dict.set_item("width_ns", timeline.width_ns())?;
        dict.set_item("asked_ns", asked)?;
        dict.set_item("bins", bins)?;
        PyResult::Ok(dict)
    });
    dict.set_item("timeline", timeline.transpose()?)?;
    dict.set_item("cut", cut_dict(py, run)?)?;
    dict.set_item("flow", flow_dict(py, run.flow())?)?;
    dict.set_item("grid", grid_dict(py, run.grid())?)?;
    Ok(dict)
}

fn cut_dict<'py>(py: Python<'py>, run: &Run) -> PyResult<Option<Bound<'py, PyDict>>> {
    let settings = run.settings();
    if !settings.is_cut() {
        return Ok(None);
    }
    let dict = PyDict::new(py);
    dict.set_item("from_ns", settings.from_ns)?;
    dict.set_item("to_ns", settings.to_ns)?;
    dict.set_item("outside", run.outside())?;
    Ok(Some(dict))
}

fn flow_dict<'py>(py: Python<'py>, flow: &Flow) -> PyResult<Bound<'py, PyDict>> {
    let bins = PyList::empty(py);
    // There may be thousands of bins: their keys are made once, and long integers only where they are needed.
    let whole = |n: u128| match u64::try_from(n) {
        Ok(n) => n.into_bound_py_any(py),
        Err(_) => n.into_bound_py_any(py),
    };
    for (start, bin) in flow.bins().iter() {
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "start_ns"), start)?;
        dict.set_item(intern!(py, "arrivals"), bin.arrivals)?;
        dict.set_item(intern!(py, "arrival_offset_ns"), whole(bin.arrival_offset_ns(start))?)?;
        dict.set_item(intern!(py, "ends"), bin.ends)?;
        dict.set_item(intern!(py, "end_offset_ns"), whole(bin.end_offset_ns(start))?)?;
        dict.set_item(intern!(py, "ttft_count"), bin.ttft_count)?;
        dict.set_item(intern!(py, "ttft_sum_ns"), whole(bin.ttft_sum_ns)?)?;
        bins.append(dict)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("width_ns", flow.bins().width_ns())?;
    dict.set_item("bins", bins)?;
    let (arrivals, ends) = (flow.arrivals(), flow.ends());
    dict.set_item("first_arrival_ns", arrivals.map(|(first, _)| first))?;
    dict.set_item("last_arrival_ns", arrivals.map(|(_, last)| last))?;
    dict.set_item("first_end_ns", ends.map(|(first, _)| first))?;
    dict.set_item("last_end_ns", ends.map(|(_, last)| last))?;
    let (count, sum_ns) = flow.residence();
    dict.set_item("residence_count", count)?;
    dict.set_item("residence_sum_ns", sum_ns)?;
    let (emissions, coalesced) = flow.emissions();
    dict.set_item("emissions", emissions)?;
    dict.set_item("coalesced", coalesced)?;
    Ok(dict)
}

fn grid_dict<'py>(py: Python<'py>, grid: &Grid) -> PyResult<Bound<'py, PyDict>> {
    let cells = PyList::empty(py);
    for (ttft, tpot, n) in grid.cells() {
        let cell = PyList::empty(py);
        cell.append(ttft)?;
        cell.append(tpot)?;
        cell.append(n)?;
        cells.append(cell)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("scale", GRID_SCALE)?;
    dict.set_item("cells", cells)?;
    Ok(dict)
}

/// The inputs of a reading, and the notices on them.
pub fn set_inputs(dict: &Bound<'_, PyDict>, read: &[Input]) -> PyResult<()> {
    let py = dict.py();
    let inputs = PyList::empty(py);
    let notices = PyList::empty(py);
    for input in read {
        inputs.append(input_dict(py, input)?)?;
        for notice in &input.notices {
            let entry = PyDict::new(py);
            entry.set_item("path", &input.path)?;
            entry.set_item("line", notice.line)?;
            entry.set_item("reason", notice.reason)?;
            entry.set_item("message", &notice.message)?;
            notices.append(entry)?;
        }
    }
    dict.set_item("inputs", inputs)?;
    dict.set_item("notices", notices)
}

fn input_dict<'py>(py: Python<'py>, input: &Input) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("path", &input.path)?;
    dict.set_item("format", input.format())?;
    dict.set_item("lines", input.lines)?;
    dict.set_item("requests", input.requests)?;
    dict.set_item(
        "skipped",
        counts(py, Skip::ALL.into_iter().map(|skip| (skip.name(), input.skipped[skip as usize])))?,
    )?;
    Ok(dict)
}

fn by_list<'py>(py: Python<'py>, run: &Run) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for (combination, block) in run.classes() {
        let key = PyDict::new(py);
        for (name, value) in run.settings().by.iter().zip(combination.unwrap_or_default()) {
            let name = match name {
                Key::PromptLength => "prompt_length",
                Key::OutputLength => "output_length",
                Key::Label(name) => name,
            };
            key.set_item(name, value)?;
        }
        let entry = PyDict::new(py);
        entry.set_item("key", key)?;
        entry.set_item("other", combination.is_none())?;
        entry.set_item("block", block_dict(py, block)?)?;
        list.append(entry)?;
    }
    Ok(list)
}

/// A block as the dict that a reduction holds.
pub fn block_dict<'py, S: Store>(py: Python<'py>, block: &Block<S>) -> PyResult<Bound<'py, PyDict>>
where
    Sketch<S>: IntoPySketch,
{
    let dict = PyDict::new(py);
    dict.set_item("attempted", block.attempted)?;
    let by_status = Status::ALL.into_iter().map(|status| (status.name(), block.status(status)));
    dict.set_item("by_status", counts(py, by_status)?)?;
    dict.set_item("degraded", block.degraded)?;
    dict.set_item("preempted", block.preempted)?;
    dict.set_item("preemptions", block.preemptions)?;
    dict.set_item("prompt_tokens", block.prompt_tokens)?;
    dict.set_item("output_tokens", block.output_tokens)?;
    let missing = Metric::ALL.into_iter().map(|metric| (metric.name(), block.missing[metric as usize]));
    dict.set_item("missing", counts(py, missing)?)?;
    let latency = PyDict::new(py);
    for (metric, sketch) in Metric::ALL.into_iter().zip(&block.latency) {
        latency.set_item(metric.name(), sketch.clone().into_py().into_pyobject(py)?)?;
    }
    dict.set_item("latency", latency)?;
    let slos: PyResult<Vec<_>> = block.slos.iter().map(|slo| slo_dict(py, slo)).collect();
    dict.set_item("slos", slos?)?;
    Ok(dict)
}

fn slo_dict<'py, S: Store>(py: Python<'py>, tally: &SloTally<S>) -> PyResult<Bound<'py, PyDict>>
where
    Sketch<S>: IntoPySketch,
{
    let dict = PyDict::new(py);
    dict.set_item("good", tally.good)?;
    dict.set_item("output_tokens", tally.good_output_tokens)?;
    let missed = PyDict::new(py);
    for (name, n) in tally.over_by_name() {
        missed.set_item(name, n)?;
    }
    for status in Status::ALL {
        let n = tally.failed[status as usize];
        if n > 0 {
            missed.set_item(status.name(), n)?;
        }
    }
    dict.set_item("missed", missed)?;
    dict.set_item("met", tally.met)?;
    dict.set_item("deadlines", tally.deadlines)?;
    dict.set_item("fluidity", tally.fluidity.clone().into_py().into_pyobject(py)?)?;
    Ok(dict)
}

/// What occurred, by name.
pub fn counts<'py>(py: Python<'py>, named: impl Iterator<Item = (&'static str, u64)>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, n) in named.filter(|&(_, n)| n > 0) {
        dict.set_item(name, n)?;
    }
    Ok(dict)
}
