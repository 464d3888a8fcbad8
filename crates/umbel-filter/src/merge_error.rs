//! Why two filters of one shape were not put together.

use thiserror::Error;

use crate::capability::InsertError;
use crate::kind::Kind;
use crate::shape::{CreateError, ShapeMismatch};

/// Why a filter was not merged. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// The filters differ in kind, hash range, size or probes. Build one of them anew with the
    /// other's shape.
    #[error(transparent)]
    Shape(#[from] ShapeMismatch),
    /// There is no room for what both hold. Keep both and ask both, build a larger one of all items, or
    /// [grow](crate::Quotient::grow) both.
    #[error(transparent)]
    Full(#[from] InsertError),
    /// There is no memory to build the union in. Free some.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The kind does not merge. Keep both filters and ask both, or build one of all items.
    #[error("{kind} filters do not merge")]
    Unsupported {
        /// The filter's kind.
        kind: Kind,
    },
}
