//! What becomes of a set after a session.

use std::collections::BTreeMap;
use umbel_reconcile_engine::{Item, ItemIndex};

/// What becomes of a record that differs on both sides, when both take what they lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnConflict {
    /// Both keep what they have.
    Report,
    /// The version of A wins.
    A,
    /// The version of B wins.
    B,
}

/// What becomes of a set.
#[derive(Debug, Default)]
pub struct Change {
    /// Items that come in.
    pub added: Vec<Item>,
    /// Items that go.
    pub removed: Vec<ItemIndex>,
    /// Items in whose place others come.
    pub replaced: BTreeMap<ItemIndex, Item>,
    /// Records that differ on both sides and stay so.
    pub conflict_count: u64,
    /// Records that both sides have in different versions, whatever becomes of them.
    pub differing_count: u64,
}

impl Change {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.replaced.is_empty()
    }
}
