//! From sets to rows.

use umbel_codec::crc32c;
use umbel_filter::words::iter_ones;
use umbel_filter::{Classic, Insert, ItemHash};

use super::error::SlicedError;
use super::groups::SizeGroup;
use super::head::{SLICED_PAGE_BYTES, SlicedHead};
use super::index;
use super::shape::{SET_COUNT_MAX, SlicedSet, SlicedShape};

/// Words of each column that are written by row at once: 512 rows, which of a thousand sets are 64 KB and stay in the
/// cache while bits are strewn over them.
const WORDS_AT_ONCE: usize = 8;

/// Rows of a large group that are made at once in memory.
const ROWS_AT_ONCE: usize = 1 << 16;

/// A set and its filter, before it is written by row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// The set.
    pub set: SlicedSet,
    /// Bits of its filter.
    pub words: Vec<u64>,
}

impl SlicedShape {
    /// The filter of a set. A hash that comes twice is one item.
    ///
    /// # Errors
    ///
    /// [`SlicedError::Name`], [`SlicedError::Items`] or [`SlicedError::Create`].
    #[expect(clippy::missing_panics_doc, reason = "it does not")]
    pub fn column(&self, name: &str, mut hashes: Vec<ItemHash>) -> Result<Column, SlicedError> {
        hashes.sort_unstable();
        hashes.dedup();
        let set = self.set(name, hashes.len() as u64)?;
        let mut filter = Classic::with_shape(set.size.shape(self.probe_count()))?;
        filter
            .insert_batch(&hashes, &mut Vec::new())
            .expect("a filter of the whole hash space refuses no hash");
        Ok(Column { set, words: filter.words().to_vec() })
    }
}

/// Makes the head of a file whose rows are written one after the other.
///
/// ```text
/// head_bytes    zeros, so many
/// groups, rows  for each group its rows, from the same part of each column at a time
/// finish        the head, in place of the zeros
/// ```
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_filter::{HashFunction, ItemHash};
/// use umbel_static::sliced::{SlicedBuilder, SlicedFile, SlicedShape};
///
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
/// let shape = SlicedShape::new(key, 2, 0.01)?;
/// let columns = [shape.column("a", vec![ItemHash::new(1, 2)])?, shape.column("b", vec![])?];
/// let mut builder = SlicedBuilder::new(shape, columns.iter().map(|c| c.set.clone()).collect())?;
/// assert_eq!(builder.groups()[0].sets(), [0, 1]);
/// let rows = builder.rows(&columns.map(|column| column.words));
/// let file = [builder.finish().to_bytes(), rows].concat();
/// assert_eq!(SlicedFile::parse(&file)?.sets_with(ItemHash::new(1, 2)), [0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SlicedBuilder {
    head: SlicedHead,
    /// Which group and row comes next.
    next: (usize, u64),
    /// What was written of a page that is not full.
    page: Vec<u8>,
}

impl SlicedBuilder {
    /// Of a file of these sets.
    ///
    /// # Errors
    ///
    /// [`SlicedError::Sets`].
    pub fn new(shape: SlicedShape, sets: Vec<SlicedSet>) -> Result<Self, SlicedError> {
        if sets.len() > SET_COUNT_MAX {
            return Err(SlicedError::Sets { set_count: sets.len() });
        }
        Ok(Self { head: SlicedHead::new(shape, sets), next: (0, 0), page: Vec::new() })
    }

    /// Bytes in front of the rows.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        self.head.head_bytes()
    }

    /// The groups, in order.
    #[must_use]
    pub fn groups(&self) -> &[SizeGroup] {
        self.head.groups()
    }

    /// The next rows, from the next words of the columns of the group that is next: as many of each, eight or a
    /// multiple of it, and of all its sets in order.
    ///
    /// # Panics
    ///
    /// If columns are missing or differ in length, or more rows come than the group has.
    pub fn rows(&mut self, columns: &[impl AsRef<[u64]>]) -> Vec<u8> {
        let (number, row) = self.next;
        let group = &self.head.groups()[number];
        let word_count = columns.first().map_or(0, |column| column.as_ref().len());
        let row_end = row + 64 * word_count as u64;
        assert_eq!(columns.len(), group.sets.len(), "columns of the group");
        assert!(columns.iter().all(|column| column.as_ref().len() == word_count), "lengths");
        assert!(word_count.is_multiple_of(WORDS_AT_ONCE), "{word_count} words");
        assert!(row_end <= group.size.bits(), "row {row_end} of {}", group.size.bits());
        let bytes = by_row(columns, word_count, group.row_bits);
        self.next = if row_end == group.size.bits() { (number + 1, 0) } else { (number, row_end) };
        self.note(&bytes);
        bytes
    }

    /// Takes checksums.
    fn note(&mut self, mut bytes: &[u8]) {
        let page_bytes = index(SLICED_PAGE_BYTES);
        while self.page.len() + bytes.len() >= page_bytes {
            let (now, later) = bytes.split_at(page_bytes - self.page.len());
            self.head.checksums.push(crc32c(&[&self.page, now]));
            self.page.clear();
            bytes = later;
        }
        self.page.extend(bytes);
    }

    /// The head.
    ///
    /// # Panics
    ///
    /// If rows are missing.
    #[must_use]
    pub fn finish(mut self) -> SlicedHead {
        assert_eq!(self.next, (self.head.groups().len(), 0), "every group has its rows");
        if !self.page.is_empty() {
            self.head.checksums.push(crc32c(&[&self.page]));
        }
        self.head
    }
}

/// Columns of so many words each as rows.
fn by_row(columns: &[impl AsRef<[u64]>], word_count: usize, row_bits: u64) -> Vec<u8> {
    let mut bytes = vec![0; word_count * 8 * index(row_bits)];
    for first in (0..word_count).step_by(WORDS_AT_ONCE) {
        for (column, words) in (0u64..).zip(columns) {
            for row in iter_ones(&words.as_ref()[first..first + WORDS_AT_ONCE]) {
                let bit = (first as u64 * 64 + row) * row_bits + column;
                bytes[index(bit / 8)] |= 1 << (bit % 8);
            }
        }
    }
    bytes
}

/// A whole file of sets that are all in memory, each a name and the hashes of its items. The same sets in the same
/// order give the same bytes, in whatever order their items are.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_filter::{HashFunction, ItemHash};
/// use umbel_static::sliced::{SlicedFile, SlicedShape, build_sliced};
///
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
/// let shape = SlicedShape::new(key, 3, 0.01)?;
/// let file = build_sliced(&shape, [("one".to_owned(), vec![ItemHash::new(1, 2); 2])])?;
/// assert_eq!(SlicedFile::parse(file)?.head().sets()[0].item_count, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Any [`SlicedError`] of a set, or of their number.
pub fn build_sliced(
    shape: &SlicedShape,
    sets: impl IntoIterator<Item = (String, Vec<ItemHash>)>,
) -> Result<Vec<u8>, SlicedError> {
    let columns = sets
        .into_iter()
        .map(|(name, hashes)| shape.column(&name, hashes))
        .collect::<Result<Vec<Column>, _>>()?;
    let sets = columns.iter().map(|column| column.set.clone()).collect();
    let mut builder = SlicedBuilder::new(shape.clone(), sets)?;
    let mut bytes = vec![0; builder.head_bytes()];
    for group in builder.groups().to_vec() {
        let words = index(group.size.bits() / 64);
        for first in (0..words).step_by(ROWS_AT_ONCE / 64) {
            let last = words.min(first + ROWS_AT_ONCE / 64);
            let part = |set: &usize| &columns[*set].words[first..last];
            bytes.extend(builder.rows(&group.sets.iter().map(part).collect::<Vec<_>>()));
        }
    }
    let head = builder.finish().to_bytes();
    bytes[..head.len()].copy_from_slice(&head);
    Ok(bytes)
}
