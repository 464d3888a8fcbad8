//! A filter that frames are merged into.

use umbel_filter::{
    Aging, AnyFilter, BlockShape, Blocked, Classic, Counting, Cuckoo, Merge, Partitioned, Quotient,
    RedisBloom, Scalable, Shape, ShapeMismatch, SingleShot, SingleShotShape, Stable,
    StoredSingleShot, Window, each_filter,
};

/// A filter to merge frames into; every kind converts into it. Scalable filters, and RedisBloom's, do not merge: their
/// frames are loaded level by level.
///
/// ```
/// use umbel_codec::FilterMut;
/// use umbel_filter::{Blocked, HashRange};
///
/// let mut filter = Blocked::new(HashRange::WHOLE, 16, 6)?;
/// let _ = FilterMut::from(&mut filter);
/// # Ok::<(), umbel_filter::CreateError>(())
/// ```
#[derive(Debug)]
pub struct FilterMut<'a>(pub(super) Receiver<'a>);

#[derive(Debug)]
pub(super) enum Receiver<'a> {
    /// Apart from the other arrays, because insertions need the filter's lane sets.
    Blocked(&'a mut Blocked),
    Array(BlockShape, &'a mut [u64]),
    SingleShot(&'a mut SingleShot),
    Stored(&'a mut StoredSingleShot),
    Scalable(&'a mut Scalable),
    RedisBloom(&'a mut RedisBloom),
    Window(&'a mut Window),
    Cuckoo(&'a mut Cuckoo),
    Quotient(&'a mut Quotient),
    /// A filter that forgets by what comes, and what it has counted.
    Paced(BlockShape, &'a mut [u64], &'a mut [u64; 2]),
}

/// Converts filters of these types, each by the same expression.
macro_rules! from_filters {
    ($($kind:ty),* => |$filter:ident| $receiver:expr) => {$(
        impl<'a> From<&'a mut $kind> for FilterMut<'a> {
            fn from($filter: &'a mut $kind) -> Self {
                Self($receiver)
            }
        }
    )*};
}

from_filters!(Blocked => |filter| Receiver::Blocked(filter));
from_filters!(SingleShot => |filter| Receiver::SingleShot(filter));
from_filters!(StoredSingleShot => |filter| Receiver::Stored(filter));
from_filters!(Scalable => |filter| Receiver::Scalable(filter));
from_filters!(RedisBloom => |filter| Receiver::RedisBloom(filter));
from_filters!(Window => |filter| Receiver::Window(filter));
from_filters!(Cuckoo => |filter| Receiver::Cuckoo(filter));
from_filters!(Quotient => |filter| Receiver::Quotient(filter));
from_filters!(
    Classic, Partitioned, Counting => |filter| Receiver::Array(filter.block_shape(), filter.words_mut())
);
from_filters!(Aging, Stable => |filter| {
    let shape = filter.block_shape();
    let (words, counts) = filter.parts_mut();
    Receiver::Paced(shape, words, counts)
});

impl<'a> From<&'a mut AnyFilter> for FilterMut<'a> {
    fn from(filter: &'a mut AnyFilter) -> Self {
        each_filter!(filter, filter => filter.into())
    }
}

impl Receiver<'_> {
    pub(super) fn shape(&self) -> Shape {
        match self {
            Self::Blocked(filter) => filter.block_shape().into(),
            Self::Array(shape, _) | Self::Paced(shape, ..) => (*shape).into(),
            Self::SingleShot(filter) => filter.shape().into(),
            Self::Stored(filter) => filter.single_shot_shape().into(),
            Self::Scalable(filter) => filter.scalable_shape().into(),
            Self::RedisBloom(filter) => filter.redis_bloom_shape().into(),
            Self::Window(filter) => filter.block_shape().into(),
            Self::Cuckoo(filter) => filter.block_shape().into(),
            Self::Quotient(filter) => filter.block_shape().into(),
        }
    }

    /// The words of the blocks that a part has.
    pub(super) fn words_of(&mut self, part: BlockShape) -> Result<&mut [u64], ShapeMismatch> {
        let mismatch = ShapeMismatch { ours: self.shape(), theirs: part.into() };
        let (ours, words) = match self {
            Self::Blocked(filter) => (filter.block_shape(), filter.words_mut()),
            Self::Array(shape, words) | Self::Paced(shape, words, _) => (*shape, &mut **words),
            _ => return Err(mismatch),
        };
        let offset = ours.offset_of(part).ok_or(mismatch)?;
        let block_words = ours.memory_bytes() / ours.map().len() / 8;
        let from = usize::try_from(offset * block_words).ok();
        let len = usize::try_from(part.map().len() * block_words).ok();
        let slice = from.zip(len).and_then(|(from, len)| words.get_mut(from..)?.get_mut(..len));
        Ok(slice.expect("a filter has the words of its shape"))
    }

    /// Checks that a part of this shape, which begins where its filter does, has our positions.
    pub(super) fn check_positions(&self, part: SingleShotShape) -> Result<(), ShapeMismatch> {
        match self.shape() {
            Shape::SingleShot(ours)
                if ours.position_count() == part.position_count()
                    && ours.range().start() == part.range().start()
                    && ours.range().last() >= part.range().last() =>
            {
                Ok(())
            }
            ours => Err(ShapeMismatch { ours, theirs: part.into() }),
        }
    }

    /// Merges positions that strictly increase and exist in the filter.
    pub(super) fn merge_positions(&mut self, positions: impl ExactSizeIterator<Item = u64>) -> u64 {
        let valid = "positions strictly increase and lie below the part's width";
        let alike = "the part was made with our shape";
        match self {
            Self::SingleShot(filter) => {
                let part = SingleShot::from_positions(filter.shape(), positions.collect());
                filter.merge(&part.expect(valid)).expect(alike)
            }
            Self::Stored(filter) => {
                let shape = filter.single_shot_shape();
                let part = StoredSingleShot::from_positions(shape, positions).expect(valid);
                filter.merge(&part).expect(alike)
            }
            _ => unreachable!("only single-shot filters have the shape of one"),
        }
    }
}
