//! Common to the kinds that are arrays of blocks: taking parts, joining them again, and halving.

use crate::bits::{BitArray, LINE_WORDS, index, scalar, wide};
use crate::block_map::BlockMap;
use crate::blocked::FoldError;
use crate::hash::ItemHash;
use crate::join_error::FilterJoinError;
use crate::kind::Kind;
use crate::lanes::{self, LaneSets};
use crate::range::HashRange;
use crate::shape::{BlockShape, CreateError, LINE_BITS, ShapeError, ShapeMismatch};

/// The positions of an item of the map's range among those of blocks of 512.
#[inline]
pub(crate) fn positions(
    map: BlockMap,
    sets: &LaneSets,
    hash: ItemHash,
) -> impl Iterator<Item = u64> + use<> {
    // Without a meaning for a hash of another range, as its block.
    let first = map.block(hash.hi()).wrapping_mul(u64::from(LINE_BITS));
    let in_block = lanes::positions(sets, scalar::probe_seed(hash));
    in_block.map(move |position| first.wrapping_add(u64::from(position)))
}

/// ORs the blocks of a part of our hash range in and returns how many bits it newly set.
pub(crate) fn merge_part(
    (shape, bits): (BlockShape, &mut BitArray),
    (part_shape, part_bits): (BlockShape, &BitArray),
) -> Result<u64, ShapeMismatch> {
    let first = index(shape.part_offset(part_shape)?) * block_words(shape);
    let part = part_bits.words();
    Ok(wide::or(&mut bits.words_mut()[first..][..part.len()], part))
}

/// The shape of a part of our hash range, and its blocks among our words. The range must be such a
/// part.
pub(crate) fn part_of(
    shape: BlockShape,
    words: &[u64],
    range: HashRange,
) -> Result<(BlockShape, &[u64]), ShapeError> {
    let part = shape.with_range(range)?;
    let offset = part.map().first_block() - shape.map().first_block();
    let block_words = block_words(shape);
    Ok((part, &words[index(offset) * block_words..][..index(part.map().len()) * block_words]))
}

/// The shape over the ranges of two neighbouring filters, which may differ in their ranges only.
pub(crate) fn union_of(
    [lower, upper]: [BlockShape; 2],
    range: HashRange,
) -> Result<BlockShape, FilterJoinError> {
    let mismatch = ShapeMismatch { ours: lower.into(), theirs: upper.into() };
    let union = lower.with_range(range).map_err(CreateError::from)?;
    let are_parts = [lower, upper].iter().all(|&part| union.offset_of(part).is_some());
    if are_parts { Ok(union) } else { Err(mismatch.into()) }
}

/// Writes the blocks of two neighbouring filters into an array over both ranges. If the border divides a block, both
/// filters have it: then `join` combines the two.
pub(crate) fn join_words(
    union: &mut [u64],
    [lower, upper]: [&[u64]; 2],
    join: impl FnOnce(&mut [u64], &[u64]),
) {
    let (ours, theirs) = union.split_at_mut(lower.len());
    ours.copy_from_slice(lower);
    let (divided, rest) = upper.split_at(upper.len() - theirs.len());
    theirs.copy_from_slice(rest);
    join(&mut ours[lower.len() - divided.len()..], divided);
}

/// Neighbouring blocks ORed; of a single block, neighbouring bits.
pub(crate) fn fold(
    shape: BlockShape,
    bits: &BitArray,
) -> Result<(BlockShape, BitArray), FoldError> {
    let spreads = matches!(shape.kind(), Kind::Classic | Kind::Partitioned);
    if spreads && shape.map().block_count() == 1 {
        fold_block(shape, bits)
    } else {
        fold_blocks(shape, bits)
    }
}

fn fold_blocks(shape: BlockShape, bits: &BitArray) -> Result<(BlockShape, BitArray), FoldError> {
    let map = shape.map();
    if !map.block_count().is_multiple_of(2) {
        return Err(FoldError::OddBlockCount { block_count: map.block_count() });
    }
    let half = (map.block_count() / 2, shape.block_bits());
    let (half, mut folded) = empty(shape, half)?;
    let len = block_words(shape);
    // The block before a range's first one may be missing.
    let first = map.first_block() % 2;
    for (block, number) in bits.words().chunks_exact(len).zip(first..) {
        wide::or(&mut folded.words_mut()[index(number / 2) * len..][..len], block);
    }
    Ok((half, folded))
}

/// A position is ⌊v · width / 2^64⌋ for a number v that does not depend on the width, so in half
/// the width it is half the position, rounded down. For this, parts must end between two bits that
/// are not ORed with each other.
fn fold_block(shape: BlockShape, bits: &BitArray) -> Result<(BlockShape, BitArray), FoldError> {
    let (block_bits, width) = (shape.block_bits(), probe_width(shape));
    if !block_bits.is_multiple_of(2 * LINE_BITS) || !width.is_multiple_of(2) {
        return Err(FoldError::OddBlock { block_bits, part_bits: width });
    }
    let (half, mut folded) = empty(shape, (1, block_bits / 2))?;
    let pairs = bits.words().chunks_exact(2);
    for (word, pair) in folded.words_mut().iter_mut().zip(pairs) {
        *word = halve(pair[0]) | halve(pair[1]) << 32;
    }
    Ok((half, folded))
}

fn empty(
    shape: BlockShape,
    (block_count, block_bits): (u64, u32),
) -> Result<(BlockShape, BitArray), CreateError> {
    let (range, probe_count) = (shape.range(), shape.probe_count());
    let shape = BlockShape::new(shape.kind(), range, block_count, block_bits, probe_count)?;
    Ok((shape, BitArray::new(shape.memory_bytes() / 64)?))
}

/// Number of positions that a probe chooses from: a part's, or a whole block's where there are no
/// parts.
pub(crate) const fn probe_width(shape: BlockShape) -> u32 {
    match shape.kind() {
        Kind::Partitioned => shape.block_bits() / shape.probe_count(),
        _ => shape.block_bits(),
    }
}

/// Bit i of the result is bit 2i OR bit 2i + 1.
const fn halve(word: u64) -> u64 {
    let mut bits = (word | word >> 1) & 0x5555_5555_5555_5555;
    bits = (bits | bits >> 1) & 0x3333_3333_3333_3333;
    bits = (bits | bits >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits >> 4) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits >> 8) & 0x0000_ffff_0000_ffff;
    (bits | bits >> 16) & 0x0000_0000_ffff_ffff
}

fn block_words(shape: BlockShape) -> usize {
    index(shape.block_lines()) * LINE_WORDS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The slow twin: bit by bit.
        #[test]
        fn halve_ors_neighbours(word: u64) {
            let slow = (0..32).map(|i| u64::from(word >> (2 * i) & 3 != 0) << i).sum::<u64>();
            prop_assert_eq!(halve(word), slow);
        }
    }
}
