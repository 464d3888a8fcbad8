//! Limits the size of copies that grow with their items.

use umbel_engine::FilterId;
use umbel_engine::limits::REPLICATED_BYTES_MAX;
use umbel_engine::shard::single_shot_bytes;
use umbel_filter::AnyFilter;

use super::super::failure::CopyFailure;
use crate::cube::Result;

/// Refuses to grow a single-shot copy that is larger than copies may be, or would be with `more` positions. Copies
/// of all other kinds have all of their memory from the start.
///
/// What other nodes insert comes later, and is not refused: they have this limit too, so that a copy is somewhat
/// above it at most, and is still sent whole and read after a restart.
pub(super) fn room_for(id: FilterId, filter: &AnyFilter, more: u64) -> Result<()> {
    let AnyFilter::SingleShot(filter) = filter else { return Ok(()) };
    let bytes = single_shot_bytes(filter, more);
    if bytes <= REPLICATED_BYTES_MAX {
        return Ok(());
    }
    let positions = filter.len().saturating_add(more);
    let what = format!(
        "its copy of {positions} positions takes {bytes} bytes, expected at most {REPLICATED_BYTES_MAX}; nothing \
         was inserted"
    );
    Err(CopyFailure::Full { filter: id, what })
}

#[cfg(test)]
mod tests {
    use umbel_engine::shard::SliceShape;
    use umbel_filter::{CellCount, Insert, ItemHash, Kind};

    use super::*;

    #[test]
    fn a_copy_that_grows_has_a_limit() {
        let id = FilterId(7);
        let shape = SliceShape::SingleShot { position_count: 1 << 40 };
        let mut filter = shape.create_copy().unwrap();
        filter.insert(ItemHash::new(1, 2)).unwrap();
        // 2^29 positions with gaps of 2^11: 15 bits each, together less than 2^30 bytes.
        assert_eq!(room_for(id, &filter, (1 << 29) - 1), Ok(()));
        let refused = room_for(id, &filter, 1 << 31).unwrap_err().to_string();
        assert!(refused.contains("its copy of 2147483649 positions"), "{refused}");
        for kind in Kind::ALL.into_iter().filter(|&kind| kind != Kind::SingleShot) {
            let Ok(shape) = SliceShape::plan(kind, 100, 0.01, CellCount::new(1).unwrap()) else {
                continue;
            };
            if let Ok(filter) = shape.create_copy() {
                assert_eq!(room_for(id, &filter, u64::MAX), Ok(()), "{kind}");
            }
        }
    }
}
