//! Membership changes of a group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::RaftMetrics;
use openraft::errors::{ClientWriteError, RaftError};
use openraft_rt::WatchReceiver;
use umbel_engine::NodeId;
use umbel_ports::Purpose;
use umbel_storage::types::{NodeAddress, Runtime, Types};

use super::Group;

/// Longest time that one request to change members may take. A learner that needs longer for its
/// snapshot continues to receive it, and the controller repeats the request.
const MEMBERS_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest time that a request waits for learners which openraft considers caught up but which still
/// lack entries: openraft permits a lag of some thousands, which may be gigabytes. Other requests about this
/// group wait meanwhile.
const CATCH_UP_MAX: Duration = Duration::from_secs(5);

/// Why the leader of the request does not go on: the next one does.
const LEADS_NO_MORE: &str = "this node leads the group no more";

/// Why members were not changed.
enum MembersError {
    Raft(RaftError<Types, ClientWriteError<Types>>),
    /// A new voter is alive and lacks entries.
    Behind(String),
    /// This node was to leave the group, and hands leadership to a replica that stays.
    HandedOver,
}

impl From<RaftError<Types, ClientWriteError<Types>>> for MembersError {
    fn from(error: RaftError<Types, ClientWriteError<Types>>) -> Self {
        Self::Raft(error)
    }
}

/// The last entry that the leader knows a follower to have.
fn matched_index(metrics: &RaftMetrics<Types>, node: NodeId) -> Option<u64> {
    metrics.replication.as_ref().and_then(|all| *all.get(&node)?).map(|id| id.index)
}

impl Group {
    /// Makes these nodes the voters and learners of the group; new ones are added as learners first. A leader that is
    /// not to be a voter any more hands leadership over, if it can, before it would remove itself: a leader that removes
    /// itself leaves the group without one until the others have noticed.
    ///
    /// # Errors
    /// If this node does not lead the group, or no longer because it was to leave it; if a new voter is alive but still
    /// receives what the group has; or if the change is not committed in time. The controller repeats the request.
    pub async fn change_members(
        &self,
        voters: BTreeMap<NodeId, NodeAddress>,
        learners: BTreeMap<NodeId, NodeAddress>,
    ) -> Result<(), String> {
        let view = self.view();
        let known: BTreeSet<NodeId> = view.voters.iter().chain(&view.learners).copied().collect();
        let new_voters: BTreeSet<NodeId> =
            voters.keys().filter(|node| !view.voters.contains(node)).copied().collect();
        let change = async {
            let begun_at = self.last_index();
            for (&node, address) in voters.iter().chain(&learners) {
                if !known.contains(&node) {
                    // New voters must catch up before they count; plain learners may catch up later.
                    let blocking = voters.contains_key(&node);
                    self.network.starts_anew(node);
                    self.raft.add_learner(node, address.clone(), blocking).await?;
                } else if voters.contains_key(&node) && !view.voters.contains(&node) {
                    self.raft.add_learner(node, address.clone(), true).await?;
                }
            }
            let reached = self.reached(&new_voters, begun_at);
            if tokio::time::timeout(CATCH_UP_MAX, reached).await.is_err() {
                self.check_not_behind(&new_voters, begun_at)?;
            }
            let wanted: BTreeSet<NodeId> = voters.keys().copied().collect();
            if !wanted.contains(self.raft.node_id()) && self.leave_to(&wanted).await? {
                self.handed_over(self.beats.suspicion()).await;
                return Err(MembersError::HandedOver);
            }
            self.raft.change_membership(wanted, true).await?;
            let kept: BTreeSet<NodeId> = voters.keys().chain(learners.keys()).copied().collect();
            let gone: BTreeSet<NodeId> =
                self.view_members().into_iter().filter(|node| !kept.contains(node)).collect();
            if !gone.is_empty() {
                let change = openraft::ChangeMembers::RemoveNodes(gone);
                self.raft.change_membership(change, false).await?;
            }
            Ok::<(), MembersError>(())
        };
        let change = Runtime::scope(self.seed.number(Purpose::Election), change);
        tokio::select! {
            biased;
            changed = tokio::time::timeout(MEMBERS_TIMEOUT, change) => match changed {
                Ok(Ok(())) => Ok(()),
                Ok(Err(MembersError::Raft(error))) => Err(error.to_string()),
                Ok(Err(MembersError::Behind(why))) => Err(why),
                Ok(Err(MembersError::HandedOver)) => Err(LEADS_NO_MORE.to_owned()),
                Err(_) => Err(format!("not done within {} s", MEMBERS_TIMEOUT.as_secs())),
            },
            () = self.leadership_lost() => Err(LEADS_NO_MORE.to_owned()),
        }
    }

    /// Hands leadership to one of the voters to be, which removes this node then. If none of them is a voter yet, as where
    /// the only replica moves, all of them become voters beside this node first. Returns false if with none of them this
    /// node's links work both ways.
    async fn leave_to(&self, wanted: &BTreeSet<NodeId>) -> Result<bool, MembersError> {
        let is_wanted = |voter: NodeId| wanted.contains(&voter);
        let mut voters = self.view().voters.into_iter();
        let has_successor = || !self.beats.successors(wanted.iter().copied().collect()).is_empty();
        if !voters.any(is_wanted) && has_successor() {
            let mut both = wanted.clone();
            both.insert(*self.raft.node_id());
            self.raft.change_membership(both, true).await?;
        }
        Ok(self.hand_over_among(is_wanted).await)
    }

    fn last_index(&self) -> u64 {
        self.raft.metrics().borrow_watched().last_log_index.unwrap_or(0)
    }

    /// Waits until the logs of these learners reach `index`, the last entry that this leader had when
    /// the request began. openraft considers a learner caught up even if it lacks a few thousand
    /// entries. But a replica that returned to its node takes no part in elections until its log holds
    /// what it once acknowledged: if it became a voter before that, it would count towards the majority
    /// without being able to contribute to one.
    async fn reached(&self, learners: &BTreeSet<NodeId>, index: u64) {
        let mut metrics = self.raft.metrics();
        loop {
            let are_there = {
                let now = metrics.borrow_and_update();
                learners.iter().all(|&node| matched_index(&now, node) >= Some(index))
            };
            // If its metrics channel is closed, the group has stopped; the next step reports why.
            if are_there || metrics.changed().await.is_err() {
                return;
            }
        }
    }

    /// Refuses a change while a new voter that is alive lacks entries: the replica that it replaces would go
    /// before the group has as many whole replicas as it had. A learner that is down never catches up. It
    /// becomes a voter anyway, as openraft permits, because it may have to be one before it can be removed.
    fn check_not_behind(
        &self,
        learners: &BTreeSet<NodeId>,
        index: u64,
    ) -> Result<(), MembersError> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        for &node in learners {
            let matched = matched_index(&metrics, node);
            if matched < Some(index) && self.beats.is_alive(node) {
                let has = matched.map_or_else(|| "nothing".to_owned(), |at| format!("entry {at}"));
                let why =
                    format!("{node} has {has} of entries up to {index}, and is sent the rest");
                return Err(MembersError::Behind(why));
            }
        }
        Ok(())
    }

    /// Waits until this node is not the leader. A leader that has removed itself may lose leadership
    /// before it learns that the change is committed, and then no replica notifies it any more.
    pub(super) async fn leadership_lost(&self) {
        let mut metrics = self.raft.metrics();
        while metrics.borrow_and_update().state.is_leader() {
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }

    /// The voters that this node does not hear, with their addresses according to the group's log. Removed nodes are no
    /// voters, and the node itself is not among them.
    pub fn unheard_voters(&self) -> BTreeMap<NodeId, String> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership();
        let voters = members.get_joint_config().iter().flatten().copied();
        let unheard = voters.filter(|&voter| voter != metrics.id && !self.beats.is_alive(voter));
        let address = |voter: &NodeId| members.get_node(voter).map(|address| address.0.clone());
        unheard.map(|voter| (voter, address(&voter).unwrap_or_default())).collect()
    }

    fn view_members(&self) -> Vec<NodeId> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().nodes().map(|(node, _)| *node).collect()
    }
}
