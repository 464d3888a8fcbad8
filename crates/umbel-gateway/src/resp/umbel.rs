//! Umbel's own commands, except those for sessions and requests.

use bytes::Bytes;
use umbel_coordinator::catalogue::{FilterRequest, Hashing};
use umbel_coordinator::sizes::FilterSize;
use umbel_engine::NodeId;
use umbel_engine::limits::REQUEST_ITEMS_MAX;
use umbel_engine::meta::{Distribution, FilterName, FilterVerb};
use umbel_engine::shard::{LateItems, SetOperation, WindowRules, WindowTime};
use umbel_filter::Kind;
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;
use umbel_resp::{
    Arguments, CreateFilter, Items, NewSize, NewWindow, Refusal, Reply, RequestName, SetEstimate,
    UmbelCommand, WindowEnd,
};

use super::answers::refusal;
use super::filters::{client_request, create, described, unless_busy};
use super::packed::Packed;
use super::session::{NoFilter, Session};

/// The items of a command, which count against the caller's rates.
pub(super) const fn items_of<'a>(command: &UmbelCommand<'a>) -> Option<Items<'a>> {
    match *command {
        UmbelCommand::InsertAt { items, .. } | UmbelCommand::Where { of: items } => Some(items),
        _ => None,
    }
}

pub(super) async fn answer(session: &Session, command: UmbelCommand<'_>) -> Result<Reply, Refusal> {
    match command {
        UmbelCommand::Create { key, new } => create_any(session, key, new).await,
        UmbelCommand::Info { key } => filter_info(session, key).await,
        UmbelCommand::Where { of } => location(session, of).await,
        UmbelCommand::InsertAt { items, at_ms } => insert_at(session, items, at_ms).await,
        UmbelCommand::PutTogether { target, sources, is_intersection, request } => {
            put_together(session, target, sources, is_intersection, request).await
        }
        UmbelCommand::Estimate { of, ours, theirs } => estimate(session, of, ours, theirs).await,
        UmbelCommand::Reset(key) => {
            let name = session.filter(FilterVerb::Manage, key)?;
            let deadline = session.shared.deadlines.of_long_command();
            let cleared = session.shared.coordinator.clear(&name, None, deadline).await;
            let (generation, is_replicated) = cleared.map_err(|failure| refusal(&failure))?;
            let confirmed = session.confirm(is_replicated, deadline).await;
            confirmed.map(|()| Reply::number(generation.0)).map_err(|failure| refusal(&failure))
        }
        UmbelCommand::Rotate(key) => {
            let name = session.filter(FilterVerb::Manage, key)?;
            let deadline = session.shared.deadlines.of_long_command();
            let rotated = session.shared.coordinator.rotate(&name, deadline).await;
            rotated.map(|generation| Reply::number(generation.0)).map_err(|f| refusal(&f))
        }
    }
}

const fn distribution_of(is_replicated: bool) -> Distribution {
    if is_replicated { Distribution::Replicated } else { Distribution::Partitioned }
}

fn rules_of(window: NewWindow) -> Result<WindowRules, Refusal> {
    let NewWindow { slice_count, end, late, refresh } = window;
    let (slice_ms, time) = match end {
        WindowEnd::Rotation => (0, WindowTime::Manual),
        WindowEnd::Time { slice_ms, is_of_event: false } => (slice_ms, WindowTime::Ingest),
        WindowEnd::Time { slice_ms, is_of_event: true } => (slice_ms, WindowTime::Event),
    };
    let late = match late {
        umbel_resp::LatePolicy::Reject => LateItems::Reject,
        umbel_resp::LatePolicy::Drop => LateItems::Drop,
        umbel_resp::LatePolicy::Oldest => LateItems::Oldest,
    };
    let rules = WindowRules { slice_ms, slice_count, time, late, refresh };
    rules.check().map_err(|what| Refusal::Other(format!("ERR {what}").into()))?;
    Ok(rules)
}

/// `UMBEL.CREATE`.
async fn create_any(
    session: &Session,
    key: &[u8],
    new: CreateFilter<'_>,
) -> Result<Reply, Refusal> {
    let name = session.filter(FilterVerb::Manage, key)?;
    let plan = match new {
        CreateFilter::Like(other) => FilterRequest::Like(session.filter(FilterVerb::Read, other)?),
        CreateFilter::Planned { kind, capacity, size, is_replicated } => {
            let kind = String::from_utf8_lossy(kind).parse::<Kind>();
            let kind = kind.map_err(|error| Refusal::Other(format!("ERR KIND {error}").into()))?;
            let size = match size {
                NewSize::ErrorRate(rate) => FilterSize::Rate(rate),
                NewSize::Bytes(bytes) => FilterSize::Bytes(bytes),
                NewSize::Chain { .. } if kind != Kind::RedisBloom => {
                    let (argument, value) = ("KIND", kind.to_string());
                    let expected = "redisbloom, the only kind with FIXED or EXPANSION";
                    return Err(Refusal::BadValue { argument, value, expected });
                }
                NewSize::Chain { error_rate: rate, expansion } => {
                    FilterSize::Chain { rate, expansion: Some(expansion).filter(|&by| by > 0) }
                }
            };
            let distribution = distribution_of(is_replicated);
            FilterRequest::Planned { kind, distribution, capacity, size, hashing: Hashing::Keyed }
        }
        CreateFilter::Window { capacity, error_rate: rate, window, is_replicated } => {
            let size = FilterSize::Window { rate, rules: rules_of(window)? };
            let (kind, distribution) = (Kind::Window, distribution_of(is_replicated));
            FilterRequest::Planned { kind, distribution, capacity, size, hashing: Hashing::Keyed }
        }
    };
    create(session, &name, plan).await?;
    Ok(Reply::OK)
}

/// `UMBEL.ADDAT`.
async fn insert_at(session: &Session, items: Items<'_>, at_ms: u64) -> Result<Reply, Refusal> {
    let name = session.filter(FilterVerb::Insert, items.key)?;
    if items.items.len() > REQUEST_ITEMS_MAX {
        let what = format!("ERR at most {REQUEST_ITEMS_MAX} items have one time");
        return Err(Refusal::Other(what.into()));
    }
    let mut packed = Packed::default();
    items.items.pack(&mut packed.data, &mut packed.lengths);
    let deadline = session.shared.deadlines.of_command();
    let coordinator = &session.shared.coordinator;
    let mut new = Vec::with_capacity(items.items.len());
    for batch in packed.batches() {
        let at_ms = Some(at_ms);
        let call = || coordinator.insert_of(name.as_str(), &batch, None, None, at_ms, deadline);
        let refused = |failure| match failure {
            // Its items have no times of their own.
            CallFailure::Invalid { .. } => Refusal::WrongType,
            failure => refusal(&failure),
        };
        let (bits, _) = unless_busy(deadline, call).await.map_err(refused)?;
        new.extend(bits.iter().map(Reply::Boolean));
    }
    Ok(Reply::Array(new))
}

/// `UMBEL.MERGE`, `UMBEL.INTERSECT`; returns how many positions of the target became set.
async fn put_together(
    session: &Session,
    target: &[u8],
    sources: Arguments<'_>,
    is_intersection: bool,
    request: Option<RequestName>,
) -> Result<Reply, Refusal> {
    let target = session.filter(FilterVerb::Insert, target)?;
    let mut names: Vec<FilterName> = Vec::with_capacity(sources.len());
    for source in sources.iter() {
        names.push(session.filter(FilterVerb::Export, source)?);
    }
    let operation = if is_intersection { SetOperation::Intersection } else { SetOperation::Union };
    let deadline = session.shared.deadlines.of_long_command();
    let request = client_request(session, request, deadline).await?;
    let coordinator = &session.shared.coordinator;
    let merged = async {
        let merge = coordinator.prepare_merge(&target, &names, operation, deadline).await?;
        // Filters that do not fit together cost nothing.
        session.caller.take([0, 0, merge.source_bytes()])?;
        coordinator.merge_prepared(merge, request, deadline).await
    };
    merged.await.map(Reply::number).map_err(|failure| refusal(&failure))
}

/// `UMBEL.ESTIMATE`; null if a filter is too full for an estimate.
async fn estimate(
    session: &Session,
    of: SetEstimate,
    ours: &[u8],
    theirs: &[u8],
) -> Result<Reply, Refusal> {
    let ours = session.filter(FilterVerb::Read, ours)?;
    let theirs = session.filter(FilterVerb::Read, theirs)?;
    let deadline = session.shared.deadlines.of_long_command();
    let coordinator = &session.shared.coordinator;
    let overlap = async {
        let prepared = coordinator.prepare_overlap(&ours, &theirs, deadline).await?;
        session.caller.take([0, 0, prepared.filter_bytes()])?;
        coordinator.overlap_prepared(prepared, deadline).await
    };
    let overlap = overlap.await.map_err(|failure| refusal(&failure))?;
    let number = match of {
        SetEstimate::Union => overlap.either.map(|either| either.item_count),
        SetEstimate::Intersection => overlap.both.map(|both| both.item_count),
        SetEstimate::Jaccard => overlap.jaccard(),
    };
    Ok(number.map_or(Reply::Null, Reply::Double))
}

/// `UMBEL.INFO`.
async fn filter_info(session: &Session, key: &[u8]) -> Result<Reply, Refusal> {
    let info = described(session, key).await?.ok_or(Refusal::NotFound)?;
    let settings = &info.record.settings;
    let kind = Kind::from_id(settings.kind).map_or_else(|| "unknown".to_owned(), |k| k.to_string());
    let distribution = if info.record.is_replicated() { "replicated" } else { "partitioned" };
    let (load, probes, outlook) = (info.load(), info.probes(), info.outlook());
    let number = |number: Option<f64>| number.map_or(Reply::Null, Reply::Double);
    let rows = vec![
        ("id", Reply::number(info.id.0)),
        ("kind", Reply::bulk(kind)),
        ("distribution", Reply::bulk(distribution)),
        ("state", Reply::bulk(info.record.state.to_string())),
        ("generation", Reply::number(info.record.generation.0)),
        ("capacity", Reply::number(settings.capacity)),
        ("false_positive_rate", Reply::Double(settings.false_positive_rate)),
        ("false_positive_rate_now", Reply::Double(load.false_positive_rate)),
        ("new_count", Reply::number(load.new_count)),
        ("item_count", number(load.item_count)),
        ("position_count", Reply::number(load.position_count)),
        ("one_count", Reply::number(load.one_count)),
        ("memory_bytes", Reply::number(load.memory_bytes)),
        ("shards", Reply::number(info.slices.len() as u64)),
        ("false_positive_rate_measured", number(probes.rate())),
        ("probe_count", Reply::number(probes.probe_count)),
        ("new_per_second", number(outlook.new_per_second)),
        ("seconds_to_capacity", number(outlook.seconds_to_capacity)),
        ("seconds_to_rate", number(outlook.seconds_to_rate)),
        ("seconds_to_growth", number(outlook.seconds_to_growth)),
        ("unexplained_one_count", info.unexplained_one_count().map_or(Reply::Null, Reply::number)),
    ];
    Ok(Reply::Map(rows.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect()))
}

/// `UMBEL.WHERE`.
async fn location(session: &Session, of: Items<'_>) -> Result<Reply, Refusal> {
    let name = match session.filter(FilterVerb::Read, of.key) {
        Err(NoFilter::NoName) => return Err(Refusal::NotFound),
        name => name?,
    };
    let item = of.items.get(0).unwrap_or_default();
    // Arguments have at most 512 KiB.
    let item_bytes = u32::try_from(item.len()).unwrap_or(u32::MAX);
    let item = ItemBatch::packed(Bytes::copy_from_slice(item), vec![item_bytes]);
    let deadline = session.shared.deadlines.of_command();
    let found = session.shared.coordinator.locate(&name, &item, deadline).await;
    let found = found.map_err(|failure| refusal(&failure))?;
    // Larger than the protocol's integers.
    let hexadecimal = |value: u64| Reply::bulk(format!("{value:016x}"));
    let replica = |(node, address): &(NodeId, String)| {
        let (node, address) = (Reply::number(node.0), Reply::bulk(address));
        Reply::Map(vec![Reply::entry("node", node), Reply::entry("address", address)])
    };
    let number = |number: Option<u64>| number.map_or(Reply::Null, Reply::number);
    Ok(Reply::Map(vec![
        Reply::entry("shard", Reply::number(found.shard.0)),
        Reply::entry("first_hash", hexadecimal(found.range.0)),
        Reply::entry("last_hash", hexadecimal(found.range.1)),
        Reply::entry("leader", number(found.leader.map(|node| node.0))),
        Reply::entry("applied_index", number(found.applied_index)),
        Reply::entry("replicas", Reply::Array(found.replicas.iter().map(replica).collect())),
    ]))
}
