//! No log removes an entry that was applied anywhere.
//!
//! "Raft guarantees that committed entries are durable" (Ongaro & Ousterhout, USENIX ATC 2014,
//! section 5.3); a follower deletes an entry only if it conflicts with one of the leader.
//!
//! A snapshot that conflicts with a log replaces everything in the log that is not known there to be
//! committed, and some of that may be right: a log with an entry at an index where another one was
//! applied may lose any entries.

use umbel_engine::NodeId;
use umbel_node::ports::observer::Event;

use super::facts::{GroupFacts, Replica};

/// Name in reports.
pub(super) const NAME: &str = "committed_is_immutable";

/// The violation that an event shows, if any.
pub(super) fn check(facts: &GroupFacts, node: NodeId, event: &Event<'_>) -> Option<String> {
    let replica = facts.replicas.get(&node)?;
    let from = match *event {
        Event::Truncated { after, .. } => after.map_or(0, |after| after + 1),
        // The entry takes the place of one that is there.
        Event::Appended { entry, .. } if entry.index < replica.log.next() => entry.index,
        _ => return None,
    };
    if is_conflicting(facts, replica) {
        return None;
    }
    let mut gone = replica.log.ids().filter(|entry| entry.index >= from);
    let entry = gone.find(|&entry| facts.is_applied(entry))?;
    Some(format!("{node} takes back {entry:?}, which was applied"))
}

/// Whether the log has an entry at an index where another one was applied.
fn is_conflicting(facts: &GroupFacts, replica: &Replica) -> bool {
    let applied = |index| facts.applied.get(&index).map(|applied| applied.entry);
    // Entries that conflict stand behind those that do not.
    let mut ids = replica.log.ids().rev().skip_while(|entry| applied(entry.index).is_none());
    ids.next().is_some_and(|entry| applied(entry.index) != Some(entry))
}
