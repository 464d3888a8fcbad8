//! Many sets, one question: which of these thousand files, blocks or genomes may hold an item?
//!
//! A Bloom filter a set, all of one shape, written *by row*: row i has bit i of every filter, so a question reads the k
//! rows of an item and ANDs them, and the ones that are left are the sets. A thousand sets answer from k times 125
//! bytes, where a thousand filters would be read at k places each.
//!
//! ```text
//!            set 0   set 1   set 2   …                    ask x, k = 2
//! row 0        0       1       0                          row 3   1 0 1 …
//! row 1        1       1       0                          row 9   1 1 0 …
//! …                                                        AND    1 0 0 …   set 0 may hold x
//! ```
//!
//! Sets of unlike size would waste a row, so they are put into groups of equal size ([`ColumnSize`]: 1, 2, 3, 4, 6, 8,
//! 12, … times 512 bits), and a question asks each group. **Column j is the [`Classic`](umbel_filter::Classic) filter of
//! set j, bit for bit** ([`SlicedFile::filter`]); its size depends on the number of its own items alone, so another set
//! beside it changes no bit of it.
//!
//! A question of many items, such as the k-mers of a gene, may be content with a share of them: then single answers may
//! err often, and a rate of 0.3 at one probe and 2.80 bits an item is enough ([`SlicedFile::counts`]).
//!
//! ```
//! use umbel_codec::FrameKey;
//! use umbel_filter::{HashFunction, ItemHasher};
//! use umbel_static::sliced::{SlicedFile, SlicedShape, build_sliced};
//!
//! let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
//! let hash = |item: &str| ItemHasher::Xxh3 { seed: 0 }.hash(item.as_bytes());
//! let shape = SlicedShape::new(key, 3, 0.001)?;
//! let sets = [("fruit", ["apple", "pear"]), ("green", ["apple", "moss"])];
//! let sets = sets.map(|(name, items)| (name.to_owned(), items.map(hash).to_vec()));
//! let file = SlicedFile::parse(build_sliced(&shape, sets)?)?;
//! assert_eq!(file.sets_with(hash("moss")), [1]);
//! assert_eq!(file.counts(&[hash("apple"), hash("pear")]), [2, 1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//!
//! The bytes of a file, `.umbx`. Integers are little-endian.
//!
//! ```text
//! 0      4   5    6   7   8    10  12     16     24   32   40        48     56
//! │ UMBX │ver│hash│ k │ 0 │form│ 0 │crc32c│key id│rate│sets│directory│matrix│ form text │ directory │ checksums │ matrix
//! │  4   │u8 │ u8 │u8 │u8 │u16 │u16│ u32  │ u64  │f64 │u64 │   u64   │ u64  │
//!
//! ver        1                                  form       bytes of a text in UTF-8, which says what an item of a
//! hash       1 XXH3-128, 2 SipHash-1-3-128                 record is; it means nothing here
//! k          probes, 1 to 8                     rate       false-positive rate asked for, above 0 and below 1
//! key id     seed of XXH3, name of a SipHash    directory  its bytes, then those of the matrix
//!            key                                crc32c     over bytes 0..12 and from 16 to the matrix
//!
//! directory  a row a set:  │ items u64 │ step u8 │ n u16 │ n bytes of a name in UTF-8 │
//! checksums  CRC-32C of each 64 KiB of the matrix, u32
//! step       s: the column has 512 bits if s is 0, 512 · 2^((s + 1) / 2) if it is odd, 768 · 2^(s / 2) if it is even
//! ```
//!
//! The matrix is the groups by rising step. A group of d sets and m rows has rows of w bits, w being d rounded up to
//! 1, 2, 4 or a multiple of 8: bit r · w + j is bit r of the filter of its j-th set, counted in the order of the
//! directory; bit i of the group is bit i mod 8 of its byte ⌊i / 8⌋. The filter is a classic one (see the crate
//! `umbel-filter`) of k probes whose blocks have the m bits, or if those are more than 2^19, then 2^19 each if s is
//! odd and 3 · 2^17 each if it is even.
//!
//! Papers: superimposed codes, Mooers 1947 (Zatocoding), Kautz & Singleton 1964, doi:10.1109/TIT.1964.1053689; Goodwin
//! et al. 2017 (BitFunnel), doi:10.1145/3077136.3080789; for k-mers, Bingmann et al. 2019 (COBS),
//! doi:10.1007/978-3-030-32686-9_21.

mod build;
mod error;
mod file;
mod groups;
mod head;
mod question;
mod shape;

pub use build::{Column, SlicedBuilder, build_sliced};
pub use error::SlicedError;
pub use file::SlicedFile;
pub use groups::SizeGroup;
pub use head::{SLICED_HEADER_BYTES, SLICED_MAGIC, SLICED_PAGE_BYTES, SLICED_VERSION, SlicedHead};
pub use question::Question;
pub use shape::{
    COLUMN_STEP_MAX, ColumnSize, NAME_BYTES_MAX, SET_COUNT_MAX, SLICED_PROBES_MAX, SlicedSet,
    SlicedShape, bits_per_item,
};

/// An index in memory; for a number that is too large, the largest index, at which nothing is
/// stored.
const fn index(number: u64) -> usize {
    if number > usize::MAX as u64 {
        return usize::MAX;
    }
    #[expect(clippy::cast_possible_truncation, reason = "it was compared")]
    let index = number as usize;
    index
}
