//! Sparse blocked filter: a batch of insertions into a blocked filter, before they are ORed in.
//!
//! What an insert does to a [`Blocked`] filter depends on two numbers: its block and its 32-bit
//! probe seed, from which the k positions follow (`lanes`). So a few items are shorter as such
//! pairs than as positions, without loss:
//!
//! ```text
//! filter    block 0 │ 1 │ 2 │ 3 │ …        inserts   (1, seed a)  (3, seed b)  (3, seed c)
//!                    a    ·   b,c
//!           k bits an item                  32 bits an item, and a gap from block to block
//! ```
//!
//! The filter is the blocked filter of the same items, only written otherwise: [`SparseBlocked::apply`]
//! gives the same bits as inserting the items one by one (Putze, Sanders & Singler 2007,
//! doi:10.1007/978-3-540-72845-0_9).

use crate::bits::scalar::probe_seed;
use crate::blocked::Blocked;
use crate::capability::{Contains, Insertion, OutOfRange, check_all_in_range, check_in_range};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::shape::{BlockShape, ShapeError, ShapeMismatch, check_equal};

#[cfg(test)]
mod sparse_blocked_test;

/// All properties of an item on which a blocked filter depends.
///
/// ```
/// use umbel_filter::BlockProbe;
///
/// // By block, then by seed.
/// assert!(BlockProbe { block: 1, seed: 9 } < BlockProbe { block: 2, seed: 0 });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockProbe {
    // The derived order compares fields from top to bottom, so the block must stay first.
    /// The item's block, counted from the first of the filter's hash range.
    pub block: u64,
    /// The seed of the item's positions in its block.
    pub seed: u32,
}

impl BlockProbe {
    /// The probe of an item in a blocked filter of this shape.
    ///
    /// ```
    /// use umbel_filter::{BlockProbe, BlockShape, HashRange, ItemHash, Kind};
    ///
    /// let shape = BlockShape::new(Kind::Blocked, HashRange::WHOLE, 4, 512, 6)?;
    /// let probe = BlockProbe::of(shape, ItemHash::new(1 << 63, 7 << 32));
    /// assert_eq!(probe, BlockProbe { block: 2, seed: 7 });
    /// # Ok::<(), umbel_filter::ShapeError>(())
    /// ```
    #[must_use]
    pub fn of(shape: BlockShape, hash: ItemHash) -> Self {
        Self { block: shape.map().block(hash.hi()), seed: probe_seed(hash) }
    }
}

/// A blocked filter as its sorted insertions: 16 bytes an item, whatever the number of blocks.
///
/// ```
/// use umbel_filter::{
///     BlockShape, Blocked, Contains, HashRange, Insert, ItemHasher, Kind, SparseBlocked,
/// };
///
/// let hasher = ItemHasher::Xxh3 { seed: 7 };
/// let shape = BlockShape::new(Kind::Blocked, HashRange::WHOLE, 1_000, 512, 6)?;
/// let batch = SparseBlocked::from_hashes(shape, &[hasher.hash(b"alice"), hasher.hash(b"bob")])?;
///
/// let mut seen = Blocked::with_shape(shape)?;
/// // Two items with six probes each.
/// assert_eq!(batch.apply(&mut seen)?, 12);
/// assert!(seen.contains(hasher.hash(b"alice")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SparseBlocked {
    shape: BlockShape,
    /// Strictly increasing, each block below the number of the shape's.
    probes: Vec<BlockProbe>,
}

/// Why a list is no sparse blocked filter. Refuse the message that it came in, or fix the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbesError {
    /// Only blocked filters have such probes.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A probe is not above the one before it.
    #[error("probe {probe:?} follows {previous:?}, expected a larger one")]
    NotIncreasing {
        /// The larger or equal probe before it.
        previous: BlockProbe,
        /// The probe that came.
        probe: BlockProbe,
    },
    /// A block does not exist in the shape.
    #[error("block {block}, expected one below {block_count}")]
    BeyondBlocks {
        /// The block that came.
        block: u64,
        /// Number of blocks in the shape's range.
        block_count: u64,
    },
    /// Send the item to the filter of its hash range.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

impl SparseBlocked {
    /// No insertions yet.
    ///
    /// # Errors
    /// If the shape is another kind's.
    pub fn new(shape: BlockShape) -> Result<Self, ShapeError> {
        shape.check_kind(Kind::Blocked)?;
        Ok(Self { shape, probes: Vec::new() })
    }

    /// The insertions of these items, in any order.
    ///
    /// # Errors
    /// If the shape is another kind's, or an item lies outside its hash range.
    pub fn from_hashes(shape: BlockShape, hashes: &[ItemHash]) -> Result<Self, ProbesError> {
        let mut filter = Self::new(shape)?;
        check_all_in_range(shape.range(), hashes)?;
        filter.probes = hashes.iter().map(|&hash| filter.probe(hash)).collect();
        filter.probes.sort_unstable();
        filter.probes.dedup();
        Ok(filter)
    }

    /// The filter with exactly these probes, as [`probes`](Self::probes) lists them.
    ///
    /// # Errors
    /// If the shape is another kind's, the probes do not strictly increase, or a block is beyond
    /// the shape's.
    pub fn from_probes(shape: BlockShape, probes: Vec<BlockProbe>) -> Result<Self, ProbesError> {
        let mut filter = Self::new(shape)?;
        for (&previous, &probe) in probes.iter().zip(probes.iter().skip(1)) {
            if probe <= previous {
                return Err(ProbesError::NotIncreasing { previous, probe });
            }
        }
        let block_count = shape.map().len();
        match probes.last() {
            Some(&BlockProbe { block, .. }) if block >= block_count => {
                Err(ProbesError::BeyondBlocks { block, block_count })
            }
            _ => {
                filter.probes = probes;
                Ok(filter)
            }
        }
    }

    /// Adds one item. Moves the probes above it, so a batch is built faster by
    /// [`from_hashes`](Self::from_hashes).
    ///
    /// # Errors
    /// If the item lies outside the hash range. Nothing was changed.
    pub fn insert(&mut self, hash: ItemHash) -> Result<Insertion, OutOfRange> {
        check_in_range(self.shape.range(), hash)?;
        let probe = self.probe(hash);
        Ok(match self.probes.binary_search(&probe) {
            Ok(_) => Insertion::Present,
            Err(index) => {
                self.probes.insert(index, probe);
                Insertion::New
            }
        })
    }

    /// Adds the insertions of another batch and returns how many of them are new.
    ///
    /// # Errors
    /// If the shapes differ. Nothing was changed.
    pub fn merge(&mut self, other: &Self) -> Result<u64, ShapeMismatch> {
        check_equal(self.shape, other.shape)?;
        let len_before = self.len();
        self.probes.extend(&other.probes);
        // Two sorted runs, which a stable sort merges in linear time.
        self.probes.sort();
        self.probes.dedup();
        Ok(self.len() - len_before)
    }

    /// ORs the insertions into a filter over our hash range or a larger one, and returns how many
    /// bits they newly set.
    ///
    /// # Errors
    /// If the shapes differ in more than the range, or our range leaves the filter's. Nothing was
    /// changed.
    pub fn apply(&self, filter: &mut Blocked) -> Result<u64, ShapeMismatch> {
        filter.insert_probes(self.shape, self.probes.iter().copied())
    }

    /// Number of insertions that differ.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.probes.len() as u64
    }

    /// Whether nothing was inserted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.probes.is_empty()
    }

    /// The insertions, strictly increasing, blocks counted from the first of the shape's range.
    #[must_use]
    pub fn probes(&self) -> &[BlockProbe] {
        &self.probes
    }

    /// The shape of the blocked filter that the insertions are made for.
    #[must_use]
    pub const fn block_shape(&self) -> BlockShape {
        self.shape
    }

    fn probe(&self, hash: ItemHash) -> BlockProbe {
        BlockProbe::of(self.shape, hash)
    }
}

/// Errs only where two items share their block and the 32 bits of their seed: less often than the
/// blocked filter of the same items.
impl Contains for SparseBlocked {
    fn contains(&self, hash: ItemHash) -> bool {
        self.shape.range().contains(hash.hi())
            && self.probes.binary_search(&self.probe(hash)).is_ok()
    }
}

impl Blocked {
    /// ORs insertions into a filter of this shape, or over a part of its hash range, in and returns
    /// how many bits they newly set. Blocks count from the part's first block.
    ///
    /// # Errors
    /// If the shapes differ in more than the range, or the part leaves our range. Nothing was
    /// changed.
    ///
    /// # Panics
    /// If a block is beyond the part's.
    ///
    /// ```
    /// use umbel_filter::{BlockProbe, Blocked, HashRange};
    ///
    /// let mut filter = Blocked::new(HashRange::WHOLE, 16, 3)?;
    /// let upper = filter.block_shape().with_range(HashRange::new(1 << 63, 1 << 64)?)?;
    /// let probe = BlockProbe { block: 1, seed: 5 };
    /// assert_eq!(filter.insert_probes(upper, [probe].into_iter())?, 3);
    /// // The second block of the upper half is the tenth of all.
    /// assert!(filter.words()[9 * 8..10 * 8].iter().any(|&word| word != 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_probes(
        &mut self,
        part: BlockShape,
        probes: impl Iterator<Item = BlockProbe>,
    ) -> Result<u64, ShapeMismatch> {
        let offset = self.block_shape().part_offset(part)?;
        let mut new_count = 0;
        for BlockProbe { block, seed } in probes {
            assert!(block < part.map().len(), "block {block} of {}", part.map().len());
            new_count += u64::from(self.insert_probe(offset + block, seed));
        }
        Ok(new_count)
    }
}
