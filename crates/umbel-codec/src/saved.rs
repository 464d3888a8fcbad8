//! A whole filter as one value of bytes: a small head, and the filter's frames one after the other, as
//! [`crate::layout`] has them.

use thiserror::Error;
use umbel_filter::{
    AnyFilter, CreateError, Describe, HashRange, HashRangeError, Kind, ScalableShape, Shape,
    ShapeError, SingleShotShape,
};

use crate::checksum::crc32c;
use crate::error::FrameError;
use crate::first_bytes::FirstBytes;
use crate::frame::{AssembleError, Fields, FilterAssembler, FrameKey, FrameView, frames};
use crate::limits::FRAME_PAYLOAD_BYTES_MAX;

/// The first bytes of a saved filter.
pub const SAVED_MAGIC: [u8; 4] = *b"UMBF";

/// The version that is written, and the only one that is read.
pub const SAVED_VERSION: u8 = 1;

/// Bytes before the first frame.
pub const SAVED_HEAD_BYTES: usize = 36;

/// Bytes of the head that its checksum covers.
const CHECKED_BYTES: usize = 32;

/// A filter and the hash function and key of its items: all that must be stored.
///
/// ```
/// use umbel_codec::{FrameKey, SavedFilter};
/// use umbel_filter::{AnyFilter, Blocked, Contains, HashRange, Insert, ItemHasher};
///
/// let hasher = ItemHasher::Xxh3 { seed: 7 };
/// let mut filter = Blocked::for_rate(HashRange::WHOLE, 1_000, 0.01)?;
/// filter.insert(hasher.hash(b"alice"))?;
///
/// let saved = SavedFilter { key: FrameKey::xxh3(7), filter: AnyFilter::from(filter) };
/// let bytes = saved.to_bytes()?;
/// // 36 bytes of head, 60 of the frame's, and 9 for the six positions that are set.
/// assert_eq!(bytes.len(), 105);
///
/// let loaded = SavedFilter::from_bytes(&bytes, 1 << 20)?;
/// assert_eq!(loaded, saved);
/// let hasher = loaded.key.hasher().ok_or("the key is a secret")?;
/// assert!(loaded.filter.contains(hasher.hash(b"alice")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With the feature `serde` it is a value of any format of serde: its bytes, of a filter that takes at most
/// [`FRAME_FILTER_BYTES_MAX`](crate::FRAME_FILTER_BYTES_MAX) of memory, 512 MiB. A larger one is refused when it is written:
/// use [`to_bytes`](Self::to_bytes) and [`from_bytes`](Self::from_bytes).
#[derive(Clone, PartialEq, Debug)]
pub struct SavedFilter {
    /// What the items were hashed with.
    pub key: FrameKey,
    /// The filter.
    pub filter: AnyFilter,
}

/// Why bytes are not a saved filter. Refuse them; no filter was made.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The bytes are not a saved filter. Check the name of the file.
    #[error(
        "not a saved filter: begins with {}, expected {}",
        FirstBytes(*actual), FirstBytes(SAVED_MAGIC)
    )]
    Magic {
        /// The received bytes; zeros stand for those that are missing.
        actual: [u8; 4],
    },
    /// Another release wrote it. Read it with that one.
    #[error("version {actual} of a saved filter, expected {SAVED_VERSION}")]
    Version {
        /// The version that came.
        actual: u8,
    },
    /// The bytes were cut, or others follow them. Take all bytes of the filter and nothing else.
    #[error("{actual} bytes, expected {expected}")]
    Length {
        /// Number of bytes that the filter takes, as far as is known.
        expected: u64,
        /// Number of bytes that were given.
        actual: u64,
    },
    /// The head was damaged. Take another copy.
    #[error("checksum {actual:#010x} of the head, expected {expected:#010x}")]
    Checksum {
        /// The checksum that the head names.
        expected: u32,
        /// The checksum of the received head.
        actual: u32,
    },
    /// Bytes that this version leaves empty are set: a writer's bug.
    #[error("unused bytes are {actual:02x?}, expected zeros")]
    Unused {
        /// What came.
        actual: [u8; 3],
    },
    /// The hash range is not valid: a writer's bug.
    #[error("hash range of the saved filter is not valid")]
    Range(#[from] HashRangeError),
    /// The first frame's shape is not valid over the head's range: a writer's bug.
    #[error("shape of the saved filter is not valid")]
    Shape(#[from] CreateError),
    /// A frame is not valid, at this many bytes from the start.
    #[error("frame at byte {offset} is not valid")]
    Frame {
        /// Where the frame begins.
        offset: u64,
        /// What is wrong with it.
        #[source]
        source: FrameError,
    },
    /// The frames are no filter, or one that takes more memory than was allowed.
    #[error("frames do not make the filter")]
    Assemble(#[from] AssembleError),
}

impl SavedFilter {
    /// The filter's bytes, the same for equal filters.
    ///
    /// # Errors
    /// If a block of the filter does not fit into a frame, which no block does that can be made here.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FrameError> {
        let range = self.filter.shape().range();
        let mut bytes = Vec::from(SAVED_MAGIC);
        bytes.extend([SAVED_VERSION, 0, 0, 0]);
        bytes.extend(range.start().to_le_bytes());
        bytes.extend(range.last().to_le_bytes());
        bytes.resize(SAVED_HEAD_BYTES, 0);
        for frame in frames(&self.filter, self.key, FRAME_PAYLOAD_BYTES_MAX) {
            bytes.extend(frame?);
        }
        let length = (bytes.len() - SAVED_HEAD_BYTES) as u64;
        if let Some((head, _)) = bytes.split_first_chunk_mut::<SAVED_HEAD_BYTES>() {
            let (checked, checksum) = head.split_at_mut(CHECKED_BYTES);
            if let Some(field) = checked.last_chunk_mut::<8>() {
                *field = length.to_le_bytes();
            }
            checksum.copy_from_slice(&crc32c(&[checked]).to_le_bytes());
        }
        Ok(bytes)
    }

    /// The filter of these bytes, all of which must belong to it; it may take `filter_bytes_max`
    /// bytes of memory, however few bytes announce it.
    ///
    /// # Errors
    /// If the bytes are no saved filter, are damaged or cut, or the filter takes more memory.
    pub fn from_bytes(bytes: &[u8], filter_bytes_max: u64) -> Result<Self, LoadError> {
        let (range, frames) = open(bytes)?;
        let mut offset = SAVED_HEAD_BYTES;
        let (first, mut consumed_bytes) = parse(frames, offset)?;
        let key = first.key();
        let shape = over_range(first.shape(), range)?;
        let mut assembler = FilterAssembler::new(shape, key, filter_bytes_max)?;
        assembler.push(&first)?;
        let mut rest = frames;
        loop {
            rest = rest.get(consumed_bytes..).unwrap_or_default();
            offset += consumed_bytes;
            if rest.is_empty() {
                return Ok(Self { key, filter: assembler.finish()? });
            }
            let frame;
            (frame, consumed_bytes) = parse(rest, offset)?;
            assembler.push(&frame)?;
        }
    }
}

/// The next frame, which begins so many bytes from the start, and its length.
fn parse(rest: &[u8], offset: usize) -> Result<(FrameView<'_>, usize), LoadError> {
    let offset = offset as u64;
    FrameView::parse(rest).map_err(|source| LoadError::Frame { offset, source })
}

/// The filter's hash range, and its frames.
fn open(bytes: &[u8]) -> Result<(HashRange, &[u8]), LoadError> {
    let mut magic = [0; 4];
    magic.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
    if magic != SAVED_MAGIC {
        return Err(LoadError::Magic { actual: magic });
    }
    let actual = bytes.len() as u64;
    let Some((head, frames)) = bytes.split_first_chunk::<SAVED_HEAD_BYTES>() else {
        return Err(LoadError::Length { expected: SAVED_HEAD_BYTES as u64, actual });
    };
    let mut fields = Fields { rest: head };
    let _magic: [u8; 4] = fields.take();
    let [version] = fields.take();
    if version != SAVED_VERSION {
        return Err(LoadError::Version { actual: version });
    }
    let unused = fields.take();
    let [start, last, length] = [(); 3].map(|()| u64::from_le_bytes(fields.take()));
    let expected = u32::from_le_bytes(fields.take());
    let checksum = crc32c(&[head.split_at(CHECKED_BYTES).0]);
    if checksum != expected {
        return Err(LoadError::Checksum { expected, actual: checksum });
    }
    if unused != [0; 3] {
        return Err(LoadError::Unused { actual: unused });
    }
    let expected = length.saturating_add(SAVED_HEAD_BYTES as u64);
    if actual != expected {
        return Err(LoadError::Length { expected, actual });
    }
    Ok((HashRange::from_bounds((start, last))?, frames))
}

/// The shape of the whole filter, of whose first frame this is the shape.
fn over_range(shape: Shape, range: HashRange) -> Result<Shape, CreateError> {
    Ok(match shape {
        Shape::Blocks(shape) => shape.with_range(range)?.into(),
        Shape::SingleShot(shape) => SingleShotShape::new(range, shape.position_count())?.into(),
        Shape::Scalable(shape) => {
            ScalableShape::new(range, shape.first_capacity(), shape.false_positive_rate())?.into()
        }
        Shape::RedisBloom(shape) if range == HashRange::WHOLE => shape.into(),
        Shape::RedisBloom(_) => return Err(ShapeError::Part { kind: Kind::RedisBloom }.into()),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use umbel_filter::{FilterPlan, HashFunction, Insert, ItemHasher};

    use super::*;

    const KEY: FrameKey = FrameKey { function: HashFunction::SipHash13Keyed, key_id: 0x1234 };

    fn saved(kind: Kind, range: HashRange, item_count: u32) -> SavedFilter {
        let plan = FilterPlan { kind, range, item_count: 2_000, false_positive_rate: 0.01 };
        let mut filter = AnyFilter::create(&plan).unwrap();
        let hasher = ItemHasher::Xxh3 { seed: 7 };
        let hashes = (0..item_count).map(|number| hasher.hash(&number.to_le_bytes()));
        for hash in hashes.filter(|hash| range.contains(hash.hi())) {
            filter.insert(hash).unwrap();
        }
        SavedFilter { key: KEY, filter }
    }

    fn ranges() -> [HashRange; 3] {
        [(0, 1 << 64), (0, 1 << 62), (3 << 61, (7 << 61) + 12_345)]
            .map(|(start, end)| HashRange::new(start, end).unwrap())
    }

    #[test]
    fn every_kind_comes_back_from_every_range() {
        for kind in Kind::ALL {
            let is_had = |range: &HashRange| !kind.is_whole() || *range == HashRange::WHOLE;
            for range in ranges().into_iter().filter(is_had) {
                for item_count in [0, 1, 2_000, 4_000] {
                    // A table takes in what it was made for, and little more.
                    let item_count = item_count >> u32::from(kind.has_fingerprints());
                    let saved = saved(kind, range, item_count);
                    let bytes = saved.to_bytes().unwrap();
                    let loaded = SavedFilter::from_bytes(&bytes, 1 << 20).unwrap();
                    assert_eq!(loaded, saved, "{kind} over {range:?}");
                    assert_eq!(loaded.to_bytes().unwrap(), bytes, "{kind} over {range:?}");
                }
            }
        }
    }

    /// More frames than one: the filter's bytes alone exceed the largest payload.
    #[test]
    fn a_filter_of_several_frames_comes_back() {
        let mut filter = umbel_filter::Blocked::new(HashRange::WHOLE, (65 << 20) / 64, 8).unwrap();
        // Half of all bits, evenly and without order, so that no code is shorter than the words.
        let mut state = 0_u64;
        for word in filter.words_mut() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *word = state ^ state >> 29;
        }
        let saved = SavedFilter { key: KEY, filter: filter.into() };
        let bytes = saved.to_bytes().unwrap();
        assert!(bytes.len() > FRAME_PAYLOAD_BYTES_MAX);
        assert!(SavedFilter::from_bytes(&bytes, 65 << 20) == Ok(saved));
        // Cut between the frames, with a head that says so: the frames do not cover the range.
        let (_, first_bytes) = FrameView::parse(&bytes[SAVED_HEAD_BYTES..]).unwrap();
        let mut cut = bytes[..SAVED_HEAD_BYTES + first_bytes].to_vec();
        cut[24..32].copy_from_slice(&(first_bytes as u64).to_le_bytes());
        let checksum = crc32c(&[&cut[..CHECKED_BYTES]]);
        cut[32..36].copy_from_slice(&checksum.to_le_bytes());
        let refused = SavedFilter::from_bytes(&cut, 65 << 20);
        assert!(matches!(refused, Err(LoadError::Assemble(AssembleError::Incomplete { .. }))));
    }

    #[test]
    fn a_filter_larger_than_allowed_is_refused() {
        let bytes = saved(Kind::Blocked, HashRange::WHOLE, 0).to_bytes().unwrap();
        let refused = SavedFilter::from_bytes(&bytes, 64);
        assert!(matches!(refused, Err(LoadError::Assemble(AssembleError::TooLarge { .. }))));
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_refused() {
        for kind in Kind::ALL {
            let bytes = saved(kind, HashRange::WHOLE, 20).to_bytes().unwrap();
            for length in 0..bytes.len() {
                assert!(SavedFilter::from_bytes(&bytes[..length], 1 << 20).is_err(), "{kind}");
            }
            let mut damaged = bytes.clone();
            for bit in 0..8 * bytes.len() {
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(SavedFilter::from_bytes(&damaged, 1 << 20).is_err(), "{kind}, bit {bit}");
                damaged[bit / 8] ^= 1 << (bit % 8);
            }
            damaged.push(0);
            let (expected, actual) = (bytes.len() as u64, damaged.len() as u64);
            let refused = SavedFilter::from_bytes(&damaged, 1 << 20);
            assert_eq!(refused, Err(LoadError::Length { expected, actual }));
        }
    }

    #[test]
    fn the_head_says_what_is_wrong_with_it() {
        let bytes = saved(Kind::Classic, HashRange::WHOLE, 5).to_bytes().unwrap();
        let load = |bytes: &[u8]| SavedFilter::from_bytes(bytes, 1 << 20);
        assert_eq!(load(b"UM"), Err(LoadError::Magic { actual: *b"UM\0\0" }));
        assert_eq!(load(&bytes[..20]), Err(LoadError::Length { expected: 36, actual: 20 }));
        let mut later = bytes.clone();
        later[4] = 2;
        assert_eq!(load(&later), Err(LoadError::Version { actual: 2 }));
        let sealed = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            let checksum = crc32c(&[&bytes[..CHECKED_BYTES]]);
            bytes[32..36].copy_from_slice(&checksum.to_le_bytes());
            bytes
        };
        assert_eq!(load(&sealed(6, 9)), Err(LoadError::Unused { actual: [0, 9, 0] }));
        assert!(matches!(load(&sealed(15, 1)), Err(LoadError::Assemble(_))));
        // No frames at all.
        let mut empty = sealed(24, 0)[..SAVED_HEAD_BYTES].to_vec();
        empty[24..32].fill(0);
        let checksum = crc32c(&[&empty[..CHECKED_BYTES]]);
        empty[32..36].copy_from_slice(&checksum.to_le_bytes());
        assert!(matches!(load(&empty), Err(LoadError::Frame { offset: 36, .. })));
    }

    proptest! {
        /// Any bytes behind a right head: a filter that comes back, or an error.
        #[test]
        fn any_bytes_are_a_filter_or_an_error(
            frames in proptest::collection::vec(any::<u8>(), 0..200), start: u64, last: u64,
        ) {
            let mut bytes = Vec::from(SAVED_MAGIC);
            bytes.extend([SAVED_VERSION, 0, 0, 0]);
            for number in [start, last, frames.len() as u64] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend(crc32c(&[&bytes]).to_le_bytes());
            bytes.extend(frames);
            if let Ok(saved) = SavedFilter::from_bytes(&bytes, 1 << 20) {
                let again = saved.to_bytes().unwrap();
                prop_assert_eq!(SavedFilter::from_bytes(&again, 1 << 20), Ok(saved));
            }
        }
    }
}
