//! `JsonDocument`: JSON documents of any size, given part by part.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use numpy::IntoPyArray;
use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use tokenpulse_io::{Fault, OpenDocument, Part, Skip, Source, Value, Wanted};

use crate::errors::{DecodeError, FormatError};
use crate::reduction::{os_error, tell};

/// Parts, and bytes of them, that are read at a time.
const PARTS: usize = 256;
const BYTES: usize = 1 << 20;

/// What Python raised when it was asked whether to go on.
type Raised = Arc<Mutex<Option<PyErr>>>;

#[doc = include_str!("../doc/json_document.md")]
#[pyclass(name = "JsonDocument", module = "tokenpulse._core", frozen)]
pub struct PyJsonDocument {
    name: String,
    lines: bool,
    size: Option<u64>,
    compressed: bool,
    bytes_read: Box<dyn Fn() -> u64 + Send + Sync>,
    paths: Vec<Py<PyString>>,
    raised: Raised,
    /// Taken only while the interpreter is not held.
    open: Mutex<OpenDocument>,
    ready: Mutex<Ready>,
}

#[derive(Default)]
struct Ready {
    parts: VecDeque<Part>,
    fault: Option<Fault>,
    line: u64,
    /// A line is at fault, and reading may go on behind it.
    line_at_fault: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl PyJsonDocument {
    #[new]
    #[pyo3(signature = (
        source, *, name = None, select = Vec::new(), columns = Vec::new(), integers = Vec::new(), skip = Vec::new(),
        lines = false, limit = 256 << 20
    ))]
    #[allow(clippy::too_many_arguments, reason = "as Python has them")]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        name: Option<String>,
        select: Vec<String>,
        columns: Vec<String>,
        integers: Vec<String>,
        skip: Vec<String>,
        lines: bool,
        limit: usize,
    ) -> PyResult<Self> {
        let source = source_of(source, name.as_deref())?;
        let name = name.unwrap_or_else(|| source.name().to_owned());
        let size = source.size();
        let wanted = Wanted { select, columns, integers, skip, lines, limit };
        let raised = Raised::default();
        let raising = Arc::clone(&raised);
        let goes_on = move || tell(None, 0, 0).map_err(|error| *lock(&raising) = Some(error)).is_ok();
        wanted.check().map_err(PyValueError::new_err)?;
        let opened = py.detach(|| OpenDocument::open(source, &wanted, Box::new(goes_on)));
        let open = opened.map_err(|error| os_error(&name, &error))?;
        let document = &open.document;
        let paths = (0..document.paths()).map(|n| PyString::new(py, document.path(n)).unbind()).collect();
        Ok(Self {
            name,
            lines,
            size,
            compressed: open.compressed,
            bytes_read: open.bytes_read(),
            paths,
            raised,
            open: Mutex::new(open),
            ready: Mutex::default(),
        })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if let Some(part) = self.next_ready() {
            return self.tuple(py, part).map(Some);
        }
        py.detach(|| self.read());
        if let Some(part) = self.next_ready() {
            return self.tuple(py, part).map(Some);
        }
        let fault = lock(&self.ready).fault.take();
        match fault {
            Some(fault) => Err(self.error(py, fault)?),
            None => Ok(None),
        }
    }

    /// After a FormatError of a document of lines: go on behind the line that is at fault.
    fn skip_line(&self, py: Python<'_>) -> PyResult<()> {
        if !std::mem::take(&mut lock(&self.ready).line_at_fault) {
            return Err(PyValueError::new_err("there is no line at fault to be skipped"));
        }
        py.detach(|| lock(&self.open).document.skip_line());
        Ok(())
    }

    /// The line on which the last part ended, from 1; 0 before the first one.
    #[getter]
    fn line(&self) -> u64 {
        lock(&self.ready).line
    }

    /// Bytes read so far, compressed as they are.
    #[getter]
    fn bytes_read(&self) -> u64 {
        (self.bytes_read)()
    }

    /// Bytes in all, compressed as they are; None if that is not known.
    #[getter]
    fn size(&self) -> Option<u64> {
        self.size
    }

    fn __repr__(&self) -> String {
        format!("JsonDocument({:?})", self.name)
    }
}

impl PyJsonDocument {
    fn next_ready(&self) -> Option<Part> {
        let mut ready = lock(&self.ready);
        let part = ready.parts.pop_front()?;
        ready.line = part.line;
        Some(part)
    }

    /// Reads on until there is something to give.
    fn read(&self) {
        let mut open = lock(&self.open);
        let (mut parts, mut bytes, mut fault) = (VecDeque::new(), 0, None);
        while parts.len() < PARTS && bytes < BYTES {
            match open.document.next_part() {
                Ok(Some(part)) => {
                    bytes += part.value.bytes();
                    parts.push_back(part);
                }
                Ok(None) => break,
                Err(found) => {
                    fault = Some(found);
                    break;
                }
            }
        }
        drop(open);
        let mut ready = lock(&self.ready);
        ready.parts.append(&mut parts);
        ready.fault = ready.fault.take().or(fault);
    }

    fn tuple<'py>(&self, py: Python<'py>, part: Part) -> PyResult<Bound<'py, PyTuple>> {
        let at = PyTuple::new(py, part.at)?;
        let value = match part.value {
            Value::Text(text) => PyBytes::new(py, &text).into_any(),
            Value::Floats(values) => values.into_pyarray(py).into_any(),
            Value::Integers(values) => values.into_pyarray(py).into_any(),
            Value::RaggedFloats(values, offsets) => {
                (values.into_pyarray(py), offsets.into_pyarray(py)).into_pyobject(py)?.into_any()
            }
            Value::RaggedIntegers(values, offsets) => {
                (values.into_pyarray(py), offsets.into_pyarray(py)).into_pyobject(py)?.into_any()
            }
            Value::Again => py.None().into_bound(py),
        };
        (self.paths[part.path].bind(py), at, value).into_pyobject(py)
    }

    fn error(&self, py: Python<'_>, fault: Fault) -> PyResult<PyErr> {
        match fault {
            Fault::Text { skip, line, byte, message } => {
                lock(&self.ready).line_at_fault = self.lines;
                let message = format!("{}: line {line}, byte {byte}: {message}", self.name);
                placed(py, FormatError::new_err(message), skip, Some((line, byte)))
            }
            Fault::Io(error) if self.compressed => damaged(py, &self.name, &error),
            Fault::Io(error) => Ok(os_error(&self.name, &error)),
            Fault::Stopped => Ok(lock(&self.raised).take().unwrap_or_else(|| PyKeyboardInterrupt::new_err(()))),
        }
    }
}

/// What is raised of a compressed input that ends early or is damaged.
pub fn damaged(py: Python<'_>, name: &str, error: &io::Error) -> PyResult<PyErr> {
    let message = format!("{name}: expected the compressed input to be whole: {error}");
    placed(py, DecodeError::new_err(message), Skip::Truncated, None)
}

fn placed(py: Python<'_>, error: PyErr, skip: Skip, place: Option<(u64, u64)>) -> PyResult<PyErr> {
    let value = error.value(py);
    value.setattr("reason", skip.name())?;
    value.setattr("line", place.map(|(line, _)| line))?;
    value.setattr("byte", place.map(|(_, byte)| byte))?;
    Ok(error)
}

/// A path, or bytes under a name.
pub fn source_of(source: &Bound<'_, PyAny>, name: Option<&str>) -> PyResult<Source> {
    if let Ok(bytes) = source.cast::<PyBytes>() {
        return Ok(Source::Bytes(name.unwrap_or("bytes").to_owned(), bytes.as_bytes().to_vec()));
    }
    let path = source.py().import("os")?.call_method1("fspath", (source,))?;
    path.extract().map(Source::Path).map_err(|_| {
        let got = path.get_type();
        PyTypeError::new_err(format!("source must be a path or bytes, got {got}"))
    })
}
