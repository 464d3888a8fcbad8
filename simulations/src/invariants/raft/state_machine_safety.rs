//! An index is applied with one entry everywhere, by a log that has it or in a snapshot.
//!
//! State Machine Safety: "if a server has applied a log entry at a given index to its state
//! machine, no other server will ever apply a different log entry for the same index" (Ongaro &
//! Ousterhout, USENIX ATC 2014, figure 3).

use umbel_engine::NodeId;
use umbel_node::ports::observer::{EntryId, Event};

use super::facts::GroupFacts;

/// Name in reports.
pub(super) const NAME: &str = "state_machine_safety";

/// What is wrong with an event, if anything is.
pub(super) fn check(facts: &GroupFacts, node: NodeId, event: &Event<'_>) -> Option<String> {
    match *event {
        Event::Applied { entry, .. } => applied(facts, node, entry),
        Event::SnapshotBuilt { through: Some(through), .. }
        | Event::SnapshotLoaded { through: Some(through), .. } => snapshot(facts, node, through),
        _ => None,
    }
}

fn applied(facts: &GroupFacts, node: NodeId, entry: EntryId) -> Option<String> {
    if let Some(known) = facts.applied.get(&entry.index)
        && known.entry != entry
    {
        return Some(format!("{node} applied {entry:?}, elsewhere it was {:?}", known.entry));
    }
    let held = facts.replicas.get(&node).and_then(|replica| replica.log.id(entry.index));
    if held != Some(entry) {
        return Some(format!("{node} applied {entry:?}, its log has {held:?} there"));
    }
    None
}

fn snapshot(facts: &GroupFacts, node: NodeId, through: EntryId) -> Option<String> {
    let known = facts.applied.get(&through.index).map(|applied| applied.entry);
    let is_right = known == Some(through);
    (!is_right).then(|| format!("{node} has a snapshot through {through:?}, applied was {known:?}"))
}
