//! A whole index in memory.

use std::convert::Infallible;
use std::ops::Range;

use umbel_filter::{Classic, CreateError, ItemHash};

use super::head::{SLICED_PAGE_BYTES, SlicedHead};
use super::index;
use super::question::Question;
use crate::error::FileError;

/// An index whose bytes are all in memory, checked from end to end. What the bytes are in is the caller's: a slice, a
/// vector, a map of the file. If they change afterwards, answers may be wrong, and nothing else.
///
/// ```
/// use umbel_codec::FrameKey;
/// use umbel_filter::{HashFunction, ItemHash};
/// use umbel_static::sliced::{SlicedFile, SlicedShape, build_sliced};
///
/// let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
/// let shape = SlicedShape::new(key, 1, 0.3)?;
/// let sets = (0..20).map(|set| (format!("{set}"), vec![ItemHash::new(set, set)]));
/// let file = SlicedFile::parse(build_sliced(&shape, sets)?)?;
/// // 512 rows of 24 bits; header, 20 rows of 11 bytes, their names of 30, one checksum.
/// assert_eq!(file.as_bytes().len(), 512 * 3 + 56 + 20 * 11 + 30 + 4);
/// assert!(file.sets_with(ItemHash::new(7, 7)).contains(&7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SlicedFile<Bytes> {
    head: SlicedHead,
    matrix_start: usize,
    bytes: Bytes,
}

impl<Bytes: AsRef<[u8]>> SlicedFile<Bytes> {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Any [`FileError`] but those of chunks and [`Key`](FileError::Key).
    pub fn parse(bytes: Bytes) -> Result<Self, FileError> {
        let all = bytes.as_ref();
        let head = SlicedHead::parse(all, all.len() as u64)?;
        let matrix_start = head.head_bytes();
        let matrix = all.get(matrix_start..).unwrap_or_default();
        for (page, bytes) in (0..).zip(matrix.chunks(index(SLICED_PAGE_BYTES))) {
            head.check_page(page, bytes)?;
        }
        Ok(Self { head, matrix_start, bytes })
    }

    /// What stands in front of the rows.
    pub fn head(&self) -> &SlicedHead {
        &self.head
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    fn matrix(&self) -> &[u8] {
        self.bytes.as_ref().get(self.matrix_start..).unwrap_or_default()
    }

    /// Asks for one more item.
    pub fn ask(&self, question: &mut Question, hash: ItemHash) {
        let matrix = self.matrix();
        let rows = |range: Range<u64>, take: &mut dyn FnMut(&[u8])| {
            // A row that is gone is one of no set: the bytes were changed.
            take(matrix.get(index(range.start)..index(range.end)).unwrap_or_default());
            Ok::<(), Infallible>(())
        };
        let Ok(()) = self.head.ask(question, hash, rows);
    }

    /// Numbers of the sets that may hold an item, ascending: every set that does, and each other with about the rate.
    #[must_use]
    pub fn sets_with(&self, hash: ItemHash) -> Vec<usize> {
        let mut question = self.head.question();
        self.ask(&mut question, hash);
        self.head.found(&question)
    }

    /// How many of these items each set may hold, by the number of the set.
    #[must_use]
    pub fn counts(&self, hashes: &[ItemHash]) -> Vec<u32> {
        let mut question = self.head.question();
        hashes.iter().for_each(|hash| self.ask(&mut question, *hash));
        self.head.counts(&question)
    }

    /// The filter of a set, as a classic filter of its own; None if there is no such set.
    ///
    /// # Errors
    ///
    /// If there is no memory.
    pub fn filter(&self, set: usize) -> Result<Option<Classic>, CreateError> {
        let column = self.head.groups().iter().find_map(|group| {
            group.sets.binary_search(&set).ok().map(|column| (group, column as u64))
        });
        let Some((group, column)) = column else { return Ok(None) };
        let mut filter = Classic::with_shape(group.shape)?;
        let rows = self.matrix().get(index(group.start)..).unwrap_or_default();
        for (first_row, word) in (0..).step_by(64).zip(filter.words_mut()) {
            for row in 0..64 {
                let bit = (first_row + row) * group.row_bits + column;
                let byte = rows.get(index(bit / 8)).copied().unwrap_or_default();
                *word |= u64::from(byte >> (bit % 8) & 1) << row;
            }
        }
        Ok(Some(filter))
    }
}
