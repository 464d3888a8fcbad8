//! When an entry is first applied anywhere, it is durable on a majority of the voters.
//!
//! "A log entry is committed once the leader that created the entry has replicated it on a
//! majority of the servers" (Ongaro & Ousterhout, USENIX ATC 2014, section 5.3), on stable storage
//! (figure 2), and in a joint configuration on "separate majorities from both the old and new
//! configurations" (section 6).
//!
//! A voter whose disk is lost may have confirmed what it had until then, and its leader counts that.
//!
//! A leader uses the newest voters in its log, which may come after the entry. If there are such, a
//! majority of those suffices.

use umbel_engine::NodeId;
use umbel_node::ports::observer::{EntryId, Event};

use super::facts::{GroupFacts, Voters, is_quorum};

/// Name in reports.
pub(super) const NAME: &str = "committed_on_quorum";

/// What is wrong with an event, if anything is.
pub(super) fn check(facts: &GroupFacts, node: NodeId, event: &Event<'_>) -> Option<String> {
    let Event::Applied { entry, .. } = *event else { return None };
    if facts.applied.contains_key(&entry.index) {
        return None;
    }
    let has = |voter: NodeId| {
        facts.replicas.get(&voter).is_some_and(|replica| replica.may_have_confirmed(entry))
    };
    let mut candidates = in_force(facts, entry).peekable();
    if candidates.peek().is_none() || candidates.any(|voters| is_quorum(voters, has)) {
        return None;
    }
    let voters: Vec<&Voters> = in_force(facts, entry).collect();
    let holders: Vec<NodeId> = facts.replicas.keys().copied().filter(|&node| has(node)).collect();
    Some(format!("{node} applied {entry:?}, durable on {holders:?} only; voters {voters:?}"))
}

/// The voters in force at an entry, and all that were proposed after it.
fn in_force(facts: &GroupFacts, entry: EntryId) -> impl Iterator<Item = &Voters> {
    let is_before = |id: EntryId| id == entry || (id.index < entry.index && facts.is_applied(id));
    let before = facts.voters.iter().filter(move |(id, _)| is_before(**id));
    let newest = before.max_by_key(|(id, _)| id.index);
    let behind = facts.voters.iter().filter(move |(id, _)| id.index > entry.index);
    newest.into_iter().chain(behind).map(|(_, voters)| voters)
}
