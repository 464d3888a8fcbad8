//! Encoding of a sketch file: written at once, read incrementally.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use umbel_codec::crc32c;
use umbel_sketch::{COUNTER_COUNT, CodedSymbol, Estimator};

use super::super::coded::sum_bytes;
use super::super::digest::SetDigest;
use super::super::error::SessionFrameError;
use super::super::options::SymbolKind;
use super::super::pass::Pass;
use super::super::wire::Reader;
use super::SketchSpec;
use super::cells::SketchCell;
use super::error::SketchFormatError;
use crate::limits::{ITEM_COUNT_MAX, SKETCH_SYMBOLS_MAX};

const MAGIC: [u8; 4] = *b"UMSK";

const VERSION: u8 = 1;

/// Bytes before the estimator.
const FIXED_BYTES: usize = 74;

/// Bytes of the estimator: its width, and 64 counters of at most 64 bits.
const ESTIMATOR_BYTES_MAX: usize = 1 + 8 * COUNTER_COUNT;

/// Bytes of a checksum.
const CRC_BYTES: usize = 4;

/// Coded symbols per block: few, because a reader decodes after each block and stops as soon as it can; the
/// checksum adds a quarter of a percent.
const BLOCK_CELLS: usize = 128;

/// The header of a sketch file.
///
/// ```
/// use umbel_reconcile_engine::{SymbolKind, SketchSpec, StoredSketch};
///
/// let spec = SketchSpec::new(SymbolKind::Hashed, 5, [1; 16], 48)?;
/// let header = StoredSketch::of_pass(spec, spec.pass(300)?)?.header();
/// assert_eq!((header.item_count(), header.coded_count()), (0, 300));
/// assert_eq!(header.spec().dataset_id(), 5);
/// # Ok::<(), umbel_reconcile_engine::SketchError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SketchHeader {
    pub(super) spec: SketchSpec,
    pub(super) digest: SetDigest,
    pub(super) symbol_sum: u64,
    pub(super) estimator: Estimator,
    pub(super) coded_count: usize,
}

impl SketchHeader {
    /// What the symbols are.
    #[must_use]
    pub const fn spec(&self) -> SketchSpec {
        self.spec
    }

    /// Number of items of the set.
    #[must_use]
    pub const fn item_count(&self) -> u64 {
        self.digest.count
    }

    /// Number of coded symbols that follow.
    #[must_use]
    pub const fn coded_count(&self) -> usize {
        self.coded_count
    }

    /// The pass over a set that is to be compared with the sketch, for
    /// [`SketchDecoder`](super::SketchDecoder).
    #[must_use]
    pub fn pass(&self) -> Pass {
        Pass::table(self.spec.key())
    }

    /// Whether the other header is of the same set, sketched in the same way.
    pub(super) fn is_of_set(&self, other: &Self) -> bool {
        let of_set = |header: &Self| (header.spec, header.digest, header.symbol_sum);
        of_set(self) == of_set(other) && self.estimator == other.estimator
    }

    fn to_bytes(&self) -> Vec<u8> {
        let estimator = self.estimator.to_bytes();
        let mut bytes = MAGIC.to_vec();
        bytes.extend([VERSION, self.spec.kind.code(), self.spec.symbol_bits, 0]);
        bytes.extend(self.spec.dataset_id.to_le_bytes());
        bytes.extend(self.spec.salt);
        bytes.extend(self.digest.count.to_le_bytes());
        bytes.extend(self.digest.sum.to_le_bytes());
        bytes.extend(self.symbol_sum.to_le_bytes());
        bytes.extend((self.coded_count as u64).to_le_bytes());
        let estimator_bytes = u16::try_from(estimator.len()).expect("at most 513 bytes");
        bytes.extend(estimator_bytes.to_le_bytes());
        bytes.extend(estimator);
        bytes.extend(crc32c(&[&bytes]).to_le_bytes());
        bytes
    }

    /// Parses a header whose checksum was verified.
    fn parse(bytes: &[u8]) -> Result<Self, SketchFormatError> {
        let mut reader = Reader::new(bytes);
        let parsed = Self::parse_fields(&mut reader);
        parsed.unwrap_or(Err(SketchFormatError::Truncated { got: 0, expected: 1 }))
    }

    fn parse_fields(
        reader: &mut Reader<'_>,
    ) -> Result<Result<Self, SketchFormatError>, SessionFrameError> {
        let denied = |field, got| Ok(Err(SketchFormatError::Field { field, got }));
        reader.bytes("magic and version", 5)?;
        let (kind, symbol_bits, zero) =
            (reader.u8("kind")?, reader.u8("symbol bits")?, reader.u8("zero")?);
        let (dataset_id, salt) = (reader.u64("dataset id")?, reader.u128("salt")?.to_le_bytes());
        let digest =
            SetDigest { count: reader.u64("items")?, sum: reader.u128("digest of the items")? };
        let symbol_sum = reader.u64("symbol sum")?;
        let coded_count = reader.u64("coded symbols")?;
        reader.u16("estimator bytes")?;
        let Some(kind) = SymbolKind::of_code(kind) else { return denied("kind", kind.into()) };
        if zero != 0 {
            return denied("zero", zero.into());
        }
        let spec = match SketchSpec::new(kind, dataset_id, salt, symbol_bits) {
            Ok(spec) => spec,
            Err(error) => return Ok(Err(error)),
        };
        if digest.count > ITEM_COUNT_MAX {
            return denied("items", digest.count);
        }
        let whole = usize::try_from(coded_count).ok();
        let Some(whole) = whole.filter(|count| (1..=SKETCH_SYMBOLS_MAX).contains(count)) else {
            return denied("coded symbols", coded_count);
        };
        let Ok(estimator) = Estimator::from_bytes(reader.rest(), digest.count) else {
            return denied("estimator", digest.count);
        };
        Ok(Ok(Self { spec, digest, symbol_sum, estimator, coded_count: whole }))
    }
}

/// Bytes of a block, without its checksum.
const fn block_bytes(cell_count: usize, symbol_bits: u8) -> usize {
    cell_count * (sum_bytes(symbol_bits) + 4) + cell_count.div_ceil(4)
}

fn block_checksum(header_checksum: u32, first_index: usize, block: &[u8]) -> u32 {
    crc32c(&[&header_checksum.to_le_bytes(), &(first_index as u64).to_le_bytes(), block])
}

/// Splits the checksum off the end.
fn split_checksum(bytes: &[u8]) -> Option<(&[u8], u32)> {
    let (covered, checksum) = bytes.split_last_chunk::<CRC_BYTES>()?;
    Some((covered, u32::from_le_bytes(*checksum)))
}

/// The contents of a file.
pub(super) fn to_bytes(header: &SketchHeader, cells: &[SketchCell]) -> Vec<u8> {
    let mut bytes = header.to_bytes();
    let (_, header_checksum) = split_checksum(&bytes).expect("it ends with its checksum");
    let sum_bytes = sum_bytes(header.spec.symbol_bits);
    for (block, number) in cells.chunks(BLOCK_CELLS).zip(0..) {
        let begin = bytes.len();
        for cell in block {
            let sum = cell.coded.sum.to_le_bytes();
            bytes.extend(sum.iter().take(sum_bytes));
        }
        block.iter().for_each(|cell| bytes.extend(cell.coded.check.to_le_bytes()));
        let packed = |four: &[SketchCell]| {
            let shifted = four.iter().zip([0, 2, 4, 6]);
            shifted.fold(0, |byte, (cell, shift)| byte | cell.count << shift)
        };
        bytes.extend(block.chunks(4).map(packed));
        let block = bytes.get(begin..).unwrap_or_default();
        let checksum = block_checksum(header_checksum, number * BLOCK_CELLS, block);
        bytes.extend(checksum.to_le_bytes());
    }
    bytes
}

/// Reads a sketch file from front to back, and buffers at most a block of it.
///
/// ```
/// use umbel_reconcile_engine::{ItemIndex, ItemRef, SymbolKind, SketchReader, SketchSpec, StoredSketch};
///
/// let spec = SketchSpec::new(SymbolKind::Hashed, 0, [1; 16], 64)?;
/// let mut pass = spec.pass(130)?;
/// pass.add(ItemIndex(0), ItemRef::Bytes(b"alpha"));
/// let bytes = StoredSketch::of_pass(spec, pass)?.to_bytes();
///
/// let mut reader = SketchReader::new();
/// let (mut rest, mut cells) = (&bytes[..], Vec::new());
/// while let count @ 1.. = reader.wanted_bytes() {
///     let (next, behind) = rest.split_at(count);
///     cells.extend(reader.push(next)?);
///     rest = behind;
/// }
/// assert_eq!((cells.len(), rest.len()), (130, 0));
/// assert_eq!(reader.header().map(|header| header.item_count()), Some(1));
/// # Ok::<(), umbel_reconcile_engine::SketchError>(())
/// ```
#[derive(Clone, Default, Debug)]
pub struct SketchReader {
    /// The received part of the header or of a block, until it is complete.
    waiting: Vec<u8>,
    header: Option<SketchHeader>,
    header_checksum: u32,
    /// Number of coded symbols read.
    cell_count: usize,
}

impl SketchReader {
    /// A reader at the beginning of a file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The header, once it is read.
    #[must_use]
    pub const fn header(&self) -> Option<&SketchHeader> {
        self.header.as_ref()
    }

    /// How many bytes the reader needs at least to continue; 0 at the end of the file.
    #[must_use]
    pub fn wanted_bytes(&self) -> usize {
        self.part_bytes().saturating_sub(self.waiting.len())
    }

    /// Processes the next bytes, and returns the coded symbols of all blocks that are complete now.
    ///
    /// # Errors
    /// If the bytes are not those of a sketch; the reader cannot be used any more then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SketchCell>, SketchFormatError> {
        let mut cells = Vec::new();
        let mut rest = bytes;
        loop {
            let wanted = self.wanted_bytes();
            let Some((next, behind)) = rest.split_at_checked(wanted) else { break };
            if self.part_bytes() == 0 {
                break;
            }
            self.waiting.extend_from_slice(next);
            rest = behind;
            // The length of the header is known only once its beginning has been read.
            if self.wanted_bytes() > 0 {
                continue;
            }
            let part = std::mem::take(&mut self.waiting);
            if self.header.is_none() {
                self.take_header(&part)?;
            } else {
                self.take_block(&part, &mut cells)?;
            }
        }
        if self.part_bytes() == 0 && !rest.is_empty() {
            return Err(SketchFormatError::Trailing { extra: rest.len() });
        }
        self.waiting.extend_from_slice(rest);
        self.check_beginning()?;
        Ok(cells)
    }

    /// Checks that the file ends here.
    ///
    /// # Errors
    /// If coded symbols are missing.
    pub fn end(&self) -> Result<(), SketchFormatError> {
        if self.part_bytes() == 0 {
            return Ok(());
        }
        let expected = self.header.as_ref().map_or(1, |header| header.coded_count as u64);
        Err(SketchFormatError::Truncated { got: self.cell_count as u64, expected })
    }

    /// Length of the current part: the header, as far as its length is known, or a block; 0 at the end.
    fn part_bytes(&self) -> usize {
        let Some(header) = &self.header else {
            let length = self.waiting.get(FIXED_BYTES - 2..FIXED_BYTES);
            let length = length.and_then(|bytes| bytes.first_chunk::<2>());
            return match length {
                Some(bytes) => FIXED_BYTES + usize::from(u16::from_le_bytes(*bytes)) + CRC_BYTES,
                None => FIXED_BYTES,
            };
        };
        match self.block_cells(header) {
            0 => 0,
            count => block_bytes(count, header.spec.symbol_bits) + CRC_BYTES,
        }
    }

    /// Number of coded symbols in the next block.
    fn block_cells(&self, header: &SketchHeader) -> usize {
        (header.coded_count - self.cell_count).min(BLOCK_CELLS)
    }

    /// Rejects what is not a sketch before more bytes are read.
    fn check_beginning(&self) -> Result<(), SketchFormatError> {
        if self.header.is_some() {
            return Ok(());
        }
        if let Some(got) = self.waiting.first_chunk::<4>()
            && *got != MAGIC
        {
            return Err(SketchFormatError::Magic { got: *got });
        }
        match self.waiting.get(4) {
            Some(&got) if got != VERSION => {
                return Err(SketchFormatError::Version { expected: VERSION, got });
            }
            _ => {}
        }
        let bytes = self.part_bytes().saturating_sub(FIXED_BYTES + CRC_BYTES);
        if bytes > ESTIMATOR_BYTES_MAX {
            return Err(SketchFormatError::Field { field: "estimator bytes", got: bytes as u64 });
        }
        Ok(())
    }

    fn take_header(&mut self, part: &[u8]) -> Result<(), SketchFormatError> {
        let beginning = Self { waiting: part.to_vec(), ..Self::default() };
        beginning.check_beginning()?;
        let missing = SketchFormatError::Truncated { got: 0, expected: 1 };
        let (covered, got) = split_checksum(part).ok_or(missing)?;
        let computed = crc32c(&[covered]);
        if got != computed {
            let what = "the sketch's header";
            return Err(SketchFormatError::Checksum { what, got, computed });
        }
        self.header = Some(SketchHeader::parse(covered)?);
        self.header_checksum = got;
        Ok(())
    }

    fn take_block(
        &mut self,
        part: &[u8],
        cells: &mut Vec<SketchCell>,
    ) -> Result<(), SketchFormatError> {
        let Some(header) = &self.header else { return Ok(()) };
        let missing = SketchFormatError::Truncated {
            got: self.cell_count as u64,
            expected: header.coded_count as u64,
        };
        let (block, got) = split_checksum(part).ok_or(missing.clone())?;
        let computed = block_checksum(self.header_checksum, self.cell_count, block);
        if got != computed {
            let what = "a block of the sketch";
            return Err(SketchFormatError::Checksum { what, got, computed });
        }
        let (count, bits) = (self.block_cells(header), header.spec.symbol_bits);
        let sums = block.split_at_checked(count * sum_bytes(bits));
        let (sums, rest) = sums.ok_or(missing.clone())?;
        let (checks, counts) = rest.split_at_checked(count * 4).ok_or(missing)?;
        let (checks, _) = checks.as_chunks::<4>();
        let pairs = sums.chunks_exact(sum_bytes(bits)).zip(checks);
        for ((sum, check), place) in pairs.zip(0..) {
            let mut wide = [0; 8];
            wide.iter_mut().zip(sum).for_each(|(to, from)| *to = *from);
            let (sum, check) = (u64::from_le_bytes(wide), u32::from_le_bytes(*check));
            if sum & !(u64::MAX >> (64 - bits)) != 0 {
                return Err(SketchFormatError::Field { field: "sum", got: sum });
            }
            let packed = counts.get(place / 4).copied().unwrap_or_default();
            let count = packed >> (place % 4 * 2) & 3;
            cells.push(SketchCell { coded: CodedSymbol { sum, check }, count });
        }
        let unused = match (count % 4, counts.last()) {
            (left @ 1.., Some(&last)) => last >> (2 * left),
            _ => 0,
        };
        if unused != 0 {
            return Err(SketchFormatError::Field { field: "counts", got: unused.into() });
        }
        self.cell_count += count;
        Ok(())
    }
}
