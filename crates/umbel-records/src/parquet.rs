//! Parquet files: the items of their rows, and copies of the rows that stay.
//!
//! ```text
//! ParquetFile --ParquetSelection--> RowGroupItems --next_item--> the item of each row
//!      \--------------------------> ParquetCopy   --copy_row_group--> a file of the rows that stay
//! ```
//!
//! The unit of reading is the row group. Only the columns that items are made of are read, page by
//! page; a copy reads all. The `parquet` crate decodes and encodes pages, without its arrow half:
//! typed columns with their levels keep every schema, nested ones too, exactly as it was.
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
//! Normalisers change the values with the tag `s`. Beside its item a row may have a number, by which
//! the best of equal rows is chosen (`score.rs`): a column more is read for it. Where texts are
//! compared piece by piece, an item is the text of one column as it is, and a copy may change it.
//!
//! Tags and lengths are those of keys of JSON Lines (`key_group.rs`), so equal values of both formats
//! are equal items. `INT96` counts as UTC. Without a key, the item is all columns in the order of
//! the schema: for each the number of its levels, then for each level repetition, definition and
//! the value if there is one; the byte `0xff` in front keeps it apart from items of other formats.
//!
//! **Hostile files.** What the crate allocates or recurses by is checked before it sees it: the
//! depth of the schema, the size of a page, the number of values in a dictionary or in a list of
//! lengths. It panics on some damage; the panic is caught where it is called, and becomes an error.

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
