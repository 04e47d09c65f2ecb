//! The exact rows of our own logs as NumPy columns, the same that `ColumnReducer` takes.

use std::collections::HashMap;

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tokenpulse_core::bounds;
use tokenpulse_core::tally::{Counter, Row, Rows, Settings};
use tokenpulse_io::{IN_FLIGHT, Reading, Reduction, Source, read_rows as read};

use crate::errors::to_python;
use crate::reduction::{counts, reading, set_inputs, sources_of};

/// What stands in a column where there is nothing.
const ABSENT: i64 = i64::MIN;

/// Read logs by path into rows; `-` is standard input.
#[pyfunction]
#[pyo3(signature = (paths, ttl_ns, max_tokens, progress, *, threads = 0, heads = None))]
#[allow(clippy::needless_pass_by_value, reason = "as Python hands them over")]
pub fn read_rows<'py>(
    py: Python<'py>,
    paths: Vec<String>,
    ttl_ns: i64,
    max_tokens: u64,
    progress: Option<Py<PyAny>>,
    threads: usize,
    heads: Option<HashMap<String, Vec<u8>>>,
) -> PyResult<Bound<'py, PyDict>> {
    let reading_as = Reading { threads, ..Reading::default() };
    rows_dict(py, sources_of(paths, heads), ttl_ns, max_tokens, reading_as, progress.as_ref())
}

/// Read logs already in memory into rows, each log with its name.
#[pyfunction]
#[pyo3(signature = (named, ttl_ns, max_tokens, *, threads = 0))]
pub fn read_rows_bytes<'py>(
    py: Python<'py>,
    named: Vec<(String, Vec<u8>)>,
    ttl_ns: i64,
    max_tokens: u64,
    threads: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let sources = named.into_iter().map(|(name, bytes)| Source::Bytes(name, bytes)).collect();
    rows_dict(py, sources, ttl_ns, max_tokens, Reading { threads, ..Reading::default() }, None)
}

fn rows_dict<'py>(
    py: Python<'py>,
    sources: Vec<Source>,
    ttl_ns: i64,
    max_tokens: u64,
    reading_as: Reading,
    progress: Option<&Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let ttl_ns = bounds::LIMIT_NS.check(ttl_ns).map_err(to_python)?;
    let settings = Settings { ttl_ns, ..Settings::default() };
    let reduction: Reduction =
        reading(py, progress, |progress| read(sources, &settings, reading_as, max_tokens, progress))?;
    let dict = PyDict::new(py);
    set_inputs(&dict, &reduction.inputs)?;
    dict.set_item("newest_ns", reduction.newest)?;
    let rejected = Counter::ALL.into_iter().map(|counter| (counter.name(), reduction.run.counter(counter)));
    dict.set_item("rejected", counts(py, rejected)?)?;
    dict.set_item("clamped", reduction.run.clamped())?;
    let none = Rows::new(0);
    set_columns(&dict, reduction.run.rows().unwrap_or(&none))?;
    Ok(dict)
}

fn set_columns(dict: &Bound<'_, PyDict>, rows: &Rows) -> PyResult<()> {
    let py = dict.py();
    let all = rows.rows();
    let column = |of: &dyn Fn(&Row) -> Option<i64>| -> Bound<'_, PyArray1<i64>> {
        all.iter().map(|row| of(row).unwrap_or(ABSENT)).collect::<Vec<_>>().into_pyarray(py)
    };
    dict.set_item("ids", PyList::new(py, all.iter().map(|row| &row.id))?)?;
    dict.set_item("arrive_ns", column(&|row| Some(row.arrive)))?;
    dict.set_item("schedule_ns", column(&|row| row.schedule))?;
    dict.set_item("prefill_ns", column(&|row| row.prefill))?;
    dict.set_item("end_ns", column(&|row| row.end.map(|end| end.at)))?;
    dict.set_item("prompt_tokens", column(&|row| Some(row.prompt_tokens as i64)))?;
    dict.set_item("output_tokens", column(&|row| row.untimed.map(|tokens| tokens.n as i64)))?;
    dict.set_item("first_token_ns", column(&|row| row.untimed.and_then(|tokens| tokens.first)))?;
    dict.set_item("last_token_ns", column(&|row| row.untimed.and_then(|tokens| tokens.last)))?;
    set_lists(dict, ["token_ns", "token_offsets"], all, |row| &row.times)?;
    set_lists(dict, ["preempt_ns", "preempt_offsets"], all, |row| &row.preempts)?;
    set_lists(dict, ["resume_ns", "resume_offsets"], all, |row| &row.resumes)?;
    let mut tokens: Vec<i64> = Vec::with_capacity(rows.emissions() as usize);
    for row in all {
        if row.counts.is_empty() {
            tokens.resize(tokens.len() + row.times.len(), 1);
        } else {
            tokens.extend(row.counts.iter().map(|&k| i64::from(k)));
        }
    }
    dict.set_item("n", tokens.into_pyarray(py))?;
    let status = |row: &Row| row.end.map_or(IN_FLIGHT, |end| end.status as u8);
    dict.set_item("status", all.iter().map(status).collect::<Vec<u8>>().into_pyarray(py))?;
    let degraded = |row: &Row| row.end.is_some_and(|end| end.degraded);
    dict.set_item("degraded", all.iter().map(degraded).collect::<Vec<bool>>().into_pyarray(py))?;
    let labels = PyDict::new(py);
    for label in rows.labels() {
        let mut codes = label.codes.clone();
        codes.resize(all.len(), -1);
        labels.set_item(&label.name, (codes.into_pyarray(py), &label.values))?;
    }
    dict.set_item("labels", labels)
}

/// Lists of times: all of them, and where each row's begin and the last one's end.
fn set_lists(
    dict: &Bound<'_, PyDict>,
    [values_name, offsets_name]: [&str; 2],
    rows: &[Row],
    of: impl Fn(&Row) -> &Vec<i64>,
) -> PyResult<()> {
    let mut values: Vec<i64> = Vec::with_capacity(rows.iter().map(|row| of(row).len()).sum());
    let mut offsets: Vec<i64> = Vec::with_capacity(rows.len() + 1);
    offsets.push(0);
    for row in rows {
        values.extend_from_slice(of(row));
        offsets.push(values.len() as i64);
    }
    dict.set_item(values_name, values.into_pyarray(dict.py()))?;
    dict.set_item(offsets_name, offsets.into_pyarray(dict.py()))
}
