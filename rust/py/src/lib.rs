//! The Python surface of tokenpulse on one screen: every name of `tokenpulse._core`. Converts and names, never computes.

#![allow(missing_docs, reason = "documented where Python sees it")]
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes, reason = "these comments are Python's docstrings")]
#![allow(clippy::elidable_lifetime_names, reason = "the interpreter's lifetime is named throughout")]

mod blocks;
mod column;
mod columns;
mod document;
mod errors;
mod id_map;
mod kv;
mod kv_log;
mod meter;
mod plain_bytes;
mod reduction;
mod replay;
mod rows;
mod sketch;
mod sliding;
mod snapshot;
mod whole;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::blocks::{PyMeterReader, read_blocks};
    #[pymodule_export]
    use super::columns::PyColumnReducer;
    #[pymodule_export]
    use super::document::PyJsonDocument;
    #[pymodule_export]
    use super::errors::{DecodeError, FormatError};
    #[pymodule_export]
    use super::id_map::PyIdMap;
    #[pymodule_export]
    use super::kv::PyKVTracker;
    #[pymodule_export]
    use super::kv_log::{PyKVTrace, read_kv};
    #[pymodule_export]
    use super::meter::PyMeter;
    #[pymodule_export]
    use super::plain_bytes::PyPlainBytes;
    #[pymodule_export]
    use super::reduction::{reduce_bytes, reduce_paths};
    #[pymodule_export]
    use super::replay::{replay, replay_bytes, replay_columns};
    #[pymodule_export]
    use super::rows::{read_rows, read_rows_bytes};
    #[pymodule_export]
    use super::sketch::PySketch;
    #[pymodule_export]
    use super::sliding::PySlidingSketch;
    #[pymodule_export]
    use super::snapshot::PySnapshot;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
