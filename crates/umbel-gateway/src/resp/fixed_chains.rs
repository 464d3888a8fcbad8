//! Inserts into chains of RedisBloom's that do not grow.
//!
//! A shard answers a batch as a whole: if one of its items finds no room, those before it have been added, but
//! their answers are lost. RedisBloom lists them before the error. Items are therefore sent in batches that have
//! room, as far as this can be known: other requests may fill the filter in the meantime.

use bytes::Bytes;
use tokio::time::Instant;
use umbel_engine::limits::REQUEST_ITEMS_MAX;
use umbel_engine::meta::{FilterName, MetaState};
use umbel_engine::shard::SliceShape;
use umbel_filter::Kind;
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;
use umbel_resp::NewBloom;

use super::filters::unless_busy;
use super::packed::Packed;
use super::session::Session;

/// How many of the first items to insert as one batch, at least 1: as many as a chain that does not grow has room
/// for, and then the one for which it has none. As many as a batch may have for all other filters.
pub(super) async fn fitting_count(
    session: &Session,
    name: &FilterName,
    new: Option<NewBloom>,
    items: &Packed,
    deadline: Instant,
) -> usize {
    let count = items.lengths.len().min(REQUEST_ITEMS_MAX);
    if count <= 1 {
        return count;
    }
    let Some(room) = room(session, name, new, deadline).await else { return count };
    if count as u64 <= room {
        return count;
    }
    let batch = first_of(items, count);
    let coordinator = &session.shared.coordinator;
    let found =
        unless_busy(deadline, || coordinator.contains(name.as_str(), &batch, None, deadline));
    let present: Vec<bool> = match found.await {
        Ok((present, _)) => present.iter().collect(),
        Err(CallFailure::UnknownFilter { .. }) => vec![false; count],
        // The insert tells why.
        Err(_) => return count,
    };
    fitting(&present, room)
}

/// How many of the first items have room together, at least 1: items that are present need none.
fn fitting(present: &[bool], room: u64) -> usize {
    let mut absent_count = 0;
    let have_room = present.iter().take_while(|&&is_present| {
        absent_count += u64::from(!is_present);
        absent_count <= room
    });
    have_room.count().max(1)
}

/// How many new items a chain that does not grow has room for, also one that the command creates; None for all
/// other filters, and if it is not known.
async fn room(
    session: &Session,
    name: &FilterName,
    new: Option<NewBloom>,
    deadline: Instant,
) -> Option<u64> {
    let coordinator = &session.shared.coordinator;
    let shape = |state: &MetaState| {
        let (_, record) = state.filter_by_name(name.as_str())?;
        Some(match record.settings.shape {
            SliceShape::RedisBloom { first_capacity, is_fixed: true, .. } => Some(first_capacity),
            _ => None,
        })
    };
    let Some(capacity) = coordinator.read_meta(shape).ok()? else {
        let makes_chains = session.shared.default_kind == Kind::RedisBloom;
        let new = new.filter(|new| makes_chains && new.expansion == 0);
        return new.map(|new| new.capacity);
    };
    let capacity = capacity?;
    let info = unless_busy(deadline, || coordinator.info(name, deadline)).await.ok()?;
    Some(capacity.saturating_sub(info.load().new_count))
}

/// The first `count` items.
fn first_of(items: &Packed, count: usize) -> ItemBatch {
    let lengths: Vec<u32> = items.lengths.iter().take(count).copied().collect();
    let byte_count: usize = lengths.iter().map(|&length| length as usize).sum();
    let data = items.data.get(..byte_count).unwrap_or_default();
    ItemBatch::packed(Bytes::copy_from_slice(data), lengths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn present_items_need_no_room() {
        let present = [true, false, true, false, true, false];
        for (room, count) in [(0, 1), (1, 3), (2, 5), (3, 6), (9, 6)] {
            assert_eq!(fitting(&present, room), count, "room for {room}");
        }
        // The item that finds no room is sent alone, for its own answer.
        assert_eq!(fitting(&[false, true], 0), 1);
    }

    #[test]
    fn the_first_items_are_copied() {
        let items = Packed { data: b"abbccc".to_vec(), lengths: vec![1, 2, 3] };
        let batch = first_of(&items, 2);
        assert_eq!((batch.len(), batch.byte_count()), (2, 3));
    }
}
