//! What the log keeps of groups that have promised more than their log holds: they left this node and
//! may come back, or the disk lost something.

use std::collections::BTreeMap;

use umbel_engine::GroupId;

use crate::raft::types::{LogId, Vote};

/// What a replica that left has promised: without it a replica of the same node could vote twice in a
/// term, or vote and stand for election on the ground of a log that lacks what it once acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Left {
    /// Its last vote.
    pub(super) vote: Option<Vote>,
    /// The last entry of its log.
    pub(super) last: Option<LogId>,
}

/// Groups that left this node, and such that lost entries. One that is back stays here until its log
/// holds again as much as it did.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct LeftGroups(BTreeMap<GroupId, Left>);

impl LeftGroups {
    /// Notes a group that leaves.
    pub(super) fn insert(&mut self, group: GroupId, left: Left) {
        self.0.insert(group, left);
    }

    /// A group that is here has confirmed more than its log holds: so much.
    pub(super) fn lost(&mut self, group: GroupId, vote: Option<Vote>, last: LogId) -> Left {
        let left = Left { vote, last: self.floor(group).max(Some(last)) };
        self.0.insert(group, left);
        left
    }

    /// Nothing is kept of a group that is gone for good.
    pub(super) fn remove(&mut self, group: GroupId) {
        self.0.remove(&group);
    }

    /// Whether anything is kept of a group.
    pub(super) fn has(&self, group: GroupId) -> bool {
        self.0.contains_key(&group)
    }

    /// The vote with which a group comes back.
    pub(super) fn vote(&self, group: GroupId) -> Option<Vote> {
        self.0.get(&group)?.vote
    }

    /// The entry that a group's log must reach before it takes part in elections.
    pub(super) fn floor(&self, group: GroupId) -> Option<LogId> {
        self.0.get(&group)?.last
    }

    /// The log of a group that is back ends here.
    pub(super) fn reached(&mut self, group: GroupId, last: Option<LogId>) {
        if self.0.get(&group).is_some_and(|left| last >= left.last) {
            self.0.remove(&group);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (GroupId, Left)> {
        self.0.iter().map(|(group, left)| (*group, *left))
    }
}
