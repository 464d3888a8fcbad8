//! Maps a failure to an answer of the Redis protocol.
//!
//! Clients resend a command by themselves after `TRYAGAIN`, `LOADING` and `CLUSTERDOWN`, so these codes
//! are used only if nothing was applied. No client resends after `UNCERTAIN`.

use umbel_engine::meta::MetaError;
use umbel_engine::shard::PartError;
use umbel_node::failure::CallFailure;
use umbel_resp::Refusal;

/// A refusal whose text begins with the code of a class of failures.
fn coded(code: &str, what: &dyn std::fmt::Display) -> Refusal {
    Refusal::Other(format!("{code} {what}").into())
}

/// The answer to a failure.
pub(super) fn refusal(failure: &CallFailure) -> Refusal {
    match failure {
        CallFailure::UnknownFilter { .. } => Refusal::NotFound,
        CallFailure::Part(error) | CallFailure::Partly(error @ PartError::Full { .. }) => {
            part_refusal(error)
        }
        CallFailure::Partly(
            PartError::RequestExpired { .. }
            | PartError::SessionExpired { .. }
            | PartError::RequestReused { .. },
        ) => coded("REQUEST", failure),
        CallFailure::Partly(_) => coded("ERR", failure),
        CallFailure::OfFilter { cause, .. } => refusal(cause),
        CallFailure::Meta(error) => meta_refusal(error),
        CallFailure::FilterBusy { .. }
        | CallFailure::Overloaded { .. }
        | CallFailure::RateExceeded { .. } => coded("TRYAGAIN", failure),
        CallFailure::NoQuorum { .. } => coded("CLUSTERDOWN", failure),
        CallFailure::NotFormed | CallFailure::Forming { .. } | CallFailure::GrantsUnknown => {
            coded("LOADING", failure)
        }
        CallFailure::DiskFull { is_partial: false, .. } => coded("OOM", failure),
        CallFailure::DiskFull { is_partial: true, .. } | CallFailure::OutcomeUnknown { .. } => {
            coded("UNCERTAIN", failure)
        }
        // A name of the command is refused before: this is about the creation of a missing filter.
        CallFailure::Denied { .. } => coded("NOPERM", failure),
        CallFailure::Changed { .. }
        | CallFailure::Invalid { .. }
        // No command restores a backup, or names a shard.
        | CallFailure::RestoreBroken { .. }
        | CallFailure::UnknownShard { .. }
        | CallFailure::TooSlow { .. }
        | CallFailure::Storage { .. } => coded("ERR", failure),
    }
}

fn part_refusal(error: &PartError) -> Refusal {
    match error {
        // The filter was dropped or cleared while the command was in flight.
        PartError::UnknownSlice { .. } => Refusal::NotFound,
        PartError::StaleGeneration { .. } | PartError::Fenced { .. } => coded("TRYAGAIN", error),
        PartError::RequestExpired { .. }
        | PartError::SessionExpired { .. }
        | PartError::RequestReused { .. } => coded("REQUEST", error),
        PartError::WrongKind { .. } => Refusal::WrongType,
        PartError::Full { .. } => Refusal::Full,
        PartError::ShapeMismatch { .. }
        | PartError::BadFrame { .. }
        | PartError::LateItem { .. }
        | PartError::FutureItem { .. }
        | PartError::ForeignHash { .. }
        | PartError::OtherCut { .. }
        | PartError::CutBefore { .. }
        | PartError::NotJoined { .. }
        | PartError::Malformed { .. } => coded("ERR", error),
    }
}

fn meta_refusal(error: &MetaError) -> Refusal {
    match error {
        MetaError::UnknownFilter { .. } => Refusal::NotFound,
        MetaError::NameTaken { .. } => Refusal::ItemExists,
        MetaError::Quota { .. } => Refusal::NoMemoryToCreate,
        MetaError::Busy { .. } | MetaError::ShardBusy { .. } => coded("TRYAGAIN", error),
        MetaError::NotFormed => coded("LOADING", error),
        _ => coded("ERR", error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbel_engine::{FilterId, Generation, RequestId, SessionId};
    use umbel_resp::Reply;

    use super::*;

    fn text_of(failure: &CallFailure) -> String {
        match Reply::from(refusal(failure)) {
            Reply::Error(text) => text.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_clients_send_again_was_not_applied() {
        let (name, what) = ("k".to_owned(), "w".to_owned());
        let within = Duration::from_secs(5);
        let busy = CallFailure::FilterBusy { name: name.clone(), state: "being created".into() };
        assert_eq!(text_of(&busy), "TRYAGAIN filter \"k\" is being created");
        assert!(
            text_of(&CallFailure::NoQuorum { what: what.clone(), within })
                .starts_with("CLUSTERDOWN w")
        );
        assert!(text_of(&CallFailure::NotFormed).starts_with("LOADING this node"));
        assert_eq!(text_of(&CallFailure::Overloaded { what: what.clone() }), "TRYAGAIN w");
        let unknown = CallFailure::OutcomeUnknown { what: what.clone() };
        assert_eq!(text_of(&unknown), "UNCERTAIN w; the outcome is unknown");
        let disk = |is_partial| CallFailure::DiskFull { free_bytes: 1, is_partial };
        assert!(
            text_of(&disk(false)).starts_with("OOM ")
                && text_of(&disk(true)).starts_with("UNCERTAIN ")
        );
        assert_eq!(text_of(&CallFailure::UnknownFilter { name: name.clone() }), "ERR not found");
        assert_eq!(text_of(&CallFailure::Meta(MetaError::NameTaken { name })), "ERR item exists");
        assert_eq!(text_of(&CallFailure::Denied { what }), "NOPERM w");
    }

    #[test]
    fn what_shards_refuse_has_its_code() {
        let filter = FilterId(1);
        let id = RequestId { session: SessionId(1), sequence: 2 };
        let (got, current) = (Generation(1), Generation(2));
        let part = |error: PartError| text_of(&CallFailure::Part(error));
        let full = PartError::Full { filter, what: "x".into() };
        assert_eq!(text_of(&CallFailure::Partly(full.clone())), "ERR non scaling filter is full");
        assert_eq!(part(full), "ERR non scaling filter is full");
        assert!(part(PartError::SessionExpired { id }).starts_with("REQUEST "));
        assert!(part(PartError::StaleGeneration { filter, got, current }).starts_with("TRYAGAIN "));
        assert!(part(PartError::WrongKind { what: "x".into() }).starts_with("WRONGTYPE "));
        let quota = CallFailure::Meta(MetaError::Quota { what: "x".into() });
        assert_eq!(text_of(&quota), "ERR Insufficient memory to create filter");
    }
}
