//! The header row of a table.

use super::fields::TableFields;
use crate::{Compression, ExtractorError, ReadError, ReadLimits, RecordReader, Stored};

/// Bytes read first for a header: almost all headers fit into 64 KiB.
const HEADER_BLOCK_BYTES: usize = 64 << 10;

/// Column names that an error lists, so that it fits on a screen.
const COLUMNS_LISTED: usize = 20;

/// Characters of each of these names: a header may be a gigabyte, as of a file that is no table.
const NAME_CHARACTERS_LISTED: usize = 80;

/// The header row of a table: the names of its columns, and its bytes as read. For a table without a
/// header row, one is made up whose columns are named `1`, `2` and so on, and which has no bytes.
///
/// ```
/// use std::io::Write;
/// use std::sync::Arc;
/// use umbel_records::{Compression, ReadLimits, TableHeader};
///
/// let mut file = tempfile::tempfile()?;
/// file.write_all(b"id,\"full name\"\r\n7,Ada\r\n")?;
/// let (file, plain) = (Arc::new(file), Compression::Plain);
/// let header = TableHeader::read(file, plain, b',', ReadLimits::default())?.expect("one row");
/// assert_eq!(header.columns(), [&b"id"[..], b"full name"]);
/// assert_eq!(header.bytes(), b"id,\"full name\"\r\n");
/// assert_eq!(header.column("full name")?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableHeader {
    delimiter: u8,
    bytes: Vec<u8>,
    columns: Vec<Vec<u8>>,
    is_made_up: bool,
}

impl TableHeader {
    /// Reads the header of a file; `None` if the file has only blank lines, perhaps behind a UTF-8 byte
    /// order mark. Such a mark is part of the bytes, but not of the first name.
    ///
    /// # Errors
    /// As [`RecordReader::next_block`], if the file is damaged in front of the header's end.
    pub fn read(
        file: impl Into<Stored>,
        compression: Compression,
        delimiter: u8,
        limits: ReadLimits,
    ) -> Result<Option<Self>, ReadError> {
        Self::of_first(file, compression, delimiter, limits, |columns, record| Self {
            delimiter,
            bytes: record.to_vec(),
            columns: columns.texts().map(<[u8]>::to_vec).collect(),
            is_made_up: false,
        })
    }

    /// Makes up the header of a file that has none: columns are numbered from 1, as many as the first
    /// record has; `None` if the file has only blank lines.
    ///
    /// ```
    /// # use std::{io::Write, sync::Arc};
    /// # use umbel_records::{Compression, ReadLimits, TableHeader};
    /// let mut file = tempfile::tempfile()?;
    /// file.write_all(b"7;Ada\n")?;
    /// let (file, plain) = (Arc::new(file), Compression::Plain);
    /// let header = TableHeader::numbered(file, plain, b';', ReadLimits::default())?.expect("a row");
    /// assert_eq!((header.column("2")?, header.bytes()), (1, &b""[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`RecordReader::next_block`], if the file is damaged in front of the first record's end.
    pub fn numbered(
        file: impl Into<Stored>,
        compression: Compression,
        delimiter: u8,
        limits: ReadLimits,
    ) -> Result<Option<Self>, ReadError> {
        Self::of_first(file, compression, delimiter, limits, |columns, _| Self {
            delimiter,
            bytes: Vec::new(),
            columns: (1..=columns.count()).map(|number| number.to_string().into_bytes()).collect(),
            is_made_up: true,
        })
    }

    /// Calls `make` with the fields and the bytes of the first record of a file.
    fn of_first(
        file: impl Into<Stored>,
        compression: Compression,
        delimiter: u8,
        limits: ReadLimits,
        make: impl FnOnce(&TableFields, &[u8]) -> Self,
    ) -> Result<Option<Self>, ReadError> {
        let limits = ReadLimits { block_bytes: HEADER_BLOCK_BYTES, ..limits };
        let mut reader = RecordReader::open_headless_table(file, compression, delimiter, limits)?;
        while reader.next_block()?.is_some() {
            if let Some((at, record)) = reader.block_records().next() {
                let content_offset = reader.block_offset() + at as u64;
                // As rows of a table without a header row are split, of which this may be the first.
                let mut fields = TableFields::passing_marks(delimiter);
                let split = fields.split(record);
                split.map_err(|_| ReadError::UnclosedQuote { content_offset })?;
                return Ok(Some(make(&fields, record)));
            }
        }
        Ok(None)
    }

    /// The byte between fields.
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// Whether the table has no header row, and columns are numbered.
    pub fn is_made_up(&self) -> bool {
        self.is_made_up
    }

    /// The row as read, with its line end if it has one; empty if the header is made up.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The names of the columns, without quotes. Any bytes.
    pub fn columns(&self) -> &[Vec<u8>] {
        &self.columns
    }

    /// The number of the column with this name, from 0.
    ///
    /// # Errors
    /// [`ExtractorError::NoSuchColumn`], [`ExtractorError::NoSuchColumnNumber`] and
    /// [`ExtractorError::AmbiguousColumn`].
    pub fn column(&self, name: &str) -> Result<usize, ExtractorError> {
        let is_named = |column: &Vec<u8>| column == name.as_bytes();
        let Some(at) = self.columns.iter().position(is_named) else {
            if self.is_made_up {
                let (name, columns) = (name.to_owned(), self.columns.len());
                return Err(ExtractorError::NoSuchColumnNumber { name, columns });
            }
            return Err(ExtractorError::NoSuchColumn {
                name: name.to_owned(),
                columns: self.listed(),
            });
        };
        if self.columns[at + 1..].iter().any(is_named) {
            return Err(ExtractorError::AmbiguousColumn { name: name.to_owned() });
        }
        Ok(at)
    }

    /// The names of the columns for a message: the first ones, as far as a message has room for them.
    fn listed(&self) -> String {
        let shown = |column: &Vec<u8>| {
            // No character of UTF-8 is longer than four bytes.
            let end = column.len().min(4 * (NAME_CHARACTERS_LISTED + 1));
            let name = String::from_utf8_lossy(&column[..end]);
            match name.char_indices().nth(NAME_CHARACTERS_LISTED) {
                Some((end, _)) => format!("`{}…`", &name[..end]),
                None => format!("`{name}`"),
            }
        };
        let mut names: Vec<String> = self.columns.iter().take(COLUMNS_LISTED).map(shown).collect();
        match self.columns.len().saturating_sub(COLUMNS_LISTED) {
            0 => {}
            others => names.push(format!("and {others} others")),
        }
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(columns: Vec<Vec<u8>>) -> String {
        let header = TableHeader { delimiter: b',', bytes: Vec::new(), columns, is_made_up: false };
        header.column("key").unwrap_err().to_string()
    }

    #[test]
    fn an_error_lists_the_first_columns() {
        let names = |count: usize| (0..count).map(|at| format!("c{at}").into_bytes()).collect();
        assert_eq!(text_of(names(2)), "no column `key` in the header; it has `c0`, `c1`");
        assert!(text_of(names(20)).ends_with("`c19`"));
        assert!(text_of(names(30_000)).ends_with("`c19`, and 29980 others"));
    }

    #[test]
    fn an_error_shortens_long_names() {
        let text = text_of(vec!["é".repeat(81).into_bytes(), vec![0xff; 1 << 20]]);
        assert!(
            text.ends_with(&format!("`{}…`, `{}…`", "é".repeat(80), "\u{fffd}".repeat(80))),
            "{text}"
        );
    }
}
