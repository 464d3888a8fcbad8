//! Blocked filter that many threads write and read at once, without locks.
//!
//! The same array, shape and probes as [`Blocked`], in atomic words. An insert ORs its bits in,
//! word by word; bits only rise, so there is nothing to undo and nothing to wait for.
//!
//! *What races can do.* Every position goes from 0 to 1 exactly once, and exactly one insert sees
//! it. An insert is [`Insertion::New`] if it set at least one position, so:
//!
//! * whatever was inserted before a query began, in the sense of happens-before, is present;
//! * *present* as the outcome of an insert is as good as from a single thread: all the item's
//!   positions were set by others;
//! * of several inserts of one item at the same time, at least one gets *new*, unless the item was a
//!   false positive already. Two may both get it, if each of them sets some positions first: whoever
//!   needs a single winner must order the inserts of an item.
//!
//! *Why relaxed is enough.* No other memory is published through the bits: a reader draws no
//! conclusion from a bit about anything but the bit. Each word has one modification order, in which
//! it only rises, so read-modify-writes on it divide the positions among the inserts; and a thread
//! that learned of an insert by any synchronisation (a channel, a join, a lock) reads the words at
//! least as new as that insert left them. Every interleaving and every stale read that the memory
//! model allows is tried in the tests, by loom.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::bits::{LINE_WORDS, Line, scalar, wide};
use crate::blocked::Blocked;
use crate::capability::{
    Contains, Describe, Description, Insert, InsertError, Insertion, OutOfRange,
    check_all_in_range, check_in_range,
};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::lanes::LaneSets;
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, Shape};

#[cfg(test)]
mod shared_blocked_test;

/// How many items ahead of the current one a batch prefetches, as in the plain filter.
const PREFETCH_DISTANCE: usize = 32;

/// A blocked filter behind a shared reference.
///
/// ```
/// use umbel_filter::{Contains, HashRange, Insertion, ItemHasher, SharedBlocked};
///
/// let hasher = ItemHasher::Xxh3 { seed: 7 };
/// let seen = SharedBlocked::for_rate(HashRange::WHOLE, 1_000, 0.01)?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| seen.insert(hasher.hash(b"alice")));
///     scope.spawn(|| seen.insert(hasher.hash(b"bob")));
/// });
/// assert!(seen.contains(hasher.hash(b"alice")) && seen.contains(hasher.hash(b"bob")));
/// assert_eq!(seen.insert(hasher.hash(b"bob"))?, Insertion::Present);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SharedBlocked {
    shape: BlockShape,
    sets: LaneSets,
    lines: Vec<SharedLine<AtomicU64>>,
}

impl SharedBlocked {
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
        let shape = BlockShape::for_rate(Kind::Blocked, range, item_count, false_positive_rate)?;
        Self::with_lines(shape, || SharedLine::from(Line::default()))
    }

    /// A filter that begins with what another one contains.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn from_blocked(filter: &Blocked) -> Result<Self, CreateError> {
        let mut lines = filter.lines().iter().copied();
        Self::with_lines(filter.block_shape(), || {
            SharedLine::from(lines.next().unwrap_or_default())
        })
    }

    fn with_lines(
        shape: BlockShape,
        line: impl FnMut() -> SharedLine<AtomicU64>,
    ) -> Result<Self, CreateError> {
        let bytes = shape.memory_bytes();
        let lines = usize::try_from(bytes / 64).ok().and_then(|count| wide::allocated(count, line));
        let lines = lines.ok_or(CreateError::OutOfMemory { bytes })?;
        Ok(Self { shape, sets: LaneSets::new(shape.probe_count()), lines })
    }

    /// A plain filter with every insert that happened before the call, and perhaps some positions
    /// of inserts that run meanwhile.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn snapshot(&self) -> Result<Blocked, CreateError> {
        let mut filter = Blocked::with_shape(self.shape)?;
        for (words, line) in filter.words_mut().chunks_exact_mut(LINE_WORDS).zip(&self.lines) {
            words.copy_from_slice(&line.load().0);
        }
        Ok(filter)
    }

    /// The filter's shape.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.shape
    }

    /// Inserts one item.
    ///
    /// # Errors
    /// If the item lies outside the filter's hash range. Nothing was changed.
    #[inline]
    pub fn insert(&self, hash: ItemHash) -> Result<Insertion, OutOfRange> {
        check_in_range(self.range(), hash)?;
        Ok(self.insert_in_range(hash))
    }

    /// Inserts the items one after the other and returns one outcome an item in their order;
    /// `outcomes` is emptied first. Overlaps the accesses to memory of neighbouring items.
    ///
    /// # Errors
    /// If an item lies outside the filter's hash range. Nothing was changed.
    pub fn insert_batch(
        &self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), OutOfRange> {
        outcomes.clear();
        check_all_in_range(self.range(), hashes)?;
        outcomes.extend(hashes.iter().enumerate().map(|(at, &hash)| {
            self.prefetch_ahead(hashes, at);
            self.insert_in_range(hash)
        }));
        Ok(())
    }

    #[inline]
    fn range(&self) -> HashRange {
        self.shape.range()
    }

    #[inline]
    fn insert_in_range(&self, hash: ItemHash) -> Insertion {
        let mask = wide::mask(&self.sets, scalar::probe_seed(hash));
        let new_count = self.lines[scalar::line_of(self.shape.map(), hash)].set(&mask);
        if new_count > 0 { Insertion::New } else { Insertion::Present }
    }

    #[inline]
    fn contains_in_range(&self, hash: ItemHash) -> bool {
        let mask = wide::mask(&self.sets, scalar::probe_seed(hash));
        self.lines[scalar::line_of(self.shape.map(), hash)].contains(&mask)
    }

    /// Items outside the range have no line, and a prefetch without a line does nothing.
    #[inline]
    fn prefetch_ahead(&self, hashes: &[ItemHash], at: usize) {
        if wide::is_far(&self.lines)
            && let Some(&ahead) = hashes.get(at + PREFETCH_DISTANCE)
        {
            wide::prefetch_far(&self.lines, scalar::line_of(self.shape.map(), ahead));
        }
    }
}

impl Contains for SharedBlocked {
    #[inline]
    fn contains(&self, hash: ItemHash) -> bool {
        self.range().contains(hash.hi()) && self.contains_in_range(hash)
    }

    fn contains_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        present.clear();
        present.extend(hashes.iter().enumerate().map(|(at, &hash)| {
            self.prefetch_ahead(hashes, at);
            self.contains(hash)
        }));
    }
}

/// For code that takes any kind of filter. Whoever has the type needs no exclusive reference:
/// [`SharedBlocked::insert`].
impl Insert for SharedBlocked {
    #[inline]
    fn insert(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        Ok(Self::insert(self, hash)?)
    }

    fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        Ok(Self::insert_batch(self, hashes, outcomes)?)
    }
}

impl Contains for &SharedBlocked {
    #[inline]
    fn contains(&self, hash: ItemHash) -> bool {
        SharedBlocked::contains(self, hash)
    }

    fn contains_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        SharedBlocked::contains_batch(self, hashes, present);
    }
}

/// A shared reference is enough to insert, as one to a file is to write: each thread hands its own to
/// code that takes any [`Insert`].
impl Insert for &SharedBlocked {
    #[inline]
    fn insert(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        Ok(SharedBlocked::insert(self, hash)?)
    }

    fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), InsertError> {
        Ok(SharedBlocked::insert_batch(self, hashes, outcomes)?)
    }
}

impl Describe for SharedBlocked {
    fn shape(&self) -> Shape {
        self.shape.into()
    }

    /// Counts word by word: inserts that run meanwhile may be counted in part.
    fn describe(&self) -> Description {
        let ones = |line: &SharedLine<AtomicU64>| line.load().0.map(u64::count_ones);
        self.shape.describe(self.lines.iter().flat_map(ones).map(u64::from).sum())
    }
}

/// An atomic word whose bits only rise: the standard library's, or loom's in tests.
trait AtomicWord: From<u64> {
    fn load_relaxed(&self) -> u64;
    fn or_relaxed(&self, bits: u64) -> u64;
}

impl AtomicWord for AtomicU64 {
    #[inline]
    fn load_relaxed(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    #[inline]
    fn or_relaxed(&self, bits: u64) -> u64 {
        self.fetch_or(bits, Ordering::Relaxed)
    }
}

/// One cache line of atomic words.
#[derive(Debug)]
#[repr(align(64))]
struct SharedLine<W>([W; LINE_WORDS]);

impl<W: AtomicWord> SharedLine<W> {
    /// Sets the bits of the mask and returns how many of them this call set. A word whose bits are
    /// all set already is only read: it then stays in the caches of all readers.
    #[inline]
    fn set(&self, mask: &Line) -> u32 {
        let mut new_count = 0;
        for (word, &mask) in self.0.iter().zip(&mask.0) {
            if mask & !word.load_relaxed() != 0 {
                new_count += (mask & !word.or_relaxed(mask)).count_ones();
            }
        }
        new_count
    }

    #[inline]
    fn contains(&self, mask: &Line) -> bool {
        let missing = |(word, mask): (&W, &u64)| mask & !word.load_relaxed();
        self.0.iter().zip(&mask.0).map(missing).fold(0, |all, word| all | word) == 0
    }

    fn load(&self) -> Line {
        Line(std::array::from_fn(|at| self.0[at].load_relaxed()))
    }
}

impl<W: AtomicWord> From<Line> for SharedLine<W> {
    fn from(line: Line) -> Self {
        Self(line.0.map(W::from))
    }
}
