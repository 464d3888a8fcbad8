//! A group as its Raft sees it, for observers.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use openraft_rt::WatchReceiver;
use umbel_engine::{GroupId, NodeId};
use umbel_storage::observer::EntryId;
use umbel_storage::types::entry_id;

use super::{Group, leader_of};

/// A group on a node, as its Raft currently sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupReport {
    /// The group.
    pub group: GroupId,
    /// The term.
    pub term: u64,
    /// Whether the node believes that it is the leader.
    pub is_leader: bool,
    /// Whether it hands leadership over: it takes no entries until another leader is elected.
    pub is_handing_over: bool,
    /// The node that this node believes to be the leader.
    pub leader: Option<NodeId>,
    /// Voters of the newest configuration that it knows: one set, or two.
    pub voters: Vec<BTreeSet<NodeId>>,
    /// Learners of that configuration.
    pub learners: BTreeSet<NodeId>,
    /// Index of the last entry of its log.
    pub last: Option<u64>,
    /// Last entry that it applied.
    pub applied: Option<EntryId>,
    /// Last entry of its newest snapshot.
    pub snapshot: Option<EntryId>,
    /// Last entry that it purged.
    pub purged: Option<EntryId>,
    /// Why the group stopped on this node, if it did.
    pub failure: Option<String>,
}

impl Group {
    /// The current state of the group's Raft, for reports.
    pub fn report(&self) -> GroupReport {
        let failure = self.failure();
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership();
        let is_leader = metrics.state.is_leader();
        GroupReport {
            group: self.id,
            term: metrics.current_term,
            is_leader,
            is_handing_over: is_leader && self.is_handing_over.load(Ordering::Relaxed),
            leader: leader_of(&metrics),
            voters: members.get_joint_config().clone(),
            learners: members.learner_ids().collect(),
            last: metrics.last_log_index,
            applied: metrics.last_applied.map(entry_id),
            snapshot: metrics.snapshot.map(entry_id),
            purged: metrics.purged.map(entry_id),
            failure,
        }
    }
}
