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
    Take,
}
