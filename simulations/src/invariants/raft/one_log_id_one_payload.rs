//! In every log, an entry id stands for the same content and the same predecessor.
//!
//! Log Matching: "if two logs contain an entry with the same index and term, then the logs are
//! identical in all entries up through the given index" (Ongaro & Ousterhout, "In Search of an
//! Understandable Consensus Algorithm", USENIX ATC 2014, figure 3).

use umbel_engine::NodeId;
use umbel_node::ports::observer::Event;

use super::facts::{GroupFacts, leader_of};

/// Name in reports.
pub(super) const NAME: &str = "one_log_id_one_payload";

/// What is wrong with an event, if anything is.
pub(super) fn check(facts: &GroupFacts, node: NodeId, event: &Event<'_>) -> Option<String> {
    let Event::Appended { entry, checksum, .. } = *event else { return None };
    let before = facts.replicas.get(&node).and_then(|replica| {
        let index = entry.index.checked_sub(1)?;
        replica.log.id(index)
    });
    if let Some(before) = before
        && leader_of(before) > leader_of(entry)
    {
        return Some(format!("{node} appended {entry:?} behind {before:?} of a later leader"));
    }
    let known = facts.entries.get(&entry)?;
    if known.checksum != checksum {
        let expected = known.checksum;
        return Some(format!(
            "{node} appended {entry:?} with checksum {checksum:08x}, elsewhere it has {expected:08x}"
        ));
    }
    match (known.before, before) {
        (Some(elsewhere), Some(here)) if elsewhere != here => Some(format!(
            "{node} appended {entry:?} behind {here:?}, elsewhere it is behind {elsewhere:?}"
        )),
        _ => None,
    }
}
