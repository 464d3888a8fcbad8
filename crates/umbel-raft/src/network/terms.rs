//! Rejects terms that no election can have reached. Terms only rise, so one near the end of its range
//! would make elections impossible for ever.

use thiserror::Error;
use umbel_storage::types::{Entry, Vote};

/// How far a term may exceed the replica's own. A replica that is offline misses one term per election:
/// at ten elections a second, it would miss this many in thirteen years.
pub(crate) const TERM_LEAP_MAX: u64 = 1 << 32;

/// A node sent a term that no election can have reached; the message was rejected as a whole. Check
/// that node: its disk or memory is damaged, or it is not the node that it claims to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum AbsurdTerm {
    /// The term is too far above this replica's own.
    #[error(
        "term {got} is more than {TERM_LEAP_MAX} above this replica's {ours}: no election leads there; \
         look at the node that says so"
    )]
    Leap {
        /// The term of this replica.
        ours: u64,
        /// The term that was received.
        got: u64,
    },
    /// A leader sent an entry of a later term than its own.
    #[error("an entry of term {entry} comes from a leader of term {leader}: look at that node")]
    Ahead {
        /// The leader's term.
        leader: u64,
        /// The entry's term.
        entry: u64,
    },
}

/// Checks that a replica in the term `ours` may accept this vote.
pub(crate) const fn check_vote(ours: u64, vote: &Vote) -> Result<(), AbsurdTerm> {
    let got = vote.leader_id.term;
    if got > ours.saturating_add(TERM_LEAP_MAX) {
        return Err(AbsurdTerm::Leap { ours, got });
    }
    Ok(())
}

/// Checks that the entries may come from the leader with this vote.
pub(crate) fn check_entries(vote: &Vote, entries: &[Entry]) -> Result<(), AbsurdTerm> {
    let leader = vote.leader_id.term;
    let ahead = entries.iter().map(|entry| entry.log_id.leader_id.term).find(|&term| term > leader);
    ahead.map_or(Ok(()), |entry| Err(AbsurdTerm::Ahead { leader, entry }))
}

#[cfg(test)]
mod tests {
    use umbel_engine::NodeId;

    use super::*;

    #[test]
    fn what_elections_lead_to_passes() {
        for (ours, got) in [(0, 0), (0, TERM_LEAP_MAX), (9, 3), (7, 7 + TERM_LEAP_MAX)] {
            assert_eq!(check_vote(ours, &Vote::new(got, NodeId(2))), Ok(()), "{ours} {got}");
        }
        for (ours, got) in [(0, TERM_LEAP_MAX + 1), (7, u64::MAX)] {
            let refused = check_vote(ours, &Vote::new(got, NodeId(2)));
            assert_eq!(refused, Err(AbsurdTerm::Leap { ours, got }));
        }
        assert_eq!(check_vote(u64::MAX, &Vote::new(u64::MAX, NodeId(2))), Ok(()));
    }
}
