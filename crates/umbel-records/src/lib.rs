//! Splits files into records: text lines, JSON Lines, CSV and TSV, plain or compressed, streamed with
//! their exact bytes; and Parquet, whose rows are read and copied.
//!
//! ```text
//! File --Compression--> RecordReader --next_block--> &[u8], whole records
//!                                                      |  records(block), or block_records()
//!                                                   record, with its line end
//!                                                      |  ItemExtractor::item
//!                                                    item: the bytes that are compared
//! ```
//!
//! A record is never changed: its bytes, terminator included, can be written back as they were read. An
//! item is what is compared instead of the record: the line, a key made of some fields, or the whole
//! record in canonical form. Bad input is an error that names its position; no record is skipped
//! silently. This crate uses no clock, randomness, threads, sockets or other `umbel` crates; bytes that
//! are not in a file are read through a port, [`RemoteBytes`].

mod binary;
mod compression;
mod content;
mod decode;
mod digest;
mod error;
mod format;
mod gzip;
mod item;
mod item_error;
mod json;
mod key_group;
mod key_path;
mod limits;
mod lz4_frames;
mod normalise;
mod parquet;
mod reader;
mod records;
#[cfg(test)]
mod remote_test;
mod score;
mod source;
mod span;
mod stored;
mod streams;
mod table;
mod text_field;
mod zstd_frames;

pub use binary::{BINARY_HEAD_BYTES, binary_kind, magic_kind};
pub use compression::Compression;
pub use content::{ContentReader, content_head};
pub use digest::ContentDigest;
pub use error::ReadError;
pub use format::Format;
pub use item::{ExtractorError, Granularity, ItemExtractor};
pub use item_error::RecordItemError;
pub use json::{JSON_DEPTH_MAX, is_blank_line};
pub use key_path::{KEY_PATH_FIELDS_MAX, KeyPath, KeyPathError};
pub use limits::{BLOCK_BYTES_DEFAULT, RECORD_BYTES_MAX, ReadLimits};
pub use normalise::{Normaliser, Normalisers, UnknownNormaliser};
pub use parquet::{
    ParquetCopy, ParquetError, ParquetFile, ParquetSelection, RowGroupItems, SelectionError,
};
pub use reader::RecordReader;
pub use records::{BlockRecords, Records, item_before, line_item, records, records_ending};
pub use score::{Score, ScoreError, ScoreExtractor, ScoreValue};
pub use span::ByteSpan;
pub use stored::{RemoteBytes, RemoteReader, Stored};
pub use table::TableHeader;
pub use text_field::TextField;
