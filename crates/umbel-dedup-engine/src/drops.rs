//! The result of a cell: the records that are dropped.

use super::entry::{Rank, RecordId};

/// The dropped records of one worker in one cell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Drops {
    /// The dropped records, in no particular order.
    pub record_ids: Vec<RecordId>,
    /// For each of them the record that was kept for it, or its own id if it was dropped for a reference; empty unless the
    /// job reports kept records.
    pub kept: Vec<RecordId>,
    /// The rank of each of them; empty unless the job reports kept records and keeps the best.
    pub ranks: Vec<Rank>,
    /// How many were dropped for another worker's record.
    pub cross: u64,
    /// How many were dropped for a reference.
    pub reference: u64,
}

impl Drops {
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { record_ids: Vec::with_capacity(count), ..Self::default() }
    }
}
