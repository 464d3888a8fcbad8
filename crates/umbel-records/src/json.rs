//! JSON as far as items need it: checked in one pass, fields found, values in canonical form.
//!
//! Not serde_json: it gives integers beyond 64 bits only under a feature that changes its `Value`
//! in the whole workspace, and its raw values are read again at every level. This scanner checks
//! each byte once and keeps spans instead of values. serde_json is the slow twin in the tests.
//!
//! The canonical form is that of RFC 8785 (JCS): no white space, fields sorted by UTF-16 code
//! units, shortest strings and numbers. It differs in two places, so that more input has a form and
//! fewer unequal values share one:
//! * integers written without fraction and exponent stay exact; JCS rounds them to f64;
//! * of fields with the same name the last one counts; JCS refuses the record.

mod canonical;
mod cursor;
mod number;
mod pick;
mod text;

pub(crate) use canonical::Canonical;
pub(crate) use cursor::Cursor;
pub(crate) use pick::PathTree;
pub(crate) use text::write_string;

/// Deepest nesting of arrays and objects in a record: 128, as serde_json has it, so that a record
/// accepted here is not refused by the next reader. It bounds the stack of the recursive functions.
pub const JSON_DEPTH_MAX: usize = 128;

#[cfg(test)]
mod twin_test;
