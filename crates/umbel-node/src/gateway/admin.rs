//! The service of operators: nodes, shards, copies of everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout};
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};
use umbel_engine::meta::{GroupView, MetaCommand, MetaReply, MetaState, NodeRecord};
use umbel_engine::{NodeId, ShardId};
use umbel_proto::v1;
use umbel_proto::v1::admin_server::{Admin, AdminServer};

use super::caller::Caller;
use super::convert;
use super::deadlines::Deadlines;
use super::describe;
use super::errors::status;
use super::limits::{JOIN_TOKEN_LIFETIME_MS_MAX, STATUS_CALLS_MAX, STATUS_TIMEOUT};
use super::measure::measured;
use crate::calls::{ReplicaStatus, ShardAnswer, ShardRequest};
use crate::coordinator::Coordinator;
use crate::failure::CallFailure;
use crate::limits::CLIENT_MESSAGE_BYTES_MAX;
use crate::peer::{PEER_PROTOCOL, cluster_bytes};
use crate::ports::PeerIdentity;

/// Answers operators.
pub(super) struct AdminService {
    coordinator: Arc<Coordinator>,
    deadlines: Deadlines,
}

impl AdminService {
    pub(super) fn new(coordinator: Arc<Coordinator>, deadlines: Deadlines) -> Self {
        Self { coordinator, deadlines }
    }

    /// The service for a server's router, with its message limits.
    pub(super) fn into_server(self) -> AdminServer<Self> {
        AdminServer::new(self)
            .max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(CLIENT_MESSAGE_BYTES_MAX)
    }

    /// The status as this node knows it; what is not answered in time is left out.
    async fn status_now(&self) -> Result<v1::StatusResponse, CallFailure> {
        let coordinator = &*self.coordinator;
        let meta = coordinator.meta_view().unwrap_or_default();
        let mut response = coordinator.read_meta(|state| table(state, &meta))?;
        response.cluster_id = convert::cluster_text(coordinator.cluster_id());
        response.node = coordinator.node().0;
        response.meta_leader = coordinator.meta_leader().map_or(0, |node| node.0);
        convert::VERSION.clone_into(&mut response.version);
        response.exchange = coordinator.exchange_status().ok().map(describe::exchange);

        let shards = response.shards.iter().map(|shard| shard.shard);
        let shards = stream::iter(shards.collect::<Vec<_>>())
            .map(async |shard| self.leader_status(ShardId(shard)).await)
            .buffered(STATUS_CALLS_MAX)
            .collect::<Vec<_>>();
        let members = response.nodes.iter().map(|node| (node.node, node.state != REMOVED));
        let nodes = stream::iter(members.collect::<Vec<_>>())
            .map(async |(node, is_member)| {
                let reached = coordinator.is_reachable(NodeId(node));
                is_member && timeout(STATUS_TIMEOUT, reached).await.unwrap_or(false)
            })
            .buffered(STATUS_CALLS_MAX)
            .collect::<Vec<_>>();
        let (statuses, reached) = tokio::join!(shards, nodes);
        let mut leader_counts = BTreeMap::<u64, u32>::new();
        for (shard, status) in response.shards.iter_mut().zip(statuses) {
            let Some(status) = status else { continue };
            shard.leader = status.view.leader.map_or(0, |node| node.0);
            shard.applied_index = status.applied_index;
            shard.memory_bytes = status.memory_bytes;
            *leader_counts.entry(shard.leader).or_default() += 1;
        }
        for (node, is_reachable) in response.nodes.iter_mut().zip(reached) {
            node.is_reachable = is_reachable;
            node.leader_count = leader_counts.get(&node.node).copied().unwrap_or(0);
        }
        Ok(response)
    }

    async fn leader_status(&self, shard: ShardId) -> Option<ReplicaStatus> {
        let deadline = Instant::now() + STATUS_TIMEOUT;
        match self.coordinator.shard_call(shard, ShardRequest::Status, deadline).await {
            Ok(ShardAnswer::Status(status)) => Some(status),
            Ok(_) => None,
            Err(error) => {
                tracing::debug!(%shard, %error, "no status of a shard");
                None
            }
        }
    }

    fn shard_map_now(&self) -> Result<v1::ShardMapResponse, CallFailure> {
        let leader = |shard| self.coordinator.shard_leader_hint(shard).map_or(0, |node| node.0);
        self.coordinator.read_meta(|state| {
            let shards = state.shards().map(|(range, record)| v1::ShardRoute {
                shard: record.shard.0,
                range_last: range.last(),
                leader: leader(record.shard),
            });
            let nodes = state.nodes().filter_map(|(node, record)| {
                Some(v1::NodeRoute { node: node.0, address: record.address()?.to_owned() })
            });
            let (shards, nodes) = (shards.collect(), nodes.collect());
            v1::ShardMapResponse { epoch: state.epoch().0, shards, nodes }
        })
    }
}

const REMOVED: &str = "removed";

/// The status as the catalogue tells it, before anybody is asked.
fn table(state: &MetaState, meta: &GroupView) -> v1::StatusResponse {
    let mut replica_counts = BTreeMap::<NodeId, u32>::new();
    for (_, record) in state.shards() {
        for &node in &record.replicas {
            *replica_counts.entry(node).or_default() += 1;
        }
    }
    let numbers = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect();
    let nodes = state.nodes().map(|(node, record)| v1::NodeStatus {
        node: node.0,
        address: record.address().unwrap_or_default().to_owned(),
        state: node_state(record).to_owned(),
        replica_count: replica_counts.get(&node).copied().unwrap_or(0),
        leader_count: 0,
        is_reachable: false,
        meta_role: meta_role(meta, node).to_owned(),
    });
    let shards = state.shards().map(|(range, record)| v1::ShardStatus {
        shard: record.shard.0,
        range_start: range.start(),
        range_last: range.last(),
        leader: 0,
        replicas: numbers(&record.replicas),
        target: numbers(record.target.as_deref().unwrap_or_default()),
        applied_index: 0,
        memory_bytes: 0,
    });
    v1::StatusResponse {
        epoch: state.epoch().0,
        nodes: nodes.collect(),
        shards: shards.collect(),
        filter_count: state.filters().count() as u64,
        replica_count: state.replica_count(),
        ..v1::StatusResponse::default()
    }
}

/// The command that keeps a token, if it can be one.
fn token_command(
    request: &v1::PutJoinTokenRequest,
    is_open: bool,
    now_ms: u64,
) -> Result<MetaCommand, CallFailure> {
    let invalid = |what: String| Err(CallFailure::Invalid { what });
    let v1::PutJoinTokenRequest { digest, expires_ms } = request;
    if is_open {
        let what = "a token for joining is of use with TLS alone: `umbel cluster certs` makes certificates";
        return invalid(what.to_owned());
    }
    let Ok(digest) = <[u8; 32]>::try_from(&digest[..]) else {
        return invalid(format!("digest has 32 bytes, not {}", digest.len()));
    };
    let lifetime_ms = expires_ms.saturating_sub(now_ms);
    if !(1..=JOIN_TOKEN_LIFETIME_MS_MAX).contains(&lifetime_ms) {
        return invalid(format!(
            "expires_ms is {lifetime_ms} ms from now by this node's clock; expected 1 to \
             {JOIN_TOKEN_LIFETIME_MS_MAX}"
        ));
    }
    Ok(MetaCommand::PutJoinToken { digest, expires_ms: *expires_ms, now_ms })
}

const fn node_state(record: &NodeRecord) -> &'static str {
    match record {
        NodeRecord::Live { is_draining: false, .. } => "live",
        NodeRecord::Live { is_draining: true, .. } => "draining",
        NodeRecord::Removed => REMOVED,
    }
}

fn meta_role(meta: &GroupView, node: NodeId) -> &'static str {
    if meta.voters.contains(&node) {
        "voter"
    } else if meta.learners.contains(&node) {
        "learner"
    } else {
        "none"
    }
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn status(
        &self,
        _request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        measured("status", self.status_now()).await
    }

    async fn shard_map(
        &self,
        _request: Request<v1::ShardMapRequest>,
    ) -> Result<Response<v1::ShardMapResponse>, Status> {
        measured("shard_map", async { self.shard_map_now() }).await
    }

    async fn join(
        &self,
        request: Request<v1::JoinRequest>,
    ) -> Result<Response<v1::JoinResponse>, Status> {
        let deadline = self.deadlines.of_meta(request.metadata());
        measured("join", async {
            let v1::JoinRequest { address, nonce, protocol } = request.into_inner();
            if protocol != PEER_PROTOCOL {
                let what = format!(
                    "protocol is {protocol}, but this cluster speaks {PEER_PROTOCOL}: bring both \
                     to one release"
                );
                return Err(CallFailure::Invalid { what });
            }
            let command = MetaCommand::AddNode { address, nonce };
            match self.coordinator.meta_propose(command, deadline).await? {
                MetaReply::Node(node) => {
                    let cluster_id = cluster_bytes(self.coordinator.cluster_id());
                    Ok(v1::JoinResponse { node: node.0, cluster_id })
                }
                other => Err(CallFailure::Storage { what: format!("a join gave {other:?}") }),
            }
        })
        .await
    }

    async fn put_join_token(
        &self,
        request: Request<v1::PutJoinTokenRequest>,
    ) -> Result<Response<v1::PutJoinTokenResponse>, Status> {
        let deadline = self.deadlines.of_meta(request.metadata());
        measured("put_join_token", async {
            let is_open = *Caller::of(&request)?.connection() == PeerIdentity::Unchecked;
            let now_ms = self.coordinator.seed().wall_ms();
            let command = token_command(&request.into_inner(), is_open, now_ms)?;
            self.coordinator.meta_propose(command, deadline).await?;
            Ok(v1::PutJoinTokenResponse {})
        })
        .await
    }

    async fn drain(
        &self,
        request: Request<v1::DrainRequest>,
    ) -> Result<Response<v1::DrainResponse>, Status> {
        let deadline = self.deadlines.of_meta(request.metadata());
        measured("drain", async {
            let v1::DrainRequest { node, undo } = request.into_inner();
            let node = NodeId(node);
            let command = MetaCommand::Drain { node, drain: !undo };
            self.coordinator.meta_propose(command, deadline).await?;
            let replica_count = self.coordinator.read_meta(|state| {
                state.shards().filter(|(_, record)| record.replicas.contains(&node)).count()
            })?;
            // At most 1,024 shards.
            let replica_count = u32::try_from(replica_count).unwrap_or(u32::MAX);
            Ok(v1::DrainResponse { replica_count })
        })
        .await
    }

    async fn remove(
        &self,
        request: Request<v1::RemoveNodeRequest>,
    ) -> Result<Response<v1::RemoveNodeResponse>, Status> {
        let deadline = self.deadlines.of_meta(request.metadata());
        measured("remove_node", async {
            let command = MetaCommand::RemoveNode { node: NodeId(request.into_inner().node) };
            self.coordinator.meta_propose(command, deadline).await?;
            Ok(v1::RemoveNodeResponse {})
        })
        .await
    }

    async fn move_shard(
        &self,
        request: Request<v1::MoveShardRequest>,
    ) -> Result<Response<v1::MoveShardResponse>, Status> {
        let deadline = self.deadlines.of_meta(request.metadata());
        measured("move_shard", async {
            let v1::MoveShardRequest { shard, from, to } = request.into_inner();
            let (shard, from, to) = (ShardId(shard), NodeId(from), NodeId(to));
            let command = MetaCommand::MoveReplica { shard, from, to };
            self.coordinator.meta_propose(command, deadline).await?;
            Ok(v1::MoveShardResponse {})
        })
        .await
    }

    type BackupStream = BoxStream<v1::BackupChunk>;

    async fn backup(
        &self,
        request: Request<v1::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let deadline = self.deadlines.of_meta(request.metadata());
        measured("backup", async {
            let parts = self.coordinator.backup(deadline).await?.into_stream();
            let chunks = parts
                .map(|part| part.map(convert::backup_chunk).map_err(|failure| status(&failure)));
            Ok(Box::pin(chunks) as Self::BackupStream)
        })
        .await
    }

    async fn restore(
        &self,
        request: Request<Streaming<v1::BackupChunk>>,
    ) -> Result<Response<v1::RestoreResponse>, Status> {
        measured("restore", async {
            let owner = Caller::of(&request)?.principal_name();
            let parts = request.into_inner().map(convert::backup_part);
            let restored = self.coordinator.restore(parts, owner).await?;
            Ok(v1::RestoreResponse { restored })
        })
        .await
    }

    type ScrubStream = BoxStream<v1::ScrubReport>;

    async fn scrub(
        &self,
        request: Request<v1::ScrubRequest>,
    ) -> Result<Response<Self::ScrubStream>, Status> {
        let deadline = self.deadlines.of_meta(request.metadata());
        measured("scrub", async {
            let v1::ScrubRequest { filter } = request.into_inner();
            let named = (!filter.is_empty()).then_some(&*filter);
            let pairs = self.coordinator.scrub(named, deadline).await?;
            Ok(Box::pin(describe::scrub(pairs).map(Ok)) as Self::ScrubStream)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_the_catalogue() {
        let mut state = MetaState::new();
        let nodes = (1..=3).map(|i| (NodeId(i), format!("node{i}:7070"))).collect();
        state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 4, replica_count: 2 });
        state.apply(2, &MetaCommand::Drain { node: NodeId(3), drain: true });
        let meta = GroupView {
            leader: Some(NodeId(1)),
            voters: vec![NodeId(1)],
            learners: vec![NodeId(2)],
            is_joint: false,
        };
        let table = table(&state, &meta);
        let states: Vec<_> = table.nodes.iter().map(|node| node.state.as_str()).collect();
        assert_eq!(states, ["live", "live", "draining"]);
        let roles: Vec<_> = table.nodes.iter().map(|node| node.meta_role.as_str()).collect();
        assert_eq!(roles, ["voter", "learner", "none"]);
        assert_eq!(table.nodes.iter().map(|node| node.replica_count).sum::<u32>(), 8);
        assert_eq!((table.replica_count, table.shards.len()), (2, 4));
        assert_eq!((table.shards[1].range_start, table.shards[3].range_last), (1 << 62, u64::MAX));
    }
}
