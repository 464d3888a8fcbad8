//! Inserts of items and questions about them, as calls of their own and as requests of a stream.

use std::sync::Arc;

use prost::Message;
use tokio::time::Instant;
use umbel_coordinator::Coordinator;
use umbel_engine::limits::REQUEST_ITEMS_MAX;
use umbel_engine::meta::FilterVerb;
use umbel_proto::v1;

use super::budget::{Budget, BudgetShare, no_room};
use super::caller::Caller;
use super::convert;
use super::errors::Result;
use super::limits::ITEM_MEMORY_BYTES;

/// Bytes of a hash on the wire.
const HASH_BYTES: usize = 16;

/// Memory that the items of a request take until it is answered, whatever bytes they have.
pub(super) fn memory_bytes(items: &v1::Items) -> usize {
    let v1::Items { items: listed, packed, hashes, hash_seed: _ } = items;
    let packed_count = packed.as_ref().map_or(0, |packed| packed.item_bytes.len());
    let count = listed.len() + packed_count + hashes.len() / HASH_BYTES;
    // More are refused before anything is done with them.
    count.min(REQUEST_ITEMS_MAX) * ITEM_MEMORY_BYTES
}

/// That memory, beyond the items' bytes on the wire, which the budget counts as they arrive.
fn bytes_beside(items: &v1::Items) -> u64 {
    memory_bytes(items).saturating_sub(items.encoded_len()) as u64
}

/// Holds that memory until the call ends.
///
/// # Errors
/// If the budget has no room for it.
pub(super) fn hold(budget: &Arc<Budget>, items: Option<&v1::Items>) -> Result<Option<BudgetShare>> {
    match items.map_or(0, bytes_beside) {
        0 => Ok(None),
        byte_count => budget.hold(byte_count).map(Some).map_err(|_| no_room()),
    }
}

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
    let level = convert::ack_level(level)?;
    // Boxed, because its future is large, and callers move theirs several times before it begins.
    let inserting = coordinator.insert_of(filter.as_str(), &items, request, level, at_ms, deadline);
    let inserted = Box::pin(inserting).await;
    let (new, level) = inserted.map_err(|failure| failure.of_filter(filter.as_str()))?;
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
    let asked = Box::pin(asking).await;
    let (present, level) = asked.map_err(|failure| failure.of_filter(filter.as_str()))?;
    let (present_count, absent_count, present_bits) = convert::bits(&present);
    let level = convert::read_level_to_proto(level).into();
    Ok(v1::ContainsResponse { present_count, absent_count, present_bits, level })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use umbel_node::failure::CallFailure;

    use super::*;

    fn packed(item_bytes: u32, count: usize) -> v1::Items {
        let data = vec![7; item_bytes as usize * count].into();
        let packed = v1::PackedItems { data, item_bytes: vec![item_bytes; count] };
        v1::Items { packed: Some(packed), ..v1::Items::default() }
    }

    #[test]
    fn short_items_count_with_the_memory_that_they_take() {
        let listed = |item: &'static [u8], count| v1::Items {
            items: vec![Bytes::from_static(item); count],
            ..v1::Items::default()
        };
        let hashes = v1::Items { hashes: vec![0; 16 * 1000].into(), ..v1::Items::default() };
        for items in [listed(b"", 1000), listed(b"item", 1000), packed(0, 1000), hashes] {
            assert_eq!(memory_bytes(&items), 1000 * 64);
            let on_wire = items.encoded_len() as u64;
            assert_eq!(bytes_beside(&items) + on_wire, 1000 * 64, "{on_wire} bytes");
        }
        // Long ones are in the memory that they came in.
        for items in [listed(&[7; 64], 1000), packed(100, 1000), v1::Items::default()] {
            assert_eq!(bytes_beside(&items), 0);
        }
        // Not what is refused: with one item more than a request may have, there would be no other answer.
        let most = bytes_beside(&packed(0, REQUEST_ITEMS_MAX));
        assert!(bytes_beside(&packed(0, 8 * REQUEST_ITEMS_MAX)) < most);
    }

    /// Of 16,384 empty items, 16 KiB come and a mebibyte is taken.
    #[test]
    fn requests_of_short_items_find_no_room_at_some_number() {
        let budget = Budget::new(4 << 20);
        let items = packed(0, 1 << 14);
        let held: Vec<_> = (0..4).map(|_| hold(&budget, Some(&items)).ok()).collect();
        assert!(held.iter().all(|held| matches!(held, Some(Some(_)))));
        assert!(matches!(hold(&budget, Some(&items)), Err(CallFailure::Overloaded { .. })));
        assert!(matches!(hold(&budget, Some(&packed(100, 10))), Ok(None)));
        assert!(matches!(hold(&budget, None), Ok(None)));
        drop(held);
        assert!(hold(&budget, Some(&items)).is_ok());
    }
}
