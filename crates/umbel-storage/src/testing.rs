//! Entries of a log, for tests of what reads and writes logs, and a disk with faults for the tests here. Compiled only for
//! tests and with the feature `testing`.

use openraft::EntryPayload;
use openraft::vote::leader_id_adv::LeaderId;
use umbel_engine::shard::ShardCommand;
use umbel_engine::{FilterId, NodeId};

#[cfg(test)]
mod fault_disk;

#[cfg(test)]
pub(crate) use fault_disk::{FaultDisk, Faults};

use crate::types::{LogCommand, LogEntry, LogId};

/// The id of an entry that node 1 appended as the leader of `term`.
#[must_use]
pub fn id(term: u64, index: u64) -> LogId {
    LogId { leader_id: LeaderId { term, node_id: NodeId(1) }, index }
}

/// An entry whose bytes differ from those of other entries with other log ids.
#[must_use]
pub fn entry(term: u64, index: u64) -> LogEntry {
    let command = ShardCommand::DropSlice(FilterId(term * 1000 + index));
    LogEntry { log_id: id(term, index), payload: EntryPayload::Normal(LogCommand::Shard(command)) }
}
