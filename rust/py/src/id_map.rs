//! `IdMap`: a meter for engines that know their requests by ids. The ids of requests in flight, and their handles.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use tokenpulse_core::meter::Meter;

use crate::meter::{PyMeter, status_from_name, unequal};
use crate::whole::{Scratch, whole};

/// The handle of an id that is not known.
const UNKNOWN: i64 = -1;

#[doc = include_str!("../doc/id_map.md")]
#[pyclass(name = "IdMap", module = "tokenpulse", frozen)]
pub struct PyIdMap {
    meter: Py<PyMeter>,
    handles: Py<PyDict>,
    /// So many ids are held before those of lost requests are looked for.
    room: usize,
}

impl PyIdMap {
    fn handle(&self, id: &Bound<'_, PyAny>) -> PyResult<i64> {
        match self.handles.bind(id.py()).get_item(id)? {
            Some(handle) => handle.extract(),
            None => Ok(UNKNOWN),
        }
    }

    /// The handles of ids: of a list or a tuple, or of the one that anything else is.
    fn handles<'a>(&self, ids: &Bound<'_, PyAny>, scratch: &'a mut Scratch) -> PyResult<&'a [i64]> {
        if let Ok(list) = ids.cast::<PyList>() {
            scratch.fill(list.len(), |index| self.handle(&list.get_item(index)?))
        } else if let Ok(tuple) = ids.cast::<PyTuple>() {
            scratch.fill(tuple.len(), |index| self.handle(&tuple.get_item(index)?))
        } else {
            scratch.fill(1, |_| self.handle(ids))
        }
    }

    fn each(
        &self,
        t: &Bound<'_, PyAny>,
        ids: &Bound<'_, PyAny>,
        take: impl FnOnce(&Meter, i64, &[i64]),
    ) -> PyResult<()> {
        let meter = self.meter.get();
        let t = meter.time(t)?;
        take(meter.core(), t, self.handles(ids, &mut Scratch::new())?);
        Ok(())
    }

    /// Forgets an id, unless its end was refused and the request lives on.
    fn forget(&self, id: &Bound<'_, PyAny>) -> PyResult<()> {
        let handle = self.handle(id)?;
        if handle != UNKNOWN && !self.meter.get().core().is_in_flight(handle) {
            self.handles.bind(id.py()).del_item(id)?;
        }
        Ok(())
    }

    /// Forgets the ids of requests that are no longer in flight.
    fn prune(&self, py: Python<'_>) -> PyResult<()> {
        let ids = self.handles.bind(py).keys();
        ids.iter().try_for_each(|id| self.forget(&id))
    }
}

#[pymethods]
impl PyIdMap {
    #[new]
    #[pyo3(signature = (meter, /))]
    fn new(py: Python<'_>, meter: Py<PyMeter>) -> Self {
        let settings = meter.get().core().settings();
        let room = 2 * settings.max_requests as usize * settings.shards as usize;
        Self { meter, handles: PyDict::new(py).unbind(), room }
    }

    /// A request reached the server: its handle, or -1 where it is refused.
    #[pyo3(signature = (t, id, prompt_tokens = None, cached_tokens = None, cls = None))]
    fn arrive(
        &self,
        t: &Bound<'_, PyAny>,
        id: &Bound<'_, PyAny>,
        prompt_tokens: Option<&Bound<'_, PyAny>>,
        cached_tokens: Option<&Bound<'_, PyAny>>,
        cls: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<i64> {
        if id.is_instance_of::<PyList>() || id.is_instance_of::<PyTuple>() {
            // As ids of the other calls they would be taken apart.
            return Err(PyTypeError::new_err(format!("id must not be a {}", id.get_type().name()?)));
        }
        let meter = self.meter.get();
        let t = meter.time(t)?;
        let tokens = |value: Option<&Bound<'_, PyAny>>, name| value.map_or(Ok(0), |value| whole(value, name));
        let prompt_tokens = tokens(prompt_tokens, "prompt_tokens")?;
        let cached_tokens = tokens(cached_tokens, "cached_tokens")?;
        let class = meter.class(cls)?;
        let handles = self.handles.bind(id.py());
        let known = self.handle(id)?;
        if known != UNKNOWN && !meter.core().arrive_again(t, known) {
            return Ok(UNKNOWN);
        }
        let handle = meter.core().arrive(t, prompt_tokens, cached_tokens, class);
        if handle >= 0 {
            handles.set_item(id, handle)?;
            if handles.len() > self.room {
                self.prune(id.py())?;
            }
        }
        Ok(handle)
    }

    /// Requests were put into a running batch for the first time.
    #[pyo3(signature = (t, ids))]
    fn schedule(&self, t: &Bound<'_, PyAny>, ids: &Bound<'_, PyAny>) -> PyResult<()> {
        self.each(t, ids, Meter::schedule)
    }

    /// The computation of requests' prompts began.
    #[pyo3(signature = (t, ids))]
    fn prefill(&self, t: &Bound<'_, PyAny>, ids: &Bound<'_, PyAny>) -> PyResult<()> {
        self.each(t, ids, Meter::prefill)
    }

    /// An engine step: each request emitted one token, or as many as counts says.
    #[pyo3(signature = (t, ids, counts = None))]
    fn step(&self, t: &Bound<'_, PyAny>, ids: &Bound<'_, PyAny>, counts: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let meter = self.meter.get();
        let t = meter.time(t)?;
        let mut scratch = Scratch::new();
        let handles = self.handles(ids, &mut scratch)?;
        let mut scratch = Scratch::new();
        let counts = counts.map(|counts| scratch.read(counts, "counts")).transpose()?;
        match counts {
            Some(counts) if counts.len() != handles.len() => Err(unequal("counts", handles.len(), counts.len())),
            _ => {
                meter.core().step(t, handles, counts);
                Ok(())
            }
        }
    }

    /// Requests lost their place in the running batch.
    #[pyo3(signature = (t, ids))]
    fn preempt(&self, t: &Bound<'_, PyAny>, ids: &Bound<'_, PyAny>) -> PyResult<()> {
        self.each(t, ids, Meter::preempt)
    }

    /// Requests have their place again.
    #[pyo3(signature = (t, ids))]
    fn resume(&self, t: &Bound<'_, PyAny>, ids: &Bound<'_, PyAny>) -> PyResult<()> {
        self.each(t, ids, Meter::resume)
    }

    /// Requests ended; their ids may come again.
    #[pyo3(signature = (t, ids, status, degraded = false))]
    fn end(&self, t: &Bound<'_, PyAny>, ids: &Bound<'_, PyAny>, status: &str, degraded: bool) -> PyResult<()> {
        let status = status_from_name(status)?;
        self.each(t, ids, |meter, t, handles| meter.end(t, handles, status, degraded))?;
        if let Ok(list) = ids.cast::<PyList>() {
            list.iter().try_for_each(|id| self.forget(&id))
        } else if let Ok(tuple) = ids.cast::<PyTuple>() {
            tuple.iter().try_for_each(|id| self.forget(&id))
        } else {
            self.forget(ids)
        }
    }

    /// The handle of an id, or -1 where it is not known.
    #[pyo3(name = "handle", signature = (id, /))]
    fn handle_of(&self, id: &Bound<'_, PyAny>) -> PyResult<i64> {
        self.handle(id)
    }

    /// The meter behind.
    #[getter]
    fn meter(&self, py: Python<'_>) -> Py<PyMeter> {
        self.meter.clone_ref(py)
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.handles.bind(py).len()
    }

    fn __contains__(&self, id: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.handles.bind(id.py()).contains(id)
    }
}
