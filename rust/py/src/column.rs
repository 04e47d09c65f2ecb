//! Columns of numbers as Python has them: any 1-D buffer of four types without a copy, or a list or tuple.
#![allow(unsafe_code, reason = "a buffer is read through its pointer; see each block")]

use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList, PyTuple};
use tokenpulse_core::sketch::{Dense, Number, Rejection, Sketch, Unit};

/// Elements of a strided or misaligned buffer that are gathered at a time.
const GATHERED: usize = 4096;
/// From so many values on (about a millisecond of work) other Python threads may run meanwhile.
const DETACH_FROM: usize = 1 << 19;

/// One number of Python's, as it will be recorded.
#[derive(Clone, Copy)]
pub enum Scalar {
    Float(f64),
    Int(i64),
    /// An integer that does not fit 64 bits.
    Huge(Rejection),
}

impl Scalar {
    /// A float or an integer, or what can be taken for one.
    #[inline]
    pub fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(float) = value.cast::<PyFloat>() {
            return Ok(Self::Float(float.value()));
        }
        Self::other(value)
    }

    #[cold]
    fn other(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = value.py();
        let integer = if value.is_instance_of::<PyInt>() {
            value.clone()
        } else if let Ok(integer) = py.import("operator")?.call_method1("index", (value,)) {
            integer
        } else if value.hasattr("__float__")? {
            return Ok(Self::Float(value.extract()?));
        } else {
            let got = value.get_type().name()?;
            return Err(PyTypeError::new_err(format!("value must be a float or an int, got {got}")));
        };
        Ok(match integer.extract::<i64>() {
            Ok(int) => Self::Int(int),
            Err(_) if integer.lt(0)? => Self::Huge(Rejection::Negative),
            Err(_) => Self::Huge(Rejection::Range),
        })
    }

    #[inline]
    pub fn ns(self, unit: Unit) -> Result<i64, Rejection> {
        match self {
            Self::Float(value) => value.ns(unit),
            Self::Int(value) => value.ns(unit),
            Self::Huge(reason) => Err(reason),
        }
    }
}

/// A column, checked: nothing about it can fail any more.
pub enum Column {
    Floats(Vec<f64>),
    Scalars(Vec<Scalar>),
    Buffer(PyUntypedBuffer, Type),
}

#[derive(Clone, Copy)]
pub enum Type {
    F64,
    F32,
    I64,
    U64,
}

const EXPECTED: &str = "a 1-D buffer of float64, float32, int64 or uint64, a list or a tuple";

impl Column {
    pub fn from_python(values: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(list) = values.cast::<PyList>()
            && let Some(floats) = plain_floats(list)
        {
            return Ok(Self::Floats(floats));
        }
        if values.is_instance_of::<PyList>() || values.is_instance_of::<PyTuple>() {
            let scalars: PyResult<_> = values.try_iter()?.map(|value| Scalar::from_python(&value?)).collect();
            return Ok(Self::Scalars(scalars?));
        }
        let Ok(buffer) = PyUntypedBuffer::get(values) else {
            let got = values.get_type().name()?;
            return Err(PyTypeError::new_err(format!("values must be {EXPECTED}, got {got}")));
        };
        if buffer.dimensions() != 1 {
            let got = buffer.dimensions();
            return Err(PyValueError::new_err(format!("values must be one-dimensional, got {got} dimensions")));
        }
        let format = buffer.format().to_bytes();
        let swapped = matches!(format, [b'>' | b'!', _]) && cfg!(target_endian = "little");
        let element = if swapped { ElementType::Unknown } else { ElementType::from_format(buffer.format()) };
        let ty = match element {
            ElementType::Float { bytes: 8 } => Type::F64,
            ElementType::Float { bytes: 4 } => Type::F32,
            ElementType::SignedInteger { bytes: 8 } => Type::I64,
            ElementType::UnsignedInteger { bytes: 8 } => Type::U64,
            _ => {
                let got = buffer.format().to_string_lossy();
                return Err(PyTypeError::new_err(format!("values must be {EXPECTED}, got elements of type {got:?}")));
            }
        };
        Ok(Self::Buffer(buffer, ty))
    }

    fn len(&self) -> usize {
        match self {
            Self::Floats(floats) => floats.len(),
            Self::Scalars(scalars) => scalars.len(),
            Self::Buffer(buffer, _) => buffer.item_count(),
        }
    }

    /// The values in ns, and how many are refused, by reason.
    pub fn ns(&self, unit: Unit) -> (Vec<i64>, [u64; 4]) {
        let (mut column, mut refused) = (Vec::with_capacity(self.len()), [0; 4]);
        let mut take = |value: Result<i64, Rejection>| match value {
            Ok(ns) => column.push(ns),
            Err(reason) => refused[reason as usize] += 1,
        };
        match self {
            Self::Floats(floats) => floats.iter().for_each(|float| take(float.ns(unit))),
            Self::Scalars(scalars) => scalars.iter().for_each(|scalar| take(scalar.ns(unit))),
            Self::Buffer(buffer, ty) => {
                let view = View::of(buffer);
                match ty {
                    Type::F64 => view.each::<f64>(|value| take(value.ns(unit))),
                    Type::F32 => view.each::<f32>(|value| take(value.ns(unit))),
                    Type::I64 => view.each::<i64>(|value| take(value.ns(unit))),
                    Type::U64 => view.each::<u64>(|value| take(value.ns(unit))),
                }
            }
        }
        (column, refused)
    }

    /// Hands the column over to `record`, on which other Python threads need not wait if it is long.
    pub fn record(self, py: Python<'_>, unit: Unit, mut with: impl FnMut(&mut dyn FnMut(&mut Sketch<Dense>)) + Send) {
        match self {
            Self::Floats(floats) => with(&mut |sketch| sketch.record_many(&floats, unit)),
            Self::Scalars(scalars) => with(&mut |sketch| {
                for scalar in &scalars {
                    match scalar.ns(unit) {
                        Ok(ns) => sketch.record_ns(ns),
                        Err(reason) => sketch.reject(reason, 1),
                    }
                }
            }),
            Self::Buffer(buffer, ty) => {
                let view = View::of(&buffer);
                let mut run = || {
                    with(&mut |sketch| match ty {
                        Type::F64 => view.record::<f64>(sketch, unit),
                        Type::F32 => view.record::<f32>(sketch, unit),
                        Type::I64 => view.record::<i64>(sketch, unit),
                        Type::U64 => view.record::<u64>(sketch, unit),
                    });
                };
                if view.len >= DETACH_FROM {
                    py.detach(run);
                } else {
                    run();
                }
                buffer.release(py);
            }
        }
    }
}

/// The elements of a list of floats; none where one is something else.
fn plain_floats(list: &Bound<'_, PyList>) -> Option<Vec<f64>> {
    let mut floats = Vec::with_capacity(list.len());
    for index in 0..list.len() {
        // SAFETY: the interpreter is held. The reference is borrowed from the list, and nothing that is done with it
        // runs Python code that could take it out meanwhile; out of range it is null, which leaves an error to clear.
        let float = unsafe {
            let item = ffi::PyList_GetItem(list.as_ptr(), index as ffi::Py_ssize_t);
            if item.is_null() {
                ffi::PyErr_Clear();
                return None;
            }
            if ffi::PyFloat_CheckExact(item) == 0 {
                return None;
            }
            ffi::PyFloat_AsDouble(item)
        };
        floats.push(float);
    }
    Some(floats)
}

/// The elements of a buffer.
#[derive(Clone, Copy)]
struct View {
    start: *const u8,
    len: usize,
    stride: isize,
}

// SAFETY: the pointer is only read, and the buffer that it belongs to outlives the view: `Column::record` holds it.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    fn of(buffer: &PyUntypedBuffer) -> Self {
        Self { start: buffer.buf_ptr().cast(), len: buffer.item_count(), stride: buffer.strides()[0] }
    }

    fn each<T: Number>(&self, mut then: impl FnMut(T)) {
        for index in 0..self.len {
            // SAFETY: element `index` lies `index * stride` bytes from the start, by the buffer protocol; the read
            // needs no alignment.
            then(unsafe { self.start.offset(index as isize * self.stride).cast::<T>().read_unaligned() });
        }
    }

    fn record<T: Number>(&self, sketch: &mut Sketch<Dense>, unit: Unit) {
        if self.len == 0 {
            return;
        }
        if self.stride == size_of::<T>() as isize && self.start.cast::<T>().is_aligned() {
            // SAFETY: the exporter of the buffer promises `len` elements of this type (its format was checked), one
            // after another and aligned (just checked), that stay while the buffer is held. NumPy and array do not
            // move or free them meanwhile.
            let values = unsafe { std::slice::from_raw_parts(self.start.cast::<T>(), self.len) };
            sketch.record_many(values, unit);
            return;
        }
        let mut gathered: Vec<T> = Vec::with_capacity(GATHERED);
        self.each::<T>(|value| {
            gathered.push(value);
            if gathered.len() == GATHERED {
                sketch.record_many(&gathered, unit);
                gathered.clear();
            }
        });
        sketch.record_many(&gathered, unit);
    }
}
