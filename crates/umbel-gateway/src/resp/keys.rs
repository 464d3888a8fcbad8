//! Commands about keys, which are names of filters.

use tokio::time::Instant;
use umbel_coordinator::catalogue::Seen;
use umbel_coordinator::{Coordinator, partial_failure};
use umbel_engine::FilterId;
use umbel_engine::meta::{FilterName, FilterState, FilterVerb, MetaState};
use umbel_filter::Kind;
use umbel_node::failure::CallFailure;
use umbel_resp::{Arguments, KeysCommand, Refusal, Reply, Scan, glob};

use super::answers::refusal;
use super::session::{NoFilter, Session};
use super::{filters, names};
use crate::limits::RESP_SCAN_COUNT_MAX;

/// Steps of comparisons with a pattern before other tasks get a turn: well below a millisecond of them.
const STEPS_PER_TURN: usize = 1 << 17;

/// Steps that a key counts beside those of its comparison.
const STEPS_PER_KEY: usize = 1 << 10;

/// What `TYPE` answers for filters that are not of `CF.*`: RedisBloom's type, which clients know.
const TYPE: &str = "MBbloom--";

/// What it answers for filters of `CF.*`.
const CUCKOO_TYPE: &str = "MBbloomCF";

/// What `OBJECT ENCODING` answers for every value of a module.
const ENCODING: &str = "raw";

/// RedisBloom's type for filters of this kind.
fn type_of(kind: u8) -> &'static str {
    if Kind::from_id(kind).is_some_and(Kind::tells_copies) { CUCKOO_TYPE } else { TYPE }
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
            let found = type_of_key(session, key).await?;
            Ok(Reply::Status(found.unwrap_or("none").into()))
        }
        KeysCommand::Encoding(key) => {
            let found = type_of_key(session, key).await?;
            Ok(found.map_or(Reply::Null, |_| Reply::bulk(ENCODING)))
        }
        KeysCommand::List(pattern) => {
            let keys = listed(session, None).await?.into_iter().map(|(_, key)| key).collect();
            Ok(Reply::Array(matching(keys, Some(pattern)).await))
        }
        KeysCommand::Scan(scan) => Ok(scanned(listed(session, scan.of_type).await?, &scan).await),
        KeysCommand::Rename { key, new_key, replaces } => {
            names::rename(session, key, new_key, replaces).await
        }
        KeysCommand::Copy { key, new_key, database, replaces } => {
            names::copy(session, key, new_key, database, replaces).await
        }
        KeysCommand::DropAll { of_all_databases } => drop_all(session, of_all_databases).await,
        KeysCommand::Memory(key) => filters::memory_usage(session, key).await,
        KeysCommand::Size => Ok(Reply::number(listed(session, None).await?.len())),
    }
}

/// RedisBloom's type of a key; None if it is missing.
async fn type_of_key(session: &Session, key: &[u8]) -> Result<Option<&'static str>, Refusal> {
    let names = named(session, FilterVerb::Read, [key].into_iter())?;
    let found = look(session, |state| {
        names.iter().filter(|name| is_there(state, name)).find_map(|name| {
            let (_, record) = state.filter_by_name(name.as_str())?;
            Some(type_of(record.settings.kind))
        })
    });
    found.await
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
    found.is_some_and(|(_, record)| is_shown(record.state))
}

/// Whether clients see a filter in this state. One that is being loaded exists only once its last piece has arrived.
pub(super) const fn is_shown(state: FilterState) -> bool {
    match state {
        FilterState::Creating { importing } => !importing,
        FilterState::Importing | FilterState::Dropping => false,
        FilterState::Live
        | FilterState::Clearing { .. }
        | FilterState::Rotating { .. }
        | FilterState::Renaming { .. } => true,
    }
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
        let filters = state.filters().filter(|(_, record)| is_shown(record.state));
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

/// The keys that match a pattern. Yields to other tasks by the steps that comparisons take: of a hostile pattern, one
/// takes half a millisecond.
async fn matching(keys: Vec<String>, pattern: Option<&[u8]>) -> Vec<Reply> {
    let (mut found, mut steps) = (Vec::new(), 0);
    for key in keys {
        let all = (true, 0);
        let (is_match, taken) = pattern.map_or(all, |one| glob::compare(one, key.as_bytes()));
        if is_match {
            found.push(Reply::bulk(key));
        }
        steps += taken + STEPS_PER_KEY;
        if steps >= STEPS_PER_TURN {
            steps = 0;
            tokio::task::yield_now().await;
        }
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
    let filters: Vec<_> = names.into_iter().map(|name| (name, None)).collect();
    let dropped = drop_each(session, &filters).await;
    dropped.map(Reply::number).map_err(|failure| refusal(&failure))
}

/// Drops the filters of the connection's database, or of all databases, that existed when the command came.
async fn drop_all(session: &Session, of_all_databases: bool) -> Result<Reply, Refusal> {
    let filters = look(session, |state| {
        let filters = state.filters().filter(|(_, record)| record.state != FilterState::Dropping);
        let is_meant =
            |name: &FilterName| of_all_databases || session.key_of(name.as_str()).is_some();
        let meant = filters.filter(|(_, record)| is_meant(&record.name));
        let seen = |filter| Some(Seen { filter, generation: None });
        meant.map(|(id, record)| (record.name.clone(), seen(id))).collect::<Vec<_>>()
    });
    let dropped = drop_each(session, &filters.await?).await;
    dropped.map(|_| Reply::OK).map_err(|failure| refusal(&failure))
}

/// Drops filters, if given only as they were seen, on all nodes; returns how many of them existed.
async fn drop_each(
    session: &Session,
    filters: &[(FilterName, Option<Seen>)],
) -> Result<u64, CallFailure> {
    let deadline = session.shared.deadlines.of_long_command();
    let dropped = drop_known(&session.shared.coordinator, filters, deadline).await?;
    session.confirm(dropped.has_replicated, deadline).await?;
    Ok(dropped.count)
}

/// Filters that were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct DroppedFilters {
    count: u64,
    /// Whether other nodes have copies of one of them.
    has_replicated: bool,
}

async fn drop_known(
    coordinator: &Coordinator,
    filters: &[(FilterName, Option<Seen>)],
    deadline: Instant,
) -> Result<DroppedFilters, CallFailure> {
    let mut dropped = DroppedFilters::default();
    for (name, seen) in filters {
        let outcome = match seen {
            // Nobody asks who has dropped the filters of a list.
            Some(_) => coordinator.drop_filter(name, *seen, deadline).await,
            None => coordinator.take_filter(name, None, deadline).await,
        };
        match outcome {
            Ok(is_replicated) => {
                dropped.count += 1;
                dropped.has_replicated |= is_replicated;
            }
            Err(CallFailure::UnknownFilter { .. }) => {}
            // What has the name now came after the command.
            Err(CallFailure::Changed { .. }) if seen.is_some() => {}
            Err(failure) => return Err(behind_dropped(dropped.count, failure)),
        }
    }
    Ok(dropped)
}

/// The failure to drop a filter after this many others were dropped: the command as a whole was not "not applied".
fn behind_dropped(count: u64, failure: CallFailure) -> CallFailure {
    if count == 0 {
        return failure;
    }
    partial_failure(failure, |failure| {
        format!("{count} filters were dropped, others were not: {failure}")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::join_all;
    use umbel_engine::meta::ClusterVersion;

    use super::super::resp_test::{Client, node, node_up_to};
    use super::*;
    use crate::test_node::{create, deadline};

    #[test]
    fn a_failure_behind_dropped_filters_is_uncertain() {
        let (what, within) = ("w".to_owned(), Duration::from_secs(1));
        let failure = CallFailure::NoQuorum { what, within };
        assert_eq!(behind_dropped(0, failure.clone()), failure);
        let CallFailure::OutcomeUnknown { what } = behind_dropped(2, failure.clone()) else {
            panic!("clients would send it again");
        };
        assert_eq!(what, format!("2 filters were dropped, others were not: {failure}"));
    }

    /// Programs take a key that exists for a task that is to be done, and who deletes it does it.
    #[tokio::test(flavor = "multi_thread")]
    async fn of_clients_that_delete_a_key_one_is_told_that_it_has() {
        for newest in [ClusterVersion(5), ClusterVersion::NEWEST] {
            let (_folder, node) = node_up_to(newest).await;
            let asked = node.coordinator();
            let name = FilterName::new("k").unwrap();
            for command in ["DEL k", "UNLINK k", "EXPIRE k 0"] {
                create(&asked, "k", Kind::Blocked).await;
                let answers = join_all((0..10).map(|_| async {
                    let mut client = Client::new(&node).await;
                    client.send(format!("{command}\r\n").as_bytes()).await;
                    client.line().await
                }));
                let answers = answers.await;
                let told_count = answers.iter().filter(|answer| *answer == ":1").count();
                let most = if newest < ClusterVersion(6) { 10 } else { 1 };
                assert!((1..=most).contains(&told_count), "{command}: {answers:?}");
                let gone = asked.take_filter(&name, None, deadline()).await;
                assert!(matches!(gone, Err(CallFailure::UnknownFilter { .. })), "{gone:?}");
            }
            drop(asked);
            node.shutdown().await;
        }
    }

    /// Another filter that has got the name since the list was made is not dropped.
    #[tokio::test(flavor = "multi_thread")]
    async fn filters_of_a_list_are_dropped_as_they_were_seen() {
        let (_folder, node) = node().await;
        let asked = node.coordinator();
        let mut filters = Vec::new();
        for name in ["a", "b", "c"] {
            let filter = create(&asked, name, Kind::Blocked).await;
            let seen = Some(Seen { filter, generation: None });
            filters.push((FilterName::new(name).unwrap(), seen));
        }
        for gone in ["a", "b"] {
            let gone = FilterName::new(gone).unwrap();
            asked.drop_filter(&gone, None, deadline()).await.unwrap();
        }
        let newer = create(&asked, "a", Kind::Blocked).await;
        let dropped = DroppedFilters { count: 1, has_replicated: false };
        assert_eq!(drop_known(&asked, &filters, deadline()).await, Ok(dropped));
        let left = asked.read_meta(|state| state.filters().map(|(id, _)| id).collect::<Vec<_>>());
        assert_eq!(left.unwrap(), [newer]);
        drop(asked);
        node.shutdown().await;
    }

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
