//! A ring of slices of time in one blocked filter, for replicas that are merged by OR.
//!
//! A filter that forgets cannot be merged by OR: a bit that one replica has dropped would come back from another.
//! So each slice of time has blocks of its own, and whoever sends a block also sends the number of its slice. A
//! filter of S + 2 times B blocks holds the slices with the numbers n − S − 1 to n, slice i in the B blocks from
//! (i mod (S + 2)) · B on; n is the *newest* number. When n rises, the blocks of the slices that leave the ring
//! are emptied for those that enter it.
//!
//! ```text
//! S = 2, B blocks a slice       ├─ 8 ─┤├─ 5 ─┤├─ 6 ─┤├─ 7 ─┤     newest 8
//!                               ├─ 8 ─┤├─ 9 ─┤├─ 6 ─┤├─ 7 ─┤     newest 9: what 5 had is gone
//! ```
//!
//! *Clocks.* A ring has two numbers, both of which only rise: `own`, that of its own clock, and `newest`, which is
//! `own` or one more. It follows others' newest by that one slice and no further, so a clock that is far ahead
//! empties nobody else's ring. An item goes into slice `own`. A query reads the slices from own − S on: so the
//! oldest of the S + 2 is not read, unless another clock is one slice ahead.
//!
//! *Laws.* The content of a ring is a set of bits for each number that it holds. Joining takes the greater newest,
//! ORs slices of one number, and leaves out what is older than the result holds: it is commutative, associative and
//! idempotent. An item of slice i is present in a ring whose `own` is at most i + S, and absent from i + S + 1 on,
//! but for false positives, whatever is joined and in whichever order.
//!
//! *Completeness.* A ring that has joined another one, whose newest slice was not later than its own, has every item
//! of the other one in the slices that queries read: the other one had dropped only what this one drops as well.
//! That is why a ring that is further ahead is refused ([`AheadOfClock`]), and not joined in part.

use std::ops::Range;

use thiserror::Error;

use crate::bits::{LINE_WORDS, index, wide};
use crate::blocked::Blocked;
use crate::capability::Insertion;
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::range::HashRange;
use crate::shape::{BlockShape, LINE_BITS, ShapeError, ShapeMismatch};
use crate::sparse_blocked::BlockProbe;

#[cfg(test)]
mod slice_ring_test;

/// Slices that a ring holds besides those of the window: the one that is beginning, and one for clocks that are
/// ahead, its own or others'.
const MORE_PLACES: u64 = 2;

/// Another ring is further ahead than this one follows. Nothing was changed. Correct the clocks: the other
/// ring can be joined once this one's clock has caught up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "slice {theirs} of time, where the clock here is in slice {own}: expected at most one more"
)]
pub struct AheadOfClock {
    /// The other ring's newest slice.
    pub theirs: u64,
    /// The slice of this one's clock.
    pub own: u64,
}

/// Which slices of time the blocks of a blocked filter are of.
///
/// ```
/// use umbel_filter::{Blocked, Insertion, ItemHash, SliceRing};
///
/// // Three slices of a window, each in 10 blocks of 512 bits, 6 probes an item.
/// let mut ring = SliceRing::new(10, 6, 3)?;
/// let mut bits = Blocked::with_shape(ring.block_shape())?;
/// assert_eq!(bits.words().len(), 5 * 10 * 8);
///
/// let alice = ItemHash::new(1, 2);
/// ring.advance(&mut bits, 100);
/// assert_eq!(ring.insert(&mut bits, 100, alice), Some(Insertion::New));
/// // Slices 100, 101, 102 and 103: three after the one that it came in, and that one.
/// assert!(ring.contains(&bits, 103, alice));
/// assert!(!ring.contains(&bits, 104, alice));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SliceRing {
    /// Of one slice.
    slice: BlockShape,
    /// Of all places.
    whole: BlockShape,
    /// S.
    slice_count: u64,
    own: u64,
    newest: u64,
}

impl SliceRing {
    /// A ring for a window of `slice_count` slices (S, at least 1), in each of which items set `probe_count` bits in
    /// one of `block_count` blocks (B). Its clock stands at 0.
    ///
    /// # Errors
    /// If the numbers are no shape of blocks.
    pub fn new(block_count: u64, probe_count: u32, slice_count: u32) -> Result<Self, ShapeError> {
        let shape = |block_count| {
            BlockShape::new(Kind::Blocked, HashRange::WHOLE, block_count, LINE_BITS, probe_count)
        };
        let slice_count = u64::from(slice_count.max(1));
        let slice = shape(block_count)?;
        let whole = shape(block_count.saturating_mul(slice_count + MORE_PLACES))?;
        Ok(Self { slice, whole, slice_count, own: 0, newest: 0 })
    }

    /// The shape of the filter whose blocks these are.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.whole
    }

    /// Number of the slice that the ring's clock is in, as [`advance`](Self::advance) set it last.
    #[must_use]
    pub const fn own(&self) -> u64 {
        self.own
    }

    /// Number of the newest slice that the ring holds: `own`, or one more.
    #[must_use]
    pub const fn newest(&self) -> u64 {
        self.newest
    }

    /// Number of the oldest slice that the ring holds.
    #[must_use]
    pub const fn oldest(&self) -> u64 {
        self.oldest_of(self.newest)
    }

    const fn oldest_of(&self, newest: u64) -> u64 {
        newest.saturating_sub(self.slice_count + MORE_PLACES - 1)
    }

    /// The same ring with this clock and this newest slice, as they were stored with the bits.
    #[must_use]
    pub const fn at(self, own: u64, newest: u64) -> Self {
        Self { own, newest: if newest < own { own } else { newest }, ..self }
    }

    /// Sets the clock to slice `own`; it never goes back. Returns whether blocks were emptied.
    ///
    /// ```
    /// # use umbel_filter::{Blocked, SliceRing};
    /// # let mut ring = SliceRing::new(10, 6, 3)?;
    /// # let mut bits = Blocked::with_shape(ring.block_shape())?;
    /// ring.advance(&mut bits, 100);
    /// assert!(!ring.advance(&mut bits, 99));
    /// assert_eq!((ring.oldest(), ring.own(), ring.newest()), (96, 100, 100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn advance(&mut self, bits: &mut Blocked, own: u64) -> bool {
        self.own = self.own.max(own);
        self.raise(bits, self.own)
    }

    /// Advances the newest slice to that of another ring, which is to be joined next. Returns whether blocks were
    /// emptied.
    ///
    /// ```
    /// # use umbel_filter::{Blocked, SliceRing};
    /// # let mut ring = SliceRing::new(10, 6, 3)?;
    /// # let mut bits = Blocked::with_shape(ring.block_shape())?;
    /// ring.advance(&mut bits, 100);
    /// ring.follow(&mut bits, 101)?;
    /// assert_eq!((ring.own(), ring.newest()), (100, 101));
    /// // It was 101 by what others say, and is not further for that.
    /// assert!(ring.follow(&mut bits, 102).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If that is further than one slice ahead of the own clock.
    pub fn follow(&mut self, bits: &mut Blocked, theirs: u64) -> Result<bool, AheadOfClock> {
        self.check(theirs)?;
        Ok(self.raise(bits, theirs))
    }

    /// Whether another ring whose newest slice is this one can be joined.
    ///
    /// # Errors
    /// If not.
    pub const fn check(&self, theirs: u64) -> Result<(), AheadOfClock> {
        if theirs > self.own.saturating_add(1) {
            return Err(AheadOfClock { theirs, own: self.own });
        }
        Ok(())
    }

    fn raise(&mut self, bits: &mut Blocked, newest: u64) -> bool {
        if newest <= self.newest {
            return false;
        }
        let places = self.slice_count + MORE_PLACES;
        let first = (self.newest + 1).max(newest.saturating_sub(places - 1));
        self.newest = newest;
        for number in first..=newest {
            let blocks = self.blocks_of(number);
            let words = index(blocks.start) * LINE_WORDS..index(blocks.end) * LINE_WORDS;
            bits.words_mut()[words].fill(0);
        }
        true
    }

    /// The blocks of a slice, if the ring holds it.
    const fn blocks_of(&self, number: u64) -> Range<u64> {
        let block_count = self.slice.map().block_count();
        let first = number % (self.slice_count + MORE_PLACES) * block_count;
        first..first + block_count
    }

    /// Number of the slice to which a block belongs in a ring with this newest slice; None if no slice has used
    /// the block yet.
    ///
    /// ```
    /// # use umbel_filter::SliceRing;
    /// // Places of 10 blocks: 0 to 9 are of slices 0, 5, 10, … and 20 to 29 of 2, 7, 12, …
    /// let ring = SliceRing::new(10, 6, 3)?;
    /// assert_eq!(ring.number_of(25, 8), Some(7));
    /// assert_eq!(ring.number_of(49, 8), Some(4));
    /// # Ok::<(), umbel_filter::ShapeError>(())
    /// ```
    #[must_use]
    pub const fn number_of(&self, block: u64, newest: u64) -> Option<u64> {
        let places = self.slice_count + MORE_PLACES;
        let place = block / self.slice.map().block_count();
        let behind = (newest % places + places - place % places) % places;
        newest.checked_sub(behind)
    }

    /// Whether a block belongs to the same slice here as in a ring with this newest slice.
    #[must_use]
    pub fn is_of_same(&self, block: u64, theirs: u64) -> bool {
        let number = self.number_of(block, theirs);
        number.is_some() && number == self.number_of(block, self.newest)
    }

    /// The block of an item in a slice, numbered among all blocks, and its probes; None if the ring does not hold
    /// that slice.
    ///
    /// ```
    /// # use umbel_filter::{Blocked, ItemHash, SliceRing};
    /// # let mut ring = SliceRing::new(10, 6, 3)?;
    /// # let mut bits = Blocked::with_shape(ring.block_shape())?;
    /// ring.advance(&mut bits, 8);
    /// // 7 mod 5 is 2: the third ten blocks; in them, half of the hash space is half of the blocks.
    /// let probe = ring.probe_in(7, ItemHash::new(1 << 63, 3 << 32)).unwrap();
    /// assert_eq!((probe.block, probe.seed), (25, 3));
    /// assert_eq!(ring.probe_in(3, ItemHash::new(1 << 63, 3 << 32)), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn probe_in(&self, number: u64, hash: ItemHash) -> Option<BlockProbe> {
        if !(self.oldest()..=self.newest).contains(&number) {
            return None;
        }
        let BlockProbe { block, seed } = BlockProbe::of(self.slice, hash);
        Some(BlockProbe { block: self.blocks_of(number).start + block, seed })
    }

    /// Inserts an item into a slice and returns whether it was new there; None if the ring does not hold that
    /// slice.
    pub fn insert(&self, bits: &mut Blocked, number: u64, hash: ItemHash) -> Option<Insertion> {
        let probe = self.probe_in(number, hash)?;
        let new = bits.insert_probe(probe.block, probe.seed);
        Some(if new > 0 { Insertion::New } else { Insertion::Present })
    }

    /// Whether an item is present when it is slice `own`, which may be later than the ring's clock.
    #[must_use]
    pub fn contains(&self, bits: &Blocked, own: u64, hash: ItemHash) -> bool {
        self.newest_with(bits, own, hash).is_some()
    }

    /// Number of the newest slice that has an item, among those that a query reads when it is slice `own`.
    #[must_use]
    pub fn newest_with(&self, bits: &Blocked, own: u64, hash: ItemHash) -> Option<u64> {
        let BlockProbe { block, seed } = BlockProbe::of(self.slice, hash);
        let oldest = self.own.max(own).saturating_sub(self.slice_count);
        let asked = oldest.max(self.oldest())..=self.newest;
        asked.rev().find(|&number| bits.contains_probe(self.blocks_of(number).start + block, seed))
    }

    /// ORs a part of the blocks of a ring whose newest slice is `theirs` into this one, and returns how many bits
    /// were newly set. Blocks of slices that this ring does not hold are skipped: call [`follow`](Self::follow)
    /// before.
    ///
    /// # Errors
    /// If the shapes differ in more than the range.
    pub fn merge_part(
        &self,
        bits: &mut Blocked,
        theirs: u64,
        part: &Blocked,
    ) -> Result<u64, ShapeMismatch> {
        let (ours, part_shape) = (bits.block_shape(), part.block_shape());
        let mismatch = ShapeMismatch { ours: ours.into(), theirs: part_shape.into() };
        if ours != self.whole {
            return Err(mismatch);
        }
        let first = ours.offset_of(part_shape).ok_or(mismatch)?;
        let behind = first + part_shape.map().len();
        let words = |blocks: &Range<u64>, from: u64| {
            index(blocks.start - from) * LINE_WORDS..index(blocks.end - from) * LINE_WORDS
        };
        let mut new_count = 0;
        let oldest = self.oldest().max(self.oldest_of(theirs));
        for number in oldest..=self.newest.min(theirs) {
            let Range { start, end } = self.blocks_of(number);
            let blocks = start.max(first)..end.min(behind);
            if !blocks.is_empty() {
                let theirs = &part.words()[words(&blocks, first)];
                new_count += wide::or(&mut bits.words_mut()[words(&blocks, 0)], theirs);
            }
        }
        Ok(new_count)
    }
}
