//! Copies files without some of their rows.

use std::io::Write;
use std::sync::Arc;

use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{
    SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter,
};

use super::column::{self, Column, TextFate, text};
use super::error::ParquetError;
use super::file::ParquetFile;
use super::form::Form;
use super::items::combined;
use super::panics::caught;
use super::selection::ParquetSelection;
use super::stored_column::{Spliced, StoredColumn};
use crate::ContentDigest;

/// Writes a Parquet file with the schema and the key-value metadata of another file, and the
/// compression of each of its columns. Row groups keep their boundaries. A row group of which all rows
/// are kept is copied byte by byte; any other is decoded and encoded again, a batch of rows of a column
/// at a time. If only texts change, all other columns are copied byte by byte.
pub struct ParquetCopy<W: Write + Send> {
    writer: SerializedFileWriter<W>,
}

impl<W: Write + Send> std::fmt::Debug for ParquetCopy<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetCopy").finish_non_exhaustive()
    }
}

impl<W: Write + Send> ParquetCopy<W> {
    /// Begins a file with the schema and properties of `model`.
    ///
    /// # Errors
    /// [`ParquetError::Write`].
    pub fn new(target: W, model: &ParquetFile) -> Result<Self, ParquetError> {
        let schema = model.metadata().file_metadata().schema_descr().root_schema_ptr();
        let properties = properties(model);
        let writer = caught(|| {
            SerializedFileWriter::new(target, schema, properties).map_err(|error| text(&error))
        });
        Ok(Self { writer: writer.map_err(|detail| ParquetError::Write { detail })? })
    }

    /// Copies the rows of a row group for whose numbers `stays` returns true, of the first `rows` rows:
    /// those that could be read. The schema of `file` must be that of the model. Returns the digest of
    /// what was read, for comparison with [`RowGroupItems::digest`](super::RowGroupItems::digest);
    /// `None` if nothing had to be read.
    ///
    /// # Errors
    /// [`ParquetError`]; then the output file is incomplete.
    pub fn copy_row_group(
        &mut self,
        file: &ParquetFile,
        row_group: usize,
        selection: &ParquetSelection,
        rows: u64,
        stays: &dyn Fn(u64) -> bool,
    ) -> Result<Option<ContentDigest>, ParquetError> {
        let rows = rows.min(file.row_count(row_group));
        let kept = (0..rows).filter(|&row| stays(row)).count() as u64;
        if kept == 0 {
            return Ok(None);
        }
        let is_whole = kept == file.row_count(row_group);
        self.copy_columns(file, selection, &mut |index, writer| {
            let source = Source { file, row_group, index, rows };
            if is_whole { source.splice(writer) } else { source.pick(writer, stays) }
        })
        .map(Some)
    }

    /// Copies the first `rows` rows of a row group, those that could be read. Calls `edit` for each row
    /// in order with its text, which is empty for null; it returns the new text, or `None` to keep the
    /// text. Null stays null in any case. `selection` must be one of [texts](ParquetSelection::text).
    /// Otherwise as [`copy_row_group`](Self::copy_row_group).
    ///
    /// # Errors
    /// [`ParquetError`]; then the output file is incomplete.
    pub fn copy_texts(
        &mut self,
        file: &ParquetFile,
        row_group: usize,
        selection: &ParquetSelection,
        rows: u64,
        edit: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<Option<ContentDigest>, ParquetError> {
        let row_count = file.row_count(row_group);
        let rows = rows.min(row_count);
        if rows == 0 {
            return Ok(None);
        }
        let texts = selection.columns.first().map(|column| column.index);
        self.copy_columns(file, selection, &mut |index, writer| {
            let source = Source { file, row_group, index, rows };
            if texts == Some(index) {
                source.edit(writer, edit)
            } else if rows == row_count {
                source.splice(writer)
            } else {
                source.pick(writer, &|_| true)
            }
        })
        .map(Some)
    }

    /// Copies all columns of a row group one after the other, with `copy`.
    fn copy_columns(
        &mut self,
        file: &ParquetFile,
        selection: &ParquetSelection,
        copy: &mut CopyColumn<'_, W>,
    ) -> Result<ContentDigest, ParquetError> {
        let failed = |detail| ParquetError::Write { detail };
        let mut writer = self.writer.next_row_group().map_err(|error| failed(text(&error)))?;
        let mut digests = Vec::new();
        for index in 0..file.columns().len() {
            let stored = copy(index, &mut writer)?;
            digests.push(stored.finish()?);
        }
        caught(|| writer.close().map_err(|error| text(&error))).map_err(failed)?;
        let selected = selection.columns.iter().map(|column| digests[column.index]);
        Ok(combined(file.footer_digest(), &selected.collect::<Vec<_>>()))
    }

    /// Writes the footer and returns the target.
    ///
    /// # Errors
    /// [`ParquetError::Write`].
    pub fn finish(self) -> Result<W, ParquetError> {
        caught(|| self.writer.into_inner().map_err(|error| text(&error)))
            .map_err(|detail| ParquetError::Write { detail })
    }
}

/// Copies the column with this number, and returns the bytes that were read.
type CopyColumn<'a, W> = dyn FnMut(usize, &mut SerializedRowGroupWriter<'_, W>) -> Result<StoredColumn, ParquetError>
    + 'a;

/// The properties that the copy takes over from its model. If row groups differ in compression, the
/// first one decides.
fn properties(model: &ParquetFile) -> WriterPropertiesPtr {
    let metadata = model.metadata();
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("umbel version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(metadata.file_metadata().key_value_metadata().cloned());
    if let Some(group) = metadata.row_groups().first() {
        for chunk in group.columns() {
            let path = chunk.column_path().clone();
            properties = properties.set_column_compression(path, chunk.compression());
        }
    }
    Arc::new(properties.build())
}

/// A column chunk to copy.
struct Source<'a> {
    file: &'a ParquetFile,
    row_group: usize,
    index: usize,
    /// The rows from which `stays` selects.
    rows: u64,
}

impl Source<'_> {
    fn chunk(&self) -> &ColumnChunkMetaData {
        self.file.group(self.row_group).column(self.index)
    }

    fn damaged(&self, detail: String) -> ParquetError {
        self.file.damaged(self.row_group, self.index, detail)
    }

    /// Copies the stored bytes.
    fn splice<W: Write + Send>(
        &self,
        writer: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<StoredColumn, ParquetError> {
        let chunk = self.chunk();
        let (start, length) = chunk.byte_range();
        let span = (start, start + length);
        let stored = StoredColumn::new(self.file.stored(), span, chunk.compression());
        let close = ColumnCloseResult {
            bytes_written: length,
            rows_written: self.rows,
            metadata: chunk.clone(),
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        let source = Spliced(stored.clone());
        let spliced = caught(|| writer.append_column(&source, close).map_err(|error| text(&error)));
        // Read and write errors cannot be distinguished here, so the message names the source, and the
        // error is one of writing.
        spliced.map_err(|detail| {
            let (group, column) = (self.row_group + 1, chunk.column_path().string());
            let detail = format!("row group {group}, column `{column}`: {detail}");
            ParquetError::Write { detail }
        })?;
        Ok(stored)
    }

    /// Decodes, and encodes the kept rows again.
    fn pick<W: Write + Send>(
        &self,
        writer: &mut SerializedRowGroupWriter<'_, W>,
        stays: &dyn Fn(u64) -> bool,
    ) -> Result<StoredColumn, ParquetError> {
        let mut row = 0;
        let mut stays_next = || {
            row += 1;
            row <= self.rows && stays(row - 1)
        };
        self.encode(writer, &mut |column, target| column.copy_batch(target, &mut stays_next))
    }

    /// Decodes, and encodes again with the edited texts.
    fn edit<W: Write + Send>(
        &self,
        writer: &mut SerializedRowGroupWriter<'_, W>,
        edit: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<StoredColumn, ParquetError> {
        let mut row = 0;
        let mut fate = |text: &[u8]| {
            row += 1;
            if row > self.rows {
                return TextFate::Goes;
            }
            edit(text).map_or(TextFate::Stays, TextFate::Becomes)
        };
        self.encode(writer, &mut |column, target| column.copy_texts(target, &mut fate))
    }

    /// Decodes, and encodes again what `copy` writes for each batch.
    fn encode<W: Write + Send>(
        &self,
        writer: &mut SerializedRowGroupWriter<'_, W>,
        copy: &mut dyn FnMut(
            &mut dyn Column,
            &mut SerializedColumnWriter<'_>,
        ) -> Result<(), String>,
    ) -> Result<StoredColumn, ParquetError> {
        self.file.check_codec(self.row_group, self.index)?;
        let form = Form::Bytes; // Values are not interpreted.
        let all_rows = self.file.row_count(self.row_group);
        let opened = column::open(self.file.stored(), self.chunk(), all_rows, form);
        let (mut column, stored) = opened.map_err(|detail| self.damaged(detail))?;
        let next = caught(|| writer.next_column().map_err(|error| text(&error)));
        let failed = |detail| ParquetError::Write { detail };
        let mut target = next
            .map_err(failed)?
            .ok_or_else(|| failed("the schema has fewer columns".to_owned()))?;
        let mut seen = 0;
        while seen < self.rows {
            let filled = column.fill().map_err(|detail| self.damaged(detail))? as u64;
            if filled == 0 {
                let detail = format!("it has fewer than the {all_rows} rows of the row group");
                return Err(self.damaged(detail));
            }
            seen += filled;
            copy(&mut *column, &mut target).map_err(failed)?;
        }
        caught(|| target.close().map_err(|error| text(&error))).map_err(failed)?;
        Ok(stored)
    }
}
