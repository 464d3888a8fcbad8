//! `DUMP` and `RESTORE`: a filter of RedisBloom's kind as one value, which RedisBloom's servers produce
//! and accept, too.
//!
//! A payload is held in memory as a whole, and is therefore limited. Larger filters, and those of all
//! other kinds, are copied in pieces by [`super::dumps`].

use std::sync::Arc;

use bytes::Bytes;
use umbel_coordinator::transfers::{
    CopyEnd, CopyFrame, Destination, ExportPart, ExportWish, ImportPart,
};
use umbel_engine::ShardId;
use umbel_engine::meta::{FilterName, FilterState, FilterVerb, MetaError};
use umbel_node::failure::CallFailure;
use umbel_rdb::{checked_payload, read_module_value};
use umbel_resp::{PayloadCommand, Refusal, Reply, RestoreTime};

use super::answers::refusal;
use super::chain_dumps;
use super::expiry::{moment, now_for};
use super::session::{NoFilter, Session};
use crate::limits::RESP_PAYLOADS_MAX;
use crate::redis_bloom_value::{
    BloomValueError, CUCKOO_TYPE_NAME, PayloadOfFrames, Unwanted, ValueError, ValuePart, read_value,
};

/// Largest filter that has a payload, in bytes of its arrays: 16 MiB, which `RESTORE` accepts in one
/// argument together with the other fields. For a compressed payload the limit applies to what it unpacks
/// to.
const PAYLOAD_BYTES_MAX: u64 = 16 << 20;

pub(super) async fn answer(
    session: &mut Session,
    command: PayloadCommand<'_>,
) -> Result<Reply, Refusal> {
    // A connection whose last payload has not been sent yet still has that one's permit.
    if session.payload.is_none() {
        let room = Arc::clone(&session.shared.payloads).try_acquire_owned();
        session.payload = Some(room.map_err(|_| {
            let what =
                format!("TRYAGAIN {RESP_PAYLOADS_MAX} payloads are on their way on this node");
            Refusal::Other(what.into())
        })?);
    }
    match command {
        PayloadCommand::Dump { key } => dump(session, key).await,
        PayloadCommand::Restore { key, time, replaces, payload } => {
            restore(session, key, time, replaces, payload).await
        }
    }
}

async fn dump(session: &Session, key: &[u8]) -> Result<Reply, Refusal> {
    let name = match session.filter(FilterVerb::Export, key) {
        Err(NoFilter::NoName) => return Ok(Reply::Null),
        name => name?,
    };
    if !chain_dumps::is_chain(session, &name).await? {
        let what = "ERR filters of kind redisbloom alone have a payload: BF.SCANDUMP copies others";
        return if is_taken(session, &name).await? {
            Err(Refusal::Other(what.into()))
        } else {
            Ok(Reply::Null)
        };
    }
    let deadline = session.shared.deadlines.of_long_command();
    let _turn = session.waiting.turn(&session.shared.producing, deadline).await.map_err(|why| {
        why.refusal("TRYAGAIN other payloads were produced for as long as this command may take")
    })?;
    let exported = session.shared.coordinator.export(&name, ExportWish::default(), deadline).await;
    let mut parts = match exported {
        Err(CallFailure::UnknownFilter { .. }) => return Ok(Reply::Null),
        parts => parts.map_err(|failure| refusal(&failure))?,
    };
    let mut payload = PayloadOfFrames::new(PAYLOAD_BYTES_MAX);
    while let Some(part) = parts.next().await.map_err(|failure| refusal(&failure))? {
        if let ExportPart::Frame(frame) = part {
            payload.push(&frame.frame).map_err(no_payload)?;
        }
    }
    payload.finish().map(Reply::Bulk).map_err(no_payload)
}

fn no_payload(error: BloomValueError) -> Refusal {
    let text = match error {
        BloomValueError::TooLarge { .. } => format!("ERR {error}: BF.SCANDUMP copies it in pieces"),
        error => format!("ERR {error}"),
    };
    Refusal::Other(text.into())
}

async fn restore(
    session: &Session,
    key: &[u8],
    time: RestoreTime<'_>,
    replaces: bool,
    payload: &[u8],
) -> Result<Reply, Refusal> {
    let name = session.filter(FilterVerb::Manage, key)?;
    if !replaces && is_taken(session, &name).await? {
        return Err(Refusal::BusyKey);
    }
    let expiry = time.expiry()?;
    let (settings, parts) = parts_of(payload)?;
    let coordinator = &session.shared.coordinator;
    let deadline = session.shared.deadlines.of_long_command();
    let expiry = expiry.map(|expiry| {
        let now_ms = now_for(coordinator, expiry);
        (moment(expiry, now_ms), now_ms)
    });
    let expires_at_ms = expiry.map(|(at_ms, _)| at_ms);
    if expiry.is_some_and(|(at_ms, now_ms)| at_ms <= now_ms) {
        // As in Redis: a filter that has expired already is not created, but the one that it would
        // replace is dropped.
        if !replaces {
            return Ok(Reply::OK);
        }
        let confirmed = match coordinator.drop_filter(&name, None, deadline).await {
            Ok(is_replicated) => session.confirm(is_replicated, deadline).await,
            Err(CallFailure::UnknownFilter { .. }) => Ok(()),
            Err(failure) => Err(failure),
        };
        return confirmed.map(|()| Reply::OK).map_err(|failure| refusal(&failure));
    }
    let owner = session.caller.principal_name();
    let destination = Destination { name: &name, replaces, expires_at_ms };
    let made = coordinator.import_whole(destination, settings, parts, owner, deadline).await;
    let confirmed = match made {
        Ok(has_copies) => session.confirm(has_copies, deadline).await,
        Err(failure) => Err(failure),
    };
    match confirmed {
        Ok(()) => Ok(Reply::OK),
        Err(CallFailure::Meta(MetaError::NameTaken { .. })) => Err(Refusal::BusyKey),
        Err(failure) => Err(refusal(&failure)),
    }
}

/// Whether a filter has this name, by a catalogue that was refreshed for this command.
async fn is_taken(session: &Session, name: &FilterName) -> Result<bool, Refusal> {
    let coordinator = &session.shared.coordinator;
    let refreshed = coordinator.meta_refresh(session.shared.deadlines.of_command()).await;
    let found = refreshed.and_then(|()| {
        coordinator.read_meta(|state| {
            let found = state.filter_by_name(name.as_str());
            found.is_some_and(|(_, record)| record.state != FilterState::Dropping)
        })
    });
    found.map_err(|failure| refusal(&failure))
}

/// The settings and all other parts of an import: parsed as a whole first, so that an invalid payload
/// creates nothing.
fn parts_of(payload: &[u8]) -> Result<(Bytes, Vec<ImportPart>), Refusal> {
    let value = checked_payload(payload).map_err(|_| Refusal::DumpPayload)?;
    let (mut head, mut parts, mut too_large) = (Bytes::new(), Vec::new(), None);
    let read = read_module_value(value, |id, module| {
        read_value(id, module, |part| {
            match part {
                ValuePart::Head { byte_count, .. } if byte_count > PAYLOAD_BYTES_MAX => {
                    too_large = Some(byte_count);
                    return Err(Unwanted);
                }
                ValuePart::Head { settings, .. } => head = settings,
                ValuePart::Frame(frame) => {
                    parts.push(ImportPart::Frame(CopyFrame { shard: ShardId(0), frame }));
                }
                ValuePart::End { frame_count, checksum } => {
                    parts.push(ImportPart::End(CopyEnd { frame_count, checksum }));
                }
            }
            Ok(())
        })
    });
    match (read, too_large) {
        (Ok(()), _) => Ok((head, parts)),
        (Err(_), Some(byte_count)) => {
            let error = BloomValueError::TooLarge { byte_count, max: PAYLOAD_BYTES_MAX };
            Err(Refusal::Other(format!("ERR {error}: BF.LOADCHUNK takes it in pieces").into()))
        }
        (Err(ValueError::Type(name)), None) if name == CUCKOO_TYPE_NAME => {
            let what = format!(
                "ERR a cuckoo filter of RedisBloom ({CUCKOO_TYPE_NAME}) has fingerprints of another hash than \
                 Umbel's: add its items to a new filter"
            );
            Err(Refusal::Other(what.into()))
        }
        (Err(_), None) => Err(Refusal::DumpFormat),
    }
}
