//! A leader has every entry that was committed under earlier leaders.
//!
//! Leader Completeness: "if a log entry is committed in a given term, then that entry will be
//! present in the logs of the leaders for all higher-numbered terms" (Ongaro & Ousterhout, USENIX
//! ATC 2014, figure 3). A leader of openraft is a term and a node, in that order.
//!
//! The leader under which an entry was committed is not reported; it was at most the highest leader at
//! the time when the entry was first applied.

use umbel_engine::NodeId;
use umbel_node::ports::observer::{EntryId, Event, GroupReport};

use super::facts::{GroupFacts, LeaderId};

/// Name in reports.
pub(super) const NAME: &str = "leader_completeness";

/// What is wrong with an event, if anything is.
pub(super) fn check(facts: &GroupFacts, node: NodeId, event: &Event<'_>) -> Option<String> {
    let Event::VoteSaved { vote, .. } = *event else { return None };
    if !vote.is_committed || vote.node != node {
        return None;
    }
    let needed = committed_before(facts, (vote.term, node))?;
    let replica = facts.replicas.get(&node);
    let has = replica.is_some_and(|replica| replica.has(needed));
    (!has).then(|| {
        let last = replica.and_then(|replica| replica.log.last());
        let term = vote.term;
        format!("{node} leads in term {term} without {needed:?}, its log ends with {last:?}")
    })
}

/// What is wrong with a report, if anything is.
pub(super) fn check_report(
    facts: &GroupFacts,
    node: NodeId,
    report: &GroupReport,
) -> Option<String> {
    if !report.is_leader {
        return None;
    }
    let needed = committed_before(facts, (report.term, node))?;
    let has = report.last.is_some_and(|last| last >= needed.index);
    (!has).then(|| {
        let (term, last) = (report.term, report.last);
        format!("{node} leads in term {term} without {needed:?}, its log ends with {last:?}")
    })
}

/// The last entry that was certainly committed before this leader was elected.
fn committed_before(facts: &GroupFacts, leader: LeaderId) -> Option<EntryId> {
    let mut applied = facts.applied.values().rev();
    applied.find(|applied| applied.under < Some(leader)).map(|applied| applied.entry)
}
