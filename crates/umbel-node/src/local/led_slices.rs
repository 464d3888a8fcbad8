//! How full the slices are that this node leads.

use umbel_engine::{FilterId, Generation, ShardId};

use super::Local;
use crate::calls::SliceLoad;

impl Local {
    /// The slices of a filter in the shards that this node leads, or in `home` alone.
    pub async fn led_slices(
        &self,
        (filter, generation): (FilterId, Generation),
        home: Option<ShardId>,
    ) -> Vec<SliceLoad> {
        let mut loads = Vec::new();
        for shard in self.shards() {
            let is_elsewhere = home.is_some_and(|home| home != shard.shard());
            if is_elsewhere || !shard.group().is_leader() || shard.group().lacks_quorum() {
                continue;
            }
            let Ok(load) = shard.load_here(filter, generation).await else { continue };
            loads.push(load);
        }
        loads
    }
}
