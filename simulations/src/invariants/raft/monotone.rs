//! Saved votes never decrease; terms and applied entries rise while a node runs, the latter by one at a
//! time.
//!
//! Figure 2 of Ongaro & Ousterhout (USENIX ATC 2014): the current term "increases monotonically",
//! and so does the index of the last applied entry, which are applied in the order of the log.

use umbel_engine::NodeId;
use umbel_node::ports::observer::{EntryId, Event, GroupReport, VoteId};

use super::facts::GroupFacts;

/// Name in reports.
pub(super) const NAME: &str = "monotone";

/// What is wrong with an event, if anything is.
pub(super) fn check(facts: &GroupFacts, node: NodeId, event: &Event<'_>) -> Option<String> {
    let replica = facts.replicas.get(&node)?;
    let applied = replica.applied;
    match *event {
        Event::VoteSaved { vote, .. } => {
            let rank = |vote: VoteId| (vote.term, vote.node, vote.is_committed);
            let before = replica.vote.filter(|before| rank(*before) > rank(vote))?;
            Some(format!("{node} saved {vote:?} after {before:?}"))
        }
        Event::Applied { entry, .. } => {
            let next = applied.map_or(0, |applied| applied.index + 1);
            (entry.index != next).then(|| {
                format!("{node} applied {entry:?} after {applied:?}, next is index {next}")
            })
        }
        Event::SnapshotLoaded { through, .. } => {
            let index = |entry: Option<EntryId>| entry.map(|entry| entry.index);
            (index(through) < index(applied))
                .then(|| format!("{node} loaded a snapshot through {through:?} after {applied:?}"))
        }
        _ => None,
    }
}

/// What is wrong with a report, if anything is.
pub(super) fn check_report(
    facts: &GroupFacts,
    node: NodeId,
    report: &GroupReport,
) -> Option<String> {
    let replica = facts.replicas.get(&node)?;
    let applied = report.applied.map(|applied| applied.index);
    if report.term < replica.term_reported {
        let (term, before) = (report.term, replica.term_reported);
        return Some(format!("{node} is in term {term}, was in {before}"));
    }
    (applied < replica.applied_reported)
        .then(|| format!("{node} has applied {applied:?}, had {:?}", replica.applied_reported))
}
