//! A filter from its creation to its end, as the logs have it.

use std::collections::BTreeSet;

use umbel_engine::FilterId;
use umbel_engine::meta::{ClusterVersion, FilterRecord};

use crate::oracle::bits::NEVER_US;

/// A filter from its creation on; a later filter of the same name is another incarnation.
#[derive(Clone, Debug)]
pub(crate) struct Incarnation {
    /// As it was created.
    pub(crate) record: FilterRecord,
    /// The cluster's version then: every node that knows the filter knows a version that is not lower.
    pub(crate) version: ClusterVersion,
    /// Simulated microseconds at which it was created.
    pub(crate) created_at_us: u64,
    /// When the last shard dropped its slice of it, or never.
    pub(crate) gone_at_us: u64,
    /// When it was dropped or one of its slices was emptied, ascending.
    pub(crate) erased_at_us: Vec<u64>,
    /// Filters that were merged into it.
    pub(crate) merged: BTreeSet<FilterId>,
    /// The last time at which it was to expire, in milliseconds since 1970.
    pub(crate) expires_ms: Option<u64>,
    /// Index of the entry of the meta group's log that has set this time, or none.
    pub(crate) expiry_index: u64,
    /// Whether it was dropped because this time had come.
    pub(crate) has_expired: bool,
}

impl Incarnation {
    /// A filter that has just been created.
    pub(super) const fn new(record: FilterRecord, version: ClusterVersion, at_us: u64) -> Self {
        Self {
            record,
            version,
            created_at_us: at_us,
            gone_at_us: NEVER_US,
            erased_at_us: Vec::new(),
            merged: BTreeSet::new(),
            expires_ms: None,
            expiry_index: 0,
            has_expired: false,
        }
    }

    /// After this entry of the meta group's log it expires at this time.
    pub(super) fn expires_after(&mut self, index: u64, expires_ms: Option<u64>) {
        if self.expires_ms != expires_ms {
            (self.expires_ms, self.expiry_index) = (expires_ms, index);
        }
    }
}
