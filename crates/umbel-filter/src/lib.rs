//! Bloom filters over one shared hash space: item hashes, hash ranges, sizes and filter kinds.
//!
//! Nothing here reads a file, a clock or dice, and nothing depends on another Umbel crate.
//!
//! | question | module | doi |
//! |---|---|---|
//! | which 128 bits stand for an item? | `hash`: [`ItemHasher`] | 10.1007/978-3-642-34931-7_28 |
//! | who owns an item? | `range`: [`HashRange`], [`CellCount`] | 10.1145/3230636 |
//! | which position is an item's? | `shape`: [`SingleShotShape`] | 10.1145/3230636 |
//! | was an item seen before? | `single_shot`: [`SingleShot`] | 10.1109/BigData.2013.6691549 |
//! | how large must it be, how often does it err? | [`sizing`] | 10.1145/362686.362692 |
//!
//! An item is hashed once, where it enters; from there on only its [`ItemHash`] travels:
//!
//! ```
//! use umbel_filter::{HashRange, Insertion, ItemHasher, SingleShot, SingleShotShape};
//!
//! let hasher = ItemHasher::Xxh3 { seed: 7 };
//! let mut seen = SingleShot::new(SingleShotShape::new(HashRange::WHOLE, 1 << 20)?);
//! assert_eq!(seen.insert(hasher.hash(b"alice"))?, Insertion::New);
//! assert_eq!(seen.insert(hasher.hash(b"alice"))?, Insertion::Present);
//! assert!(!seen.contains(hasher.hash(b"bob")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod hash;
mod lanes;
mod range;
mod shape;
mod single_shot;
pub mod sizing;

pub use hash::{HashFunction, ItemHash, ItemHasher};
pub use range::{
    CELL_COUNT_MAX, CellCount, CellCountOutOfRange, GRAIN_BITS, HashRange, HashRangeError,
};
pub use shape::{POSITION_COUNT_MAX, ShapeError, SingleShotShape};
pub use single_shot::{
    Insertion, OutOfRange, PositionsError, ShapeMismatch, SingleShot, SortedHashesError,
};
