//! Where things live: hash ranges to shards, shards to nodes.
//!
//! The hash space is cut into equal ranges when the cluster is founded, and each may be cut in two again
//! ([`ShardRanges`]). Which nodes have a shard's replicas, [`assign`] decides when the cluster
//! forms, and [`choose_replacement`] whenever a replica has to go elsewhere; a shard that is cut off begins where
//! the other half is. All are functions of
//! their arguments alone: every node computes the first for itself from the same log, and every
//! leader shall come to the same second.

mod assign;
mod shard_map;
mod shard_ranges;
mod zone;

pub use assign::{assign, choose_replacement};
pub use shard_map::{ShardMap, ShardRecord};
pub use shard_ranges::{ShardRanges, ShardRangesError};
pub use zone::{ZONE_BYTES_MAX, Zone, ZoneError, Zones};
