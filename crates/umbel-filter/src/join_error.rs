//! Why two neighbouring filters were not joined.

use thiserror::Error;

use crate::kind::Kind;
use crate::range::HashRange;
use crate::shape::{CreateError, ShapeMismatch};

/// Why there is no filter of two filters' ranges. Nothing was changed: a join only reads.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum FilterJoinError {
    /// Name the filter of the range that begins where the lower one's ends, and the lower one first.
    #[error(
        "hashes {} to {} do not begin where hashes {} to {} end",
        upper.start(), upper.last(), lower.start(), lower.last()
    )]
    Ranges {
        /// Range of the filter that was to be the lower one.
        lower: HashRange,
        /// Range of the one that was to be the upper.
        upper: HashRange,
    },
    /// The filters differ in more than the range. Keep both and ask both, or build one of them anew with the
    /// other's shape.
    #[error(transparent)]
    Shape(#[from] ShapeMismatch),
    /// The block that the border divides was filled from both sides and has no room for both. Keep both filters, and
    /// join when items of it were removed (cuckoo, quotient) or have ended (window), or grow both before (quotient).
    #[error("the block of hash {border} has no room for what both {kind} filters have in it")]
    Full {
        /// The filters' kind.
        kind: Kind,
        /// The hash that the upper filter begins with.
        border: u64,
    },
    /// The kind is whole in one place: take the one that is there.
    #[error("{kind} filters are not joined by hash range")]
    Unsupported {
        /// The filters' kind.
        kind: Kind,
    },
    /// Free memory, or keep both filters.
    #[error(transparent)]
    Create(#[from] CreateError),
}
