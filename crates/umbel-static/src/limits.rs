//! Every limit of the crate, each with its reason.

/// Keys that a chunk is expected to have at most: its tables and what building them takes, some 60 MB, stay near the
/// caches, and a file of a billion keys has a directory of 40 KB.
pub const CHUNK_KEYS_EXPECTED_MAX: u64 = 1 << 20;

/// Keys that a chunk may have. Random hashes exceed the expectation by 0.5 % at most; hashes that somebody has chosen may
/// not make a table that its fields of 32 bits cannot number.
pub const CHUNK_KEYS_MAX: usize = 1 << 21;

/// Most bits of a hash that choose its chunk, hence 4,096 chunks: who builds from scratch files keeps a buffer for each.
pub const CHUNK_BITS_MAX: u8 = 12;

/// Keys of a file: all chunks as full as they are expected to be.
pub const KEY_COUNT_MAX: u64 = CHUNK_KEYS_EXPECTED_MAX << CHUNK_BITS_MAX;

/// Bits of a cell: one unaligned read of 64 bits has them all, whatever the bit that it begins at in its byte.
pub const CELL_BITS_MAX: u8 = 56;

/// Bits of an offset in a segment, as Graf & Lemire bound it: larger segments help no more and leave the caches.
pub const SEGMENT_BITS_MAX: u8 = 18;

/// Seeds that are tried for a table before it is given up. Of 40,000 random tables of 1 to 10,000 keys 97 in 100 took the
/// first, and none more than four; equal placements, which only chosen hashes have, never get a seed.
pub const SEED_COUNT_MAX: u16 = 256;

/// Bytes of the text that says what of a record is a key: a list of field names.
pub const FORM_BYTES_MAX: usize = 4096;
