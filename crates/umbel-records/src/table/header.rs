//! The header row of a table.

use super::fields::TableFields;
use crate::{Compression, ExtractorError, ReadError, ReadLimits, RecordReader, Stored};

/// Bytes read at first for a header: 64 KiB hold all but freaks.
const HEADER_BLOCK_BYTES: usize = 64 << 10;

/// The header row of a CSV or TSV file: the names of its columns, and its bytes as they were read.
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
}

impl TableHeader {
    /// Reads the header of a file; `None` if the file holds nothing but blank lines. A byte order
    /// mark (UTF-8) belongs to the bytes and not to the first name.
    ///
    /// # Errors
    /// As [`RecordReader::next_block`], if the file is damaged in front of the header's end.
    pub fn read(
        file: impl Into<Stored>,
        compression: Compression,
        delimiter: u8,
        limits: ReadLimits,
    ) -> Result<Option<Self>, ReadError> {
        let limits = ReadLimits { block_bytes: HEADER_BLOCK_BYTES, ..limits };
        let mut reader = RecordReader::with_header(file, compression, delimiter, limits)?;
        while reader.next_block()?.is_some() {
            if let Some((_, record)) = reader.block_records().next() {
                let mut fields = TableFields::new(delimiter, true);
                // The reader has cut it where no quote is open.
                let is_split = fields.split(record).is_ok();
                debug_assert!(is_split, "a cut record has closed quotes");
                let columns = fields.texts().map(<[u8]>::to_vec).collect();
                return Ok(Some(Self { delimiter, bytes: record.to_vec(), columns }));
            }
        }
        Ok(None)
    }

    /// The byte between fields.
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// The row as read, with its line end if it has one.
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
    /// [`ExtractorError::NoSuchColumn`] and [`ExtractorError::AmbiguousColumn`].
    pub fn column(&self, name: &str) -> Result<usize, ExtractorError> {
        let is_named = |column: &Vec<u8>| column == name.as_bytes();
        let Some(at) = self.columns.iter().position(is_named) else {
            let shown = |column: &Vec<u8>| format!("`{}`", String::from_utf8_lossy(column));
            let columns = self.columns.iter().map(shown).collect::<Vec<_>>().join(", ");
            return Err(ExtractorError::NoSuchColumn { name: name.to_owned(), columns });
        };
        if self.columns[at + 1..].iter().any(is_named) {
            return Err(ExtractorError::AmbiguousColumn { name: name.to_owned() });
        }
        Ok(at)
    }
}
