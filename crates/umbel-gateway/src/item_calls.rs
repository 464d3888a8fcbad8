//! Inserts of items and questions about them, as calls of their own and as requests of a stream.

use tokio::time::Instant;
use umbel_coordinator::Coordinator;
use umbel_engine::meta::FilterVerb;
use umbel_proto::v1;

use super::caller::Caller;
use super::{Result, convert};

/// Inserts the items of a request.
///
/// # Errors
/// If the request is invalid, the caller may not make it, or the cluster cannot carry it out.
pub(super) async fn insert(
    coordinator: &Coordinator,
    caller: &Caller,
    request: v1::InsertRequest,
    deadline: Instant,
) -> Result<v1::InsertResponse> {
    let v1::InsertRequest { filter, items, request, timeout_ms: _, level, at_ms } = request;
    let filter = caller.filter(FilterVerb::Insert, "filter", filter)?;
    let items = caller.items(items)?;
    let request = convert::client_request(request)?;
    let request = coordinator.sessions().check(request, &caller.owner(), deadline).await?;
    let terms = (convert::ack_level(level)?, at_ms);
    // Boxed, because its future is large, and callers move theirs several times before it begins.
    let inserting = coordinator.insert_of(filter.as_str(), &items, request, terms, deadline);
    let (new, level) = Box::pin(inserting).await?;
    let (new_count, present_count, new_bits) = convert::bits(&new);
    let level = convert::ack_level_to_proto(level).into();
    Ok(v1::InsertResponse { new_count, present_count, new_bits, level })
}

/// Looks up the items of a request.
///
/// # Errors
/// As [`insert`].
pub(super) async fn contains(
    coordinator: &Coordinator,
    caller: &Caller,
    request: v1::ContainsRequest,
    deadline: Instant,
) -> Result<v1::ContainsResponse> {
    let v1::ContainsRequest { filter, items, level, timeout_ms: _ } = request;
    let filter = caller.filter(FilterVerb::Read, "filter", filter)?;
    let items = caller.items(items)?;
    let level = convert::read_level(level)?;
    let asking = coordinator.contains(filter.as_str(), &items, level, deadline);
    let (present, level) = Box::pin(asking).await?;
    let (present_count, absent_count, present_bits) = convert::bits(&present);
    let level = convert::read_level_to_proto(level).into();
    Ok(v1::ContainsResponse { present_count, absent_count, present_bits, level })
}
