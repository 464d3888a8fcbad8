//! Scalable Bloom filter: a chain of blocked filters, for items whose number nobody knows before.
//!
//! A level holds a fixed number of items; the next item opens the next level, which is larger and
//! errs more rarely. An item is present if any level has it, so a query errs with at most the sum
//! of the levels' rates, and these are terms of a series with a bounded sum (Almeida, Baquero,
//! Preguiça & Hutchison 2007, doi:10.1016/j.ipl.2006.10.007; [`sizing::scalable_level`] has the
//! terms).
//!
//! ```text
//! level 0  ████      full: it took as many new items as it has capacity
//! level 1  ████████  full
//! level 2  █████▁▁▁▁▁▁▁▁▁▁▁   takes the new items
//! ```
//!
//! *Invariant.* No level takes more than its capacity of new items, and only the last one takes
//! any. So the rate of all levels stays below the one that was asked for, however many
//! items come, but for a part of another filter, whose levels may have more than their share of what the whole had:
//! there they err as much more often; and but for two parts that were joined, which may have taken more together
//! than one filter would have. *New* is what no level called present: an item that is there already, or that a
//! level takes for present by mistake, sets no bit and fills nothing. A level opens when the last one is
//! full; that of a filter which was a part of another one may be closed before, because the other parts of
//! the level were fuller than this.
//!
//! *Ranges.* Every level is an array over the whole hash space, as [`Blocked`](crate::Blocked) is, of which a filter over
//! a hash range has a slice. So the shape names the items of the first level *over the whole space*, and a level has
//! room for the range's [share](HashRange::share_of) of them.
//!
//! A new item sets at least one bit where any other may set none, so a full level's rate is not p
//! but up to p · (1 + p); errors that several levels share outweigh that.
//!
//! There is no merge. The union of two filters may hold more items than any of its levels has
//! capacity for, and then nothing bounds its rate; [`from_levels`](Scalable::from_levels) would
//! refuse it.

use thiserror::Error;

use crate::blocked::Blocked;
use crate::capability::{
    Contains, Describe, Description, Insert, InsertError, Insertion, check_all_in_range,
    check_in_range,
};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::range::HashRange;
use crate::scalable_shape::ScalableShape;
use crate::shape::{BlockShape, CreateError, LINE_BITS, Shape};
use crate::sizing::{self, Estimate};

mod counts;
mod join;
mod load;
mod part;
#[cfg(test)]
mod scalable_test;

/// Items for which a batch queries every level before it inserts them: enough to overlap the
/// accesses to memory, few enough that their blocks are still in cache when they are inserted.
const CHUNK_ITEM_COUNT: usize = 512;

/// How much higher than its share the rate of a level may be that came from elsewhere: logarithms of
/// two platforms may differ in the last digit, and with them a level's size by a block.
const RATE_SLACK: f64 = 1e-3;

/// A filter over a hash range that grows.
///
/// ```
/// use umbel_filter::{Contains, HashRange, Insert, ItemHasher, Scalable};
///
/// let hasher = ItemHasher::Xxh3 { seed: 7 };
/// let mut seen = Scalable::new(HashRange::WHOLE, 100, 0.01)?;
/// for number in 0..10_000u32 {
///     seen.insert(hasher.hash(&number.to_le_bytes()))?;
/// }
/// assert!((0..10_000u32).all(|number| seen.contains(hasher.hash(&number.to_le_bytes()))));
/// assert_eq!(seen.levels()[0].item_count(), 100);
/// let errors = (10_000..20_000u32)
///     .filter(|number| seen.contains(hasher.hash(&number.to_le_bytes())))
///     .count();
/// assert!(errors <= 120, "{errors} of 10,000, where 100 are expected at most");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Scalable {
    shape: ScalableShape,
    /// At least one. New items go into the last.
    levels: Vec<FilterLevel>,
}

/// One filter of the chain.
///
/// ```
/// use umbel_filter::{HashRange, Insert, ItemHash, Scalable};
///
/// let mut seen = Scalable::new(HashRange::WHOLE, 2, 0.01)?;
/// for number in 1..=3 {
///     seen.insert(ItemHash::new(number << 60, number << 32))?;
/// }
/// // Two fill the first level; the third opens the next one, of twice the size.
/// let [first, second] = seen.levels() else { panic!("two levels") };
/// assert_eq!((first.item_count(), first.capacity()), (2, 2));
/// assert_eq!((second.item_count(), second.capacity()), (1, 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct FilterLevel {
    filter: Blocked,
    capacity: u64,
    /// Items that the level is made for over the whole hash space.
    whole_capacity: u64,
    item_count: u64,
}

/// The parts are no scalable filter. Refuse the message that they came in, or fix the caller.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum LevelsError {
    /// A scalable filter has a first level from the start.
    #[error("no levels, expected at least one")]
    None,
    /// No level of such a number exists: there are too many.
    #[error("no scalable filter of this shape has a level {level}")]
    Create {
        /// Number of the level, from 0 on.
        level: u32,
        /// Why there is none.
        #[source]
        source: CreateError,
    },
    /// Levels are loaded in their order: load the missing one first.
    #[error("level {level} before level {missing}")]
    Missing {
        /// Number of the level, from 0 on.
        level: u32,
        /// Number of the first one that is not there.
        missing: u32,
    },
    /// The level's filter holds another hash range than the chain.
    #[error(
        "level {level} covers hashes {} to {}, expected {} to {}",
        got.start(), got.last(), expected.start(), expected.last()
    )]
    Range {
        /// Number of the level, from 0 on.
        level: u32,
        /// Hash range of the filter that came.
        got: HashRange,
        /// Hash range of the chain.
        expected: HashRange,
    },
    /// The level's filter is too small for the level's share of the rate.
    #[error("level {level} errs at {got} when it is full, expected at most {expected}")]
    Rate {
        /// Number of the level, from 0 on.
        level: u32,
        /// Rate of the filter that came, at the level's capacity.
        got: f64,
        /// The level's share of the rate.
        expected: f64,
    },
    /// A level holds no more than it is made for over the whole hash space, all of which may be in a part, or than
    /// its bits are of at least, and the same number of items in each part of a copy.
    #[error("level {level} has {item_count} items, expected {least} to {capacity}")]
    ItemCount {
        /// Number of the level, from 0 on.
        level: u32,
        /// The count that came.
        item_count: u64,
        /// Least number that it may have: 0, or what an earlier part said.
        least: u64,
        /// Largest one: what the level is made for over the whole hash space, what its bits are of at least, or what an
        /// earlier part said.
        capacity: u64,
    },
    /// A new item sets at least one bit and at most k, so the count is wrong or the bits are.
    #[error(
        "level {level} has {one_count} ones, expected {item_count} to {probe_count} times that"
    )]
    OneCount {
        /// Number of the level, from 0 on.
        level: u32,
        /// Number of the filter's set bits.
        one_count: u64,
        /// The count that came.
        item_count: u64,
        /// Probes an item, k.
        probe_count: u32,
    },
}

impl FilterLevel {
    /// The level's items.
    #[must_use]
    pub const fn filter(&self) -> &Blocked {
        &self.filter
    }

    /// Number of new items that the level may take: the range's [share](HashRange::share_of) of those that
    /// it is made for over the whole hash space.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Number of new items that it took, at most its capacity; in a part of another filter, what it is taken to have
    /// of the level's, and in a join of two those of both.
    #[must_use]
    pub const fn item_count(&self) -> u64 {
        self.item_count
    }

    /// The empty level of this number.
    fn new(shape: ScalableShape, level: u32) -> Result<Self, CreateError> {
        let (capacity, block_shape) = shape.level(level)?;
        let whole_capacity = shape.whole_capacity(level)?;
        let filter = Blocked::with_shape(block_shape)?;
        Ok(Self { filter, capacity, whole_capacity, item_count: 0 })
    }

    /// Checks a level that came from elsewhere.
    fn from_parts(
        shape: ScalableShape,
        level: u32,
        filter: Blocked,
        item_count: u64,
    ) -> Result<Self, LevelsError> {
        let create = |source| LevelsError::Create { level, source };
        let size =
            sizing::scalable_level(shape.first_capacity(), shape.false_positive_rate(), level)
                .map_err(|source| create(source.into()))?;
        let (whole_capacity, expected) = (size.capacity, size.false_positive_rate);
        let capacity = shape.range().share_of(whole_capacity);
        let got = filter.block_shape();
        if got.range() != shape.range() {
            return Err(LevelsError::Range { level, got: got.range(), expected: shape.range() });
        }
        // Of the whole level, of which this is a slice: a share that is rounded up to the next item may err
        // a little more often, where it is of few.
        let (blocks, probes) = (got.map().block_count(), got.probe_count());
        let rate = sizing::blocked_false_positive_rate(blocks, probes, whole_capacity)
            .map_err(|source| create(source.into()))?;
        if rate > expected * (1.0 + RATE_SLACK) {
            return Err(LevelsError::Rate { level, got: rate, expected });
        }
        // Any level may have fewer than its capacity, or more: that of a part of another filter was closed when the
        // whole was full, with what was in the part by then.
        let (one_count, probe_count) = (filter.describe().one_count, got.probe_count());
        let proven = counts::least_of(one_count, &filter);
        let most = whole_capacity.max(proven);
        if item_count > most {
            return Err(LevelsError::ItemCount { level, item_count, least: 0, capacity: most });
        }
        if item_count < proven || item_count > one_count {
            return Err(LevelsError::OneCount { level, one_count, item_count, probe_count });
        }
        Ok(Self { filter, capacity, whole_capacity, item_count })
    }
}

impl ScalableShape {
    /// Number of items of the range that a level is made for, and the shape of its blocked filter, whose
    /// number of blocks is that of the whole hash space; levels count from 0 on.
    ///
    /// ```
    /// use umbel_filter::{HashRange, ScalableShape};
    ///
    /// let shape = ScalableShape::new(HashRange::WHOLE, 1_000, 0.01)?;
    /// let (capacity, level) = shape.level(1)?;
    /// assert_eq!(capacity, 2_000);
    /// // A quarter of the rate of all: half of what the first level has.
    /// assert!(level.false_positive_rate(capacity) <= 0.0025);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If no filter has such a level.
    pub fn level(self, level: u32) -> Result<(u64, BlockShape), CreateError> {
        let (first_capacity, rate) = (self.first_capacity(), self.false_positive_rate());
        let size = sizing::scalable_level(first_capacity, rate, level)?;
        let (whole, range) = (size.capacity, self.range());
        let blocks = sizing::blocked_block_count(whole, size.false_positive_rate)?;
        let (block_count, probe_count) = (blocks.block_count, blocks.probe_count);
        let shape = BlockShape::new(Kind::Blocked, range, block_count, LINE_BITS, probe_count)?;
        Ok((range.share_of(whole), shape))
    }

    /// Number of items that a level is made for over the whole hash space.
    fn whole_capacity(self, level: u32) -> Result<u64, CreateError> {
        let (first_capacity, rate) = (self.first_capacity(), self.false_positive_rate());
        Ok(sizing::scalable_level(first_capacity, rate, level)?.capacity)
    }
}

impl Scalable {
    /// An empty filter whose first level is made for `first_capacity` items over the whole hash space, of
    /// which the range has its [share](HashRange::share_of), and whose levels together keep
    /// `false_positive_rate` as bound.
    ///
    /// ```
    /// use umbel_filter::{HashRange, Scalable};
    ///
    /// let quarter = HashRange::new(1 << 62, 1 << 63)?;
    /// let seen = Scalable::new(quarter, 1_000, 0.01)?;
    /// assert_eq!(seen.levels()[0].capacity(), 250);
    /// // To make it for 1,000 items of the range itself:
    /// let seen = Scalable::new(quarter, quarter.whole_of(1_000), 0.01)?;
    /// assert_eq!(seen.levels()[0].capacity(), 1_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such first level, or no memory for it.
    pub fn new(
        range: HashRange,
        first_capacity: u64,
        false_positive_rate: f64,
    ) -> Result<Self, CreateError> {
        let shape = ScalableShape::new(range, first_capacity, false_positive_rate)?;
        Ok(Self { shape, levels: vec![FilterLevel::new(shape, 0)?] })
    }

    /// The filter of these levels, first to last: each a blocked filter with the number of new
    /// items that it took, as [`levels`](Self::levels) lists them.
    ///
    /// # Errors
    /// If there are none, one has another range or a higher rate, or a count is above what the level is made for over
    /// the whole hash space and what its filter's ones prove, or does not fit these.
    pub fn from_levels(
        shape: ScalableShape,
        levels: Vec<(Blocked, u64)>,
    ) -> Result<Self, LevelsError> {
        if levels.is_empty() {
            return Err(LevelsError::None);
        }
        let levels = (0..).zip(levels).map(|(level, (filter, item_count))| {
            FilterLevel::from_parts(shape, level, filter, item_count)
        });
        Ok(Self { shape, levels: levels.collect::<Result<_, _>>()? })
    }

    /// The levels, first to last: at least one, of which the last takes what is new.
    #[must_use]
    pub fn levels(&self) -> &[FilterLevel] {
        &self.levels
    }

    /// The words of a level's filter, for repairs of corrupted memory; None if there is no such level.
    /// Bits beyond those that inserts set only make the filter err more often; a bit that is cleared
    /// forgets its items.
    pub fn level_words_mut(&mut self, level: usize) -> Option<&mut [u64]> {
        Some(self.levels.get_mut(level)?.filter.words_mut())
    }

    /// Sets how many new items a level took, for repairs. False, and nothing was changed, if there is
    /// no such level or it has room for fewer.
    pub fn set_level_item_count(&mut self, level: usize, item_count: u64) -> bool {
        match self.levels.get_mut(level) {
            Some(level) if item_count <= counts::most(level.whole_capacity, &level.filter) => {
                level.item_count = item_count;
                true
            }
            _ => false,
        }
    }

    /// The filter's shape.
    #[must_use]
    pub const fn scalable_shape(&self) -> ScalableShape {
        self.shape
    }

    /// Takes all items out. The first level stays, empty; the memory of the others is freed.
    ///
    /// ```
    /// use umbel_filter::{Contains, HashRange, Insert, ItemHash, Scalable};
    ///
    /// let mut seen = Scalable::new(HashRange::WHOLE, 1, 0.01)?;
    /// seen.insert(ItemHash::new(1 << 60, 5))?;
    /// seen.insert(ItemHash::new(9 << 60, 7))?;
    /// seen.clear();
    /// assert_eq!(seen.levels().len(), 1);
    /// assert!(!seen.contains(ItemHash::new(1 << 60, 5)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&mut self) {
        self.levels.truncate(1);
        for level in &mut self.levels {
            level.filter.words_mut().fill(0);
            level.item_count = 0;
        }
    }

    /// Inserts an item of the range that no level before this one has.
    fn insert_above(
        &mut self,
        hash: ItemHash,
        first_level: usize,
    ) -> Result<Insertion, InsertError> {
        if self.levels[first_level..].iter().rev().any(|level| level.filter.contains(hash)) {
            return Ok(Insertion::Present);
        }
        if self.newest().item_count >= self.newest().capacity {
            let number = u32::try_from(self.levels.len()).expect("sizes limit the levels to a few");
            let level = FilterLevel::new(self.shape, number).map_err(InsertError::Grow)?;
            self.levels.push(level);
        }
        let newest = self.levels.last_mut().expect("there is always a level");
        newest.filter.insert(hash)?;
        newest.item_count += 1;
        Ok(Insertion::New)
    }

    fn newest(&self) -> &FilterLevel {
        self.levels.last().expect("there is always a level")
    }

    /// One answer a hash. The newest level is the largest, so it is asked first, and every older
    /// one only about what the newer ones do not have.
    fn ask(&self, hashes: &[ItemHash], present: &mut Vec<bool>, open: &mut Open) {
        self.newest().filter.contains_batch(hashes, present);
        for older in self.levels.iter().rev().skip(1) {
            open.fill(hashes, present);
            older.filter.contains_batch(&open.hashes, &mut open.present);
            for (&place, &is_present) in open.places.iter().zip(&open.present) {
                present[place] = is_present;
            }
        }
    }
}

/// The items of a chunk that no level had so far.
#[derive(Default)]
struct Open {
    hashes: Vec<ItemHash>,
    /// Where in the chunk each stands.
    places: Vec<usize>,
    present: Vec<bool>,
}

impl Open {
    fn fill(&mut self, hashes: &[ItemHash], present: &[bool]) {
        self.hashes.clear();
        self.places.clear();
        for (place, &hash) in hashes.iter().enumerate() {
            if !present[place] {
                self.hashes.push(hash);
                self.places.push(place);
            }
        }
    }
}

impl Contains for Scalable {
    fn contains(&self, hash: ItemHash) -> bool {
        self.levels.iter().rev().any(|level| level.filter.contains(hash))
    }

    fn contains_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        present.clear();
        let (mut answers, mut open) = (Vec::new(), Open::default());
        for chunk in hashes.chunks(CHUNK_ITEM_COUNT) {
            self.ask(chunk, &mut answers, &mut open);
            present.extend_from_slice(&answers);
        }
    }
}

/// A new item that finds the newest level full opens the next one first. If that fails, nothing was
/// changed, and the filter goes on answering.
impl Insert for Scalable {
    fn insert(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        check_in_range(self.shape.range(), hash)?;
        self.insert_above(hash, 0)
    }

    fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        outcomes.clear();
        check_all_in_range(self.shape.range(), hashes)?;
        let (mut present, mut open) = (Vec::new(), Open::default());
        for chunk in hashes.chunks(CHUNK_ITEM_COUNT) {
            self.ask(chunk, &mut present, &mut open);
            // Of the levels that just answered, the chunk itself changes only the newest.
            let first_level = self.levels.len() - 1;
            for (&hash, &is_present) in chunk.iter().zip(&present) {
                outcomes.push(if is_present {
                    Insertion::Present
                } else {
                    self.insert_above(hash, first_level)?
                });
            }
        }
        Ok(())
    }
}

impl Scalable {
    /// Size and load of a filter whose levels have so many ones each.
    pub(crate) fn describe_counted(&self, one_counts: impl Iterator<Item = u64>) -> Description {
        let mut sum = Description {
            shape: self.shape.into(),
            memory_bytes: 0,
            position_count: 0,
            one_count: 0,
            item_count: None,
            false_positive_rate: 0.0,
        };
        let mut item_count = 0;
        for (level, one_count) in self.levels.iter().zip(one_counts) {
            let one = level.filter.block_shape().describe(one_count);
            sum.memory_bytes += one.memory_bytes;
            sum.position_count += one.position_count;
            sum.one_count += one.one_count;
            item_count += level.item_count;
            // 1 − (1 − p)(1 − q), written so that small rates keep their digits.
            sum.false_positive_rate += one.false_positive_rate * (1.0 - sum.false_positive_rate);
        }
        sum.item_count = Some(Estimate { item_count: item_count as f64, standard_error: 0.0 });
        sum
    }
}

/// Items are counted, not estimated: `item_count` is the number of items that were called new, with
/// standard error 0. What was called present by mistake is missing in it, on average at most the
/// false-positive rate's share of all items.
impl Describe for Scalable {
    fn shape(&self) -> Shape {
        self.shape.into()
    }

    fn describe(&self) -> Description {
        self.describe_counted(self.levels.iter().map(|level| level.filter.describe().one_count))
    }
}
