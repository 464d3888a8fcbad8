//! The items of the rows of a row group.

use super::column::{self, Column};
use super::error::ParquetError;
use super::file::ParquetFile;
use super::selection::{ItemKind, ParquetSelection, Selected};
use super::stored_column::StoredColumn;
use crate::digest::RunningDigest;
use crate::{ContentDigest, Normalisers, Score};

/// First byte of an item that is a whole row: no UTF-8 text contains it.
const ROW_MARK: u8 = 0xff;

/// Reads the items of a row group, one per row, in order. Only the selected columns are read.
pub struct RowGroupItems {
    file: ParquetFile,
    row_group: usize,
    selection: ParquetSelection,
    columns: Vec<OpenColumn>,
    rows_left: u64,
    is_done: bool,
    item: Vec<u8>,
    score: Option<Score>,
}

struct OpenColumn {
    index: usize,
    rows: Box<dyn Column>,
    stored: StoredColumn,
    start: u64,
}

impl RowGroupItems {
    /// Opens a row group of a file for the columns of `selection`.
    ///
    /// # Errors
    /// [`ParquetError`] if a column cannot be opened.
    pub fn open(
        file: &ParquetFile,
        row_group: usize,
        selection: &ParquetSelection,
    ) -> Result<Self, ParquetError> {
        let rows = file.row_count(row_group);
        let open = |selected: &Selected| {
            let index = selected.index;
            file.check_codec(row_group, index)?;
            let chunk = file.group(row_group).column(index);
            let (rows, stored) = column::open(file.stored(), chunk, rows, selected.form)
                .map_err(|detail| file.damaged(row_group, index, detail))?;
            let start = stored.seen();
            Ok(OpenColumn { index, rows, stored, start })
        };
        let columns = selection.columns.iter().map(open).collect::<Result<_, _>>()?;
        let (file, selection) = (file.clone(), selection.clone());
        let (item, score) = (Vec::new(), None);
        let (rows_left, is_done) = (rows, false);
        Ok(Self { file, row_group, selection, columns, rows_left, is_done, item, score })
    }

    /// The same, with normalisers that are applied to every value with the tag of strings, dates and
    /// UUIDs included, so that values that are equal in JSON Lines and here still are. Items of
    /// `ParquetSelection::text` are not normalised.
    #[must_use]
    pub fn normalised(mut self, normalisers: &Normalisers) -> Self {
        for column in &mut self.columns {
            column.rows.set_normalisers(normalisers.clone());
        }
        self
    }

    /// The number of the row whose item was read last; `None` if the column has none in that row, or if
    /// no column was [selected](ParquetSelection::scored).
    pub fn score(&self) -> Option<Score> {
        self.score
    }

    /// The item of the next row, valid until the next call; `None` after the last one.
    ///
    /// # Errors
    /// [`ParquetError::Column`] if a column is damaged, or has more or fewer rows than the row
    /// group. Later calls return `None`.
    pub fn next_item(&mut self) -> Result<Option<&[u8]>, ParquetError> {
        if self.is_done {
            return Ok(None);
        }
        self.item.clear();
        if self.selection.item == ItemKind::Record {
            self.item.push(ROW_MARK);
        }
        match self.advance() {
            Ok(true) => Ok(Some(&self.item)),
            Ok(false) => {
                self.is_done = true;
                Ok(None)
            }
            Err(error) => {
                self.is_done = true;
                Err(error)
            }
        }
    }

    fn advance(&mut self) -> Result<bool, ParquetError> {
        let ParquetSelection { item_columns, item: kind, score, .. } = self.selection;
        for (number, column) in self.columns.iter_mut().enumerate() {
            if column.rows.rows_left() == 0 {
                let filled = column.rows.fill();
                let damaged = |detail| self.file.damaged(self.row_group, column.index, detail);
                let rows = filled.map_err(damaged)?;
                if (rows == 0) != (self.rows_left == 0) {
                    let count = self.file.row_count(self.row_group);
                    let word = if rows == 0 { "fewer" } else { "more" };
                    let detail = format!("it has {word} than the {count} rows of the row group");
                    return Err(self.file.damaged(self.row_group, column.index, detail));
                }
            }
            if self.rows_left == 0 {
                continue;
            }
            if score == Some(number) {
                self.score = column.rows.score();
            }
            match kind {
                _ if number >= item_columns => column.rows.pass_row(),
                ItemKind::Record => column.rows.take_levels(&mut self.item),
                ItemKind::Key => column.rows.take_value(&mut self.item),
                ItemKind::Text => column.rows.take_text(&mut self.item),
            }
        }
        let has_row = self.rows_left > 0;
        self.rows_left -= u64::from(has_row);
        Ok(has_row)
    }

    /// A digest in which two readings of the row group must agree: of the footer and of the stored
    /// bytes of the selected columns. Reads the bytes that were not read yet.
    ///
    /// # Errors
    /// [`ParquetError::Io`].
    pub fn digest(&self) -> Result<ContentDigest, ParquetError> {
        let columns = self.columns.iter().map(|column| column.stored.finish());
        Ok(combined(self.file.footer_digest(), &columns.collect::<Result<Vec<_>, _>>()?))
    }

    /// Stored bytes read so far, for progress bars.
    pub fn stored_bytes_read(&self) -> u64 {
        self.columns.iter().map(|column| column.stored.seen() - column.start).sum()
    }
}

impl std::fmt::Debug for RowGroupItems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (row_group, rows_left) = (&self.row_group, &self.rows_left);
        let mut text = f.debug_struct("RowGroupItems");
        text.field("row_group", row_group).field("rows_left", rows_left).finish_non_exhaustive()
    }
}

/// One digest of a footer and column chunks: the sum of their lengths, and a checksum of their
/// checksums.
pub(super) fn combined(footer: ContentDigest, columns: &[ContentDigest]) -> ContentDigest {
    let mut sums = RunningDigest::new();
    let mut bytes = 0;
    for part in std::iter::once(&footer).chain(columns) {
        sums.update(&part.crc32c.to_le_bytes());
        bytes += part.bytes;
    }
    ContentDigest { bytes, crc32c: sums.value().crc32c }
}
