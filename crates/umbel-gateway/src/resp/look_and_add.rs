//! `CF.ADDNX` and `CF.INSERTNX` in clusters of lower versions, whose shards insert a copy in any case: an item is looked
//! for first, and inserted then.

use tokio::time::Instant;
use umbel_coordinator::catalogue::FilterRequest;
use umbel_coordinator::partial_failure;
use umbel_engine::meta::{FilterName, HashKey};
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;

use super::filters::or_create;
use super::session::Session;
use super::turns::Place;

/// Inserts the item of the batch if it is absent, and returns whether it was. The commands of this node that do so take
/// turns. A filter that is gone is created anew, if `new` plans one.
pub(super) async fn look_and_add(
    session: &Session,
    name: &FilterName,
    new: impl Fn() -> Option<FilterRequest> + Copy,
    batch: &ItemBatch,
    deadline: Instant,
) -> Result<bool, CallFailure> {
    let coordinator = &session.shared.coordinator;
    let place = line_up(session, name, batch)?;
    let mut turn = place.try_turn();
    loop {
        let asked = || coordinator.contains_copies(name.as_str(), batch, deadline);
        // Who finds the item present needs no turn.
        if or_create(session, name, new, deadline, asked).await?.get(0) {
            return Ok(false);
        }
        if turn.is_some() {
            break;
        }
        turn = Some(place.turn(deadline).await?);
    }
    let inserted = || coordinator.insert_copies(name.as_str(), batch, deadline);
    if or_create(session, name, new, deadline, inserted).await?.get(0) {
        return Ok(true);
    }
    // A client of another node was faster: the copy that this call inserted is removed again.
    let removed = coordinator.remove_copies(name.as_str(), batch, deadline).await;
    removed.map(|_| false).map_err(not_taken_back)
}

/// A place among the commands of this node that look for this item of the filter.
fn line_up<'a>(
    session: &'a Session,
    name: &FilterName,
    batch: &ItemBatch,
) -> Result<Place<'a>, CallFailure> {
    let mut hashes = Vec::new();
    batch.hash(&HashKey::Xxh3 { seed: 0 }, &mut hashes)?;
    Ok(session.shared.turns.line_up((name.clone(), hashes.first().copied())))
}

/// The failure of taking back a copy that was inserted a moment ago: it may have stayed.
fn not_taken_back(failure: CallFailure) -> CallFailure {
    partial_failure(failure, |failure| {
        format!("a copy of the item was inserted and could not be removed: {failure}")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbel_engine::shard::PartError;
    use umbel_engine::{FilterId, RequestId, SessionId};

    use super::*;

    #[test]
    fn a_copy_that_stays_is_reported() {
        let is_unknown =
            |failure: &CallFailure| matches!(failure, CallFailure::OutcomeUnknown { .. });
        let (what, within) = ("shard 2".to_owned(), Duration::from_secs(1));
        assert!(is_unknown(&not_taken_back(CallFailure::NoQuorum { what, within })));
        let id = RequestId { session: SessionId(1), sequence: 1 };
        let refused = PartError::RequestExpired { id };
        assert_eq!(not_taken_back(refused.clone().into()), CallFailure::Partly(refused));
        let full = PartError::Full { filter: FilterId(1), what: "w".to_owned() };
        assert!(is_unknown(&not_taken_back(full.into())));
    }
}
