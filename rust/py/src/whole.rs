//! Whole numbers as Python has them: one, a list or a tuple of them, or any 1-D buffer of integers.
//!
//! An int64 array is read where it lies; the rest is gathered, up to 512 numbers without allocating.
#![allow(unsafe_code, reason = "a buffer is read through its pointer; see each block")]

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use numpy::{PyArray1, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyInt, PyList, PyTuple};
use tokenpulse_core::bounds;

use crate::errors::to_python;

/// Numbers that are gathered on the stack.
const FEW: usize = 512;

const EXPECTED: &str = "an int, a list or a tuple of ints, or a 1-D buffer of integers";

/// What becomes of an integer that is no `i64`.
pub trait Beyond {
    fn from_u64(value: u64) -> i64;
    fn from_python(value: &Bound<'_, PyAny>, name: &str) -> PyResult<i64>;
}

/// Quantities: it becomes the nearest one.
pub struct Nearest;

impl Beyond for Nearest {
    #[inline(always)]
    fn from_u64(value: u64) -> i64 {
        i64::try_from(value).unwrap_or(i64::MAX)
    }

    fn from_python(value: &Bound<'_, PyAny>, _: &str) -> PyResult<i64> {
        Ok(if value.lt(0)? { i64::MIN } else { i64::MAX })
    }
}

/// Hashes: it becomes the one of the same 64 bits.
pub struct Bits;

impl Beyond for Bits {
    #[inline(always)]
    fn from_u64(value: u64) -> i64 {
        value.cast_signed()
    }

    fn from_python(value: &Bound<'_, PyAny>, name: &str) -> PyResult<i64> {
        match value.extract::<u64>() {
            Ok(bits) => Ok(bits.cast_signed()),
            Err(_) => Err(PyValueError::new_err(format!("{name} must be of 64 bits, got {value}"))),
        }
    }
}

/// Room for quantities.
pub type Scratch = Room<Nearest>;
/// Room for hashes.
pub type Hashes = Room<Bits>;

/// Room for numbers that cannot be read where they lie.
pub struct Room<B> {
    few: [MaybeUninit<i64>; FEW],
    many: Vec<i64>,
    beyond: PhantomData<B>,
}

impl Hashes {
    /// The hashes in `values`, which errors call `name`.
    #[inline]
    pub fn read_bits<'a>(&'a mut self, values: &'a Bound<'_, PyAny>, name: &str) -> PyResult<&'a [u64]> {
        if let Ok(array) = values.cast::<PyArray1<u64>>()
            && array.is_c_contiguous()
            && array.data().is_aligned()
        {
            // SAFETY: as in `read`.
            return Ok(unsafe { array.as_slice() }.unwrap_or_default());
        }
        let ints = self.read(values, name)?;
        // SAFETY: integers of one size, of which any bits are good.
        Ok(unsafe { std::slice::from_raw_parts(ints.as_ptr().cast::<u64>(), ints.len()) })
    }
}

impl<B: Beyond> Room<B> {
    #[inline(always)]
    pub const fn new() -> Self {
        Self { few: [MaybeUninit::uninit(); FEW], many: Vec::new(), beyond: PhantomData }
    }

    /// The numbers in `values`, which errors call `name`. What does not fit 64 bits becomes what `B` says.
    #[inline]
    pub fn read<'a>(&'a mut self, values: &'a Bound<'_, PyAny>, name: &str) -> PyResult<&'a [i64]> {
        if let Ok(array) = values.cast::<PyArray1<i64>>()
            && array.is_c_contiguous()
            && array.data().is_aligned()
        {
            // SAFETY: elements of that type, one after another and aligned (just checked). The caller holds the array,
            // and the interpreter as long as the slice lives: no other thread can change it. The one Python code that
            // may run meanwhile is an `__index__` of an element of another argument; as anywhere in NumPy, that must not
            // free the memory of an array that is in use (`resize(refcheck=False)`).
            return Ok(unsafe { array.as_slice() }.unwrap_or_default());
        }
        self.gather(values, name)
    }

    #[inline(never)]
    fn gather(&mut self, values: &Bound<'_, PyAny>, name: &str) -> PyResult<&[i64]> {
        if values.is_instance_of::<PyInt>() {
            return self.fill(1, |_| element::<B>(values, name, None));
        }
        if let Ok(list) = values.cast::<PyList>() {
            return self.fill(list.len(), |index| match plain(list, index) {
                Some(int) => Ok(int),
                None => element::<B>(&list.get_item(index)?, name, Some(index)),
            });
        }
        if let Ok(tuple) = values.cast::<PyTuple>() {
            return self.fill(tuple.len(), |index| {
                let item = tuple.get_borrowed_item(index)?;
                element::<B>(&item, name, Some(index))
            });
        }
        // Bytes are numbers to Python, but whoever passes them here means text.
        let textual = values.is_instance_of::<PyBytes>() || values.is_instance_of::<PyByteArray>();
        match PyUntypedBuffer::get(values) {
            Ok(buffer) if buffer.dimensions() > 0 && !textual => self.copy(&buffer, name),
            _ => self.fill(1, |_| element::<B>(values, name, None)),
        }
    }

    fn copy(&mut self, buffer: &PyUntypedBuffer, name: &str) -> PyResult<&[i64]> {
        if buffer.dimensions() != 1 {
            let got = buffer.dimensions();
            return Err(PyValueError::new_err(format!("{name} must be one-dimensional, got {got} dimensions")));
        }
        let swapped = matches!(buffer.format().to_bytes(), [b'>' | b'!', _]) && cfg!(target_endian = "little");
        let element = if swapped { ElementType::Unknown } else { ElementType::from_format(buffer.format()) };
        match element {
            ElementType::SignedInteger { bytes: 8 } => self.copy_as::<i64>(buffer, i64::from),
            ElementType::SignedInteger { bytes: 4 } => self.copy_as::<i32>(buffer, i64::from),
            ElementType::SignedInteger { bytes: 2 } => self.copy_as::<i16>(buffer, i64::from),
            ElementType::SignedInteger { bytes: 1 } => self.copy_as::<i8>(buffer, i64::from),
            ElementType::UnsignedInteger { bytes: 8 } => self.copy_as::<u64>(buffer, B::from_u64),
            ElementType::UnsignedInteger { bytes: 4 } => self.copy_as::<u32>(buffer, i64::from),
            ElementType::UnsignedInteger { bytes: 2 } => self.copy_as::<u16>(buffer, i64::from),
            ElementType::UnsignedInteger { bytes: 1 } => self.copy_as::<u8>(buffer, i64::from),
            _ => {
                let got = buffer.format().to_string_lossy();
                Err(PyTypeError::new_err(format!("{name} must be {EXPECTED}, got elements of type {got:?}")))
            }
        }
    }

    fn copy_as<T: Copy>(&mut self, buffer: &PyUntypedBuffer, whole: impl Fn(T) -> i64) -> PyResult<&[i64]> {
        let start = buffer.buf_ptr().cast::<u8>();
        let stride = buffer.strides()[0];
        self.fill(buffer.item_count(), |index| {
            // SAFETY: element `index` lies `index * stride` bytes from the start, by the buffer protocol, and is of
            // this type (its format was checked); the read needs no alignment. The buffer is held by the caller.
            let element = unsafe { start.offset(index as isize * stride).cast::<T>().read_unaligned() };
            Ok(whole(element))
        })
    }

    #[inline]
    pub fn fill(&mut self, n: usize, mut each: impl FnMut(usize) -> PyResult<i64>) -> PyResult<&[i64]> {
        let Some(few) = self.few.get_mut(..n) else {
            self.many = (0..n).map(each).collect::<PyResult<_>>()?;
            return Ok(&self.many);
        };
        for (index, slot) in few.iter_mut().enumerate() {
            slot.write(each(index)?);
        }
        // SAFETY: each of these `n` was just written.
        Ok(unsafe { std::slice::from_raw_parts(few.as_ptr().cast::<i64>(), n) })
    }
}

/// An element of a list that is an int and no subclass's, and fits: a third of the time that counting references takes.
#[inline]
fn plain(list: &Bound<'_, PyList>, index: usize) -> Option<i64> {
    // SAFETY: the interpreter is held. The reference is borrowed from the list, and nothing that is done with it runs
    // Python code that could take it out meanwhile; out of range it is null, which leaves an error to clear.
    unsafe {
        let item = ffi::PyList_GetItem(list.as_ptr(), index as ffi::Py_ssize_t);
        if item.is_null() || ffi::PyLong_CheckExact(item) == 0 {
            ffi::PyErr_Clear();
            return None;
        }
        let int = ffi::PyLong_AsLong(item);
        // -1 is also what an int beyond the range gives.
        if int == -1 {
            ffi::PyErr_Clear();
            return None;
        }
        Some(int)
    }
}

#[inline]
fn element<B: Beyond>(value: &Bound<'_, PyAny>, name: &str, position: Option<usize>) -> PyResult<i64> {
    match value.extract::<i64>() {
        Ok(int) => Ok(int),
        Err(error) => unusual::<B>(value, &error, name, position),
    }
}

/// An integer beyond 64 bits, or none at all.
#[cold]
fn unusual<B: Beyond>(value: &Bound<'_, PyAny>, error: &PyErr, name: &str, position: Option<usize>) -> PyResult<i64> {
    if error.is_instance_of::<PyOverflowError>(value.py()) {
        return B::from_python(value, name);
    }
    let got = value.get_type().name()?;
    Err(PyTypeError::new_err(match position {
        None => format!("{name} must be {EXPECTED}, got {got}"),
        Some(position) => format!("{name} must be ints, got {got} at position {position}"),
    }))
}

/// Whether it is one number, and no column.
pub fn one(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyInt>() || (value.cast::<PyUntypedArray>().is_err() && value.extract::<i64>().is_ok())
}

/// One whole number; what does not fit 64 bits becomes the nearest that does.
#[inline]
pub fn whole(value: &Bound<'_, PyAny>, name: &str) -> PyResult<i64> {
    match value.extract::<i64>() {
        Ok(int) => Ok(int),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            unusual::<Nearest>(value, &error, name, None)
        }
        Err(_) => Err(PyTypeError::new_err(format!("{name} must be an int, got {}", value.get_type().name()?))),
    }
}

/// A time in nanoseconds.
#[inline]
pub fn time(t: &Bound<'_, PyAny>) -> PyResult<i64> {
    match t.extract::<i64>() {
        Ok(ns) if ns >= 0 => Ok(ns),
        _ => no_time(t),
    }
}

/// A time in nanoseconds, which may be negative: that is counted where it goes.
#[inline]
pub fn any_time(t: &Bound<'_, PyAny>) -> PyResult<i64> {
    match t.extract::<i64>() {
        Ok(ns) => Ok(ns),
        Err(_) if t.is_instance_of::<PyInt>() && t.lt(0)? => Ok(i64::MIN),
        Err(_) => no_time(t),
    }
}

#[cold]
fn no_time(t: &Bound<'_, PyAny>) -> PyResult<i64> {
    match t.extract::<i64>() {
        Err(error) if !error.is_instance_of::<PyOverflowError>(t.py()) => {
            Err(PyTypeError::new_err(format!("t must be an int of nanoseconds, got {}", t.get_type().name()?)))
        }
        _ => Err(to_python(bounds::TIME_NS.error(t))),
    }
}
