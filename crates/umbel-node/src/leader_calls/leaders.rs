//! Which node leads which group, as far as this node knows.

use umbel_engine::placement::{ShardMap, ShardRanges, ShardRecord};
use umbel_engine::{GroupId, NodeId, ShardId};
use umbel_ports::locked;

use super::LeaderCalls;

impl LeaderCalls {
    /// The leader of a shard, as far as this node knows.
    pub fn shard_leader_hint(&self, shard: ShardId) -> Option<NodeId> {
        let group = self.guess_meta(|state| state.shard(shard).map(ShardRecord::group)).ok()??;
        self.leader_hint(group)
    }

    pub(super) fn leader_hint(&self, group: GroupId) -> Option<NodeId> {
        let own = self.local.get()?.leader_of(group).and_then(|shard| shard.group().leader());
        own.or_else(|| self.known_leader(group))
    }

    pub(super) fn known_leader(&self, group: GroupId) -> Option<NodeId> {
        locked(&self.leaders).get(&group).copied()
    }

    /// Remembers what the node `asked` revealed about a group's leader; None forgets it as the leader.
    pub(super) fn note_leader(&self, group: GroupId, asked: NodeId, leader: Option<NodeId>) {
        let mut leaders = locked(&self.leaders);
        match leader {
            Some(leader) => {
                leaders.insert(group, leader);
            }
            None => {
                if leaders.get(&group) == Some(&asked) {
                    leaders.remove(&group);
                }
            }
        }
    }
}

/// The group that has the hashes of a shard which is gone; None if the shard is there, or never was.
pub fn absorbed_by(map: &ShardMap, shard: ShardId) -> Option<GroupId> {
    if map.merge_count == 0 || map.get(shard).is_some() {
        return None;
    }
    let before = ShardRanges::new(map.founded, shard.0.checked_add(1)?).ok()?;
    let mut parent = before.parent(shard)?;
    loop {
        match map.get(parent) {
            Some(record) => return Some(record.group()),
            None => parent = before.parent(parent)?,
        }
    }
}
