//! Purged ≤ snapshot ≤ applied ≤ last, and nothing happens to a log before it is opened.
//!
//! A log is purged only up to a durable snapshot, a snapshot contains only applied entries, and only
//! entries in the log are applied (openraft's documentation of `RaftMetrics` and `IOState`; its own
//! simulation checks the same order).

use umbel_engine::NodeId;
use umbel_node::ports::observer::{EntryId, Event, GroupReport};

use super::facts::GroupFacts;

/// Name in reports.
pub(super) const NAME: &str = "order";

/// What is wrong with an event, if anything is.
pub(super) fn check(facts: &GroupFacts, node: NodeId, event: &Event<'_>) -> Option<String> {
    let replica = facts.replicas.get(&node)?;
    let index = |entry: Option<EntryId>| entry.map(|entry| entry.index);
    match *event {
        Event::Purged { through, .. } if index(replica.snapshot) < Some(through.index) => {
            let snapshot = replica.snapshot;
            Some(format!(
                "{node} purges through {through:?} behind a snapshot through {snapshot:?}"
            ))
        }
        Event::SnapshotBuilt { through, .. } if index(replica.applied) < index(through) => {
            let applied = replica.applied;
            Some(format!("{node} built a snapshot through {through:?}, applied is {applied:?}"))
        }
        _ => None,
    }
}

/// What is wrong with a report, if anything is.
pub(super) fn check_report(node: NodeId, report: &GroupReport) -> Option<String> {
    let index = |entry: Option<EntryId>| entry.map(|entry| entry.index);
    let GroupReport { purged, snapshot, applied, last, .. } = *report;
    let is_ordered = index(purged) <= index(snapshot)
        && index(snapshot) <= index(applied)
        && index(applied) <= last;
    (!is_ordered).then(|| {
        format!(
            "{node}: purged {purged:?}, snapshot {snapshot:?}, applied {applied:?}, last {last:?}"
        )
    })
}
