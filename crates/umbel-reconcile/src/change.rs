//! The change of a set after a session.

use std::collections::BTreeMap;
use umbel_reconcile_engine::{Item, ItemIndex};

/// The change of a set.
#[derive(Debug, Default)]
pub struct Change {
    /// Items to add.
    pub added: Vec<Item>,
    /// Items to remove.
    pub removed: Vec<ItemIndex>,
    /// Items to replace, with their replacements.
    pub replaced: BTreeMap<ItemIndex, Item>,
    /// Records that differ on both sides and are left so.
    pub conflict_count: u64,
    /// Records of which both sides have different versions, whether or not they are replaced.
    pub differing_count: u64,
}

impl Change {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.replaced.is_empty()
    }
}
