//! A reading of a meter as Python sees it: plain dicts of counts and sketches, and arrays of quantiles.

use numpy::{PyArray1, PyArray4, PyArrayMethods};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyType};
use tokenpulse_core::meter::{Added, AddedFigure, ClassReading, Gauge, GaugeFigure, Named, Open, Refused, Scope};
use tokenpulse_core::meter::{Silence, Snapshot};
use tokenpulse_core::request::Metric;
use tokenpulse_core::sketch::Rejection;
use tokenpulse_core::window::Pane;

use crate::blocks::origin_dict;
use crate::errors::to_python;
use crate::kv::reading_dict;
use crate::reduction::{Limits, block_dict, counts};

/// What a meter held at one moment; `tokenpulse.Snapshot` names its figures.
#[pyclass(name = "Snapshot", module = "tokenpulse._core", frozen)]
pub struct PySnapshot(Snapshot);

impl PySnapshot {
    pub fn of(snapshot: Snapshot) -> Self {
        Self(snapshot)
    }

    /// The class at a position of `class_keys`; -1 is all of them.
    fn class(&self, position: i64) -> PyResult<&ClassReading> {
        if position == -1 {
            return Ok(&self.0.all);
        }
        let found = usize::try_from(position).ok().and_then(|position| self.0.classes.get(position));
        found.ok_or_else(|| {
            PyIndexError::new_err(format!("class must be -1 or below {}, got {position}", self.0.classes.len()))
        })
    }

    /// One class or several.
    fn chosen(&self, classes: &Bound<'_, PyAny>) -> PyResult<Vec<&ClassReading>> {
        if classes.is_instance_of::<PyInt>() {
            return Ok(vec![self.class(classes.extract()?)?]);
        }
        let positions: Vec<i64> = classes.extract()?;
        if positions.is_empty() {
            return Err(PyTypeError::new_err("classes must be an int or a sequence of at least one"));
        }
        positions.into_iter().map(|position| self.class(position)).collect()
    }
}

#[pymethods]
impl PySnapshot {
    /// The time that was asked for, or the meter's newest; None when nothing was ever seen.
    #[getter]
    fn t_ns(&self) -> Option<i64> {
        self.0.now
    }

    /// The SLO sets: name, limits in ns (ttft, tpot, e2e, itl), labels; and the objective.
    #[getter]
    fn slos(&self) -> Vec<(Limits, f64)> {
        let sets = self.0.settings.slos.iter();
        sets.map(|set| {
            let slo = &set.slo;
            let labels = slo.labels.iter().cloned().collect();
            ((slo.name.clone(), slo.ttft_ns, slo.tpot_ns, slo.e2e_ns, slo.itl_ns, labels), set.objective)
        })
        .collect()
    }

    /// Who wrote, and on which clock.
    #[getter]
    fn origin<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        origin_dict(py, &self.0.origin)
    }

    /// The classes in which something happened: their labels, and whether it is the class of all that found no room.
    #[getter]
    fn class_keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys: PyResult<Vec<_>> =
            self.0.classes.iter().map(|class| Ok((labels_dict(py, &class.key)?, class.other))).collect();
        PyList::new(py, keys?)
    }

    /// All that is kept once, not by class.
    fn head<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let snapshot = &self.0;
        let dict = PyDict::new(py);
        dict.set_item("t_ns", snapshot.now)?;
        dict.set_item("newest_ns", snapshot.newest)?;
        dict.set_item("first_event_ns", snapshot.first_event)?;
        dict.set_item("first_arrival_ns", snapshot.first_arrival)?;
        dict.set_item("first_emission_ns", snapshot.first_emission)?;
        dict.set_item("last_emission_ns", snapshot.last_emission)?;
        dict.set_item("ready_ns", snapshot.ready)?;
        dict.set_item("scale", snapshot.settings.scale)?;
        dict.set_item("itl_rule", snapshot.settings.itl_rule.name())?;
        let rejected = Refused::ALL.into_iter().map(Refused::name).zip(snapshot.rejected);
        dict.set_item("rejected", counts(py, rejected)?)?;
        let refused = Rejection::ALL.into_iter().map(Rejection::name).zip(snapshot.refused_values);
        dict.set_item("refused_values", counts(py, refused)?)?;
        dict.set_item("clamped", snapshot.clamped)?;
        dict.set_item("over", snapshot.over)?;
        let windows = snapshot.windows.iter().map(|window| {
            let dict = PyDict::new(py);
            dict.set_item("width_ns", window.width_ns)?;
            dict.set_item("true_width_ns", window.true_width_ns)?;
            dict.set_item("late", window.late)?;
            Ok(dict)
        });
        dict.set_item("windows", windows.collect::<PyResult<Vec<_>>>()?)?;
        dict.set_item("gauges", scopes(py, &snapshot.gauges, gauges_dict)?)?;
        dict.set_item("added", scopes(py, &snapshot.added, added_dict)?)?;
        dict.set_item("batch_sizes", scopes(py, &snapshot.batch_sizes, sizes_dict)?)?;
        let burn = snapshot.burn.as_ref().map(|widths| {
            let widths = widths.iter().map(|width| {
                let dict = PyDict::new(py);
                dict.set_item("width_ns", width.width_ns)?;
                dict.set_item("true_width_ns", width.true_width_ns)?;
                let slos = width.slos.iter().map(|&[good, judged]| pair(py, "good", good, judged));
                dict.set_item("slos", slos.collect::<PyResult<Vec<_>>>()?)?;
                let [bad, judged] = width.availability;
                dict.set_item("availability", pair(py, "bad", bad, judged)?)?;
                Ok(dict)
            });
            widths.collect::<PyResult<Vec<_>>>()
        });
        dict.set_item("burn", burn.transpose()?)?;
        Ok(dict)
    }

    /// Counts and sketches of a scope (0 the total, then the windows) and of one class or several together.
    #[pyo3(signature = (scope, classes))]
    fn block<'py>(&self, py: Python<'py>, scope: usize, classes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        if scope >= self.0.all.scopes.len() {
            let scopes = self.0.all.scopes.len();
            return Err(PyIndexError::new_err(format!("scope must be below {scopes}, got {scope}")));
        }
        let chosen = self.chosen(classes)?;
        let (first, others) = (&chosen[0].scopes[scope], &chosen[1..]);
        if others.is_empty() {
            return scope_dict(py, first);
        }
        let mut sum = first.clone();
        for class in others {
            let other = &class.scopes[scope];
            sum.block.absorb(&other.block);
            sum.cached_tokens += other.cached_tokens;
            sum.named.iter_mut().zip(other.named).for_each(|(mine, theirs)| *mine += theirs);
        }
        scope_dict(py, &sum)
    }

    /// The requests in flight of one class or several together, by how long they have been silent.
    #[pyo3(signature = (classes))]
    fn open<'py>(&self, py: Python<'py>, classes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let chosen = self.chosen(classes)?;
        let dict = PyDict::new(py);
        let sum = |part: fn(&Open) -> &Silence| {
            let mut sum = *part(&chosen[0].open);
            for class in &chosen[1..] {
                let other = part(&class.open);
                sum.n += other.n;
                sum.oldest_ns = sum.oldest_ns.max(other.oldest_ns);
                sum.over.iter_mut().zip(other.over).for_each(|(mine, theirs)| *mine += theirs);
            }
            silence_dict(py, &sum)
        };
        dict.set_item("streams", sum(|open| &open.streams)?)?;
        dict.set_item("waits", sum(|open| &open.waits)?)?;
        Ok(dict)
    }

    /// Quantiles of every latency in seconds: float64 [scope, class (all of them first), metric, q]; NaN when empty.
    #[pyo3(signature = (qs, /))]
    #[allow(clippy::needless_pass_by_value, reason = "it is extracted from Python")]
    fn quantiles<'py>(&self, py: Python<'py>, qs: Vec<f64>) -> PyResult<Bound<'py, PyArray4<f64>>> {
        let shape = [self.0.all.scopes.len(), 1 + self.0.classes.len(), Metric::ALL.len(), qs.len()];
        let quantiles = py.detach(|| self.0.quantiles(&qs)).map_err(to_python)?;
        PyArray1::from_vec(py, quantiles).reshape(shape)
    }

    /// This and another snapshot as if one meter had seen it all; what two processes wrote has the origin of neither.
    #[pyo3(signature = (other, /))]
    fn merge(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<Self> {
        let other = other.get();
        Ok(Self(py.detach(|| self.0.merge(&other.0)).map_err(to_python)?))
    }

    /// The same snapshot on a clock that is so many nanoseconds ahead.
    #[pyo3(signature = (ns, /))]
    fn shift(&self, ns: i64) -> Self {
        Self(self.0.shift(ns))
    }

    /// What the meter knows of the blocks of its KV cache, or None where they are not followed.
    fn kv<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.0.kv.as_ref().map(|kv| reading_dict(py, &self.0, kv)).transpose()
    }

    /// Observations that a window lacks for want of memory; the total has them.
    #[getter]
    fn dropped(&self) -> u64 {
        self.0.dropped
    }

    /// The snapshot as bytes, the same for equal snapshots.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.0.to_bytes()))
    }

    /// The snapshot that to_bytes wrote; DecodeError for anything else.
    #[staticmethod]
    #[pyo3(signature = (encoded, /))]
    fn from_bytes(encoded: &[u8]) -> PyResult<Self> {
        Snapshot::from_bytes(encoded).map(Self).map_err(to_python)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let from_bytes = PyType::new::<Self>(slf.py()).getattr("from_bytes")?;
        Ok((from_bytes, (slf.get().to_bytes(slf.py()),)))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Option<bool> {
        other.cast::<Self>().ok().map(|other| self.0 == other.get().0)
    }
}

fn labels_dict<'py>(py: Python<'py>, labels: &[(String, String)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in labels {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// What is kept for the total and each window, the total first.
fn scopes<'py, T>(
    py: Python<'py>,
    scopes: &[T],
    dict: fn(Python<'py>, &T) -> PyResult<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyDict>> {
    let both = PyDict::new(py);
    let mut each = scopes.iter().map(|scope| dict(py, scope));
    both.set_item("total", each.next().transpose()?)?;
    both.set_item("windows", each.collect::<PyResult<Vec<_>>>()?)?;
    Ok(both)
}

fn scope_dict<'py>(py: Python<'py>, scope: &Scope) -> PyResult<Bound<'py, PyDict>> {
    let dict = block_dict(py, &scope.block)?;
    dict.set_item("cached_tokens", scope.cached_tokens)?;
    // The names that follow these three are tokens, which are in the block's own counts.
    let events = Named::ALL.into_iter().map(Named::name).zip(scope.named);
    dict.set_item("counts", counts(py, events)?)?;
    Ok(dict)
}

fn gauges_dict<'py>(py: Python<'py>, figures: &[Option<GaugeFigure>; 5]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (gauge, figure) in Gauge::ALL.into_iter().zip(figures) {
        let figure = figure.as_ref().map(|figure| {
            let dict = PyDict::new(py);
            dict.set_item("last", figure.last)?;
            dict.set_item("integral", figure.integral)?;
            dict.set_item("covered_ns", figure.covered_ns)?;
            dict.set_item("max", figure.max)?;
            PyResult::Ok(dict)
        });
        dict.set_item(gauge.name(), figure.transpose()?)?;
    }
    Ok(dict)
}

fn added_dict<'py>(py: Python<'py>, figures: &[AddedFigure; 7]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (added, figure) in Added::ALL.into_iter().zip(figures).filter(|(_, figure)| figure.times > 0) {
        let entry = PyDict::new(py);
        entry.set_item("sum", figure.sum)?;
        entry.set_item("times", figure.times)?;
        dict.set_item(added.name(), entry)?;
    }
    Ok(dict)
}

#[allow(clippy::ptr_arg, reason = "one of several kinds of scope")]
fn sizes_dict<'py>(py: Python<'py>, sizes: &Vec<(u32, u64)>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    sizes.iter().try_for_each(|&(size, n)| dict.set_item(size, n))?;
    Ok(dict)
}

fn silence_dict<'py>(py: Python<'py>, silence: &Silence) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("n", silence.n)?;
    dict.set_item("oldest_ns", silence.oldest_ns)?;
    dict.set_item("over", silence.over.to_vec())?;
    Ok(dict)
}

fn pair<'py>(py: Python<'py>, name: &str, part: u64, judged: u64) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(name, part)?;
    dict.set_item("judged", judged)?;
    Ok(dict)
}
