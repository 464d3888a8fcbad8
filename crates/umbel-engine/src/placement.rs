//! Where things live: hash ranges to shards, shards to nodes.
//!
//! When the cluster is founded, the hash space is cut into equal ranges; later each range may be split in
//! two ([`ShardRanges`]). [`assign`] chooses the nodes of all replicas when the cluster forms, and
//! [`choose_replacement`] chooses a node whenever a replica has to move. A shard that is split off starts
//! on the nodes of the shard that it was split from. [`homes`](homes()) says which replica of each shard should
//! lead. All are pure functions: every node computes the same assignment from the same log, every leader the
//! same replacement, and every node the same homes from the same map.

mod assign;
mod foreign_copy;
mod homes;
mod shard_map;
mod shard_ranges;
mod zone;

pub use assign::{assign, choose_replacement};
pub use foreign_copy::ForeignCopy;
pub use homes::homes;
pub(crate) use homes::usual_turn;
pub use shard_map::{GivenUpMerge, ShardMap, ShardRecord};
pub use shard_ranges::{ShardRanges, ShardRangesError};
pub use zone::{ZONE_BYTES_MAX, Zone, ZoneError, Zones};
