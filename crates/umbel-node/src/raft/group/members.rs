//! Changes of a group's members.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::errors::{ClientWriteError, RaftError};
use openraft_rt::WatchReceiver;
use umbel_engine::NodeId;

use super::Group;
use crate::ports::Purpose;
use crate::raft::types::{NodeAddress, Runtime, Types};

/// Longest time that one order to add and swap members may take; a learner that needs longer for
/// its snapshot goes on receiving it, and the controller orders again.
const MEMBERS_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest time that an order waits for learners that openraft takes for caught up, and that lack
/// entries yet: what it lets them lack is replicated in less, and other orders about this group wait.
const CATCH_UP_MAX: Duration = Duration::from_secs(5);

impl Group {
    /// Makes these the voters and learners of the group, adding as learners first.
    pub(crate) async fn change_members(
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
                    // Voters must have caught up before they count; learners catch up in time.
                    let blocking = voters.contains_key(&node);
                    self.raft.add_learner(node, address.clone(), blocking).await?;
                } else if voters.contains_key(&node) && !view.voters.contains(&node) {
                    self.raft.add_learner(node, address.clone(), true).await?;
                }
            }
            // One that is down never reaches it. It becomes a voter as openraft has it, for it may have
            // to be one before it can be removed.
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

    /// Returns when the logs of these learners reach an entry that this node, which leads, had when an
    /// order began. openraft takes a learner for caught up that lacks a few thousand entries, but one
    /// that came back says nothing in elections until its log holds what it once acknowledged: made a
    /// voter before that, it counts for a majority that it cannot help to have.
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
            // Without its metrics the group has stopped, and the next step says why.
            if are_there || metrics.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns when this node does not lead. A leader that has swapped itself out may lose leadership
    /// before it learns that this is committed, and then nobody sends it any more.
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
