//! Finds where the records of a table end.
//!
//! The bytes of a file are passed in once and in order, in pieces of any size; between pieces, the
//! state machine remembers whether a quote is open.

use std::ops::Range;

use csv_core::{ReadRecordResult, Reader};

use super::fields::MARK;

/// Space for unquoted text that is not used: the state machine writes it while it looks for record
/// ends.
const TEXT_BYTES: usize = 4 << 10;

/// Space for ends of fields that are not used.
const FIELD_ENDS: usize = 64;

/// Finds the records of a table in a buffer that is filled at its end and emptied from its start.
#[derive(Debug)]
pub(crate) struct TableCutter {
    machine: Reader,
    /// Records in the buffer, with their line ends; blank lines and the header are between them.
    spans: Vec<Range<usize>>,
    /// All bytes before this offset are whole records and blank lines.
    cut_end: usize,
    /// The end of the first whole record, 0 if there is none.
    first_end: usize,
    /// Whether the header was not seen yet.
    awaits_header: bool,
    /// Whether no record was found yet: a byte order mark may stand before the first one.
    may_be_marked: bool,
    text: Box<[u8; TEXT_BYTES]>,
    field_ends: Box<[usize; FIELD_ENDS]>,
}

impl TableCutter {
    /// A cutter at the start of a file. `passes_header` tells whether the first row is a header, which
    /// is skipped.
    pub(crate) fn new(delimiter: u8, passes_header: bool) -> Self {
        Self {
            machine: super::state_machine(delimiter),
            spans: Vec::new(),
            cut_end: 0,
            first_end: 0,
            awaits_header: passes_header,
            may_be_marked: true,
            text: Box::new([0; TEXT_BYTES]),
            field_ends: Box::new([0; FIELD_ENDS]),
        }
    }

    /// Searches the bytes of the buffer from `searched` on, which no earlier call has seen.
    pub(crate) fn search(&mut self, buffer: &[u8], searched: usize) {
        let mut at = searched;
        while at < buffer.len() {
            let (text, field_ends) = (&mut self.text[..], &mut self.field_ends[..]);
            let (result, read, ..) = self.machine.read_record(&buffer[at..], text, field_ends);
            at += read;
            if result == ReadRecordResult::Record {
                self.end_record(buffer, at);
            }
        }
    }

    /// Called when the buffer contains the rest of the file: its last record ends with it. False if a
    /// quote is still open.
    pub(crate) fn finish(&mut self, buffer: &[u8]) -> bool {
        if self.cut_end == buffer.len() {
            return true;
        }
        let (text, field_ends) = (&mut self.text[..], &mut self.field_ends[..]);
        let (result, ..) = self.machine.read_record(b"\n", text, field_ends);
        // If the machine still waits for the start of a record, only a mark and line ends may be left.
        let is_blank = self.unmarked(&buffer[self.cut_end..]).iter().all(|byte| *byte == b'\n');
        if result == ReadRecordResult::Record {
            self.end_record(buffer, buffer.len());
        } else if is_blank {
            self.cut_end = buffer.len();
        }
        self.cut_end == buffer.len()
    }

    fn end_record(&mut self, buffer: &[u8], end: usize) {
        let mut start = self.cut_end;
        // The state machine skips blank lines without reporting them.
        while start < end && buffer[start] == b'\n' {
            start += 1;
        }
        self.cut_end = end;
        if self.first_end == 0 {
            self.first_end = end;
        }
        if matches!(self.unmarked(&buffer[start..end]), b"\r\n" | b"\r" | b"\n" | b"") {
            return; // A blank line, too.
        }
        self.may_be_marked = false;
        if self.awaits_header {
            self.awaits_header = false;
        } else {
            self.spans.push(start..end);
        }
    }

    /// The bytes without a byte order mark before the first record.
    fn unmarked<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let unmarked = bytes.strip_prefix(MARK).filter(|_| self.may_be_marked);
        unmarked.unwrap_or(bytes)
    }

    /// The whole records, as ranges in the buffer.
    pub(crate) fn spans(&self) -> &[Range<usize>] {
        &self.spans
    }

    /// The end of the last whole record; 0 if there is none.
    pub(crate) fn cut_end(&self) -> usize {
        self.cut_end
    }

    /// The end of the first whole record, if there is one.
    pub(crate) fn first_end(&self) -> Option<usize> {
        Some(self.first_end).filter(|end| *end > 0)
    }

    /// Must be called when the buffer was emptied up to [`cut_end`](Self::cut_end).
    pub(crate) fn drop_cut(&mut self) {
        self.spans.clear();
        self.cut_end = 0;
        self.first_end = 0;
    }
}
