//! Membership changes of a group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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
/// lack entries. Replicating the lag that openraft permits takes less; other requests about this group
/// wait meanwhile.
const CATCH_UP_MAX: Duration = Duration::from_secs(5);

impl Group {
    /// Makes these nodes the voters and learners of the group; new ones are added as learners first.
    ///
    /// # Errors
    /// If this node does not lead the group, or the change is not committed in time.
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
                    self.raft.add_learner(node, address.clone(), blocking).await?;
                } else if voters.contains_key(&node) && !view.voters.contains(&node) {
                    self.raft.add_learner(node, address.clone(), true).await?;
                }
            }
            // A learner that is down never catches up. It becomes a voter anyway, as openraft permits,
            // because it may have to be one before it can be removed.
            let _ = tokio::time::timeout(CATCH_UP_MAX, self.reached(&new_voters, begun_at)).await;
            let wanted: BTreeSet<NodeId> = voters.keys().copied().collect();
            self.raft.change_membership(wanted, true).await?;
            let kept: BTreeSet<NodeId> = voters.keys().chain(learners.keys()).copied().collect();
            let gone: BTreeSet<NodeId> =
                self.view_members().into_iter().filter(|node| !kept.contains(node)).collect();
            if !gone.is_empty() {
                let change = openraft::ChangeMembers::RemoveNodes(gone);
                self.raft.change_membership(change, false).await?;
            }
            Ok::<(), RaftError<Types, ClientWriteError<Types>>>(())
        };
        let change = Runtime::scope(self.seed.number(Purpose::Election), change);
        tokio::select! {
            biased;
            changed = tokio::time::timeout(MEMBERS_TIMEOUT, change) => match changed {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("not done within {} s", MEMBERS_TIMEOUT.as_secs())),
            },
            () = self.leadership_lost() => Err("this node leads the group no more".to_owned()),
        }
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
                let has = |node| {
                    let matched = now.replication.as_ref().and_then(|all| *all.get(node)?);
                    matched.is_some_and(|id| id.index >= index)
                };
                learners.iter().all(has)
            };
            // If its metrics channel is closed, the group has stopped; the next step reports why.
            if are_there || metrics.changed().await.is_err() {
                return;
            }
        }
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

    fn view_members(&self) -> Vec<NodeId> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().nodes().map(|(node, _)| *node).collect()
    }
}
