//! A JSON scanner for items: validates a record in one pass, finds fields, and writes values in
//! canonical form.
//!
//! serde_json is not used: it supports integers beyond 64 bits only with a feature that changes its
//! `Value` in the whole workspace, and its raw values are parsed again at every level. This scanner
//! reads each byte once and keeps spans instead of values. The tests compare it with serde_json.
//!
//! The canonical form is that of RFC 8785 (JCS): no white space, fields sorted by UTF-16 code
//! It differs in two places, so that more input has a canonical form and fewer unequal values share
//! one:
//! * integers written without fraction and exponent stay exact; JCS rounds them to f64;
//! * of fields with the same name, the last one counts; JCS rejects the record.

mod canonical;
mod cursor;
mod number;
mod pick;
mod text;

use crate::item_error::RecordItemError;
pub(crate) use canonical::Canonical;
pub(crate) use cursor::Cursor;
pub(crate) use pick::PathTree;
pub(crate) use text::write_string;

/// The result of most functions that read JSON.
pub(crate) type Result<T, E = RecordItemError> = std::result::Result<T, E>;

/// Deepest nesting of arrays and objects in a record: 128, as in serde_json, so that a record accepted
/// here is not rejected by the next reader. It bounds the stack of the recursive functions.
pub const JSON_DEPTH_MAX: usize = 128;

/// Whether a record of JSON Lines has no value: it is a blank line. A byte order mark at its start is
/// ignored, as before values.
///
/// ```
/// use umbel_records::is_blank_line;
///
/// assert!(is_blank_line(b" \r\n") && is_blank_line(b"\xef\xbb\xbf") && !is_blank_line(b"0\n"));
/// ```
pub fn is_blank_line(record: &[u8]) -> bool {
    let unmarked = record.strip_prefix(cursor::BYTE_ORDER_MARK).unwrap_or(record);
    unmarked.trim_ascii().is_empty()
}

#[cfg(test)]
mod twin_test;
