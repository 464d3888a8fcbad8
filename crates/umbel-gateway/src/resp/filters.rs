//! Commands about filters: create, insert, look up, describe.

use std::future::Future;
use std::ops::Range;

use tokio::time::Instant;
use umbel_coordinator::catalogue::{FilterInfo, FilterRequest, Hashing};
use umbel_coordinator::sizes::FilterSize;
use umbel_coordinator::{ClientRequest, partly};
use umbel_engine::limits::REQUEST_ITEMS_MAX;
use umbel_engine::meta::{Distribution, FilterName, FilterVerb, MetaError};
use umbel_engine::shard::{Bitmap, SliceShape};
use umbel_engine::{OwnerId, RequestId, SessionId, ShardId};
use umbel_filter::{HashRange, Kind, RedisBloomHeader, Shape};
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;
use umbel_node::limits::RETRY_WAIT_MIN;
use umbel_resp::{AnswerForm, InfoField, NewBloom, Refusal, Reply, RequestName};
use umbel_step::planted::{self, Planted};

use super::answers::refusal;
use super::fixed_chains;
use super::packed::Packed;
use super::session::{NoFilter, Session};
use super::shared::Counts;
use crate::limits::RESP_BUSY_WAIT_MAX;

/// Bytes of RedisBloom's own record of a filter, which its `Size` includes besides the arrays.
const CHAIN_BYTES: u64 = 32;

/// Bytes of its record of each link.
const LINK_BYTES: u64 = 64;

/// Bytes that Redis counts for the key and the object of such a filter, besides its `Size`.
const KEY_BYTES: u64 = 48;

/// What a caller is told who may insert into filters of a name, but not create the one that is missing.
pub(super) const MAY_NOT_CREATE: &str = "No permissions to access a key: there is no such filter, and whoever creates one \
                                         needs the right to manage it";

/// The outcome for items: an answer for each of the first ones, and why the others have none.
pub(super) struct ItemAnswers {
    pub(super) bits: Vec<bool>,
    pub(super) refusal: Option<Refusal>,
}

impl ItemAnswers {
    fn refused(refusal: impl Into<Refusal>) -> Self {
        Self { bits: Vec::new(), refusal: Some(refusal.into()) }
    }

    /// A batch of an insert failed after others had answered.
    fn of_failure(bits: Vec<bool>, failure: CallFailure) -> Self {
        let failure = if bits.is_empty() { failure } else { partly(failure) };
        Self { bits, refusal: Some(refusal(&failure)) }
    }

    /// Writes the answer to the command that has this range of the items.
    pub(super) fn encode(
        &self,
        session: &Session,
        items: Range<usize>,
        form: AnswerForm,
        out: &mut Vec<u8>,
    ) {
        let answered = self.bits.get(items.start..items.end.min(self.bits.len()));
        let answered = answered.unwrap_or_default();
        let error = match &self.refusal {
            Some(refusal) if answered.len() < items.len() => Some(refusal.clone()),
            _ => None,
        };
        // A full filter is the last element of the list; any other error is the whole answer if nothing
        // was done.
        let is_full = error == Some(Refusal::Full);
        match error {
            Some(error) if !form.is_list() || (answered.is_empty() && !is_full) => {
                session.answer(error, out);
            }
            error if form.is_list() => {
                let count = answered.len() + usize::from(error.is_some());
                umbel_resp::encode_array_head(count, out);
                answered.iter().for_each(|&bit| session.answer(of_item(form, bit), out));
                if let Some(error) = error {
                    session.answer(error, out);
                }
            }
            _ if form == AnswerForm::Count => {
                session.answer(Reply::number(answered.iter().filter(|&&bit| bit).count()), out);
            }
            _ => session.answer(of_item(form, answered.first() == Some(&true)), out),
        }
    }
}

/// The answer for one item.
fn of_item(form: AnswerForm, bit: bool) -> Reply {
    match form {
        AnswerForm::Numbers | AnswerForm::Count => Reply::Integer(bit.into()),
        AnswerForm::One | AnswerForm::List => Reply::Boolean(bit),
    }
}

/// Retries, for a limited time, while the filter is being created, cleared or dropped.
pub(super) async fn unless_busy<T, F>(
    deadline: Instant,
    call: impl Fn() -> F,
) -> Result<T, CallFailure>
where
    F: Future<Output = Result<T, CallFailure>>,
{
    let patience = (Instant::now() + RESP_BUSY_WAIT_MAX).min(deadline);
    loop {
        match call().await {
            Err(CallFailure::FilterBusy { .. }) if Instant::now() < patience => {
                tokio::time::sleep(RETRY_WAIT_MIN).await;
            }
            answer => return answer,
        }
    }
}

/// Inserts items; creates a missing filter if `new` is given.
pub(super) async fn insert(
    session: &Session,
    key: &[u8],
    new: Option<NewBloom>,
    items: Packed,
    request: Option<RequestName>,
) -> ItemAnswers {
    let deadline = session.shared.deadlines.of_command();
    let name = match session.filter(FilterVerb::Insert, key) {
        Ok(name) => name,
        Err(why) => return ItemAnswers::refused(why),
    };
    if request.is_some() && items.lengths.len() > REQUEST_ITEMS_MAX {
        let what = format!("ERR a named request has at most {REQUEST_ITEMS_MAX} items");
        return ItemAnswers::refused(Refusal::Other(what.into()));
    }
    // Boxed: most requests have no name, and most batches fit.
    let request = match request {
        None => None,
        named => match Box::pin(client_request(session, named, deadline)).await {
            Ok(request) => request,
            Err(refusal) => return ItemAnswers::refused(refusal),
        },
    };
    let (mut bits, mut rest) = (Vec::with_capacity(items.lengths.len()), items);
    while !rest.lengths.is_empty() {
        let count = match request {
            // The shard knows the request by all of its items.
            Some(_) => rest.lengths.len(),
            None if rest.lengths.len() == 1 => 1,
            None => {
                let fitting = fixed_chains::fitting_count(session, &name, new, &rest, deadline);
                Box::pin(fitting).await
            }
        };
        let behind = rest.split_off(count);
        let batch = std::mem::replace(&mut rest, behind).into_batch();
        match insert_batch(session, &name, new, &batch, request, deadline).await {
            Ok(answers) => bits.extend(answers.iter()),
            Err(failure) => return ItemAnswers::of_failure(bits, failure),
        }
    }
    ItemAnswers { bits, refusal: None }
}

/// The request id as shards know it, after the session was checked.
pub(super) async fn client_request(
    session: &Session,
    request: Option<RequestName>,
    deadline: Instant,
) -> Result<Option<ClientRequest>, Refusal> {
    let Some(RequestName { session: number, sequence, acknowledged_below }) = request else {
        return Ok(None);
    };
    if number == 0 || sequence == 0 || acknowledged_below > sequence {
        let what = "ERR SESSION and SEQUENCE are from 1 on, and BELOW is at most SEQUENCE";
        return Err(Refusal::Other(what.into()));
    }
    let id = RequestId { session: SessionId(number), sequence };
    let request = ClientRequest { id, acknowledged_below, owner: OwnerId::default() };
    let owner = session.caller.owner();
    let checked = session.shared.coordinator.sessions().check(Some(request), &owner, deadline);
    let checked = checked.await.map_err(|failure| refusal(&failure))?;
    Ok(checked.filter(|_| !planted::on(Planted::RespNameForgotten)))
}

async fn insert_batch(
    session: &Session,
    name: &FilterName,
    new: Option<NewBloom>,
    batch: &ItemBatch,
    request: Option<ClientRequest>,
    deadline: Instant,
) -> Result<Bitmap, CallFailure> {
    let coordinator = &session.shared.coordinator;
    let new = || new.map(|new| plan(session, new));
    let call = || coordinator.insert(name.as_str(), batch, request, None, deadline);
    or_create(session, name, new, deadline, call).await.map(|(bits, _)| bits)
}

/// Calls for a filter; creates it if there is none and `new` plans one, also if the call is the first to notice that.
pub(super) async fn or_create<T, F>(
    session: &Session,
    name: &FilterName,
    new: impl Fn() -> Option<FilterRequest>,
    deadline: Instant,
    call: impl Fn() -> F,
) -> Result<T, CallFailure>
where
    F: Future<Output = Result<T, CallFailure>>,
{
    loop {
        match unless_busy(deadline, &call).await {
            Err(missing @ CallFailure::UnknownFilter { .. }) => {
                let Some(new) = new() else { return Err(missing) };
                match Box::pin(try_create(session, name, new, deadline)).await {
                    // Another client created it at the same time.
                    Ok(()) | Err(CallFailure::Meta(MetaError::NameTaken { .. }))
                        if Instant::now() < deadline => {}
                    Ok(()) => return Err(missing),
                    Err(failure) => return Err(failure),
                }
            }
            answer => return answer,
        }
    }
}

/// Looks up items.
pub(super) async fn contains(session: &Session, key: &[u8], items: Packed) -> ItemAnswers {
    let deadline = session.shared.deadlines.of_command();
    let count = items.lengths.len();
    let absent = || {
        Counts::add(&session.shared.counts.misses, 1);
        ItemAnswers { bits: vec![false; count], refusal: None }
    };
    let name = match session.filter(FilterVerb::Read, key) {
        Ok(name) => name,
        Err(NoFilter::NoName) => return absent(),
        Err(why @ NoFilter::Denied) => return ItemAnswers::refused(why),
    };
    let mut bits = Vec::with_capacity(count);
    for batch in items.batches() {
        match unless_busy(deadline, || look_up(session, &name, &batch, deadline)).await {
            Ok(present) => bits.extend(present.iter()),
            Err(CallFailure::UnknownFilter { .. }) => return absent(),
            Err(failure) => return ItemAnswers { bits, refusal: Some(refusal(&failure)) },
        }
    }
    Counts::add(&session.shared.counts.hits, 1);
    ItemAnswers { bits, refusal: None }
}

/// Looks up items, after `READONLY` on the fewest nodes.
async fn look_up(
    session: &Session,
    name: &FilterName,
    batch: &ItemBatch,
    deadline: Instant,
) -> Result<Bitmap, CallFailure> {
    let (coordinator, name) = (&session.shared.coordinator, name.as_str());
    let (present, _) = if session.reads_anywhere {
        coordinator.contains_nearby(name, batch, deadline).await?
    } else {
        coordinator.contains(name, batch, None, deadline).await?
    };
    Ok(present)
}

/// The filter that a plain command creates.
fn plan(session: &Session, new: NewBloom) -> FilterRequest {
    let kind = match (session.shared.default_kind, new.expansion) {
        (Kind::Scalable, 0) => Kind::Blocked,
        (kind, _) => kind,
    };
    let rate = new.error_rate;
    let size = match kind {
        Kind::RedisBloom => {
            FilterSize::Chain { rate, expansion: Some(new.expansion).filter(|&by| by > 0) }
        }
        _ => FilterSize::Rate(rate),
    };
    let (distribution, hashing) = (Distribution::Partitioned, Hashing::Keyed);
    FilterRequest::Planned { kind, distribution, capacity: new.capacity, size, hashing }
}

/// Creates a filter, if the caller may: until the deadline of a command that does only this.
pub(super) async fn create(
    session: &Session,
    name: &FilterName,
    new: FilterRequest,
) -> Result<(), Refusal> {
    let deadline = session.shared.deadlines.of_long_command();
    try_create(session, name, new, deadline).await.map_err(|failure| refusal(&failure))
}

/// The same until this deadline.
pub(super) async fn try_create(
    session: &Session,
    name: &FilterName,
    new: FilterRequest,
    deadline: Instant,
) -> Result<(), CallFailure> {
    let name = session.caller.filter(FilterVerb::Manage, "key", name.as_str().to_owned());
    let name = name.map_err(|failure| match failure {
        CallFailure::Denied { .. } => CallFailure::Denied { what: MAY_NOT_CREATE.to_owned() },
        failure => failure,
    })?;
    let owner = session.caller.principal_name();
    let (_, record) = session.shared.coordinator.create(&name, &new, owner, deadline).await?;
    session.confirm(record.is_replicated(), deadline).await
}

/// `BF.RESERVE`.
pub(super) async fn reserve(
    session: &Session,
    key: &[u8],
    new: NewBloom,
) -> Result<Reply, Refusal> {
    let name = session.filter(FilterVerb::Manage, key)?;
    create(session, &name, plan(session, new)).await?;
    Ok(Reply::OK)
}

/// A filter's information; None if the filter does not exist.
pub(super) async fn described(
    session: &Session,
    key: &[u8],
) -> Result<Option<FilterInfo>, Refusal> {
    let deadline = session.shared.deadlines.of_command();
    let name = match session.filter(FilterVerb::Read, key) {
        Ok(name) => name,
        Err(NoFilter::NoName) => return Ok(None),
        Err(why @ NoFilter::Denied) => return Err(why.into()),
    };
    match unless_busy(deadline, || session.shared.coordinator.info(&name, deadline)).await {
        Ok(info) => Ok(Some(info)),
        Err(
            CallFailure::UnknownFilter { .. } | CallFailure::Meta(MetaError::UnknownFilter { .. }),
        ) => Ok(None),
        Err(failure) => Err(refusal(&failure)),
    }
}

pub(super) fn memory_bytes(info: &FilterInfo) -> u64 {
    info.load().memory_bytes
}

/// Levels of the longest chain: a growing filter opens the next level, twice as large, at the first item
/// for which the others have no room.
fn level_count(info: &FilterInfo) -> u32 {
    let SliceShape::Scalable { item_count: first, .. } = info.record.settings.shape else {
        return 1;
    };
    let levels = |shard: ShardId, new_count: u64| {
        let range = info.ranges.range(shard).unwrap_or(HashRange::WHOLE);
        let mut room = 0_u64;
        (1_u32..64).find(|level| {
            let capacity = first.saturating_mul(1 << (level - 1));
            room = room.saturating_add(range.share_of(capacity));
            new_count <= room
        })
    };
    let counts =
        info.slices.iter().map(|&(shard, ref slice)| levels(shard, slice.new_count).unwrap_or(64));
    counts.max().unwrap_or(1)
}

/// Number of items: those that were new when inserted. If none was, because all came with a copy or a
/// merge, the estimate from the filter's bits.
fn item_count(info: &FilterInfo) -> u64 {
    let load = info.load();
    match load.new_count {
        #[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
        0 => load.item_count.unwrap_or(0.0).round() as u64,
        count => count,
    }
}

/// What `BF.INFO` shows of a filter.
struct BloomNumbers {
    capacity: u64,
    size: u64,
    filters: u32,
    /// None if the filter does not grow.
    expansion: Option<u32>,
}

/// The header that RedisBloom would have for its own filter; None for other kinds.
pub(super) fn chain_header(info: &FilterInfo) -> Option<RedisBloomHeader> {
    let Ok(Shape::RedisBloom(shape)) = info.record.settings.shape.shape(HashRange::WHOLE) else {
        return None;
    };
    RedisBloomHeader::new(shape, info.load().new_count).ok()
}

/// The figures that RedisBloom would show for its own filter; None for other kinds.
fn chain_numbers(info: &FilterInfo) -> Option<BloomNumbers> {
    let header = chain_header(info)?;
    let filters = u32::try_from(header.links().len()).ok()?;
    let size = CHAIN_BYTES + u64::from(filters) * LINK_BYTES + header.data_bytes();
    let capacity = header.links().iter().map(|link| link.capacity());
    let capacity = capacity.fold(0_u64, u64::saturating_add);
    let shape = header.shape();
    let expansion = Some(shape.expansion()).filter(|_| !shape.is_fixed());
    Some(BloomNumbers { capacity, size, filters, expansion })
}

fn bloom_numbers(info: &FilterInfo) -> BloomNumbers {
    if let Some(numbers) = chain_numbers(info) {
        return numbers;
    }
    let levels = level_count(info);
    let is_growing = Kind::from_id(info.record.settings.kind).is_some_and(Kind::grows);
    let capacity = info.record.settings.capacity;
    let capacity = capacity.saturating_mul(1_u64.checked_shl(levels).unwrap_or(u64::MAX) - 1);
    let expansion = is_growing.then_some(2);
    BloomNumbers { capacity, size: memory_bytes(info), filters: levels, expansion }
}

/// `MEMORY USAGE`: the `Size` of `BF.INFO`; for RedisBloom's own filter also what Redis counts for the key.
pub(super) async fn memory_usage(session: &Session, key: &[u8]) -> Result<Reply, Refusal> {
    let Some(info) = described(session, key).await? else { return Ok(Reply::Null) };
    Ok(Reply::number(match chain_numbers(&info) {
        Some(numbers) => numbers.size + KEY_BYTES,
        None => bloom_numbers(&info).size,
    }))
}

/// `BF.CARD`.
pub(super) async fn cardinality(session: &Session, key: &[u8]) -> Result<Reply, Refusal> {
    let info = described(session, key).await?;
    Ok(Reply::number(info.as_ref().map_or(0, item_count)))
}

/// `BF.INFO`.
pub(super) async fn bloom_info(
    session: &Session,
    key: &[u8],
    field: Option<InfoField>,
) -> Result<Reply, Refusal> {
    let info = described(session, key).await?.ok_or(Refusal::NotFound)?;
    let BloomNumbers { capacity, size, filters, expansion } = bloom_numbers(&info);
    let rows = [
        (InfoField::Capacity, "Capacity", Reply::number(capacity)),
        (InfoField::Size, "Size", Reply::number(size)),
        (InfoField::Filters, "Number of filters", Reply::number(filters)),
        (InfoField::Items, "Number of items inserted", Reply::number(item_count(&info))),
        (InfoField::Expansion, "Expansion rate", expansion.map_or(Reply::Null, Reply::number)),
    ];
    let pair =
        |(_, name, value): (InfoField, &'static str, Reply)| (Reply::Status(name.into()), value);
    let Some(field) = field else { return Ok(Reply::Map(rows.into_iter().map(pair).collect())) };
    let row = rows.into_iter().find(|(known, ..)| *known == field);
    let (name, value) = pair(row.expect("each field has its row"));
    Ok(match session.protocol {
        umbel_resp::Protocol::Two => Reply::Array(vec![value]),
        umbel_resp::Protocol::Three => Reply::Map(vec![(name, value)]),
    })
}

/// `UMBEL.SESSION`.
pub(super) async fn open_session(session: &Session) -> Result<Reply, Refusal> {
    let deadline = session.shared.deadlines.of_command();
    let opened = session.shared.coordinator.sessions().open(session.caller.owner(), deadline).await;
    Ok(Reply::number(opened.map_err(|failure| refusal(&failure))?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients send again what begins with `CLUSTERDOWN` or `TRYAGAIN`, and would insert the first batch twice.
    #[test]
    fn a_batch_that_fails_behind_another_is_uncertain() {
        let busy = || CallFailure::Overloaded { what: "w".to_owned() };
        let text = |bits: &[bool], failure| {
            let answered = ItemAnswers::of_failure(bits.to_vec(), failure);
            assert_eq!(answered.bits, bits);
            match Reply::from(answered.refusal.unwrap()) {
                Reply::Error(text) => text.into_owned(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(text(&[], busy()), "TRYAGAIN w");
        let uncertain = text(&[false], busy());
        assert!(uncertain.starts_with("UNCERTAIN some items were inserted"), "{uncertain}");
        let gone = CallFailure::UnknownFilter { name: "k".to_owned() };
        assert_eq!(text(&[], gone.clone()), "ERR not found");
        assert!(text(&[true], gone).starts_with("UNCERTAIN "));
    }
}
