//! The administration service of the fake nodes.

use super::*;

#[tonic::async_trait]
impl Admin for Node {
    async fn status(&self, _: Request<StatusRequest>) -> Answer<StatusResponse> {
        drop(self.count("status"));
        Ok(Response::new(StatusResponse { epoch: 7, ..Default::default() }))
    }

    async fn shard_map(&self, _: Request<ShardMapRequest>) -> Answer<ShardMapResponse> {
        Ok(Response::new(self.count("shard_map").map.clone()))
    }

    async fn join(&self, _: Request<JoinRequest>) -> Answer<JoinResponse> {
        Ok(Response::new(JoinResponse { node: 4, cluster_id: vec![0; 16].into() }))
    }

    async fn drain(&self, _: Request<DrainRequest>) -> Answer<DrainResponse> {
        let fault = self.count("drain").faults.pop_front();
        if let Some(Fault::Refuse(code, detail) | Fault::DoAndRefuse(code, detail)) = fault {
            return Err(status(code, &detail));
        }
        Ok(Response::new(DrainResponse { replica_count: 3 }))
    }

    async fn remove(&self, _: Request<RemoveNodeRequest>) -> Answer<RemoveNodeResponse> {
        Ok(Response::new(RemoveNodeResponse {}))
    }

    async fn move_shard(&self, _: Request<MoveShardRequest>) -> Answer<MoveShardResponse> {
        Ok(Response::new(MoveShardResponse {}))
    }

    async fn split_shard(&self, request: Request<SplitShardRequest>) -> Answer<SplitShardResponse> {
        let into = request.into_inner().shard_count - 1;
        Ok(Response::new(SplitShardResponse { shard: 0, into }))
    }

    async fn merge_shard(&self, request: Request<MergeShardRequest>) -> Answer<MergeShardResponse> {
        let gone = request.into_inner().shard_count;
        Ok(Response::new(MergeShardResponse { shard: 0, gone }))
    }

    async fn set_auto_split(
        &self,
        _: Request<SetAutoSplitRequest>,
    ) -> Answer<SetAutoSplitResponse> {
        Ok(Response::new(SetAutoSplitResponse {}))
    }

    async fn upgrade(&self, request: Request<UpgradeRequest>) -> Answer<UpgradeResponse> {
        let cluster_version = if request.into_inner().check { 1 } else { 2 };
        Ok(Response::new(UpgradeResponse { cluster_version, newest_common: 2, nodes: Vec::new() }))
    }

    async fn put_join_token(
        &self,
        _: Request<PutJoinTokenRequest>,
    ) -> Answer<PutJoinTokenResponse> {
        Ok(Response::new(PutJoinTokenResponse {}))
    }

    type BackupStream = Chunks<BackupChunk>;

    async fn backup(&self, _: Request<BackupRequest>) -> Answer<Self::BackupStream> {
        let part = Some(backup_chunk::Part::End(BackupEnd { filter_count: 0 }));
        Ok(Response::new(Box::pin(tokio_stream::iter([Ok(BackupChunk { part })]))))
    }

    async fn restore(&self, request: Request<Streaming<BackupChunk>>) -> Answer<RestoreResponse> {
        let mut chunks = request.into_inner();
        let mut names = Vec::new();
        while let Some(chunk) = chunks.next().await {
            if let Some(backup_chunk::Part::Filter(filter)) = chunk?.part {
                names.push(filter.name);
            }
        }
        let world = self.count("restore");
        let (skipped, restored) =
            names.into_iter().partition(|name| world.filters.contains_key(name));
        Ok(Response::new(RestoreResponse { restored, skipped }))
    }

    type ScrubStream = Chunks<ScrubReport>;

    async fn scrub(&self, request: Request<ScrubRequest>) -> Answer<Self::ScrubStream> {
        let ScrubRequest { filter } = request.into_inner();
        let pair = ScrubPair { filter, node: 1, partner: 2, ..Default::default() };
        let parts =
            [scrub_report::Part::Pair(pair), scrub_report::Part::Done(ScrubDone::default())];
        let reports = parts.map(|part| Ok(ScrubReport { part: Some(part) }));
        Ok(Response::new(Box::pin(tokio_stream::iter(reports))))
    }
}
