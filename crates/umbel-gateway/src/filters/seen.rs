//! Changes of a filter that the caller may have seen: they concern no other filter that has its name by now.

use tonic::Request;
use umbel_coordinator::catalogue::Seen;
use umbel_engine::meta::FilterVerb;
use umbel_proto::v1;

use super::super::caller::Caller;
use super::FiltersService;
use crate::errors::Result;

impl FiltersService {
    /// Drops a filter; with `seen`, only the filter that was seen, and no other of its name.
    pub(crate) async fn drop_seen(
        &self,
        request: Request<v1::DropRequest>,
        seen: Option<Seen>,
    ) -> Result<v1::DropResponse> {
        let deadline = self.deadlines.of_all_shards(&request);
        let caller = Caller::of(&request)?;
        let name = caller.filter(FilterVerb::Manage, "name", request.into_inner().name)?;
        let is_replicated = self.coordinator.drop_filter(&name, seen, deadline).await?;
        let unconfirmed = self.unconfirmed(is_replicated, deadline).await?;
        Ok(v1::DropResponse { unconfirmed_nodes: unconfirmed })
    }

    /// Clears a filter; with `seen`, only if it is still as it was seen.
    pub(crate) async fn clear_seen(
        &self,
        request: Request<v1::ClearRequest>,
        seen: Option<Seen>,
    ) -> Result<v1::ClearResponse> {
        let deadline = self.deadlines.of_all_shards(&request);
        let caller = Caller::of(&request)?;
        let name = caller.filter(FilterVerb::Manage, "name", request.into_inner().name)?;
        let (generation, is_replicated) = self.coordinator.clear(&name, seen, deadline).await?;
        let unconfirmed = self.unconfirmed(is_replicated, deadline).await?;
        Ok(v1::ClearResponse { generation: generation.0, unconfirmed_nodes: unconfirmed })
    }
}
