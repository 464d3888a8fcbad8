//! The gRPC service `Filters`.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::time::Instant;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};
use umbel_coordinator::Coordinator;
use umbel_coordinator::any_of::check_filter_count;
use umbel_coordinator::catalogue::FilterPage;
use umbel_coordinator::transfers::ExportWish;
use umbel_engine::FilterId;
use umbel_engine::meta::{FilterRecord, FilterVerb};
use umbel_engine::shard::SetOperation;
use umbel_node::failure::CallFailure;
use umbel_node::limits::CLIENT_MESSAGE_BYTES_MAX;
use umbel_proto::v1;
use umbel_proto::v1::filters_server::FiltersServer;

use super::budget::BudgetShare;
use super::caller::Caller;
use super::convert;
use super::deadlines::Deadlines;
use super::describe;
use super::errors::{Result, opens_no_streams, status};
use super::item_calls;
use super::item_streams::{self, ItemRequest, ItemStreams};
use super::limits::LIST_FILTERS_MAX;

mod imports;
mod methods;
mod seen;

/// Serves the requests about filters.
pub(super) struct FiltersService {
    coordinator: Arc<Coordinator>,
    deadlines: Deadlines,
    /// None where no streams are opened: in the console.
    streams: Option<ItemStreams>,
}

impl FiltersService {
    pub(super) fn new(coordinator: Arc<Coordinator>, deadlines: Deadlines) -> Self {
        Self { coordinator, deadlines, streams: None }
    }

    /// The same, which also opens streams of requests.
    pub(super) fn with_streams(self, streams: ItemStreams) -> Self {
        Self { streams: Some(streams), ..self }
    }

    fn open_stream<Q: ItemRequest>(
        &self,
        request: Request<Streaming<Q>>,
    ) -> Result<Response<BoxStream<Q::Answer>>, Status> {
        let Some(streams) = &self.streams else {
            return Err(opens_no_streams());
        };
        item_streams::open(request, streams, Arc::clone(&self.coordinator), self.deadlines)
    }

    /// Holds the memory of a call's items until it ends. The console has no such calls.
    fn hold(&self, items: Option<&v1::Items>) -> Result<Option<BudgetShare>> {
        let Some(streams) = &self.streams else { return Ok(None) };
        item_calls::hold(&streams.budget, items)
    }

    /// The ids of the nodes that have not confirmed a change yet, if a filter that it concerned has copies.
    async fn unconfirmed(&self, has_copies: bool, deadline: Instant) -> Result<Vec<u64>> {
        let nodes = self.coordinator.copies().unconfirmed_soon(has_copies, deadline).await?;
        Ok(describe::numbers(&nodes))
    }

    /// The filter of this name, if the caller sees it, as a page of a list: as this node knows it, which needs no
    /// majority; if it knows none, as a majority does.
    async fn find(&self, caller: &Caller, name: &str, deadline: Instant) -> Result<FilterPage> {
        let look = || {
            let visible = caller.visible();
            self.coordinator.list(name, "", 1, |found| found == name && visible(found))
        };
        let known = look()?;
        if !known.filters.is_empty() {
            return Ok(known);
        }
        self.coordinator.meta_refresh(deadline).await?;
        look()
    }

    fn listed(
        &self,
        caller: &Caller,
        page: &FilterPage,
        with_shard_map: bool,
    ) -> Result<v1::ListResponse> {
        let map = with_shard_map.then(|| describe::shard_map(&self.coordinator));
        Ok(convert::list(page, caller.allowed(FilterVerb::Export), map.transpose()?))
    }

    async fn put_together(
        &self,
        request: Request<v1::MergeRequest>,
        operation: SetOperation,
    ) -> Result<v1::MergeResponse> {
        let deadline = self.deadlines.of_all_shards(&request);
        let caller = Caller::of(&request)?;
        let v1::MergeRequest { target, sources, request } = request.into_inner();
        let target = caller.filter(FilterVerb::Insert, "target", target)?;
        let sources = caller.filters(FilterVerb::Export, "sources", sources)?;
        let request = convert::client_request(request)?;
        let request = self.coordinator.sessions().check(request, &caller.owner(), deadline).await?;
        let merge = self.coordinator.prepare_merge(&target, &sources, operation, deadline).await?;
        // Filters that do not fit together cost nothing.
        caller.take([0, 0, merge.source_bytes()])?;
        let merged = self.coordinator.merge_prepared(merge, request, deadline);
        Ok(v1::MergeResponse { new_position_count: merged.await? })
    }

    /// The service for a server's router, with its message limits.
    pub(super) fn into_server(self) -> FiltersServer<Self> {
        FiltersServer::new(self)
            .max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(CLIENT_MESSAGE_BYTES_MAX)
    }
}

/// What the catalogue knows of a filter, as far as the caller may know it.
fn summary(caller: &Caller, id: FilterId, record: &FilterRecord) -> v1::FilterSummary {
    convert::summary(id, record, caller.allowed(FilterVerb::Export)(record.name.as_str()))
}

fn has_replicated(page: &FilterPage) -> bool {
    page.filters.iter().any(|(_, record)| record.is_replicated())
}

/// The methods of the service, which `methods` measures and boxes.
impl FiltersService {
    async fn create(&self, request: Request<v1::CreateRequest>) -> Result<v1::CreateResponse> {
        let deadline = self.deadlines.of_all_shards(&request);
        let caller = Caller::of(&request)?;
        let (name, new) = convert::new_filter(&caller, request.into_inner())?;
        let (id, record) =
            self.coordinator.create(&name, &new, caller.principal_name(), deadline).await?;
        let unconfirmed = self.unconfirmed(record.is_replicated(), deadline).await?;
        let filter = Some(summary(&caller, id, &record));
        Ok(v1::CreateResponse { filter, unconfirmed_nodes: unconfirmed })
    }

    async fn drop(&self, request: Request<v1::DropRequest>) -> Result<v1::DropResponse> {
        self.drop_seen(request, None).await
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<v1::ListResponse> {
        let deadline = self.deadlines.of_meta(&request);
        let caller = Caller::of(&request)?;
        let v1::ListRequest { prefix, limit, after, as_heard, with_shard_map } =
            request.into_inner();
        let limit = match usize::try_from(limit) {
            Ok(limit @ 1..LIST_FILTERS_MAX) => limit,
            _ => LIST_FILTERS_MAX,
        };
        if !as_heard {
            self.coordinator.meta_refresh(deadline).await?;
        }
        let page = self.coordinator.list(&prefix, &after, limit, caller.visible())?;
        self.listed(&caller, &page, with_shard_map)
    }

    async fn info(&self, request: Request<v1::InfoRequest>) -> Result<v1::InfoResponse> {
        let deadline = self.deadlines.of_meta(&request);
        let caller = Caller::of(&request)?;
        let name = caller.filter(FilterVerb::Read, "name", request.into_inner().name)?;
        let may_export = caller.allowed(FilterVerb::Export)(name.as_str());
        Ok(describe::info(&self.coordinator.info(&name, deadline).await?, may_export))
    }

    async fn insert(&self, request: Request<v1::InsertRequest>) -> Result<v1::InsertResponse> {
        let deadline = self.deadlines.of_items(&request, request.get_ref().timeout_ms);
        let caller = Caller::of(&request)?;
        let _held = self.hold(request.get_ref().items.as_ref())?;
        item_calls::insert(&self.coordinator, &caller, request.into_inner(), deadline).await
    }

    async fn contains(
        &self,
        request: Request<v1::ContainsRequest>,
    ) -> Result<v1::ContainsResponse> {
        let deadline = self.deadlines.of_items(&request, request.get_ref().timeout_ms);
        let caller = Caller::of(&request)?;
        let _held = self.hold(request.get_ref().items.as_ref())?;
        item_calls::contains(&self.coordinator, &caller, request.into_inner(), deadline).await
    }

    async fn contains_any(
        &self,
        request: Request<v1::ContainsAnyRequest>,
    ) -> Result<v1::ContainsAnyResponse> {
        let deadline = self.deadlines.of_items(&request, request.get_ref().timeout_ms);
        let caller = Caller::of(&request)?;
        let _held = self.hold(request.get_ref().items.as_ref())?;
        let v1::ContainsAnyRequest { filters, items, level, timeout_ms: _ } = request.into_inner();
        check_filter_count(filters.len())?;
        let items = caller.questions(items, filters.len())?;
        let filters = caller.filters(FilterVerb::Read, "filters", filters)?;
        let level = convert::read_level(level)?;
        let asking = self.coordinator.contains_any(&filters, &items, level, deadline);
        let (firsts, level) = Box::pin(asking).await?;
        Ok(describe::first_filters(&firsts, level))
    }

    async fn remove(&self, request: Request<v1::RemoveRequest>) -> Result<v1::RemoveResponse> {
        let deadline = self.deadlines.of_items(&request, request.get_ref().timeout_ms);
        let caller = Caller::of(&request)?;
        let _held = self.hold(request.get_ref().items.as_ref())?;
        let v1::RemoveRequest { filter, items, request, timeout_ms: _ } = request.into_inner();
        let filter = caller.filter(FilterVerb::Remove, "filter", filter)?;
        let items = caller.items(items)?;
        let request = convert::client_request(request)?;
        let request = self.coordinator.sessions().check(request, &caller.owner(), deadline).await?;
        let removing = self.coordinator.remove(filter.as_str(), &items, request, deadline);
        let removed = Box::pin(removing).await;
        let removed = removed.map_err(|failure| failure.of_filter(filter.as_str()))?;
        let (removed_count, absent_count, removed_bits) = convert::bits(&removed);
        Ok(v1::RemoveResponse { removed_count, absent_count, removed_bits })
    }

    async fn clear(&self, request: Request<v1::ClearRequest>) -> Result<v1::ClearResponse> {
        self.clear_seen(request, None).await
    }

    async fn rotate(&self, request: Request<v1::RotateRequest>) -> Result<v1::RotateResponse> {
        let deadline = self.deadlines.of_all_shards(&request);
        let caller = Caller::of(&request)?;
        let name = caller.filter(FilterVerb::Manage, "name", request.into_inner().name)?;
        let generation = self.coordinator.rotate(&name, deadline).await?;
        Ok(v1::RotateResponse { generation: generation.0 })
    }

    async fn rename(&self, request: Request<v1::RenameRequest>) -> Result<v1::RenameResponse> {
        let deadline = self.deadlines.of_all_shards(&request);
        let caller = Caller::of(&request)?;
        let v1::RenameRequest { name, new_name, replace } = request.into_inner();
        let name = caller.filter(FilterVerb::Manage, "name", name)?;
        let new_name = caller.filter(FilterVerb::Manage, "new_name", new_name)?;
        caller.check_rename(&name, &new_name)?;
        let renamed = self.coordinator.rename(&name, &new_name, replace, deadline).await?;
        let (id, record, has_copies) = renamed;
        let unconfirmed = self.unconfirmed(has_copies, deadline).await?;
        let filter = Some(summary(&caller, id, &record));
        Ok(v1::RenameResponse { filter, unconfirmed_nodes: unconfirmed })
    }

    async fn merge(&self, request: Request<v1::MergeRequest>) -> Result<v1::MergeResponse> {
        self.put_together(request, SetOperation::Union).await
    }

    async fn intersect(&self, request: Request<v1::MergeRequest>) -> Result<v1::MergeResponse> {
        self.put_together(request, SetOperation::Intersection).await
    }

    async fn expire(&self, request: Request<v1::ExpireRequest>) -> Result<v1::ExpireResponse> {
        let deadline = self.deadlines.of_meta(&request);
        let caller = Caller::of(&request)?;
        let v1::ExpireRequest { name, after_ms } = request.into_inner();
        let name = caller.filter(FilterVerb::Manage, "name", name)?;
        if after_ms == Some(0) {
            let what = "after_ms is 0, expected at least 1: drop the filter at once".to_owned();
            return Err(CallFailure::Invalid { what });
        }
        let now_ms = self.coordinator.term_start_ms();
        let expires_ms = after_ms.map(|after_ms| now_ms.saturating_add(after_ms));
        self.coordinator.expire(&name, None, expires_ms, deadline).await?;
        Ok(v1::ExpireResponse { expires_ms })
    }

    async fn overlap(&self, request: Request<v1::OverlapRequest>) -> Result<v1::OverlapResponse> {
        let deadline = self.deadlines.of_all_shards(&request);
        let caller = Caller::of(&request)?;
        let v1::OverlapRequest { ours, theirs } = request.into_inner();
        let ours = caller.filter(FilterVerb::Read, "ours", ours)?;
        let theirs = caller.filter(FilterVerb::Read, "theirs", theirs)?;
        let prepared = self.coordinator.prepare_overlap(&ours, &theirs, deadline).await?;
        caller.take([0, 0, prepared.filter_bytes()])?;
        let overlap = self.coordinator.overlap_prepared(prepared, deadline).await?;
        Ok(describe::overlap(&overlap))
    }

    async fn flush(&self, request: Request<v1::FlushRequest>) -> Result<v1::FlushResponse> {
        let deadline = self.deadlines.of_all_shards(&request);
        let caller = Caller::of(&request)?;
        let name = caller.filter(FilterVerb::Insert, "name", request.into_inner().name)?;
        Ok(describe::flushed(&self.coordinator.copies().flush(&name, deadline).await?))
    }

    async fn export(
        &self,
        request: Request<v1::ExportRequest>,
    ) -> Result<BoxStream<v1::ExportChunk>> {
        let deadline = self.deadlines.of_meta(&request);
        let caller = Caller::of(&request)?;
        let v1::ExportRequest { name, since, snapshot: is_snapshot } = request.into_inner();
        let name = caller.filter(FilterVerb::Export, "name", name)?;
        let known = since.map(convert::known_frames).transpose()?;
        let wish = ExportWish { known, is_snapshot };
        let parts = self.coordinator.export(&name, wish, deadline).await?.into_stream();
        let chunks =
            parts.map(|part| part.map(convert::export_chunk).map_err(|failure| status(&failure)));
        Ok(Box::pin(chunks) as BoxStream<v1::ExportChunk>)
    }

    async fn import(
        &self,
        request: Request<Streaming<v1::ImportChunk>>,
    ) -> Result<v1::ImportResponse> {
        let caller = Caller::of(&request)?;
        let imported = imports::import(&self.coordinator, &caller, request.into_inner());
        let (id, record) = imported.await?;
        Ok(v1::ImportResponse { filter: Some(summary(&caller, id, &record)) })
    }

    async fn open_session(
        &self,
        request: Request<v1::OpenSessionRequest>,
    ) -> Result<v1::OpenSessionResponse> {
        let deadline = self.deadlines.of_meta(&request);
        let caller = Caller::of(&request)?;
        let v1::OpenSessionRequest { filter, with_shard_map } = request.into_inner();
        let page = if filter.is_empty() {
            None
        } else {
            Some(self.find(&caller, &filter, deadline).await?)
        };
        // A session needs a majority, without which replicated filters are served, too.
        let session = if page.as_ref().is_some_and(has_replicated) {
            0
        } else {
            self.coordinator.sessions().open(caller.owner(), deadline).await?.0
        };
        let listed = page.map(|page| self.listed(&caller, &page, with_shard_map)).transpose()?;
        Ok(v1::OpenSessionResponse { session, listed })
    }
}
