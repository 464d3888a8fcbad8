//! What callers do to the log: random and fixed sequences.

use proptest::prelude::*;

/// A single change, which is durable as a whole or not at all.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Vote(u64),
    Truncate(usize),
    Purge(u64),
    Forget,
    Leave,
}

/// An action of a caller.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Append(u32, u64),
    Other(u32, Step),
    /// A snapshot that ends this far after what was purged, and openraft's reaction to it. If true,
    /// another leader made it: the log has other entries there, if any.
    Snapshot(u32, u64, bool),
    Commit(u32),
    /// Waits until appends are acknowledged.
    AwaitAcknowledgements,
}

pub(super) fn acts() -> impl Strategy<Value = Vec<Act>> {
    let group = 0u32..3;
    let act = prop_oneof![
        6 => (group.clone(), 1u64..5).prop_map(|(group, count)| Act::Append(group, count)),
        1 => (group.clone(), 1u64..9).prop_map(|(g, term)| Act::Other(g, Step::Vote(term))),
        1 => (group.clone(), 0usize..6).prop_map(|(g, n)| Act::Other(g, Step::Truncate(n))),
        2 => (group.clone(), 0u64..6).prop_map(|(g, n)| Act::Other(g, Step::Purge(n))),
        2 => (group.clone(), 0u64..6, any::<bool>()).prop_map(|(g, n, o)| Act::Snapshot(g, n, o)),
        1 => group.clone().prop_map(Act::Commit),
        1 => (0u32..12).prop_filter_map("seldom", |g| (g < 3).then_some(Act::Other(g, Step::Forget))),
        1 => (0u32..9).prop_filter_map("seldom", |g| (g < 3).then_some(Act::Other(g, Step::Leave))),
        2 => Just(Act::AwaitAcknowledgements),
    ];
    proptest::collection::vec(act, 1..60)
}

/// Every action of a caller, in an order that rotates and removes segments.
pub(super) fn all_acts() -> Vec<Act> {
    let append = |group| Act::Append(group, 3);
    vec![
        Act::Other(0, Step::Vote(1)),
        append(0),
        append(1),
        Act::AwaitAcknowledgements,
        append(0),
        Act::Other(1, Step::Truncate(1)),
        append(1),
        Act::Other(0, Step::Purge(3)),
        append(0),
        append(2),
        Act::AwaitAcknowledgements,
        Act::Other(1, Step::Purge(4)),
        Act::Other(2, Step::Forget),
        append(2),
        // Inside the log, in place of other entries, and after the log's end.
        Act::Snapshot(0, 1, false),
        append(0),
        Act::Snapshot(0, 1, true),
        append(0),
        Act::Snapshot(2, 9, false),
        append(2),
        Act::Other(2, Step::Forget),
        Act::Other(0, Step::Leave),
        append(0),
        Act::AwaitAcknowledgements,
    ]
}
