//! `replay`: a log through a meter, told moment by moment.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokenpulse_core::meter::Meter;
use tokenpulse_core::strata::Key;
use tokenpulse_io::{Failure, Machine, Reading, Replayed, Replaying, Source};
use tokenpulse_io::{replay as read, replay_columns as read_columns};

use crate::columns::with_requests;
use crate::errors::to_python;
use crate::meter::PyMeter;
use crate::reduction::{none_of_ours, os_error, set_inputs, tell};

/// Put a log through a meter; `-` is standard input. `on_pane` is called with each multiple of `every_ns`, before the
/// first line at or past it is applied, and with the newest time at the end.
#[pyfunction]
#[pyo3(signature = (meter, path, *, every_ns, by, on_pane, progress, threads = 0, head = None))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python hands them over")]
pub fn replay<'py>(
    meter: &Bound<'py, PyMeter>,
    path: String,
    every_ns: i64,
    by: Vec<String>,
    on_pane: Py<PyAny>,
    progress: Option<Py<PyAny>>,
    threads: usize,
    head: Option<Vec<u8>>,
) -> PyResult<Bound<'py, PyDict>> {
    let reading = Reading { threads, ..Reading::default() };
    let source = match head {
        Some(head) => Source::Begun { path, head },
        None => Source::Path(path),
    };
    put(meter, source, (every_ns, by, reading), &on_pane, progress.as_ref())
}

/// The same for a log already in memory, with the name it is reported under.
#[pyfunction]
#[pyo3(signature = (meter, name, content, *, every_ns, by, on_pane, threads = 0, plain = false, chunk = 0))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python hands them over")]
pub fn replay_bytes<'py>(
    meter: &Bound<'py, PyMeter>,
    name: String,
    content: Vec<u8>,
    every_ns: i64,
    by: Vec<String>,
    on_pane: Py<PyAny>,
    threads: usize,
    plain: bool,
    chunk: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let reading = Reading { threads, plain, chunk, ..Reading::default() };
    put(meter, Source::Bytes(name, content), (every_ns, by, reading), &on_pane, None)
}

/// Put requests in columns, as a ColumnReducer takes them, through a meter, in the order of their times.
#[pyfunction]
#[pyo3(signature = (meter, name, format, columns, *, every_ns, by, on_pane))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "as Python hands them over")]
pub fn replay_columns<'py>(
    meter: &Bound<'py, PyMeter>,
    name: &str,
    format: &str,
    columns: &Bound<'py, PyDict>,
    every_ns: i64,
    by: Vec<String>,
    on_pane: Py<PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    with_requests(columns, |columns| {
        through(meter, (every_ns, by, Reading::default()), &on_pane, None, |core, settings, progress, on_pane| {
            read_columns((name, format), columns, core, settings, || progress(0, 0), on_pane)
        })
    })
}

fn put<'py>(
    meter: &Bound<'py, PyMeter>,
    source: Source,
    settings: (i64, Vec<String>, Reading),
    on_pane: &Py<PyAny>,
    progress: Option<&Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    through(meter, settings, on_pane, progress, |core, settings, progress, on_pane| {
        read(source, core, settings, progress, on_pane)
    })
}

/// Reads without the interpreter's lock, but for telling of moments and of how far the reading has come.
fn through<'py>(
    meter: &Bound<'py, PyMeter>,
    (every_ns, by, reading): (i64, Vec<String>, Reading),
    on_pane: &Py<PyAny>,
    progress: Option<&Py<PyAny>>,
    read: impl FnOnce(
        &Meter,
        &Replaying,
        &mut dyn FnMut(u64, u64) -> bool,
        &mut (dyn FnMut(i64) -> bool + Send),
    ) -> Result<Replayed, Failure>
    + Send,
) -> PyResult<Bound<'py, PyDict>> {
    let py = meter.py();
    let settings = Replaying { every_ns, by: by.iter().map(|name| Key::from_name(name)).collect(), reading };
    meter.get().writable()?;
    let core = meter.get().core();
    let (mut raised, mut refused) = (None, None);
    let replayed = py.detach(|| {
        let mut progress = |done, total| tell(progress, done, total).map_err(|error| raised = Some(error)).is_ok();
        let mut on_pane =
            |t| Python::attach(|py| on_pane.call1(py, (t,)).map_err(|error| refused = Some(error)).is_ok());
        read(core, &settings, &mut progress, &mut on_pane)
    });
    match replayed {
        Ok(replayed) => replayed_dict(py, replayed),
        Err(Failure::Io(name, error)) => Err(os_error(&name, &error)),
        Err(Failure::Format(name, found)) => Err(none_of_ours(&name, &found)),
        Err(Failure::Settings(error)) => Err(to_python(error)),
        Err(Failure::Stopped) => Err(refused.or(raised).unwrap_or_else(|| PyRuntimeError::new_err("stopped"))),
    }
}

fn replayed_dict(py: Python<'_>, replayed: Replayed) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    set_inputs(&dict, &[replayed.input])?;
    let (first, newest) = replayed.times.unzip();
    dict.set_item("first_ns", first)?;
    dict.set_item("newest_ns", newest)?;
    dict.set_item("machine", machine_dict(py, &replayed.machine)?)?;
    Ok(dict)
}

fn machine_dict<'py>(py: Python<'py>, machine: &Machine) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let rates =
        [("peak_flops", machine.peak_flops), ("bandwidth_bytes_per_second", machine.bandwidth_bytes_per_second)];
    for (name, rate) in rates {
        if let Some(rate) = rate {
            dict.set_item(name, rate)?;
        }
    }
    for (name, n) in [("kv_block_tokens", machine.kv_block_tokens), ("gpus", machine.gpus)] {
        if let Some(n) = n {
            dict.set_item(name, n)?;
        }
    }
    Ok(dict)
}
