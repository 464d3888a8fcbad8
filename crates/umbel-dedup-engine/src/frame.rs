//! The frame: the unit that one worker sends to another, in the exchange and while groups are counted.
//!
//! ```text
//! 0       1         2      3       4       5                                             | then
//! | 'U'   | version | kind | flags | param | cell | sequence | count | covered | bytes   | crc32c u32 LE | payload
//! |  u8   |   u8    |  u8  |  u8   |  u8   |  LEB128 each, shortest form; covered only in verdicts
//! flags: 1 LAST of the stream, 2 RAW bitmap, 4 FULL_HASH, 8 FINAL, 16 RECORD_ID, 32 COMPLEMENT, 64 SCORE, 128 CAUSE
//! ```
//!
//! A *stream* is the frames with the same sender, receiver, kind and cell; `sequence` counts them. `param` is
//! the Rice parameter of positions and verdicts, the number of bits of a refinement, or the number of residue
//! bits of a survivor. Job, sender, receiver and attempt are known from the connection and are not sent;
//! the checksum covers them as a prefix, so a frame that reaches another job or worker is rejected like a
//! damaged one. Decoding a frame allocates no memory.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use super::error::ExchangeFrameError;
use crate::FrameResult;
use crate::limits::{DEDUP_CELLS_MAX, FRAME_PAYLOAD_BYTES_MAX};
use umbel_bits::{Leb128, put_leb128};
use umbel_codec::crc32c;

/// First byte of every frame.
const MAGIC: u8 = b'U';

/// Version of the frame and of the payloads.
const VERSION: u8 = 1;

/// The limit of a payload, in the type of header fields.
#[expect(clippy::cast_possible_truncation, reason = "below 2 GiB")]
const PAYLOAD_BYTES_MAX: u32 = FRAME_PAYLOAD_BYTES_MAX as u32;

/// Bytes of the checksum.
const CHECKSUM_BYTES: usize = 4;

/// What a frame contains. A verdict has the number of the kind that it answers plus 16.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// Positions of the sender's entries in the cell.
    Positions = 1,
    /// Refinement bits of the candidates' hashes.
    Refine = 2,
    /// The rest of the survivors' hashes.
    Residues = 3,
    /// Items, at exactness `bytes`.
    Items = 4,
    /// Positions of the sample.
    Sample = 5,
    /// Group counting: the sender owns this range of records, and asks which records were dropped for them.
    Ask = 6,
    /// Group counting, answer to [`FrameKind::Ask`]: for which records of the range the sender has dropped
    /// others, and how many.
    Claims = 7,
    /// Answer to positions.
    PositionsVerdict = 17,
    /// Answer to a refinement.
    RefineVerdict = 18,
    /// Answer to residues.
    ResiduesVerdict = 19,
    /// Answer to items.
    ItemsVerdict = 20,
    /// Group counting, answer to claims: the sizes of the groups.
    Sizes = 23,
}

impl FrameKind {
    /// All kinds, for tables with one row per kind.
    pub const ALL: [FrameKind; 12] = [
        FrameKind::Positions,
        FrameKind::Refine,
        FrameKind::Residues,
        FrameKind::Items,
        FrameKind::Sample,
        FrameKind::Ask,
        FrameKind::Claims,
        FrameKind::PositionsVerdict,
        FrameKind::RefineVerdict,
        FrameKind::ResiduesVerdict,
        FrameKind::ItemsVerdict,
        FrameKind::Sizes,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether the frame is an owner's answer.
    #[must_use]
    pub const fn is_verdict(self) -> bool {
        self as u8 > 16
    }

    /// Whether the frame belongs to the counting of groups and not to the exchange of cells. Its `cell` is the number of a
    /// range of records.
    #[must_use]
    pub const fn is_group_count(self) -> bool {
        matches!(self, Self::Ask | Self::Claims | Self::Sizes)
    }

    /// The row of the kind in [`FrameKind::ALL`].
    #[must_use]
    pub(crate) fn row(self) -> usize {
        let byte = usize::from(self as u8);
        match self {
            Self::Sizes => Self::ALL.len() - 1,
            _ if self.is_verdict() => byte - 10,
            _ => byte - 1,
        }
    }
}

/// Flag bits of a frame.
pub(crate) mod flag {
    /// No frame of this stream follows.
    pub(crate) const LAST: u8 = 1;
    /// A verdict as a bitmap instead of a list.
    pub(crate) const RAW: u8 = 2;
    /// Positions are whole hashes.
    pub(crate) const FULL_HASH: u8 = 4;
    /// The verdict lists drops; entries that it does not list are kept.
    pub(crate) const FINAL: u8 = 8;
    /// Record ids follow: the entries' own, or in a verdict those of the kept records.
    pub(crate) const RECORD_ID: u8 = 16;
    /// The verdict lists the indexes that are *not* in it.
    pub(crate) const COMPLEMENT: u8 = 32;
    /// Ranks follow the entries.
    pub(crate) const SCORE: u8 = 64;
    /// A bit per drop follows the list: whether it is for a reference.
    pub(crate) const CAUSE: u8 = 128;

    /// The flags that a kind may have.
    pub(super) const fn allowed(kind: super::FrameKind) -> u8 {
        use super::FrameKind as K;
        match kind {
            K::Positions => LAST | FULL_HASH | RECORD_ID | SCORE,
            K::Refine | K::Sample | K::Ask | K::Claims | K::Sizes => LAST,
            K::Residues | K::Items => LAST | RECORD_ID | SCORE,
            _ => LAST | RAW | FINAL | RECORD_ID | COMPLEMENT | CAUSE,
        }
    }
}

/// What both ends of a connection know. Every frame's checksum covers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameLink {
    /// The job.
    pub job: u64,
    /// The sender.
    pub sender: u16,
    /// The receiver.
    pub receiver: u16,
    /// The attempt at the exchange that the frame belongs to.
    pub attempt: u32,
}

impl FrameLink {
    fn prefix(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let fields = self
            .job
            .to_le_bytes()
            .into_iter()
            .chain(self.sender.to_le_bytes())
            .chain(self.receiver.to_le_bytes())
            .chain(self.attempt.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }
}

/// A frame: its header's fields and its payload.
///
/// ```
/// use umbel_dedup_engine::{Frame, FrameKind, FrameLink};
/// let link = FrameLink { job: 7, sender: 0, receiver: 1, attempt: 0 };
/// let frame = Frame { kind: FrameKind::Refine, flags: 1, param: 6, cell: 3, sequence: 0, count: 4,
///                     covered: 0, payload: &[0b101010_11, 0b1111_0000, 0b11_000000] };
/// let bytes = frame.encode(link);
/// assert_eq!(bytes.len(), 5 + 4 + 4 + 3); // fixed, four one-byte numbers, checksum, payload
/// assert_eq!(Frame::decode(&bytes, link), Ok(frame));
/// assert!(Frame::decode(&bytes, FrameLink { receiver: 2, ..link }).is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// What it contains.
    pub kind: FrameKind,
    /// Flag bits, see the module.
    pub flags: u8,
    /// Parameter of the payload's code.
    pub param: u8,
    /// The cell; while groups are counted, the number of the range.
    pub cell: u32,
    /// Number of the frame in its stream.
    pub sequence: u32,
    /// Entries in the payload.
    pub count: u32,
    /// Number of list entries that a verdict covers; 0 in other frames.
    pub covered: u32,
    /// The coded entries.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Whether a flag is set.
    #[must_use]
    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The frame's bytes on this link.
    #[must_use]
    pub fn encode(&self, link: FrameLink) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32 + self.payload.len());
        bytes.extend([MAGIC, VERSION, self.kind as u8, self.flags, self.param]);
        put_leb128(&mut bytes, self.cell.into());
        put_leb128(&mut bytes, self.sequence.into());
        put_leb128(&mut bytes, self.count.into());
        if self.kind.is_verdict() {
            put_leb128(&mut bytes, self.covered.into());
        }
        put_leb128(&mut bytes, self.payload.len() as u64);
        let checksum = crc32c(&[&link.prefix(), &bytes, self.payload]);
        bytes.extend(checksum.to_le_bytes());
        bytes.extend_from_slice(self.payload);
        bytes
    }

    /// Decodes a frame that was received over this link.
    ///
    /// # Errors
    ///
    /// [`ExchangeFrameError`] if the bytes are not exactly one frame of this version, meant for this link and undamaged.
    pub fn decode(bytes: &'a [u8], link: FrameLink) -> FrameResult<Self> {
        let mut header = HeaderReader { bytes, at: 0 };
        let magic = header.byte()?;
        if magic != MAGIC {
            return Err(ExchangeFrameError::Magic { expected: MAGIC, got: magic });
        }
        let version = header.byte()?;
        if version != VERSION {
            return Err(ExchangeFrameError::Version { expected: VERSION, got: version });
        }
        let kind = header.byte()?;
        let kind = FrameKind::from_byte(kind).ok_or(ExchangeFrameError::Kind { got: kind })?;
        let flags = header.byte()?;
        if flags & !flag::allowed(kind) != 0 {
            return Err(ExchangeFrameError::Flags { kind, got: flags });
        }
        let param = header.byte()?;
        let cell = header.varint("cell", DEDUP_CELLS_MAX - 1)?;
        let sequence = header.varint("sequence", u32::MAX)?;
        let count = header.varint("count", u32::MAX)?;
        let covered = if kind.is_verdict() { header.varint("covered", u32::MAX)? } else { 0 };
        let payload_bytes = header.varint("bytes", PAYLOAD_BYTES_MAX)? as usize;
        let (head, rest) = bytes.split_at(header.at);
        let needed = head.len() + CHECKSUM_BYTES + payload_bytes;
        let truncated = ExchangeFrameError::Truncated { needed, got: bytes.len() };
        let (checksum, payload) =
            rest.split_first_chunk::<CHECKSUM_BYTES>().ok_or(truncated.clone())?;
        if payload.len() < payload_bytes {
            return Err(truncated);
        }
        if payload.len() > payload_bytes {
            return Err(ExchangeFrameError::TrailingBytes { extra: payload.len() - payload_bytes });
        }
        let got = u32::from_le_bytes(*checksum);
        let computed = crc32c(&[&link.prefix(), head, payload]);
        if got != computed {
            return Err(ExchangeFrameError::Checksum { got, computed });
        }
        Ok(Self { kind, flags, param, cell, sequence, count, covered, payload })
    }

    /// Kind and cell of a frame, from its first bytes only, to route it. [`Frame::decode`] detects damage,
    /// this does not.
    ///
    /// # Errors
    ///
    /// [`ExchangeFrameError`] if the bytes do not begin like a frame.
    pub fn peek(bytes: &[u8]) -> FrameResult<(FrameKind, u32)> {
        let mut header = HeaderReader { bytes, at: 2 };
        let kind = header.byte()?;
        let kind = FrameKind::from_byte(kind).ok_or(ExchangeFrameError::Kind { got: kind })?;
        header.at = 5;
        Ok((kind, header.varint("cell", DEDUP_CELLS_MAX - 1)?))
    }

    /// Bytes of a frame's header and checksum, given the whole frame's length.
    #[must_use]
    pub(crate) fn header_bytes(&self, frame_bytes: usize) -> usize {
        frame_bytes - self.payload.len()
    }
}

/// Bytes of the longest LEB128 number of 32 bits: numbers of a header, and lengths of items.
pub(crate) const VARINT_BYTES_MAX: u32 = 5;

/// Reads a header field by field, within the received bytes.
pub(super) struct HeaderReader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl HeaderReader<'_> {
    fn byte(&mut self) -> FrameResult<u8> {
        let got = self.bytes.len();
        let byte = *self
            .bytes
            .get(self.at)
            .ok_or(ExchangeFrameError::Truncated { needed: got + 1, got })?;
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn varint(&mut self, field: &'static str, max: u32) -> FrameResult<u32> {
        let mut rest = self.bytes.get(self.at..).unwrap_or_default();
        let got = self.bytes.len();
        let value = Leb128::shortest(VARINT_BYTES_MAX)
            .take(&mut rest)
            .map_err(|_| ExchangeFrameError::Header { field })?
            .ok_or(ExchangeFrameError::Truncated { needed: got + 1, got })?;
        self.at = got - rest.len();
        let too_large = ExchangeFrameError::TooLarge { field, got: value, max: max.into() };
        u32::try_from(value).ok().filter(|value| *value <= max).ok_or(too_large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINK: FrameLink = FrameLink { job: 0x1234, sender: 3, receiver: 1, attempt: 2 };

    fn frame(payload: &[u8]) -> Frame<'_> {
        Frame {
            kind: FrameKind::PositionsVerdict,
            flags: flag::LAST | flag::COMPLEMENT,
            param: 4,
            cell: 700,
            sequence: 0,
            count: 3,
            covered: 90_000,
            payload,
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let bytes = frame(b"payload").encode(LINK);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::decode(&damaged, LINK).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Frame::decode(&bytes[..length], LINK).is_err(), "length {length}");
        }
    }

    #[test]
    fn rows_follow_the_table_of_kinds() {
        for (row, kind) in FrameKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.row(), row);
        }
    }

    #[test]
    fn another_link_is_another_checksum() {
        let bytes = frame(b"x").encode(LINK);
        for link in [
            FrameLink { job: 0, ..LINK },
            FrameLink { sender: 4, ..LINK },
            FrameLink { receiver: 0, ..LINK },
            FrameLink { attempt: 1, ..LINK },
        ] {
            assert!(matches!(
                Frame::decode(&bytes, link),
                Err(ExchangeFrameError::Checksum { .. })
            ));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_what_decodes_encodes_to_itself(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..64),
            plausible in any::<bool>(),
        ) {
            if plausible && bytes.len() > 3 {
                bytes[..3].copy_from_slice(&[MAGIC, VERSION, 1]);
            }
            let peeked = Frame::peek(&bytes);
            if let Ok(frame) = Frame::decode(&bytes, LINK) {
                prop_assert_eq!(peeked, Ok((frame.kind, frame.cell)));
                prop_assert_eq!(frame.encode(LINK), bytes);
            }
        }
    }
}
