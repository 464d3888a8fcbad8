//! Counting Bloom filter: a 4-bit counter in place of each bit, so that items can be taken out.
//!
//! An insert raises the counters on the item's k positions, a removal lowers them, and an item is
//! present if none of them is 0 (Fan, Cao, Almeida & Broder 2000, doi:10.1109/90.851975). Positions
//! are those of the blocked filter of equal numbers ([`Blocked`]), so both contain the same items
//! at four times the memory. No two positions of an item are equal: it raises no counter twice.
//!
//! Position p of a block has nibble p mod 16 of word ⌊p / 16⌋, and a block's 32 words are four
//! neighbouring cache lines. The 64 positions of a word of the blocked filter are four words here:
//!
//! ```text
//! line       0           1           2           3
//! word       0 …      7  8 …     15  16 …    23  24 …    31
//! position   0 …    127  128 …  255  256 …  383  384 …  511
//!
//! word 0     bits 0–3: position 0   4–7: 1   8–11: 2   …   60–63: 15
//! ```
//!
//! *Sticky maximum.* A counter that reached 15 has perhaps missed a raise, so it is never lowered
//! again and no removal makes another item absent. The price: such a position stays set for ever.
//!
//! *How often.* Any one of n items raises a given counter with probability k/m, blocks or not, so
//! at most m · (e·k·n / (15·m))^15 of m counters are expected to reach 15. At the design load,
//! k·n/m ≤ ln 2, that is 3.1e-14 · m; that a counter of 4 bits would overflow to 16 is Fan et al.'s
//! m · (e · ln 2 / 16)^16 = 1.4e-15 · m. This is of different items: one item that is inserted
//! fifteen times and not removed in between fills its counters alone.

use crate::bits::{BitArray, LINE_WORDS, index, scalar, wide};
use crate::block_array;
use crate::blocked::Blocked;
use crate::capability::{
    Describe, Description, InsertError, Insertion, ItemByItem, Merge, OutOfRange, Removal, Remove,
    check_in_range, item_by_item,
};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::lanes::{self, LaneSets};
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, LINE_BITS, Shape, ShapeMismatch, check_equal};

#[cfg(test)]
mod counting_test;

/// Largest value of a counter, which it never leaves again.
pub const COUNTER_MAX: u64 = 15;

/// Bits of a counter.
pub(crate) const COUNTER_BITS: u32 = 4;

/// Counters of a word.
pub(crate) const WORD_COUNTERS: u32 = 16;

/// Cache lines of a block.
pub(crate) const BLOCK_LINES: usize = 4;

/// Words of a block.
const BLOCK_WORDS: usize = BLOCK_LINES * LINE_WORDS;

/// How many items ahead of the current one a batch prefetches. Measured: 8 to 32 are equal.
const PREFETCH_DISTANCE: usize = 16;

/// The lowest bit of each counter of a word.
const ONES: u64 = 0x1111_1111_1111_1111;

/// Every other counter of a word.
const EVEN: u64 = 0x0f0f_0f0f_0f0f_0f0f;

/// A counting filter over a hash range.
///
/// An insert raises the counters of a present item too: else the first removal would take the only
/// copy away. An item that was inserted twice must be removed twice.
///
/// ```
/// use umbel_filter::{Contains, Counting, HashRange, Insert, ItemHasher, Removal, Remove};
///
/// let alice = ItemHasher::Xxh3 { seed: 7 }.hash(b"alice");
/// let mut online = Counting::for_rate(HashRange::WHOLE, 1_000, 0.01)?;
/// online.insert(alice)?;
/// online.insert(alice)?;
/// assert_eq!(online.remove(alice)?, Removal::Removed);
/// assert!(online.contains(alice)); // Inserted twice, removed once.
/// assert_eq!(online.remove(alice)?, Removal::Removed);
/// assert!(!online.contains(alice));
/// assert_eq!(online.remove(alice)?, Removal::Absent);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counting {
    shape: BlockShape,
    sets: LaneSets,
    counters: BitArray,
}

impl Counting {
    /// An empty filter of `block_count` blocks of 512 counters over the whole hash space, of which
    /// it holds those of `range`, with k = `probe_count` probes, 1 to
    /// [`BLOCK_PROBE_COUNT_MAX`](crate::BLOCK_PROBE_COUNT_MAX).
    ///
    /// # Errors
    /// If the numbers are no shape, or there is no memory.
    pub fn new(range: HashRange, block_count: u64, probe_count: u32) -> Result<Self, CreateError> {
        let shape = BlockShape::new(Kind::Counting, range, block_count, LINE_BITS, probe_count)?;
        Self::with_shape(shape)
    }

    /// The smallest empty filter that holds `item_count` items of the range at this
    /// `false_positive_rate`.
    ///
    /// # Errors
    /// If there are no items, no filter of this kind has such a rate, or there is no memory.
    pub fn for_rate(
        range: HashRange,
        item_count: u64,
        false_positive_rate: f64,
    ) -> Result<Self, CreateError> {
        let kind = Kind::Counting;
        Self::with_shape(BlockShape::for_rate(kind, range, item_count, false_positive_rate)?)
    }

    /// An empty filter of this shape.
    ///
    /// # Errors
    /// If the shape is another kind's, or there is no memory.
    pub fn with_shape(shape: BlockShape) -> Result<Self, CreateError> {
        shape.check_kind(Kind::Counting)?;
        let counters = BitArray::new(shape.memory_bytes() / 64)?;
        Ok(Self { shape, sets: LaneSets::new(shape.probe_count()), counters })
    }

    /// The blocks' counters, 32 words a block, from the range's first block on. Counter i of a
    /// block is the four bits from 4 · (i mod 16) on of its word ⌊i / 16⌋.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.counters.words()
    }

    /// The same, to be changed: a counter that is raised is never wrong, one that is lowered makes
    /// items absent.
    pub fn words_mut(&mut self) -> &mut [u64] {
        self.counters.words_mut()
    }

    /// The filter's shape.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.shape
    }

    /// The k positions whose counters an item of the range raises and lowers, ascending: counter i is the four
    /// bits from 4 · (i mod 16) on of word ⌊i / 16⌋ of [`words`](Self::words).
    ///
    /// ```
    /// use umbel_filter::{Counting, HashRange, Insert, ItemHash};
    ///
    /// let mut filter = Counting::new(HashRange::WHOLE, 10, 3)?;
    /// filter.insert(ItemHash::new(1 << 63, 2))?;
    /// let positions = filter.positions(ItemHash::new(1 << 63, 2));
    /// let counter = |at: u64| filter.words()[at as usize / 16] >> (at % 16 * 4) & 15;
    /// assert_eq!(positions.map(counter).collect::<Vec<_>>(), [1, 1, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn positions(&self, hash: ItemHash) -> impl Iterator<Item = u64> + use<> {
        block_array::positions(self.shape.map(), &self.sets, hash)
    }

    /// Adds the counters of a filter over a part of our hash range and returns how many positions
    /// it newly set.
    ///
    /// # Errors
    /// If the shapes differ in more than the range, or the part leaves our range. Nothing was
    /// changed.
    pub fn merge_part(&mut self, part: &Self) -> Result<u64, ShapeMismatch> {
        let (block, words) = (index(self.shape.part_offset(part.shape)?), part.words());
        Ok(add(&mut self.words_mut()[block * BLOCK_WORDS..][..words.len()], words))
    }

    /// The blocked filter of the same items: a bit is set where the counter is not 0.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn to_blocked(&self) -> Result<Blocked, CreateError> {
        let map = self.shape.map();
        let mut blocked = Blocked::new(map.range(), map.block_count(), self.shape.probe_count())?;
        for (bits, counters) in blocked.words_mut().iter_mut().zip(self.words().chunks_exact(4)) {
            *bits = counters.iter().rev().fold(0, |bits, &word| bits << 16 | occupied(word));
        }
        Ok(blocked)
    }

    /// Whether an item may have been inserted `count` times more often than it was removed: whether all of its
    /// counters have reached `count`, 1 to [`COUNTER_MAX`]. False is certain as long as counts are below 15. How
    /// often true is wrong, and the best k, is computed by
    /// [`counting_threshold_probes`](crate::sizing::counting_threshold_probes); because some blocks are fuller
    /// than others, true is wrong twice as often as that at t = 2 and k = 5. An item outside the range was never
    /// inserted.
    ///
    /// ```
    /// use umbel_filter::{Counting, HashRange, Insert, ItemHash};
    ///
    /// let (mut seen, hash) = (Counting::new(HashRange::WHOLE, 10, 6)?, ItemHash::new(1, 2));
    /// seen.insert(hash)?;
    /// seen.insert(hash)?;
    /// assert!(seen.contains_at_least(hash, 2) && !seen.contains_at_least(hash, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn contains_at_least(&self, hash: ItemHash, count: u64) -> bool {
        let mut positions = lanes::positions(&self.sets, scalar::probe_seed(hash));
        self.shape.range().contains(hash.hi()) && {
            let block = self.block(hash);
            positions.all(|position| counter(block, position) >= count)
        }
    }

    /// The block of an item, which must lie in the range.
    #[inline]
    fn block(&self, hash: ItemHash) -> &[u64] {
        let line = scalar::line_of(self.shape.map(), hash) * BLOCK_LINES;
        wide::words(&self.counters.lines()[line..][..BLOCK_LINES])
    }

    #[inline]
    fn block_mut(&mut self, hash: ItemHash) -> &mut [u64] {
        let line = scalar::line_of(self.shape.map(), hash) * BLOCK_LINES;
        wide::words_mut(&mut self.counters.lines_mut()[line..][..BLOCK_LINES])
    }
}

/// Word of a position in its block, and the counter's lowest bit in it.
#[inline]
pub(crate) const fn place(position: u32) -> (usize, u32) {
    ((position / WORD_COUNTERS) as usize, position % WORD_COUNTERS * COUNTER_BITS)
}

/// The counter of a position of a block.
#[inline]
pub(crate) fn counter(block: &[u64], position: u32) -> u64 {
    let (word, shift) = place(position);
    block[word] >> shift & COUNTER_MAX
}

/// The lowest bit of each counter that is not 0.
#[inline]
pub(crate) const fn ones(word: u64) -> u64 {
    (word | word >> 1 | word >> 2 | word >> 3) & ONES
}

/// How many counters of the words are not 0; a multiple of four words.
pub(crate) fn occupied_count(words: &[u64]) -> u64 {
    // Each counter has four bits, so four words fill one before it is counted.
    let four = |words: &[u64]| words.iter().fold(0, |sum, &word| sum << 1 | ones(word));
    words.chunks_exact(4).map(|words| u64::from(four(words).count_ones())).sum()
}

/// Bit i is set if counter i of the word is not 0; the upper 48 bits are zeros.
#[inline]
const fn occupied(word: u64) -> u64 {
    let ones = ones(word);
    let pairs = (ones | ones >> 3) & 0x0303_0303_0303_0303;
    let fours = (pairs | pairs >> 6) & 0x000f_000f_000f_000f;
    let eights = (fours | fours >> 12) & 0x0000_00ff_0000_00ff;
    (eights | eights >> 24) & 0xffff
}

/// The sums of two words' counters, at most 15 each.
#[inline]
const fn sum(ours: u64, theirs: u64) -> u64 {
    sum_even(ours, theirs) | sum_even(ours >> 4, theirs >> 4) << 4
}

/// The sums of every other counter. Each has a byte to carry into: bit 4 says that it passed 15.
#[inline]
const fn sum_even(ours: u64, theirs: u64) -> u64 {
    let sums = (ours & EVEN) + (theirs & EVEN);
    let beyond = sums >> 4 & (ONES & EVEN);
    (sums | (beyond * COUNTER_MAX)) & EVEN
}

/// The larger of two words' counters, each.
pub(crate) fn larger(ours: u64, theirs: u64) -> u64 {
    let counter = |at: u32| (ours & COUNTER_MAX << at).max(theirs & COUNTER_MAX << at);
    (0..WORD_COUNTERS).map(|place| counter(place * COUNTER_BITS)).fold(0, |word, next| word | next)
}

/// Adds counters to ours and returns how many of ours were 0 and are not any more.
fn add(ours: &mut [u64], theirs: &[u64]) -> u64 {
    let mut new_count = 0;
    for (ours, &theirs) in ours.iter_mut().zip(theirs) {
        new_count += u64::from((occupied(theirs) & !occupied(*ours)).count_ones());
        *ours = sum(*ours, theirs);
    }
    new_count
}

impl ItemByItem for Counting {
    #[inline]
    fn range(&self) -> HashRange {
        self.shape.range()
    }

    /// Whether no counter of an item of the range is 0.
    #[inline]
    fn has(&self, hash: ItemHash) -> bool {
        let block = self.block(hash);
        lanes::positions(&self.sets, scalar::probe_seed(hash)).all(|p| counter(block, p) > 0)
    }

    /// Raises the counters of an item of the range.
    #[inline]
    fn put(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        let positions = lanes::positions(&self.sets, scalar::probe_seed(hash));
        let block = self.block_mut(hash);
        let mut outcome = Insertion::Present;
        for position in positions {
            let counter = counter(block, position);
            if counter == 0 {
                outcome = Insertion::New;
            }
            let (word, shift) = place(position);
            block[word] += u64::from(counter < COUNTER_MAX) << shift;
        }
        Ok(outcome)
    }

    /// Prefetches the block of the item that is [`PREFETCH_DISTANCE`] after `at`.
    #[inline]
    fn prefetch_ahead(&self, hashes: &[ItemHash], at: usize, _inserts: bool) {
        if wide::is_far(self.counters.lines())
            && let Some(&ahead) = hashes.get(at + PREFETCH_DISTANCE)
        {
            let line = scalar::line_of(self.shape.map(), ahead) * BLOCK_LINES;
            for line in line..line + BLOCK_LINES {
                wide::prefetch_far(self.counters.lines(), line);
            }
        }
    }
}

item_by_item!(Counting);

impl Remove for Counting {
    fn remove(&mut self, hash: ItemHash) -> Result<Removal, OutOfRange> {
        check_in_range(self.shape.range(), hash)?;
        if !self.has(hash) {
            return Ok(Removal::Absent);
        }
        let positions = lanes::positions(&self.sets, scalar::probe_seed(hash));
        let block = self.block_mut(hash);
        for position in positions {
            let is_sure = counter(block, position) < COUNTER_MAX;
            let (word, shift) = place(position);
            block[word] -= u64::from(is_sure) << shift;
        }
        Ok(Removal::Removed)
    }
}

/// Counters are added, and stay at 15 from there on. So a merge that arrives twice counts twice: it
/// adds no item, but an item that is removed once is still present.
impl Merge for Counting {
    const IS_IDEMPOTENT: bool = false;

    fn merge(&mut self, other: &Self) -> Result<u64, ShapeMismatch> {
        check_equal(self.shape, other.shape)?;
        Ok(add(self.words_mut(), other.words()))
    }
}

impl Describe for Counting {
    fn shape(&self) -> Shape {
        self.shape.into()
    }

    fn describe(&self) -> Description {
        self.shape.describe(occupied_count(self.words()))
    }
}
