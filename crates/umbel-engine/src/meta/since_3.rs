//! What snapshots of the meta group contain since version 3 of the cluster, behind what they contained
//! before.
//!
//! The encoding has no names, so that a new field in the middle would make all earlier snapshots
//! unreadable. The fields that came with merges are therefore encoded on their own, after the state.

use serde::{Deserialize, Serialize};

use super::state::MetaState;
use crate::ids::Epoch;
use crate::limits::ERA_MAX;
use crate::placement::GivenUpMerge;

/// The part of the state that came with merges of shards. States of earlier versions have never merged any.
///
/// ```
/// use umbel_engine::meta::{ClusterVersion, MetaCommand, MetaState};
/// use umbel_engine::{NodeId, ShardId};
///
/// let nodes = vec![(NodeId(1), "a:7070".to_owned())];
/// let form = MetaCommand::Form { cluster: 9, nodes, shard_count: 1, replica_count: 1 };
/// let formed = |shard| MetaCommand::ShardFormed { shard: ShardId(shard) };
/// let split = MetaCommand::SplitShard { shard_count: 2 };
/// let merge = MetaCommand::MergeShard { shard_count: 1 };
/// let merged = MetaCommand::ShardMerged { shard: ShardId(1), era: 0 };
/// let mut state = MetaState::new().at_version(ClusterVersion(3));
/// for command in [form, formed(0), split.clone(), formed(1), merge, merged, split] {
///     state.apply(1, &command);
/// }
/// let since_3 = state.since_3();
/// assert_eq!((since_3.merge_count, since_3.merging_since, &*since_3.eras), (1, None, &[0, 1][..]));
/// assert_eq!(state.clone().with_since_3(since_3), Ok(state));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MetaSince3 {
    /// Number of merges that the cluster has done, at most [`ERA_MAX`].
    pub merge_count: u32,
    /// The epoch at which the merge that is under way began.
    pub merging_since: Option<Epoch>,
    /// The last merge, if it was given up.
    pub given_up: Option<GivenUpMerge>,
    /// The era of each shard, by number: at most `merge_count`.
    pub eras: Vec<u32>,
}

/// The two parts of a snapshot do not belong together: it is damaged. Do not use it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MetaSince3Error {
    /// The number of eras is not the number of shards.
    #[error("eras of {got} shards, expected {expected}")]
    OtherShards {
        /// Number of shards of the state.
        expected: usize,
        /// Number of eras.
        got: usize,
    },
    /// A shard was made after more merges than there were, or there were more than there can be.
    #[error(
        "era {era} after {merge_count} merges, expected at most as many, and at most {ERA_MAX}"
    )]
    LateEra {
        /// The last era.
        era: u32,
        /// Number of merges.
        merge_count: u32,
    },
    /// The last shard was not split from another one, or its group does not exist yet.
    #[error("the last of {shard_count} shards cannot be in a merge")]
    NoMerge {
        /// Number of shards.
        shard_count: usize,
    },
}

impl MetaState {
    /// What a snapshot of version 3 and later contains beside the state.
    #[must_use]
    pub fn since_3(&self) -> MetaSince3 {
        let map = &self.shard_map;
        let eras = map.shards.iter().map(|record| record.era).collect();
        MetaSince3 {
            merge_count: map.merge_count,
            merging_since: map.merging_since,
            given_up: map.given_up.clone(),
            eras,
        }
    }

    /// The decoded state together with what was encoded beside it.
    ///
    /// # Errors
    /// If the two do not belong together.
    pub fn with_since_3(mut self, since_3: MetaSince3) -> Result<Self, MetaSince3Error> {
        let MetaSince3 { merge_count, merging_since, given_up, eras } = since_3;
        let (expected, got) = (self.shard_map.shards.len(), eras.len());
        if expected != got {
            return Err(MetaSince3Error::OtherShards { expected, got });
        }
        let era = eras.iter().copied().max().unwrap_or(0);
        if era > merge_count || merge_count > ERA_MAX {
            return Err(MetaSince3Error::LateEra { era, merge_count });
        }
        for (record, era) in self.shard_map.shards.iter_mut().zip(eras) {
            record.era = era;
        }
        self.shard_map.merge_count = merge_count;
        (self.shard_map.merging_since, self.shard_map.given_up) = (merging_since, given_up);
        let may_merge = self.shard_map.merging().is_some() && self.shard_map.splitting().is_none();
        if merging_since.is_some() && !may_merge {
            return Err(MetaSince3Error::NoMerge { shard_count: expected });
        }
        Ok(self)
    }
}
