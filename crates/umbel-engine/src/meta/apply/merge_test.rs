//! Merging shards that were split.
