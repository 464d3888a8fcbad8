//! One column of a table, whose text can be read and replaced.

use std::ops::Range;

use super::TableHeader;
use super::fields::TableFields;
use crate::{ExtractorError, RecordItemError};

/// One column of a table.
#[derive(Debug)]
pub(crate) struct TableText {
    fields: TableFields,
    column_count: usize,
    column: usize,
    name: String,
    delimiter: u8,
}

impl TableText {
    pub(crate) fn new(header: &TableHeader, name: String) -> Result<Self, ExtractorError> {
        let delimiter = header.delimiter();
        Ok(Self {
            fields: TableFields::below(header),
            column_count: header.columns().len(),
            column: header.column(&name)?,
            name,
            delimiter,
        })
    }

    /// Appends the text of the column in `record` to `text`, and returns its range in the record, with
    /// its quotes.
    pub(crate) fn find(
        &mut self,
        record: &[u8],
        text: &mut Vec<u8>,
    ) -> Result<Range<usize>, RecordItemError> {
        self.fields.split(record)?;
        let (found, expected) = (self.fields.count(), self.column_count);
        if found != expected {
            return Err(RecordItemError::FieldCount { found, expected });
        }
        text.extend_from_slice(self.fields.text(self.column));
        if str::from_utf8(text).is_err() {
            return Err(RecordItemError::FieldNotUtf8 { column: self.name.clone() });
        }
        Ok(self.fields.raw(self.column))
    }

    /// Appends `text` as a field to `target`: in quotes if it needs them, or if the field that it
    /// replaces, `old`, had them.
    pub(crate) fn write(&self, old: &[u8], text: &[u8], target: &mut Vec<u8>) {
        let is_special = |byte: &u8| b"\"\r\n".contains(byte) || *byte == self.delimiter;
        // In a table of one column, an empty text needs quotes, too: a blank line is not a record.
        let needs_quotes = old.starts_with(b"\"") || text.is_empty() || text.iter().any(is_special);
        if !needs_quotes {
            target.extend_from_slice(text);
            return;
        }
        target.push(b'"');
        for byte in text {
            if *byte == b'"' {
                target.push(b'"');
            }
            target.push(*byte);
        }
        target.push(b'"');
    }
}
