//! A Parquet file: the content of its footer, checked.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};

use super::error::ParquetError;
use super::footer::{self, MAGIC};
use super::form::Form;
use super::panics::caught;
use crate::{ContentDigest, Stored};

/// Most rows of a row group: 2^40, the most items of a chunk of a job.
const ROWS_MAX: u64 = 1 << 40;

/// A Parquet file and its footer. Row groups are numbered from 0 here, and from 1 in errors.
///
/// ```no_run
/// use std::{fs::File, sync::Arc};
/// use umbel_records::ParquetFile;
///
/// let file = ParquetFile::open(Arc::new(File::open("rows.parquet")?))?;
/// let rows: u64 = (0..file.row_group_count()).map(|group| file.row_count(group)).sum();
/// println!("{rows} rows in {} row groups", file.row_group_count());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ParquetFile {
    stored: Stored,
    metadata: Arc<ParquetMetaData>,
    footer: ContentDigest,
}

impl ParquetFile {
    /// Whether content with this head is a Parquet file.
    ///
    /// ```
    /// assert!(umbel_records::ParquetFile::is_magic(b"PAR1\x15\x04"));
    /// assert!(!umbel_records::ParquetFile::is_magic(b"PA"));
    /// ```
    pub fn is_magic(head: &[u8]) -> bool {
        head.starts_with(MAGIC)
    }

    /// Reads the footer.
    ///
    /// # Errors
    /// [`ParquetError::Io`]; [`ParquetError::Footer`] if the footer is damaged or refers to bytes
    /// beyond the file.
    pub fn open(file: impl Into<Stored>) -> Result<Self, ParquetError> {
        let stored = file.into();
        let footer = footer::read(&stored)?;
        let metadata = caught(|| {
            let metadata = ParquetMetaDataReader::decode_metadata(&footer.bytes);
            let metadata = metadata.map_err(|error| super::column::text(&error))?;
            for (index, group) in metadata.row_groups().iter().enumerate() {
                check_row_group(group, footer.offset)
                    .map_err(|detail| format!("row group {}: {detail}", index + 1))?;
            }
            Ok(metadata)
        });
        let metadata = metadata.map_err(|detail| ParquetError::Footer { detail })?;
        Ok(Self { stored, metadata: Arc::new(metadata), footer: footer.digest })
    }

    /// Row groups of the file.
    pub fn row_group_count(&self) -> usize {
        self.metadata.num_row_groups()
    }

    /// Rows of a row group.
    pub fn row_count(&self, row_group: usize) -> u64 {
        u64::try_from(self.group(row_group).num_rows()).unwrap_or(0) // checked when opened
    }

    /// Stored bytes of a row group.
    pub fn stored_bytes(&self, row_group: usize) -> u64 {
        let columns = self.group(row_group).columns();
        columns.iter().map(|column| u64::try_from(column.compressed_size()).unwrap_or(0)).sum()
    }

    /// The offset of the first column of a row group, in bytes from the start of the file.
    pub fn row_group_offset(&self, row_group: usize) -> u64 {
        let starts = self.group(row_group).columns().iter().map(|column| column.byte_range().0);
        starts.min().unwrap_or(0)
    }

    /// Decompressed bytes of a row group, according to the footer.
    pub fn unpacked_bytes(&self, row_group: usize) -> u64 {
        let columns = self.group(row_group).columns();
        columns.iter().map(|column| u64::try_from(column.uncompressed_size()).unwrap_or(0)).sum()
    }

    /// The first column in which the schema of this file differs from that of `other`, as a text.
    /// `None` if the schemas are equal.
    pub fn schema_difference(&self, other: &Self) -> Option<String> {
        let (ours, theirs) = (self.schema(), other.schema());
        if ours == theirs {
            return None;
        }
        let (ours, theirs) = (self.columns(), other.columns());
        for index in 0..ours.len().max(theirs.len()) {
            let (our, their) = (ours.get(index), theirs.get(index));
            if our.map(|column| (column.path(), column.self_type()))
                == their.map(|column| (column.path(), column.self_type()))
                && our.map(|column| (column.max_def_level(), column.max_rep_level()))
                    == their.map(|column| (column.max_def_level(), column.max_rep_level()))
            {
                continue;
            }
            let name = |column: Option<&Arc<_>>| column.map_or("no column".to_owned(), describe);
            let number = index + 1;
            return Some(format!(
                "column {number} is {} there and {} here",
                name(their),
                name(our)
            ));
        }
        Some("names or annotations of groups of columns differ".to_owned())
    }

    /// Rejects a file with columns that cannot be decompressed, before a copy is begun.
    ///
    /// # Errors
    /// [`ParquetError::Codec`] names the first such column.
    pub fn check_codecs(&self) -> Result<(), ParquetError> {
        for group in 0..self.row_group_count() {
            (0..self.columns().len()).try_for_each(|column| self.check_codec(group, column))?;
        }
        Ok(())
    }

    /// As [`check_codecs`](Self::check_codecs), for one column chunk.
    pub(super) fn check_codec(&self, row_group: usize, column: usize) -> Result<(), ParquetError> {
        let chunk = self.group(row_group).column(column);
        let codec = chunk.compression();
        if !matches!(codec, Compression::LZO | Compression::BROTLI(_)) {
            return Ok(());
        }
        // Without the level, which it writes as `(BrotliLevel(1))`.
        let codec = codec.to_string().split('(').next().unwrap_or_default().to_owned();
        let (row_group, column) = (row_group + 1, chunk.column_path().string());
        Err(ParquetError::Codec { row_group, column, codec })
    }

    pub(super) fn stored(&self) -> &Stored {
        &self.stored
    }

    pub(super) fn group(&self, row_group: usize) -> &RowGroupMetaData {
        self.metadata.row_group(row_group)
    }

    pub(super) fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }

    /// The leaf columns.
    pub(super) fn columns(&self) -> &[Arc<parquet::schema::types::ColumnDescriptor>] {
        self.metadata.file_metadata().schema_descr().columns()
    }

    fn schema(&self) -> &parquet::schema::types::Type {
        self.metadata.file_metadata().schema()
    }

    /// Digest of the footer: shows whether a file that is opened again is the same.
    pub fn footer_digest(&self) -> ContentDigest {
        self.footer
    }

    /// The error about a column chunk.
    pub(super) fn damaged(&self, row_group: usize, column: usize, detail: String) -> ParquetError {
        let column = self.columns()[column].path().string();
        ParquetError::Column { row_group: row_group + 1, column, detail }
    }
}

/// A description of a column, for messages.
fn describe(column: &Arc<parquet::schema::types::ColumnDescriptor>) -> String {
    let repetition = match (column.max_rep_level(), column.max_def_level()) {
        (0, 0) => "required ",
        (0, _) => "optional ",
        _ => "repeated ",
    };
    format!("`{}` ({repetition}{})", column.path().string(), Form::of(column).kind())
}

/// Checks the numbers on which the reading of column chunks relies.
fn check_row_group(group: &RowGroupMetaData, end: u64) -> Result<(), String> {
    let rows = u64::try_from(group.num_rows()).unwrap_or(u64::MAX);
    if rows > ROWS_MAX {
        return Err(format!("it claims {} rows", group.num_rows()));
    }
    if group.num_columns() != group.schema_descr().num_columns() {
        return Err("its columns are not those of the schema".to_owned());
    }
    for chunk in group.columns() {
        let name = chunk.column_path().string();
        if chunk.file_path().is_some() {
            return Err(format!("column `{name}` is in another file"));
        }
        let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
        let (start, length) =
            (u64::try_from(start).ok(), u64::try_from(chunk.compressed_size()).ok());
        let is_inside = start.zip(length).and_then(|(start, length)| start.checked_add(length));
        if is_inside.is_none_or(|chunk_end| chunk_end > end) {
            return Err(format!("column `{name}` reaches beyond the file"));
        }
    }
    Ok(())
}
