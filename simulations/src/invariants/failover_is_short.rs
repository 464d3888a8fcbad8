//! Calls hardly wait while one node at a time dies, is stopped, stands still or is cut off.

use super::checked::Checked;
use crate::history::{Call, FilterFacts, Verb};

/// Name of the invariant.
pub(crate) const NAME: &str = "failover_is_short";

/// Simulated microseconds that a call may take. A node is suspected after 100 ms, then an election and at most one probe of
/// the client's connection follow; but a client that has no connection yet to the node that fails waits for its connect timeout,
/// which is 1 s here.
const WAIT_MAX_US: u64 = 1_200_000;

/// Simulated microseconds after links were closed in which they are opened again: an attempt that had no answer is repeated
/// after a second, and a link that was refused is tried again after half a second at most.
const OPENING_US: u64 = 1_500_000;

/// Checks a complete history of a plan of this profile: calls on items, by clients that know all nodes. Those that fail for
/// lack of a node take as long as their client tries. Calls at the times of `closed_us`, when a node could not connect to
/// others, are left out: such a node answers its clients, and looks for leaders until their deadlines.
pub(crate) fn check(calls: &[Call], facts: &[FilterFacts], closed_us: &[(u64, u64)]) -> Checked {
    let mut checked = Checked::new(NAME);
    let meets_closed = |call: &Call| {
        let end_us = call.end_us.unwrap_or(call.deadline_us);
        let meets = |&(from_us, to_us)| call.start_us <= to_us + OPENING_US && from_us <= end_us;
        closed_us.iter().any(meets)
    };
    for call in calls.iter().filter(|call| is_checked(call, facts) && !meets_closed(call)) {
        checked.record(call.end_us.unwrap_or(call.deadline_us), broken(call));
    }
    checked
}

/// Even clients know all nodes. A filter that is being cleared or created anew refuses items for a while.
fn is_checked(call: &Call, facts: &[FilterFacts]) -> bool {
    let is_stable = |fact: &FilterFacts| fact.name == call.filter && !fact.is_rewritten;
    let is_of_items =
        matches!(call.verb, Verb::Insert | Verb::Contains | Verb::ContainsAny | Verb::Remove);
    is_of_items
        && call.client.is_multiple_of(2)
        && call.request.is_none()
        && facts.iter().any(is_stable)
}

fn broken(call: &Call) -> Option<String> {
    let Call { id, verb, start_us, .. } = call;
    let asked = format!("call {id} ({verb:?} of {}) began at {start_us} us", call.filter);
    let Some(end_us) = call.end_us else {
        return Some(format!("{asked} and never ended"));
    };
    let took_us = end_us - start_us;
    (took_us > WAIT_MAX_US)
        .then(|| format!("{asked} and took {took_us} us, expected {WAIT_MAX_US} us at most"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::fixture::History;
    use crate::plan::FilterKind;

    fn found(history: &History) -> (u64, usize) {
        found_beside(history, &[])
    }

    fn found_beside(history: &History, closed_us: &[(u64, u64)]) -> (u64, usize) {
        let checked = check(&history.calls, &history.facts, closed_us);
        (checked.count, checked.violations.len())
    }

    #[test]
    fn calls_while_links_are_closed_may_wait() {
        let mut history = History::of(FilterKind::Classic);
        let (start_us, end_us) = (5_000_000, 5_000_001 + WAIT_MAX_US);
        history.insert("f", &[1], start_us, end_us, &[true]).client = 2;
        for closed_us in [(0, start_us - OPENING_US - 1), (end_us + 1, end_us + 2)] {
            assert_eq!(found_beside(&history, &[closed_us]), (1, 1));
        }
        for closed_us in [(0, start_us - OPENING_US), (end_us, end_us + 1)] {
            assert_eq!(found_beside(&history, &[closed_us]), (0, 0));
        }
    }

    #[test]
    fn long_waits_are_found() {
        let mut history = History::of(FilterKind::Classic);
        history.insert("f", &[1], 10, 10 + WAIT_MAX_US, &[true]).client = 2;
        assert_eq!(found(&history), (1, 0));
        history.insert("f", &[1], 10, 11 + WAIT_MAX_US, &[true]).client = 2;
        assert_eq!(found(&history), (2, 1));
        history.unknown(Verb::Insert, "f", &[1], 10, 20).client = 0;
        assert_eq!(found(&history), (3, 1));
        history.unknown(Verb::Insert, "f", &[1], 10, 20).end_us = None;
        assert_eq!(found(&history), (4, 2));
        // One that insists on one node waits for it.
        history.insert("f", &[1], 10, 11 + WAIT_MAX_US, &[true]).client = 1;
        history.done(Verb::Clear, "f", &[], 10, 11 + WAIT_MAX_US, &[]).client = 2;
        assert_eq!(found(&history), (4, 2));
        history.facts[0].is_rewritten = true;
        assert_eq!(found(&history), (0, 0));
    }
}
