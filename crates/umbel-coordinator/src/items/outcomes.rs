//! The outcome of a request of several parts, some of which failed.

use umbel_engine::shard::PartError;
use umbel_filter::Kind;
use umbel_node::failure::CallFailure;

/// Of two errors of parts, the one that tells less about what was changed.
#[must_use]
pub fn graver(one: Option<CallFailure>, other: CallFailure) -> CallFailure {
    match one {
        Some(unknown @ CallFailure::OutcomeUnknown { .. }) => unknown,
        Some(full @ CallFailure::Part(PartError::Full { .. }))
            if !matches!(other, CallFailure::OutcomeUnknown { .. }) =>
        {
            full
        }
        _ => other,
    }
}

/// The error of a batch for a filter of this kind, of which parts were done if `is_begun`.
pub(super) fn of_batch(
    error: CallFailure,
    kind: u8,
    item_count: usize,
    is_begun: bool,
) -> CallFailure {
    // These insert a part as a whole or not at all; others keep the items before the first one without room.
    let is_atomic =
        matches!(Kind::from_id(kind), Some(Kind::SingleShot | Kind::Cuckoo | Kind::Quotient));
    let is_full = matches!(error, CallFailure::Part(PartError::Full { .. }));
    let is_partial = is_begun || (is_full && !is_atomic && item_count > 1);
    if is_partial { partly(error) } else { error }
}

/// The error of one part when others were done: the request as a whole was not "not applied".
#[must_use]
pub fn partly(error: CallFailure) -> CallFailure {
    match error {
        CallFailure::DiskFull { free_bytes, .. } => {
            CallFailure::DiskFull { free_bytes, is_partial: true }
        }
        CallFailure::Part(error @ PartError::Full { .. }) => CallFailure::Partly(error),
        error @ (CallFailure::OutcomeUnknown { .. } | CallFailure::Partly(_)) => error,
        error => partial_failure(error, |error| {
            format!("some items were inserted, others were not: {error}")
        }),
    }
}

/// The error of one part when others were done: [`CallFailure::Partly`] if the part is refused for good,
/// otherwise an unknown outcome with this text, so that the request is sent again.
#[must_use]
pub fn partial_failure(
    error: CallFailure,
    text: impl FnOnce(&CallFailure) -> String,
) -> CallFailure {
    match error {
        CallFailure::Part(
            error @ (PartError::RequestReused { .. }
            | PartError::RequestExpired { .. }
            | PartError::SessionExpired { .. }
            | PartError::LateItem { .. }
            | PartError::FutureItem { .. }),
        ) => CallFailure::Partly(error),
        error => CallFailure::OutcomeUnknown { what: text(&error) },
    }
}

/// The error of a request that met another catalogue at its shards until its time was up.
pub(super) fn never_still(name: &str, is_read: bool) -> CallFailure {
    let what = format!("filter {name:?} changes all the time");
    if is_read {
        CallFailure::Overloaded { what: format!("{what}: try again") }
    } else {
        CallFailure::OutcomeUnknown { what }
    }
}

/// The error that ends a request of which a shard knew the id from another request: shards that have not seen this id
/// before may have done their part.
pub(super) fn failure_after_reuse(error: CallFailure) -> CallFailure {
    match error {
        CallFailure::NoQuorum { .. } | CallFailure::Overloaded { .. } => {
            let what = format!("a shard has answered another request of this id: {error}");
            CallFailure::OutcomeUnknown { what }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbel_engine::{FilterId, RequestId, SessionId};

    use super::*;

    fn unknown() -> CallFailure {
        CallFailure::OutcomeUnknown { what: "shard 1 did not answer".to_owned() }
    }

    fn full() -> CallFailure {
        CallFailure::Part(PartError::Full { filter: FilterId(1), what: "too large".to_owned() })
    }

    fn no_quorum() -> CallFailure {
        CallFailure::NoQuorum { what: "shard 2".to_owned(), within: Duration::from_secs(1) }
    }

    #[test]
    fn an_unknown_outcome_is_hidden_by_no_other_error() {
        for other in [unknown(), full(), no_quorum()] {
            assert_eq!(graver(Some(unknown()), other.clone()), unknown());
            assert_eq!(graver(Some(other), unknown()), unknown());
        }
        assert_eq!(graver(Some(full()), no_quorum()), full());
        assert_eq!(graver(Some(no_quorum()), full()), full());
        assert_eq!(graver(None, no_quorum()), no_quorum());
    }

    #[test]
    fn a_full_filter_reports_whether_it_took_items_of_the_batch() {
        for kind in Kind::ALL {
            let of = |count| of_batch(full(), kind.id(), count, false);
            let is_atomic = matches!(kind, Kind::SingleShot | Kind::Cuckoo | Kind::Quotient);
            assert_eq!(of(1), full(), "{kind}");
            assert_eq!(of(2) == full(), is_atomic, "{kind}");
            assert_eq!(of_batch(no_quorum(), kind.id(), 2, false), no_quorum());
            // Another shard has inserted its part.
            assert_eq!(of_batch(full(), kind.id(), 2, true), partly(full()), "{kind}");
        }
    }

    #[test]
    fn an_error_beside_done_parts_never_says_that_nothing_was_changed() {
        let disk = |is_partial| CallFailure::DiskFull { free_bytes: 5, is_partial };
        assert_eq!(partly(disk(false)), disk(true));
        assert_eq!(partly(unknown()), unknown());
        let CallFailure::Part(without_room) = full() else { panic!("{}", full()) };
        assert_eq!(partly(full()), CallFailure::Partly(without_room.clone()));
        let twice = partly(partly(full()));
        assert_eq!(twice, CallFailure::Partly(without_room));
        // A retry would be refused again.
        let id = RequestId { session: SessionId(1), sequence: 1 };
        let filter = FilterId(1);
        for refused in [
            PartError::RequestReused { id },
            PartError::RequestExpired { id },
            PartError::SessionExpired { id },
            PartError::LateItem { filter, at_ms: 1, oldest_ms: 2 },
            PartError::FutureItem { filter, at_ms: 3, latest_ms: 2 },
        ] {
            assert_eq!(partly(refused.clone().into()), CallFailure::Partly(refused));
        }
        let name = "gone".to_owned();
        let refusals = [no_quorum(), CallFailure::UnknownFilter { name }, CallFailure::NotFormed];
        for error in refusals {
            let partly = partly(error.clone());
            let CallFailure::OutcomeUnknown { what } = &partly else { panic!("{partly}") };
            assert!(what.ends_with(&error.to_string()), "{what}");
        }
    }

    #[test]
    fn only_a_read_of_what_changes_all_the_time_was_certainly_not_applied() {
        assert!(matches!(never_still("f", true), CallFailure::Overloaded { .. }));
        assert!(matches!(never_still("f", false), CallFailure::OutcomeUnknown { .. }));
        let CallFailure::OutcomeUnknown { what } = failure_after_reuse(no_quorum()) else {
            panic!("another shard may have inserted its items");
        };
        assert!(what.ends_with(&no_quorum().to_string()), "{what}");
        let replaced = failure_after_reuse(never_still("f", true));
        assert!(matches!(replaced, CallFailure::OutcomeUnknown { .. }), "{replaced}");
        let gone = || CallFailure::UnknownFilter { name: "gone".to_owned() };
        assert_eq!(failure_after_reuse(gone()), gone());
    }
}
