//! `tokenpulse.Sketch`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::PyArray1;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};
use tokenpulse_core::sketch::{Dense, ItlRule, Rejection, Sketch, Sparse, Unit, relative_error, seconds};

use crate::column::{Column, Scalar};
use crate::errors::to_python;

/// The sketch as it is kept: sparse as long as it is only read, dense once it is written to.
#[derive(Clone)]
enum Kept {
    Dense(Sketch<Dense>),
    Sparse(Sketch<Sparse>),
}

/// Runs one expression on the sketch inside, whichever it is.
macro_rules! read {
    ($self:expr, $sketch:ident => $body:expr) => {
        match &*$self.lock() {
            Kept::Dense($sketch) => $body,
            Kept::Sparse($sketch) => $body,
        }
    };
}

impl Kept {
    #[inline]
    fn dense(&mut self) -> &mut Sketch<Dense> {
        if let Self::Sparse(sketch) = self {
            *self = Self::Dense(sketch.to_store());
        }
        match self {
            Self::Dense(sketch) => sketch,
            Self::Sparse(_) => unreachable!("was just made dense"),
        }
    }

    fn to_dense(&self) -> Sketch<Dense> {
        match self {
            Self::Dense(sketch) => sketch.clone(),
            Self::Sparse(sketch) => sketch.to_store(),
        }
    }
}

#[doc = include_str!("../doc/sketch.md")]
#[pyclass(name = "Sketch", module = "tokenpulse", frozen)]
pub struct PySketch(Mutex<Kept>);

impl PySketch {
    pub fn dense(sketch: Sketch<Dense>) -> Self {
        Self(Mutex::new(Kept::Dense(sketch)))
    }

    pub fn sparse(sketch: Sketch<Sparse>) -> Self {
        Self(Mutex::new(Kept::Sparse(sketch)))
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of what another sketch holds: two locks are never held at once.
    fn copied(&self) -> Sketch<Dense> {
        self.lock().to_dense()
    }
}

pub fn unit_from_name(name: &str) -> PyResult<Unit> {
    match name {
        "s" => Ok(Unit::Seconds),
        "ns" => Ok(Unit::Nanoseconds),
        _ => Err(PyValueError::new_err(format!("unit must be 's' or 'ns', got {name:?}"))),
    }
}

/// How often a value is recorded.
fn count_from(n: &Bound<'_, PyAny>) -> PyResult<u64> {
    let count = match n.extract::<i64>() {
        Err(error) if !error.is_instance_of::<PyOverflowError>(n.py()) => return Err(error),
        extracted => extracted.ok().and_then(|n| u64::try_from(n).ok()),
    };
    count.ok_or_else(|| PyValueError::new_err(format!("n must be between 0 and {}, got {n}", i64::MAX)))
}

#[pymethods]
impl PySketch {
    #[new]
    #[pyo3(signature = (scale = 6, *, itl_rule = None))]
    fn new(scale: i64, itl_rule: Option<&str>) -> PyResult<Self> {
        let rule = itl_rule.map(ItlRule::from_name).transpose().map_err(to_python)?;
        let scale = tokenpulse_core::bounds::SCALE.check(scale).map_err(to_python)?;
        Ok(Self::dense(Sketch::new(scale as u8, rule).map_err(to_python)?))
    }

    /// Record one duration in seconds (a float, or an int, which is exact).
    #[pyo3(signature = (seconds, /))]
    fn record(&self, seconds: &Bound<'_, PyAny>) -> PyResult<()> {
        let scalar = Scalar::from_python(seconds)?;
        let mut kept = self.lock();
        match scalar.ns(Unit::Seconds) {
            Ok(ns) => kept.dense().record_ns(ns),
            Err(reason) => kept.dense().reject(reason, 1),
        }
        Ok(())
    }

    /// Record one duration in whole nanoseconds.
    #[pyo3(signature = (ns, /))]
    fn record_ns(&self, ns: &Bound<'_, PyAny>) -> PyResult<()> {
        self.record_scalar(whole(ns)?, Unit::Nanoseconds, 1)
    }

    /// Record one duration in seconds n times.
    #[pyo3(signature = (seconds, n, /))]
    fn record_n(&self, seconds: &Bound<'_, PyAny>, n: &Bound<'_, PyAny>) -> PyResult<()> {
        self.record_scalar(Scalar::from_python(seconds)?, Unit::Seconds, count_from(n)?)
    }

    /// Record a column: a 1-D buffer of float64, float32, int64 or uint64 (read in place, strided and misaligned
    /// too), a list or a tuple. Integers in unit 's' are whole seconds.
    #[pyo3(signature = (values, /, unit = "s"))]
    fn record_many(&self, py: Python<'_>, values: &Bound<'_, PyAny>, unit: &str) -> PyResult<()> {
        let unit = unit_from_name(unit)?;
        Column::from_python(values)?.record(py, unit, |record| record(self.lock().dense()));
        Ok(())
    }

    /// The estimate in seconds for the value of nearest rank max(1, ceil(q * count)); NaN when empty.
    #[pyo3(signature = (q, /))]
    fn quantile(&self, q: f64) -> PyResult<f64> {
        read!(self, sketch => sketch.quantile(q)).map_err(to_python)
    }

    /// Several quantiles in one pass.
    #[pyo3(signature = (qs, /))]
    #[allow(clippy::needless_pass_by_value, reason = "it is extracted from Python")]
    fn quantiles(&self, qs: Vec<f64>) -> PyResult<Vec<f64>> {
        read!(self, sketch => sketch.quantiles(&qs)).map_err(to_python)
    }

    /// The share of values whose estimate is at most so many seconds; NaN when empty.
    #[pyo3(signature = (seconds, /))]
    fn cdf(&self, seconds: f64) -> PyResult<f64> {
        read!(self, sketch => sketch.cdf(seconds)).map_err(to_python)
    }

    /// How many values were recorded.
    #[getter]
    fn count(&self) -> u64 {
        read!(self, sketch => sketch.count())
    }

    /// The sum in seconds: the exact sum in nanoseconds, rounded once, by 1e9.
    #[getter]
    fn sum(&self) -> f64 {
        seconds(self.sum_ns())
    }

    /// The exact sum in nanoseconds.
    #[getter]
    fn sum_ns(&self) -> u128 {
        read!(self, sketch => sketch.sum_ns())
    }

    /// The mean in seconds; NaN when empty.
    #[getter]
    fn mean(&self) -> f64 {
        read!(self, sketch => sketch.mean())
    }

    /// The least value in seconds; NaN when empty.
    #[getter]
    fn min(&self) -> f64 {
        self.min_ns().map_or(f64::NAN, |ns| seconds(ns as u128))
    }

    /// The least value in nanoseconds; None when empty.
    #[getter]
    fn min_ns(&self) -> Option<i64> {
        read!(self, sketch => sketch.min_ns())
    }

    /// The greatest value in seconds; NaN when empty.
    #[getter]
    fn max(&self) -> f64 {
        self.max_ns().map_or(f64::NAN, |ns| seconds(ns as u128))
    }

    /// The greatest value in nanoseconds; None when empty.
    #[getter]
    fn max_ns(&self) -> Option<i64> {
        read!(self, sketch => sketch.max_ns())
    }

    /// Buckets an octave, as a power of two.
    #[getter]
    fn scale(&self) -> u8 {
        read!(self, sketch => sketch.scale())
    }

    /// How emissions of several tokens were recorded, or None.
    #[getter]
    fn itl_rule(&self) -> Option<&'static str> {
        read!(self, sketch => sketch.itl_rule()).map(ItlRule::name)
    }

    /// How many values lie at or below 2^-20 s.
    #[getter]
    fn zero_count(&self) -> u64 {
        read!(self, sketch => sketch.zero_count())
    }

    /// How many values lie above 2^12 s.
    #[getter]
    fn overflow_count(&self) -> u64 {
        read!(self, sketch => sketch.overflow_count())
    }

    /// How far a quantile may be off, relatively.
    #[getter]
    fn relative_error(&self) -> f64 {
        relative_error(self.scale())
    }

    /// How many values were refused, by reason: nan, infinite, negative, range.
    #[getter]
    fn rejected<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rejected = read!(self, sketch => sketch.rejected());
        let counts = pyo3::types::PyDict::new(py);
        for (reason, n) in Rejection::ALL.into_iter().zip(rejected) {
            if n > 0 {
                counts.set_item(reason.name(), n)?;
            }
        }
        py.import("collections")?.call_method1("Counter", (counts,))
    }

    /// The buckets that are not empty: int32 indices in OpenTelemetry's numbering, uint64 counts.
    #[allow(clippy::type_complexity, reason = "two arrays")]
    fn buckets<'py>(&self, py: Python<'py>) -> (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<u64>>) {
        let (indices, counts): (Vec<i32>, Vec<u64>) = read!(self, sketch => sketch.buckets()).into_iter().unzip();
        (PyArray1::from_vec(py, indices), PyArray1::from_vec(py, counts))
    }

    /// Add all that another sketch holds; of two scales the coarser is kept.
    #[pyo3(signature = (other, /))]
    fn merge(slf: &Bound<'_, Self>, other: &Bound<'_, Self>) -> PyResult<()> {
        let (mine, theirs) = (slf.get(), other.get());
        if slf.is(other) {
            let copy = theirs.copied();
            return mine.lock().dense().merge(&copy).map_err(to_python);
        }
        // Two threads that merge crosswise must not wait for each other: the lower address is locked first.
        let mine_first = std::ptr::from_ref(mine) < std::ptr::from_ref(theirs);
        let early = mine_first.then(|| mine.lock());
        let theirs = theirs.lock();
        let mut mine = early.unwrap_or_else(|| mine.lock());
        match &*theirs {
            Kept::Dense(theirs) => mine.dense().merge(theirs),
            Kept::Sparse(theirs) => mine.dense().merge(&theirs.to_store()),
        }
        .map_err(to_python)
    }

    fn __add__(&self, other: &Bound<'_, PySketch>) -> PyResult<Self> {
        // One after the other: two locks are never held at once.
        let mine = self.lock().clone();
        let theirs = other.get().lock().clone();
        match (mine, theirs) {
            (Kept::Sparse(mut sum), Kept::Sparse(theirs)) => {
                sum.merge(&theirs).map_err(to_python)?;
                Ok(Self::sparse(sum))
            }
            (mine, theirs) => {
                let mut sum = mine.to_dense();
                sum.merge(&theirs.to_dense()).map_err(to_python)?;
                Ok(Self::dense(sum))
            }
        }
    }

    fn __sub__(&self, other: &Bound<'_, PySketch>) -> PyResult<Self> {
        let difference = self.copied().since(&other.get().copied()).map_err(to_python)?;
        Ok(Self::dense(difference))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Option<bool> {
        let other = other.cast::<Self>().ok()?.get().copied();
        Some(read!(self, sketch => *sketch == other))
    }

    /// A sketch of the same values that goes its own way.
    fn copy(&self) -> Self {
        Self(Mutex::new(self.lock().clone()))
    }

    fn __copy__(&self) -> Self {
        self.copy()
    }

    #[pyo3(signature = (_memo, /))]
    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> Self {
        self.copy()
    }

    /// A sketch of the same values at a coarser scale.
    #[pyo3(signature = (scale, /))]
    fn downscale(&self, scale: i64) -> PyResult<Self> {
        let scale = tokenpulse_core::bounds::SCALE.check(scale).map_err(to_python)?;
        Ok(Self::dense(self.copied().downscale(scale as u8).map_err(to_python)?))
    }

    /// The sketch as the bytes of an OTLP ExponentialHistogramDataPoint.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &read!(self, sketch => sketch.to_bytes()))
    }

    /// The sketch that to_bytes wrote; DecodeError for anything else.
    #[staticmethod]
    #[pyo3(signature = (encoded, /))]
    fn from_bytes(encoded: &[u8]) -> PyResult<Self> {
        Ok(Self::sparse(Sketch::from_bytes(encoded).map_err(to_python)?))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let from_bytes = PyType::new::<Self>(slf.py()).getattr("from_bytes")?;
        Ok((from_bytes, (slf.get().to_bytes(slf.py()),)))
    }

    fn __repr__(&self) -> PyResult<String> {
        let rule = self.itl_rule().map_or(String::new(), |rule| format!(", itl_rule={rule:?}"));
        let count = self.count();
        if count == 0 {
            return Ok(format!("Sketch(scale={}{rule}, empty)", self.scale()));
        }
        let quantiles = self.quantiles(vec![0.5, 0.99])?;
        Ok(format!(
            "Sketch(scale={}{rule}, count={count}, p50={:.6} s, p99={:.6} s, max={:.6} s)",
            self.scale(),
            quantiles[0],
            quantiles[1],
            self.max(),
        ))
    }
}

impl PySketch {
    fn record_scalar(&self, scalar: Scalar, unit: Unit, n: u64) -> PyResult<()> {
        let mut kept = self.lock();
        match scalar.ns(unit) {
            Ok(ns) => kept.dense().record_ns_n(ns, n).map_err(to_python),
            Err(reason) => {
                kept.dense().reject(reason, n);
                Ok(())
            }
        }
    }
}

/// An integer, and no float.
fn whole(ns: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    match Scalar::from_python(ns)? {
        Scalar::Float(value) => Err(PyTypeError::new_err(format!("ns must be an int, got {value}"))),
        scalar => Ok(scalar),
    }
}
