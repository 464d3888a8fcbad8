//! The fields of one record of a table.

use std::ops::Range;

use csv_core::{ReadFieldResult, Reader};

use super::TableHeader;
use crate::RecordItemError;

/// Splits records into fields. Has buffers that it reuses for every record.
#[derive(Debug)]
pub(crate) struct TableFields {
    machine: Reader,
    /// Unquoted fields of the last record, concatenated.
    text: Vec<u8>,
    fields: Vec<Field>,
    /// Whether a byte order mark at the start of a record is skipped.
    passes_marks: bool,
}

/// What may precede the first record of a file: the byte order mark of UTF-8.
pub(super) const MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug)]
struct Field {
    /// Range in the unquoted text.
    text: Range<usize>,
    /// Range in the record, with quotes, without delimiter and line end.
    raw: Range<usize>,
}

impl TableFields {
    /// A splitter for records of which none is the first of its file.
    pub(crate) fn new(delimiter: u8) -> Self {
        let mut machine = super::state_machine(delimiter);
        // The machine skips a byte order mark at its first byte: make another byte the first.
        machine.read_field(b"\n", &mut [0]);
        Self { machine, text: Vec::new(), fields: Vec::new(), passes_marks: false }
    }

    /// A splitter for records of which any may be the first of its file: a byte order mark at the start
    /// of a record is skipped. Behind blank lines the reader takes the mark for the start of a field: if a
    /// quote follows that nothing closes, both are ordinary characters, as for the reader.
    pub(crate) fn passing_marks(delimiter: u8) -> Self {
        Self { passes_marks: true, ..Self::new(delimiter) }
    }

    /// A splitter for the records of a table, of which any may be the first if there is no header row.
    pub(crate) fn below(header: &TableHeader) -> Self {
        let new = if header.is_made_up() { Self::passing_marks } else { Self::new };
        new(header.delimiter())
    }

    /// Splits one record, with or without its line end.
    ///
    /// # Errors
    /// [`RecordItemError::UnclosedQuote`] if a quote is open at its end.
    pub(crate) fn split(&mut self, record: &[u8]) -> Result<(), RecordItemError> {
        let body = record.strip_suffix(b"\n").unwrap_or(record);
        let is_marked = self.passes_marks && body.starts_with(MARK);
        if is_marked && self.split_from(MARK.len(), body).is_ok() {
            return Ok(());
        }
        self.split_from(0, body)
    }

    /// Splits what a record has from `start` on, without its line end. After an error, the next split is as if this one
    /// had not been.
    fn split_from(&mut self, start: usize, body: &[u8]) -> Result<(), RecordItemError> {
        self.fields.clear();
        if body.len() == start {
            return Ok(()); // A blank line, which the machine would skip without reporting it.
        }
        // More bytes than necessary, because a full buffer would need a special case.
        self.text.resize(body.len() + 2, 0);
        let (mut at, mut text_end) = (start, 0);
        let (mut raw_start, mut text_start) = (start, 0);
        let mut is_ended = false;
        while !is_ended {
            let input = if at < body.len() { &body[at..] } else { b"\n" };
            let (result, read, written) =
                self.machine.read_field(input, &mut self.text[text_end..]);
            at += read;
            text_end += written;
            match result {
                ReadFieldResult::Field { record_end } => {
                    let raw = raw_start..at - 1;
                    self.fields.push(Field { text: text_start..text_end, raw });
                    (raw_start, text_start) = (at, text_end);
                    is_ended = record_end;
                }
                _ if at > body.len() => {
                    self.machine.reset();
                    self.machine.read_field(b"\n", &mut [0]);
                    return Err(RecordItemError::UnclosedQuote);
                }
                _ => {}
            }
        }
        self.drop_carriage_return(body);
        Ok(())
    }

    /// A `\r` before the line end belongs to the line end. It cannot be within quotes, because those
    /// are closed.
    fn drop_carriage_return(&mut self, body: &[u8]) {
        if body.ends_with(b"\r")
            && let Some(last) = self.fields.last_mut()
        {
            last.text.end -= 1;
            last.raw.end -= 1;
        }
    }

    /// How many fields the record has.
    pub(crate) fn count(&self) -> usize {
        self.fields.len()
    }

    /// The text of a field, without quotes.
    pub(crate) fn text(&self, index: usize) -> &[u8] {
        &self.text[self.fields[index].text.clone()]
    }

    /// The texts of all fields, in order.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().map(|field| &self.text[field.text.clone()])
    }

    /// The range of a field in the record, with its quotes.
    pub(crate) fn raw(&self, index: usize) -> Range<usize> {
        self.fields[index].raw.clone()
    }
}
