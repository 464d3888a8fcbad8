//! Commands about keys, which are names of filters.

use umbel_engine::FilterId;
use umbel_engine::meta::{FilterName, FilterState, FilterVerb, MetaState};
use umbel_filter::Kind;
use umbel_node::failure::CallFailure;
use umbel_resp::{Arguments, KeysCommand, Refusal, Reply, Scan, glob};

use super::answers::refusal;
use super::session::{NoFilter, Session};
use super::{filters, names};
use crate::limits::RESP_SCAN_COUNT_MAX;

/// Keys that are matched with a pattern before other tasks get a turn.
const KEYS_PER_TURN: usize = 64;

/// What `TYPE` answers for filters of `BF.*`: RedisBloom's type, which clients know.
const TYPE: &str = "MBbloom--";

/// What it answers for cuckoo filters.
const CUCKOO_TYPE: &str = "MBbloomCF";

/// RedisBloom's type for filters of this kind.
fn type_of(kind: u8) -> &'static str {
    if kind == Kind::Cuckoo.id() { CUCKOO_TYPE } else { TYPE }
}

pub(super) async fn answer(session: &Session, command: KeysCommand<'_>) -> Result<Reply, Refusal> {
    match command {
        KeysCommand::Drop(keys) => drop_filters(session, keys).await,
        KeysCommand::Count(keys) => {
            let names = named(session, FilterVerb::Read, keys.iter())?;
            let count =
                look(session, |state| names.iter().filter(|name| is_there(state, name)).count());
            Ok(Reply::number(count.await?))
        }
        KeysCommand::Type(key) => {
            let names = named(session, FilterVerb::Read, [key].into_iter())?;
            let found = look(session, |state| {
                names.iter().filter(|name| is_there(state, name)).find_map(|name| {
                    let (_, record) = state.filter_by_name(name.as_str())?;
                    Some(type_of(record.settings.kind))
                })
            });
            Ok(Reply::Status(found.await?.unwrap_or("none").into()))
        }
        KeysCommand::List(pattern) => {
            let keys = listed(session, None).await?.into_iter().map(|(_, key)| key).collect();
            Ok(Reply::Array(matching(keys, Some(pattern)).await))
        }
        KeysCommand::Scan(scan) => Ok(scanned(listed(session, scan.of_type).await?, &scan).await),
        KeysCommand::Rename { key, new_key, replaces } => {
            names::rename(session, (key, new_key), replaces).await
        }
        KeysCommand::Copy { key, new_key, database, replaces } => {
            names::copy(session, (key, new_key), database, replaces).await
        }
        KeysCommand::DropAll { of_all_databases } => drop_all(session, of_all_databases).await,
        KeysCommand::Memory(key) => filters::memory_usage(session, key).await,
        KeysCommand::Size => Ok(Reply::number(listed(session, None).await?.len())),
    }
}

/// The filters that keys name, if the caller has the verb on all of them; leaves out keys that cannot be
/// names of filters.
fn named<'a>(
    session: &Session,
    verb: FilterVerb,
    keys: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<FilterName>, Refusal> {
    let mut names = Vec::new();
    for key in keys {
        match session.filter(verb, key) {
            Ok(name) => names.push(name),
            Err(NoFilter::NoName) => {}
            Err(why @ NoFilter::Denied) => return Err(why.into()),
        }
    }
    Ok(names)
}

fn is_there(state: &MetaState, name: &FilterName) -> bool {
    let found = state.filter_by_name(name.as_str());
    found.is_some_and(|(_, record)| record.state != FilterState::Dropping)
}

/// Reads the catalogue after it was refreshed for this command.
async fn look<T>(session: &Session, read: impl FnOnce(&MetaState) -> T) -> Result<T, Refusal> {
    let coordinator = &session.shared.coordinator;
    let deadline = session.shared.deadlines.of_command();
    let refreshed = coordinator.meta_refresh(deadline).await;
    let read = refreshed.and_then(|()| coordinator.read_meta(read));
    read.map_err(|failure| refusal(&failure))
}

/// The keys of the connection's database that the caller may see, of type `of_type` if given, in order of
/// creation.
async fn listed(
    session: &Session,
    of_type: Option<&[u8]>,
) -> Result<Vec<(FilterId, String)>, Refusal> {
    let is_visible = session.caller.visible();
    let is_type =
        |kind| of_type.is_none_or(|name| name.eq_ignore_ascii_case(type_of(kind).as_bytes()));
    look(session, |state| {
        let filters = state.filters().filter(|(_, record)| record.state != FilterState::Dropping);
        let shown = filters.filter(|(_, record)| is_type(record.settings.kind));
        let shown = shown.filter_map(|(id, record)| {
            let name = record.name.as_str();
            let key = session.key_of(name).filter(|_| is_visible(name))?;
            Some((id, key.to_owned()))
        });
        shown.collect()
    })
    .await
}

/// The keys that match a pattern. Yields to other tasks between chunks: one match may take a millisecond.
async fn matching(keys: Vec<String>, pattern: Option<&[u8]>) -> Vec<Reply> {
    let mut found = Vec::new();
    for some in keys.chunks(KEYS_PER_TURN) {
        let fits = |key: &&String| pattern.is_none_or(|one| glob::matches(one, key.as_bytes()));
        found.extend(some.iter().filter(fits).map(Reply::bulk));
        tokio::task::yield_now().await;
    }
    found
}

/// The keys after the cursor, which is a filter's id: ids rise and are never reused, so the scan returns
/// every filter that exists all the time.
async fn scanned(keys: Vec<(FilterId, String)>, scan: &Scan<'_>) -> Reply {
    let count = usize::try_from(scan.count.min(RESP_SCAN_COUNT_MAX)).unwrap_or(usize::MAX);
    let mut behind = keys.into_iter().filter(|(id, _)| id.0 > scan.cursor);
    let looked_at: Vec<_> = behind.by_ref().take(count).collect();
    let last = looked_at.last().map_or(0, |(id, _)| id.0);
    let cursor = if behind.next().is_some() { last } else { 0 };
    let keys = looked_at.into_iter().map(|(_, key)| key).collect();
    let found = matching(keys, scan.pattern).await;
    Reply::Array(vec![Reply::bulk(cursor.to_string()), Reply::Array(found)])
}

async fn drop_filters(session: &Session, keys: Arguments<'_>) -> Result<Reply, Refusal> {
    let names = named(session, FilterVerb::Manage, keys.iter())?;
    Ok(Reply::number(drop_each(session, &names).await?))
}

/// Drops the filters of the connection's database, or of all databases, that existed when the command came.
async fn drop_all(session: &Session, of_all_databases: bool) -> Result<Reply, Refusal> {
    let names = look(session, |state| {
        let filters = state.filters().filter(|(_, record)| record.state != FilterState::Dropping);
        let names = filters.map(|(_, record)| record.name.clone());
        let is_meant =
            |name: &FilterName| of_all_databases || session.key_of(name.as_str()).is_some();
        names.filter(is_meant).collect::<Vec<_>>()
    });
    drop_each(session, &names.await?).await?;
    Ok(Reply::OK)
}

/// Drops filters; returns how many of them existed.
async fn drop_each(session: &Session, names: &[FilterName]) -> Result<u64, Refusal> {
    let deadline = session.shared.deadlines.of_long_command();
    let mut count = 0;
    for name in names {
        match session.shared.coordinator.drop_filter(name, None, deadline).await {
            Ok(_) => count += 1,
            Err(CallFailure::UnknownFilter { .. }) => {}
            Err(failure) => return Err(refusal(&failure)),
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn scan(cursor: u64, count: u64, pattern: Option<&[u8]>) -> String {
        let keys = [(3, "a"), (5, "ab"), (9, "b")];
        let keys = keys.map(|(id, key)| (FilterId(id), key.to_owned())).to_vec();
        let reply = scanned(keys, &Scan { cursor, pattern, count, of_type: None }).await;
        let mut bytes = Vec::new();
        reply.encode(umbel_resp::Protocol::Two, &mut bytes);
        String::from_utf8(bytes).unwrap().replace("\r\n", "|")
    }

    #[tokio::test]
    async fn a_scan_goes_on_behind_the_last_filter() {
        assert_eq!(scan(0, 2, None).await, "*2|$1|5|*2|$1|a|$2|ab|");
        assert_eq!(scan(5, 2, None).await, "*2|$1|0|*1|$1|b|");
        // The filter that the cursor names may be gone.
        assert_eq!(scan(4, 1, None).await, "*2|$1|5|*1|$2|ab|");
        assert_eq!(scan(0, 3, Some(b"b")).await, "*2|$1|0|*1|$1|b|");
        assert_eq!(scan(0, 1, Some(b"b")).await, "*2|$1|3|*0|");
        assert_eq!(scan(9, 1, None).await, "*2|$1|0|*0|");
    }
}
