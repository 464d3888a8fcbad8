//! Converts a record of a table to its item.

use super::TableHeader;
use super::fields::TableFields;
use crate::key_group::write_group;
use crate::{ExtractorError, Granularity, Normalisers, RecordItemError};

/// Makes items from the records of a table.
#[derive(Debug)]
pub(crate) struct TableItems {
    fields: TableFields,
    column_count: usize,
    what: What,
    normalisers: Normalisers,
}

#[derive(Debug)]
enum What {
    /// The bytes of the record.
    Line,
    /// All fields.
    Record,
    /// Some columns, by number and name.
    Key(Vec<(usize, String)>),
}

impl TableItems {
    /// For the records below this header.
    pub(crate) fn new(
        header: &TableHeader,
        granularity: Granularity,
    ) -> Result<Self, ExtractorError> {
        let what = match granularity {
            Granularity::Line => What::Line,
            Granularity::Record => What::Record,
            Granularity::Paragraph(_) => return Err(ExtractorError::ManyItems),
            Granularity::File => return Err(ExtractorError::FileOfRecord),
            Granularity::Key(names) => {
                let column = |name: String| Ok((header.column(&name)?, name));
                What::Key(names.into_iter().map(column).collect::<Result<_, _>>()?)
            }
        };
        let fields = TableFields::below(header);
        let (column_count, normalisers) = (header.columns().len(), Normalisers::default());
        Ok(Self { fields, column_count, what, normalisers })
    }

    /// From now on, applies normalisers to fields, or to the bytes of lines.
    pub(crate) fn set_normalisers(&mut self, normalisers: Normalisers) {
        self.normalisers = normalisers;
    }

    /// Whether items are made of fields.
    pub(crate) fn has_groups(&self) -> bool {
        !matches!(self.what, What::Line)
    }

    /// Appends the item of `record` to `item`.
    pub(crate) fn write(
        &mut self,
        record: &[u8],
        item: &mut Vec<u8>,
    ) -> Result<(), RecordItemError> {
        self.fields.split(record)?;
        let (found, expected) = (self.fields.count(), self.column_count);
        if found != expected {
            return Err(RecordItemError::FieldCount { found, expected });
        }
        let normal = &mut self.normalisers;
        match &self.what {
            What::Line => item.extend_from_slice(normal.apply(without_line_end(record))),
            What::Record => {
                self.fields.texts().for_each(|text| write_group(b's', normal.apply(text), item));
            }
            What::Key(columns) => {
                for (index, name) in columns {
                    let text = self.fields.text(*index);
                    if str::from_utf8(text).is_err() {
                        return Err(RecordItemError::FieldNotUtf8 { column: name.clone() });
                    }
                    write_group(b's', normal.apply(text), item);
                }
            }
        }
        Ok(())
    }
}

/// A record without its `\n` or `\r\n`.
fn without_line_end(record: &[u8]) -> &[u8] {
    let body = record.strip_suffix(b"\n").unwrap_or(record);
    body.strip_suffix(b"\r").unwrap_or(body)
}
