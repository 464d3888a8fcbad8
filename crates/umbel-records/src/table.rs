//! Tables: CSV and TSV files, with or without a header row.
//!
//! ```text
//! id,text⏎              header: no record, its fields name the columns
//! 1,plain⏎              a record
//! 2,"two ""lines""⏎     a record ...
//! and a comma, too"⏎    ... that goes on behind the line end, because a quote is open
//! ⏎                     a blank line: no record
//! ```
//!
//! The grammar is that of the csv crate, whose state machine (csv-core) is used, with one difference: a
//! `\r` alone does not end a record. A field that starts with a quote continues to the closing quote,
//! and two quotes in it stand for one; in a field that does not start with a quote, a quote is an
//! ordinary character. From the middle of a file one cannot tell where a record starts, so tables are
//! never read in spans.

mod cutter;
mod fields;
mod header;
mod items;
mod text;

pub(crate) use cutter::TableCutter;
pub(crate) use fields::TableFields;
pub use header::TableHeader;
pub(crate) use items::TableItems;
pub(crate) use text::TableText;

use csv_core::{Reader, ReaderBuilder, Terminator};

/// The state machine of the grammar above.
fn state_machine(delimiter: u8) -> Reader {
    ReaderBuilder::new().delimiter(delimiter).terminator(Terminator::Any(b'\n')).build()
}

#[cfg(test)]
mod twin_test;
