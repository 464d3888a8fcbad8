//! Bloom filters over one shared hash space: item hashes, hash ranges, sizes and filter kinds.
//!
//! Nothing here reads a file, a clock or dice.

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
pub use hash::{HashFunction, ItemHash, ItemHasher};
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
pub use stored_single_shot::StoredSingleShot;
