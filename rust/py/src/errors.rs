//! The core's errors as Python's.

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokenpulse_core::{Error, ErrorKind};

create_exception!(tokenpulse, DecodeError, PyValueError, "Bytes that are no sketch.");
create_exception!(tokenpulse, FormatError, PyValueError, "A log in no format that is known.");

/// `ValueError`, or `DecodeError` for bytes.
#[allow(clippy::needless_pass_by_value, reason = "the last use of an error")]
pub fn to_python(error: Error) -> PyErr {
    let message = error.to_string();
    match error.kind() {
        ErrorKind::Value => PyValueError::new_err(message),
        ErrorKind::Decode => DecodeError::new_err(message),
    }
}
