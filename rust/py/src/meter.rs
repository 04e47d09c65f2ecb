//! `Meter`: what an engine calls. Arguments are read where they lie; a call holds the interpreter, for it is short.

use std::path::Path;
use std::sync::Arc;

use numpy::PyArray1;
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyString};
use tokenpulse_core::bounds;
use tokenpulse_core::meter::{Increment, Meter, Named, Reader, Settings, SloSet};
use tokenpulse_core::request::{Metric, Status};
use tokenpulse_core::sketch::ItlRule;

use crate::blocks::{Written, origin_dict};
use crate::column::{Column, Scalar};
use crate::errors::to_python;
use crate::kv::PyKVTracker;
use crate::reduction::{Limits, slo};
use crate::sketch::unit_from_name;
use crate::snapshot::PySnapshot;
use crate::whole::{Scratch, one, time, whole};

#[doc = include_str!("../doc/meter.md")]
#[pyclass(name = "Meter", module = "tokenpulse._core", frozen, subclass)]
pub struct PyMeter {
    held: Arc<Held>,
    /// What follows the blocks of the KV cache, if anything does.
    kv: Option<Py<PyKVTracker>>,
}

/// A meter, what reads it, and the file that it writes to, if it has one.
pub struct Held {
    pub meter: Meter,
    pub reader: Reader,
    file: Option<Written>,
}

impl Held {
    /// A meter of this process alone.
    pub fn on_heap(settings: Settings) -> PyResult<Self> {
        let meter = crate::blocks::on_heap(settings)?;
        Ok(Self { reader: meter.reader(), meter, file: None })
    }

    fn in_file(path: &Path, settings: Settings) -> PyResult<Self> {
        let (meter, file) = Written::create(path, settings)?;
        Ok(Self { reader: meter.reader(), meter, file: Some(file) })
    }

    /// Nothing, if this process may write.
    #[inline]
    pub fn writable(&self) -> PyResult<()> {
        match &self.file {
            Some(file) if file.forked() => Err(forked(file)),
            _ => Ok(()),
        }
    }

    /// What the meter holds at a time, or at the newest.
    pub fn snapshot(&self, py: Python<'_>, t: Option<&Bound<'_, PyAny>>) -> PyResult<PySnapshot> {
        let now = t.map(time).transpose()?;
        Ok(PySnapshot::of(py.detach(|| self.reader.snapshot(now))))
    }
}

impl PyMeter {
    pub fn core(&self) -> &Meter {
        &self.held.meter
    }

    /// The time of an event, if this process may write.
    #[inline]
    pub fn time(&self, t: &Bound<'_, PyAny>) -> PyResult<i64> {
        self.writable()?;
        time(t)
    }

    /// Nothing, if this process may write.
    #[inline]
    pub fn writable(&self) -> PyResult<()> {
        self.held.writable()
    }

    #[inline]
    fn each(
        &self,
        t: &Bound<'_, PyAny>,
        handles: &Bound<'_, PyAny>,
        take: impl FnOnce(&Meter, i64, &[i64]),
    ) -> PyResult<()> {
        let t = self.time(t)?;
        take(&self.held.meter, t, Scratch::new().read(handles, "handles")?);
        Ok(())
    }

    /// The arrivals of columns, in which a single number stands for as many as the others are.
    fn arrive_together(&self, t: i64, given: [Option<&Bound<'_, PyAny>>; 3]) -> PyResult<Vec<i64>> {
        let names = ["prompt_tokens", "cached_tokens", "cls"];
        let mut room = [const { Scratch::new() }; 3];
        let mut columns = [&[0][..]; 3];
        let mut requests = None;
        for (i, (value, scratch)) in given.into_iter().zip(&mut room).enumerate() {
            let Some(value) = value else { continue };
            columns[i] = scratch.read(value, names[i])?;
            let n = columns[i].len();
            if !one(value) && n != *requests.get_or_insert(n) {
                return Err(unequal(names[i], requests.unwrap_or_default(), n));
            }
        }
        let n = requests.unwrap_or(1);
        let [prompts, cached, classes] =
            columns.map(|column| move |i: usize| column[if column.len() == n { i } else { 0 }]);
        let arrival =
            |i| PyResult::Ok((prompts(i), cached(i), self.held.meter.check_class(classes(i)).map_err(to_python)?));
        let arrivals: PyResult<Vec<(i64, i64, u32)>> = (0..n).map(arrival).collect();
        Ok(self.held.meter.arrive_many(t, &arrivals?))
    }

    pub fn class(&self, cls: Option<&Bound<'_, PyAny>>) -> PyResult<u32> {
        cls.map_or(Ok(0), |cls| self.held.meter.check_class(whole(cls, "cls")?).map_err(to_python))
    }
}

/// A child process shares the file with its parent, which goes on writing to it.
#[cold]
fn forked(file: &Written) -> PyErr {
    PyRuntimeError::new_err(format!(
        "the meter in {} belongs to process {}, of which this one is a fork; make a meter of its own here",
        file.path().display(),
        file.pid()
    ))
}

pub fn status_from_name(name: &str) -> PyResult<Status> {
    Status::from_name(name).ok_or_else(|| {
        let names = "stop, length, abort, error, timeout, oom or reject";
        PyValueError::new_err(format!("status must be {names}, got {name:?}"))
    })
}

#[pymethods]
impl PyMeter {
    #[new]
    #[pyo3(signature = (*, slos, windows_ns, burn, scale, itl_rule, max_requests, max_classes, ttl_ns, path, shards,
        kv = None))]
    #[allow(clippy::too_many_arguments, reason = "as Python hands them over")]
    fn new(
        py: Python<'_>,
        slos: Vec<(Limits, f64)>,
        windows_ns: Vec<i64>,
        burn: bool,
        scale: &Bound<'_, PyAny>,
        itl_rule: &str,
        max_requests: &Bound<'_, PyAny>,
        max_classes: &Bound<'_, PyAny>,
        ttl_ns: i64,
        path: Option<std::path::PathBuf>,
        shards: &Bound<'_, PyAny>,
        kv: Option<Bound<'_, PyKVTracker>>,
    ) -> PyResult<Self> {
        let slos: PyResult<Vec<SloSet>> =
            slos.into_iter().map(|(limits, objective)| Ok(SloSet { slo: slo(limits)?, objective })).collect();
        let settings = Settings {
            slos: slos?,
            windows_ns,
            burn,
            scale: bounds::SCALE.check(whole(scale, "scale")?).map_err(to_python)? as u8,
            itl_rule: ItlRule::from_name(itl_rule).map_err(to_python)?,
            max_requests: bounds::METER_REQUESTS.check(whole(max_requests, "max_requests")?).map_err(to_python)? as u32,
            max_classes: bounds::METER_CLASSES.check(whole(max_classes, "max_classes")?).map_err(to_python)? as u32,
            ttl_ns,
            shards: bounds::SHARDS.check(whole(shards, "shards")?).map_err(to_python)? as u32,
            kv: kv.as_ref().map(|kv| kv.get().settings()),
        };
        settings.check().map_err(to_python)?;
        if let Some(kv) = &kv {
            kv.get().check_free(&settings.windows_ns)?;
        }
        // Handles are looked at as NumPy arrays first: the library is loaded here, not within an engine's first step.
        py.import("numpy")?;
        let held = Arc::new(match path {
            Some(path) => Held::in_file(&path, settings)?,
            None => Held::on_heap(settings)?,
        });
        if let Some(kv) = &kv {
            kv.get().bind(&held)?;
        }
        Ok(Self { held, kv: kv.map(Bound::unbind) })
    }

    /// The number of the class with these labels, to pass as cls; "prompt_length" is one where prompt_tokens are given.
    #[pyo3(signature = (prompt_tokens = None, **labels))]
    fn classify(&self, prompt_tokens: Option<&Bound<'_, PyAny>>, labels: Option<&Bound<'_, PyDict>>) -> PyResult<u32> {
        self.writable()?;
        let prompt_tokens = prompt_tokens.map(|tokens| whole(tokens, "prompt_tokens")).transpose()?;
        let mut texts = Vec::new();
        for (name, value) in labels.into_iter().flat_map(PyDictMethods::iter) {
            let Ok(value) = value.cast_into::<PyString>() else {
                return Err(PyTypeError::new_err(format!("label {name} must be str")));
            };
            texts.push((name.cast_into::<PyString>()?, value));
        }
        let labels: PyResult<Vec<(&str, &str)>> =
            texts.iter().map(|(name, value)| Ok((name.to_str()?, value.to_str()?))).collect();
        self.held.meter.classify(prompt_tokens, &labels?).map_err(to_python)
    }

    /// A request reached the server: its handle, or -1 where it is refused. With a column of prompt_tokens, cached_tokens
    /// or cls: several requests, and an int64 array of handles.
    #[pyo3(signature = (t, prompt_tokens = None, cached_tokens = None, cls = None))]
    fn arrive<'py>(
        &self,
        t: &Bound<'py, PyAny>,
        prompt_tokens: Option<&Bound<'py, PyAny>>,
        cached_tokens: Option<&Bound<'py, PyAny>>,
        cls: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let t_ns = self.time(t)?;
        let given = [prompt_tokens, cached_tokens, cls];
        if given.iter().flatten().all(|value| one(value)) {
            let [prompt_tokens, cached_tokens, cls] = given;
            let tokens = |value: Option<&Bound<'_, PyAny>>, name| value.map_or(Ok(0), |value| whole(value, name));
            let prompt_tokens = tokens(prompt_tokens, "prompt_tokens")?;
            let cached_tokens = tokens(cached_tokens, "cached_tokens")?;
            let handle = self.held.meter.arrive(t_ns, prompt_tokens, cached_tokens, self.class(cls)?);
            return Ok(handle.into_pyobject(t.py())?.into_any());
        }
        let handles = self.arrive_together(t_ns, given)?;
        Ok(PyArray1::from_vec(t.py(), handles).into_any())
    }

    /// Emissions, each with its own time in ns: columns of one length, in the order in which they came; of one token
    /// each, or as many as counts says.
    #[pyo3(signature = (times, handles, counts = None))]
    fn tokens(
        &self,
        times: &Bound<'_, PyAny>,
        handles: &Bound<'_, PyAny>,
        counts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.writable()?;
        let (mut times_room, mut handles_room, mut counts_room) = (Scratch::new(), Scratch::new(), Scratch::new());
        let times = times_room.read(times, "times")?;
        let handles = handles_room.read(handles, "handles")?;
        if times.len() != handles.len() {
            return Err(unequal("handles", times.len(), handles.len()));
        }
        let counts = counts.map(|counts| counts_room.read(counts, "counts")).transpose()?;
        if let Some(counts) = counts.filter(|counts| counts.len() != times.len()) {
            return Err(unequal("counts", times.len(), counts.len()));
        }
        times.iter().try_for_each(|&t| bounds::TIME_NS.check(t).map(|_| ())).map_err(to_python)?;
        self.held.meter.tokens(times, handles, counts);
        Ok(())
    }

    /// Requests were put into a running batch for the first time.
    #[pyo3(signature = (t, handles))]
    fn schedule(&self, t: &Bound<'_, PyAny>, handles: &Bound<'_, PyAny>) -> PyResult<()> {
        self.each(t, handles, Meter::schedule)
    }

    /// The computation of requests' prompts began.
    #[pyo3(signature = (t, handles))]
    fn prefill(&self, t: &Bound<'_, PyAny>, handles: &Bound<'_, PyAny>) -> PyResult<()> {
        self.each(t, handles, Meter::prefill)
    }

    /// An engine step: each request emitted one token, or as many as counts says.
    #[pyo3(signature = (t, handles, counts = None))]
    fn step(
        &self,
        t: &Bound<'_, PyAny>,
        handles: &Bound<'_, PyAny>,
        counts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let t = self.time(t)?;
        let mut scratch = Scratch::new();
        let handles = scratch.read(handles, "handles")?;
        let Some(counts) = counts else {
            self.held.meter.step(t, handles, None);
            return Ok(());
        };
        let mut scratch = Scratch::new();
        let counts = scratch.read(counts, "counts")?;
        if counts.len() != handles.len() {
            return Err(unequal("counts", handles.len(), counts.len()));
        }
        self.held.meter.step(t, handles, Some(counts));
        Ok(())
    }

    /// Requests lost their place in the running batch.
    #[pyo3(signature = (t, handles))]
    fn preempt(&self, t: &Bound<'_, PyAny>, handles: &Bound<'_, PyAny>) -> PyResult<()> {
        self.each(t, handles, Meter::preempt)
    }

    /// Requests have their place again.
    #[pyo3(signature = (t, handles))]
    fn resume(&self, t: &Bound<'_, PyAny>, handles: &Bound<'_, PyAny>) -> PyResult<()> {
        self.each(t, handles, Meter::resume)
    }

    /// Requests ended: stop, length, abort, error, timeout, oom or reject.
    #[pyo3(signature = (t, handles, status, degraded = false))]
    fn end(&self, t: &Bound<'_, PyAny>, handles: &Bound<'_, PyAny>, status: &str, degraded: bool) -> PyResult<()> {
        let status = status_from_name(status)?;
        self.each(t, handles, |meter, t, handles| meter.end(t, handles, status, degraded))
    }

    /// Values of a metric that were measured elsewhere: a number, or a column as for Sketch.record_many.
    #[pyo3(signature = (metric, values, unit = "s", cls = None, t = None))]
    fn observe(
        &self,
        metric: &str,
        values: &Bound<'_, PyAny>,
        unit: &str,
        cls: Option<&Bound<'_, PyAny>>,
        t: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.writable()?;
        let Some(named) = Metric::ALL.into_iter().find(|named| named.name() == metric) else {
            let names = Metric::ALL.map(Metric::name).join(", ");
            return Err(PyValueError::new_err(format!("metric must be one of {names}, got {metric:?}")));
        };
        let unit = unit_from_name(unit)?;
        let class = self.class(cls)?;
        let t = t.map(time).transpose()?;
        let column = if values.is_instance_of::<PyFloat>() || values.is_instance_of::<PyInt>() {
            Column::Scalars(vec![Scalar::from_python(values)?])
        } else {
            Column::from_python(values)?
        };
        let (ns, refused) = column.ns(unit);
        self.held.meter.observe(t, named, class, &ns, refused);
        Ok(())
    }

    /// Set gauges; each holds until it is set again.
    #[pyo3(signature = (t, *, running = None, waiting = None, kv_used = None, kv_total = None, batch_max = None))]
    #[allow(clippy::too_many_arguments, reason = "one a gauge")]
    fn gauge(
        &self,
        t: &Bound<'_, PyAny>,
        running: Option<&Bound<'_, PyAny>>,
        waiting: Option<&Bound<'_, PyAny>>,
        kv_used: Option<&Bound<'_, PyAny>>,
        kv_total: Option<&Bound<'_, PyAny>>,
        batch_max: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let t = self.time(t)?;
        let set = |value: Option<&Bound<'_, PyAny>>, name| value.map(|value| whole(value, name)).transpose();
        let values = [
            set(running, "running")?,
            set(waiting, "waiting")?,
            set(kv_used, "kv_used")?,
            set(kv_total, "kv_total")?,
            set(batch_max, "batch_max")?,
        ];
        self.held.meter.gauge(t, values);
        Ok(())
    }

    /// Add to what the engine measures of its own work; flops and bytes_moved may be floats.
    #[pyo3(signature = (t, *, gpu_active_ns = None, comm_ns = None, dequant_ns = None, prefill_tokens = None,
        decode_tokens = None, flops = None, bytes_moved = None))]
    #[allow(clippy::too_many_arguments, reason = "one an increment")]
    fn add(
        &self,
        t: &Bound<'_, PyAny>,
        gpu_active_ns: Option<&Bound<'_, PyAny>>,
        comm_ns: Option<&Bound<'_, PyAny>>,
        dequant_ns: Option<&Bound<'_, PyAny>>,
        prefill_tokens: Option<&Bound<'_, PyAny>>,
        decode_tokens: Option<&Bound<'_, PyAny>>,
        flops: Option<&Bound<'_, PyAny>>,
        bytes_moved: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let t = self.time(t)?;
        let values = [
            increment(gpu_active_ns, "gpu_active_ns", false)?,
            increment(comm_ns, "comm_ns", false)?,
            increment(dequant_ns, "dequant_ns", false)?,
            increment(prefill_tokens, "prefill_tokens", false)?,
            increment(decode_tokens, "decode_tokens", false)?,
            increment(flops, "flops", true)?,
            increment(bytes_moved, "bytes_moved", true)?,
        ];
        self.held.meter.add(t, values);
        Ok(())
    }

    /// Count what belongs to no request: oom_event, semantic_lookup, semantic_hit, prompt_tokens, cached_tokens,
    /// output_tokens.
    #[pyo3(signature = (t, name, n = None, cls = None))]
    fn count(
        &self,
        t: &Bound<'_, PyAny>,
        name: &str,
        n: Option<&Bound<'_, PyAny>>,
        cls: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let t = self.time(t)?;
        let Some(named) = Named::from_name(name) else {
            let names = Named::ALL.map(Named::name).join(", ");
            return Err(PyValueError::new_err(format!("name must be one of {names}, got {name:?}")));
        };
        let n = n.map_or(Ok(1), |n| whole(n, "n"))?;
        self.held.meter.count(t, named, n, self.class(cls)?);
        Ok(())
    }

    /// The engine is ready to serve.
    #[pyo3(signature = (t))]
    fn ready(&self, t: &Bound<'_, PyAny>) -> PyResult<()> {
        self.held.meter.ready(self.time(t)?);
        Ok(())
    }

    /// What the meter holds, read at t or at the newest time.
    #[pyo3(signature = (t = None))]
    fn _snapshot(&self, py: Python<'_>, t: Option<&Bound<'_, PyAny>>) -> PyResult<PySnapshot> {
        self.held.snapshot(py, t)
    }

    /// What follows the blocks of the KV cache, or None.
    #[getter]
    fn kv(&self, py: Python<'_>) -> Option<Py<PyKVTracker>> {
        self.kv.as_ref().map(|kv| kv.clone_ref(py))
    }

    /// The names of the SLO sets.
    #[getter]
    fn slos(&self) -> Vec<&str> {
        self.held.meter.settings().slos.iter().map(|set| set.slo.name.as_str()).collect()
    }

    /// The widths of the windows in nanoseconds.
    #[getter]
    fn windows_ns(&self) -> Vec<i64> {
        self.held.meter.settings().windows_ns.clone()
    }

    /// Whether burn rates are kept.
    #[getter]
    fn burn(&self) -> bool {
        self.held.meter.settings().burn
    }

    /// The scale of the sketches.
    #[getter]
    fn scale(&self) -> u8 {
        self.held.meter.settings().scale
    }

    /// How emissions of several tokens are recorded.
    #[getter]
    fn itl_rule(&self) -> &'static str {
        self.held.meter.settings().itl_rule.name()
    }

    /// Requests that may be in flight at once, in each shard.
    #[getter]
    fn max_requests(&self) -> u32 {
        self.held.meter.settings().max_requests
    }

    /// Classes that are kept apart, `other` included.
    #[getter]
    fn max_classes(&self) -> u32 {
        self.held.meter.settings().max_classes
    }

    /// The silence in nanoseconds after which a request is lost.
    #[getter]
    fn ttl_ns(&self) -> i64 {
        self.held.meter.settings().ttl_ns
    }

    /// Parts that can be written to at the same time.
    #[getter]
    fn shards(&self) -> u32 {
        self.held.meter.settings().shards
    }

    /// The file that the meter is kept in, or None.
    #[getter]
    fn path(&self) -> Option<&Path> {
        self.held.file.as_ref().map(Written::path)
    }

    /// The process that made the meter.
    #[getter]
    fn pid(&self) -> u32 {
        self.held.reader.origin().pid
    }

    /// Who writes, and on which clock.
    #[getter]
    fn origin<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        origin_dict(py, &self.held.reader.origin())
    }

    fn __repr__(&self) -> String {
        let settings = self.held.meter.settings();
        let place = self.held.file.as_ref().map_or(String::new(), |file| format!(", path={}", file.path().display()));
        format!("Meter({} windows, {} SLO sets{place})", settings.windows_ns.len(), settings.slos.len())
    }
}

#[cold]
pub fn unequal(name: &str, expected: usize, got: usize) -> PyErr {
    PyValueError::new_err(format!("{name} must be as many as the others, {expected}, got {got}"))
}

fn increment(value: Option<&Bound<'_, PyAny>>, name: &str, fractions: bool) -> PyResult<Option<Increment>> {
    let Some(value) = value else { return Ok(None) };
    Ok(Some(match value.extract::<i64>() {
        Ok(int) => Increment::Int(int),
        // Beyond 64 bits: the core refuses it as it does any amount that is too large.
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            Increment::Float(if value.lt(0)? { f64::NEG_INFINITY } else { f64::INFINITY })
        }
        Err(_) => match value.extract::<f64>() {
            Ok(float) if fractions => Increment::Float(float),
            _ => {
                let expected = if fractions { "a number" } else { "an int" };
                let got = value.get_type().name()?;
                return Err(PyTypeError::new_err(format!("{name} must be {expected}, got {got}")));
            }
        },
    }))
}
