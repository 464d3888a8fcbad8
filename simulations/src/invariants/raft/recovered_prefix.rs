//! A start finds everything that was reported durable before, and nothing that was never written.
//!
//! Figure 2 of Ongaro & Ousterhout (USENIX ATC 2014) asks for term, vote and log to be "updated on
//! stable storage before responding to RPCs". A node whose disk was lost comes back under another
//! number, for a voter that forgot its vote could vote twice.

use umbel_engine::NodeId;
use umbel_node::ports::observer::{EntryId, Event, VoteId};

use super::facts::{GroupFacts, Replica};

/// Name in reports.
pub(super) const NAME: &str = "recovered_prefix";

/// What is wrong with an event, if anything is.
pub(super) fn check(facts: &GroupFacts, node: NodeId, event: &Event<'_>) -> Option<String> {
    let replica = facts.replicas.get(&node)?;
    match *event {
        Event::LogOpened { purged, last, ends, vote, .. } => {
            let found = FoundLog { purged, last, ends };
            check_vote(node, replica, vote).or_else(|| check_log(facts, node, replica, &found))
        }
        Event::SnapshotLoaded { through, .. } if !replica.has_state => {
            check_snapshot(node, replica, through)
        }
        Event::Applied { .. } if !replica.has_state => check_snapshot(node, replica, None),
        Event::VoteSaved { .. } | Event::Durable { .. } if replica.is_lost => {
            Some(format!("{node} makes promises again under the number of a disk that was lost"))
        }
        _ => None,
    }
}

/// A log as a start found it.
struct FoundLog<'a> {
    purged: Option<EntryId>,
    last: Option<EntryId>,
    ends: &'a [EntryId],
}

impl FoundLog<'_> {
    /// The entry at an index that is not purged.
    fn id(&self, index: u64) -> Option<EntryId> {
        let end = self.ends.iter().find(|end| end.index >= index)?;
        Some(EntryId { index, ..*end })
    }
}

fn check_vote(node: NodeId, replica: &Replica, found: Option<VoteId>) -> Option<String> {
    let rank = |vote: Option<VoteId>| vote.map(|vote| (vote.term, vote.node, vote.is_committed));
    (rank(found) < rank(replica.vote))
        .then(|| format!("{node} saved {:?} and found {found:?}", replica.vote))
}

fn check_log(
    facts: &GroupFacts,
    node: NodeId,
    replica: &Replica,
    found: &FoundLog<'_>,
) -> Option<String> {
    let strange = |entry: &&EntryId| !facts.entries.contains_key(entry);
    if let Some(entry) = found.ends.iter().find(strange) {
        return Some(format!("{node} found {entry:?}, which nobody appended"));
    }
    if let Some(purged) = found.purged
        && !facts.is_applied(purged)
    {
        return Some(format!("{node} found all purged through {purged:?}, which is not applied"));
    }
    let first = found.purged.map_or(0, |purged| purged.index + 1);
    // A snapshot that conflicts with the log voids it.
    let is_void = found
        .purged
        .is_some_and(|purged| replica.log.id(purged.index).is_some_and(|held| held != purged));
    if is_void {
        return None;
    }
    let is_durable = |entry: &EntryId| (first..replica.log.durable_to()).contains(&entry.index);
    let is_missing = |entry: &EntryId| found.id(entry.index) != Some(*entry);
    let missing = replica.log.ids().filter(is_durable).find(is_missing)?;
    let at = found.id(missing.index);
    let last = found.last;
    Some(format!("{node} kept {missing:?} and found {at:?} there, its log ends with {last:?}"))
}

fn check_snapshot(node: NodeId, replica: &Replica, loaded: Option<EntryId>) -> Option<String> {
    let index = |entry: Option<EntryId>| entry.map(|entry| entry.index);
    (index(loaded) < index(replica.snapshot)).then(|| {
        format!("{node} had a snapshot through {:?} and starts from {loaded:?}", replica.snapshot)
    })
}
