//! The filter of two neighbouring hash ranges, of the filters of both.

use super::AnyFilter;
use crate::block_array;
use crate::blocked::Blocked;
use crate::capability::Describe;
use crate::classic::Classic;
use crate::counting::Counting;
use crate::join_error::FilterJoinError;
use crate::partitioned::Partitioned;
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, ShapeMismatch};

impl AnyFilter {
    /// The filter over this one's hash range and that of its upper neighbour: what [`part`](Self::part) cut, in one
    /// again, also when both have gone on since. It contains what either contains, and takes the memory of a filter that
    /// was created for both ranges.
    ///
    /// *The divided block.* Where the border lies inside a block, both have one, with what the whole had in it when it was
    /// cut. Nobody can tell that from what came since, so that nothing goes missing only if it is taken to be different:
    ///
    /// | kind | of two copies of a block |
    /// |---|---|
    /// | single-shot, blocked, classic, partitioned, scalable, aging | OR |
    /// | counting | the sum of two counters, at most 15 |
    /// | stable | the larger of two cells |
    /// | window | each fingerprint once, in the later of its slices |
    /// | cuckoo | each fingerprint as often as in both, at most seven times |
    /// | quotient | each position once, with the copies of both, at most 2^v; only that of the border itself is in both |
    ///
    /// The larger of two counters would be too few where both were raised since, and a removal would then make another
    /// item absent. The sum counts twice what was there before the cut, so that a copy of it stays behind its removal; in a
    /// cuckoo filter it takes slots, and a block that was more than half full when it was cut has no room for it. Cut where
    /// blocks begin ([`BlockMap::range_of_blocks`](crate::BlockMap::range_of_blocks)), parts share nothing, and join to
    /// exactly what they were.
    ///
    /// *Counts* add up. Those of a scalable filter's levels are moved to the nearest that the level's bits can be of; a level
    /// that one of the two has not opened is empty there. It may have more than it was made for, as both parts' capacities
    /// are rounded up. Of quotient filters one may have grown more often: the joined one is grown as often.
    ///
    /// *Clocks.* A stable filter goes on with the larger number of inserts, which neither has used. A window has the
    /// newest slice of both and the oldest of those with items, so that what the one that lags behind still has stays until
    /// the next [`advance`](crate::Window::advance); slices that are too far apart to be told from one another end. Who
    /// does not want them back advances both to one time before. An aging filter's newer generation is of both newer
    /// ones, and its older of both older ones. It turns when the one that is *less* far would have, because what is in
    /// the older generation would else go before its time; what the other was ahead is in the newer generation in excess
    /// of its count, and lets it err more often until it is dropped.
    ///
    /// ```
    /// use umbel_filter::{AnyFilter, Blocked, Contains, Describe, HashRange, Insert, ItemHash};
    ///
    /// let whole = AnyFilter::from(Blocked::new(HashRange::WHOLE, 16, 6)?);
    /// let mut lower = whole.part(HashRange::new(0, 1 << 63)?)?;
    /// let mut upper = whole.part(HashRange::new(1 << 63, 1 << 64)?)?;
    /// let (low, high) = (ItemHash::new(1 << 60, 7), ItemHash::new(3 << 62, 7));
    /// lower.insert(low)?;
    /// upper.insert(high)?;
    /// let joined = lower.join(&upper)?;
    /// assert!(joined.contains(low) && joined.contains(high));
    /// // Eight blocks of each, with six bits.
    /// let described = joined.describe();
    /// assert_eq!((described.memory_bytes, described.one_count), (16 * 64, 12));
    /// assert!(upper.join(&lower).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the ranges are no neighbours in this order, the shapes differ in more than the range, a block has no room for
    /// what both filters have in it, the kind is whole in one place as RedisBloom's is, or there is no memory.
    pub fn join(&self, upper: &Self) -> Result<Self, FilterJoinError> {
        let kind = self.kind();
        if kind.is_whole() {
            return Err(FilterJoinError::Unsupported { kind });
        }
        let shapes = [self.shape(), upper.shape()];
        let range = union_of(shapes.map(crate::shape::Shape::range))?;
        Ok(match (self, upper) {
            (Self::SingleShot(lower), Self::SingleShot(upper)) => lower.join(upper, range)?.into(),
            (Self::Blocked(lower), Self::Blocked(upper)) => {
                let blocks = [lower.block_shape(), upper.block_shape()];
                merged([lower, upper], blocks, range, Blocked::with_shape, Blocked::merge_part)?
            }
            (Self::Classic(lower), Self::Classic(upper)) => {
                let blocks = [lower.block_shape(), upper.block_shape()];
                merged([lower, upper], blocks, range, Classic::with_shape, Classic::merge_part)?
            }
            (Self::Partitioned(lower), Self::Partitioned(upper)) => {
                let blocks = [lower.block_shape(), upper.block_shape()];
                let merge_part = Partitioned::merge_part;
                merged([lower, upper], blocks, range, Partitioned::with_shape, merge_part)?
            }
            (Self::Counting(lower), Self::Counting(upper)) => {
                let blocks = [lower.block_shape(), upper.block_shape()];
                merged([lower, upper], blocks, range, Counting::with_shape, Counting::merge_part)?
            }
            (Self::Scalable(lower), Self::Scalable(upper)) => lower.join(upper, range)?.into(),
            (Self::Window(lower), Self::Window(upper)) => lower.join(upper, range)?.into(),
            (Self::Aging(lower), Self::Aging(upper)) => lower.join(upper, range)?.into(),
            (Self::Stable(lower), Self::Stable(upper)) => lower.join(upper, range)?.into(),
            (Self::Cuckoo(lower), Self::Cuckoo(upper)) => lower.join(upper, range)?.into(),
            (Self::Quotient(lower), Self::Quotient(upper)) => lower.join(upper, range)?.into(),
            _ => {
                let [ours, theirs] = shapes;
                return Err(ShapeMismatch { ours, theirs }.into());
            }
        })
    }
}

/// The range of two that are neighbours.
fn union_of([lower, upper]: [HashRange; 2]) -> Result<HashRange, FilterJoinError> {
    let is_next = lower.end() == u128::from(upper.start());
    let union = HashRange::new(lower.start(), upper.end()).ok().filter(|_| is_next);
    union.ok_or(FilterJoinError::Ranges { lower, upper })
}

/// An empty filter of both ranges, into which both are merged.
fn merged<F: Into<AnyFilter>>(
    parts: [&F; 2],
    shapes: [BlockShape; 2],
    range: HashRange,
    with_shape: impl FnOnce(BlockShape) -> Result<F, CreateError>,
    merge_part: impl Fn(&mut F, &F) -> Result<u64, ShapeMismatch>,
) -> Result<AnyFilter, FilterJoinError> {
    let mut whole = with_shape(block_array::union_of(shapes, range)?)?;
    for part in parts {
        merge_part(&mut whole, part)?;
    }
    Ok(whole.into())
}
