//! What merges with other shards leave in a shard's state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use crate::ids::{Epoch, GroupId, ShardId};

/// The entry after which a shard's state does not change any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fence {
    /// The group that absorbs the shard.
    pub into: GroupId,
    /// The epoch at which the catalogue began the merge.
    pub since: Epoch,
    /// Index of the entry in the log of the fenced shard.
    pub index: u64,
}

/// What merges left in a shard's state; nothing in most shards.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MergeMarks {
    /// The shard's own end.
    pub(super) fence: Option<Fence>,
    /// The latest merge that was given up, after which the shard was opened again.
    pub(super) given_up: Epoch,
    /// The latest era in which each shard was absorbed.
    pub(super) absorbed: BTreeMap<ShardId, u32>,
    /// For each shard, the latest final state that could not be absorbed: era and index of its fence.
    pub(super) refused: BTreeMap<ShardId, (u32, u64)>,
}

impl MergeMarks {
    /// The marks of a shard that was never part of a merge.
    pub(super) const NONE: Self = Self {
        fence: None,
        given_up: Epoch(0),
        absorbed: BTreeMap::new(),
        refused: BTreeMap::new(),
    };

    /// Whether no merge left anything.
    #[must_use]
    pub fn are_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Checks that the marks can be those of a shard. Every shard is absorbed by one with a lower number.
    pub(super) fn check(&self, shard: ShardId) -> Result<(), String> {
        if let Some(Fence { into, .. }) = self.fence
            && into.shard().is_none_or(|into| into >= shard)
        {
            return Err(format!("{shard} was fenced for {into}, expected a lower shard"));
        }
        match self.absorbed.keys().chain(self.refused.keys()).find(|&&other| other <= shard) {
            Some(other) => Err(format!("{shard} and {other} were merged, expected a higher shard")),
            None => Ok(()),
        }
    }

    pub(super) fn push_digest(&self, digest: &mut Digest) {
        // Shards without marks keep the digests that they had before there were merges.
        if self.are_none() {
            return;
        }
        if let Some(Fence { into, since, index }) = self.fence {
            digest.push(into.number().into());
            digest.push(since.0);
            digest.push(index);
        }
        digest.push(self.given_up.0);
        for (shard, &era) in &self.absorbed {
            digest.push(shard.0.into());
            digest.push(era.into());
        }
        for (shard, &(era, index)) in &self.refused {
            digest.push(shard.0.into());
            digest.push(era.into());
            digest.push(index);
        }
    }
}
