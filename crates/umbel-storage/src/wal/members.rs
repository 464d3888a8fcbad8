//! Which entries of the log name members of their groups, without reading any.

use std::collections::{BTreeMap, BTreeSet};

use openraft::EntryPayload;
use serde::Deserialize;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::encoding::{decode, decode_head};

use super::chain::Chain;
use crate::types::{LogEntry, LogId};

/// The voters of a group: one set, or two in a joint configuration.
pub(crate) type Voters = Vec<BTreeSet<NodeId>>;

/// The kinds of [`EntryPayload`], as the encoding of an entry begins after its id.
#[derive(Deserialize)]
enum PayloadKind {
    Blank,
    Normal,
    Membership,
}

/// Entries that name members, by group in the order of their indexes; also some that the log no longer has.
#[derive(Default)]
pub(super) struct MemberEntries(BTreeMap<GroupId, Vec<(LogId, Voters)>>);

impl MemberEntries {
    /// Notes an entry that was appended, if it names members.
    pub(super) fn note(&mut self, group: GroupId, entry: &LogEntry) {
        let EntryPayload::Membership(members) = &entry.payload else { return };
        let known = self.0.entry(group).or_default();
        // It takes the place of the entries from its index on.
        known.retain(|(id, _)| id.index < entry.log_id.index);
        known.push((entry.log_id, members.get_joint_config().clone()));
    }

    /// The same for an encoded entry. Whoever reads one that cannot be decoded is told.
    pub(super) fn note_encoded(&mut self, group: GroupId, bytes: &[u8]) {
        let head = decode_head::<(LogId, PayloadKind)>(bytes);
        if let Ok(((_, PayloadKind::Membership), _)) = head
            && let Ok(entry) = decode(bytes)
        {
            self.note(group, &entry);
        }
    }

    /// Those that a log with this chain has, the oldest first.
    pub(super) fn of(&self, group: GroupId, chain: &Chain) -> Vec<(LogId, Voters)> {
        let known = self.0.get(&group).into_iter().flatten();
        known.filter(|(id, _)| chain.log_id(id.index) == Some(*id)).cloned().collect()
    }

    /// Drops those up to an index: the entries are purged.
    pub(super) fn purge(&mut self, group: GroupId, through: u64) {
        if let Some(known) = self.0.get_mut(&group) {
            known.retain(|(id, _)| id.index > through);
        }
    }

    /// Drops those of a group that left.
    pub(super) fn remove(&mut self, group: GroupId) {
        self.0.remove(&group);
    }
}
