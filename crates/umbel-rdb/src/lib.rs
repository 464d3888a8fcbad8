//! Redis's database files and the payloads of its `DUMP`, as pure functions of bytes: keys, the items of sets, sorted
//! sets, hashes and lists, and the values of modules. No file is opened here; whatever can be read is an input.
//!
//! | module | what it does |
//! |---|---|
//! | [`RdbReader`] | a file: header, opcodes, keys, checksum |
//! | [`Value`] | types of values, and the items in them |
//! | [`ModuleReader`], [`ModuleId`] | values of modules, part by part |
//! | [`StringReader`] | strings in their three forms, one of them packed with LZF |
//! | [`checked_payload`], [`PayloadWriter`] | payloads of `DUMP` and `RESTORE` |
//! | [`limits`] | what is read, each number with its reason |
//!
//! Reading is total: whatever the bytes, it ends in values or in an [`RdbError`] that names the byte, after work that
//! grows with the bytes that are there (packed text may be 88 times as long). Memory is bounded by the longest item, and
//! grows with what came of it, not with what its length announces. Containers and values are read front to back and are
//! never held as a whole.

mod container;
mod error;
mod input;
mod items;
pub mod limits;
mod lzf;
mod module;
mod payload;
mod reader;
mod stream;
mod string;
mod value;

#[cfg(test)]
mod hostile_test;
#[cfg(test)]
mod reader_test;

pub use error::{RdbCause, RdbError};
pub use module::{ModuleId, ModuleReader};
pub use payload::{NoPayload, PayloadWriter, checked_payload, read_module_value};
pub use reader::{Key, RdbReader};
pub use string::StringReader;
pub use value::Value;
