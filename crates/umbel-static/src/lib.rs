//! Static filters, maps and exact sets: built once of all keys, shipped as a file, asked for ever.
//!
//! | question | build | bits a key | answer for another item |
//! |---|---|---|---|
//! | is it among the keys? | [`build_filter`] with w bits | 1.13 · w | present with 2^-w |
//! | which value has it? | [`build_map`] with v + c bits | 1.13 · (v + c) | a value with 2^-c |
//! | which of many sets may hold it? | [`sliced::build_sliced`] | 2.80 at 0.3, 12.36 at 0.01 | a set with the rate |
//! | is it one of R members among S others? | [`build_exact`] | 9.68 a member for S = 100 R | outside of both: anything |
//!
//! A filter that changes is `umbel-filter`'s. This one takes less, 1.13 · log2(1/p) bits a key at a false-positive rate
//! p, where the floor for any filter is log2(1/p) and a Bloom filter takes 1.44 of it; a question reads three cells,
//! whatever the rate. These bits hold from about a million keys on: small tables have more room, and below some 3,000 keys
//! they take more than a Bloom filter. Adding a key is building anew.
//!
//! ```
//! use umbel_codec::FrameKey;
//! use umbel_filter::{HashFunction, ItemHasher};
//! use umbel_static::{StaticFile, build_exact};
//!
//! let hasher = ItemHasher::Xxh3 { seed: 0 };
//! let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
//! let hashes = |numbers: std::ops::Range<u32>| {
//!     numbers.map(|number| hasher.hash(&number.to_le_bytes())).collect::<Vec<_>>()
//! };
//! let (revoked, valid) = (hashes(0..100), hashes(100..10_000));
//! let file = StaticFile::parse(build_exact(revoked.clone(), valid.clone(), key)?)?;
//! assert!(revoked.iter().all(|hash| file.contains(*hash)));
//! assert!(!valid.iter().any(|hash| file.contains(*hash)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How
//!
//! ```text
//! hash -> chunk, by its upper bits -> three cells of the chunk's table -> XOR -> value, compared with the fingerprint
//! ```
//!
//! | question | module |
//! |---|---|
//! | how large is a table? | `geometry` |
//! | which cells has a key? | `placement` |
//! | in which order are cells filled? | `peel` |
//! | what is retrieved? | `retrieval` |
//! | what is in a chunk of each role? | `chunk` |
//! | which bytes are that? | [`layout`] |
//! | how is a file read by parts? | `head` |
//!
//! More keys than fit into memory are built chunk by chunk: [`StaticShape::chunk_bits`], then
//! [`StaticShape::filter_chunk`] (or `map_chunk`, `exact_chunk`) of the sorted hashes of each, and a [`HeadBuilder`].
//! Chunks do not depend on each other, so threads may take one each. Nothing here reads a file, a clock or dice.
//! Everything that reads is total: whatever the bytes, the outcome is an answer or an error that says what was expected,
//! never a panic, and no allocation that the bytes at hand do not pay for.
//!
//! Papers: binary fuse filters, Graf & Lemire 2022, doi:10.1145/3510449; xor filters, Graf & Lemire 2020,
//! doi:10.1145/3376122; maps, Chazelle et al. 2004 (Bloomier filters, SODA), Charles & Chellapilla 2008,
//! doi:10.1007/978-3-540-87744-8_22; exact sets, Larisch et al. 2017 (CRLite), doi:10.1109/SP.2017.17, Schanck 2025
//! (Clubcard), doi:10.1109/SP61157.2025.00128.

mod build;
mod cells;
mod chunk;
mod error;
mod fields;
mod file;
mod geometry;
mod head;
pub mod layout;
mod limits;
mod peel;
mod placement;
mod retrieval;
mod shape;
pub mod sliced;
mod zone;

pub use build::{build_exact, build_filter, build_map};
pub use chunk::{BuiltChunk, Chunk, ExactChunk};
pub use error::{BuildError, FileError, StaticShapeError};
pub use file::StaticFile;
pub use geometry::Geometry;
pub use head::{Head, HeadBuilder, STATIC_HEADER_BYTES, STATIC_MAGIC, STATIC_VERSION};
pub use limits::{
    CELL_BITS_MAX, CHUNK_BITS_MAX, CHUNK_KEYS_EXPECTED_MAX, CHUNK_KEYS_MAX, FORM_BYTES_MAX,
    KEY_COUNT_MAX, SEED_COUNT_MAX, SEGMENT_BITS_MAX,
};
pub use placement::chunk_of;
pub use shape::{Role, StaticShape, check_bits_for};
pub use zone::{ZONE_COUNT_MAX, ZONE_UNIVERSE_MAX, ZoneFilter, ZoneFilterError};
