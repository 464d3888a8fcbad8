//! What stands in front of the rows: header, text, sets and checksums, valid as a whole.

// Input is hostile here: an index out of bounds must be an error, not a panic.
#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use umbel_codec::{FrameKey, crc32c};
use umbel_filter::{Classic, ItemHash};

use super::groups::{SizeGroup, groups_of};
use super::index;
use super::question::{Question, and_row, fill};
use super::shape::{ColumnSize, NAME_BYTES_MAX, SET_COUNT_MAX, SlicedSet, SlicedShape};
use crate::error::FileError;
use crate::fields::Fields;
use crate::head::hash_function;

/// The first bytes of every file.
pub const SLICED_MAGIC: [u8; 4] = *b"UMBX";

/// The version that this release writes and reads.
pub const SLICED_VERSION: u8 = 1;

/// Bytes of the header.
pub const SLICED_HEADER_BYTES: usize = 56;

/// Bytes of the matrix that have a checksum of their own: what is read for a row of which a hundred bytes are needed.
pub const SLICED_PAGE_BYTES: u64 = 1 << 16;

/// Bytes of the header in front of the checksum, and those with it.
const BEFORE_CHECKSUM: usize = 12;
const WITH_CHECKSUM: usize = 16;

/// Header, text, sets and checksums of a file, valid as a whole.
///
/// Whoever reads a file by parts reads [`SLICED_HEADER_BYTES`] bytes, then what [`bytes_needed`](Self::bytes_needed)
/// says, then the pages with the rows that [`ask`](Self::ask) wants.
#[derive(Clone, Debug)]
pub struct SlicedHead {
    pub(super) shape: SlicedShape,
    pub(super) sets: Vec<SlicedSet>,
    pub(super) groups: Vec<SizeGroup>,
    pub(super) checksums: Vec<u32>,
}

/// What a header says before anything behind it is read.
struct Header {
    shape: SlicedShape,
    form_bytes: u64,
    checksum: u32,
    set_count: u64,
    directory_bytes: u64,
    matrix_bytes: u64,
}

impl Header {
    fn parse(bytes: &[u8]) -> Result<Self, FileError> {
        let field = |field, actual: u64| Err(FileError::Field { field, actual });
        let mut fields = Fields::new(bytes);
        let magic = fields.bytes()?;
        if magic != SLICED_MAGIC {
            return Err(FileError::Magic { expected: SLICED_MAGIC, actual: magic });
        }
        let version = fields.u8()?;
        if version != SLICED_VERSION {
            return Err(FileError::Version { actual: version });
        }
        let function = fields.u8()?;
        let function = hash_function(function)?;
        let (probe_count, blank) = (fields.u8()?, fields.u8()?);
        let (form_bytes, more_blank) = (fields.u16()?, fields.u16()?);
        if blank != 0 || more_blank != 0 {
            return field("blank", u64::from(blank) | u64::from(more_blank));
        }
        let checksum = fields.u32()?;
        let key = FrameKey { function, key_id: fields.u64()? };
        let rate = fields.u64()?;
        let Ok(shape) = SlicedShape::new(key, probe_count.into(), f64::from_bits(rate)) else {
            return field("number of probes or rate", probe_count.into());
        };
        let (set_count, directory_bytes) = (fields.u64()?, fields.u64()?);
        if set_count > SET_COUNT_MAX as u64 {
            return field("number of sets", set_count);
        }
        let (form_bytes, matrix_bytes) = (form_bytes.into(), fields.u64()?);
        Ok(Self { shape, form_bytes, checksum, set_count, directory_bytes, matrix_bytes })
    }

    /// Bytes in front of the matrix, and those of the file. Sums of any numbers fit.
    fn lengths(&self) -> (u128, u128) {
        let pages = u128::from(self.matrix_bytes.div_ceil(SLICED_PAGE_BYTES));
        let before = SLICED_HEADER_BYTES as u128
            + u128::from(self.form_bytes)
            + u128::from(self.directory_bytes);
        let head = before + 4 * pages;
        (head, head + u128::from(self.matrix_bytes))
    }

    /// Bytes of the head, if the file is as long as it must be.
    fn head_bytes(&self, file_bytes: u64) -> Result<usize, FileError> {
        let (head, expected) = self.lengths();
        let actual = u128::from(file_bytes);
        if actual != expected {
            let expected = u64::try_from(expected)
                .map_err(|_| FileError::Field { field: "length", actual: self.matrix_bytes })?;
            return Err(if expected > file_bytes {
                FileError::Truncated { needed: expected, available: file_bytes }
            } else {
                FileError::Length { expected, actual: file_bytes }
            });
        }
        usize::try_from(head)
            .map_err(|_| FileError::Field { field: "length", actual: self.directory_bytes })
    }
}

impl SlicedHead {
    pub(super) fn new(shape: SlicedShape, sets: Vec<SlicedSet>) -> Self {
        let groups = groups_of(&sets, shape.probe_count());
        Self { shape, sets, groups, checksums: Vec::new() }
    }

    /// Bytes of the head, given the first [`SLICED_HEADER_BYTES`] of a file of so many bytes; never more than those.
    ///
    /// # Errors
    ///
    /// [`FileError`] if the header is none, or the file is not as long as it says.
    pub fn bytes_needed(header: &[u8], file_bytes: u64) -> Result<usize, FileError> {
        Header::parse(header)?.head_bytes(file_bytes)
    }

    /// Reads a head from the front of a file of so many bytes; what follows the head is not looked at.
    ///
    /// # Errors
    ///
    /// Any [`FileError`] but those of chunks, pages and keys.
    pub fn parse(bytes: &[u8], file_bytes: u64) -> Result<Self, FileError> {
        let header = Header::parse(bytes)?;
        let head_bytes = header.head_bytes(file_bytes)?;
        let Some(head) = bytes.get(..head_bytes) else {
            let (needed, available) = (head_bytes as u64, bytes.len() as u64);
            return Err(FileError::Truncated { needed, available });
        };
        let (before, rest) = head.split_at(WITH_CHECKSUM);
        let actual = crc32c(&[before.get(..BEFORE_CHECKSUM).unwrap_or_default(), rest]);
        if actual != header.checksum {
            return Err(FileError::HeadChecksum { expected: header.checksum, actual });
        }
        let rest = head.get(SLICED_HEADER_BYTES..).unwrap_or_default();
        Self::from_parts(header, rest)
    }

    /// The header was checked against the length of `rest`: text, directory, checksums.
    fn from_parts(header: Header, rest: &[u8]) -> Result<Self, FileError> {
        let take = |bytes: &'_ [u8], count: u64| -> Option<usize> {
            usize::try_from(count).ok().filter(|count| *count <= bytes.len())
        };
        let field = |field, actual| FileError::Field { field, actual };
        let form_bytes =
            take(rest, header.form_bytes).ok_or(field("length of the text", header.form_bytes))?;
        let (form, rest) = rest.split_at(form_bytes);
        let directory_bytes = header.directory_bytes;
        let directory_bytes =
            take(rest, directory_bytes).ok_or(field("length of the directory", directory_bytes))?;
        let (directory, checksums) = rest.split_at(directory_bytes);
        let shape = header
            .shape
            .with_form(utf8(form)?)
            .map_err(|_| field("length of the text", header.form_bytes))?;
        let sets = parse_sets(directory, header.set_count)?;
        let mut head = Self::new(shape, sets);
        if head.matrix_bytes() != header.matrix_bytes {
            return Err(field("length of the matrix", header.matrix_bytes));
        }
        let (checksums, _) = checksums.as_chunks::<4>();
        head.checksums = checksums.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        Ok(head)
    }

    /// Hash, probes, rate, and what an item is.
    #[must_use]
    pub const fn shape(&self) -> &SlicedShape {
        &self.shape
    }

    /// The sets, in the order in which they were given.
    #[must_use]
    pub fn sets(&self) -> &[SlicedSet] {
        &self.sets
    }

    /// The groups of sets of one size, by rising size.
    #[must_use]
    pub fn groups(&self) -> &[SizeGroup] {
        &self.groups
    }

    /// Refuses a file that was built under another hash function, seed or key.
    ///
    /// # Errors
    ///
    /// [`FileError::Key`].
    pub fn check_key(&self, key: FrameKey) -> Result<(), FileError> {
        let expected = self.shape.key();
        if key == expected { Ok(()) } else { Err(FileError::Key { expected, actual: key }) }
    }

    /// Bytes of the rows.
    #[must_use]
    pub fn matrix_bytes(&self) -> u64 {
        self.groups.last().map_or(0, |group| group.start + group.bytes())
    }

    /// Bytes in front of the rows.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        let pages = index(self.matrix_bytes().div_ceil(SLICED_PAGE_BYTES));
        SLICED_HEADER_BYTES + self.shape.form().len() + self.directory_bytes() + 4 * pages
    }

    /// Length of the file in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.head_bytes() as u64 + self.matrix_bytes()
    }

    /// Where the page with this byte of the matrix is in the file; None if there is no such byte.
    #[must_use]
    pub fn page_range(&self, page: u64) -> Option<Range<u64>> {
        let start = page.checked_mul(SLICED_PAGE_BYTES)?;
        let end = start.saturating_add(SLICED_PAGE_BYTES).min(self.matrix_bytes());
        let head = self.head_bytes() as u64;
        (start < end).then(|| head + start..head + end)
    }

    /// Whether the bytes of a page are all there, and undamaged.
    ///
    /// # Errors
    ///
    /// [`FileError::Truncated`], [`FileError::Length`] or [`FileError::PageChecksum`].
    pub fn check_page(&self, page: u64, bytes: &[u8]) -> Result<(), FileError> {
        let range = self.page_range(page);
        let checksum = usize::try_from(page).ok().and_then(|page| self.checksums.get(page));
        let (Some(range), Some(expected)) = (range, checksum) else {
            return Err(FileError::Field { field: "number of a page", actual: page });
        };
        let (needed, available) = (range.end - range.start, bytes.len() as u64);
        if available < needed {
            return Err(FileError::Truncated { needed, available });
        }
        if available > needed {
            return Err(FileError::Length { expected: needed, actual: available });
        }
        let (expected, actual) = (*expected, crc32c(&[bytes]));
        if expected == actual {
            Ok(())
        } else {
            Err(FileError::PageChecksum { page, expected, actual })
        }
    }

    /// A question that nothing was asked of yet.
    #[must_use]
    pub fn question(&self) -> Question {
        Question::new(self.groups.iter().map(SizeGroup::words).sum())
    }

    /// Asks for one more item. `rows` hands over bytes of the matrix, counted from its start: those of one row each
    /// time.
    ///
    /// # Errors
    ///
    /// What `rows` fails with; the item is not counted then.
    pub fn ask<E>(
        &self,
        question: &mut Question,
        hash: ItemHash,
        mut rows: impl FnMut(Range<u64>, &mut dyn FnMut(&[u8])) -> Result<(), E>,
    ) -> Result<(), E> {
        for group in &self.groups {
            let words = question.words_of(group);
            fill(words, group.sets.len());
            let mut is_left = true;
            for position in Classic::positions(group.shape, hash) {
                // Below 2^40 rows of 2^20 bits.
                let bit = position * group.row_bits;
                let start = group.start + bit / 8;
                let range = start..start + group.row_bits.div_ceil(8);
                rows(range, &mut |row| {
                    is_left = and_row(words, row, group.row_bits, (bit % 8) as u32);
                })?;
                if !is_left {
                    break;
                }
            }
        }
        question.count();
        Ok(())
    }

    /// Numbers of the sets that the last item of a question may be in, ascending.
    #[must_use]
    pub fn found(&self, question: &Question) -> Vec<usize> {
        let mut found = Vec::new();
        for group in &self.groups {
            let words = question.found.get(group.first_word..).unwrap_or_default();
            let words = words.get(..group.words()).unwrap_or_default();
            let columns = umbel_filter::words::iter_ones(words);
            found.extend(columns.filter_map(|column| group.sets.get(index(column))));
        }
        found.sort_unstable();
        found
    }

    /// How many items of a question each set may hold, by the number of the set.
    #[must_use]
    pub fn counts(&self, question: &Question) -> Vec<u32> {
        let mut counts = vec![0; self.sets.len()];
        for group in &self.groups {
            for (column, set) in group.sets.iter().enumerate() {
                if let Some(count) = counts.get_mut(*set) {
                    *count = question.count_of(group, column);
                }
            }
        }
        counts
    }

    fn directory_bytes(&self) -> usize {
        self.sets.iter().map(|set| ROW_BYTES + set.name.len()).sum()
    }

    /// The head as bytes.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "limits are checked where shapes are made")]
    pub fn to_bytes(&self) -> Vec<u8> {
        let (shape, key) = (&self.shape, self.shape.key());
        let mut bytes = Vec::new();
        bytes.extend(SLICED_MAGIC);
        bytes.extend([SLICED_VERSION, key.function.id(), shape.probe_count() as u8, 0]);
        bytes.extend((shape.form().len() as u16).to_le_bytes());
        bytes.extend([0, 0]);
        let mut rest = Vec::new();
        let (sets, directory) = (self.sets.len() as u64, self.directory_bytes() as u64);
        let numbers = [key.key_id, shape.rate().to_bits(), sets, directory, self.matrix_bytes()];
        numbers.iter().for_each(|number| rest.extend(number.to_le_bytes()));
        rest.extend(shape.form().as_bytes());
        for set in &self.sets {
            rest.extend(set.item_count.to_le_bytes());
            rest.push(set.size.step());
            rest.extend((set.name.len() as u16).to_le_bytes());
            rest.extend(set.name.as_bytes());
        }
        self.checksums.iter().for_each(|checksum| rest.extend(checksum.to_le_bytes()));
        bytes.extend(crc32c(&[&bytes, &rest]).to_le_bytes());
        bytes.extend(rest);
        bytes
    }
}

/// Bytes of a row of the directory beside the name.
const ROW_BYTES: usize = 11;

fn parse_sets(directory: &[u8], set_count: u64) -> Result<Vec<SlicedSet>, FileError> {
    let mut rest = directory;
    let mut sets = Vec::new();
    for _ in 0..set_count {
        let mut fields = Fields::new(rest);
        let (item_count, step) = (fields.u64()?, fields.u8()?);
        let name_bytes = usize::from(fields.u16()?);
        let size = ColumnSize::from_step(step)
            .ok_or(FileError::Field { field: "step of a set", actual: step.into() })?;
        let length = FileError::Field { field: "length of a name", actual: name_bytes as u64 };
        let after = rest.get(ROW_BYTES..).and_then(|rest| rest.split_at_checked(name_bytes));
        let Some((name, after)) = after.filter(|_| name_bytes <= NAME_BYTES_MAX) else {
            return Err(length);
        };
        sets.push(SlicedSet { name: utf8(name)?.to_owned(), item_count, size });
        rest = after;
    }
    if rest.is_empty() {
        return Ok(sets);
    }
    Err(FileError::Field { field: "length of the directory", actual: directory.len() as u64 })
}

fn utf8(bytes: &[u8]) -> Result<&str, FileError> {
    str::from_utf8(bytes).map_err(|error| FileError::Field {
        field: "offset of a text's first byte that is no UTF-8",
        actual: error.valid_up_to() as u64,
    })
}
