//! The gRPC service `Admin`: nodes, shards, backups.

use std::sync::Arc;

use futures_util::StreamExt;
use tonic::codegen::BoxStream;
use tonic::{Request, Streaming};
use umbel_coordinator::Coordinator;
use umbel_coordinator::releases::{NodeRelease, newest_common};
use umbel_coordinator::transfers::Restored;
use umbel_engine::meta::{MetaCommand, MetaReply, MetaState, VersionRange};
use umbel_engine::{NodeId, ShardId};
use umbel_node::failure::CallFailure;
use umbel_node::limits::CLIENT_MESSAGE_BYTES_MAX;
use umbel_node::peer::{PEER_PROTOCOL, cluster_bytes};
use umbel_ports::PeerIdentity;
use umbel_proto::v1;
use umbel_proto::v1::admin_server::{self, AdminServer};

use super::audit;
use super::caller::Caller;
use super::convert;
use super::deadlines::Deadlines;
use super::describe;
use super::enrolment::check_signer;
use super::errors::{Result, status};
use super::limits::JOIN_TOKEN_LIFETIME_MS_MAX;
use super::service_methods::service_methods;
use super::status::status_now;

/// Serves the requests of operators.
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
}

/// The command that stores a join token, if the token is valid.
fn token_command(
    request: &v1::PutJoinTokenRequest,
    is_open: bool,
    now_ms: u64,
) -> Result<MetaCommand> {
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

fn node_release(release: NodeRelease) -> v1::NodeRelease {
    let NodeRelease { node, address, answer } = release;
    let (node, address) = (node.0, address);
    match answer {
        Ok((release, versions)) => v1::NodeRelease {
            node,
            address,
            release,
            oldest_version: versions.oldest.0,
            newest_version: versions.newest.0,
            failure: String::new(),
        },
        Err(failure) => v1::NodeRelease { node, address, failure, ..Default::default() },
    }
}

/// The methods of the service, which its trait boxes.
impl AdminService {
    async fn status(&self, request: Request<v1::StatusRequest>) -> Result<v1::StatusResponse> {
        status_now(&self.coordinator, request.get_ref()).await
    }

    async fn shard_map(
        &self,
        _request: Request<v1::ShardMapRequest>,
    ) -> Result<v1::ShardMapResponse> {
        describe::shard_map(&self.coordinator)
    }

    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<v1::JoinResponse> {
        audit::note(&request, |asked| format!("address={}", audit::word(&asked.address)));
        let deadline = self.deadlines.of_meta(&request);
        let request = request.into_inner();
        let versions = VersionRange::of_wire(request.oldest_version, request.newest_version);
        let v1::JoinRequest { address, nonce, protocol, .. } = request;
        if protocol != PEER_PROTOCOL {
            let what = format!(
                "protocol is {protocol}, but this cluster speaks {PEER_PROTOCOL}: bring both \
                 to one release"
            );
            return Err(CallFailure::Invalid { what });
        }
        self.coordinator.releases().check_release(versions, deadline).await?;
        let command = MetaCommand::AddNode { address: address.clone(), nonce };
        match self.coordinator.meta_propose(command, deadline).await? {
            MetaReply::Node(node) => {
                // A repeated request gets the number that the first one got, which may have had another address. This
                // node has applied the command, so it knows that one.
                let recorded = self
                    .coordinator
                    .read_meta(|state| state.node_address(node).map(str::to_owned))?;
                if let Some(recorded) = recorded.filter(|recorded| *recorded != address) {
                    let what = format!(
                        "the node has joined as {recorded}, and the others call it there: let it start with that \
                         address (advertise), or remove node {node} and let it join with an empty data folder"
                    );
                    return Err(CallFailure::Invalid { what });
                }
                let cluster_id = cluster_bytes(self.coordinator.cluster_id());
                Ok(v1::JoinResponse { node: node.0, cluster_id })
            }
            other => Err(CallFailure::Storage { what: format!("a join gave {other:?}") }),
        }
    }

    async fn put_join_token(
        &self,
        request: Request<v1::PutJoinTokenRequest>,
    ) -> Result<v1::PutJoinTokenResponse> {
        audit::note(&request, |asked| format!("expires_ms={}", asked.expires_ms));
        let deadline = self.deadlines.of_meta(&request);
        let is_open = *Caller::of(&request)?.connection() == PeerIdentity::Unchecked;
        let now_ms = self.coordinator.seed().wall_ms();
        let command = token_command(&request.into_inner(), is_open, now_ms)?;
        check_signer(&self.coordinator, deadline).await?;
        self.coordinator.meta_propose(command, deadline).await?;
        Ok(v1::PutJoinTokenResponse {})
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Result<v1::DrainResponse> {
        audit::note(&request, |asked| format!("node={} undo={}", asked.node, asked.undo));
        let deadline = self.deadlines.of_meta(&request);
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
    }

    async fn remove(
        &self,
        request: Request<v1::RemoveNodeRequest>,
    ) -> Result<v1::RemoveNodeResponse> {
        audit::note(&request, |asked| format!("node={}", asked.node));
        let deadline = self.deadlines.of_meta(&request);
        let command = MetaCommand::RemoveNode { node: NodeId(request.into_inner().node) };
        self.coordinator.meta_propose(command, deadline).await?;
        Ok(v1::RemoveNodeResponse {})
    }

    async fn move_shard(
        &self,
        request: Request<v1::MoveShardRequest>,
    ) -> Result<v1::MoveShardResponse> {
        audit::note(&request, |v1::MoveShardRequest { shard, from, to }| {
            format!("shard={shard} from={from} to={to}")
        });
        let deadline = self.deadlines.of_meta(&request);
        let v1::MoveShardRequest { shard, from, to } = request.into_inner();
        let (shard, from, to) = (ShardId(shard), NodeId(from), NodeId(to));
        let is_unknown = || self.coordinator.read_meta(|state| state.shard(shard).is_none());
        if is_unknown()? {
            // This node may not know a new shard yet.
            self.coordinator.meta_refresh(deadline).await?;
            if is_unknown()? {
                return Err(CallFailure::UnknownShard { shard });
            }
        }
        if self.coordinator.read_meta(|state| state.zones().get(to).is_some())? {
            // This node may not know yet where the replicas are now.
            self.coordinator.meta_refresh(deadline).await?;
            self.coordinator.read_meta(|state| state.check_zone_of_move(shard, from, to))??;
        }
        let command = MetaCommand::MoveReplica { shard, from, to };
        self.coordinator.meta_propose(command, deadline).await?;
        Ok(v1::MoveShardResponse {})
    }

    async fn upgrade(&self, request: Request<v1::UpgradeRequest>) -> Result<v1::UpgradeResponse> {
        audit::note(&request, |asked| format!("check={}", asked.check));
        let deadline = self.deadlines.of_meta(&request);
        let releases = if request.into_inner().check {
            self.coordinator.releases().list(deadline).await?
        } else {
            self.coordinator.releases().upgrade(deadline).await?
        };
        let version = self.coordinator.read_meta(MetaState::version)?;
        Ok(v1::UpgradeResponse {
            cluster_version: version.0,
            newest_common: newest_common(&releases).map_or(0, |newest| newest.0),
            nodes: releases.into_iter().map(node_release).collect(),
        })
    }

    async fn set_auto_split(
        &self,
        request: Request<v1::SetAutoSplitRequest>,
    ) -> Result<v1::SetAutoSplitResponse> {
        audit::note(&request, |asked| format!("is_on={}", asked.is_on));
        let deadline = self.deadlines.of_meta(&request);
        let command = MetaCommand::SetAutoSplit { is_on: request.into_inner().is_on };
        self.coordinator.meta_propose(command, deadline).await?;
        Ok(v1::SetAutoSplitResponse {})
    }

    async fn split_shard(
        &self,
        request: Request<v1::SplitShardRequest>,
    ) -> Result<v1::SplitShardResponse> {
        audit::note(&request, |asked| format!("shard_count={}", asked.shard_count));
        let deadline = self.deadlines.of_all_shards(&request);
        let shard_count = request.into_inner().shard_count;
        let (shard, into) = self.coordinator.shards().split(shard_count, deadline).await?;
        Ok(v1::SplitShardResponse { shard: shard.0, into: into.0 })
    }

    async fn merge_shard(
        &self,
        request: Request<v1::MergeShardRequest>,
    ) -> Result<v1::MergeShardResponse> {
        audit::note(&request, |asked| format!("shard_count={}", asked.shard_count));
        let deadline = self.deadlines.of_all_shards(&request);
        let shard_count = request.into_inner().shard_count;
        let (shard, gone) = self.coordinator.shards().merge(shard_count, deadline).await?;
        Ok(v1::MergeShardResponse { shard: shard.0, gone: gone.0 })
    }

    async fn backup(
        &self,
        request: Request<v1::BackupRequest>,
    ) -> Result<BoxStream<v1::BackupChunk>> {
        audit::note(&request, |asked| format!("snapshot={}", asked.snapshot));
        let deadline = self.deadlines.of_meta(&request);
        let is_snapshot = request.get_ref().snapshot;
        let parts = self.coordinator.backup(is_snapshot, deadline).await?.into_stream();
        let chunks =
            parts.map(|part| part.map(convert::backup_chunk).map_err(|failure| status(&failure)));
        Ok(Box::pin(chunks) as BoxStream<v1::BackupChunk>)
    }

    async fn restore(
        &self,
        request: Request<Streaming<v1::BackupChunk>>,
    ) -> Result<v1::RestoreResponse> {
        let owner = Caller::of(&request)?.principal_name();
        let parts = request.into_inner().map(convert::backup_part);
        let Restored { restored, skipped } = self.coordinator.restore(parts, owner).await?;
        Ok(v1::RestoreResponse { restored, skipped })
    }

    async fn scrub(
        &self,
        request: Request<v1::ScrubRequest>,
    ) -> Result<BoxStream<v1::ScrubReport>> {
        audit::note(&request, |asked| format!("filter={}", audit::word(&asked.filter)));
        let deadline = self.deadlines.of_meta(&request);
        let v1::ScrubRequest { filter } = request.into_inner();
        let named = (!filter.is_empty()).then_some(&*filter);
        let pairs = self.coordinator.scrub(named, deadline).await?;
        Ok(Box::pin(describe::scrub(pairs).map(Ok)) as BoxStream<v1::ScrubReport>)
    }
}

service_methods! { AdminService: admin_server::Admin => {
    status(v1::StatusRequest) -> v1::StatusResponse;
    shard_map(v1::ShardMapRequest) -> v1::ShardMapResponse;
    join(v1::JoinRequest) -> v1::JoinResponse;
    put_join_token(v1::PutJoinTokenRequest) -> v1::PutJoinTokenResponse;
    drain(v1::DrainRequest) -> v1::DrainResponse;
    remove(v1::RemoveNodeRequest) -> v1::RemoveNodeResponse as "remove_node";
    move_shard(v1::MoveShardRequest) -> v1::MoveShardResponse;
    upgrade(v1::UpgradeRequest) -> v1::UpgradeResponse;
    set_auto_split(v1::SetAutoSplitRequest) -> v1::SetAutoSplitResponse;
    split_shard(v1::SplitShardRequest) -> v1::SplitShardResponse;
    merge_shard(v1::MergeShardRequest) -> v1::MergeShardResponse;
    backup(v1::BackupRequest) -> BoxStream<v1::BackupChunk>;
    restore(Streaming<v1::BackupChunk>) -> v1::RestoreResponse;
    scrub(v1::ScrubRequest) -> BoxStream<v1::ScrubReport>;
    {
        type BackupStream = BoxStream<v1::BackupChunk>;
        type ScrubStream = BoxStream<v1::ScrubReport>;
    }
} }
