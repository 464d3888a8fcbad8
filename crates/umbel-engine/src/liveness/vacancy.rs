//! A group without a live leader, as this node sees it.

use super::Timing;

/// Most doublings of a waiting time: eight suspect timeouts are a few seconds.
const DOUBLINGS_MAX: u32 = 3;

/// A group without a live leader.
#[derive(Debug)]
pub(super) struct Vacancy {
    /// When the vacancy began, this node last asked for votes, or the term last changed.
    since_ms: u64,
    term: u64,
    /// How often this node has asked for votes in this term.
    request_count: u32,
    /// Terms that began since the leader was lost.
    election_count: u32,
}

impl Vacancy {
    pub(super) const fn new(now_ms: u64, term: u64) -> Self {
        Self { since_ms: now_ms, term, request_count: 0, election_count: 0 }
    }

    /// A new term means that another replica stands: gives it time.
    pub(super) const fn note_term(&mut self, now_ms: u64, term: u64) {
        if self.term != term {
            self.term = term;
            self.since_ms = now_ms;
            self.request_count = 0;
            self.election_count = self.election_count.saturating_add(1);
        }
    }

    /// Whether this node should stand now; `turn` is the number of live voters before it.
    ///
    /// If the leader is known to be gone, the first in turn asks for votes at once. The other nodes may
    /// find out some time later and refuse until then, so it asks again soon; that costs a message to each
    /// and no term. If the leader is not known to be gone, its beat or an election may be under way, which
    /// takes less than a suspect timeout. Each later node in turn waits half a suspect timeout more per
    /// node before it, which is several round trips and syncs.
    pub(super) fn is_due(
        &self,
        now_ms: u64,
        is_known_vacant: bool,
        turn: u64,
        timing: Timing,
    ) -> bool {
        let Timing { beat_ms, suspect_ms } = timing;
        let patience_ms = match (self.request_count, self.election_count) {
            (0, 0) if is_known_vacant => 0,
            (0, elections) => suspect_ms << elections.saturating_sub(1).min(DOUBLINGS_MAX),
            (asks, _) => (beat_ms << (asks - 1).min(8)).min(suspect_ms << DOUBLINGS_MAX),
        };
        let turn_ms = if self.request_count == 0 { turn * (suspect_ms / 2) } else { 0 };
        now_ms >= self.since_ms + patience_ms + turn_ms
    }

    /// Records that this node asks for votes now.
    pub(super) const fn asked(&mut self, now_ms: u64) {
        self.since_ms = now_ms;
        self.request_count = self.request_count.saturating_add(1);
    }
}
