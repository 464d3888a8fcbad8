//! Waits until other nodes' copies have certain inserts, or are as the catalogue requires.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use umbel_engine::meta::FilterName;
use umbel_engine::{Generation, GroupId, NodeId};
use umbel_replicated_engine::hypercube::VersionVector;

use super::{CopyCalls, group_of, nodes_of};
use crate::{LiveFilter, Result};
use umbel_node::Local;
use umbel_node::calls::{CopyAnswer, CopyRequest};
use umbel_node::failure::CallFailure;
use umbel_node::limits::{RETRY_WAIT_MAX, TRY_TIMEOUT};

/// How long nodes that are heard may take to create, clear or drop their copies before they are reported to the client: one
/// that is in touch with the catalogue's leader does so within milliseconds.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(3);

/// Calls without an answer after which a node counts as missing.
const UNANSWERED_MAX: usize = 3;

/// The result of a flush.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlushReport {
    /// Nodes that hold everything that any of them had acknowledged before.
    pub nodes: Vec<NodeId>,
    /// All other nodes: they did not answer, or did not receive everything in time.
    pub missing: Vec<NodeId>,
}

impl CopyCalls<'_> {
    /// Has all copies exchange what they have, until each node that answers has everything that every
    /// node that answers had acknowledged before.
    pub async fn flush(self, name: &FilterName, deadline: Instant) -> Result<FlushReport> {
        let filter = LiveFilter::find(self.calls, name.as_str(), deadline).await?;
        if !filter.record.is_replicated() {
            let what = format!("{name} is partitioned: there is nothing to flush");
            return Err(CallFailure::Invalid { what });
        }
        let local = self.calls.local()?;
        let generation = filter.record.generation;
        let group = group_of(&filter)?;
        let nodes = nodes_of(local).all;
        let calls = nodes.iter().map(|&node| async move {
            (node, inserted(local, node, group, generation, deadline).await)
        });
        let answers = join_all(calls).await.into_iter();
        let counts: BTreeMap<NodeId, u64> =
            answers.filter_map(|(node, count)| Some((node, count?))).collect();
        let wanted: VersionVector = counts.iter().map(|(&node, &count)| (node, count)).collect();
        let request = CopyRequest::Dominates { generation, counts: wanted };
        let covering = counts.keys().map(|&node| {
            let covers = comes_true(local, node, group, &request, UNANSWERED_MAX, deadline);
            async move { (node, covers.await) }
        });
        let mut flushed = FlushReport { nodes: Vec::new(), missing: Vec::new() };
        for (node, has_all) in join_all(covering).await {
            if has_all {
                flushed.nodes.push(node);
            }
        }
        let is_missing = |node: &NodeId| !flushed.nodes.contains(node);
        flushed.missing = nodes.into_iter().filter(is_missing).collect();
        Ok(flushed)
    }

    /// The nodes that have not confirmed soon that their copies are as the catalogue requires; none if
    /// the changed filter has no copies. Nodes that are not heard are not waited for.
    pub async fn unconfirmed_soon(
        self,
        is_replicated: bool,
        deadline: Instant,
    ) -> Result<Vec<NodeId>> {
        if !is_replicated {
            return Ok(Vec::new());
        }
        self.unconfirmed(deadline.min(Instant::now() + CONFIRM_TIMEOUT)).await
    }

    /// Waits until the copies of all nodes that are heard are as this node's catalogue requires; returns the nodes
    /// that did not confirm it in time, or are not heard.
    pub(crate) async fn unconfirmed(self, deadline: Instant) -> Result<Vec<NodeId>> {
        let local = self.calls.local()?;
        let request = CopyRequest::Follow { index: local.meta().applied_index() };
        let request = &request;
        let calls = nodes_of(local).all.into_iter().map(|node| async move {
            // A node that is heard is asked again after every failure: its link or its process may have just started.
            let confirms = comes_true(local, node, GroupId::META, request, usize::MAX, deadline);
            let has_confirmed = tokio::select! {
                biased;
                has_confirmed = confirms => has_confirmed,
                () = local.until_silent(node) => false,
            };
            (node, has_confirmed)
        });
        let answers = join_all(calls).await;
        Ok(answers.into_iter().filter(|(_, is_done)| !is_done).map(|(node, _)| node).collect())
    }
}

/// Asks a node repeatedly until it reports that a condition holds; false if it does not in time, or fails to answer so
/// many times in a row.
async fn comes_true(
    local: &Local,
    node: NodeId,
    group: GroupId,
    request: &CopyRequest,
    unanswered_max: usize,
    deadline: Instant,
) -> bool {
    let mut failure_count = 0;
    while Instant::now() < deadline && failure_count < unanswered_max {
        let timeout = TRY_TIMEOUT.min(deadline - Instant::now());
        match local.copies().call(node, group, request, timeout).await {
            Ok(CopyAnswer::Done(true)) => return true,
            // It has waited for that.
            Ok(CopyAnswer::Done(false)) => failure_count = 0,
            // The node does not know the filter or the generation yet, or is not reachable.
            _ => {
                failure_count += 1;
                tokio::time::sleep(RETRY_WAIT_MAX).await;
            }
        }
    }
    false
}

/// How many items a node has inserted; None if it does not answer. The node also begins a sweep.
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
        match local.copies().call(node, group, &request, timeout).await {
            Ok(CopyAnswer::Count(count)) => return Some(count),
            // The link may lead to the node's previous process, or its catalogue may be old.
            _ => tokio::time::sleep(RETRY_WAIT_MAX).await,
        }
    }
    None
}
