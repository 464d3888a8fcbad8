//! Metrics of this node's groups and of the catalogue, once a second.

use std::sync::Arc;

use super::Local;
use crate::metrics;
use crate::shard_leader::ShardLeader;

impl Local {
    /// Updates the metrics, given the shards of this node.
    pub(super) fn measure(&self, shards: &[Arc<ShardLeader>]) {
        let filter_bytes = |shard: &Arc<ShardLeader>| shard.status().memory_bytes;
        metrics::shards(&metrics::Shards {
            led: shards.iter().filter(|shard| shard.group().is_leader()).count(),
            held: shards.len(),
            leaderless: shards.iter().filter(|shard| shard.group().leader().is_none()).count(),
            quorumless: shards.iter().filter(|shard| shard.group().lacks_quorum()).count(),
            filter_bytes: shards.iter().map(filter_bytes).sum(),
        });
        for shard in shards {
            metrics::shard_scrub_age(shard.group().id(), shard.scrub_age());
        }
        let meta_is_led = self.meta.leader().is_some() && !self.meta.lacks_quorum();
        metrics::meta_is_led(meta_is_led);
        metrics::catalogue(&self.read_meta(|state| {
            let mut known = metrics::Catalogue {
                filter_count: state.filters().count(),
                shard_count: state.shards().count(),
                epoch: state.epoch().0,
                ..metrics::Catalogue::default()
            };
            state.jobs().for_each(|(_, record)| known.jobs.count(&record.state));
            known
        }));
        // Looks also where nothing expires: a jump is what the clock has gained since the last look.
        self.clock.believed_ms();
        metrics::wall_clock(self.seed().wall_ms());
        metrics::wal_size(self.storage.wal_bytes());
        self.copies.measure();
    }
}
