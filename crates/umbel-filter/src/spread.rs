//! Probes anywhere in a block of up to 64 KiB: what [`Classic`](crate::Classic) and
//! [`Partitioned`](crate::Partitioned) share.
//!
//! `hi` chooses the item's block ([`BlockMap`](crate::BlockMap)), `lo` its k positions inside:
//!
//! ```text
//! v(0) = lo · A + C mod 2^64                position of probe j = start(j) + ⌊v(j) · width / 2^64⌋
//! v(j) = v(j − 1) · A + C mod 2^64
//!
//! classic      │ 0 1 2 … k − 1 anywhere                        │   width b,       start 0
//! partitioned  │   0   │   1   │   2   │  …  │  k − 1  │ zeros  │   width ⌊b / k⌋, start j · width
//! ```
//!
//! A is a multiplier whose consecutive values fill space evenly (Steele & Vigna 2022,
//! doi:10.1002/spe.3030), and multiply-shift takes the high bits, the good ones of such a sequence.
//!
//! *Why not double hashing?* It (Kirsch & Mitzenmacher 2008, doi:10.1002/rsa.20208) and its
//! enhanced form (Dillinger & Manolios 2004, doi:10.1007/978-3-540-30494-4_26) cost as much, but
//! know an item by two numbers below b only: of about k·b² pairs of items one has all positions in
//! common, which adds some n / (k·b²) to the rate of n items. That is nothing in 64 KiB at 0.01 %,
//! but much in a small block: for 26 items in 512 bits at k = 13 the enhanced form was measured to
//! err 7 % more often than independent probes, this sequence 2 % (both to within 1 %). Here all 64
//! bits of `lo` count in the positions.

use crate::bits::{self, BitArray, wide};
use crate::block_array::{self, probe_width};
use crate::blocked::FoldError;
use crate::capability::{Insertion, OutOfRange, check_all_in_range, check_in_range};
use crate::hash::ItemHash;
use crate::kind::Kind;
use crate::shape::{BlockShape, CreateError, LINE_BITS, ShapeError, ShapeMismatch};

/// A: the 64-bit multiplier of Steele & Vigna. Never to change: it is part of every stored filter.
pub(crate) const MULTIPLIER: u64 = 0xd134_2543_de82_ef95;

/// C: odd, so that every `lo`, 0 too, goes through all 2^64 values. Never to change either.
pub(crate) const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// How many items ahead of the current one a batch prefetches. All k lines of each, so fewer items
/// than where an item has one line. Measured in main memory: 8 and 16 are equal, 32 is slower.
const PREFETCH_DISTANCE: usize = 16;

/// An array of blocks with spread probes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spread {
    shape: BlockShape,
    bits: BitArray,
}

impl Spread {
    /// An empty array, if the shape is of this kind.
    pub(crate) fn new(kind: Kind, shape: BlockShape) -> Result<Self, CreateError> {
        if shape.kind() != kind {
            return Err(ShapeError::Kind { kind: shape.kind() }.into());
        }
        Ok(Self { shape, bits: BitArray::new(shape.memory_bytes() / 64)? })
    }

    pub(crate) const fn shape(&self) -> BlockShape {
        self.shape
    }

    pub(crate) const fn bits(&self) -> &BitArray {
        &self.bits
    }

    pub(crate) const fn bits_mut(&mut self) -> &mut BitArray {
        &mut self.bits
    }

    #[inline]
    pub(crate) fn contains(&self, hash: ItemHash) -> bool {
        self.shape.range().contains(hash.hi())
            && positions(self.shape, hash).all(|position| self.bits.bit(position))
    }

    #[inline]
    pub(crate) fn insert(&mut self, hash: ItemHash) -> Result<Insertion, OutOfRange> {
        check_in_range(self.shape.range(), hash)?;
        Ok(self.insert_in_range(hash))
    }

    #[inline]
    fn insert_in_range(&mut self, hash: ItemHash) -> Insertion {
        let mut outcome = Insertion::Present;
        for position in positions(self.shape, hash) {
            if self.bits.set(position) {
                outcome = Insertion::New;
            }
        }
        outcome
    }

    pub(crate) fn contains_batch(&self, hashes: &[ItemHash], present: &mut Vec<bool>) {
        present.clear();
        present.reserve(hashes.len());
        for (index, &hash) in hashes.iter().enumerate() {
            self.prefetch_ahead(hashes, index);
            present.push(self.contains(hash));
        }
    }

    pub(crate) fn insert_batch(
        &mut self,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> Result<(), OutOfRange> {
        outcomes.clear();
        check_all_in_range(self.shape.range(), hashes)?;
        outcomes.reserve(hashes.len());
        for (index, &hash) in hashes.iter().enumerate() {
            self.prefetch_ahead(hashes, index);
            outcomes.push(self.insert_in_range(hash));
        }
        Ok(())
    }

    /// Asks for the lines of the item some places behind this one.
    #[inline]
    fn prefetch_ahead(&self, hashes: &[ItemHash], index: usize) {
        let Some(&hash) = hashes.get(index + PREFETCH_DISTANCE) else { return };
        if wide::is_far(self.bits.lines()) && self.shape.range().contains(hash.hi()) {
            for position in positions(self.shape, hash) {
                wide::prefetch_far(self.bits.lines(), bits::index(position / u64::from(LINE_BITS)));
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) -> Result<u64, ShapeMismatch> {
        if self.shape != other.shape {
            return Err(ShapeMismatch { ours: self.shape.into(), theirs: other.shape.into() });
        }
        Ok(self.bits.or(&other.bits))
    }

    pub(crate) fn merge_part(&mut self, part: &Self) -> Result<u64, ShapeMismatch> {
        block_array::merge_part((self.shape, &mut self.bits), (part.shape, &part.bits))
    }

    pub(crate) fn fold(&self) -> Result<Self, FoldError> {
        let (shape, bits) = block_array::fold(self.shape, &self.bits)?;
        Ok(Self { shape, bits })
    }
}

/// The k positions of an item of the shape's range, counted from the range's first block.
#[inline]
pub(crate) fn positions(shape: BlockShape, hash: ItemHash) -> impl Iterator<Item = u64> + use<> {
    let width = u64::from(probe_width(shape));
    let step = if matches!(shape.kind(), Kind::Partitioned) { width } else { 0 };
    let mut start = shape.map().block(hash.hi()) * u64::from(shape.block_bits());
    let mut value = hash.lo();
    (0..shape.probe_count()).map(move |_| {
        value = value.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        let position = start + ((u128::from(value) * u128::from(width)) >> 64) as u64;
        start += step;
        position
    })
}
