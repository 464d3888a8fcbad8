//! Confirms leadership for the reads of one group.

use std::sync::Arc;
use std::time::Duration;

use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use openraft_rt::WatchReceiver;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use umbel_engine::GroupId;
use umbel_step::planted::{self, Planted};
use umbel_storage::LogStore;
use umbel_storage::types::{Types, Vote};

use super::{Group, ProposeError};
use crate::network::Network;
use crate::read_rounds::Claim;
use crate::state_machine::{GroupReplica, StateMachine};

/// Reads that may wait for one confirmation of leadership. The gateway admits fewer than a thousand
/// batches at once.
const BARRIER_QUEUE_MAX: usize = 4096;

/// A read that waits for the confirmation.
pub(super) type Reader = oneshot::Sender<Result<(), ProposeError>>;

/// What the task needs that confirms the reads of a group.
pub(super) struct ConfirmedReads {
    id: GroupId,
    raft: openraft::Raft<Types, StateMachine>,
    log: LogStore,
    replica: Arc<GroupReplica>,
    network: Network,
}

impl ConfirmedReads {
    pub(super) fn new(
        id: GroupId,
        raft: &openraft::Raft<Types, StateMachine>,
        log: &LogStore,
        replica: &Arc<GroupReplica>,
        network: &Network,
    ) -> Self {
        let (raft, log, replica) = (raft.clone(), log.clone(), Arc::clone(replica));
        Self { id, raft, log, replica, network: network.clone() }
    }

    /// Starts the task, which ends when the result is dropped.
    pub(super) fn start(self, patience: Duration) -> mpsc::Sender<Reader> {
        let (barrier, waiting) = mpsc::channel(BARRIER_QUEUE_MAX);
        tokio::spawn(self.run(waiting, patience));
        barrier
    }

    /// Confirms leadership once for all reads that are waiting when the confirmation begins.
    async fn run(self, mut waiting: mpsc::Receiver<Reader>, patience: Duration) {
        let mut readers = Vec::new();
        let mut is_confirmed = false;
        while waiting.recv_many(&mut readers, BARRIER_QUEUE_MAX).await > 0 {
            if planted::on(Planted::ReuseReadIndex) && is_confirmed && self.raft.is_leader() {
                readers.drain(..).for_each(|reader| drop(reader.send(Ok(()))));
                continue;
            }
            let is_led = match self.claim() {
                Some(claim) => {
                    self.network.rounds().confirm(claim).await && self.catch_up(patience).await
                }
                None => false,
            };
            let outcome = if is_led { Ok(()) } else { self.confirm_alone(patience).await };
            is_confirmed = outcome.is_ok();
            for reader in readers.drain(..) {
                // A reader that gave up has dropped its receiver.
                let _ = reader.send(outcome.clone());
            }
        }
    }

    /// This node's claim to lead, if its state has everything that earlier leaders committed: it has
    /// applied an entry of its own term. What this leader has acknowledged is applied here, and what the upper half of
    /// the shard has, if no split is being applied.
    fn claim(&self) -> Option<Claim> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let applied_term = metrics.last_applied.map(|id| id.leader_id.term);
        let is_claimed = metrics.state.is_leader()
            && applied_term == Some(metrics.current_term)
            && !self.replica.is_splitting()
            && follows(&self.log, &metrics.vote);
        let members = metrics.membership_config.membership();
        is_claimed.then(|| Claim {
            group: self.id,
            vote: metrics.vote,
            voters: members.get_joint_config().clone(),
            addresses: members.nodes().map(|(&node, at)| (node, at.0.clone())).collect(),
        })
    }

    /// Waits until this node has applied what followers may have applied: they learn of a commit while the
    /// leader still applies it, and their clients may have seen it. Returns false if that takes too long.
    async fn catch_up(&self, patience: Duration) -> bool {
        let announced = self.network.announced();
        let mut applied = self.replica.applied_index();
        let reached = applied.wait_for(|&applied| applied >= announced);
        matches!(timeout(patience, reached).await, Ok(Ok(_)))
    }

    /// Lets openraft confirm that this node leads, by a heartbeat of this group alone.
    async fn confirm_alone(&self, patience: Duration) -> Result<(), ProposeError> {
        let confirmed = self.raft.ensure_linearizable(ReadPolicy::ReadIndex);
        match timeout(patience, confirmed).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)))) => {
                Err(ProposeError::NotLeader(forward.leader_id))
            }
            Ok(Err(RaftError::APIError(error))) => {
                tracing::debug!(%error, "no quorum confirmed the leader");
                Err(ProposeError::NotLeader(None))
            }
            Ok(Err(error)) => Err(ProposeError::Stopped(error.to_string())),
            Err(_) => {
                tracing::debug!(?patience, "no quorum confirmed the leader");
                Err(ProposeError::NotLeader(None))
            }
        }
    }
}

impl Group {
    /// Whether this replica's vote is for the leader with that vote, and so for no later one. The log has
    /// a vote before any other node learns of it.
    pub(crate) fn follows(&self, leader: &Vote) -> bool {
        planted::on(Planted::AnyLeaderConfirmed) || follows(&self.log, leader)
    }
}

fn follows(log: &LogStore, leader: &Vote) -> bool {
    log.vote().is_some_and(|vote| vote.leader_id == leader.leader_id)
}
