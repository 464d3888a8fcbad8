//! What this node knows about another one.

use std::collections::BTreeMap;

use super::{Beat, LedVersion, UNREACHABLE_MIN};
use crate::GroupId;
use crate::limits::SHARD_COUNT_MAX;

/// A peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) is_alive: bool,
    /// Since when it is alive.
    pub(super) alive_since_ms: Option<u64>,
    /// When the last message from it arrived.
    pub(super) received_ms: Option<u64>,
    /// Failed attempts to reach it since then.
    pub(super) unreachable_count: u32,
    /// The version of its list that this node has.
    pub(super) version: Option<LedVersion>,
    /// The version of this node's list that it has.
    pub(super) has_of_us: Option<LedVersion>,
    /// Its list: the term of each group that it leads.
    leads: BTreeMap<GroupId, u64>,
}

impl Peer {
    /// Handles a beat. Returns true if the node was not alive, or its process is a new one.
    pub(super) fn receive(&mut self, now_ms: u64, beat: Beat) -> bool {
        let is_other_process =
            self.version.is_some_and(|ours| ours.incarnation != beat.version.incarnation);
        if is_other_process {
            self.version = None;
            self.leads.clear();
        }
        // Messages may be reordered; an older list is outdated.
        let is_newer = self.version.is_none_or(|ours| ours.number < beat.version.number);
        if let Some(leads) = beat.leads
            && is_newer
            && leads.len() <= SHARD_COUNT_MAX as usize + 1
        {
            self.leads = leads.into_iter().map(|led| (led.group, led.term)).collect();
            self.version = Some(beat.version);
        }
        self.has_of_us = beat.has;
        self.received_ms = Some(now_ms);
        self.unreachable_count = 0;
        let is_news = !self.is_alive || is_other_process;
        if is_news {
            self.alive_since_ms = Some(now_ms);
        }
        self.is_alive = true;
        is_news
    }

    /// Whether it must be suspected.
    pub(super) fn is_gone(&self, now_ms: u64, suspect_ms: u64) -> bool {
        let is_silent =
            self.received_ms.is_none_or(|received_ms| now_ms > received_ms + suspect_ms);
        is_silent || self.unreachable_count >= UNREACHABLE_MIN
    }

    /// Marks it as dead.
    pub(super) fn lose(&mut self) {
        self.is_alive = false;
        self.alive_since_ms = None;
    }

    /// Whether it is alive and leads a group in this term or a later one.
    pub(super) fn leads(&self, group: GroupId, term: u64) -> bool {
        self.is_alive && self.leads.get(&group).is_some_and(|&of_peer| of_peer >= term)
    }
}
