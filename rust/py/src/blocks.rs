//! Meters in files: made here, and read from wherever they were written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokenpulse_core::meter::{MAGIC, Meter, Origin, Reader, Settings};
use tokenpulse_io::{BlockError, Mapped, blocks_in, process};

use crate::errors::{DecodeError, to_python};
use crate::reduction::os_error;
use crate::snapshot::PySnapshot;
use crate::whole::time;

/// The file that a meter writes to.
pub struct Written {
    path: PathBuf,
    pid: u32,
    /// How many forks this process was away from the first one when it made the file.
    forks: u64,
}

impl Written {
    /// A meter in a new file; what had the name before is kept beside it.
    pub fn create(path: &Path, settings: Settings) -> PyResult<(Meter, Self)> {
        let forks = process::watch_forks().map_err(|error| os_error(&path.display().to_string(), &error))?;
        let words = Meter::words_needed(&settings).map_err(to_python)?;
        let mapped = Arc::new(Mapped::create(path, words).map_err(|error| to_python_block(&error, true))?);
        let origin = process::origin();
        let meter = Meter::create(settings, origin, mapped.clone()).map_err(to_python)?;
        mapped.publish().map_err(|error| to_python_block(&error, true))?;
        Ok((meter, Self { path: mapped.path().to_owned(), pid: origin.pid, forks }))
    }

    /// Whether this process is a fork of the one that made the file.
    #[inline]
    pub fn forked(&self) -> bool {
        process::forks() != self.forks
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// A meter of this process alone.
pub fn on_heap(settings: Settings) -> PyResult<Meter> {
    Meter::new(settings, process::origin()).map_err(to_python)
}

/// `OSError` for what the system refuses; what is no block is a wrong argument to a writer and wrong bytes to a reader.
fn to_python_block(error: &BlockError, written: bool) -> PyErr {
    match error {
        BlockError::System { path, source, .. } => os_error(&path.display().to_string(), source),
        BlockError::Shape { .. } if written => PyValueError::new_err(error.to_string()),
        BlockError::Shape { .. } => DecodeError::new_err(error.to_string()),
    }
}

pub fn origin_dict<'py>(py: Python<'py>, origin: &Origin) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("monotonic", origin.monotonic)?;
    dict.set_item("anchor_monotonic_ns", origin.anchor_monotonic_ns)?;
    dict.set_item("anchor_unix_ns", origin.anchor_unix_ns)?;
    dict.set_item("pid", origin.pid)?;
    dict.set_item("process_start_ns", origin.process_start_ns)?;
    dict.set_item("boot", origin.boot)?;
    Ok(dict)
}

#[doc = include_str!("../doc/meter_reader.md")]
#[pyclass(name = "MeterReader", module = "tokenpulse._core", frozen, subclass)]
pub struct PyMeterReader {
    reader: Reader,
    mapped: Arc<Mapped>,
}

impl PyMeterReader {
    fn open(path: &Path) -> PyResult<Self> {
        let mapped = Arc::new(Mapped::open(path).map_err(|error| to_python_block(&error, false))?);
        let reader = Reader::open(mapped.clone())
            .map_err(|error| DecodeError::new_err(format!("{}: {error}", path.display())))?;
        Ok(Self { reader, mapped })
    }
}

#[pymethods]
impl PyMeterReader {
    #[new]
    #[pyo3(signature = (path, /))]
    #[allow(clippy::needless_pass_by_value, reason = "it is extracted from Python")]
    fn new(path: PathBuf) -> PyResult<Self> {
        Self::open(&path)
    }

    /// What the meter held at t, or at its newest time.
    #[pyo3(signature = (t = None))]
    fn _snapshot(&self, py: Python<'_>, t: Option<&Bound<'_, PyAny>>) -> PyResult<PySnapshot> {
        let now = t.map(time).transpose()?;
        if !self.mapped.still_whole() {
            return Err(DecodeError::new_err(format!("{}: the file was cut short", self.mapped.path().display())));
        }
        Ok(PySnapshot::of(py.detach(|| self.reader.snapshot(now))))
    }

    /// The file.
    #[getter]
    fn path(&self) -> &Path {
        self.mapped.path()
    }

    /// The process that writes or wrote it.
    #[getter]
    fn pid(&self) -> u32 {
        self.reader.origin().pid
    }

    /// Whether that process still runs.
    #[getter]
    fn alive(&self) -> bool {
        process::is_alive(&self.reader.origin())
    }

    /// The newest time that the meter has seen, or None.
    #[getter]
    fn newest_ns(&self) -> Option<i64> {
        self.reader.newest()
    }

    /// Who writes, and on which clock.
    #[getter]
    fn origin<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        origin_dict(py, &self.reader.origin())
    }

    fn __repr__(&self) -> String {
        let alive = if self.alive() { "alive" } else { "ended" };
        format!("MeterReader({}, process {} {alive})", self.mapped.path().display(), self.pid())
    }
}

/// The meters in a folder, each with its path: a reader, or why it cannot be read.
#[pyfunction]
#[pyo3(signature = (folder, /))]
#[allow(clippy::needless_pass_by_value, reason = "it is extracted from Python")]
pub fn read_blocks(py: Python<'_>, folder: PathBuf) -> PyResult<Vec<(PathBuf, Py<PyAny>)>> {
    let listing = blocks_in(&folder, MAGIC.to_le_bytes()).map_err(|error| to_python_block(&error, false))?;
    let mut found = Vec::new();
    for path in listing.blocks {
        let block = match PyMeterReader::open(&path) {
            Ok(reader) => Py::new(py, reader)?.into_any(),
            Err(error) => error.value(py).str()?.into_any().unbind(),
        };
        found.push((path, block));
    }
    for path in listing.unreadable {
        let text = format!("{}: this process may not read it", path.display());
        found.push((path, text.into_pyobject(py)?.into_any().unbind()));
    }
    found.sort_by(|(path, _), (other, _)| path.cmp(other));
    Ok(found)
}
