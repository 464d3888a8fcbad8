//! Waiting until other nodes' copies have something, or are as the catalogue wants them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use umbel_engine::hypercube::VersionVector;
use umbel_engine::meta::FilterName;
use umbel_engine::{Generation, GroupId, NodeId};

use super::{group_of, nodes_of};
use crate::calls::{CopyAnswer, CopyRequest};
use crate::coordinator::Coordinator;
use crate::failure::CallFailure;
use crate::limits::{RETRY_WAIT_MAX, TRY_TIMEOUT};
use crate::local::Local;

/// How long nodes may take to make, empty or drop their copies before they are named to the client:
/// a node that is there has done so within milliseconds.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(3);

/// Calls without an answer after which a node counts as missing.
const UNANSWERED_MAX: usize = 3;

/// What became of a flush.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Flushed {
    /// Nodes that hold everything that was acknowledged on one of them before.
    pub(crate) nodes: Vec<NodeId>,
    /// Nodes that did not answer.
    pub(crate) missing: Vec<NodeId>,
}

impl Coordinator {
    /// Has all copies exchange what they have, until each node that answers has what every node
    /// that answers had acknowledged before.
    pub(crate) async fn flush(
        &self,
        name: &FilterName,
        deadline: Instant,
    ) -> Result<Flushed, CallFailure> {
        let filter = self.live_filter(name.as_str(), deadline).await?;
        if !filter.record.is_replicated() {
            let what = format!("{name} is partitioned: there is nothing to flush");
            return Err(CallFailure::Invalid { what });
        }
        let local = self.local()?;
        let generation = filter.record.generation;
        let group = group_of(&filter)?;
        let nodes = nodes_of(local).all;
        let asked = nodes.iter().map(|&node| async move {
            (node, inserted(local, node, group, generation, deadline).await)
        });
        let answers = join_all(asked).await.into_iter();
        let counts: BTreeMap<NodeId, u64> =
            answers.filter_map(|(node, count)| Some((node, count?))).collect();
        let wanted: VersionVector = counts.iter().map(|(&node, &count)| (node, count)).collect();
        let request = CopyRequest::Dominates { generation, counts: wanted };
        let covering = counts.keys().map(|&node| {
            let request = &request;
            async move { (node, comes_true(local, node, group, request, deadline).await) }
        });
        let mut flushed = Flushed { nodes: Vec::new(), missing: Vec::new() };
        for (node, has_all) in join_all(covering).await {
            if has_all {
                flushed.nodes.push(node);
            }
        }
        let is_missing = |node: &NodeId| !flushed.nodes.contains(node);
        flushed.missing = nodes.into_iter().filter(is_missing).collect();
        Ok(flushed)
    }

    /// The nodes that have not said soon that their copies are as the catalogue wants them, if the
    /// filter that was changed has copies.
    pub(crate) async fn unconfirmed_soon(
        &self,
        is_replicated: bool,
        deadline: Instant,
    ) -> Result<Vec<NodeId>, CallFailure> {
        if !is_replicated {
            return Ok(Vec::new());
        }
        self.unconfirmed(deadline.min(Instant::now() + CONFIRM_TIMEOUT)).await
    }

    /// Waits until all nodes' copies are as this node's catalogue wants them; returns those that did
    /// not say so in time.
    pub(crate) async fn unconfirmed(&self, deadline: Instant) -> Result<Vec<NodeId>, CallFailure> {
        let local = self.local()?;
        let request = CopyRequest::Follow { index: local.meta().applied_index() };
        let request = &request;
        let asked = nodes_of(local).all.into_iter().map(|node| async move {
            (node, comes_true(local, node, GroupId::META, request, deadline).await)
        });
        let answers = join_all(asked).await;
        Ok(answers.into_iter().filter(|(_, is_done)| !is_done).map(|(node, _)| node).collect())
    }
}

/// Asks again and again until a node says that something is so; false if it does not answer, or not
/// in time.
async fn comes_true(
    local: &Local,
    node: NodeId,
    group: GroupId,
    request: &CopyRequest,
    deadline: Instant,
) -> bool {
    let mut failure_count = 0;
    while Instant::now() < deadline && failure_count < UNANSWERED_MAX {
        let timeout = TRY_TIMEOUT.min(deadline - Instant::now());
        match local.copy_call(node, group, request, timeout).await {
            Ok(CopyAnswer::Done(true)) => return true,
            Ok(CopyAnswer::Done(false)) => failure_count = 0,
            // It does not know of the filter or generation yet, or is not there.
            _ => {
                failure_count += 1;
                tokio::time::sleep(RETRY_WAIT_MAX).await;
            }
        }
    }
    false
}

/// How many items a node has inserted; None if it does not answer. It begins a sweep.
async fn inserted(
    local: &Local,
    node: NodeId,
    group: GroupId,
    generation: Generation,
    deadline: Instant,
) -> Option<u64> {
    for _ in 0..UNANSWERED_MAX {
        let request = CopyRequest::Inserted { generation };
        let timeout = TRY_TIMEOUT.min(deadline.saturating_duration_since(Instant::now()));
        match local.copy_call(node, group, &request, timeout).await {
            Ok(CopyAnswer::Count(count)) => return Some(count),
            // Its link may be that to a process before, or its catalogue an old one.
            _ => tokio::time::sleep(RETRY_WAIT_MAX).await,
        }
    }
    None
}
