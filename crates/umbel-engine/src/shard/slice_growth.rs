//! How slices grow: scalable ones by levels, RedisBloom's by links, quotient filters by doubling their
//! quotients.
//!
//! A slice grows while an entry is applied, depending only on the slice and the entry, so that all replicas
//! grow alike: the entry states how many bytes the slice may take
//! ([`InsertPart`](super::command::InsertPart)).

use umbel_codec::FrameView;
use umbel_filter::{
    AnyFilter, Contains, CreateError, Describe, FilterLevel, Insert, InsertError, Insertion,
    ItemHash, Quotient, QuotientGrowError, RedisBloom, RedisBloomLink, Scalable, Shape,
};

use super::part_error::PartError;
use super::slice::{Slice, refused, stop};
use super::slice_shape::level_bytes;
use crate::ids::FilterId;
use crate::limits::SLICE_BYTES_MAX;
use crate::shard::PartResult;

impl Slice {
    /// Bytes that the slice took when it was created.
    pub(super) fn planned_bytes(&self) -> u64 {
        match &*self.filter {
            AnyFilter::Scalable(filter) => filter
                .levels()
                .first()
                .map_or(0, |level| level.filter().block_shape().memory_bytes()),
            AnyFilter::RedisBloom(filter) => {
                filter.links().first().map_or(0, |link| link.shape().memory_bytes())
            }
            // The slice was created with this shape, so it is valid.
            filter => self.spec.shape.memory_bytes(filter.shape().range()).unwrap_or(0),
        }
    }

    /// Bytes beyond the initial size that a growing slice takes after this many more items, limited by the
    /// largest slice. None if it need not grow, or cannot.
    pub(super) fn growth_with(&self, item_count: u64) -> Option<u64> {
        let room = self.filter.room()?;
        if room >= item_count {
            return None;
        }
        let bytes = match &*self.filter {
            AnyFilter::Scalable(filter) => levels_with(filter, room, item_count),
            AnyFilter::Quotient(filter) => growth_with(filter, item_count),
            AnyFilter::RedisBloom(filter) => links_with(filter, room, item_count),
            _ => None,
        };
        Some(bytes? - self.planned_bytes())
    }
}

/// Bytes of a scalable slice with room for this many more items, given the newest level's free room.
fn levels_with(filter: &Scalable, mut room: u64, item_count: u64) -> Option<u64> {
    let (shape, mut bytes) = (filter.scalable_shape(), memory_of(filter));
    for level in u32::try_from(filter.levels().len()).ok()?.. {
        let (capacity, blocks) = shape.level(level).ok()?;
        bytes = bytes.saturating_add(blocks.memory_bytes());
        room = room.saturating_add(capacity);
        // A slice above the limit is refused for its size, whatever a quota allows.
        if bytes > SLICE_BYTES_MAX {
            return None;
        }
        if room >= item_count {
            break;
        }
    }
    Some(bytes)
}

/// Like `levels_with`, for a chain of links.
fn links_with(filter: &RedisBloom, mut room: u64, item_count: u64) -> Option<u64> {
    let (shape, mut bytes) = (filter.redis_bloom_shape(), filter.memory_bytes());
    let mut link = u32::try_from(filter.links().len()).ok()?;
    while room < item_count {
        let next = shape.link(link).ok()?;
        bytes = bytes.saturating_add(next.memory_bytes());
        room = room.saturating_add(next.capacity());
        link += 1;
        // A slice above the limit is refused for its size, whatever a quota allows.
        if bytes > SLICE_BYTES_MAX {
            return None;
        }
    }
    Some(bytes)
}

/// Bytes of a quotient filter planned for this many more items, or of the largest one that it can grow to.
/// An upper bound: some of the items may be present.
fn growth_with(filter: &Quotient, item_count: u64) -> Option<u64> {
    let items = filter.taken_count().saturating_add(item_count);
    let mut bytes = None;
    for shape in filter.block_shape().growths().skip(1) {
        if shape.memory_bytes() > SLICE_BYTES_MAX {
            break;
        }
        bytes = Some(shape.memory_bytes());
        if shape.quotient_capacity() >= items {
            break;
        }
    }
    bytes
}

/// Inserts all items or none. Doubles the quotients if there is no room for the items, or if they exceed
/// what the filter is planned for, as long as the slice stays within its limit.
pub(super) fn insert_quotient(
    id: FilterId,
    filter: &mut Quotient,
    hashes: &[ItemHash],
    outcomes: &mut Vec<Insertion>,
    slice_bytes_max: u64,
) -> PartResult<()> {
    match filter.insert_all(hashes, outcomes) {
        Err(InsertError::Full { item_count }) => {
            // The error also counts those that were taken out again.
            let held = filter.taken_count();
            let full = |why: String| PartError::Full {
                filter: id,
                what: format!(
                    "its slice holds {held} items, has no room for these, and does not \
                     grow: {why}; remove some, or create it for more"
                ),
            };
            let items = item_count.saturating_add(hashes.len() as u64);
            let mut grown = grown_for_items(filter, items, slice_bytes_max).map_err(full)?;
            while let Err(error) = grown.insert_all(hashes, outcomes) {
                let InsertError::Full { .. } = error else { return Err(refused(error)) };
                grown = grown_for_items(&grown, items, slice_bytes_max).map_err(full)?;
            }
            *filter = grown;
        }
        inserted => inserted.map_err(refused)?,
    }
    grow_to_plan(filter, slice_bytes_max);
    Ok(())
}

/// Doubles the quotients until the filter is planned for its contents, as long as the slice stays within
/// its limit.
pub(super) fn grow_to_plan(filter: &mut Quotient, slice_bytes_max: u64) {
    while filter.taken_count() > filter.block_shape().quotient_capacity()
        && let Ok(grown) = grown_within(filter, slice_bytes_max)
    {
        *filter = grown;
    }
}

/// The filter with twice the quotients, or the reason why it does not grow. It does not grow if it is
/// planned for `items` or more: a filter that is full with fewer was filled at one place with chosen items,
/// and would grow as often as it can.
pub(super) fn grown_for_items(
    filter: &Quotient,
    items: u64,
    slice_bytes_max: u64,
) -> Result<Quotient, String> {
    let capacity = filter.block_shape().quotient_capacity();
    if items <= capacity {
        return Err(format!(
            "it is made for {capacity}, and only one place of it is full, as with chosen items"
        ));
    }
    grown_within(filter, slice_bytes_max)
}

/// The filter with twice the quotients, or the reason why it cannot grow.
pub(super) fn grown_within(filter: &Quotient, slice_bytes_max: u64) -> Result<Quotient, String> {
    let growth_error = |error: QuotientGrowError| match error {
        QuotientGrowError::NoRemainder => "its remainders are used up".to_owned(),
        QuotientGrowError::Create(CreateError::OutOfMemory { bytes }) => stop(bytes),
        error => error.to_string(),
    };
    let slice_bytes = filter.block_shape().grown().map_err(growth_error)?.memory_bytes();
    if slice_bytes > slice_bytes_max {
        return Err(format!(
            "it would take {slice_bytes} bytes, expected at most {slice_bytes_max}"
        ));
    }
    filter.grown().map_err(growth_error)
}

/// A quotient filter, grown as often as the filter to which the frame belongs. None for other kinds, and if
/// it has grown that often already.
pub(super) fn grown_for(
    filter: &AnyFilter,
    frame: &FrameView<'_>,
) -> PartResult<Option<AnyFilter>> {
    let (AnyFilter::Quotient(filter), Shape::Blocks(part)) = (filter, frame.shape()) else {
        return Ok(None);
    };
    let Some(times) = filter.block_shape().growths_to(part).filter(|&times| times > 0) else {
        return Ok(None);
    };
    let bad = |what: String| PartError::BadFrame { what };
    let mut grown = grown_within(filter, SLICE_BYTES_MAX).map_err(bad)?;
    for _ in 1..times {
        grown = grown_within(&grown, SLICE_BYTES_MAX).map_err(bad)?;
    }
    Ok(Some(grown.into()))
}

/// Inserts until the newest level is full, and opens the next level only if the slice stays within its
/// limit.
pub(super) fn insert_scalable(
    id: FilterId,
    filter: &mut Scalable,
    hashes: &[ItemHash],
    outcomes: &mut Vec<Insertion>,
    slice_bytes_max: u64,
) -> PartResult<()> {
    let mut rest = hashes;
    let mut batch = Vec::new();
    while let Some(&next) = rest.first() {
        let newest = filter.levels().last();
        let room = newest.map_or(0, |level| level.capacity().saturating_sub(level.item_count()));
        if room == 0 && !filter.contains(next) {
            check_growth(id, filter, slice_bytes_max)?;
        }
        let count = usize::try_from(room).unwrap_or(usize::MAX).clamp(1, rest.len());
        let (now, later) = rest.split_at(count);
        filter.insert_batch(now, &mut batch).map_err(refused)?;
        outcomes.append(&mut batch);
        rest = later;
    }
    Ok(())
}

pub(super) fn check_growth(
    id: FilterId,
    filter: &Scalable,
    slice_bytes_max: u64,
) -> PartResult<()> {
    let full = |what: String| PartError::Full { filter: id, what };
    let level = u32::try_from(filter.levels().len()).unwrap_or(u32::MAX);
    let next =
        level_bytes(filter.scalable_shape(), level).map_err(|error| full(error.to_string()))?;
    let slice_bytes = memory_of(filter).saturating_add(next);
    if slice_bytes > slice_bytes_max {
        return Err(full(format!(
            "its slice would take {slice_bytes} bytes, expected at most {slice_bytes_max}"
        )));
    }
    Ok(())
}

/// Inserts item by item, and opens the next link only if the slice stays within its limit.
pub(super) fn insert_redis_bloom(
    id: FilterId,
    filter: &mut RedisBloom,
    hashes: &[ItemHash],
    outcomes: &mut Vec<Insertion>,
    slice_bytes_max: u64,
) -> PartResult<()> {
    let is_full = |link: &RedisBloomLink| link.item_count() >= link.shape().capacity();
    for &hash in hashes {
        if filter.links().last().is_none_or(is_full) && !filter.contains(hash) {
            check_link(id, filter, slice_bytes_max)?;
        }
        outcomes.push(filter.insert(hash).map_err(refused)?);
    }
    Ok(())
}

/// Refuses to open the next link if the chain is fixed, has no such link, or would be too large.
pub(super) fn check_link(
    id: FilterId,
    filter: &RedisBloom,
    slice_bytes_max: u64,
) -> PartResult<()> {
    let full = |what: String| PartError::Full { filter: id, what };
    let shape = filter.redis_bloom_shape();
    if shape.is_fixed() {
        let items = filter.item_count();
        return Err(full(format!("it has the {items} items that it was made for, and is fixed")));
    }
    let link = u32::try_from(filter.links().len()).unwrap_or(u32::MAX);
    let next = shape.link(link).map_err(|error| full(error.to_string()))?;
    let slice_bytes = filter.memory_bytes().saturating_add(next.memory_bytes());
    if slice_bytes > slice_bytes_max {
        return Err(full(format!(
            "it would take {slice_bytes} bytes, expected at most {slice_bytes_max}"
        )));
    }
    Ok(())
}

/// Items taken by the levels of a scalable filter or the links of a RedisBloom chain; 0 for other kinds.
pub(super) fn level_items(filter: &AnyFilter) -> u64 {
    match filter {
        AnyFilter::Scalable(filter) => filter.levels().iter().map(FilterLevel::item_count).sum(),
        AnyFilter::RedisBloom(filter) => filter.item_count(),
        _ => 0,
    }
}

/// Refuses a frame that starts a level or link that the filter does not have yet and has no room for.
pub(super) fn check_opening(
    id: FilterId,
    filter: &AnyFilter,
    frame: &FrameView<'_>,
) -> PartResult<()> {
    let opens = |count: usize| frame.level().is_some_and(|level| level.level as usize >= count);
    match filter {
        AnyFilter::Scalable(filter) if opens(filter.levels().len()) => {
            check_growth(id, filter, SLICE_BYTES_MAX)
        }
        AnyFilter::RedisBloom(filter) if opens(filter.links().len()) => {
            check_link(id, filter, SLICE_BYTES_MAX)
        }
        _ => Ok(()),
    }
}

pub(super) fn memory_of(filter: &Scalable) -> u64 {
    filter.levels().iter().map(|level| level.filter().block_shape().memory_bytes()).sum()
}

#[cfg(test)]
mod tests {
    use umbel_filter::{Contains, HashRange, Insert, Insertion, ItemHasher, Scalable};

    use super::*;

    /// Batches that cross levels give the same result as inserting item by item, until the next level would
    /// exceed the limit; then exactly the items before are present.
    #[test]
    fn a_scalable_slice_stops_at_its_limit() {
        let hash = |number: u64| ItemHasher::Xxh3 { seed: 5 }.hash(&number.to_le_bytes());
        let items: Vec<ItemHash> = (0..2_000).map(|number| hash(number % 1_500)).collect();
        let new = || Scalable::new(HashRange::WHOLE, 10, 0.01).unwrap();
        let (mut twin, mut slice, mut outcomes) = (new(), new(), Vec::new());
        insert_scalable(FilterId(1), &mut slice, &items, &mut outcomes, 1 << 20).unwrap();
        let expected: Vec<Insertion> =
            items.iter().map(|&hash| twin.insert(hash).unwrap()).collect();
        assert_eq!((outcomes, &slice), (expected, &twin));

        let (mut slice, mut outcomes) = (new(), Vec::new());
        let refused = insert_scalable(FilterId(1), &mut slice, &items, &mut outcomes, 1_000);
        assert!(matches!(refused, Err(PartError::Full { .. })));
        assert!(memory_of(&slice) <= 1_000 && !outcomes.is_empty());
        assert!(items[..outcomes.len()].iter().all(|&hash| slice.contains(hash)));
        assert!(!slice.contains(items[outcomes.len()]));
    }
}
