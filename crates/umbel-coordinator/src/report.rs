//! Reports of other nodes about themselves and their shards.

use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::{NodeId, ShardId};

use umbel_node::calls::{
    ComparisonsReport, NodeStanding, ReplicaStatus, ReportAnswer, ReportRequest, ShardAnswer,
    ShardRequest,
};
use umbel_node::leader_calls::LeaderCalls;

/// Reports of nodes and of leaders.
#[derive(Clone, Copy)]
pub struct Reports<'a> {
    pub(super) calls: &'a LeaderCalls,
}

impl Reports<'_> {
    /// The standing of a node; None if it does not answer in time, or its release does not report it.
    pub async fn standing_of(self, node: NodeId, timeout: Duration) -> Option<NodeStanding> {
        match self.report_of(node, ReportRequest::Standing, timeout).await? {
            ReportAnswer::Standing(standing) => Some(standing),
            ReportAnswer::Comparisons(_) => None,
        }
    }

    /// The results of a node's comparisons, of the filters that a principal may read, or of all; None as
    /// above.
    pub async fn comparisons_of(
        self,
        node: NodeId,
        reader: Option<String>,
        timeout: Duration,
    ) -> Option<ComparisonsReport> {
        match self.report_of(node, ReportRequest::Comparisons { reader }, timeout).await? {
            ReportAnswer::Comparisons(report) => Some(report),
            ReportAnswer::Standing(_) => None,
        }
    }

    /// The status of a shard's leader; None if it does not answer in time.
    pub async fn leader_status(self, shard: ShardId, deadline: Instant) -> Option<ReplicaStatus> {
        match self.calls.shard_call(shard, ShardRequest::Status, deadline).await {
            Ok(ShardAnswer::Status(status)) => Some(status),
            Ok(_) => None,
            Err(error) => {
                tracing::debug!(%shard, %error, "no status of a shard");
                None
            }
        }
    }

    async fn report_of(
        self,
        node: NodeId,
        request: ReportRequest,
        timeout: Duration,
    ) -> Option<ReportAnswer> {
        self.calls.local().ok()?.report_of(node, request, timeout).await
    }
}
