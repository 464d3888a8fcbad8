//! Voters change so that majorities before and after a change meet.
//!
//! Joint consensus: "the cluster first switches to a transitional configuration", which "combines
//! both the old and new configurations" (Ongaro & Ousterhout, USENIX ATC 2014, section 6).
//! openraft's "extended membership change" allows the step from one joint configuration to another
//! as well; what each step keeps is one set of voters that both configurations have.

use std::collections::BTreeSet;

use umbel_engine::NodeId;
use umbel_node::ports::observer::{EntryId, Event, Payload};

use super::facts::GroupFacts;

/// Name in reports.
pub(super) const NAME: &str = "membership";

/// What is wrong with an event, if anything is.
pub(super) fn check(facts: &GroupFacts, node: NodeId, event: &Event<'_>) -> Option<String> {
    match *event {
        Event::Appended { entry, voters: Some(voters), .. } => appended(facts, node, entry, voters),
        Event::Applied { entry, payload: Payload::Members { ref voters, .. }, .. } => {
            let known = facts.voters.get(&entry)?;
            (known != voters)
                .then(|| format!("{node} applied {entry:?} with {voters:?}, it has {known:?}"))
        }
        _ => None,
    }
}

fn appended(
    facts: &GroupFacts,
    node: NodeId,
    entry: EntryId,
    voters: &[BTreeSet<NodeId>],
) -> Option<String> {
    if !(1..=2).contains(&voters.len()) || voters.iter().any(BTreeSet::is_empty) {
        return Some(format!("{node} appended {entry:?} with {voters:?}, expected one set or two"));
    }
    let before = facts.voters_before(node, entry.index)?;
    let is_met = voters.iter().any(|set| before.contains(set));
    (!is_met).then(|| {
        format!("{node} appended {entry:?} from {before:?} to {voters:?} without a common set")
    })
}
