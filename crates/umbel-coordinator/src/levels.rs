//! The consistency of reads and the durability of inserts.

use umbel_engine::meta::FilterRecord;
use umbel_node::failure::CallFailure;

use crate::Result;

/// Which replicas may answer a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadLevel {
    /// The leader, after a majority has confirmed it.
    Linearizable,
    /// Any replica may answer "present"; the leader answers for the other items.
    AnyReplica,
    /// The copy of the node that received the request. Only for replicated filters.
    Local,
    /// The copies of a majority of all nodes. Only for replicated filters.
    Majority,
}

/// On how many nodes an insert is durable when it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckLevel {
    /// On this node. Only for replicated filters.
    Local,
    /// On this node and one more. Only for replicated filters.
    OnePartner,
    /// On a majority of a shard's replicas, or of all nodes.
    Majority,
}

/// The level of a read of this filter: the requested one, or the filter's default.
///
/// # Errors
/// [`CallFailure::Invalid`] if the filter does not support the level.
pub(super) fn read_level(record: &FilterRecord, level: Option<ReadLevel>) -> Result<ReadLevel> {
    use ReadLevel::{AnyReplica, Linearizable, Local, Majority};
    let is_replicated = record.is_replicated();
    let own = if is_replicated { Local } else { Linearizable };
    let level = level.unwrap_or(own);
    let is_had = match level {
        Local | Majority => is_replicated,
        AnyReplica | Linearizable => !is_replicated,
    };
    is_had.then_some(level).ok_or_else(|| no_level(record))
}

/// The error for a level of reading that the filter does not support.
fn no_level(record: &FilterRecord) -> CallFailure {
    let name = record.name.as_str();
    let what = if record.is_replicated() {
        format!("filter {name:?} is replicated: it is read at local or majority")
    } else {
        format!("filter {name:?} is partitioned: it is read at linearizable or any-replica")
    };
    CallFailure::Invalid { what }
}
