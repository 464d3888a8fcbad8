//! Promises of groups whose log holds less than their replica has promised: the replica left this node
//! and may return, or the disk lost entries.

use std::collections::BTreeMap;

use umbel_engine::GroupId;

use crate::types::{LogId, Vote};

/// The promises of a replica that left. Without them, a later replica on the same node could vote twice
/// in a term, or vote and stand for election with a log that lacks entries that were once acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Left {
    /// The replica's last vote.
    pub(super) vote: Option<Vote>,
    /// The last entry of its log.
    pub(super) last: Option<LogId>,
}

/// Groups that left this node or lost entries. A group that returned stays here until its log reaches
/// again as far as before.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct LeftGroups(BTreeMap<GroupId, Left>);

impl LeftGroups {
    /// Records a group that leaves.
    pub(super) fn insert(&mut self, group: GroupId, left: Left) {
        self.0.insert(group, left);
    }

    /// Records that a running group has confirmed entries up to `last`, which its log does not hold.
    pub(super) fn lost(&mut self, group: GroupId, vote: Option<Vote>, last: LogId) -> Left {
        let left = Left { vote, last: self.floor(group).max(Some(last)) };
        self.0.insert(group, left);
        left
    }

    /// Removes everything about a group that is gone for good.
    pub(super) fn remove(&mut self, group: GroupId) {
        self.0.remove(&group);
    }

    /// Whether there are promises of a group.
    pub(super) fn has(&self, group: GroupId) -> bool {
        self.0.contains_key(&group)
    }

    /// The vote with which a returning group starts.
    pub(super) fn vote(&self, group: GroupId) -> Option<Vote> {
        self.0.get(&group)?.vote
    }

    /// The entry that a group's log must reach before its replica takes part in elections.
    pub(super) fn floor(&self, group: GroupId) -> Option<LogId> {
        self.0.get(&group)?.last
    }

    /// Reports where the log of a group that returned now ends.
    pub(super) fn reached(&mut self, group: GroupId, last: Option<LogId>) {
        if self.0.get(&group).is_some_and(|left| last >= left.last) {
            self.0.remove(&group);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (GroupId, Left)> {
        self.0.iter().map(|(group, left)| (*group, *left))
    }
}
