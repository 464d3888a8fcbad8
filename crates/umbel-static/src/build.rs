//! Whole files, of keys that are all in memory.

use std::ops::Range;

use umbel_codec::FrameKey;
use umbel_filter::ItemHash;

use crate::chunk::BuiltChunk;
use crate::error::BuildError;
use crate::{HeadBuilder, StaticShape, chunk_of};

/// A filter with fingerprints of `check_bits` bits, 1 to 56. A hash that comes twice is one key.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_filter::{HashFunction, ItemHash};
/// use umbel_static::{StaticFile, build_filter};
///
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
/// let bytes = build_filter(vec![ItemHash::new(1, 2), ItemHash::new(1, 2)], 8, key)?;
/// assert_eq!(StaticFile::parse(&bytes)?.head().key_count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`BuildError::Shape`], [`BuildError::TooManyKeys`] or [`BuildError::Unpeelable`].
pub fn build_filter(
    mut hashes: Vec<ItemHash>,
    check_bits: u8,
    key: FrameKey,
) -> Result<Vec<u8>, BuildError> {
    let shape = StaticShape::filter(check_bits, key)?;
    hashes.sort_unstable();
    hashes.dedup();
    let chunk_bits = shape.chunk_bits(hashes.len() as u64, 0)?;
    let build = |chunk| shape.filter_chunk(&hashes[range(&hashes, chunk, chunk_bits)], chunk_bits);
    whole(&shape, chunk_bits, build)
}

/// A map to values of `value_bits` bits, with `check_bits` bits that are compared, together 1 to 56. A key may come
/// twice with one value.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_filter::{HashFunction, ItemHash};
/// use umbel_static::{StaticFile, build_map};
///
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
/// let bytes = build_map(vec![(ItemHash::new(1, 2), 5), (ItemHash::new(3, 4), 6)], 3, 16, key)?;
/// assert_eq!(StaticFile::parse(&bytes)?.value(ItemHash::new(3, 4)), Some(6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// As [`build_filter`]; [`BuildError::TwoValues`] or [`BuildError::ValueTooWide`].
pub fn build_map(
    mut pairs: Vec<(ItemHash, u64)>,
    value_bits: u8,
    check_bits: u8,
    key: FrameKey,
) -> Result<Vec<u8>, BuildError> {
    let shape = StaticShape::map(value_bits, check_bits, key)?;
    pairs.sort_unstable();
    pairs.dedup();
    if let Some(pair) = pairs.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let (hash, values) = (pair[0].0, [pair[0].1, pair[1].1]);
        return Err(BuildError::TwoValues { hash, values });
    }
    let (hashes, values): (Vec<ItemHash>, Vec<u64>) = pairs.into_iter().unzip();
    let chunk_bits = shape.chunk_bits(hashes.len() as u64, 0)?;
    let build = |chunk| {
        let range = range(&hashes, chunk, chunk_bits);
        shape.map_chunk(&hashes[range.clone()], &values[range], chunk_bits)
    };
    whole(&shape, chunk_bits, build)
}

/// The exact set of some members among some others.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_filter::{HashFunction, ItemHash};
/// use umbel_static::{StaticFile, build_exact};
///
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
/// let bytes = build_exact(vec![ItemHash::new(1, 2)], vec![ItemHash::new(3, 4)], key)?;
/// let file = StaticFile::parse(&bytes)?;
/// assert!(file.contains(ItemHash::new(1, 2)) && !file.contains(ItemHash::new(3, 4)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// As [`build_filter`]; [`BuildError::OnBothSides`].
pub fn build_exact(
    mut members: Vec<ItemHash>,
    mut others: Vec<ItemHash>,
    key: FrameKey,
) -> Result<Vec<u8>, BuildError> {
    for hashes in [&mut members, &mut others] {
        hashes.sort_unstable();
        hashes.dedup();
    }
    let [member_count, other_count] = [members.len() as u64, others.len() as u64];
    let shape = StaticShape::exact(member_count, other_count, key)?;
    let chunk_bits = shape.chunk_bits(member_count, other_count)?;
    let build = |chunk| {
        let members = &members[range(&members, chunk, chunk_bits)];
        let mut begun = shape.exact_chunk(members.to_vec(), chunk_bits)?;
        begun.take_others(&others[range(&others, chunk, chunk_bits)])?;
        begun.finish()
    };
    whole(&shape, chunk_bits, build)
}

/// Which of some sorted hashes are those of a chunk.
fn range(hashes: &[ItemHash], chunk: usize, chunk_bits: u8) -> Range<usize> {
    let before = |chunk| hashes.partition_point(|hash| chunk_of(*hash, chunk_bits) < chunk);
    before(chunk)..before(chunk + 1)
}

fn whole(
    shape: &StaticShape,
    chunk_bits: u8,
    build: impl Fn(usize) -> Result<BuiltChunk, BuildError>,
) -> Result<Vec<u8>, BuildError> {
    let mut head = HeadBuilder::new(shape.clone(), chunk_bits);
    let mut bytes = vec![0; head.head_bytes()];
    for chunk in 0..1 << chunk_bits {
        let chunk = build(chunk)?;
        head.push(&chunk);
        bytes.extend(chunk.cells());
    }
    let head = head.finish().to_bytes();
    bytes[..head.len()].copy_from_slice(&head);
    Ok(bytes)
}
