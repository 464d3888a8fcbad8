//! A group without a live leader, as this node sees it.

use super::Timing;

/// Doublings of a waiting time at most: eight suspicions are some seconds.
const DOUBLINGS_MAX: u32 = 3;

/// A group without a live leader.
#[derive(Debug)]
pub(super) struct Vacancy {
    /// Since when; since the last time that this node asked, or that anybody stood.
    since_ms: u64,
    term: u64,
    /// Times that this node has asked for votes in this term.
    ask_count: u32,
    /// Terms that have begun since the leader was lost.
    election_count: u32,
}

impl Vacancy {
    pub(super) const fn new(now_ms: u64, term: u64) -> Self {
        Self { since_ms: now_ms, term, ask_count: 0, election_count: 0 }
    }

    /// Another term means that somebody stands: that one is given time.
    pub(super) const fn note_term(&mut self, now_ms: u64, term: u64) {
        if self.term != term {
            self.term = term;
            self.since_ms = now_ms;
            self.ask_count = 0;
            self.election_count = self.election_count.saturating_add(1);
        }
    }

    /// Whether it is this node's turn, after so many others.
    ///
    /// Where the leader is known to be gone, the first in turn asks at once. The others may find that out some time later,
    /// and refuse until then: so it asks again soon, which costs a message each and no term. Where the leader is not
    /// known to be gone, its claim may be on its way, or an election: that takes less than a suspicion. Those behind wait
    /// half of one for each before them, which is several round trips and syncs.
    pub(super) fn is_due(
        &self,
        now_ms: u64,
        is_known_vacant: bool,
        turn: u64,
        timing: Timing,
    ) -> bool {
        let Timing { beat_ms, suspect_ms } = timing;
        let patience_ms = match (self.ask_count, self.election_count) {
            (0, 0) if is_known_vacant => 0,
            (0, elections) => suspect_ms << elections.saturating_sub(1).min(DOUBLINGS_MAX),
            (asks, _) => (beat_ms << (asks - 1).min(8)).min(suspect_ms << DOUBLINGS_MAX),
        };
        let turn_ms = if self.ask_count == 0 { turn * (suspect_ms / 2) } else { 0 };
        now_ms >= self.since_ms + patience_ms + turn_ms
    }

    /// This node asks for votes now.
    pub(super) const fn asked(&mut self, now_ms: u64) {
        self.since_ms = now_ms;
        self.ask_count = self.ask_count.saturating_add(1);
    }
}
