//! Commands that rename or copy filters.

use umbel_engine::meta::{FilterVerb, MetaError};
use umbel_node::failure::CallFailure;
use umbel_resp::{Refusal, Reply};

use super::answers::refusal;
use super::session::{NoFilter, Session};

/// `RENAME`, `RENAMENX`.
pub(super) async fn rename(
    session: &Session,
    key: &[u8],
    new_key: &[u8],
    replaces: bool,
) -> Result<Reply, Refusal> {
    let name = match session.filter(FilterVerb::Manage, key) {
        Err(NoFilter::NoName) => return Err(Refusal::NoSuchKey),
        name => name?,
    };
    let new_name = session.filter(FilterVerb::Manage, new_key)?;
    let checked = session.caller.check_rename(&name, &new_name);
    checked.map_err(|_| Refusal::from(NoFilter::Denied))?;
    let deadline = session.shared.deadlines.of_long_command();
    let coordinator = &session.shared.coordinator;
    let is_same = name == new_name;
    match coordinator.rename(&name, &new_name, replaces, deadline).await {
        Ok((_, _, has_copies)) => {
            let confirmed = session.confirm(has_copies, deadline).await;
            confirmed.map_err(|failure| refusal(&failure))?;
            Ok(if replaces { Reply::OK } else { Reply::Integer(i64::from(!is_same)) })
        }
        Err(CallFailure::UnknownFilter { .. }) => Err(Refusal::NoSuchKey),
        Err(CallFailure::Meta(MetaError::NameTaken { .. })) if !replaces => Ok(Reply::Integer(0)),
        Err(failure) => Err(refusal(&failure)),
    }
}

/// `COPY`: all shards as they are at one moment. A filter that is replaced serves requests until the copy does.
///
/// The copy has the key of the filter, so that whoever may read it learns what readers of the filter do: the caller must be
/// one, beside being allowed to export, which gives bits without their key.
pub(super) async fn copy(
    session: &Session,
    key: &[u8],
    new_key: &[u8],
    database: Option<u8>,
    replaces: bool,
) -> Result<Reply, Refusal> {
    let name = match session.filter(FilterVerb::Export, key) {
        Err(NoFilter::NoName) => return Ok(Reply::Integer(0)),
        name => name?,
    };
    session.filter(FilterVerb::Read, key)?;
    let database = database.unwrap_or(session.database);
    let new_name = session.filter_of(database, FilterVerb::Manage, new_key)?;
    if name == new_name {
        return Err(Refusal::SameKey);
    }
    let owner = session.caller.principal_name();
    let deadline = session.shared.deadlines.of_long_command();
    let coordinator = &session.shared.coordinator;
    let byte_count = match coordinator.bytes_to_copy(&name, &new_name, replaces, deadline).await {
        Ok(byte_count) => byte_count,
        Err(failure) => return not_copied(&failure),
    };
    session.caller.take([0, 0, byte_count]).map_err(|failure| refusal(&failure))?;
    let turn = session.waiting.turn(&session.shared.copying, deadline).await.map_err(|why| {
        why.refusal("TRYAGAIN other filters were copied through this node for as long as this command may take")
    })?;
    let made = if replaces {
        coordinator.copy_over(&name, &new_name, owner, deadline).await
    } else {
        let made = coordinator.copy_filter(&name, &new_name, owner, deadline).await;
        made.map(|(_, is_replicated)| is_replicated)
    };
    // Nobody waits for what other nodes confirm.
    drop(turn);
    let confirmed = match made {
        Ok(has_copies) => session.confirm(has_copies, deadline).await,
        Err(failure) => Err(failure),
    };
    match confirmed {
        Ok(()) => Ok(Reply::Integer(1)),
        Err(failure) => not_copied(&failure),
    }
}

/// The answer to a `COPY` that copied nothing: no error if there is no filter, or the name is taken.
fn not_copied(failure: &CallFailure) -> Result<Reply, Refusal> {
    match failure {
        CallFailure::UnknownFilter { .. } | CallFailure::Meta(MetaError::NameTaken { .. }) => {
            Ok(Reply::Integer(0))
        }
        failure => Err(refusal(failure)),
    }
}
