//! What this node waits for until its cluster is formed, for clients and for whoever looks at it.

use std::sync::{Mutex, MutexGuard};

use tokio::time::Instant;
use umbel_ports::locked;

use crate::failure::CallFailure;
use crate::reasons::Reasons;

/// Most founders that one text names: it goes into a log and into errors.
pub(crate) const NAMED_MAX: usize = 8;

/// What this node waits for; nothing that it knows, at first.
#[derive(Default)]
pub(crate) struct Awaited(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// What is to come by itself, or by a start of nodes.
    missing: Option<String>,
    /// What somebody has to correct before.
    conflict: Option<String>,
}

impl Awaited {
    /// Notes which founders do not answer; returns what this node waits for, if that is known.
    pub(crate) fn note_missing(&self, missing: &[&str]) -> Option<String> {
        let text = missing_text(missing);
        self.known().missing.clone_from(&text);
        text
    }

    /// Notes that a founder has adopted this node, and waits for the others itself.
    pub(crate) fn note_adopted(&self, founder: &str) {
        let missing = Some(format!(
            "the founder {founder} forms it, and its page /readyz names the nodes that are still to be started"
        ));
        *self.known() = Known { missing, conflict: None };
    }

    /// Notes why this node and another one cannot found a cluster as they were started, or that they can.
    pub(crate) fn note_conflict(&self, conflict: Option<String>) {
        self.known().conflict = conflict;
    }

    /// Why this node serves nobody yet.
    pub(crate) fn failure(&self) -> CallFailure {
        let known = self.known();
        let what = known.conflict.as_ref().or(known.missing.as_ref()).cloned();
        what.map_or(CallFailure::NotFormed, |what| CallFailure::Forming { what })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        locked(&self.0)
    }
}

/// Logs why founders cannot found a cluster as they were started, unless it was logged a moment ago.
pub(crate) fn log_conflict(reason: &str, reasons: &mut Reasons) {
    if reasons.is_due(reason, Instant::now()) {
        tracing::warn!(reason, "the cluster is not formed");
    }
}

/// Names nodes by their addresses, up to a limit.
pub(crate) fn named(addresses: &[&str]) -> String {
    let shown = addresses.get(..NAMED_MAX).unwrap_or(addresses).join(", ");
    match addresses.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown}, and {more} more"),
    }
}

/// Names the founders that are to be started, unless they run and this node's log says why it does not reach them; None
/// if there are none.
fn missing_text(missing: &[&str]) -> Option<String> {
    match missing {
        [] => None,
        [one] => Some(format!(
            "the founder {one} does not answer this node: start it, or see this node's log"
        )),
        many => Some(format!(
            "the founders {} do not answer this node: start them, or see this node's log",
            named(many)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_founders_that_are_missing_are_named_up_to_a_limit() {
        assert_eq!(missing_text(&[]), None);
        let one = missing_text(&["n2:1"]).unwrap();
        assert_eq!(
            one,
            "the founder n2:1 does not answer this node: start it, or see this node's log"
        );
        let two = missing_text(&["n2:1", "n3:1"]).unwrap();
        let ending = " do not answer this node: start them, or see this node's log";
        assert_eq!(two, format!("the founders n2:1, n3:1{ending}"));
        let many = missing_text(&["n:1"; NAMED_MAX + 3]).unwrap();
        assert!(many.ends_with(&format!("n:1, and 3 more{ending}")), "{many}");
        assert_eq!(many.matches("n:1").count(), NAMED_MAX);
    }

    #[test]
    fn what_is_awaited_is_told_to_clients() {
        let awaited = Awaited::default();
        assert_eq!(awaited.failure(), CallFailure::NotFormed);
        let what = awaited.note_missing(&["n2:1"]).unwrap();
        let failure = awaited.failure();
        assert_eq!(failure, CallFailure::Forming { what });
        let expected = format!("{}: the founder n2:1 does not", CallFailure::NotFormed);
        assert!(failure.to_string().starts_with(&expected), "{failure}");
        let conflict = "n1:1 and n3:1 name different founders".to_owned();
        awaited.note_conflict(Some(conflict.clone()));
        awaited.note_missing(&["n2:1"]);
        assert_eq!(awaited.failure(), CallFailure::Forming { what: conflict.clone() });
        awaited.note_conflict(None);
        assert!(awaited.failure().to_string().contains("n2:1"), "the others are awaited still");
        awaited.note_conflict(Some(conflict));
        awaited.note_adopted("n1:1");
        assert!(awaited.failure().to_string().contains("the founder n1:1 forms it"));
        assert_eq!(awaited.note_missing(&[]), None);
        assert_eq!(awaited.failure(), CallFailure::NotFormed);
    }
}
