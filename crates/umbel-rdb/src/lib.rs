//! Redis's database files and the payloads of its `DUMP`, as pure functions of bytes: keys, the items of
//! sets, sorted sets, hashes and lists, and the values of modules. The crate opens no file; any `Read` is
//! an input.
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
//! Reading is total: any bytes end in values or in an [`RdbError`] with an offset, after work that grows
//! with the length of the input (compressed text may be 88 times as long). Memory is bounded by the
//! longest item, and grows with the bytes that were read, not with the lengths that they announce.
//! Containers and values are read front to back and never held as a whole.

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
