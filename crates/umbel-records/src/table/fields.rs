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
    /// Whether any record may be the first of its file, and begin with a byte order mark.
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
    /// A splitter. `is_first` tells whether the next record is the first of its file, whose byte order
    /// mark is skipped.
    pub(crate) fn new(delimiter: u8, is_first: bool) -> Self {
        let mut machine = super::state_machine(delimiter);
        if !is_first {
            // The machine skips a byte order mark at its first byte: make another byte the first.
            machine.read_field(b"\n", &mut [0]);
        }
        Self { machine, text: Vec::new(), fields: Vec::new(), passes_marks: false }
    }

    /// A splitter for the records of a table. If the table has no header row, a byte order mark at the
    /// start of a record is skipped.
    pub(crate) fn below(header: &TableHeader) -> Self {
        Self { passes_marks: header.is_made_up(), ..Self::new(header.delimiter(), false) }
    }

    /// Splits one record, with or without its line end.
    ///
    /// # Errors
    /// [`RecordItemError::UnclosedQuote`] if a quote is open at its end.
    pub(crate) fn split(&mut self, record: &[u8]) -> Result<(), RecordItemError> {
        self.fields.clear();
        let body = record.strip_suffix(b"\n").unwrap_or(record);
        let mark = if self.passes_marks && body.starts_with(MARK) { MARK.len() } else { 0 };
        if body.len() == mark {
            return Ok(()); // A blank line, which the machine would skip without reporting it.
        }
        // One byte more than necessary, because a full buffer would need a special case.
        self.text.resize(record.len() + 1, 0);
        let (mut at, mut text_end) = (mark, 0);
        let (mut raw_start, mut text_start) = (mark, 0);
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
