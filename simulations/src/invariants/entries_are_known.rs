//! No node receives an entry of the catalogue's log that its release does not know: entries of a
//! version are written only when the cluster is at that version, and it is raised only when all nodes
//! support it (docs/cluster.md, "Releases").

use umbel_node::ports::observer::{EntryId, Event, Payload};

use crate::counters;
use crate::violation::Violation;

/// Name of the invariant.
pub(crate) const NAME: &str = "entries_are_known";

/// Looks at what a host's node reports.
pub(crate) fn check(at_us: u64, host: &str, event: &Event<'_>) -> Result<(), Violation> {
    match event {
        Event::Applied { payload: Payload::Meta(..), .. } => {
            counters::checked(NAME, 1);
            Ok(())
        }
        Event::EntryUnknown { entry: EntryId { term, index, .. } } => {
            let what = format!(
                "{host} was given entry {index} of term {term}, which came with a later version than its release can run"
            );
            Err(Violation { invariant: NAME, at_us, what })
        }
        _ => Ok(()),
    }
}
