//! Where things live: hash ranges to shards, shards to nodes.
//!
//! The hash space is cut into as many equal ranges as the cluster has shards, for ever. What
//! changes is which nodes have a shard's replicas: [`assign`] decides it once, when the cluster
//! forms, and [`choose_replacement`] whenever a replica has to go elsewhere. Both are functions of
//! their arguments alone: every node computes the first for itself from the same log, and every
//! leader shall come to the same second.

mod assign;
mod shard_map;
mod zone;

pub use assign::{assign, choose_replacement};
pub use shard_map::{ShardMap, ShardRecord};
pub use zone::{ZONE_BYTES_MAX, Zone, ZoneError, Zones};
