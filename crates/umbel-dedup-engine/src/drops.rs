//! What came of a cell: the items that are dropped.

use super::entry::{Place, Rank};

/// Dropped items.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Drops {
    /// Where each dropped item was read, in no particular order.
    pub places: Vec<Place>,
    /// Where the item kept in its stead was read, or the dropped one itself where that is one of a reference; empty
    /// unless the job reports it.
    pub kept: Vec<Place>,
    /// How each dropped item ranks; empty unless the job reports the kept ones and keeps the best.
    pub ranks: Vec<Rank>,
    /// How many were dropped for another worker's item.
    pub cross: u64,
    /// How many were dropped for an item of a reference.
    pub reference: u64,
}

impl Drops {
    pub(super) fn with_capacity(places: usize) -> Self {
        Self { places: Vec::with_capacity(places), ..Self::default() }
    }
}
