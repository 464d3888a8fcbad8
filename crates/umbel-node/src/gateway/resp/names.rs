//! Commands that give filters other names, or copy them.

use futures_util::StreamExt as _;
use umbel_engine::meta::{FilterName, FilterVerb, MetaError};
use umbel_resp::{Refusal, Reply};

use super::answers::refusal;
use super::session::{NoFilter, Session};
use crate::coordinator::copies::{ExportPart, ExportWish, ImportHead, ImportPart};
use crate::failure::CallFailure;
use crate::ports::Purpose;

/// `RENAME`, `RENAMENX`.
pub(super) async fn rename(
    session: &Session,
    (key, new_key): (&[u8], &[u8]),
    replaces: bool,
) -> Result<Reply, Refusal> {
    let name = match session.filter(FilterVerb::Manage, key) {
        Err(NoFilter::NoName) => return Err(Refusal::NoSuchKey),
        name => name?,
    };
    let new_name = session.filter(FilterVerb::Manage, new_key)?;
    let deadline = session.shared.deadlines.of_long_command();
    let coordinator = &session.shared.coordinator;
    let is_same = name == new_name;
    match coordinator.rename(&name, &new_name, replaces, deadline).await {
        Ok(_) if replaces => Ok(Reply::OK),
        Ok(_) => Ok(Reply::Integer(i64::from(!is_same))),
        Err(CallFailure::UnknownFilter { .. }) => Err(Refusal::NoSuchKey),
        Err(CallFailure::Meta(MetaError::NameTaken { .. })) if !replaces => Ok(Reply::Integer(0)),
        Err(failure) => Err(refusal(&failure)),
    }
}

/// `COPY`: all shards as they are at one moment. What is replaced answers until the copy does.
pub(super) async fn copy(
    session: &Session,
    (key, new_key): (&[u8], &[u8]),
    database: Option<u8>,
    replaces: bool,
) -> Result<Reply, Refusal> {
    let name = match session.filter(FilterVerb::Export, key) {
        Err(NoFilter::NoName) => return Ok(Reply::Integer(0)),
        name => name?,
    };
    let database = database.unwrap_or(session.database);
    let new_name = session.filter_of(database, FilterVerb::Manage, new_key)?;
    if name == new_name {
        return Err(Refusal::SameKey);
    }
    let made = if replaces {
        copy_over(session, &name, &new_name).await
    } else {
        copy_in(session, &name, &new_name).await
    };
    match made {
        Ok(()) => Ok(Reply::Integer(1)),
        Err(CallFailure::UnknownFilter { .. } | CallFailure::Meta(MetaError::NameTaken { .. })) => {
            Ok(Reply::Integer(0))
        }
        Err(failure) => Err(refusal(&failure)),
    }
}

/// Makes a copy beside the filter that has the name, and gives it the name then.
async fn copy_over(
    session: &Session,
    name: &FilterName,
    new_name: &FilterName,
) -> Result<(), CallFailure> {
    let coordinator = &session.shared.coordinator;
    let number = coordinator.seed().number(Purpose::Snapshot);
    let beside = FilterName::new(format!("copying-{number:016x}"));
    let beside = beside.map_err(|error| CallFailure::Invalid { what: error.to_string() })?;
    copy_in(session, name, &beside).await?;
    let deadline = session.shared.deadlines.of_long_command();
    let renamed = coordinator.rename(&beside, new_name, true, deadline).await;
    if renamed.is_err() {
        // Nobody else knows its name. Whether this works is told by what comes of the next command.
        let _ = coordinator.drop_filter(&beside, None, deadline).await;
    }
    renamed.map(drop)
}

async fn copy_in(
    session: &Session,
    name: &FilterName,
    new_name: &FilterName,
) -> Result<(), CallFailure> {
    let coordinator = &session.shared.coordinator;
    let deadline = session.shared.deadlines.of_long_command();
    let expiry = coordinator.expiry(name, deadline).await?.flatten();
    let wish = ExportWish { known: None, is_snapshot: true };
    let parts = coordinator.export(name, wish, deadline).await?.into_stream();
    let parts = parts.map(|part| {
        Ok(match part? {
            ExportPart::Head(head) => ImportPart::Head(ImportHead {
                name: new_name.clone(),
                shard_count: head.shard_count,
                settings: head.settings,
            }),
            ExportPart::Frame(frame) => ImportPart::Frame(frame),
            ExportPart::End(end) => ImportPart::End(end),
            ExportPart::Change(shard, _) => {
                let what = format!("a change of a frame of {shard} that nobody has");
                return Err(CallFailure::Storage { what });
            }
        })
    });
    coordinator.import(Box::pin(parts), session.caller.principal_name()).await?;
    match expiry {
        Some(_) => coordinator.expire(new_name, expiry, deadline).await,
        None => Ok(()),
    }
}
