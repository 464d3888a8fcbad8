//! What this node knows about another one.

use std::collections::BTreeMap;

use super::{Beat, LedVersion, Timing, UNREACHABLE_MIN};
use crate::GroupId;
use crate::limits::SHARD_COUNT_MAX;

/// How many suspect timeouts the last beat over a peer's own link may be old if that link works: the node with the
/// higher number sends one in each, and it may come late.
const CALL_SUSPICIONS: u64 = 2;

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
    /// Whether it was heard over its own link after so many failed attempts to reach it that it was suspected, and has
    /// answered nothing since: such attempts do not tell that it is gone.
    is_heard_nonetheless: bool,
    /// When the last beat over its own link arrived.
    pub(super) called_ms: Option<u64>,
    /// When this node last sent it a beat over its own link.
    pub(super) asked_ms: Option<u64>,
    /// When this node sent the first of those that it has not answered.
    pub(super) unanswered_ms: Option<u64>,
    /// Whether it has left them unanswered for so long that this node's link to it does not work.
    pub(super) is_out_of_reach: bool,
    /// Whether operators were told so since its last answer.
    is_reported: bool,
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

    /// Notes that a beat over its own link arrived, before [`Peer::receive`] handles that.
    pub(super) const fn called(&mut self, now_ms: u64) {
        self.called_ms = Some(now_ms);
        if self.unreachable_count >= UNREACHABLE_MIN {
            self.is_heard_nonetheless = true;
        }
    }

    /// Notes that it answered a beat that this node sent over its own link. Returns true if operators were told that
    /// it does not.
    pub(super) const fn answered(&mut self) -> bool {
        let was_reported = self.is_reported;
        self.unanswered_ms = None;
        self.is_out_of_reach = false;
        self.is_heard_nonetheless = false;
        self.is_reported = false;
        was_reported
    }

    /// Whether operators must be told now that it is heard and out of reach, and if so, for how long this has been so.
    /// They are told once until it answers. A node that was silent and is heard again is first given `patience_ms`,
    /// in which this node's link to it is opened again.
    pub(super) fn report(&mut self, now_ms: u64, patience_ms: u64) -> Option<u64> {
        let since_ms = self.unanswered_ms?.max(self.alive_since_ms?);
        let unanswered_ms = now_ms.saturating_sub(since_ms);
        let is_due = self.is_out_of_reach && !self.is_reported && unanswered_ms > patience_ms;
        self.is_reported |= is_due;
        is_due.then_some(unanswered_ms)
    }

    /// Whether the node with the higher number sends it a beat, too.
    pub(super) fn is_due(&self, now_ms: u64, timing: Timing) -> bool {
        let Timing { beat_ms, suspect_ms } = timing;
        let is_missed = self.received_ms.is_none_or(|at_ms| now_ms >= at_ms + 2 * beat_ms);
        let is_turn = self.asked_ms.is_none_or(|at_ms| now_ms >= at_ms + suspect_ms);
        is_missed || is_turn || self.unanswered_ms.is_some()
    }

    /// Notes that this node sends it a beat.
    pub(super) fn ask(&mut self, now_ms: u64) {
        self.asked_ms = Some(now_ms);
        self.unanswered_ms.get_or_insert(now_ms);
    }

    /// Whether it has left a beat of this node, and all since, unanswered for longer than this.
    pub(super) fn is_unanswered_for(&self, now_ms: u64, for_ms: u64) -> bool {
        self.unanswered_ms.is_some_and(|at_ms| now_ms > at_ms + for_ms)
    }

    /// Whether its own link to this node works.
    pub(super) fn has_called(&self, now_ms: u64, timing: Timing) -> bool {
        let patience_ms = CALL_SUSPICIONS * timing.suspect_ms;
        self.called_ms.is_some_and(|at_ms| now_ms <= at_ms + patience_ms)
    }

    /// Whether it must be suspected. Of a node that is out of reach, or known to live while attempts to reach it fail,
    /// a beat comes only every few intervals: it would be suspected between each two, and trusted at the second.
    pub(super) fn is_gone(&self, now_ms: u64, suspect_ms: u64) -> bool {
        let is_silent =
            self.received_ms.is_none_or(|received_ms| now_ms > received_ms + suspect_ms);
        let is_reachable = !self.is_out_of_reach && !self.is_heard_nonetheless;
        is_silent || is_reachable && self.unreachable_count >= UNREACHABLE_MIN
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
