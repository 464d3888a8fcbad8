//! What other replicas have confirmed to this node: the memory of a replica whose disk lost data.
//!
//! A replica that starts asks what is known of it (`recall`). After that, responses to earlier calls do
//! not count any more. So every confirmation that counts was either reported to the replica when it
//! started, or is on its disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use umbel_engine::{GroupId, NodeId};
use umbel_ports::locked;
use umbel_storage::types::{LogId, Vote};

/// Confirmations of all other nodes.
#[derive(Default)]
pub struct Witness {
    nodes: Mutex<BTreeMap<NodeId, NodeRecord>>,
}

/// Confirmations of one node.
#[derive(Default)]
struct NodeRecord {
    /// How often the node has asked what is known of it.
    recall_count: u64,
    groups: BTreeMap<GroupId, Confirmed>,
}

/// What a node's replica of a group confirmed to this node's replica.
#[derive(Default)]
struct Confirmed {
    /// The last entry that it ever confirmed.
    last: Option<LogId>,
    /// The vote with which this node led at the last confirmation.
    vote: Option<Vote>,
    /// The last entry that it confirmed under that vote. It does not truncate any of those for another
    /// leader before it refuses this one.
    of_vote: Option<LogId>,
    /// The last entry of whose loss it was notified.
    notified: Option<LogId>,
}

/// State of the confirmations before a replica is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    recall_count: u64,
    of_vote: Option<LogId>,
}

impl Ticket {
    /// The last entry that the replica had confirmed under the caller's vote, if it now lacks
    /// `lacking`, which is not after that entry.
    pub(crate) fn lost(&self, lacking: Option<LogId>) -> Option<LogId> {
        self.of_vote.filter(|_| lacking.is_some() && lacking <= self.of_vote)
    }
}

/// The node has restarted since it was called: the response is from a replica that no longer exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} has started since it was called")]
pub(crate) struct Restarted(NodeId);

impl Witness {
    /// The ticket for a call to a replica by a leader with this vote.
    pub(crate) fn ticket(&self, node: NodeId, group: GroupId, vote: Vote) -> Ticket {
        let mut nodes = locked(&self.nodes);
        let record = nodes.entry(node).or_default();
        let of_vote = record
            .groups
            .get(&group)
            .filter(|confirmed| confirmed.vote == Some(vote))
            .and_then(|confirmed| confirmed.of_vote);
        Ticket { recall_count: record.recall_count, of_vote }
    }

    /// Records that a replica confirmed all entries up to `last`.
    ///
    /// # Errors
    /// If its node has restarted since the ticket was taken. Nothing may be counted then.
    pub(crate) fn confirmed(
        &self,
        node: NodeId,
        group: GroupId,
        (ticket, vote): (Ticket, Vote),
        last: Option<LogId>,
    ) -> Result<(), Restarted> {
        let mut nodes = locked(&self.nodes);
        let record = nodes.entry(node).or_default();
        if record.recall_count != ticket.recall_count {
            return Err(Restarted(node));
        }
        let confirmed = record.groups.entry(group).or_default();
        if confirmed.vote.is_none_or(|before| before < vote) {
            (confirmed.vote, confirmed.of_vote) = (Some(vote), None);
        }
        confirmed.of_vote = confirmed.of_vote.max(last);
        confirmed.last = confirmed.last.max(last);
        if last >= confirmed.notified {
            confirmed.notified = None;
        }
        Ok(())
    }

    /// Whether a replica was notified that it lacks confirmed entries up to this one.
    pub(crate) fn was_notified(&self, node: NodeId, group: GroupId, lost: LogId) -> bool {
        let nodes = locked(&self.nodes);
        let confirmed = nodes.get(&node).and_then(|record| record.groups.get(&group));
        confirmed.is_some_and(|confirmed| confirmed.notified >= Some(lost))
    }

    /// Records that the replica was notified, and has that on its disk.
    pub(crate) fn set_notified(&self, node: NodeId, group: GroupId, lost: LogId) {
        if let Some(confirmed) =
            locked(&self.nodes).get_mut(&node).and_then(|record| record.groups.get_mut(&group))
        {
            confirmed.notified = confirmed.notified.max(Some(lost));
        }
    }

    /// What a starting node has confirmed to this one. From then on, responses to earlier calls do not
    /// count any more.
    pub(crate) fn recall(&self, node: NodeId) -> BTreeMap<GroupId, LogId> {
        let mut nodes = locked(&self.nodes);
        let record = nodes.entry(node).or_default();
        record.recall_count += 1;
        record.groups.iter().filter_map(|(&group, of)| Some((group, of.last?))).collect()
    }

    /// A replica comes to a node as a new one. What an earlier one there confirmed to this leader, it does not
    /// have, and its disk has lost nothing. What a starting node is told stays.
    pub(crate) fn starts_anew(&self, node: NodeId, group: GroupId) {
        if let Some(confirmed) =
            locked(&self.nodes).get_mut(&node).and_then(|record| record.groups.get_mut(&group))
        {
            confirmed.of_vote = None;
        }
    }

    /// Drops nodes that are no longer members: they have nothing to ask.
    pub(crate) fn retain(&self, members: &BTreeSet<NodeId>) {
        locked(&self.nodes).retain(|node, _| members.contains(node));
    }
}

#[cfg(test)]
mod tests {
    use umbel_storage::testing::id;

    use super::*;

    const NODE: NodeId = NodeId(2);

    fn group() -> GroupId {
        GroupId::from_number(3)
    }

    fn vote(term: u64) -> Vote {
        Vote::new_committed(term, NodeId(1))
    }

    fn confirm(witness: &Witness, term: u64, last: LogId) {
        let ticket = witness.ticket(NODE, group(), vote(term));
        witness.confirmed(NODE, group(), (ticket, vote(term)), Some(last)).unwrap();
    }

    #[test]
    fn who_lacks_what_it_confirmed_to_the_same_leader_has_lost_it() {
        let witness = Witness::default();
        confirm(&witness, 1, id(1, 7));
        let ticket = witness.ticket(NODE, group(), vote(1));
        assert_eq!(ticket.lost(Some(id(1, 7))), Some(id(1, 7)));
        assert_eq!(ticket.lost(Some(id(1, 3))), Some(id(1, 7)));
        assert_eq!(ticket.lost(Some(id(1, 8))), None, "it never had that");
        assert_eq!(ticket.lost(None), None);
        // Another leader may have truncated its log in between.
        let ticket = witness.ticket(NODE, group(), vote(3));
        assert_eq!(ticket.lost(Some(id(1, 3))), None);
        // A confirmation after the call does not tell anything about the call's response.
        let early = witness.ticket(NODE, group(), vote(1));
        confirm(&witness, 1, id(1, 9));
        assert_eq!(early.lost(Some(id(1, 8))), None);
    }

    #[test]
    fn a_replica_that_comes_back_has_lost_nothing() {
        let witness = Witness::default();
        confirm(&witness, 1, id(1, 7));
        witness.starts_anew(NODE, group());
        let ticket = witness.ticket(NODE, group(), vote(1));
        assert_eq!(ticket.lost(Some(id(1, 3))), None);
        confirm(&witness, 1, id(1, 5));
        let ticket = witness.ticket(NODE, group(), vote(1));
        assert_eq!(ticket.lost(Some(id(1, 3))), Some(id(1, 5)));
        // Its node still has to reach what the earlier one confirmed.
        assert_eq!(witness.recall(NODE), BTreeMap::from([(group(), id(1, 7))]));
    }

    #[test]
    fn an_answer_counts_or_is_recalled_by_the_starting_node() {
        let witness = Witness::default();
        confirm(&witness, 1, id(1, 7));
        let before = witness.ticket(NODE, group(), vote(1));
        assert_eq!(witness.recall(NODE), BTreeMap::from([(group(), id(1, 7))]));
        let late = witness.confirmed(NODE, group(), (before, vote(1)), Some(id(1, 8)));
        assert_eq!(late, Err(Restarted(NODE)));
        assert_eq!(witness.recall(NODE), BTreeMap::from([(group(), id(1, 7))]));
        confirm(&witness, 4, id(4, 8));
        assert_eq!(witness.recall(NODE), BTreeMap::from([(group(), id(4, 8))]));
        witness.retain(&BTreeSet::from([NodeId(1)]));
        assert_eq!(witness.recall(NODE), BTreeMap::new());
    }

    #[test]
    fn a_replica_is_notified_once_for_each_loss() {
        let witness = Witness::default();
        confirm(&witness, 1, id(1, 7));
        assert!(!witness.was_notified(NODE, group(), id(1, 7)));
        witness.set_notified(NODE, group(), id(1, 7));
        assert!(witness.was_notified(NODE, group(), id(1, 7)));
        confirm(&witness, 1, id(1, 6));
        assert!(witness.was_notified(NODE, group(), id(1, 7)));
        confirm(&witness, 1, id(1, 7));
        assert!(
            !witness.was_notified(NODE, group(), id(1, 7)),
            "it is whole, and may lose it again"
        );
    }
}
