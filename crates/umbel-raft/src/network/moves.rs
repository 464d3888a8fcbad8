//! Which snapshots are sent at the node's rate of moves.
//!
//! A replica that is added because a node joins or is drained, or for balance, can wait: the group has all of
//! its voters meanwhile. So all groups that a node leads share a rate for what they send to such replicas.
//! What a group may need to keep its majority is sent as fast as it goes: the snapshot of a voter that lags
//! behind, and that of a new replica while a voter is not reachable, whose place it may be about to take.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};

use openraft::RaftMetrics;
use openraft::type_config::alias::WatchReceiverOf;
use openraft_rt::WatchReceiver;
use umbel_engine::NodeId;
use umbel_engine::limits::REPLICA_COUNT_MAX;
use umbel_engine::meta::SHARD_MOVES_MAX;
use umbel_ports::{Pacer, locked};
use umbel_storage::types::Types;

use super::SMALL_CHUNK_BYTES;
use super::snapshot_receiver::{SNAPSHOT_CHUNK_BYTES, SNAPSHOT_IDLE};
use crate::beats::Beats;

/// Lowest rate of moves, in bytes per second: a chunk then waits for less than a third of the time after which
/// its receiver drops the transfer, even if this node sends to all replicas that are added at once.
pub const MOVE_BYTES_PER_SECOND_MIN: u64 = 1 << 20;

/// The rate of moves where a simulation asks for a low one: there are some ten KiB in a simulated shard.
pub(crate) const SLOW_MOVE_BYTES_PER_SECOND: u64 = 16 << 10;

/// Most replicas that are added at once: all of each shard that moves.
const ADDED_AT_ONCE_MAX: u64 = SHARD_MOVES_MAX as u64 * REPLICA_COUNT_MAX as u64;

const _: () = assert!(
    3 * ADDED_AT_ONCE_MAX * SNAPSHOT_CHUNK_BYTES as u64
        <= MOVE_BYTES_PER_SECOND_MIN * SNAPSHOT_IDLE.as_secs()
);
const _: () = assert!(
    3 * ADDED_AT_ONCE_MAX * SMALL_CHUNK_BYTES as u64
        <= SLOW_MOVE_BYTES_PER_SECOND * SNAPSHOT_IDLE.as_secs()
);

/// A group's members, as openraft reports them.
pub(crate) type Reports = WatchReceiverOf<Types, RaftMetrics<Types>>;

/// The rate of moves, for the snapshots of one group.
pub(crate) struct Moves {
    /// Shared by all groups of the node.
    pacer: Arc<Pacer>,
    beats: Arc<Beats>,
    /// Nothing waits as long as the members are not known.
    reports: OnceLock<Reports>,
    /// Nodes that were sent a whole snapshot since they were to get a replica. If such a node needs another one,
    /// the log was truncated during the first: at the same rate, the next one could come too late as well, and
    /// the move would never end.
    served: Mutex<BTreeSet<NodeId>>,
}

impl Moves {
    /// For a group whose members are not known yet.
    pub(crate) fn new(pacer: Arc<Pacer>, beats: Arc<Beats>) -> Self {
        let (reports, served) = Default::default();
        Self { pacer, beats, reports, served }
    }

    /// Learns of the members from now on.
    pub(super) fn follow(&self, reports: Reports) {
        // A group starts once.
        let _ = self.reports.set(reports);
    }

    /// Notes that a node gets a replica that has nothing yet.
    pub(super) fn starts_anew(&self, node: NodeId) {
        locked(&self.served).remove(&node);
    }

    /// Notes that a node has got a whole snapshot.
    pub(super) fn has_served(&self, node: NodeId) {
        locked(&self.served).insert(node);
    }

    /// Waits until so many bytes of a snapshot may be sent to a node.
    pub(super) async fn pass(&self, to: NodeId, byte_count: usize) {
        if self.is_bounded(to) {
            self.pacer.pass(byte_count).await;
        }
    }

    /// Whether the rate applies to what a node is sent now. It may cease to during a transfer, because a voter
    /// fails.
    fn is_bounded(&self, to: NodeId) -> bool {
        let Some(reports) = self.reports.get() else { return false };
        if locked(&self.served).contains(&to) {
            return false;
        }
        let report = reports.borrow_watched();
        let mut voters = report.membership_config.membership().voter_ids();
        voters.all(|voter| voter != to && self.beats.is_alive(voter))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use openraft::Membership;
    use openraft::type_config::TypeConfigExt;
    use openraft_rt::WatchSender;
    use umbel_engine::liveness::{Beat, LedVersion};
    use umbel_storage::types::{NodeAddress, StoredMembership};

    use super::*;
    use crate::peer::test_node::TIMING;

    /// What a group reports that has these voters, and adds node 2 if that is none of them.
    pub(crate) fn report(voters: &[u64]) -> RaftMetrics<Types> {
        let voters: BTreeSet<NodeId> = voters.iter().copied().map(NodeId).collect();
        let nodes = voters.iter().copied().chain([NodeId(2)]);
        let nodes: BTreeMap<_, _> = nodes.map(|node| (node, NodeAddress::default())).collect();
        let members = Membership::new(vec![voters], nodes).expect("all voters are named");
        let mut report = RaftMetrics::<Types>::new_initial(NodeId(1));
        report.membership_config = Arc::new(StoredMembership::new(None, members));
        report
    }

    /// Node 3 sends its first beat.
    fn hear_node_3(beats: &Beats) {
        let version = LedVersion { incarnation: 5, number: 1 };
        beats.take(NodeId(3), Beat { version, leads: Some(Vec::new()), has: None });
    }

    #[test]
    fn only_a_replica_that_is_added_to_a_group_without_failures_waits() {
        let beats = Arc::new(Beats::new(NodeId(1), 1, TIMING));
        let moves = Moves::new(Arc::new(Pacer::new(1)), Arc::clone(&beats));
        let to = NodeId(2);
        assert!(!moves.is_bounded(to), "the members are not known");
        let (sender, reports) = Types::watch_channel(report(&[1]));
        moves.follow(reports);
        assert!(moves.is_bounded(to));

        sender.send(report(&[1, 2])).expect("it is received");
        assert!(!moves.is_bounded(to), "a voter that lags behind");
        sender.send(report(&[1, 3])).expect("it is received");
        assert!(!moves.is_bounded(to), "node 3 was not heard");
        beats.tick(&BTreeSet::from([NodeId(3)]), &[]);
        hear_node_3(&beats);
        assert!(moves.is_bounded(to));
        beats.tick(&BTreeSet::new(), &[]);
        assert!(!moves.is_bounded(to), "node 3 is gone");
    }

    #[test]
    fn whoever_needs_a_second_snapshot_does_not_wait_for_it() {
        let beats = Arc::new(Beats::new(NodeId(1), 1, TIMING));
        let moves = Moves::new(Arc::new(Pacer::new(1)), beats);
        let (_sender, reports) = Types::watch_channel(report(&[1]));
        moves.follow(reports);
        moves.has_served(NodeId(2));
        assert!(!moves.is_bounded(NodeId(2)));
        assert!(moves.is_bounded(NodeId(4)));
        moves.starts_anew(NodeId(2));
        assert!(moves.is_bounded(NodeId(2)));
    }
}
