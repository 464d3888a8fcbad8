//! Aging Bloom filter: the items that were inserted last, in two generations, of which the older
//! one is dropped.
//!
//! Two blocked filters ([`Blocked`](crate::Blocked)) of which queries read both and the newer one takes
//! the inserts (active-active buffering, Yoon 2010, doi:10.1109/TKDE.2009.136). An item that is inserted
//! again while only the older one has it is present, and is added to the newer one as well. When the
//! newer one has taken c items, the next item that it lacks turns it into the older one, and the former
//! older one is dropped. The *pace* is the c of a filter over the whole hash space, and one over a range
//! has its [share](HashRange::share_of):
//!
//! ```text
//! items          1 … c      c + 1 … 2c    2c + 1 … 3c
//! newer          │ 1 … c │  │ c+1 … 2c │  │ 2c+1 … 3c │
//! older                     │ 1 … c    │  │ c+1 … 2c  │        1 … c is gone
//! ```
//!
//! *Law.* After its insert, an item is present at least until c different other items were
//! inserted; after 2·c + 1 new ones it is absent, but for false positives. So the filter needs no
//! clock and no reserve, is never full, and after a burst of inserts it only remembers less of the
//! past.
//!
//! *Rate.* An item that was not inserted is present if it is in one of the two, 1 − (1 − p₁)·(1 −
//! p₂) by the blocked rates of what each has taken: at most what was planned, however many items
//! come ([`aging_generation_rate`](crate::sizing::aging_generation_rate)).
//!
//! *Layout.* A block is two neighbouring cache lines, which processors fetch as one pair: bits of an
//! item in the newer generation, then in the older. So a hash range is a slice of the array, and a
//! change of generations is one pass that moves each first line into the second.
//!
//! *Equal histories, equal bits.* What an insert changes depends on the filter's content alone, so
//! replicas that insert the same items in the same order are equal.

use crate::bits::{BitArray, Line, scalar, wide};
use crate::capability::{Describe, Description, InsertError, Insertion, ItemByItem, item_by_item};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::lanes::LaneSets;
use crate::range::HashRange;
use crate::shape::{AGING_BLOCK_BITS, BlockShape, CreateError, LINE_BITS, Shape};
use crate::sizing;

#[cfg(test)]
mod aging_test;
mod join;

/// Cache lines of a block.
const BLOCK_LINES: usize = 2;

/// Words of a block, and of a line of it.
const BLOCK_WORDS: usize = (AGING_BLOCK_BITS / 64) as usize;
const GENERATION_WORDS: usize = BLOCK_WORDS / BLOCK_LINES;

/// How many items ahead of the current one a batch prefetches: as counting filters do.
const PREFETCH_DISTANCE: usize = 16;

/// An aging filter over a hash range.
///
/// An insert of a present item adds it to the newer generation, where it begins to age again.
///
/// ```
/// use umbel_filter::{Aging, Contains, HashRange, Insert, Insertion, ItemHasher};
///
/// let hasher = ItemHasher::Xxh3 { seed: 7 };
/// let item = |number: u32| hasher.hash(&number.to_le_bytes());
/// let mut lately = Aging::for_rate(HashRange::WHOLE, 1_000, 1e-5)?;
/// assert_eq!(lately.insert(item(0))?, Insertion::New);
/// (1..2_000).try_for_each(|number| lately.insert(item(number)).map(drop))?;
/// assert!(lately.contains(item(0))); // In the older generation, with 999 others.
/// lately.insert(item(2_000))?;
/// assert!(!lately.contains(item(0)) && lately.contains(item(1_000)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Aging {
    shape: BlockShape,
    sets: LaneSets,
    bits: BitArray,
    /// Items that the newer generation took, and those of the older.
    counts: [u64; 2],
}

impl Aging {
    /// The smallest empty filter that keeps the last `item_count` different items of the range at least,
    /// and errs at this `false_positive_rate` at most, however many come.
    ///
    /// # Errors
    /// If there are no items, no filter of this kind has such a rate, or there is no memory.
    pub fn for_rate(
        range: HashRange,
        item_count: u64,
        false_positive_rate: f64,
    ) -> Result<Self, CreateError> {
        let kind = Kind::Aging;
        Self::with_shape(BlockShape::for_rate(kind, range, item_count, false_positive_rate)?)
    }

    /// An empty filter of this shape.
    ///
    /// # Errors
    /// If the shape is another kind's or has no pace, or there is no memory.
    pub fn with_shape(shape: BlockShape) -> Result<Self, CreateError> {
        shape.check_kind(Kind::Aging)?;
        // Refuses a pace of 0.
        let shape = shape.with_pace(shape.pace())?;
        let bits = BitArray::new(shape.memory_bytes() / 64)?;
        Ok(Self { shape, sets: LaneSets::new(shape.probe_count()), bits, counts: [0; 2] })
    }

    /// The filter's shape, whose pace is the number of new items of a generation over the whole hash space.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.shape
    }

    /// Number of items that the newer generation took, and of those that the older one took while it was the newer.
    /// Items in both generations are in both numbers. A part of another filter has a share of that filter's numbers,
    /// by the width of its hash range.
    #[must_use]
    pub const fn counts(&self) -> [u64; 2] {
        self.counts
    }

    /// The blocks' bits, 16 words a block, from the range's first block on: 8 words of the newer
    /// generation as in [`Blocked::words`](crate::Blocked::words), then 8 of the older.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.bits.words()
    }

    /// The same and the counts, to be overwritten by those of a copy of the filter.
    pub fn parts_mut(&mut self) -> (&mut [u64], &mut [u64; 2]) {
        (self.bits.words_mut(), &mut self.counts)
    }

    /// Whether the item is in the newer generation: then an insert would change nothing.
    #[must_use]
    pub fn is_newest(&self, hash: ItemHash) -> bool {
        self.shape.range().contains(hash.hi()) && {
            let [newer, _] = self.block(hash);
            wide::contains(newer, &self.sets, scalar::probe_seed(hash))
        }
    }

    /// Drops the older generation and begins a new one, as an insert does when the newer one is full.
    pub fn turn(&mut self) {
        for block in self.bits.lines_mut().chunks_exact_mut(BLOCK_LINES) {
            block[1] = std::mem::take(&mut block[0]);
        }
        self.counts = [0, self.counts[0]];
    }

    /// Takes all items out.
    pub fn clear(&mut self) {
        self.bits.words_mut().fill(0);
        self.counts = [0; 2];
    }

    /// Size and load, given the number of positions that are set in either generation.
    pub(crate) fn describe_counted(&self, one_count: u64) -> Description {
        let (shape, probe_count) = (self.shape, self.shape.probe_count());
        let position_count = shape.map().len() * u64::from(LINE_BITS);
        Description {
            shape: shape.into(),
            memory_bytes: shape.memory_bytes(),
            position_count,
            one_count,
            item_count: sizing::item_count_estimate(position_count, probe_count, one_count).ok(),
            false_positive_rate: shape.aging_false_positive_rate(self.counts),
        }
    }

    #[inline]
    fn block(&self, hash: ItemHash) -> [&Line; BLOCK_LINES] {
        let at = scalar::line_of(self.shape.map(), hash) * BLOCK_LINES;
        let lines = &self.bits.lines()[at..at + BLOCK_LINES];
        [&lines[0], &lines[1]]
    }

    /// Whether an item of the range is in the newer and in the older generation.
    #[inline]
    fn generations_with(&self, hash: ItemHash) -> [bool; 2] {
        let seed = scalar::probe_seed(hash);
        self.block(hash).map(|line| wide::contains(line, &self.sets, seed))
    }
}

/// How many positions are set in either generation, in words of whole blocks.
pub(crate) fn occupied_count(words: &[u64]) -> u64 {
    let either = |block: &[u64]| {
        let (newer, older) = block.split_at(GENERATION_WORDS);
        newer
            .iter()
            .zip(older)
            .map(|(one, other)| u64::from((one | other).count_ones()))
            .sum::<u64>()
    };
    words.chunks_exact(BLOCK_WORDS).map(either).sum()
}

impl ItemByItem for Aging {
    #[inline]
    fn range(&self) -> HashRange {
        self.shape.range()
    }

    #[inline]
    fn has(&self, hash: ItemHash) -> bool {
        self.generations_with(hash).contains(&true)
    }

    fn put(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        let [is_newer, is_older] = self.generations_with(hash);
        if is_newer {
            return Ok(Insertion::Present);
        }
        if self.counts[0] >= self.shape.range().share_of(self.shape.pace()) {
            self.turn();
        }
        let at = scalar::line_of(self.shape.map(), hash) * BLOCK_LINES;
        let newer = &mut self.bits.lines_mut()[at];
        wide::insert(newer, &self.sets, scalar::probe_seed(hash));
        self.counts[0] += 1;
        Ok(if is_older { Insertion::Present } else { Insertion::New })
    }

    /// Prefetches the block of the item that is [`PREFETCH_DISTANCE`] after `at`.
    #[inline]
    fn prefetch_ahead(&self, hashes: &[ItemHash], at: usize, _inserts: bool) {
        if wide::is_far(self.bits.lines())
            && let Some(&ahead) = hashes.get(at + PREFETCH_DISTANCE)
        {
            let line = scalar::line_of(self.shape.map(), ahead) * BLOCK_LINES;
            wide::prefetch_far(self.bits.lines(), line);
            wide::prefetch_far(self.bits.lines(), line + 1);
        }
    }
}

item_by_item!(Aging);

impl Describe for Aging {
    fn shape(&self) -> Shape {
        self.shape.into()
    }

    fn describe(&self) -> Description {
        self.describe_counted(occupied_count(self.words()))
    }
}
