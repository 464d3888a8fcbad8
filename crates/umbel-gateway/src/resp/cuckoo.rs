//! Commands about filters that tell copies, `CF.*`: quotient filters, which grow as RedisBloom's chains of
//! cuckoo filters do, and cuckoo filters, which have a fixed size.
//!
//! Each inserted item is a separate request to the cluster, so that an item without room is
//! distinguished from its neighbours.

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;
use umbel_coordinator::catalogue::{FilterRequest, Hashing};
use umbel_coordinator::sizes::FilterSize;
use umbel_coordinator::{graver, partly};
use umbel_engine::meta::{Distribution, FilterName, FilterVerb, MetaError, MetaState};
use umbel_engine::shard::PartError;
use umbel_filter::Kind;
use umbel_filter::sizing::{CUCKOO_BUCKETS_LOOKED_AT, WINDOW_BUCKET_SLOTS};
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;
use umbel_resp::{Arguments, CuckooCommand, CuckooInsert, Items, Protocol, Refusal, Reply};

use super::answers::refusal;
use super::filters::{create, described, memory_bytes, or_create, try_create, unless_busy};
use super::look_and_add::look_and_add;
use super::packed::Packed;
use super::session::{NoFilter, Session};
use super::shared::Counts;

/// The planned false positive rate. RedisBloom's, with 8 bits and buckets of 2, is 1.6 % for each of a filter's
/// parts.
const ERROR_RATE: f64 = 0.01;

/// Number of items up to which a filter that grows keeps this rate, if it is created for fewer: for 2^10 items this
/// costs ten bits an item, for more items fewer bits.
const ITEMS_AT_ERROR_RATE: u64 = 1 << 20;

/// What a filter that grows multiplies its size by.
const GROWTH_FACTOR: u32 = 2;

/// Items of one command that are in flight at once.
const ITEMS_AT_ONCE: usize = 64;

/// The outcome for one item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Added {
    /// It was inserted once more.
    Yes,
    /// It was present, and only new items were to be inserted.
    Present,
    /// The filter has no room for it.
    Full,
}

/// The items of a command, which count against the caller's rates.
pub(super) const fn items_of<'a>(command: &CuckooCommand<'a>) -> Option<Items<'a>> {
    match *command {
        CuckooCommand::Insert(CuckooInsert { items, .. })
        | CuckooCommand::Contains(items)
        | CuckooCommand::Count(items)
        | CuckooCommand::Remove(items) => Some(items),
        CuckooCommand::Reserve { .. }
        | CuckooCommand::Compact { .. }
        | CuckooCommand::Info { .. }
        | CuckooCommand::Debug { .. } => None,
    }
}

pub(super) async fn answer(
    session: &Session,
    command: CuckooCommand<'_>,
) -> Result<Reply, Refusal> {
    match command {
        CuckooCommand::Reserve { key, capacity, grows } => {
            let name = session.filter(FilterVerb::Manage, key)?;
            create(session, &name, plan(capacity, grows)).await?;
            Ok(Reply::OK)
        }
        CuckooCommand::Insert(command) => insert(session, command).await,
        CuckooCommand::Contains(items) => contains(session, items).await,
        CuckooCommand::Count(items) => count(session, items).await,
        CuckooCommand::Remove(items) => remove(session, items).await,
        CuckooCommand::Compact { key } => compact(session, key).await,
        CuckooCommand::Info { key } => info(session, key).await,
        CuckooCommand::Debug { key } => debug(session, key).await,
    }
}

const fn plan(capacity: u64, grows: bool) -> FilterRequest {
    let (distribution, hashing) = (Distribution::Partitioned, Hashing::Keyed);
    let (kind, size) = if grows {
        let (rate, item_count) = (ERROR_RATE, ITEMS_AT_ERROR_RATE);
        (Kind::Quotient, FilterSize::Grown { rate, item_count })
    } else {
        (Kind::Cuckoo, FilterSize::Rate(ERROR_RATE))
    };
    FilterRequest::Planned { kind, distribution, capacity, size, hashing }
}

/// Whether the filter tells copies; None if no filter has this name. Only that it does may be old: then the shards are
/// asked, which notice it, and [`is_gone`] says so. Nobody is asked about any other filter, so that must be true now.
async fn tells_copies(
    session: &Session,
    name: &FilterName,
    deadline: Instant,
) -> Result<Option<bool>, Refusal> {
    let coordinator = &session.shared.coordinator;
    let look = |state: &MetaState| {
        let (_, record) = state.filter_by_name(name.as_str())?;
        Some(Kind::from_id(record.settings.kind).is_some_and(Kind::tells_copies))
    };
    if let Ok(Some(true)) = coordinator.guess_meta(look) {
        return Ok(Some(true));
    }
    // This node may not know the filter yet, or know another one of its name.
    let refreshed = coordinator.meta_refresh(deadline).await;
    refreshed.and_then(|()| coordinator.read_meta(look)).map_err(|failure| refusal(&failure))
}

/// Whether a call about a filter that tells copies failed because the name has no such filter any more: this node's
/// catalogue was old.
const fn is_gone(failure: &CallFailure) -> bool {
    matches!(
        failure,
        CallFailure::UnknownFilter { .. } | CallFailure::Part(PartError::WrongKind { .. })
    )
}

/// Each item as a separate batch.
fn single_batches(items: Arguments<'_>) -> Vec<ItemBatch> {
    let batch = |item: &[u8]| {
        // Arguments have at most 512 KiB.
        let item_bytes = u32::try_from(item.len()).unwrap_or(u32::MAX);
        ItemBatch::packed(Bytes::copy_from_slice(item), vec![item_bytes])
    };
    items.iter().map(batch).collect()
}

async fn insert(session: &Session, command: CuckooInsert<'_>) -> Result<Reply, Refusal> {
    let CuckooInsert { items, capacity, is_new_only } = command;
    let deadline = session.shared.deadlines.of_command();
    let name = session.filter(FilterVerb::Insert, items.key)?;
    match tells_copies(session, &name, deadline).await? {
        Some(true) => {}
        Some(false) => return Err(Refusal::WrongType),
        None => {
            let capacity = capacity.ok_or(Refusal::NotFound)?;
            match try_create(session, &name, plan(capacity, true), deadline).await {
                // Another client created it at the same time.
                Ok(()) | Err(CallFailure::Meta(MetaError::NameTaken { .. })) => {}
                Err(failure) => return Err(refusal(&failure)),
            }
        }
    }
    let batches = single_batches(items.items);
    let mut added = Vec::with_capacity(batches.len());
    // Of two equal items the second is not new, so with `is_new_only` items are inserted one after the other.
    for some in batches.chunks(if is_new_only { 1 } else { ITEMS_AT_ONCE }) {
        let each =
            some.iter().map(|batch| add(session, &name, capacity, batch, is_new_only, deadline));
        // Each outcome is waited for, so that an error can say whether anything was inserted.
        let outcomes = join_all(each).await;
        take_outcomes(&mut added, outcomes).map_err(|failure| refusal(&failure))?;
    }
    if !items.form.is_list() {
        return match added.first() {
            Some(Added::Full) | None => Err(Refusal::CuckooFull),
            Some(outcome) => Ok(Reply::Boolean(*outcome == Added::Yes)),
        };
    }
    let is_boolean = session.protocol == Protocol::Three && !is_new_only;
    let reply = |outcome| match outcome {
        outcome if is_boolean => Reply::Boolean(outcome == Added::Yes),
        Added::Yes => Reply::Integer(1),
        Added::Present => Reply::Integer(0),
        Added::Full => Reply::Integer(-1),
    };
    Ok(Reply::Array(added.into_iter().map(reply).collect()))
}

/// Adds the outcomes of some items to those of the items before them. If an item failed and another was inserted,
/// the failure says so: a client that sends all of them again inserts copies.
fn take_outcomes(
    added: &mut Vec<Added>,
    outcomes: Vec<Result<Added, CallFailure>>,
) -> Result<(), CallFailure> {
    let mut failed = None;
    for outcome in outcomes {
        match outcome {
            Ok(outcome) => added.push(outcome),
            Err(failure) => failed = Some(graver(failed, failure)),
        }
    }
    let is_begun = added.contains(&Added::Yes);
    failed.map_or(Ok(()), |failure| Err(if is_begun { partly(failure) } else { failure }))
}

/// Inserts one item, with `is_new_only` if it is absent. A filter that was dropped without this node's knowledge is
/// created anew, if the command has a capacity for it.
async fn add(
    session: &Session,
    name: &FilterName,
    capacity: Option<u64>,
    batch: &ItemBatch,
    is_new_only: bool,
    deadline: Instant,
) -> Result<Added, CallFailure> {
    let coordinator = &session.shared.coordinator;
    let new = || capacity.map(|capacity| plan(capacity, true));
    let is_added = if is_new_only {
        let absent = || coordinator.insert_absent(name.as_str(), batch, deadline);
        match or_create(session, name, new, deadline, absent).await {
            Ok(Some(is_new)) => Ok(is_new.get(0)),
            Ok(None) => look_and_add(session, name, new, batch, deadline).await,
            Err(failure) => Err(failure),
        }
    } else {
        let inserted = || coordinator.insert_copies(name.as_str(), batch, deadline);
        or_create(session, name, new, deadline, inserted).await.map(|_| true)
    };
    match is_added {
        Ok(is_added) => Ok(if is_added { Added::Yes } else { Added::Present }),
        Err(CallFailure::Part(PartError::Full { .. })) => Ok(Added::Full),
        Err(failure) => Err(failure),
    }
}

/// Missing filters, and those of other kinds, have no items.
async fn contains(session: &Session, items: Items<'_>) -> Result<Reply, Refusal> {
    let deadline = session.shared.deadlines.of_command();
    let present = match session.filter(FilterVerb::Read, items.key) {
        Ok(name) => present(session, &name, items.items, deadline).await?,
        Err(NoFilter::NoName) => None,
        Err(why @ NoFilter::Denied) => return Err(why.into()),
    };
    let present = present.unwrap_or_else(|| vec![false; items.items.len()]);
    Ok(if items.form.is_list() {
        Reply::Array(present.into_iter().map(Reply::Boolean).collect())
    } else {
        Reply::Boolean(present.first() == Some(&true))
    })
}

/// Which items are present; None if no filter of this name tells copies.
async fn present(
    session: &Session,
    name: &FilterName,
    items: Arguments<'_>,
    deadline: Instant,
) -> Result<Option<Vec<bool>>, Refusal> {
    if tells_copies(session, name, deadline).await? != Some(true) {
        return Ok(None);
    }
    let (coordinator, counts) = (&session.shared.coordinator, &session.shared.counts);
    let mut packed = Packed::default();
    items.pack(&mut packed.data, &mut packed.lengths);
    let mut present = Vec::with_capacity(items.len());
    for batch in packed.batches() {
        let asked = || coordinator.contains_copies(name.as_str(), &batch, deadline);
        match unless_busy(deadline, asked).await {
            Ok(bits) => present.extend(bits.iter()),
            Err(failure) if is_gone(&failure) => {
                Counts::add(&counts.misses, 1);
                return Ok(None);
            }
            Err(failure) => return Err(refusal(&failure)),
        }
    }
    Counts::add(&counts.hits, 1);
    Ok(Some(present))
}

/// Missing filters, and those of other kinds, have no items.
async fn count(session: &Session, items: Items<'_>) -> Result<Reply, Refusal> {
    let deadline = session.shared.deadlines.of_command();
    let name = match session.filter(FilterVerb::Read, items.key) {
        Ok(name) => name,
        Err(NoFilter::NoName) => return Ok(Reply::Integer(0)),
        Err(why @ NoFilter::Denied) => return Err(why.into()),
    };
    if tells_copies(session, &name, deadline).await? != Some(true) {
        return Ok(Reply::Integer(0));
    }
    let mut sum = 0;
    for batch in &single_batches(items.items) {
        let call = || session.shared.coordinator.copies_of_item(name.as_str(), batch, deadline);
        sum += match unless_busy(deadline, call).await {
            Ok(copies) => copies,
            Err(failure) if is_gone(&failure) => 0,
            Err(failure) => return Err(refusal(&failure)),
        };
    }
    Ok(Reply::number(sum))
}

async fn remove(session: &Session, items: Items<'_>) -> Result<Reply, Refusal> {
    let deadline = session.shared.deadlines.of_command();
    let name = match session.filter(FilterVerb::Remove, items.key) {
        Ok(name) => name,
        Err(NoFilter::NoName) => return Err(Refusal::NoCuckoo),
        Err(why @ NoFilter::Denied) => return Err(why.into()),
    };
    if tells_copies(session, &name, deadline).await? != Some(true) {
        return Err(Refusal::NoCuckoo);
    }
    let mut is_removed = false;
    for batch in &single_batches(items.items) {
        let call = || session.shared.coordinator.remove_copies(name.as_str(), batch, deadline);
        is_removed = match unless_busy(deadline, call).await {
            Ok(removed) => removed.get(0),
            Err(failure) if is_gone(&failure) => return Err(Refusal::NoCuckoo),
            Err(failure) => return Err(refusal(&failure)),
        };
    }
    Ok(Reply::Boolean(is_removed))
}

/// A filter has a single part, so there is nothing to compact.
async fn compact(session: &Session, key: &[u8]) -> Result<Reply, Refusal> {
    let deadline = session.shared.deadlines.of_command();
    let name = match session.filter(FilterVerb::Read, key) {
        Ok(name) => name,
        Err(NoFilter::NoName) => return Err(Refusal::NothingToCompact),
        Err(why @ NoFilter::Denied) => return Err(why.into()),
    };
    // No shard is asked, so this node must know it.
    let refreshed = session.shared.coordinator.meta_refresh(deadline).await;
    refreshed.map_err(|failure| refusal(&failure))?;
    match tells_copies(session, &name, deadline).await? {
        Some(true) => Ok(Reply::OK),
        _ => Err(Refusal::NothingToCompact),
    }
}

/// What `CF.INFO` and `CF.DEBUG` show of a filter.
struct CuckooNumbers {
    bytes: u64,
    bucket_slots: u32,
    bucket_count: u64,
    /// Of a cuckoo filter with all copies, of a quotient filter without: those have no slots of their own.
    item_count: u64,
    /// 0 if the filter does not grow.
    expansion: u32,
    /// Places that an insert looks at before the filter is full, or grows.
    iterations_max: usize,
}

/// The figures of a filter, which must tell copies.
async fn cuckoo_numbers(session: &Session, key: &[u8]) -> Result<CuckooNumbers, Refusal> {
    let info = described(session, key).await?.ok_or(Refusal::NotFound)?;
    let (bucket_slots, expansion, iterations_max) = match Kind::from_id(info.record.settings.kind) {
        Some(Kind::Cuckoo) => (WINDOW_BUCKET_SLOTS, 0, CUCKOO_BUCKETS_LOOKED_AT),
        // There are no buckets to choose from: an item has one place, and moves those behind it.
        Some(Kind::Quotient) => (1, GROWTH_FACTOR, 1),
        _ => return Err(Refusal::WrongType),
    };
    Ok(CuckooNumbers {
        bytes: memory_bytes(&info),
        bucket_slots,
        bucket_count: info.sum(|slice| slice.position_count) / u64::from(bucket_slots),
        item_count: info.sum(|slice| slice.one_count),
        expansion,
        iterations_max,
    })
}

/// The figures of `CF.INFO` except the size, under RedisBloom's names for them here.
async fn debug(session: &Session, key: &[u8]) -> Result<Reply, Refusal> {
    let CuckooNumbers { bucket_slots, bucket_count, item_count, expansion, iterations_max, .. } =
        cuckoo_numbers(session, key).await?;
    Ok(Reply::bulk(format!(
        "bktsize:{bucket_slots} buckets:{bucket_count} items:{item_count} deletes:0 filters:1 \
         max_iterations:{iterations_max} expansion:{expansion}"
    )))
}

async fn info(session: &Session, key: &[u8]) -> Result<Reply, Refusal> {
    let numbers = cuckoo_numbers(session, key).await?;
    let rows = [
        ("Size", Reply::number(numbers.bytes)),
        ("Number of buckets", Reply::number(numbers.bucket_count)),
        // A filter that has grown is still one table.
        ("Number of filters", Reply::Integer(1)),
        ("Number of items inserted", Reply::number(numbers.item_count)),
        // Removed items are not counted, except that the number of inserted items leaves them out.
        ("Number of items deleted", Reply::Integer(0)),
        ("Bucket size", Reply::number(numbers.bucket_slots)),
        ("Expansion rate", Reply::number(numbers.expansion)),
        ("Max iterations", Reply::number(numbers.iterations_max)),
    ];
    let pair = |(name, value): (&'static str, Reply)| (Reply::Status(name.into()), value);
    Ok(Reply::Map(rows.into_iter().map(pair).collect()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn no_quorum() -> CallFailure {
        CallFailure::NoQuorum { what: "shard 2".to_owned(), within: Duration::from_secs(1) }
    }

    fn is_unknown(outcome: &Result<(), CallFailure>) -> bool {
        matches!(outcome, Err(CallFailure::OutcomeUnknown { .. }))
    }

    /// Clients send again what was not applied, and would insert a copy of what was.
    #[test]
    fn a_failure_beside_an_inserted_item_is_uncertain() {
        let mut added = Vec::new();
        let nothing_done = vec![Ok(Added::Full), Err(no_quorum()), Ok(Added::Present)];
        assert_eq!(take_outcomes(&mut added, nothing_done), Err(no_quorum()));
        let mut added = Vec::new();
        assert!(is_unknown(&take_outcomes(&mut added, vec![Err(no_quorum()), Ok(Added::Yes)])));
        // Also if the item was inserted by an earlier round.
        let mut added = Vec::new();
        assert_eq!(take_outcomes(&mut added, vec![Ok(Added::Yes), Ok(Added::Full)]), Ok(()));
        assert_eq!(added, [Added::Yes, Added::Full]);
        assert!(is_unknown(&take_outcomes(&mut added, vec![Err(no_quorum())])));
        // No failure hides one whose outcome is unknown.
        let unknown = || CallFailure::OutcomeUnknown { what: "w".to_owned() };
        let mut added = Vec::new();
        let failed = take_outcomes(&mut added, vec![Err(unknown()), Err(no_quorum())]);
        assert_eq!(failed, Err(unknown()));
    }
}
