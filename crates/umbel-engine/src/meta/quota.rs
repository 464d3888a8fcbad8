//! Quotas: how many filters, and how much memory for them, a principal and the cluster may have, and
//! how many requests per second a principal may send. Rates are only stored here; nodes, which have
//! clocks, enforce them.

use serde::{Deserialize, Serialize};

/// Limits of a principal or of the cluster; None is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Quota {
    /// Number of filters.
    pub filter_count: Option<u64>,
    /// Bytes that the filters are planned to take on all nodes together.
    pub memory_bytes: Option<u64>,
    /// Request rates; always unlimited in the cluster's quota.
    pub rates: Rates,
}

/// What a principal may send per second, over all nodes; None is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Calls per second.
    pub calls: Option<u64>,
    /// Items of inserts, queries and removals per second.
    pub items: Option<u64>,
    /// Bytes of those items per second.
    pub bytes: Option<u64>,
}

impl Rates {
    /// The limits as an array: calls, items, bytes.
    #[must_use]
    pub const fn limits(&self) -> [Option<u64>; 3] {
        [self.calls, self.items, self.bytes]
    }
}

impl Quota {
    /// The limits of `self`, with those of `other` where `self` has none.
    ///
    /// ```
    /// use umbel_engine::meta::Quota;
    /// let old = Quota { filter_count: Some(3), memory_bytes: Some(9), ..Quota::default() };
    /// let change = Quota { filter_count: Some(4), ..Quota::default() };
    /// assert_eq!(change.or(old), Quota { filter_count: Some(4), ..old });
    /// ```
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            filter_count: self.filter_count.or(other.filter_count),
            memory_bytes: self.memory_bytes.or(other.memory_bytes),
            rates: Rates {
                calls: self.rates.calls.or(other.rates.calls),
                items: self.rates.items.or(other.rates.items),
                bytes: self.rates.bytes.or(other.rates.bytes),
            },
        }
    }
}

/// What a principal or the cluster uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Number of filters, including those being created or dropped.
    pub filter_count: u64,
    /// Bytes that they are planned to take on all nodes together.
    pub memory_bytes: u64,
}

impl Usage {
    /// The usage with one more filter.
    pub(super) fn and(self, memory_bytes: u64) -> Self {
        Self {
            filter_count: self.filter_count.saturating_add(1),
            memory_bytes: self.memory_bytes.saturating_add(memory_bytes),
        }
    }
}
