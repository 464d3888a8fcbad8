//! Rejects terms that no election can have reached. Terms only rise, so one near the end of its range
//! would make elections impossible for ever. And rejects snapshots that end where none can, and indices
//! that no log reaches: openraft panics at those.

use thiserror::Error;
use umbel_storage::types::{LogEntry, LogId, Vote};

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

/// Largest index that is taken: at a million entries a second, a log would reach it in 146,000 years. openraft adds to
/// indices without a check.
pub(crate) const INDEX_MAX: u64 = 1 << 62;

/// A node sent the index of an entry that no log reaches; the message was rejected as a whole. Check that node: its disk
/// or memory is damaged, or it is not the node that it claims to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "index {got} of an entry is more than {INDEX_MAX}: no log reaches that; look at the node that says so"
)]
pub(crate) struct AbsurdIndex {
    /// The index that was received.
    got: u64,
}

/// Checks that a log may have these entries.
pub(crate) fn check_indices(ids: impl IntoIterator<Item = LogId>) -> Result<(), AbsurdIndex> {
    let absurd = ids.into_iter().map(|id| id.index).find(|&index| index > INDEX_MAX);
    absurd.map_or(Ok(()), |got| Err(AbsurdIndex { got }))
}

/// A node sent a snapshot that ends where none of its group can; it was refused as a whole. Check that
/// node, and the one that refused: the disk or memory of one of them is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum AbsurdSnapshot {
    /// It ends with an entry of a later leader than the one that sent it.
    #[error(
        "a snapshot up to entry {} of term {} by {} comes from the leader of term {}, {}: look at that node",
        .last.index, .last.leader_id.term, .last.leader_id.node_id,
        .vote.leader_id.term, .vote.leader_id.node_id
    )]
    Ahead {
        /// The vote of the leader that sent it.
        vote: Vote,
        /// The last entry that it covers.
        last: LogId,
    },
    /// Another entry is committed at the index where it ends, or after it.
    #[error(
        "a snapshot up to entry {} of term {} contradicts entry {} of term {}, which is committed here: \
         look at both nodes",
        .last.index, .last.leader_id.term, .committed.index, .committed.leader_id.term
    )]
    Contradicts {
        /// The last entry that is committed, as far as this replica knows.
        committed: LogId,
        /// The last entry that the snapshot covers.
        last: LogId,
    },
}

/// Checks that a replica that knows entries to be committed up to `committed` may install a snapshot up to
/// `last` from the leader with this vote.
pub(crate) fn check_snapshot(
    vote: &Vote,
    last: Option<LogId>,
    committed: Option<LogId>,
) -> Result<(), AbsurdSnapshot> {
    let Some(last) = last else { return Ok(()) };
    if last.leader_id > vote.leader_id {
        return Err(AbsurdSnapshot::Ahead { vote: *vote, last });
    }
    match committed {
        Some(committed) if last > committed && last.index <= committed.index => {
            Err(AbsurdSnapshot::Contradicts { committed, last })
        }
        _ => Ok(()),
    }
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
pub(crate) fn check_entries(vote: &Vote, entries: &[LogEntry]) -> Result<(), AbsurdTerm> {
    let leader = vote.leader_id.term;
    let ahead = entries.iter().map(|entry| entry.log_id.leader_id.term).find(|&term| term > leader);
    ahead.map_or(Ok(()), |entry| Err(AbsurdTerm::Ahead { leader, entry }))
}

#[cfg(test)]
mod tests {
    use umbel_engine::NodeId;
    use umbel_storage::testing::id;

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

    #[test]
    fn indices_that_a_log_reaches_pass() {
        assert_eq!(check_indices(None::<LogId>), Ok(()));
        assert_eq!(check_indices([id(5, 0), id(5, INDEX_MAX)]), Ok(()));
        for got in [INDEX_MAX + 1, u64::MAX] {
            assert_eq!(check_indices([id(5, 7), id(5, got)]), Err(AbsurdIndex { got }));
        }
    }

    #[test]
    fn snapshots_end_where_their_leader_and_the_committed_entries_allow() {
        let vote = Vote::new_committed(5, NodeId(1));
        for (last, committed) in [
            (None, Some(id(5, 9))),
            (Some(id(5, 9)), None),
            (Some(id(4, 9)), Some(id(4, 9))),
            // One that is older than what is committed has no effect.
            (Some(id(3, 7)), Some(id(4, 9))),
            (Some(id(5, 10)), Some(id(4, 9))),
        ] {
            assert_eq!(check_snapshot(&vote, last, committed), Ok(()), "{last:?} {committed:?}");
        }
        let (last, committed) = (id(6, 10), id(4, 9));
        let refused = check_snapshot(&vote, Some(last), Some(committed));
        assert_eq!(refused, Err(AbsurdSnapshot::Ahead { vote, last }));
        // Another leader of the same term.
        let vote_before = Vote::new_committed(6, NodeId(0));
        let refused = check_snapshot(&vote_before, Some(last), None).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "a snapshot up to entry 10 of term 6 by node 1 comes from the leader of term 6, node 0: look at that node"
        );
        for index in [8, 9] {
            let last = id(5, index);
            let refused = check_snapshot(&vote, Some(last), Some(committed));
            assert_eq!(refused, Err(AbsurdSnapshot::Contradicts { committed, last }));
        }
    }
}
