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
//! | no idea how many will come | [`Scalable`], after ten doublings | 18.0 | 25.0 | 33.3 |
//! | a few new items on their way to a filter | [`SparseBlocked`] | | | |
//! | positions as a plain list | [`SingleShot`] | | | |
//!
//! What a kind can do is a small trait each: [`Contains`], [`Insert`], [`Remove`], [`Merge`] with
//! its laws, [`Describe`]. [`AnyFilter`] is any of the kinds, chosen at run time. [`sizing`] has
//! the formulas with their papers, [`words`] the operations on plain bits.
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

mod any;
mod bits;
mod block_array;
mod block_map;
mod blocked;
mod capability;
mod classic;
mod counting;
mod hash;
mod lanes;
mod partitioned;
mod plan;
mod range;
mod scalable;
mod scalable_shape;
mod shape;
mod shared_blocked;
mod single_shot;
mod single_shot_shape;
pub mod sizing;
mod sparse_blocked;
mod spread;
mod stored_single_shot;
pub mod words;

pub use any::{AnyFilter, FilterPlan, MergeError, RemoveError};
pub use block_map::{BLOCK_COUNT_MAX, BlockMap};
pub use blocked::{Blocked, FoldError};
pub use capability::{
    Contains, Describe, Description, Insert, InsertError, Insertion, Merge, OutOfRange, Removal,
    Remove,
};
pub use classic::Classic;
pub use counting::{COUNTER_MAX, Counting};
pub use hash::{HashFunction, ItemHash, ItemHasher, RunningHash};
pub use lanes::BLOCK_PROBE_COUNT_MAX;
pub use partitioned::Partitioned;
pub use range::{
    CELL_COUNT_MAX, CellCount, CellCountOutOfRange, GRAIN_BITS, HashRange, HashRangeError,
};
pub use scalable::{FilterLevel, LevelsError, Scalable};
pub use scalable_shape::ScalableShape;
pub use shape::{
    BLOCK_BITS_MAX, BlockShape, CreateError, FILTER_BYTES_MAX, Kind, LINE_BITS, PROBE_COUNT_MAX,
    Shape, ShapeError, ShapeMismatch,
};
pub use shared_blocked::SharedBlocked;
pub use single_shot::{PositionsError, SingleShot, SortedHashesError};
pub use single_shot_shape::{POSITION_COUNT_MAX, SingleShotShape};
pub use sparse_blocked::{BlockProbe, ProbesError, SparseBlocked};
pub use stored_single_shot::StoredSingleShot;
