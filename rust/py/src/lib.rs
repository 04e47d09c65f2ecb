//! The Python surface of tokenpulse on one screen: every name of `tokenpulse._core`. Converts and names, never computes.

#![allow(missing_docs, reason = "documented where Python sees it")]
#![allow(clippy::doc_markdown, reason = "these comments are Python's docstrings")]
#![allow(clippy::elidable_lifetime_names, reason = "the interpreter's lifetime is named throughout")]

mod column;
mod errors;
mod reduction;
mod sketch;
mod sliding;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::errors::{DecodeError, FormatError};
    #[pymodule_export]
    use super::reduction::{reduce_bytes, reduce_paths};
    #[pymodule_export]
    use super::sketch::PySketch;
    #[pymodule_export]
    use super::sliding::PySlidingSketch;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
