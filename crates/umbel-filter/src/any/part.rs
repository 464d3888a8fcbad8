//! The filter of a part of a filter's hash range.

use thiserror::Error;

use super::AnyFilter;
use crate::aging::Aging;
use crate::block_array;
use crate::blocked::Blocked;
use crate::capability::Describe;
use crate::classic::Classic;
use crate::counting::Counting;
use crate::cuckoo::Cuckoo;
use crate::kind::Kind;
use crate::partitioned::Partitioned;
use crate::quotient::QuotientSliceError;
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError};
use crate::stable::Stable;
use crate::window::Window;

/// Why there is no such part of a filter.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum FilterPartError {
    /// Name a range inside the filter's.
    #[error(
        "hashes {} to {} of a filter over hashes {} to {}",
        part.start(), part.last(), whole.start(), whole.last()
    )]
    Range {
        /// The range that was asked for.
        part: HashRange,
        /// That of the filter.
        whole: HashRange,
    },
    /// The kind is whole in one place: copy it as it is.
    #[error("a {kind} filter has no parts by hash range")]
    Unsupported {
        /// The filter's kind.
        kind: Kind,
    },
    /// Free memory, or name a smaller part.
    #[error(transparent)]
    Create(#[from] CreateError),
}

impl AnyFilter {
    /// The filter of a part of the hash range, of the same shape over the whole hash space and with the same
    /// positions: an item of the part is in it if it is in this one, and its memory is its share of this one's,
    /// within a block at each border.
    ///
    /// *Borders.* A block that a border divides is copied to the parts on both sides, with what it has of the
    /// neighbour's items. They do no harm: a question of the part meets the same positions as before, and a
    /// table's block is as full as it was. But they stay, where no insert drives them out: in a cuckoo filter they
    /// take slots, and count as items, until it is cleared. Cut where blocks begin
    /// ([`BlockMap::range_of_blocks`](crate::BlockMap::range_of_blocks)), parts share nothing. Quotient filters know
    /// the place of each item, and leave the neighbour's out.
    ///
    /// *Counts.* Of what a filter has counted over its whole range, a part is taken to have its share by width,
    /// rounded so that the counts of parts that tile the range sum to it: of two halves of 5 the lower has 2, the
    /// upper 3. So it is with the items of an aging filter's generations, and with those of a scalable filter's levels
    /// as far as the level's bits can be of so many items. Parts of a part may have other counts than those of the
    /// whole, of an aging filter by one at most. A stable filter goes on counting inserts from where it is: their
    /// number decides only which cells are lowered next. Windows, cuckoo and quotient filters count what is in their
    /// blocks.
    ///
    /// ```
    /// use umbel_filter::{AnyFilter, Blocked, Contains, Describe, HashRange, Insert, ItemHash};
    ///
    /// let (low, high) = (ItemHash::new(1 << 60, 7), ItemHash::new(3 << 62, 7));
    /// let mut filter = AnyFilter::from(Blocked::new(HashRange::WHOLE, 16, 6)?);
    /// filter.insert(low)?;
    /// filter.insert(high)?;
    /// let upper = filter.part(HashRange::new(1 << 63, 1 << 64)?)?;
    /// assert!(upper.contains(high) && !upper.contains(low));
    /// // Eight of the sixteen blocks, with six bits.
    /// let described = upper.describe();
    /// assert_eq!((described.memory_bytes, described.one_count), (8 * 64, 6));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the range leaves the filter's, the kind is whole in one place as RedisBloom's is, or there is no memory.
    pub fn part(&self, range: HashRange) -> Result<Self, FilterPartError> {
        let whole = self.shape().range();
        let out = FilterPartError::Range { part: range, whole };
        if !whole.covers(range) {
            return Err(out);
        }
        let part = match self {
            Self::SingleShot(filter) => Ok(filter.part(range).map_err(CreateError::from)?.into()),
            Self::Blocked(filter) => {
                let load = |part: &mut Blocked, words: &[u64]| fill(part.words_mut(), words);
                copied(filter.block_shape(), filter.words(), range, Blocked::with_shape, load)
            }
            Self::Classic(filter) => {
                let load = |part: &mut Classic, words: &[u64]| fill(part.words_mut(), words);
                copied(filter.block_shape(), filter.words(), range, Classic::with_shape, load)
            }
            Self::Partitioned(filter) => {
                let load = |part: &mut Partitioned, words: &[u64]| fill(part.words_mut(), words);
                copied(filter.block_shape(), filter.words(), range, Partitioned::with_shape, load)
            }
            Self::Counting(filter) => {
                let load = |part: &mut Counting, words: &[u64]| fill(part.words_mut(), words);
                copied(filter.block_shape(), filter.words(), range, Counting::with_shape, load)
            }
            Self::Scalable(filter) => Ok(filter.part(range)?.into()),
            Self::Window(filter) => part_of_window(filter, range),
            Self::Aging(filter) => part_of_aging(filter, range),
            Self::Stable(filter) => part_of_stable(filter, range),
            Self::Cuckoo(filter) => {
                let load =
                    |part: &mut Cuckoo, words: &[u64]| part.rewrite(|ours| fill(ours, words));
                copied(filter.block_shape(), filter.words(), range, Cuckoo::with_shape, load)
            }
            Self::Quotient(filter) => match filter.slice(range) {
                Ok(part) => Ok(part.into()),
                Err(QuotientSliceError::Create(error)) => Err(error),
                Err(QuotientSliceError::Shape(_)) => return Err(out),
            },
            Self::RedisBloom(_) => return Err(FilterPartError::Unsupported { kind: self.kind() }),
        };
        Ok(part?)
    }
}

/// A filter of the blocks of a part of a range, which are among the words of the whole.
fn copied<F: Into<AnyFilter>>(
    shape: BlockShape,
    words: &[u64],
    range: HashRange,
    with_shape: impl FnOnce(BlockShape) -> Result<F, CreateError>,
    load: impl FnOnce(&mut F, &[u64]),
) -> Result<AnyFilter, CreateError> {
    let (shape, words) = block_array::part_of(shape, words, range)?;
    let mut part = with_shape(shape)?;
    load(&mut part, words);
    Ok(part.into())
}

fn part_of_window(filter: &Window, range: HashRange) -> Result<AnyFilter, CreateError> {
    let load = |part: &mut Window, words: &[u64]| {
        part.advance(filter.oldest(), filter.newest());
        part.rewrite(|ours| fill(ours, words));
    };
    copied(filter.block_shape(), filter.words(), range, Window::with_shape, load)
}

fn part_of_aging(filter: &Aging, range: HashRange) -> Result<AnyFilter, CreateError> {
    let whole = filter.block_shape().range();
    let load = |part: &mut Aging, words: &[u64]| {
        let (ours, counts) = part.parts_mut();
        fill(ours, words);
        *counts = filter.counts().map(|count| whole.cut_count(range, count));
    };
    copied(filter.block_shape(), filter.words(), range, Aging::with_shape, load)
}

/// It goes on counting from where the whole is: no number of an insert comes twice.
fn part_of_stable(filter: &Stable, range: HashRange) -> Result<AnyFilter, CreateError> {
    let load = |part: &mut Stable, words: &[u64]| {
        let (ours, counts) = part.parts_mut();
        fill(ours, words);
        *counts = filter.counts();
    };
    copied(filter.block_shape(), filter.words(), range, Stable::with_shape, load)
}

fn fill(ours: &mut [u64], words: &[u64]) {
    ours.copy_from_slice(words);
}
