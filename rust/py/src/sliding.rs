//! `tokenpulse.SlidingSketch`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokenpulse_core::sketch::{Unit, seconds};
use tokenpulse_core::window::SlidingSketch;

use crate::column::Scalar;
use crate::errors::to_python;
use crate::sketch::PySketch;

#[doc = include_str!("../doc/sliding_sketch.md")]
#[pyclass(name = "SlidingSketch", module = "tokenpulse", frozen)]
pub struct PySlidingSketch(Mutex<SlidingSketch>);

impl PySlidingSketch {
    fn lock(&self) -> MutexGuard<'_, SlidingSketch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PySlidingSketch {
    #[new]
    #[pyo3(signature = (width, scale = 6))]
    fn new(width: &Bound<'_, PyAny>, scale: i64) -> PyResult<Self> {
        let width_ns = Scalar::from_python(width)?
            .ns(Unit::Seconds)
            .map_err(|reason| PyValueError::new_err(format!("window width in seconds is {}", reason.name())))?;
        let scale = tokenpulse_core::bounds::SCALE.check(scale).map_err(to_python)?;
        Ok(Self(Mutex::new(SlidingSketch::new(width_ns, scale as u8).map_err(to_python)?)))
    }

    /// Record a duration in nanoseconds that was observed at t_ns, n times.
    #[pyo3(signature = (t_ns, value_ns, n = 1))]
    fn record_ns(&self, t_ns: i64, value_ns: i64, n: i64) -> PyResult<()> {
        let n = u64::try_from(n).map_err(|_| PyValueError::new_err(format!("n must be 0 or more, got {n}")))?;
        self.lock().record_ns(t_ns, value_ns, n).map_err(to_python)
    }

    /// The window at now_ns: a sketch, and the width in seconds that it really covers.
    fn read(&self, now_ns: i64) -> (PySketch, f64) {
        let reading = self.lock().read(now_ns);
        (PySketch::sparse(reading.content), seconds(reading.true_width_ns as u128))
    }

    /// The nominal width.
    #[getter]
    fn width_ns(&self) -> i64 {
        self.lock().ring().width_ns()
    }

    /// The width of a pane: a sixtieth.
    #[getter]
    fn pane_ns(&self) -> i64 {
        self.lock().ring().pane_ns()
    }

    /// Records whose pane the ring no longer had; the total has them.
    #[getter]
    fn late(&self) -> u64 {
        self.lock().ring().late()
    }

    /// Records refused because their time lay more than a day ahead.
    #[getter]
    fn future(&self) -> u64 {
        self.lock().future()
    }

    /// Everything that was recorded, however old.
    #[getter]
    fn total(&self) -> PySketch {
        PySketch::dense(self.lock().total().clone())
    }

    fn __repr__(&self) -> String {
        let window = self.lock();
        format!(
            "SlidingSketch({} s, {} values in all)",
            seconds(window.ring().width_ns() as u128),
            window.total().count()
        )
    }
}
