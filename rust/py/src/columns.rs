//! `tokenpulse._core.ColumnReducer`: NumPy columns to a reduction, without a copy and without the interpreter's lock.
#![allow(unsafe_code, reason = "a column of booleans is read as bytes; see the block")]

use std::sync::{Mutex, PoisonError};

use numpy::{Element, PyArray1, PyArrayMethods, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use tokenpulse_io::{ColumnRun, Emissions, EventColumns, Ids, Labels, Lists, RequestColumns, Whole};

use crate::errors::to_python;
use crate::reduction::{Limits, reduction_dict, settings};

/// A column that Python handed over, kept alive as long as it is read.
type Held<'py, T> = PyReadonlyArray1<'py, T>;

/// What a column must be.
fn wrong(name: &str, expected: &str, got: &Bound<'_, PyAny>) -> PyErr {
    let got = match got.cast::<PyUntypedArray>() {
        Ok(array) => format!("{} dimensions of {}", array.ndim(), array.dtype()),
        Err(_) => got.get_type().name().map_or_else(|_| "something else".into(), |name| name.to_string()),
    };
    PyTypeError::new_err(format!("{name} must be a one-dimensional NumPy array of {expected}, got {got}"))
}

/// An array, if it is of this type.
fn held<'py, T: Element>(name: &str, value: &Bound<'py, PyAny>) -> Option<PyResult<Held<'py, T>>> {
    let array = value.cast::<PyArray1<T>>().ok()?;
    if !array.is_c_contiguous() || !(array.data() as usize).is_multiple_of(align_of::<T>()) {
        return Some(Err(PyValueError::new_err(format!("{name} must be contiguous and aligned in memory"))));
    }
    Some(array.try_readonly().map_err(|error| PyValueError::new_err(format!("{name}: {error}"))))
}

/// A column of a dict, if it is there.
fn item<'py>(columns: &Bound<'py, PyDict>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    Ok(columns.get_item(name)?.filter(|value| !value.is_none()))
}

fn column<'py, T: Element>(columns: &Bound<'py, PyDict>, name: &str, expected: &str) -> PyResult<Option<Held<'py, T>>> {
    let Some(value) = item(columns, name)? else { return Ok(None) };
    held(name, &value).unwrap_or_else(|| Err(wrong(name, expected, &value))).map(Some)
}

fn times<'py>(columns: &Bound<'py, PyDict>, name: &str) -> PyResult<Option<Held<'py, i64>>> {
    column(columns, name, "int64")
}

fn needed<T>(name: &str, column: Option<T>) -> PyResult<T> {
    column.ok_or_else(|| PyValueError::new_err(format!("columns must have {name}")))
}

fn slice<'a, T: Element>(held: &'a Held<'_, T>) -> &'a [T] {
    held.as_slice().unwrap_or_default()
}

fn slice_of<'a, T: Element>(held: Option<&'a Held<'_, T>>) -> Option<&'a [T]> {
    held.map(slice)
}

/// A column of booleans as bytes: what was viewed as one may hold others than 0 and 1.
fn bytes_of<'a>(held: Option<&'a Held<'_, bool>>) -> Option<&'a [u8]> {
    held.map(|held| {
        // SAFETY: the array is contiguous, lives as long as the borrow, and has one byte for each of its elements.
        unsafe { std::slice::from_raw_parts(held.data().cast::<u8>().cast_const(), held.len()) }
    })
}

/// Integers of one of several widths.
enum HeldWhole<'py> {
    I64(Held<'py, i64>),
    I32(Held<'py, i32>),
    U32(Held<'py, u32>),
}

impl<'py> HeldWhole<'py> {
    fn new(name: &str, value: &Bound<'py, PyAny>, unsigned: bool) -> PyResult<Self> {
        if let Some(held) = held(name, value) {
            return held.map(Self::I64);
        }
        if let Some(held) = held(name, value) {
            return held.map(Self::I32);
        }
        match held(name, value) {
            Some(held) if unsigned => held.map(Self::U32),
            _ => Err(wrong(name, if unsigned { "int64, int32 or uint32" } else { "int64 or int32" }, value)),
        }
    }

    fn column(columns: &Bound<'py, PyDict>, name: &str, unsigned: bool) -> PyResult<Option<Self>> {
        item(columns, name)?.map(|value| Self::new(name, &value, unsigned)).transpose()
    }

    fn get(&self) -> Whole<'_> {
        match self {
            Self::I64(held) => Whole::I64(slice(held)),
            Self::I32(held) => Whole::I32(slice(held)),
            Self::U32(held) => Whole::U32(slice(held)),
        }
    }
}

/// Lists of times of different length.
struct HeldLists<'py>(Held<'py, i64>, HeldWhole<'py>);

impl<'py> HeldLists<'py> {
    fn column(columns: &Bound<'py, PyDict>, name: &str, offsets: &str) -> PyResult<Option<Self>> {
        let Some(values) = times(columns, name)? else { return Ok(None) };
        Ok(Some(Self(values, needed(offsets, HeldWhole::column(columns, offsets, false)?)?)))
    }

    fn get(&self) -> Lists<'_> {
        Lists { values: slice(&self.0), offsets: self.1.get() }
    }
}

/// The ids of rows.
enum HeldIds<'py> {
    Numbers,
    Texts(Vec<Bound<'py, PyString>>),
    Packed(Held<'py, u8>, HeldWhole<'py>),
}

const IDS: &str = "ids must be a list of str, or a pair of arrays: the texts as uint8 and their offsets";

impl<'py> HeldIds<'py> {
    fn column(columns: &Bound<'py, PyDict>) -> PyResult<Self> {
        let Some(value) = item(columns, "ids")? else { return Ok(Self::Numbers) };
        if let Ok(list) = value.cast::<PyList>() {
            let texts = list.iter().map(|text| text.cast_into().map_err(|_| PyTypeError::new_err(IDS)));
            return Ok(Self::Texts(texts.collect::<PyResult<_>>()?));
        }
        let (bytes, offsets): (Bound<'py, PyAny>, Bound<'py, PyAny>) =
            value.extract().map_err(|_| PyTypeError::new_err(IDS))?;
        let bytes = held("ids", &bytes).unwrap_or_else(|| Err(wrong("ids", "uint8", &bytes)))?;
        Ok(Self::Packed(bytes, HeldWhole::new("ids", &offsets, false)?))
    }

    fn get(&self) -> PyResult<Ids<'_>> {
        Ok(match self {
            Self::Numbers => Ids::Numbers,
            Self::Texts(texts) => Ids::Texts(texts.iter().map(|text| text.to_str()).collect::<PyResult<_>>()?),
            Self::Packed(bytes, offsets) => Ids::Packed(slice(bytes), offsets.get()),
        })
    }
}

/// Labels: name, codes, values.
struct HeldLabels<'py>(Vec<(String, Held<'py, i32>, Vec<String>)>);

impl<'py> HeldLabels<'py> {
    fn column(columns: &Bound<'py, PyDict>) -> PyResult<Self> {
        let mut labels = Vec::new();
        if let Some(value) = item(columns, "labels")? {
            let expected = "labels must be a dict of names to pairs: the codes as int32 and a list of str";
            let dict = value.cast::<PyDict>().map_err(|_| PyTypeError::new_err(expected))?;
            for (name, pair) in dict {
                let name: String = name.extract().map_err(|_| PyTypeError::new_err(expected))?;
                let (codes, values): (Bound<'py, PyAny>, Vec<String>) =
                    pair.extract().map_err(|_| PyTypeError::new_err(expected))?;
                let column = format!("codes of label {name}");
                let codes = held(&column, &codes).unwrap_or_else(|| Err(wrong(&column, "int32", &codes)))?;
                labels.push((name, codes, values));
            }
        }
        Ok(Self(labels))
    }

    fn get(&self) -> Vec<Labels<'_>> {
        self.0
            .iter()
            .map(|(name, codes, values)| Labels { name: name.clone(), codes: slice(codes), values: values.clone() })
            .collect()
    }
}

/// Does something with requests in columns, which are read where they are.
pub fn with_requests<T>(
    columns: &Bound<'_, PyDict>,
    take: impl FnOnce(&RequestColumns<'_>) -> PyResult<T>,
) -> PyResult<T> {
    let arrive = needed("arrive_ns", times(columns, "arrive_ns")?)?;
    let absolute = HeldLists::column(columns, "token_ns", "token_offsets")?;
    let relative = HeldLists::column(columns, "dt_ns", "token_offsets")?;
    if absolute.is_some() && relative.is_some() {
        return Err(PyValueError::new_err("columns must have token_ns or dt_ns, not both"));
    }
    let counts = HeldWhole::column(columns, "n", true)?;
    let schedule = times(columns, "schedule_ns")?;
    let prefill = times(columns, "prefill_ns")?;
    let end = times(columns, "end_ns")?;
    let first_token = times(columns, "first_token_ns")?;
    let last_token = times(columns, "last_token_ns")?;
    let output_tokens = times(columns, "output_tokens")?;
    let prompt_tokens = times(columns, "prompt_tokens")?;
    let preempt = HeldLists::column(columns, "preempt_ns", "preempt_offsets")?;
    let resume = HeldLists::column(columns, "resume_ns", "resume_offsets")?;
    let status = column(columns, "status", "uint8")?;
    let degraded = column(columns, "degraded", "bool")?;
    let ids = HeldIds::column(columns)?;
    let labels = HeldLabels::column(columns)?;
    let emissions = absolute.as_ref().or(relative.as_ref()).map(|lists| Emissions {
        times: lists.get(),
        relative: relative.is_some(),
        counts: counts.as_ref().map(HeldWhole::get),
    });
    let columns = RequestColumns {
        arrive_ns: slice(&arrive),
        emissions,
        schedule_ns: slice_of(schedule.as_ref()),
        prefill_ns: slice_of(prefill.as_ref()),
        end_ns: slice_of(end.as_ref()),
        first_token_ns: slice_of(first_token.as_ref()),
        last_token_ns: slice_of(last_token.as_ref()),
        output_tokens: slice_of(output_tokens.as_ref()),
        prompt_tokens: slice_of(prompt_tokens.as_ref()),
        preempt_ns: preempt.as_ref().map(HeldLists::get),
        resume_ns: resume.as_ref().map(HeldLists::get),
        status: slice_of(status.as_ref()),
        degraded: bytes_of(degraded.as_ref()),
        ids: ids.get()?,
        labels: labels.get(),
    };
    take(&columns)
}

#[pyclass(name = "ColumnReducer", module = "tokenpulse._core", frozen)]
pub struct PyColumnReducer(Mutex<Option<ColumnRun>>);

impl PyColumnReducer {
    fn with<T>(&self, apply: impl FnOnce(&mut ColumnRun) -> tokenpulse_core::Result<T>) -> PyResult<T> {
        let mut run = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let run = run.as_mut().ok_or_else(finished)?;
        apply(run).map_err(to_python)
    }
}

fn finished() -> PyErr {
    PyValueError::new_err("the reducer has finished")
}

#[pymethods]
impl PyColumnReducer {
    #[new]
    #[pyo3(signature = (slos, itl_rule, by, timeline_ns, timeline_bins, ttl_ns, from_ns, to_ns))]
    #[allow(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python hands them over")]
    fn new(
        slos: Vec<Limits>,
        itl_rule: &str,
        by: Vec<String>,
        timeline_ns: Option<i64>,
        timeline_bins: i64,
        ttl_ns: i64,
        from_ns: Option<i128>,
        to_ns: Option<i128>,
    ) -> PyResult<Self> {
        let settings = settings(slos, itl_rule, &by, (timeline_ns, timeline_bins), ttl_ns, (from_ns, to_ns))?;
        Ok(Self(Mutex::new(Some(ColumnRun::new(settings).map_err(to_python)?))))
    }

    fn requests(&self, py: Python<'_>, name: &str, format: &str, columns: &Bound<'_, PyDict>) -> PyResult<()> {
        with_requests(columns, |columns| py.detach(|| self.with(|run| run.requests(name, format, columns))))
    }

    fn events(&self, py: Python<'_>, name: &str, format: &str, columns: &Bound<'_, PyDict>) -> PyResult<()> {
        let t = needed("t_ns", times(columns, "t_ns")?)?;
        let ev = needed("ev", column(columns, "ev", "uint8")?)?;
        let k = HeldWhole::column(columns, "k", true)?;
        let status = column(columns, "status", "uint8")?;
        let degraded = column(columns, "degraded", "bool")?;
        let prompt_tokens = times(columns, "prompt_tokens")?;
        let ids = HeldIds::column(columns)?;
        let labels = HeldLabels::column(columns)?;
        let columns = EventColumns {
            t_ns: slice(&t),
            ev: slice(&ev),
            k: k.as_ref().map(HeldWhole::get),
            status: slice_of(status.as_ref()),
            degraded: bytes_of(degraded.as_ref()),
            prompt_tokens: slice_of(prompt_tokens.as_ref()),
            ids: ids.get()?,
            labels: labels.get(),
        };
        py.detach(|| self.with(|run| run.events(name, format, &columns)))
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let run = self.0.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(finished)?;
        let reduction = py.detach(|| run.finish()).map_err(to_python)?;
        reduction_dict(py, &reduction)
    }
}
