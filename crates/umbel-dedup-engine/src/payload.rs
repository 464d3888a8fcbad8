//! The codes inside the frames: positions, verdicts, refinements, settlements.
//!
//! ```text
//! positions   Rice(gap) each, gap = position − previous in the frame, 0 allowed; WIDE: hi − start as position, then 64 bits of lo;
//!             SCORE: then 64 bits of rank; PLACE: then the place
//! verdict     Rice(index − previous − 1) each, or RAW: one bit a covered entry; COMPLEMENT: what is not meant;
//!             CAUSE: then one bit a drop, 1 if it is for a reference
//!             PLACE: then the kept one's place for each drop that is for an input
//! refine      r bits each
//! settle      t residue bits of hi, 64 − r low bits of lo, SCORE: 64 bits of rank, PLACE: the place
//! items       SCORE: rank u64 LE; PLACE: place u64 LE; then LEB128 length, bytes
//! ```
//!
//! Every decoder checks the count against the bits that came before it reserves room for the entries.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use super::entry::{Entry, Place, Rank, Standing};
use super::error::FrameError;
use super::frame::{Frame, flag};
use super::plan::{PlaceBits, StandingBits};
use crate::limits::FRAME_PAYLOAD_BYTES_CUT;
use umbel_bits::{
    BitReader, BitWriter, CodeError, RiceCode, decode_indexes, decode_positions, encode_indexes,
    indexes_bits,
};
use umbel_filter::{ItemHash, SingleShotShape};

/// Entries between two looks at the payload's length.
const CUT_CHECK_ENTRIES: usize = 1024;

/// Payloads of a stream: its entries in order, cut where a payload has grown to its limit. `write` gets each entry and the
/// one before it in the same payload, so that every payload can be read by itself. At least one payload, so that an
/// empty stream has a frame that ends it.
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

/// Payloads of the positions of sorted entries, and the Rice code that suits their mean gap.
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

/// Refuses a count that cannot be in the payload, before room is made for it.
fn check_count(frame: &Frame<'_>, bits_each_min: u64) -> Result<usize, FrameError> {
    let max = 8 * frame.payload.len() as u64 / bits_each_min.max(1);
    if bits_each_min > 0 && u64::from(frame.count) > max {
        return Err(FrameError::TooLarge { field: "count", got: frame.count.into(), max });
    }
    Ok(frame.count as usize)
}

/// The frame's Rice code.
fn rice(frame: &Frame<'_>) -> Result<RiceCode, FrameError> {
    RiceCode::new(frame.param.into()).map_err(|_| FrameError::TooLarge {
        field: "param",
        got: frame.param.into(),
        max: 63,
    })
}

/// Writes a place in the plan's widths.
pub(super) fn write_place(writer: &mut BitWriter, place: Place, bits: PlaceBits) {
    writer.write_bits(place.chunk().into(), bits.chunk);
    writer.write_bits(place.item(), bits.item);
}

fn read_place(reader: &mut BitReader<'_>, bits: PlaceBits) -> Result<Place, CodeError> {
    let chunk = reader.read_bits(bits.chunk)?;
    let item = reader.read_bits(bits.item)?;
    Ok(Place::new(u32::try_from(chunk).expect("the plan gives at most 24 bits"), item))
}

/// Writes what of a standing travels.
fn write_standing(writer: &mut BitWriter, standing: Standing, bits: StandingBits) {
    writer.write_bits(standing.rank.0, bits.rank);
    if let Some(place_bits) = bits.place {
        write_place(writer, standing.place, place_bits);
    }
}

fn read_standing(reader: &mut BitReader<'_>, bits: StandingBits) -> Result<Standing, CodeError> {
    let rank = Rank(reader.read_bits(bits.rank)?);
    let place = bits.place.map(|place_bits| read_place(reader, place_bits)).transpose()?;
    Ok(Standing { rank, place: place.unwrap_or_default() })
}

/// Appends the positions of a frame to those that came before in its stream; an error leaves them as they were.
pub(super) fn read_positions(
    frame: &Frame<'_>,
    width: u64,
    positions: &mut Vec<u64>,
) -> Result<(), FrameError> {
    let mut reader = BitReader::new(frame.payload);
    let before = positions.len();
    let read = decode_positions(&mut reader, rice(frame)?, frame.count.into(), width, positions);
    let outcome = read.and_then(|()| reader.finish());
    if outcome.is_err() {
        positions.truncate(before);
    }
    Ok(outcome?)
}

/// A whole hash and what travels of its standing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Settled {
    /// The hash.
    pub(super) hash: ItemHash,
    /// What decides between equal ones.
    pub(super) standing: Standing,
}

/// Writes one entry of a WIDE stream.
pub(super) fn write_wide(
    writer: &mut BitWriter,
    code: RiceCode,
    gap: u64,
    settled: Settled,
    standing_bits: StandingBits,
) {
    code.write(writer, gap);
    writer.write_bits(settled.hash.lo(), 64);
    write_standing(writer, settled.standing, standing_bits);
}

/// Appends the hashes of a WIDE frame, all in `start..=last`, to those that came before in its stream.
pub(super) fn read_wide(
    frame: &Frame<'_>,
    (start, last): (u64, u64),
    standing_bits: StandingBits,
    settled: &mut Vec<Settled>,
) -> Result<(), FrameError> {
    let code = rice(frame)?;
    let count = check_count(frame, u64::from(code.low_bits() + 65 + standing_bits.total()))?;
    let mut reader = BitReader::new(frame.payload);
    let mut previous = start;
    let mut fresh = Vec::with_capacity(count);
    for _ in 0..count {
        let hi = previous.checked_add(code.read(&mut reader)?).filter(|&hi| hi <= last);
        let max = last - start;
        previous = hi.ok_or(FrameError::TooLarge { field: "position", got: u64::MAX, max })?;
        let hash = ItemHash::new(previous, reader.read_bits(64)?);
        let standing = read_standing(&mut reader, standing_bits)?;
        fresh.push(Settled { hash, standing });
    }
    reader.finish()?;
    settled.append(&mut fresh);
    Ok(())
}

/// Appends `width` bits an entry.
pub(super) fn read_refine(
    frame: &Frame<'_>,
    width: u32,
    bits: &mut Vec<u64>,
) -> Result<(), FrameError> {
    let count = check_count(frame, width.into())?;
    let mut reader = BitReader::new(frame.payload);
    let mut fresh = Vec::with_capacity(count);
    for _ in 0..count {
        fresh.push(reader.read_bits(width)?);
    }
    reader.finish()?;
    bits.append(&mut fresh);
    Ok(())
}

/// What a survivor sends in a settlement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Residue {
    /// Low bits of hi − start.
    pub(super) hi: u64,
    /// Low bits of lo.
    pub(super) lo: u64,
    /// What decides between equal items, as far as it travels.
    pub(super) standing: Standing,
}

/// Widths of a settlement's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ResidueBits {
    /// Of hi.
    pub(super) hi: u32,
    /// Of lo.
    pub(super) lo: u32,
    /// Of the standing.
    pub(super) standing: StandingBits,
}

impl ResidueBits {
    /// Writes one survivor.
    pub(super) fn write(self, writer: &mut BitWriter, residue: Residue) {
        writer.write_bits(residue.hi, self.hi);
        writer.write_bits(residue.lo, self.lo);
        write_standing(writer, residue.standing, self.standing);
    }

    /// Reads all survivors of a frame, `left` at most.
    pub(super) fn read(self, frame: &Frame<'_>, left: usize) -> Result<Vec<Residue>, FrameError> {
        let count = check_count(frame, u64::from(self.hi + self.lo + self.standing.total()))?;
        expect_at_most("count", count, left)?;
        let mut reader = BitReader::new(frame.payload);
        let mut residues = Vec::with_capacity(count);
        for _ in 0..count {
            let hi = reader.read_bits(self.hi)?;
            let lo = reader.read_bits(self.lo)?;
            let standing = read_standing(&mut reader, self.standing)?;
            residues.push(Residue { hi, lo, standing });
        }
        reader.finish()?;
        Ok(residues)
    }
}

/// Refuses a number above what the stream still owes.
pub(super) fn expect_at_most(
    field: &'static str,
    got: usize,
    max: usize,
) -> Result<(), FrameError> {
    if got > max {
        return Err(FrameError::TooLarge { field, got: got as u64, max: max as u64 });
    }
    Ok(())
}

/// A verdict in the making: which of the `covered` entries are meant, and where the kept ones of drops are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct VerdictList {
    /// Indexes into the sender's list (of entries, candidates or survivors), strictly rising.
    pub(super) indexes: Vec<u32>,
    /// For a final verdict where there are references: for each drop whether it is for one of them.
    pub(super) by_reference: Option<Vec<bool>>,
    /// For a final verdict with places: where the kept item of each drop was read that is for an input.
    pub(super) kept: Vec<Place>,
}

/// The shortest form of a verdict: flags, parameter, entries in the payload, and the payload.
pub(super) struct CodedVerdict {
    pub(super) flags: u8,
    pub(super) param: u8,
    pub(super) count: u32,
    pub(super) payload: Vec<u8>,
}

impl VerdictList {
    /// Codes the verdict as a list, as the list of the others, or as a bitmap: whichever is shortest.
    pub(super) fn encode(&self, covered: u32, place_bits: Option<PlaceBits>) -> CodedVerdict {
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
        if let Some(bits) = place_bits {
            flags |= flag::PLACE;
            self.kept.iter().for_each(|&place| write_place(&mut writer, place, bits));
        }
        let count = if raw { meant } else { count };
        let param = if raw { 0 } else { u8::try_from(code.low_bits()).expect("at most 63") };
        CodedVerdict { flags, param, count, payload: writer.finish() }
    }

    /// Reads a verdict about `covered` entries.
    pub(super) fn decode(
        frame: &Frame<'_>,
        place_bits: Option<PlaceBits>,
    ) -> Result<Self, FrameError> {
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
            if indexes.len() != frame.count as usize {
                let (expected, got) = (indexes.len() as u64, frame.count.into());
                return Err(FrameError::Unexpected { field: "count", expected, got });
            }
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
        if let Some(bits) = place_bits {
            let known = by_reference.iter().flatten().filter(|known| **known).count();
            for _ in 0..indexes.len() - known {
                kept.push(read_place(&mut reader, bits)?);
            }
        }
        reader.finish()?;
        Ok(Self { indexes, by_reference, kept })
    }
}

fn read_indexes(frame: &Frame<'_>, reader: &mut BitReader<'_>) -> Result<Vec<u32>, FrameError> {
    let mut indexes = Vec::new();
    decode_indexes(reader, rice(frame)?, frame.count.into(), frame.covered.into(), &mut indexes)?;
    let narrow = |index| u32::try_from(index).expect("below `covered`, which has 32 bits");
    Ok(indexes.into_iter().map(narrow).collect())
}

/// The indexes below `covered` that a rising list leaves out.
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
