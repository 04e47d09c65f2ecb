//! `PlainBytes`: the bytes of a file as they were before they were compressed.

use std::io::{self, ErrorKind, Read};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::document::{damaged, source_of};
use crate::reduction::{os_error, tell};

const BLOCK: usize = 1 << 20;

#[doc = include_str!("../doc/plain_bytes.md")]
#[pyclass(name = "PlainBytes", module = "tokenpulse._core", frozen)]
pub struct PyPlainBytes {
    name: String,
    size: Option<u64>,
    compressed: bool,
    bytes_read: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Taken only while the interpreter is not held.
    stream: Mutex<Stream>,
}

struct Stream {
    bytes: Box<dyn Read + Send>,
    /// What ended the stream, until it has been told.
    error: Option<io::Error>,
    ended: bool,
}

enum Block {
    Bytes(Vec<u8>),
    End,
    Error(io::Error),
    Raised(PyErr),
}

impl Stream {
    fn next(&mut self) -> Block {
        let mut block = Vec::new();
        while !self.ended && block.len() < BLOCK {
            let filled = block.len();
            block.resize(BLOCK, 0);
            let read = self.bytes.read(&mut block[filled..]);
            block.truncate(filled + read.as_ref().map_or(0, |&n| n));
            match read {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    if let Err(raised) = tell(None, 0, 0) {
                        return Block::Raised(raised);
                    }
                }
                Err(error) => (self.error, self.ended) = (Some(error), true),
            }
        }
        if block.is_empty() { self.error.take().map_or(Block::End, Block::Error) } else { Block::Bytes(block) }
    }
}

#[pymethods]
impl PyPlainBytes {
    #[new]
    #[pyo3(signature = (source, *, name = None))]
    fn new(py: Python<'_>, source: &Bound<'_, PyAny>, name: Option<String>) -> PyResult<Self> {
        let source = source_of(source, name.as_deref())?;
        let name = name.unwrap_or_else(|| source.name().to_owned());
        let size = source.size();
        let (opened, meter) = py.detach(|| source.open()).map_err(|error| os_error(&name, &error))?;
        let stream = Mutex::new(Stream { bytes: opened.bytes, error: None, ended: false });
        let bytes_read = Box::new(move || meter.bytes());
        Ok(Self { name, size, compressed: opened.compressed, bytes_read, stream })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        match py.detach(|| self.stream.lock().unwrap_or_else(PoisonError::into_inner).next()) {
            Block::Bytes(block) => Ok(Some(PyBytes::new(py, &block))),
            Block::End => Ok(None),
            Block::Error(error) if self.compressed => Err(damaged(py, &self.name, &error)?),
            Block::Error(error) => Err(os_error(&self.name, &error)),
            Block::Raised(raised) => Err(raised),
        }
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
        format!("PlainBytes({:?})", self.name)
    }
}
