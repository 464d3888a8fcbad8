//! How many items a level may have, by what it is made for and by its bits.
//!
//! A new item sets at least one bit and at most k, so a level with x ones has ⌈x/k⌉ to x items. It is made for c items
//! over the whole hash space, all of which may be in a part of it. Parts round their capacities up, and where few
//! items are in one of them it takes as many as if all parts had so few: a level that was joined of two may have more
//! than c, but then only as many as its bits prove.

use crate::blocked::Blocked;
use crate::capability::Describe;

/// The least and the most items of a level with these bits that is made for so many.
pub(super) fn bounds(whole_capacity: u64, filter: &Blocked) -> (u64, u64) {
    let one_count = filter.describe().one_count;
    let least = least_of(one_count, filter);
    (least, whole_capacity.max(least).min(one_count))
}

/// The most items of a level that is made for so many, with whatever bits.
pub(super) fn most(whole_capacity: u64, filter: &Blocked) -> u64 {
    whole_capacity.max(least_of(filter.block_shape().position_count(), filter))
}

/// The least items that set so many bits.
pub(super) fn least_of(one_count: u64, filter: &Blocked) -> u64 {
    one_count.div_ceil(filter.block_shape().probe_count().into())
}
