//! A leader was elected by a majority, and only that leader appends entries in its name.
//!
//! Election Safety: "at most one leader can be elected in a given term" (Ongaro & Ousterhout,
//! USENIX ATC 2014, figure 3). A leader of openraft is a term *and* a node (its
//! `leader_id_adv`), so one term may have several leaders, one after the other; what is promised
//! is that each had durable votes of a majority, and that only it makes entries of its name. The
//! first entry of a group, of term 0, is made alike by all that form it.

use umbel_engine::NodeId;
use umbel_node::ports::observer::{EntryId, Event, VoteId};

use super::facts::{GroupFacts, is_quorum};

/// Name in reports.
pub(super) const NAME: &str = "election_safety";

/// What is wrong with an event, if anything is.
pub(super) fn check(facts: &GroupFacts, node: NodeId, event: &Event<'_>) -> Option<String> {
    match *event {
        Event::Appended { entry, .. } => appended(facts, node, entry),
        Event::VoteSaved { vote, .. } if vote.is_committed && vote.node == node => {
            elected(facts, node, vote)
        }
        _ => None,
    }
}

fn appended(facts: &GroupFacts, node: NodeId, entry: EntryId) -> Option<String> {
    let is_new = !facts.entries.contains_key(&entry);
    let is_of_another = entry.term > 0 && entry.leader != node;
    (is_new && is_of_another)
        .then(|| format!("{node} appended {entry:?}, which {} had not made", entry.leader))
}

fn elected(facts: &GroupFacts, node: NodeId, vote: VoteId) -> Option<String> {
    let term = vote.term;
    let Some(voters) = facts.voters_before(node, u64::MAX) else {
        return Some(format!("{node} leads in term {term} and knows no voters"));
    };
    let votes = facts.votes.get(&(term, node));
    let has_voted = |voter: NodeId| votes.is_some_and(|votes| votes.contains(&voter));
    (!is_quorum(voters, has_voted)).then(|| {
        format!("{node} leads in term {term} with durable votes of {votes:?} among {voters:?}")
    })
}
