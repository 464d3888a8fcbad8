//! What can be wrong with keys that a file is built of, and with bytes that shall be such a file.

use thiserror::Error;
use umbel_codec::{FirstBytes, FrameKey};
use umbel_filter::ItemHash;

use crate::STATIC_VERSION;
use crate::limits::{CELL_BITS_MAX, CHUNK_KEYS_MAX, FORM_BYTES_MAX, KEY_COUNT_MAX, SEED_COUNT_MAX};

/// Why there is no file of such a shape. Ask for another one; nothing was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum StaticShapeError {
    /// A cell has no such number of bits, or a part of it has none.
    #[error(
        "{value_bits} value bits and {check_bits} check bits, expected 1 to {CELL_BITS_MAX} in all"
    )]
    CellBits {
        /// Bits of a value.
        value_bits: u8,
        /// Bits that are compared.
        check_bits: u8,
    },
    /// More keys than a file takes. Build several files, by ranges of the hash.
    #[error("{key_count} keys, expected at most {KEY_COUNT_MAX}")]
    KeyCount {
        /// Number of different keys.
        key_count: u64,
    },
    /// The text that says what a key is has too many bytes. Name fewer fields.
    #[error("{form_bytes} bytes say what a key is, expected at most {FORM_BYTES_MAX}")]
    Form {
        /// Bytes of the text.
        form_bytes: usize,
    },
}

/// Why a chunk could not be built. Nothing of it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The shape has another role. A bug of the caller: build the chunk of that role.
    #[error("the file is {expected}, no {actual}")]
    Role {
        /// What the file is.
        expected: crate::Role,
        /// What the chunk would be.
        actual: crate::Role,
    },
    /// Hashes do not rise. A bug of the caller: sort them, and give each once.
    #[error("hash {at} of the chunk is not above the one before")]
    Order {
        /// Number of the hash, from 0.
        at: usize,
    },
    /// Hashes are of several chunks. A bug of the caller: cut them by [`chunk_of`](crate::chunk_of).
    #[error("hashes of the chunks {first} to {last}, expected those of one")]
    Chunk {
        /// The lowest chunk.
        first: usize,
        /// The highest.
        last: usize,
    },
    /// There are not as many values as keys. A bug of the caller.
    #[error("{value_count} values for {key_count} keys")]
    ValueCount {
        /// Number of keys.
        key_count: usize,
        /// Number of values.
        value_count: usize,
    },
    /// The value of a key does not fit. Give values more bits, or leave the key out.
    #[error("value {value} has more than {value_bits} bits")]
    ValueTooWide {
        /// Hash of the key.
        hash: ItemHash,
        /// The value.
        value: u64,
        /// Bits that a value may have.
        value_bits: u8,
    },
    /// A key has two values. Decide which one is right.
    #[error("one key has the values {} and {}", values[0], values[1])]
    TwoValues {
        /// Hash of the key.
        hash: ItemHash,
        /// The values.
        values: [u64; 2],
    },
    /// A key of an exact set is a member and another, too. Decide what it is.
    #[error("one key is a member and among the others")]
    OnBothSides {
        /// Hash of the key.
        hash: ItemHash,
    },
    /// More keys than a chunk takes: they are so many that the file has none with that many chunks, or their hashes were
    /// chosen. Hash them under a secret key.
    #[error(
        "{key_count} keys in one chunk, expected at most {CHUNK_KEYS_MAX}: hash them under a secret key"
    )]
    TooManyKeys {
        /// Number of keys.
        key_count: usize,
    },
    /// No seed gives every key a cell of its own, which happens if hashes were chosen. Hash the keys under a secret key.
    #[error("none of {SEED_COUNT_MAX} seeds places {key_count} keys: hash them under a secret key")]
    Unpeelable {
        /// Number of keys.
        key_count: usize,
    },
    /// The shape cannot be that of a file.
    #[error(transparent)]
    Shape(#[from] StaticShapeError),
}

/// Why bytes are no static file of ours, or cannot be asked. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file ends too early. It was cut: copy it again.
    #[error("ends too early: {needed} bytes needed, {available} available")]
    Truncated {
        /// Bytes that it must have, as far as is known.
        needed: u64,
        /// Bytes that there are.
        available: u64,
    },
    /// Something follows the file. Copy it again.
    #[error("{actual} bytes, expected {expected}")]
    Length {
        /// Bytes that its header names.
        expected: u64,
        /// Bytes that there are.
        actual: u64,
    },
    /// Something else begins here. Name another file.
    #[error(
        "not {}: begins with {}, expected {}",
        FirstBytes(*expected).kind().unwrap_or("such a file"), FirstBytes(*actual), FirstBytes(*expected)
    )]
    Magic {
        /// What a file of the kind begins with.
        expected: [u8; 4],
        /// The first bytes.
        actual: [u8; 4],
    },
    /// A newer release wrote it. Read it with that one.
    #[error("version {actual}, expected {STATIC_VERSION}: a newer release wrote it")]
    Version {
        /// Version of the file.
        actual: u8,
    },
    /// No release so far builds such files. Read it with a newer one.
    #[error("role {actual}, expected 1 to 3: a newer release wrote it")]
    Role {
        /// Number of the role.
        actual: u8,
    },
    /// No release so far knows the hash function. Read the file with a newer one.
    #[error("hash function {actual}, expected 1 or 2: a newer release wrote it")]
    HashFunction {
        /// Number of the function.
        actual: u8,
    },
    /// A field of the header or of the directory says what cannot be: no release wrote it.
    #[error("{field} is {actual}, which no file has")]
    Field {
        /// Which field.
        field: &'static str,
        /// What it says.
        actual: u64,
    },
    /// Header or directory were damaged. Copy the file again.
    #[error("damaged: the checksum of the head is {actual:#010x}, expected {expected:#010x}")]
    HeadChecksum {
        /// What the header names.
        expected: u32,
        /// That of the bytes.
        actual: u32,
    },
    /// A chunk was damaged. Copy the file again.
    #[error("damaged: the checksum of chunk {chunk} is {actual:#010x}, expected {expected:#010x}")]
    ChunkChecksum {
        /// Number of the chunk.
        chunk: usize,
        /// What the directory names.
        expected: u32,
        /// That of the bytes.
        actual: u32,
    },
    /// A page of rows was damaged. Copy the file again.
    #[error("damaged: the checksum of page {page} is {actual:#010x}, expected {expected:#010x}")]
    PageChecksum {
        /// Number of the page.
        page: u64,
        /// What the head names.
        expected: u32,
        /// That of the bytes.
        actual: u32,
    },
    /// The file was built under another hash function, seed or key. Ask with that one.
    #[error(
        "built by {} under seed or key {:#x}, asked by {} under {:#x}",
        expected.function, expected.key_id, actual.function, actual.key_id
    )]
    Key {
        /// That of the file.
        expected: FrameKey,
        /// That of whoever asks.
        actual: FrameKey,
    },
}
