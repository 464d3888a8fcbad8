//! What clients order about a filter by its name.

use serde::{Deserialize, Serialize};

use super::filter_name::FilterName;
use crate::ids::{FilterId, Generation};

/// A change of a filter that a client may make because of the filter's name. It is refused if the filter
/// has another name when it is applied: rights are granted on names, and were checked for this one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FilterOrder {
    /// The filter.
    pub filter: FilterId,
    /// The name by which the client named it.
    pub name: FilterName,
    /// The change.
    pub change: FilterChange,
}

/// What a [`FilterOrder`] changes. Each is the command of
/// [`MetaCommand`](super::MetaCommand) that is named with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FilterChange {
    /// `DropFilter`.
    Drop,
    /// `SetExpiry`.
    SetExpiry {
        /// Milliseconds since 1970; None for never.
        expires_ms: Option<u64>,
    },
    /// `ClearFilter`.
    Clear {
        /// The generation that ends.
        generation: Generation,
    },
    /// `RotateFilter`.
    Rotate {
        /// The generation that ends.
        generation: Generation,
    },
    /// `RenameFilter`.
    Rename {
        /// The generation that ends.
        generation: Generation,
        /// The new name.
        name: FilterName,
        /// The filter that has the new name now, which is dropped; None if there must be none.
        replaced: Option<FilterId>,
    },
    /// `ReplaceExpiry`.
    ReplaceExpiry {
        /// What was seen, in milliseconds since 1970; None for never.
        seen_ms: Option<u64>,
        /// Milliseconds since 1970; None for never.
        expires_ms: Option<u64>,
    },
    /// `TakeFilter`.
    Take {
        /// Which expiry the filter must have.
        seen: SeenExpiry,
    },
}

/// Which time of expiry a filter must have, so that [`TakeFilter`](super::MetaCommand::TakeFilter) drops it.
///
/// ```
/// use umbel_engine::meta::SeenExpiry;
///
/// assert!(SeenExpiry::Any.is_still(Some(5)));
/// assert!(SeenExpiry::At(None).is_still(None) && !SeenExpiry::At(None).is_still(Some(5)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SeenExpiry {
    /// Any, or none.
    Any,
    /// The one that was seen, in milliseconds since 1970; None for never.
    At(Option<u64>),
}

impl SeenExpiry {
    /// Whether a filter that has this expiry now is as it was seen.
    #[must_use]
    pub fn is_still(self, expires_ms: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::At(seen_ms) => seen_ms == expires_ms,
        }
    }
}
