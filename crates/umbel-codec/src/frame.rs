//! The frame in which a filter travels: everything a decoder needs is in its header.
//!
//! Integers are little-endian, code bits go from the most significant one down. Header, 60 bytes:
//!
//! ```text
//! 0      4   5    6   7    8      16    24   32  40    48       52     56     60
//! │ UMBL │ver│kind│enc│hash│key id│start│last│ m │count│low bits│length│crc32c│ payload
//! │  4   │u8 │ u8 │u8 │ u8 │ u64  │ u64 │u64 │u64│ u64 │  u32   │ u32  │ u32  │
//!
//! ver     1                                     last      last hash of the range, inclusive
//! kind    1 single-shot                         m         positions over the whole hash space
//! enc     1 gaps                                count     set positions in the payload
//! hash    1 XXH3-128, 2 SipHash-1-3-128         low bits  B of the payload's Rice code
//! key id  seed of XXH3, name of a SipHash key   length    bytes of payload
//! start   first hash of the range               crc32c    over bytes 0..56 and the payload
//! ```
//!
//! Payload of kind 1: `count` Rice codes of the positions' gaps, as indexes (see `gaps`), zeros up
//! to the end of the byte. A frame that decodes encodes to the same bytes.

use umbel_bits::{BitReader, BitWriter, RiceCode, decode_indexes, encode_indexes, indexes_bits};
use umbel_filter::{HashFunction, HashRange, SingleShot, SingleShotShape};

use crate::checksum::crc32c;
use crate::error::{FrameError, KeyMismatch};
use crate::limits::{FRAME_PAYLOAD_BYTES_MAX, FRAME_POSITION_COUNT_MAX};

#[cfg(test)]
mod frame_test;

/// What every filter frame begins with.
pub const FRAME_MAGIC: [u8; 4] = *b"UMBL";

/// Version of the frame that this release writes and reads.
pub const FRAME_VERSION: u8 = 1;

/// Bytes before the payload.
pub const FRAME_HEADER_BYTES: usize = 60;

/// Bytes of the header that the checksum covers: all but itself.
const CHECKED_HEADER_BYTES: usize = 56;

const KIND_SINGLE_SHOT: u8 = 1;
const ENCODING_GAPS: u8 = 1;

/// The hash function of a filter's items, and which seed or key it used.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_filter::HashFunction;
///
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };
/// assert_ne!(key, FrameKey { key_id: 8, ..key });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameKey {
    /// The hash function.
    pub function: HashFunction,
    /// XXH3: the seed itself. SipHash: a number that names the key among its holders. Frames are
    /// not encrypted, so it must never be the key or derived from it.
    pub key_id: u64,
}

/// A decoded frame: a filter, what its items were hashed with, and how it was coded.
///
/// ```
/// use umbel_codec::{Frame, FrameKey};
/// use umbel_filter::{HashFunction, HashRange, Insert, ItemHash, SingleShot, SingleShotShape};
///
/// let mut filter = SingleShot::new(SingleShotShape::new(HashRange::WHOLE, 16)?);
/// filter.insert(ItemHash::new(0x3000_0000_0000_0000, 0))?;
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 };
///
/// let bytes = Frame::encode_single_shot(&filter, key)?;
/// // 60 bytes of header, and one for the code of position 3.
/// assert_eq!(bytes.len(), 61);
/// let (frame, consumed_bytes) = Frame::decode(&bytes)?;
/// assert_eq!(consumed_bytes, 61);
/// assert_eq!(frame.into_single_shot(key)?, filter);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    filter: SingleShot,
    key: FrameKey,
    code: RiceCode,
}

impl Frame {
    /// The frame of a single-shot filter, coded with the best Rice code for its fill.
    ///
    /// # Errors
    /// If the filter is too large for one frame ([`FrameError::PayloadTooLarge`],
    /// [`FrameError::TooManyPositions`]): cut it by hash range.
    pub fn encode_single_shot(filter: &SingleShot, key: FrameKey) -> Result<Vec<u8>, FrameError> {
        let holes = filter.shape().width() - filter.len();
        // The gaps before each of the n positions and after the last share the holes.
        let mean_gap = holes as f64 / (filter.len() as f64 + 1.0);
        encode(filter, key, RiceCode::for_mean_gap(mean_gap))
    }

    /// The frame's bytes, the same that it was decoded from.
    ///
    /// # Errors
    /// None for a frame that was decoded: it met the limits before.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        encode(&self.filter, self.key, self.code)
    }

    /// Decodes the frame at the beginning of `bytes` and returns it with the number of bytes that
    /// it took; more may follow.
    ///
    /// Allocates 8 bytes per position, only after limits and checksum hold, and at most
    /// 8 · [`FRAME_POSITION_COUNT_MAX`].
    ///
    /// # Errors
    /// If the bytes end before the frame does, or are no frame that this release reads.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), FrameError> {
        let truncated = |needed| FrameError::Truncated { needed, available: bytes.len() };
        let Some(header) = Header::peek(bytes)? else {
            return Err(truncated(FRAME_HEADER_BYTES));
        };
        let total_bytes = FRAME_HEADER_BYTES + header.payload_bytes;
        let (Some(checked), Some(payload)) =
            (bytes.get(..CHECKED_HEADER_BYTES), bytes.get(FRAME_HEADER_BYTES..total_bytes))
        else {
            return Err(truncated(total_bytes));
        };
        let actual = crc32c(&[checked, payload]);
        if actual != header.checksum {
            return Err(FrameError::Checksum { expected: header.checksum, actual });
        }
        Ok((header.decode_payload(payload)?, total_bytes))
    }

    /// Length in bytes of the frame at the beginning of `bytes`, or None if more bytes are needed
    /// to tell. For streams: read so many bytes, then [`decode`](Self::decode).
    ///
    /// # Errors
    /// If the bytes so far begin no frame that this release reads.
    pub fn total_bytes(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        let header = Header::peek(bytes)?;
        Ok(header.map(|header| FRAME_HEADER_BYTES + header.payload_bytes))
    }

    /// The filter, whatever its items were hashed with.
    #[must_use]
    pub const fn single_shot(&self) -> &SingleShot {
        &self.filter
    }

    /// The filter, if its items were hashed as the receiver hashes.
    ///
    /// # Errors
    /// If the frame's hash function or key is another one.
    pub fn into_single_shot(self, expected: FrameKey) -> Result<SingleShot, KeyMismatch> {
        if self.key != expected {
            return Err(KeyMismatch { expected, actual: self.key });
        }
        Ok(self.filter)
    }

    /// What the filter's items were hashed with.
    #[must_use]
    pub const fn key(&self) -> FrameKey {
        self.key
    }

    /// The Rice code of the payload.
    #[must_use]
    pub const fn code(&self) -> RiceCode {
        self.code
    }
}

fn encode(filter: &SingleShot, key: FrameKey, code: RiceCode) -> Result<Vec<u8>, FrameError> {
    let indexes = || filter.positions().iter().copied();
    check_count(filter.len(), filter.shape())?;
    let payload_bytes = indexes_bits(code, indexes()).div_ceil(8);
    let header = Header {
        key,
        shape: filter.shape(),
        count: filter.len(),
        code,
        payload_bytes: check_payload_bytes(payload_bytes)?,
        checksum: 0,
    };
    let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES + header.payload_bytes);
    bytes.extend(header.to_checked_bytes());
    bytes.extend([0; 4]); // the checksum, once the payload is there
    let mut writer = BitWriter::with_buffer(bytes);
    encode_indexes(code, indexes(), &mut writer);
    let mut bytes = writer.finish();
    if let Some((header, payload)) = bytes.split_first_chunk_mut::<FRAME_HEADER_BYTES>()
        && let Some((checked, checksum)) = header.split_first_chunk_mut::<CHECKED_HEADER_BYTES>()
    {
        checksum.copy_from_slice(&crc32c(&[checked, payload]).to_le_bytes());
    }
    Ok(bytes)
}

/// The header's fields, each valid by itself.
struct Header {
    key: FrameKey,
    shape: SingleShotShape,
    count: u64,
    code: RiceCode,
    payload_bytes: usize,
    checksum: u32,
}

impl Header {
    /// The header at the beginning of the bytes, or None if they end before it does.
    fn peek(bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        let mut actual = [0; 4];
        actual.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        if !FRAME_MAGIC.iter().zip(bytes).all(|(expected, actual)| expected == actual) {
            return Err(FrameError::Magic { expected: FRAME_MAGIC, actual });
        }
        bytes.first_chunk().map(Self::parse).transpose()
    }

    /// Reads the fields behind the magic in order, and checks each.
    fn parse(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<Self, FrameError> {
        let mut fields = Fields { rest: bytes };
        let _magic: [u8; 4] = fields.take();
        let [version, kind, encoding, function] = fields.take();
        check_byte(FRAME_VERSION, version, |expected, actual| FrameError::Version {
            expected,
            actual,
        })?;
        check_byte(KIND_SINGLE_SHOT, kind, |expected, actual| FrameError::Kind {
            expected,
            actual,
        })?;
        check_byte(ENCODING_GAPS, encoding, |expected, actual| FrameError::Encoding {
            expected,
            actual,
        })?;
        let function =
            HashFunction::from_id(function).ok_or(FrameError::HashFunction { actual: function })?;
        let [key_id, start, last, position_count, count] =
            std::array::from_fn(|_| u64::from_le_bytes(fields.take()));
        let [low_bits, payload_bytes, checksum] =
            std::array::from_fn(|_| u32::from_le_bytes(fields.take()));
        let range = HashRange::new(start, u128::from(last) + 1).map_err(FrameError::Range)?;
        let shape = SingleShotShape::new(range, position_count).map_err(FrameError::Shape)?;
        check_count(count, shape)?;
        Ok(Self {
            key: FrameKey { function, key_id },
            shape,
            count,
            code: RiceCode::new(low_bits).map_err(FrameError::Code)?,
            payload_bytes: check_payload_bytes(payload_bytes.into())?,
            checksum,
        })
    }

    /// The header as far as the checksum covers it.
    fn to_checked_bytes(&self) -> [u8; CHECKED_HEADER_BYTES] {
        let range = self.shape.range();
        let mut bytes = [0; CHECKED_HEADER_BYTES];
        let fields = FRAME_MAGIC
            .into_iter()
            .chain([FRAME_VERSION, KIND_SINGLE_SHOT, ENCODING_GAPS, self.key.function.id()])
            .chain(self.key.key_id.to_le_bytes())
            .chain(range.start().to_le_bytes())
            .chain(range.last().to_le_bytes())
            .chain(self.shape.position_count().to_le_bytes())
            .chain(self.count.to_le_bytes())
            .chain(self.code.low_bits().to_le_bytes())
            .chain(payload_field(self.payload_bytes).to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    fn decode_payload(self, payload: &[u8]) -> Result<Frame, FrameError> {
        let Self { key, shape, count, code, .. } = self;
        let mut reader = BitReader::new(payload);
        let mut positions = Vec::new();
        decode_indexes(&mut reader, code, count, shape.width(), &mut positions)
            .and_then(|()| reader.finish())
            .map_err(FrameError::Code)?;
        let filter = SingleShot::from_positions(shape, positions)
            .expect("indexes strictly increase and lie below the width");
        Ok(Frame { filter, key, code })
    }
}

/// Takes fields of fixed size from the front of the header.
struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) =
            self.rest.split_first_chunk().expect("the fields' sizes sum up to the header's");
        self.rest = rest;
        *field
    }
}

fn check_byte(expected: u8, actual: u8, error: fn(u8, u8) -> FrameError) -> Result<(), FrameError> {
    if actual == expected { Ok(()) } else { Err(error(expected, actual)) }
}

fn check_count(count: u64, shape: SingleShotShape) -> Result<(), FrameError> {
    let count_max = shape.width().min(FRAME_POSITION_COUNT_MAX);
    if count > count_max {
        return Err(FrameError::TooManyPositions { count, count_max });
    }
    Ok(())
}

fn check_payload_bytes(payload_bytes: u64) -> Result<usize, FrameError> {
    match usize::try_from(payload_bytes) {
        Ok(bytes) if bytes <= FRAME_PAYLOAD_BYTES_MAX => Ok(bytes),
        _ => Err(FrameError::PayloadTooLarge { payload_bytes }),
    }
}

fn payload_field(payload_bytes: usize) -> u32 {
    u32::try_from(payload_bytes).expect("a payload is at most 64 MiB")
}
