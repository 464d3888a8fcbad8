//! What the replicas of each shard weigh, by which they are spread over nodes.
//!
//! Bytes follow from the catalogue: a filter that is cut has in each shard the share of the shard's width, a
//! filter of kind `redisbloom` is in one shard as a whole, and growth is allowed by shard. So every leader of the
//! meta group weighs alike without asking the shards.

use std::collections::BTreeMap;

use super::filter_record::{FilterRecord, FilterState};
use super::state::MetaState;
use crate::ids::{NodeId, ShardId};
use crate::limits::SLICE_BYTES_MAX;
use crate::placement::ShardMap;

/// What a replica weighs at least beside its bytes: a quarter of the largest slice, 64 MiB. One filter of kind
/// `redisbloom`, which is in one shard, then adds what four empty replicas weigh at most, a difference that is
/// allowed anyway: hardly a replica moves when it comes, and none when it goes. It also makes the number of replicas
/// decide as long as there is little in them: groups cost messages whatever the filters are.
pub(super) const REPLICA_BYTES_MIN: u64 = SLICE_BYTES_MAX / 4;

/// A replica weighs its bytes, and one part in so many of the mean bytes of all shards: items are spread over
/// shards by hash, so a shard with few bytes is asked too, and a node without large shards must not get all of the
/// others.
const EACH_MEAN_PARTS: u64 = 4;

/// The bytes and weights of one replica of each shard.
pub(super) struct Weights {
    /// Bytes by shard number.
    bytes: Vec<u64>,
    /// What each replica weighs beside its bytes; at least 1.
    each: u64,
}

impl Weights {
    /// The weights of these bytes, by shard number.
    pub(super) fn new(bytes: Vec<u64>) -> Self {
        let sum = bytes.iter().copied().fold(0, u64::saturating_add);
        let mean = sum / u64::try_from(bytes.len()).unwrap_or(u64::MAX).max(1);
        Self { bytes, each: (mean / EACH_MEAN_PARTS).max(REPLICA_BYTES_MIN) }
    }

    /// The weights by the catalogue.
    pub(super) fn of(state: &MetaState) -> Self {
        let map = state.shard_map();
        let mut bytes = vec![0_u64; map.shards.len()];
        let mut add = |shard: ShardId, more: u64| {
            if let Some(sum) = bytes.get_mut(shard.0 as usize) {
                *sum = sum.saturating_add(more);
            }
        };
        let is_held = |record: &&FilterRecord| {
            !record.is_replicated() && record.state != FilterState::Dropping
        };
        let mut cut = 0_u64;
        for record in state.filters().map(|(_, record)| record).filter(is_held) {
            let planned = record.settings.memory_bytes;
            match record.settings.shape.place() {
                Some(place) => {
                    if let Some(shard) = map.shard_of(place) {
                        add(shard, planned);
                    }
                }
                None => cut = cut.saturating_add(planned),
            }
            for (&shard, &growth) in &record.growth {
                add(shard, growth);
            }
        }
        if let Some(ranges) = map.ranges().filter(|_| cut > 0) {
            for (shard, range) in ranges.in_order() {
                add(shard, range.share_of(cut));
            }
        }
        Self::new(bytes)
    }

    /// Bytes of one replica of a shard.
    pub(super) fn bytes(&self, shard: ShardId) -> u64 {
        self.bytes.get(shard.0 as usize).copied().unwrap_or(0)
    }

    /// What one replica of a shard weighs; at least 1.
    pub(super) fn weight(&self, shard: ShardId) -> u64 {
        self.bytes(shard).saturating_add(self.each)
    }

    /// What all replicas of each node have, counting future ones instead of current ones where a change is under
    /// way. Nodes without replicas are left out.
    pub(super) fn loads(&self, map: &ShardMap) -> BTreeMap<NodeId, Load> {
        let mut loads = BTreeMap::<NodeId, Load>::new();
        for record in &map.shards {
            for &node in record.wanted() {
                loads.entry(node).or_default().add(self, record.shard);
            }
        }
        loads
    }

    /// Counts a shard's replicas on other nodes than before.
    pub(super) fn shift(
        &self,
        loads: &mut BTreeMap<NodeId, Load>,
        shard: ShardId,
        (from, to): (&[NodeId], &[NodeId]),
    ) {
        for &node in from {
            loads.entry(node).or_default().take(self, shard);
        }
        for &node in to {
            loads.entry(node).or_default().add(self, shard);
        }
    }
}

/// What a node's replicas have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Load {
    pub(super) weight: u64,
    pub(super) bytes: u64,
}

impl Load {
    fn add(&mut self, weights: &Weights, shard: ShardId) {
        self.weight = self.weight.saturating_add(weights.weight(shard));
        self.bytes = self.bytes.saturating_add(weights.bytes(shard));
    }

    fn take(&mut self, weights: &Weights, shard: ShardId) {
        self.weight = self.weight.saturating_sub(weights.weight(shard));
        self.bytes = self.bytes.saturating_sub(weights.bytes(shard));
    }
}

#[cfg(test)]
mod tests {
    use super::super::balance::tests::formed;
    use super::super::testing::{settings, sip_key};
    use super::*;
    use crate::meta::{ClusterVersion, FilterName, FilterSettings, MetaCommand, MetaReply};

    #[test]
    fn a_shard_that_was_split_weighs_half() {
        let mut state = formed(1, 2, 1).at_version(ClusterVersion::NEWEST);
        let settings = FilterSettings { memory_bytes: 64_000, ..settings(sip_key(1)) };
        let name = FilterName::new("f").unwrap();
        let create = MetaCommand::CreateFilter { name, settings, importing: false, owner: None };
        let made = state.apply(5, &create);
        assert!(matches!(made, MetaReply::Filter(_)), "{made:?}");
        let bytes = |state: &MetaState| Weights::of(state).bytes;
        assert_eq!(bytes(&state), [32_000, 32_000]);
        state.apply(6, &MetaCommand::SplitShard { shard_count: 3 });
        assert_eq!(bytes(&state), [16_000, 32_000, 16_000]);
        let weights = Weights::of(&state);
        assert_eq!(weights.weight(ShardId(1)), 32_000 + REPLICA_BYTES_MIN);
        let load = weights.loads(state.shard_map())[&NodeId(1)];
        assert_eq!(load, Load { weight: 64_000 + 3 * REPLICA_BYTES_MIN, bytes: 64_000 });
    }
}
