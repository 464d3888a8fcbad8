//! Terms that no election can have led to. A term only rises, so one near the end of its range would end
//! elections for ever.

use thiserror::Error;

use crate::raft::types::{Entry, Vote};

/// How far a term may be above that of the replica that learns of it. A replica that is away misses one
/// term an election: at ten elections a second, this many take thirteen years.
pub(crate) const TERM_LEAP_MAX: u64 = 1 << 32;

/// A node says something of a term that no election can have led to. Nothing of it was taken. Look at
/// that node: its disk or its memory is damaged, or it is not what it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum AbsurdTerm {
    /// It is too far above the own one.
    #[error(
        "term {got} is more than {TERM_LEAP_MAX} above this replica's {ours}: no election leads there; \
         look at the node that says so"
    )]
    Leap {
        /// The term of this replica.
        ours: u64,
        /// What came.
        got: u64,
    },
    /// A leader sends an entry of a term that is yet to come.
    #[error("an entry of term {entry} comes from a leader of term {leader}: look at that node")]
    Ahead {
        /// The leader's term.
        leader: u64,
        /// The entry's.
        entry: u64,
    },
}

/// Whether a replica in the term `ours` can learn of this vote.
pub(crate) const fn check_vote(ours: u64, vote: &Vote) -> Result<(), AbsurdTerm> {
    let got = vote.leader_id.term;
    if got > ours.saturating_add(TERM_LEAP_MAX) {
        return Err(AbsurdTerm::Leap { ours, got });
    }
    Ok(())
}

/// Whether entries can come from the leader of this vote.
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
