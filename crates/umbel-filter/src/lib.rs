//! Bloom filters over one shared hash space: item hashes, hash ranges, sizes and filter kinds.
//!
//! Nothing here reads a file, a clock or dice. Which filter for which question, with the bits an
//! item that 1 %, 0.1 % and 0.01 % take (the floor for any filter, log2(1/p), is 6.64, 9.97 and
//! 13.29):
//!
//! | you want | take | 1 % | 0.1 % | 0.01 % |
//! |---|---|--:|--:|--:|
//! | speed: one cache line an operation | [`Blocked`] | 9.91 | 15.61 | 22.15 |
//! | the same from many threads at once | [`SharedBlocked`] | 9.91 | 15.61 | 22.15 |
//! | the least memory that can be changed in place | [`Classic`] | 9.59 | 14.38 | 19.17 |
//! | one array a probe, as hardware likes it | [`Partitioned`] | 9.60 | 14.39 | 19.18 |
//! | close to the floor, mostly read | [`StoredSingleShot`] | 8.6 | 12.0 | 15.3 |
//! | to take items out again | [`Counting`] | 39.6 | 62.4 | 88.6 |
//! | the same, in a table that fills up | [`Cuckoo`] | 11.1 | 14.5 | 18.9 |
//! | the same, and to merge, cut or grow it | [`Quotient`] | 12.1 | 15.4 | 19.8 |
//! | the same, an insert touches four places | [`DLeft`] | 16.5 | 20.0 | 24.7 |
//! | the same, counters that tell items apart | [`VariableCounting`] | 29.2 | 44.7 | 61.0 |
//! | what came in the last slices of time | [`Window`] | 17.4 | 20.7 | 25.0 |
//! | the same in replicas that merge by OR | [`SliceRing`] of 24 + 2 slices | 19.6 | 27.3 | 36.3 |
//! | the last so many items, without a clock | [`Aging`] | 23.2 | 34.8 | 48.7 |
//! | what came lately, at a constant rate of errors | [`Stable`] | 97.8 | 207 | 376 |
//! | which set, how often, how far; copies that merge | [`Lattice`] | 39.6 | 62.4 | 88.6 |
//! | no idea how many will come | [`Scalable`], after ten doublings | 18.0 | 25.0 | 33.3 |
//! | the bits that RedisBloom has | [`RedisBloom`], one link of its capacity | 11.03 | 15.82 | 20.61 |
//! | a few new items on their way to a filter | [`SparseBlocked`] | | | |
//! | positions as a plain list | [`SingleShot`] | | | |
//!
//! These bits hold from about a million items on. A smaller filter rounds up to whole blocks or pages, which of
//! [`Cuckoo`], [`Quotient`] and [`DLeft`] have a power of two of slots.
//!
//! What a kind can do is a small trait each: [`Contains`], [`Insert`], [`Remove`], [`Merge`] with
//! its laws, [`Describe`]. [`AnyFilter`] is any of the kinds, chosen at run time. [`DLeft`], [`VariableCounting`],
//! [`Lattice`] and [`SliceRing`] are no kinds: they have no [`Describe`], and are not written as bytes. [`sizing`] has the
//! formulas with their papers, [`words`] the operations on plain bits.
//!
//! An item is hashed once, where it enters; from there on only its [`ItemHash`] travels. Its upper
//! half places it in the hash space, which [`HashRange`]s and [`CellCount`] cut; the kinds that
//! are arrays place it in the array by the same order, so a hash range is a slice ([`BlockMap`]).
//!
//! ```
//! use umbel_filter::{Blocked, Contains, HashRange, Insert, Insertion, ItemHasher};
//!
//! let hasher = ItemHasher::Xxh3 { seed: 7 };
//! let mut seen = Blocked::for_rate(HashRange::WHOLE, 1_000_000, 0.01)?;
//! assert_eq!(seen.insert(hasher.hash(b"alice"))?, Insertion::New);
//! assert_eq!(seen.insert(hasher.hash(b"alice"))?, Insertion::Present);
//! assert!(!seen.contains(hasher.hash(b"bob")));
//!
//! // Batches overlap the accesses to memory of neighbouring items.
//! let hashes = [b"carol".as_slice(), b"alice"].map(|item| hasher.hash(item));
//! let mut outcomes = Vec::new();
//! seen.insert_batch(&hashes, &mut outcomes)?;
//! assert_eq!(outcomes, [Insertion::New, Insertion::Present]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

//!
//! Values of any type that is [`Hash`](std::hash::Hash) go into a [`HashedFilter`]; iterators of
//! hashes extend every kind of [`AnyFilter`], [`DLeft`] and [`VariableCounting`], and a [`Scalable`] filter is collected
//! from one; `|=` merges filters of one shape where a merge is the OR.

//!
//! # Formats
//!
//! Which bits an item sets is part of every stored filter and the same on all platforms and in all
//! releases. With the halves `hi` and `lo` of the item's hash, B blocks over the hash space, and
//! everything modulo 2^32 or 2^64 as the width of the numbers is:
//!
//! ```text
//! block                      ⌊hi · B / 2^64⌋, counted from the first one of the filter's range
//! bit i of a block           bit i mod 64 of its word ⌊i / 64⌋
//!
//! blocked, counting, aging,  seed s = the upper 32 bits of lo
//! scalable's levels          r = ((s · 0x7d29825d) mod 2^32) >> 28
//!                            for each lane l of the set of k:  lane l XOR r, in it bit
//!                            ((s · SALT[l XOR r]) mod 2^32) >> 27;  position 32 · lane + bit
//! classic                    v(0) = lo · A + C, v(j) = v(j − 1) · A + C;  position ⌊v(j) · b / 2^64⌋ of b
//! partitioned                the same v(j);  position j · w + ⌊v(j) · w / 2^64⌋, w = ⌊b / k⌋
//! single-shot                ⌊hi · m / 2^64⌋ of m over the hash space
//! window                     b buckets in a block, fingerprints of f bits:
//!                            bucket ⌊lo · b / 2^64⌋, fingerprint ⌊lo · A · (2^f − 1) / 2^64⌋ + 1,
//!                            the other one ⌊fingerprint · C · b / 2^64⌋ − bucket, modulo b
//! cuckoo                     2^s buckets in a page, fingerprints of f bits:
//!                            bucket lo mod 2^s, fingerprint 1 + ⌊⌊lo / 2^32⌋ · (2^f − 1) / 2^32⌋,
//!                            the other one bucket XOR (⌊(fingerprint · 0x9e3779b1) / 2^(32 − s)⌋ OR 1)
//! quotient                   p pages of 2^s quotients, remainders of r bits: ⌊hi · p / 2^64⌋ is the page, behind which
//!                            hi · p mod 2^64 has s bits of quotient and r of remainder
//! redisbloom                 (hi + j · lo) mod m of the m bits of a link; hi and lo are RedisBloom's pair
//!
//! A = 0xd1342543de82ef95, C = 0x9e3779b97f4a7c15
//! SALT  e220a839 6e789e6b 06c45d19 f88bb8a9 1b39896b 53cb9f0d 2c829abf c584133b
//!       3ee57891 f3b8488d 657eecdd c2d326e1 8621a03f 8e1f7555 b54e0f17 84bb3f97
//! sets  k  1 0001   2 0003   3 0007   4 0017   5 0117   6 8117   7 111f   8 053f
//!          9 153f  10 953f  11 177f  12 17ff  13 1fff  14 3fff  15 7fff  16 ffff   bit l: lane l
//! ```
//!
//! How filters of the kinds of [`AnyFilter`] are written as bytes is in the crate `umbel-codec`.

mod aging;
mod any;
mod bits;
mod block_array;
mod block_map;
mod blocked;
mod capability;
mod classic;
mod counting;
mod cuckoo;
mod dleft;
mod hash;
mod hash_state;
mod hashed;
mod join_error;
mod kind;
mod lanes;
mod lattice;
mod merge_error;
mod ones_count;
mod operators;
mod partitioned;
mod plan;
pub mod planted;
mod quotient;
mod quotient_layout;
mod range;
mod redis_bloom;
mod redis_bloom_shape;
mod scalable;
mod scalable_shape;
mod shape;
mod shared_blocked;
mod single_shot;
mod single_shot_shape;
pub mod sizing;
mod slice_ring;
mod slots;
mod sparse_blocked;
mod spread;
mod stable;
mod stable_pace;
mod stored_single_shot;
mod table_error;
mod variable_counting;
mod window;
pub mod words;

pub use aging::Aging;
pub use any::{AnyFilter, FilterPartError, FilterPlan, RemoveError};
pub use block_map::{BLOCK_COUNT_MAX, BlockMap};
pub use blocked::{Blocked, FoldError};
pub use capability::{
    Contains, Describe, Description, Insert, InsertError, Insertion, Merge, OutOfRange, Removal,
    Remove,
};
pub use classic::Classic;
pub use counting::{COUNTER_MAX, Counting};
pub use cuckoo::Cuckoo;
pub use dleft::DLeft;
pub use hash::{HashFunction, ItemHash, ItemHasher, RunningHash};
pub use hash_state::HashState;
pub use hashed::{HashedFilter, HashedMergeError};
pub use join_error::FilterJoinError;
pub use kind::{Kind, UnknownKind};
pub use lanes::{BLOCK_PROBE_COUNT_MAX, LINE_BITS};
pub use lattice::{Join, JoinError, LATTICE_MAX, Lattice, LatticeMismatch, RaiseError};
pub use merge_error::MergeError;
pub use ones_count::OnesCount;
pub use partitioned::Partitioned;
pub use quotient::{Quotient, QuotientGrowError, QuotientSliceError};
pub use range::{
    CELL_COUNT_MAX, CellCount, CellCountOutOfRange, GRAIN_BITS, HashRange, HashRangeError,
};
pub use redis_bloom::{
    REDIS_BLOOM_LINKS_MAX, RedisBloom, RedisBloomHeader, RedisBloomHeaderError, RedisBloomLink,
    RedisBloomLinkShape, RedisBloomParts, RedisBloomStoredLink,
};
pub use redis_bloom_shape::RedisBloomShape;
pub use scalable::{FilterLevel, LevelsError, Scalable};
pub use scalable_shape::ScalableShape;
pub use shape::{
    AGING_BLOCK_BITS, BLOCK_BITS_MAX, BlockShape, CreateError, FILTER_BYTES_MAX, PROBE_COUNT_MAX,
    Shape, ShapeError, ShapeMismatch,
};
pub use shared_blocked::SharedBlocked;
pub use single_shot::{PositionsError, SingleShot, SortedHashesError};
pub use single_shot_shape::{POSITION_COUNT_MAX, SingleShotShape};
pub use sizing::VARIABLE_BASE_MAX;
pub use slice_ring::{AheadOfClock, SliceRing};
pub use sparse_blocked::{BlockProbe, ProbesError, SparseBlocked};
pub use spread::SpreadFilter;
pub use stable::Stable;
pub use stable_pace::{STABLE_LOWERED_MAX, StablePace};
pub use stored_single_shot::StoredSingleShot;
pub use table_error::{TableLoadError, TablePartError};
/// For crates above, which show digests and signatures beside hashes.
pub use umbel_bits::Hex;
pub use variable_counting::VariableCounting;
pub use window::{Sighting, WINDOW_SLICES_MAX, Window};
