//! Quotas: how many filters, and how much memory of theirs, a principal and the cluster may have; what
//! a principal may ask a second. Rates are only kept here: nodes, which have clocks, go by them.

use serde::{Deserialize, Serialize};

/// How much of everything somebody may have; None is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Quota {
    /// Filters.
    pub filter_count: Option<u64>,
    /// Bytes that its filters are planned to take on all nodes together.
    pub memory_bytes: Option<u64>,
    /// What it may ask; of the cluster's quota without limits.
    pub rates: Rates,
}

/// How much a principal may ask a second, over all nodes; None is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Calls.
    pub calls: Option<u64>,
    /// Items of inserts, questions and removals.
    pub items: Option<u64>,
    /// Bytes of those items.
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
    /// This one where it says something, the other one elsewhere.
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

/// What somebody has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Filters, those that are being created or dropped too.
    pub filter_count: u64,
    /// Bytes that they are planned to take on all nodes together.
    pub memory_bytes: u64,
}

impl Usage {
    /// With one filter more.
    pub(super) fn and(self, memory_bytes: u64) -> Self {
        Self {
            filter_count: self.filter_count.saturating_add(1),
            memory_bytes: self.memory_bytes.saturating_add(memory_bytes),
        }
    }
}
