//! Format of the log on disk: segment headers and records.
//!
//! ```text
//! segment  UMBELWAL, version u32, number u32, nonce u64, head bytes u32, CRC u32, records
//! record   length u32, CRC u32, synced u32, body
//! body     kind u8, group u32, then: vote encoded | log id, entry encoded | log ids or nothing
//! log id   term u64, node u64, index u64
//! ```
//!
//! Numbers are little-endian. A record's CRC covers nonce, segment number, its own offset, length,
//! synced and body, so a record that was copied or written elsewhere does not count. `synced` is
//! the offset below which the segment was durable before the record was written: it distinguishes damage
//! (below it) from a write that a power loss cut in pieces (above it).

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use openraft::vote::leader_id_adv::LeaderId;
use umbel_codec::crc32c;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::encoding::{ENCODED_BYTES_MAX, decode, encode};
use umbel_step::planted::{self, Planted};

use super::left::Left;
use crate::types::{LogId, Vote};

/// Version of the segment format that is written, and the only one that is read.
pub(crate) const WAL_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"UMBELWAL";

/// Bytes of a segment's header.
pub(super) const SEGMENT_HEADER_BYTES: usize = 32;

/// Bytes of a record before its body.
pub(super) const RECORD_HEADER_BYTES: usize = 12;

/// Kind and group.
const BODY_BYTES_MIN: usize = 5;

const LOG_ID_BYTES: usize = 24;

/// Most bytes of a record's body: the largest encoded entry with its log id, kind and group. Limits
/// what a reader allocates for a length that is not verified yet.
pub(super) const BODY_BYTES_MAX: usize = ENCODED_BYTES_MAX + LOG_ID_BYTES + BODY_BYTES_MIN + 1;

/// Identifies a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentName {
    /// The nonce of the data folder.
    pub(super) nonce: u64,
    /// Numbered from 1, without gaps.
    pub(super) number: u32,
}

impl SegmentName {
    /// Path of the segment in the data folder.
    pub(super) fn path(self) -> String {
        segment_path(self.number)
    }

    fn crc(self, offset: u32, synced: u32, body: &[u8]) -> u32 {
        let length = u32::try_from(body.len()).expect("bodies are bounded");
        crc32c(&[
            &self.nonce.to_le_bytes(),
            &self.number.to_le_bytes(),
            &offset.to_le_bytes(),
            &length.to_le_bytes(),
            &synced.to_le_bytes(),
            body,
        ])
    }
}

/// Path of a segment in the data folder.
pub(super) fn segment_path(number: u32) -> String {
    format!("wal/{number:08}.log")
}

/// The number in a segment's file name; None for names of other files.
pub(super) fn segment_number(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".log")?;
    let number = digits.parse().ok().filter(|number| *number > 0)?;
    (format!("{number:08}") == digits).then_some(number)
}

/// The header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentHeader {
    pub(super) name: SegmentName,
    /// Bytes of the header and of the records with which the segment begins.
    pub(super) head_byte_count: u32,
}

impl SegmentHeader {
    pub(super) fn encode(self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&WAL_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.name.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.name.nonce.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.head_byte_count.to_le_bytes());
        let crc = crc32c(&[&bytes[..28]]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header; an error with the version if that is unknown; None if the header is incomplete.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<Self>, u32> {
        let Some(bytes) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else { return Ok(None) };
        if &bytes[..8] != MAGIC {
            return Ok(None);
        }
        let version = u32_at(bytes, 8);
        if version != WAL_VERSION {
            return Err(version);
        }
        if u32_at(bytes, 28) != crc32c(&[&bytes[..28]]) {
            return Ok(None);
        }
        let name = SegmentName { nonce: u64_at(bytes, 16), number: u32_at(bytes, 12) };
        Ok(Some(Self { name, head_byte_count: u32_at(bytes, 24) }))
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(number)
}

/// A change of one group.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Record {
    /// The group's newest vote, with its encoding.
    Vote(GroupId, Vote, Bytes),
    /// An entry: its log id and its encoding.
    Entry(GroupId, LogId, Bytes),
    /// A hint: entries up to here are committed.
    Committed(GroupId, Option<LogId>),
    /// Entries after this one are deleted.
    Truncate(GroupId, Option<LogId>),
    /// Entries up to this one are purged.
    Purge(GroupId, LogId),
    /// The group is deleted.
    Forget(GroupId),
    /// The group left this node and may return: the promises of its replica.
    Left(GroupId, Left),
    /// The same, for a group that may have returned; also written at the head of a segment.
    Promised(GroupId, Left),
    /// No change; proves that everything before it was durable.
    Mark,
}

impl Record {
    pub(super) fn vote(group: GroupId, vote: Vote) -> Self {
        Self::Vote(group, vote, encode(&vote))
    }

    /// Bytes of the record in the segment.
    pub(super) fn byte_count(&self) -> usize {
        let payload = match self {
            Self::Vote(_, _, bytes) => bytes.len(),
            Self::Entry(_, _, bytes) => LOG_ID_BYTES + bytes.len(),
            Self::Committed(_, id) | Self::Truncate(_, id) => id.map_or(0, |_| LOG_ID_BYTES),
            Self::Purge(..) => LOG_ID_BYTES,
            Self::Left(_, left) | Self::Promised(_, left) => left_payload(left).len(),
            Self::Forget(_) | Self::Mark => 0,
        };
        RECORD_HEADER_BYTES + BODY_BYTES_MIN + payload
    }

    /// Appends the record to the buffer; its position in the segment will be `offset`.
    pub(super) fn put(&self, buffer: &mut BytesMut, name: SegmentName, offset: u32, synced: u32) {
        let start = buffer.len();
        buffer.reserve(self.byte_count());
        buffer.put_bytes(0, RECORD_HEADER_BYTES);
        self.put_body(buffer);
        let (header, body) = buffer[start..].split_at_mut(RECORD_HEADER_BYTES);
        let length = u32::try_from(body.len()).expect("bodies are bounded");
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4..8].copy_from_slice(&name.crc(offset, synced, body).to_le_bytes());
        header[8..].copy_from_slice(&synced.to_le_bytes());
    }

    fn put_body(&self, buffer: &mut BytesMut) {
        let mut start = |kind: u8, group: GroupId| {
            buffer.put_u8(kind);
            buffer.put_u32_le(group.number());
        };
        match self {
            Self::Vote(group, _, bytes) => {
                start(1, *group);
                buffer.put_slice(bytes);
            }
            Self::Entry(group, id, bytes) => {
                start(2, *group);
                put_log_id(buffer, *id);
                buffer.put_slice(bytes);
            }
            Self::Committed(group, id) => {
                start(3, *group);
                id.iter().for_each(|id| put_log_id(buffer, *id));
            }
            Self::Truncate(group, after) => {
                start(4, *group);
                after.iter().for_each(|id| put_log_id(buffer, *id));
            }
            Self::Purge(group, through) => {
                start(5, *group);
                put_log_id(buffer, *through);
            }
            Self::Forget(group) => start(6, *group),
            Self::Mark => start(7, GroupId::META),
            Self::Left(group, left) => {
                start(8, *group);
                buffer.put_slice(&left_payload(left));
            }
            Self::Promised(group, left) => {
                start(9, *group);
                buffer.put_slice(&left_payload(left));
            }
        }
    }

    /// Decodes a record's body whose CRC was correct; None if this release cannot have written it.
    pub(super) fn decode(body: &Bytes) -> Option<Self> {
        let payload = body.get(BODY_BYTES_MIN..)?;
        let group = GroupId::from_number(u32_at(body, 1));
        let optional_id = || match payload.len() {
            0 => Some(None),
            LOG_ID_BYTES => Some(Some(log_id_at(payload))),
            _ => None,
        };
        match body[0] {
            1 => {
                let vote = decode(payload).ok()?;
                Some(Self::Vote(group, vote, body.slice(BODY_BYTES_MIN..)))
            }
            2 if payload.len() >= LOG_ID_BYTES => {
                let entry = body.slice(BODY_BYTES_MIN + LOG_ID_BYTES..);
                Some(Self::Entry(group, log_id_at(payload), entry))
            }
            3 => Some(Self::Committed(group, optional_id()?)),
            4 => Some(Self::Truncate(group, optional_id()?)),
            5 => Some(Self::Purge(group, optional_id()??)),
            6 if payload.is_empty() => Some(Self::Forget(group)),
            7 if payload.is_empty() => Some(Self::Mark),
            8 => Some(Self::Left(group, left_at(payload)?)),
            9 => Some(Self::Promised(group, left_at(payload)?)),
            _ => None,
        }
    }
}

/// Encodes whether there is a log id, the log id, and the vote.
fn left_payload(left: &Left) -> BytesMut {
    let mut buffer = BytesMut::new();
    buffer.put_u8(u8::from(left.last.is_some()));
    left.last.iter().for_each(|id| put_log_id(&mut buffer, *id));
    buffer.put_slice(&encode(&left.vote));
    buffer
}

fn left_at(payload: &[u8]) -> Option<Left> {
    let (&has_last, rest) = payload.split_first()?;
    let (last, vote) = match has_last {
        0 => (None, rest),
        1 if rest.len() >= LOG_ID_BYTES => (Some(log_id_at(rest)), &rest[LOG_ID_BYTES..]),
        _ => return None,
    };
    Some(Left { vote: decode(vote).ok()?, last })
}

fn put_log_id(buffer: &mut BytesMut, id: LogId) {
    buffer.put_u64_le(id.leader_id.term);
    buffer.put_u64_le(id.leader_id.node_id.0);
    buffer.put_u64_le(id.index);
}

/// Decodes the log id in the first bytes, which must be enough.
fn log_id_at(bytes: &[u8]) -> LogId {
    let leader_id = LeaderId { term: u64_at(bytes, 0), node_id: NodeId(u64_at(bytes, 8)) };
    LogId { leader_id, index: u64_at(bytes, 16) }
}

/// A complete record found in a segment.
pub(super) struct Found {
    pub(super) body: Bytes,
    /// The segment was durable below this offset when the record was written.
    pub(super) synced: u32,
    /// Offset after the record.
    pub(super) end: u32,
}

/// Where the body of the record at `offset` of a segment is in `bytes`, which begin at the segment's offset `start`, by
/// the record's header, which is not verified. None if the header is not in `bytes`, or no record is so long. The body
/// may end behind them.
pub(super) fn body_at(bytes: &[u8], start: u32, offset: u32) -> Option<Range<usize>> {
    let at = usize::try_from(offset.checked_sub(start)?).ok()?;
    let from = at.checked_add(RECORD_HEADER_BYTES)?;
    let length = usize::try_from(u32_at(bytes.get(at..from)?, 0)).ok()?;
    let body = from..from.checked_add(length)?;
    (BODY_BYTES_MIN..=BODY_BYTES_MAX).contains(&length).then_some(body)
}

/// The record at `offset` of a segment; `bytes` begin at the segment's offset `start`. None if there is
/// no complete record.
pub(super) fn record_at(
    bytes: &Bytes,
    start: u32,
    offset: u32,
    name: SegmentName,
) -> Option<Found> {
    let Range { start: from, end: to } = body_at(bytes, start, offset)?;
    let header = bytes.get(from - RECORD_HEADER_BYTES..from)?;
    let synced = u32_at(header, 8);
    if synced > offset {
        return None;
    }
    let body = bytes.get(from..to)?;
    let is_whole = name.crc(offset, synced, body) == u32_at(header, 4);
    if !is_whole && !planted::on(Planted::ChecksumIgnored) {
        return None;
    }
    let end = start.checked_add(u32::try_from(to).ok()?)?;
    Some(Found { body: bytes.slice(from..to), synced, end })
}

/// Limit of the bytes that the search for complete records after damage runs checksums over, which
/// takes seconds. Bytes that were not made to look like records cost a fraction of it.
const PROOF_BYTES_MAX: usize = 16 * BODY_BYTES_MAX;

/// Whether a body of this kind may have this length.
fn is_length_of(kind: u8, body_bytes: usize) -> bool {
    let payload_bytes = body_bytes - BODY_BYTES_MIN;
    match kind {
        // A vote consists of a term, a node and a flag.
        1 => payload_bytes <= 64,
        2 => payload_bytes >= LOG_ID_BYTES,
        3 | 4 => payload_bytes == 0 || payload_bytes == LOG_ID_BYTES,
        5 => payload_bytes == LOG_ID_BYTES,
        6 | 7 => payload_bytes == 0,
        // A flag, an optional log id, and an optional vote.
        8 | 9 => (1..=1 + LOG_ID_BYTES + 64).contains(&payload_bytes),
        _ => false,
    }
}

/// The offset of the first complete record after damage at `offset` that was written when `offset` was
/// already durable. If there is one, the damage is not a torn write.
///
/// If the search reaches its limit because many bytes look like records, the place where it ended is
/// returned too: that refuses a start, but cuts nothing off. `bytes` are the whole segment.
pub(super) fn proof_of_damage(bytes: &Bytes, offset: u32, name: SegmentName) -> Option<u32> {
    proof_within(bytes, offset, name, PROOF_BYTES_MAX)
}

fn proof_within(bytes: &Bytes, offset: u32, name: SegmentName, mut left: usize) -> Option<u32> {
    let end = u32::try_from(bytes.len()).ok()?;
    let last = end.checked_sub(u32::try_from(RECORD_HEADER_BYTES + BODY_BYTES_MIN).ok()?)?;
    (offset.saturating_add(1)..=last).find(|&at| {
        let header = &bytes[at as usize..];
        // Cheap checks first: few places in a damaged file pass them and cost a checksum.
        let synced = u32_at(header, 8);
        let length = u32_at(header, 0) as usize;
        let is_likely = synced > offset
            && synced <= at
            && (BODY_BYTES_MIN..=header.len() - RECORD_HEADER_BYTES).contains(&length)
            && is_length_of(header[RECORD_HEADER_BYTES], length);
        if !is_likely {
            return false;
        }
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return true,
        }
        record_at(bytes, 0, at, name).is_some_and(|found| found.synced > offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: SegmentName = SegmentName { nonce: 9, number: 3 };

    fn id(term: u64, index: u64) -> LogId {
        LogId { leader_id: LeaderId { term, node_id: NodeId(2) }, index }
    }

    #[test]
    fn records_come_back_and_only_where_they_were_written() {
        let group = GroupId::from_number(4);
        let records = [
            Record::vote(group, Vote::new(3, NodeId(1))),
            Record::Entry(group, id(3, 8), Bytes::from_static(b"entry")),
            Record::Committed(group, None),
            Record::Committed(group, Some(id(2, 7))),
            Record::Truncate(group, Some(id(1, 1))),
            Record::Purge(group, id(1, 0)),
            Record::Forget(group),
            Record::Left(group, Left { vote: Some(Vote::new(3, NodeId(1))), last: Some(id(3, 8)) }),
            Record::Promised(group, Left { vote: None, last: None }),
            Record::Mark,
        ];
        for record in records {
            let mut buffer = BytesMut::from(&[0; 100][..]);
            record.put(&mut buffer, NAME, 100, 50);
            assert_eq!(buffer.len(), 100 + record.byte_count());
            let bytes = buffer.freeze();
            let found = record_at(&bytes, 0, 100, NAME).unwrap();
            assert_eq!(found.end as usize, bytes.len());
            assert_eq!(Record::decode(&found.body), Some(record));
            // At another offset, in another segment or in another node's log, the bytes are not a
            // record.
            assert!(record_at(&bytes, 1, 101, NAME).is_none());
            assert!(record_at(&bytes, 0, 100, SegmentName { number: 4, ..NAME }).is_none());
            assert!(record_at(&bytes, 0, 100, SegmentName { nonce: 8, ..NAME }).is_none());
            // The record proves that everything below 50 was durable, and nothing above.
            assert_eq!(proof_of_damage(&bytes, 49, NAME), Some(100));
            assert_eq!(proof_of_damage(&bytes, 50, NAME), None);
        }
    }

    #[test]
    fn bytes_made_to_look_like_records_are_not_searched_for_ever() {
        // Every twenty bytes, something begins that could be an entry of a thousand bytes.
        let mut buffer = BytesMut::new();
        for _ in 0..1000 {
            buffer.put_u32_le(1000);
            buffer.put_u32_le(0);
            buffer.put_u32_le(20);
            buffer.put_u64_le(2);
        }
        let bytes = buffer.freeze();
        assert_eq!(proof_within(&bytes, 19, NAME, 1 << 20), None);
        assert_eq!(proof_within(&bytes, 19, NAME, 50_999), Some(51 * 20));
    }

    #[test]
    fn an_entrys_bytes_are_for_ever() {
        let mut buffer = BytesMut::new();
        Record::Entry(GroupId::META, id(1, 5), Bytes::from_static(b"x")).put(
            &mut buffer,
            NAME,
            0,
            0,
        );
        assert_eq!(&buffer[..4], [30, 0, 0, 0]);
        assert_eq!(&buffer[8..17], [0, 0, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(&buffer[17..25], 1u64.to_le_bytes());
        assert_eq!(&buffer[25..33], 2u64.to_le_bytes());
        assert_eq!(&buffer[33..], [5, 0, 0, 0, 0, 0, 0, 0, b'x']);
    }

    #[test]
    fn headers_are_checked() {
        let header = SegmentHeader { name: NAME, head_byte_count: 77 };
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(Some(header)));
        assert_eq!(SegmentHeader::decode(&bytes[..31]), Ok(None));
        bytes[24] ^= 1;
        assert_eq!(SegmentHeader::decode(&bytes), Ok(None));
        bytes[8] = 2;
        assert_eq!(SegmentHeader::decode(&bytes), Err(2));
    }

    #[test]
    fn names_of_segments() {
        assert_eq!(segment_path(1), "wal/00000001.log");
        assert_eq!(segment_number("00000012.log"), Some(12));
        assert_eq!(segment_number("123456789.log"), Some(123_456_789));
        for name in ["12.log", "00000000.log", "00000001", "0000001a.log", "+0000001.log"] {
            assert_eq!(segment_number(name), None, "{name}");
        }
    }
}
