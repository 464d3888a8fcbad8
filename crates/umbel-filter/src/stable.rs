//! Stable Bloom filter: items of the recent past, forgotten evenly, with constant rates of errors of
//! both kinds.
//!
//! Counters of four bits in the geometry of the counting filter. An insert lowers P neighbouring cells
//! by one, from a pseudo-random cell on that its number determines, and then sets the item's k cells
//! to Max; an item is present if none of its cells is 0 (Deng & Rafiei 2006,
//! doi:10.1145/1142473.1142477). P and Max are the [*pace*](StablePace).
//!
//! ```text
//! insert number i   │ 0 0 3 0 2 9 0 0 1 … │    lower P cells from splitmix(i) on, around the end
//!                   │ 0 0 2 0 1 8 0 0 1 … │    and set k cells of one block to Max
//! ```
//!
//! *Limits.* However many items come, the share of zeros tends to (1 + k/P)^−Max, and so the rate of
//! false *present* to a constant ([`stable_zeros`](crate::sizing::stable_zeros)). The price is that
//! items are forgotten, the sooner the more are inserted: of the items that were inserted last n
//! inserts ago, a share of at most [`stable_missed_rate`](crate::sizing::stable_missed_rate). So
//! *absent* is not certain here.
//!
//! *Equal histories, equal cells.* Which cells are lowered is a function of the number of the insert,
//! which is part of the filter's state. So replicas that insert the same items in the same order are
//! equal. Items have no influence on it, so whoever chooses items cannot aim at cells.

use crate::bits::{BitArray, LINE_WORDS, index, scalar, wide};
use crate::capability::{Describe, Description, InsertError, Insertion, ItemByItem, item_by_item};
use crate::counting::{self, BLOCK_LINES, COUNTER_BITS, COUNTER_MAX, WORD_COUNTERS};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::lanes::{self, LaneSets};
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, Shape, ShapeError};
use crate::stable_pace::StablePace;

mod join;
#[cfg(test)]
mod stable_test;

/// How many items ahead of the current one a batch prefetches: as counting filters do.
const PREFETCH_DISTANCE: usize = 16;

/// A stable filter over a hash range.
///
/// An item may be missing that was inserted: [`stable_missed_rate`](crate::sizing::stable_missed_rate) bounds how often.
/// Every insert lowers cells, also of what is present.
///
/// ```
/// use umbel_filter::{Contains, HashRange, Insert, Insertion, ItemHasher, Stable};
///
/// let hasher = ItemHasher::Xxh3 { seed: 7 };
/// let mut lately = Stable::for_rate(HashRange::WHOLE, 1_000, 0.01)?;
/// assert_eq!(lately.insert(hasher.hash(b"alice"))?, Insertion::New);
/// assert_eq!(lately.insert(hasher.hash(b"alice"))?, Insertion::Present);
/// // After many more, of those that came last few are missing, and alice most likely is.
/// for number in 0..100_000_u32 {
///     lately.insert(hasher.hash(&number.to_le_bytes()))?;
/// }
/// let last = (99_500..100_000_u32).map(|number| hasher.hash(&number.to_le_bytes()));
/// assert!(last.filter(|&hash| lately.contains(hash)).count() > 495);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stable {
    shape: BlockShape,
    pace: StablePace,
    sets: LaneSets,
    cells: BitArray,
    /// Number of inserts so far, and 0: every kind with a pace has two counts.
    counts: [u64; 2],
}

impl Stable {
    /// The smallest empty filter that errs at this rate at most either way: items that were not inserted
    /// are present, and items whose last insert was `item_count` inserts of the range ago are missing.
    /// Items that were inserted later are missing less often.
    ///
    /// # Errors
    /// If there are no items, no filter of this kind has such a rate, or there is no memory.
    pub fn for_rate(range: HashRange, item_count: u64, rate: f64) -> Result<Self, CreateError> {
        Self::with_shape(BlockShape::for_rate(Kind::Stable, range, item_count, rate)?)
    }

    /// An empty filter of this shape.
    ///
    /// # Errors
    /// If the shape is another kind's or has no pace, or there is no memory.
    pub fn with_shape(shape: BlockShape) -> Result<Self, CreateError> {
        shape.check_kind(Kind::Stable)?;
        let number = shape.pace();
        let no_pace = ShapeError::Pace { kind: Kind::Stable, pace: number };
        let pace = StablePace::of_number(number).ok_or(no_pace)?;
        let cells = BitArray::new(shape.memory_bytes() / 64)?;
        let sets = LaneSets::new(shape.probe_count());
        Ok(Self { shape, pace, sets, cells, counts: [0; 2] })
    }

    /// The filter's shape.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.shape
    }

    /// Number of inserts so far, and 0. A part of another filter begins with the number of that filter.
    #[must_use]
    pub const fn counts(&self) -> [u64; 2] {
        self.counts
    }

    /// The blocks' cells, as [`Counting::words`](crate::Counting::words) has counters.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.cells.words()
    }

    /// The same and the counts, to be overwritten by those of a copy of the filter.
    pub fn parts_mut(&mut self) -> (&mut [u64], &mut [u64; 2]) {
        (self.cells.words_mut(), &mut self.counts)
    }

    /// Takes all items out, and begins to count anew.
    pub fn clear(&mut self) {
        self.cells.words_mut().fill(0);
        self.counts = [0; 2];
    }

    /// The first cell that the next insert lowers.
    #[inline]
    fn first_lowered(&self, ahead: u64) -> u64 {
        let cells = u128::from(self.shape.position_count());
        let number = self.counts[0].wrapping_add(ahead);
        let place = (u128::from(split_mix(number)) * cells) >> 64;
        u64::try_from(place).unwrap_or_default()
    }

    /// Lowers the cells that this insert lowers, each once; after the last cell the first one
    /// follows.
    fn lower(&mut self) {
        let cells = self.shape.position_count();
        let first = self.first_lowered(0);
        let end = first + u64::from(self.pace.lowered_cells).min(cells);
        let words = self.cells.words_mut();
        lower_run(words, first, end.min(cells));
        lower_run(words, 0, end.saturating_sub(cells));
    }
}

/// Lowers cells `from..to` that are not 0.
fn lower_run(words: &mut [u64], from: u64, to: u64) {
    let cells = u64::from(WORD_COUNTERS);
    let mut at = from;
    while at < to {
        let end = (at / cells * cells + cells).min(to);
        let mask = u64::MAX >> (64 - (end - at) * u64::from(COUNTER_BITS));
        let mask = mask << (at % cells * u64::from(COUNTER_BITS));
        let word = &mut words[index(at / cells)];
        *word -= counting::ones(*word) & mask;
        at = end;
    }
}

/// A pseudo-random number for each number: the output of `SplitMix64` (Steele, Lea & Flood 2014,
/// doi:10.1145/2660193.2660195) after that many steps. It must never change, because replicas must
/// agree on it.
const fn split_mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl ItemByItem for Stable {
    #[inline]
    fn range(&self) -> HashRange {
        self.shape.range()
    }

    #[inline]
    fn has(&self, hash: ItemHash) -> bool {
        let line = scalar::line_of(self.shape.map(), hash) * BLOCK_LINES;
        let block = wide::words(&self.cells.lines()[line..line + BLOCK_LINES]);
        let mut positions = lanes::positions(&self.sets, scalar::probe_seed(hash));
        positions.all(|position| counting::counter(block, position) > 0)
    }

    fn put(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        let outcome = if self.has(hash) { Insertion::Present } else { Insertion::New };
        self.lower();
        let line = scalar::line_of(self.shape.map(), hash) * BLOCK_LINES;
        let positions = lanes::positions(&self.sets, scalar::probe_seed(hash));
        let max = u64::from(self.pace.cell_max);
        let block = wide::words_mut(&mut self.cells.lines_mut()[line..line + BLOCK_LINES]);
        for position in positions {
            let (word, shift) = counting::place(position);
            block[word] = block[word] & !(COUNTER_MAX << shift) | max << shift;
        }
        self.counts[0] = self.counts[0].wrapping_add(1);
        Ok(outcome)
    }

    /// Prefetches the block of the item that is [`PREFETCH_DISTANCE`] after `at`, and the cells that it
    /// lowers if the batch `inserts`.
    #[inline]
    fn prefetch_ahead(&self, hashes: &[ItemHash], at: usize, inserts: bool) {
        if wide::is_far(self.cells.lines())
            && let Some(&ahead) = hashes.get(at + PREFETCH_DISTANCE)
        {
            let line = scalar::line_of(self.shape.map(), ahead) * BLOCK_LINES;
            for line in line..line + BLOCK_LINES {
                wide::prefetch_far(self.cells.lines(), line);
            }
            if inserts {
                let first = self.first_lowered(PREFETCH_DISTANCE as u64);
                let end = first + u64::from(self.pace.lowered_cells);
                let line_of = |cell: u64| index(cell) / (WORD_COUNTERS as usize * LINE_WORDS);
                for line in line_of(first)..=line_of(end) {
                    wide::prefetch_far(self.cells.lines(), line);
                }
            }
        }
    }
}

item_by_item!(Stable);

impl Describe for Stable {
    fn shape(&self) -> Shape {
        self.shape.into()
    }

    fn describe(&self) -> Description {
        self.shape.describe(counting::occupied_count(self.words()))
    }
}
