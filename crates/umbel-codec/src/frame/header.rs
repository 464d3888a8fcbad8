//! The header of a frame: decodes its 60 bytes into fields, each of which is checked by itself.

use umbel_bits::RiceCode;
use umbel_filter::sizing::QUOTIENT_PAGE_SLOTS_MIN;
use umbel_filter::{BlockShape, HashFunction, HashRange, Kind, LINE_BITS, SingleShotShape};

use super::encoding::Encoding;
use super::gap_code::GapCode;
use super::{CHECKED_HEADER_BYTES, FRAME_HEADER_BYTES, FRAME_MAGIC, FRAME_VERSION, FrameKey};
use crate::error::{FrameError, HeaderError};
use crate::limits::{FRAME_PAYLOAD_BYTES_MAX, FRAME_POSITION_COUNT_MAX};

/// Above the size of a page in its field: the largest is 1,024 blocks of 64 quotients.
const QUOTIENT_LINES_END: u16 = 2_048;

/// What the frame holds, over the frame's hash range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Body {
    /// A single-shot filter or a part of one.
    SingleShot(SingleShotShape),
    /// A slice of an array of blocks.
    Blocks(BlockShape),
    /// A slice of a level of a scalable filter, as an array of blocks of [`Kind::Blocked`].
    Level(BlockShape),
    /// A part of a link of RedisBloom's chain, as lines.
    Link(BlockShape),
}

impl Body {
    pub(super) const fn kind(self) -> Kind {
        match self {
            Self::SingleShot(_) => Kind::SingleShot,
            Self::Blocks(shape) => shape.kind(),
            Self::Level(_) => Kind::Scalable,
            Self::Link(_) => Kind::RedisBloom,
        }
    }

    pub(super) const fn range(self) -> HashRange {
        match self {
            Self::SingleShot(shape) => shape.range(),
            Self::Blocks(shape) | Self::Level(shape) | Self::Link(shape) => shape.range(),
        }
    }
}

/// The header's fields.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Header {
    pub(super) key: FrameKey,
    pub(super) body: Body,
    pub(super) encoding: Encoding,
    pub(super) low_bits: u32,
    pub(super) count: u64,
    pub(super) payload_bytes: usize,
    pub(super) checksum: u32,
}

impl Header {
    /// A header whose payload is still to be written.
    pub(super) const fn new(
        key: FrameKey,
        body: Body,
        encoding: Encoding,
        code: GapCode,
        count: u64,
    ) -> Self {
        let (encoding, low_bits) = (encoding.coded_by(code), code.low_bits());
        Self { key, body, encoding, low_bits, count, payload_bytes: 0, checksum: 0 }
    }

    /// The header at the beginning of the bytes, or None if they end before it does.
    pub(super) fn peek(bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        let mut actual = [0; 4];
        actual.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        if !FRAME_MAGIC.iter().zip(bytes).all(|(expected, actual)| expected == actual) {
            return Err(HeaderError::Magic { actual }.into());
        }
        bytes.first_chunk().map(Self::parse).transpose()
    }

    /// Reads the fields behind the magic in order, and checks each.
    fn parse(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<Self, FrameError> {
        let mut fields = Fields { rest: bytes };
        let _magic: [u8; 4] = fields.take();
        let [version, kind, encoding, function] = fields.take();
        if version != FRAME_VERSION {
            return Err(HeaderError::Version { actual: version }.into());
        }
        let kind = Kind::from_id(kind).ok_or(HeaderError::Kind { actual: kind })?;
        let encoding = Encoding::from_id(encoding)
            .filter(|encoding| encoding.is_of(kind))
            .ok_or(HeaderError::Encoding { kind, actual: encoding })?;
        let function = HashFunction::from_id(function)
            .ok_or(HeaderError::HashFunction { actual: function })?;
        let [key_id, start, last, m, count] =
            std::array::from_fn(|_| u64::from_le_bytes(fields.take()));
        let [stored_low_bits, probe_count] = fields.take();
        let block_lines = u16::from_le_bytes(fields.take());
        let [payload_bytes, checksum] = std::array::from_fn(|_| u32::from_le_bytes(fields.take()));

        let range = HashRange::from_bounds((start, last)).map_err(HeaderError::Range)?;
        let low_bits = RiceCode::new(stored_low_bits.into()).map_err(HeaderError::Code)?.low_bits();
        if encoding == Encoding::Raw {
            check_unused("low bits", stored_low_bits.into())?;
        }
        let body = body(kind, range, m, probe_count, block_lines)?;
        let payload_bytes = check_payload_bytes(payload_bytes.into())?;
        let key = FrameKey { function, key_id };
        let header = Self { key, body, encoding, low_bits, count, payload_bytes, checksum };
        header.check_count()?;
        Ok(header)
    }

    /// Probes may repeat a block, and parts of a single-shot filter are checked when their first
    /// position is known; all other codes stand for different positions.
    fn check_count(&self) -> Result<(), FrameError> {
        match (self.body, self.encoding.base()) {
            (_, Encoding::Probes | Encoding::Part) => Ok(()),
            (Body::SingleShot(shape), _) => check_single_shot_count(self.count, shape.width()),
            (Body::Blocks(shape) | Body::Level(shape) | Body::Link(shape), _) => {
                check_at_most(self.count, shape.slot_count())
            }
        }
    }

    /// The header as far as the checksum covers it.
    pub(super) fn to_checked_bytes(self) -> [u8; CHECKED_HEADER_BYTES] {
        let range = self.body.range();
        let (m, probe_count, block_lines) = match self.body {
            Body::SingleShot(shape) => (shape.position_count(), 0, 0),
            Body::Blocks(shape) | Body::Level(shape) | Body::Link(shape) => {
                (shape.map().block_count(), shape.probe_count(), lines_of(shape))
            }
        };
        let low_bits = u8::try_from(self.low_bits).expect("at most 63");
        let probe_count = u8::try_from(probe_count).expect("at most PROBE_COUNT_MAX");
        let block_lines = u16::try_from(block_lines).expect("at most BLOCK_BITS_MAX bits");
        let payload_bytes = u32::try_from(self.payload_bytes).expect("at most 64 MiB");
        let mut bytes = [0; CHECKED_HEADER_BYTES];
        let (kind, encoding) = (self.body.kind().id(), self.encoding.id());
        let fields = FRAME_MAGIC
            .into_iter()
            .chain([FRAME_VERSION, kind, encoding, self.key.function.id()])
            .chain(self.key.key_id.to_le_bytes())
            .chain(range.start().to_le_bytes())
            .chain(range.last().to_le_bytes())
            .chain(m.to_le_bytes())
            .chain(self.count.to_le_bytes())
            .chain([low_bits, probe_count])
            .chain(block_lines.to_le_bytes())
            .chain(payload_bytes.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }
}

/// The field for the size of a block: of a quotient filter blocks of 64 quotients, and above them the bits of a count.
fn lines_of(shape: BlockShape) -> u32 {
    match shape.kind() {
        Kind::Quotient => {
            let lines = shape.block_bits() / QUOTIENT_PAGE_SLOTS_MIN;
            lines + shape.count_bits() * u32::from(QUOTIENT_LINES_END)
        }
        _ => shape.block_bits() / LINE_BITS,
    }
}

fn body(
    kind: Kind,
    range: HashRange,
    m: u64,
    probe_count: u8,
    block_lines: u16,
) -> Result<Body, HeaderError> {
    if kind == Kind::Quotient {
        let block_bits = u32::from(block_lines % QUOTIENT_LINES_END) * QUOTIENT_PAGE_SLOTS_MIN;
        let shape = BlockShape::new(kind, range, m, block_bits, probe_count.into());
        let shape = shape
            .and_then(|shape| shape.with_count_bits((block_lines / QUOTIENT_LINES_END).into()));
        return shape.map(Body::Blocks).map_err(HeaderError::Shape);
    }
    let block_bits = u32::from(block_lines) * LINE_BITS;
    let blocks = |kind| BlockShape::new(kind, range, m, block_bits, probe_count.into());
    let body = match kind {
        Kind::SingleShot => {
            check_unused("probe count", probe_count.into())?;
            check_unused("block lines", block_lines)?;
            SingleShotShape::new(range, m).map(Body::SingleShot)
        }
        Kind::Scalable => blocks(Kind::Blocked).map(Body::Level),
        Kind::RedisBloom => blocks(Kind::Classic).map(Body::Link),
        _ => blocks(kind).map(Body::Blocks),
    };
    body.map_err(HeaderError::Shape)
}

/// Takes fields of fixed size from the front of the bytes.
pub(crate) struct Fields<'a> {
    pub(crate) rest: &'a [u8],
}

impl Fields<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) =
            self.rest.split_first_chunk().expect("the fields' sizes sum up to the header's");
        self.rest = rest;
        *field
    }
}

fn check_unused(field: &'static str, actual: u16) -> Result<(), HeaderError> {
    if actual == 0 { Ok(()) } else { Err(HeaderError::Unused { field, actual }) }
}

pub(super) fn check_single_shot_count(count: u64, width: u64) -> Result<(), FrameError> {
    check_at_most(count, width.min(FRAME_POSITION_COUNT_MAX))
}

const fn check_at_most(count: u64, count_max: u64) -> Result<(), FrameError> {
    if count > count_max {
        return Err(FrameError::TooManyPositions { count, count_max });
    }
    Ok(())
}

pub(super) fn check_payload_bytes(payload_bytes: u64) -> Result<usize, FrameError> {
    match usize::try_from(payload_bytes) {
        Ok(bytes) if bytes <= FRAME_PAYLOAD_BYTES_MAX => Ok(bytes),
        _ => Err(FrameError::PayloadTooLarge { payload_bytes }),
    }
}
