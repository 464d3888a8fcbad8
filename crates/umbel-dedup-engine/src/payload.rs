//! Encoders and decoders of the payloads of frames: positions, verdicts, refinements, residues.
//!
//! ```text
//! positions   per entry Rice(gap), gap = position − previous one in the frame, may be 0; FULL_HASH: hi − start of the cell in place
//!             of the position, then 64 bits of lo; SCORE: then 64 bits of rank; RECORD_ID: then the record id
//! verdict     per listed entry Rice(index − previous index − 1); RAW: instead one bit per covered entry; COMPLEMENT: the list is
//!             of the entries that the verdict excludes; CAUSE: then one bit per drop, 1 if it is for a reference;
//!             RECORD_ID: then the kept record's id for each drop that is not for a reference
//! refine      per entry r bits
//! residues    per entry t residue bits of hi, 64 − r low bits of lo, SCORE: 64 bits of rank, RECORD_ID: the record id
//! items       per item SCORE: rank u64 LE; RECORD_ID: record id u64 LE; then LEB128 length, bytes
//! ```
//!
//! Every decoder compares the count with the number of bits received before it allocates memory for the entries.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use super::entry::{Entry, Priority, Rank, RecordId};
use super::error::ExchangeFrameError;
use super::frame::{Frame, flag};
use super::plan::{PriorityBits, RecordIdBits};
use crate::FrameResult;
use crate::limits::FRAME_PAYLOAD_BYTES_CUT;
use umbel_bits::{
    BitReader, BitWriter, CodeError, RiceCode, decode_indexes, decode_positions, encode_indexes,
    indexes_bits,
};
use umbel_filter::{ItemHash, SingleShotShape};

/// The payload's length is checked after every so many entries.
const CUT_CHECK_ENTRIES: usize = 1024;

/// The payloads of a stream, each with its number of entries. Entries are in order; a new payload begins when
/// the last one has reached its limit. `write` is called with each entry and the one before it in the same
/// payload, so that every payload can be decoded by itself. An empty stream has one empty payload, because a
/// stream ends with a frame.
pub(super) fn cut<T>(
    entries: &[T],
    mut write: impl FnMut(&mut BitWriter, Option<&T>, &T),
) -> Vec<(Vec<u8>, u32)> {
    let mut payloads = Vec::new();
    let mut writer = BitWriter::new();
    let mut count = 0;
    let mut before = None;
    for part in entries.chunks(CUT_CHECK_ENTRIES) {
        for entry in part {
            write(&mut writer, before.replace(entry), entry);
        }
        count += u32::try_from(part.len()).expect("at most CUT_CHECK_ENTRIES");
        if writer.bit_len() >= 8 * FRAME_PAYLOAD_BYTES_CUT as u64 {
            payloads.push((std::mem::take(&mut writer).finish(), std::mem::take(&mut count)));
            before = None;
        }
    }
    if count > 0 || payloads.is_empty() {
        payloads.push((writer.finish(), count));
    }
    payloads
}

/// The payloads of the positions of sorted entries, and the Rice code for their mean gap.
pub(super) fn cut_positions(
    shape: SingleShotShape,
    entries: &[Entry],
) -> (RiceCode, Vec<(Vec<u8>, u32)>) {
    let code = RiceCode::for_mean_gap(shape.width() as f64 / entries.len().max(1) as f64);
    let position = |entry: &Entry| shape.position(entry.hash.hi());
    let payloads = cut(entries, |writer, before, entry| {
        code.write(writer, position(entry) - before.map_or(0, position));
    });
    (code, payloads)
}

/// Rejects a count of entries that do not fit into the payload, before memory is allocated for them.
fn check_count(frame: &Frame<'_>, bits_each_min: u64) -> FrameResult<usize> {
    let max = 8 * frame.payload.len() as u64 / bits_each_min.max(1);
    if bits_each_min > 0 && u64::from(frame.count) > max {
        return Err(ExchangeFrameError::TooLarge { field: "count", got: frame.count.into(), max });
    }
    Ok(frame.count as usize)
}

/// The frame's Rice code.
fn rice(frame: &Frame<'_>) -> FrameResult<RiceCode> {
    RiceCode::new(frame.param.into()).map_err(|_| ExchangeFrameError::TooLarge {
        field: "param",
        got: frame.param.into(),
        max: 63,
    })
}

/// Writes a record id in the plan's widths.
pub(super) fn write_record_id(writer: &mut BitWriter, record_id: RecordId, bits: RecordIdBits) {
    writer.write_bits(record_id.chunk().into(), bits.chunk);
    writer.write_bits(record_id.item(), bits.item);
}

fn read_record_id(reader: &mut BitReader<'_>, bits: RecordIdBits) -> Result<RecordId, CodeError> {
    let chunk = reader.read_bits(bits.chunk)?;
    let item = reader.read_bits(bits.item)?;
    Ok(RecordId::new(u32::try_from(chunk).expect("the plan gives at most 24 bits"), item))
}

/// Writes the parts of a priority that are sent.
fn write_priority(writer: &mut BitWriter, priority: Priority, bits: PriorityBits) {
    writer.write_bits(priority.rank.0, bits.rank);
    if let Some(record_id_bits) = bits.record_id {
        write_record_id(writer, priority.record_id, record_id_bits);
    }
}

fn read_priority(reader: &mut BitReader<'_>, bits: PriorityBits) -> Result<Priority, CodeError> {
    let rank = Rank(reader.read_bits(bits.rank)?);
    let record_id =
        bits.record_id.map(|record_id_bits| read_record_id(reader, record_id_bits)).transpose()?;
    Ok(Priority { rank, record_id: record_id.unwrap_or_default() })
}

/// Appends the positions of a frame to those of earlier frames of its stream; an error leaves these unchanged.
pub(super) fn read_positions(
    frame: &Frame<'_>,
    width: u64,
    positions: &mut Vec<u64>,
) -> FrameResult<()> {
    let mut reader = BitReader::new(frame.payload);
    let before = positions.len();
    let read = decode_positions(&mut reader, rice(frame)?, frame.count.into(), width, positions);
    let outcome = read.and_then(|()| reader.finish());
    if outcome.is_err() {
        positions.truncate(before);
    }
    Ok(outcome?)
}

/// A whole hash and its priority, as far as it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FullEntry {
    pub(super) hash: ItemHash,
    pub(super) priority: Priority,
}

/// Writes one entry of a stream with the flag FULL_HASH.
pub(super) fn write_full_hash(
    writer: &mut BitWriter,
    code: RiceCode,
    gap: u64,
    entry: FullEntry,
    priority_bits: PriorityBits,
) {
    code.write(writer, gap);
    writer.write_bits(entry.hash.lo(), 64);
    write_priority(writer, entry.priority, priority_bits);
}

/// Appends the hashes of a frame with the flag FULL_HASH, all in `start..=last`, to those of earlier frames of its stream.
pub(super) fn read_full_hashes(
    frame: &Frame<'_>,
    (start, last): (u64, u64),
    priority_bits: PriorityBits,
    full_entries: &mut Vec<FullEntry>,
) -> FrameResult<()> {
    let code = rice(frame)?;
    let count = check_count(frame, u64::from(code.low_bits() + 65 + priority_bits.total()))?;
    let mut reader = BitReader::new(frame.payload);
    let mut previous = start;
    let mut added = Vec::with_capacity(count);
    for _ in 0..count {
        let hi = previous.checked_add(code.read(&mut reader)?).filter(|&hi| hi <= last);
        let max = last - start;
        previous =
            hi.ok_or(ExchangeFrameError::TooLarge { field: "position", got: u64::MAX, max })?;
        let hash = ItemHash::new(previous, reader.read_bits(64)?);
        let priority = read_priority(&mut reader, priority_bits)?;
        added.push(FullEntry { hash, priority });
    }
    reader.finish()?;
    full_entries.append(&mut added);
    Ok(())
}

/// Appends the refinement bits of a frame, `width` per entry.
pub(super) fn read_refine(frame: &Frame<'_>, width: u32, bits: &mut Vec<u64>) -> FrameResult<()> {
    let count = check_count(frame, width.into())?;
    let mut reader = BitReader::new(frame.payload);
    let mut added = Vec::with_capacity(count);
    for _ in 0..count {
        added.push(reader.read_bits(width)?);
    }
    reader.finish()?;
    bits.append(&mut added);
    Ok(())
}

/// What a survivor sends as its residue: the parts of its hash that the owner does not know, and its priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Residue {
    /// Low bits of hi.
    pub(super) hi: u64,
    /// Low bits of lo.
    pub(super) lo: u64,
    /// Its priority, as far as it is sent.
    pub(super) priority: Priority,
}

/// Widths of a residue's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ResidueBits {
    /// Of hi.
    pub(super) hi: u32,
    /// Of lo.
    pub(super) lo: u32,
    /// Of the priority.
    pub(super) priority: PriorityBits,
}

impl ResidueBits {
    /// Writes one survivor.
    pub(super) fn write(self, writer: &mut BitWriter, residue: Residue) {
        writer.write_bits(residue.hi, self.hi);
        writer.write_bits(residue.lo, self.lo);
        write_priority(writer, residue.priority, self.priority);
    }

    /// Reads all survivors of a frame, `left` at most.
    pub(super) fn read(self, frame: &Frame<'_>, left: usize) -> FrameResult<Vec<Residue>> {
        let count = check_count(frame, u64::from(self.hi + self.lo + self.priority.total()))?;
        expect_at_most("count", count, left)?;
        let mut reader = BitReader::new(frame.payload);
        let mut residues = Vec::with_capacity(count);
        for _ in 0..count {
            let hi = reader.read_bits(self.hi)?;
            let lo = reader.read_bits(self.lo)?;
            let priority = read_priority(&mut reader, self.priority)?;
            residues.push(Residue { hi, lo, priority });
        }
        reader.finish()?;
        Ok(residues)
    }
}

/// Rejects a field that has another value.
pub(super) fn expect_equal(
    field: &'static str,
    expected: impl Into<u64>,
    got: impl Into<u64>,
) -> FrameResult<()> {
    let (expected, got) = (expected.into(), got.into());
    if expected != got {
        return Err(ExchangeFrameError::Unexpected { field, expected, got });
    }
    Ok(())
}

/// Rejects a number above the most that may still arrive in the stream.
pub(super) fn expect_at_most(field: &'static str, got: usize, max: usize) -> FrameResult<()> {
    if got > max {
        return Err(ExchangeFrameError::TooLarge { field, got: got as u64, max: max as u64 });
    }
    Ok(())
}

/// A verdict on the sender's `covered` entries: the listed ones, and for drops the kept records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct VerdictList {
    /// Indexes into the sender's list (of entries, candidates or survivors), strictly ascending.
    pub(super) indexes: Vec<u32>,
    /// Of a final verdict, if the plan has references: for each drop whether it is for one of them.
    pub(super) by_reference: Option<Vec<bool>>,
    /// Of a final verdict, if record ids are sent: the kept record of each drop that is not for a reference.
    pub(super) kept: Vec<RecordId>,
}

/// A verdict in its shortest form: the header fields and the payload.
pub(super) struct CodedVerdict {
    pub(super) flags: u8,
    pub(super) param: u8,
    pub(super) count: u32,
    pub(super) payload: Vec<u8>,
}

impl VerdictList {
    /// Encodes the verdict as the list of its indexes, the list of all other indexes, or a bitmap, whichever is shortest.
    pub(super) fn encode(
        &self,
        covered: u32,
        record_id_bits: Option<RecordIdBits>,
    ) -> CodedVerdict {
        let meant = u32::try_from(self.indexes.len()).expect("a subset of the covered entries");
        let complement = meant > covered / 2;
        let others: Vec<u32>;
        let listed = if complement {
            others = complement_of(&self.indexes, covered);
            &others
        } else {
            &self.indexes
        };
        let count = u32::try_from(listed.len()).expect("a subset of the covered entries");
        let mean_gap = f64::from(covered - count) / f64::from(count.max(1));
        let code = RiceCode::for_mean_gap(mean_gap);
        let listed = || listed.iter().copied().map(u64::from);
        let list_bits = indexes_bits(code, listed());
        let raw = list_bits > u64::from(covered);
        let mut writer = BitWriter::new();
        let mut flags = flag::LAST;
        if raw {
            flags |= flag::RAW;
            let mut next = 0;
            for &index in &self.indexes {
                (next..index).for_each(|_| writer.write_bits(0, 1));
                writer.write_bits(1, 1);
                next = index + 1;
            }
            (next..covered).for_each(|_| writer.write_bits(0, 1));
        } else {
            if complement {
                flags |= flag::COMPLEMENT;
            }
            encode_indexes(code, listed(), &mut writer);
        }
        if let Some(causes) = &self.by_reference {
            flags |= flag::CAUSE;
            causes.iter().for_each(|&cause| writer.write_bits(cause.into(), 1));
        }
        if let Some(bits) = record_id_bits {
            flags |= flag::RECORD_ID;
            self.kept.iter().for_each(|&record_id| write_record_id(&mut writer, record_id, bits));
        }
        let count = if raw { meant } else { count };
        let param = if raw { 0 } else { u8::try_from(code.low_bits()).expect("at most 63") };
        CodedVerdict { flags, param, count, payload: writer.finish() }
    }

    /// Reads a verdict about `covered` entries.
    pub(super) fn decode(
        frame: &Frame<'_>,
        record_id_bits: Option<RecordIdBits>,
    ) -> FrameResult<Self> {
        let covered = frame.covered;
        expect_at_most("count", frame.count as usize, covered as usize)?;
        let mut reader = BitReader::new(frame.payload);
        let mut indexes;
        if frame.has(flag::RAW) {
            check_count(&Frame { count: covered, ..*frame }, 1)?;
            indexes = Vec::with_capacity(frame.count as usize);
            for index in 0..covered {
                if reader.read_bits(1)? == 1 {
                    indexes.push(index);
                }
            }
            expect_equal("count", indexes.len() as u64, frame.count)?;
        } else {
            indexes = read_indexes(frame, &mut reader)?;
            if frame.has(flag::COMPLEMENT) {
                indexes = complement_of(&indexes, covered);
            }
        }
        let mut by_reference = None;
        if frame.has(flag::CAUSE) {
            let causes = indexes.iter().map(|_| Ok(reader.read_bits(1)? == 1));
            by_reference = Some(causes.collect::<Result<Vec<bool>, CodeError>>()?);
        }
        let mut kept = Vec::new();
        if let Some(bits) = record_id_bits {
            let known = by_reference.iter().flatten().filter(|known| **known).count();
            for _ in 0..indexes.len() - known {
                kept.push(read_record_id(&mut reader, bits)?);
            }
        }
        reader.finish()?;
        Ok(Self { indexes, by_reference, kept })
    }
}

fn read_indexes(frame: &Frame<'_>, reader: &mut BitReader<'_>) -> FrameResult<Vec<u32>> {
    let mut indexes = Vec::new();
    decode_indexes(reader, rice(frame)?, frame.count.into(), frame.covered.into(), &mut indexes)?;
    let narrow = |index| u32::try_from(index).expect("below `covered`, which has 32 bits");
    Ok(indexes.into_iter().map(narrow).collect())
}

/// The indexes below `covered` that are not in an ascending list.
fn complement_of(indexes: &[u32], covered: u32) -> Vec<u32> {
    let mut others = Vec::with_capacity(covered as usize - indexes.len());
    let mut next = 0;
    for &index in indexes {
        others.extend(next..index);
        next = index + 1;
    }
    others.extend(next..covered);
    others
}
