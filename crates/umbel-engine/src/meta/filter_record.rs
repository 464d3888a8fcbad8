//! A filter of the catalogue, and what is being done with it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::filter_name::FilterName;
use super::principal::PrincipalName;
use super::reply::MetaError;
use super::settings::{Distribution, FilterSettings};
use crate::ids::{FilterId, Generation, ShardId};
use crate::shard::SliceSpec;

/// A filter of the catalogue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FilterRecord {
    /// Its name; while it is [`Dropping`](FilterState::Dropping), its former name.
    pub name: FilterName,
    /// Kind, sizes, hash key.
    pub settings: FilterSettings,
    /// Its incarnation, from 1; while it is being cleared, still the old one.
    pub generation: Generation,
    /// What is being done with it.
    pub state: FilterState,
    /// The principal that created it, even if that principal no longer exists.
    pub owner: Option<PrincipalName>,
    /// For a growing filter: bytes that slices may take beyond the plan, by shard.
    pub growth: BTreeMap<ShardId, u64>,
    /// When it will be dropped, in milliseconds since 1970; None for never.
    pub expires_ms: Option<u64>,
}

/// What is being done with a filter. Only [`Live`](Self::Live) filters answer queries.
///
/// ```
/// use umbel_engine::meta::FilterState;
///
/// assert_eq!(FilterState::Creating { importing: false }.to_string(), "being created");
/// assert_eq!(FilterState::Live.to_string(), "live");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FilterState {
    /// Shards are creating its slices.
    Creating {
        /// Whether [`Importing`](Self::Importing) follows.
        importing: bool,
    },
    /// Its slices take frames; it is invisible otherwise.
    Importing,
    /// It answers queries.
    Live,
    /// Shards are emptying its slices.
    Clearing {
        /// The generation that starts when all are empty.
        to: Generation,
    },
    /// Shards are dropping its slices; its name is free.
    Dropping,
    /// Shards are ending the current slice of its window.
    Rotating {
        /// The generation that starts when all have ended it.
        to: Generation,
    },
    /// It was renamed, and shards are raising its generation, to refuse requests made under the old name.
    Renaming {
        /// The generation that starts when all have raised it.
        to: Generation,
    },
}

impl FilterState {
    /// The generation to which all shards are being brought, if any.
    ///
    /// ```
    /// use umbel_engine::{Generation, meta::FilterState};
    ///
    /// assert_eq!(FilterState::Rotating { to: Generation(3) }.next_generation(), Some(Generation(3)));
    /// assert_eq!(FilterState::Live.next_generation(), None);
    /// ```
    #[must_use]
    pub const fn next_generation(self) -> Option<Generation> {
        match self {
            Self::Clearing { to } | Self::Rotating { to } | Self::Renaming { to } => Some(to),
            Self::Creating { .. } | Self::Importing | Self::Live | Self::Dropping => None,
        }
    }
}

impl fmt::Display for FilterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Creating { .. } => "being created",
            Self::Importing => "being imported",
            Self::Live => "live",
            Self::Clearing { .. } => "being cleared",
            Self::Dropping => "being dropped",
            Self::Rotating { .. } => "being rotated",
            Self::Renaming { .. } => "being renamed",
        })
    }
}

impl FilterRecord {
    /// Whether it is invisible until its import is complete.
    pub(super) const fn is_imported(&self) -> bool {
        matches!(self.state, FilterState::Creating { importing: true } | FilterState::Importing)
    }

    /// Whether every node has a complete copy of it.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.settings.distribution == Distribution::Replicated
    }

    /// Bytes that a shard's slice may take beyond the plan.
    #[must_use]
    pub fn growth_bytes(&self, shard: ShardId) -> u64 {
        self.growth.get(&shard).copied().unwrap_or(0)
    }

    /// Splits a slice's allowed growth in two halves.
    pub(super) fn split_growth(&mut self, shard: ShardId, into: ShardId) {
        if let Some(growth) = self.growth.get_mut(&shard) {
            *growth = growth.div_ceil(2);
            let half = *growth;
            self.growth.insert(into, half);
        }
    }

    /// Bytes that all its slices may take beyond the plan, counting one replica each.
    pub(super) fn growth_bytes_of_all(&self) -> u64 {
        self.growth.values().copied().fold(0, u64::saturating_add)
    }

    /// The parameters from which every shard creates its slice.
    #[must_use]
    pub fn slice_spec(&self, filter: FilterId) -> SliceSpec {
        let (shape, key) = (self.settings.shape, self.settings.key.key_name());
        SliceSpec { filter, generation: self.generation, shape, key }
    }

    pub(super) fn busy(&self) -> MetaError {
        let (name, state) = (self.name.as_str().to_owned(), self.state.to_string());
        MetaError::Busy { name, state }
    }

    /// Refuses a clearing that came too late for the generation that it was to end: of a window that is rotated by hand,
    /// a rotation may have ended it, which cleared nothing.
    pub(super) fn check_cleared(&self) -> Result<(), MetaError> {
        if !self.settings.shape.is_rotated_by_hand() {
            return Ok(());
        }
        let (name, state) =
            (self.name.as_str().to_owned(), format!("at {} already", self.generation));
        Err(MetaError::Busy { name, state })
    }

    /// Whether a request to create a filter of the same name is a retry of the one that created this
    /// filter. Keys are drawn for each request, so with SipHash no two requests are equal.
    pub(super) fn is_answer_to(&self, settings: &FilterSettings, importing: bool) -> bool {
        let was_importing = match self.state {
            FilterState::Creating { importing } => importing,
            FilterState::Importing => true,
            FilterState::Live
            | FilterState::Clearing { .. }
            | FilterState::Rotating { .. }
            | FilterState::Renaming { .. } => false,
            FilterState::Dropping => return false,
        };
        was_importing == importing && self.settings == *settings
    }
}
