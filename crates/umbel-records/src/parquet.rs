//! Parquet files: the items of their rows, and copies of the kept rows.
//!
//! ```text
//! ParquetFile --ParquetSelection--> RowGroupItems --next_item--> the item of each row
//!      \--------------------------> ParquetCopy   --copy_row_group--> a file of the rows that stay
//! ```
//!
//! The unit of reading is the row group. Only the columns that items are made of are read, page by
//! page; a copy reads all columns. The `parquet` crate decodes and encodes pages, without its arrow
//! half: typed columns with their levels preserve every schema exactly, nested ones too.
//!
//! | type of the column | item: tag | value |
//! |---|---|---|
//! | `BOOLEAN` | `t`, `f` | empty |
//! | integers, signed and unsigned, of any width | `d` | decimal |
//! | `FLOAT`, `DOUBLE`, `FLOAT16` | `d` | as 64-bit float, as in JSON items; `NaN`, `Infinity` |
//! | `DECIMAL` | `d` | exact, without trailing zeros; as in JSON items up to 15 digits |
//! | `STRING`, `ENUM`, `JSON`, all other bytes | `s` | the bytes |
//! | `UUID` | `s` | `00112233-4455-6677-8899-aabbccddeeff` |
//! | `DATE` | `s` | `2024-02-29` |
//! | `TIMESTAMP`, `INT96` | `s` | `2024-02-29T23:59:59.5`, with `Z` behind it if it is in UTC |
//! | `TIME` | `s` | `23:59:59.5`, with `Z` behind it if it is in UTC |
//! | any, of which it or a struct around it is null | `n` | empty |
//!
//! Normalisers change the values with the tag `s`. Besides its item, a row may have a number, which
//! decides the best of equal rows (`score.rs`); one more column is read for it. If texts are compared
//! piece by piece, an item is the unchanged text of one column, and a copy may change that text.
//!
//! Tags and lengths are those of keys of JSON Lines (`key_group.rs`), so equal values of both formats
//! are equal items. `INT96` is taken as UTC. Without a key, the item is all columns in the order of the
//! schema: for each column the number of its levels, then for each level the repetition, the definition
//! and, if there is one, the value. A byte `0xff` in front distinguishes it from items of other
//! formats.
//!
//! **Hostile files.** Numbers by which the crate allocates or recurses are checked before it reads
//! them: the depth of the schema, the size of a page, the number of values in a dictionary or in a list
//! of lengths. It panics on some damage; the panic is caught where the crate is called, and becomes an
//! error.

mod calendar;
mod column;
mod copy;
mod error;
mod file;
mod footer;
mod form;
mod items;
mod page_head;
mod pages;
mod panics;
mod score;
mod selection;
mod stored_column;
mod thrift;
mod value;

pub use copy::ParquetCopy;
pub use error::ParquetError;
pub use file::ParquetFile;
pub use items::RowGroupItems;
pub use selection::{ParquetSelection, SelectionError};

#[cfg(test)]
mod damage_test;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod twin_test;
