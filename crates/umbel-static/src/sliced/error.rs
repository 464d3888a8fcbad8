//! What can be wrong with sets that an index is built of.

use thiserror::Error;
use umbel_filter::CreateError;

use super::shape::{NAME_BYTES_MAX, SET_COUNT_MAX, SLICED_PROBES_MAX};
use crate::limits::FORM_BYTES_MAX;

/// Why there is no index of such sets. Nothing was built.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum SlicedError {
    /// Name a number of probes within the limits.
    #[error("{probe_count} probes, expected 1 to {SLICED_PROBES_MAX}")]
    Probes {
        /// The number that was asked for.
        probe_count: u32,
    },
    /// Name a rate between 0 and 1.
    #[error("false-positive rate {rate}, expected one above 0 and below 1")]
    Rate {
        /// The rate that was asked for.
        rate: f64,
    },
    /// The text that says what an item is has too many bytes. Shorten it.
    #[error("{form_bytes} bytes say what an item is, expected at most {FORM_BYTES_MAX}")]
    Form {
        /// Bytes of the text.
        form_bytes: usize,
    },
    /// The name of a set has too many bytes. Shorten it.
    #[error("a name of {name_bytes} bytes, expected at most {NAME_BYTES_MAX}")]
    Name {
        /// Bytes of the name.
        name_bytes: usize,
    },
    /// More items than a column has at this rate. Name a higher rate, or cut the set in two.
    #[error("{item_count} items in {name}, more than a set has at this rate")]
    Items {
        /// Name of the set.
        name: String,
        /// Number of its items.
        item_count: u64,
    },
    /// More sets than an index has. Build several.
    #[error("{set_count} sets, expected at most {SET_COUNT_MAX}")]
    Sets {
        /// Number of sets.
        set_count: usize,
    },
    /// No filter for a set was made: no memory.
    #[error(transparent)]
    Create(#[from] CreateError),
}
