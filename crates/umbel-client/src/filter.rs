//! Inserts, queries and removals of one filter.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::{BufMut, BytesMut};
use tokio::time::Instant;
use umbel_filter::ItemHasher;
use umbel_proto::v1::{
    AckLevel, Applied, Distribution, ErrorCode, FilterSummary, Hashing, ListRequest, ListResponse,
    ReadLevel,
};

use crate::answers::{Answer, Answers, Inserted, Removed};
use crate::batch::{Batch, Header, Part, Verb};
use crate::caller::{CallPolicy, Caller};
use crate::change;
use crate::error::{ClientError, Result};
use crate::limits::{CATALOGUE_PATIENCE, REQUEST_ITEMS_MAX};
use crate::packed_batch::{PackedBatch, PackedPart};
use crate::shard_map::ShardMap;
use crate::singles::{self, Singles};

/// A handle for one filter, cheap to clone. Making one sends no request.
///
/// The items of a filter with keyed hashing go to any node. Items of a filter with public hashing are
/// hashed by the client and go straight to the leaders of their shards. Items of a replicated filter go
/// to one node, the same for all handles of a client, until that node fails: a client sees its own
/// inserts at once, unless it had to change to another node. The client requests the properties of a
/// filter at its first use, in one call with all else that the client lacks, and then every half minute.
///
/// If a filter is dropped and created again under its name with another seed or distribution, a client
/// may treat it like the old one until it notices: give such a filter a new name instead.
#[derive(Clone)]
pub struct Filter {
    caller: Arc<Caller>,
    name: Arc<str>,
    known: Arc<Mutex<Known>>,
    singles: Arc<Singles>,
    /// Whether a batch without items is sent, too.
    sends_empty: bool,
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.caller.nodes.addresses();
        f.debug_struct("Filter")
            .field("name", &self.name)
            .field("nodes", &nodes)
            .finish_non_exhaustive()
    }
}

/// What the client knows of a filter.
#[derive(Clone, Copy, Default)]
struct Known {
    asked: Option<Instant>,
    route: Route,
}

/// How a filter's items are sent.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Route {
    /// The items themselves, to any node, which hashes them.
    #[default]
    Any,
    /// Their hashes under this public seed, to the leaders of their shards.
    Hashed(u64),
    /// The items themselves, to the home node: the filter is replicated.
    Home,
}

impl Filter {
    pub(crate) fn new(caller: Arc<Caller>, name: &str) -> Self {
        let (known, singles) = (Arc::default(), Arc::default());
        Self { caller, name: name.into(), known, singles, sends_empty: false }
    }

    /// The same filter, for callers that want to know whether there is one even if they have no items: a batch without items
    /// is sent like any other, and fails if no node answers, there is no such filter, or the caller may not do that to it.
    /// Otherwise such a batch is answered without a call.
    ///
    /// ```no_run
    /// # async fn example(client: umbel_client::Client) -> Result<(), umbel_client::ClientError> {
    /// let lines = Vec::<String>::new();
    /// client.filter("seen").sending_empty().insert(lines).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sending_empty(self) -> Self {
        Self { sends_empty: true, ..self }
    }

    /// The filter's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Inserts items and returns for each whether it was new. Of equal items in one batch, the first is
    /// new and the others are present, as long as the batch fits one request.
    ///
    /// The items are copied before this returns its future; nothing is sent before the future is polled.
    /// Dropping the future abandons the requests without an answer: they may be applied or not.
    ///
    /// When the future is ready, the items are durable on a majority of their shard's replicas, or for a
    /// replicated filter on the node that answers, unless [`insert_at`](Self::insert_at) requests more.
    ///
    /// ```no_run
    /// # async fn example(client: umbel_client::Client) -> Result<(), umbel_client::ClientError> {
    /// let inserted = client.filter("seen").insert(["alice", "bob"]).await?;
    /// println!("{} new, alice: {:?}", inserted.new_count(), inserted.is_new(0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError`], which tells the caller what to do.
    pub fn insert<I>(&self, items: I) -> impl Future<Output = Result<Inserted>> + use<I>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.insert_at(items, AckLevel::Unspecified)
    }

    /// Inserts items like [`insert`](Self::insert), and is answered once they are durable on as many
    /// nodes as the level requires. Levels `Local` and `OnePartner` are for replicated filters only, and
    /// need no majority of the cluster.
    ///
    /// If an answer of a replicated filter is lost and the client retries, items that the first attempt
    /// inserted are reported as present.
    ///
    /// ```no_run
    /// # async fn example(client: umbel_client::Client) -> Result<(), umbel_client::ClientError> {
    /// use umbel_client::AckLevel;
    ///
    /// let near = client.filter("near");
    /// let inserted = near.insert_at(["alice"], AckLevel::OnePartner).await?;
    /// assert_eq!(inserted.level(), AckLevel::OnePartner);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`insert`](Self::insert); `Refused` if the filter does not support this level.
    pub fn insert_at<I>(
        &self,
        items: I,
        level: AckLevel,
    ) -> impl Future<Output = Result<Inserted>> + use<I>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let batch = PackedBatch::from_items(items);
        let filter = self.clone();
        async move { filter.insert_packed_at(batch?, level).await }
    }

    /// Inserts a batch, without cost per item other than for its bytes.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert).
    pub async fn insert_packed(&self, batch: PackedBatch) -> Result<Inserted> {
        self.insert_packed_at(batch, AckLevel::Unspecified).await
    }

    /// Inserts a batch at a level.
    ///
    /// # Errors
    /// As for [`insert_at`](Self::insert_at).
    pub async fn insert_packed_at(&self, batch: PackedBatch, level: AckLevel) -> Result<Inserted> {
        self.run(Verb::Insert { level, at_ms: None }, batch).await.map(Inserted::new)
    }

    /// Inserts a batch of items with this time into a window by event time
    /// ([`Window::event_time`](crate::Window::event_time)).
    ///
    /// ```no_run
    /// # async fn example(client: umbel_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::{Duration, SystemTime};
    /// use umbel_client::PackedBatch;
    ///
    /// let batch = PackedBatch::from_items(["alice"])?;
    /// let minute_ago = SystemTime::now() - Duration::from_secs(60);
    /// client.filter("seen").insert_packed_of(batch, minute_ago).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`insert`](Self::insert); `Refused` with `OutsideWindow` if the time is before the window,
    /// or more than a slice ahead. A time before the Unix epoch counts as the epoch.
    pub async fn insert_packed_of(&self, batch: PackedBatch, time: SystemTime) -> Result<Inserted> {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at_ms = Some(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        let level = AckLevel::Unspecified;
        self.run(Verb::Insert { level, at_ms }, batch).await.map(Inserted::new)
    }

    /// Queries whether items were inserted. Level `Unspecified` is the filter's default: linearizable for
    /// a partitioned filter, local for a replicated one. `Linearizable` and `AnyReplica` are for
    /// partitioned filters only, `Local` and `Majority` for replicated ones.
    ///
    /// ```no_run
    /// # async fn example(client: umbel_client::Client) -> Result<(), umbel_client::ClientError> {
    /// use umbel_client::ReadLevel;
    ///
    /// let answers = client.filter("seen").contains(["alice"], ReadLevel::Linearizable).await?;
    /// println!("{} present", answers.present_count());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ClientError`], which tells the caller what to do; `Refused` if the filter does not support this
    /// level. Nothing is changed.
    pub fn contains<I>(
        &self,
        items: I,
        level: ReadLevel,
    ) -> impl Future<Output = Result<Answers>> + use<I>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let batch = PackedBatch::from_items(items);
        let filter = self.clone();
        async move { filter.contains_packed(batch?, level).await }
    }

    /// Queries a batch.
    ///
    /// # Errors
    /// As for [`contains`](Self::contains).
    pub async fn contains_packed(&self, batch: PackedBatch, level: ReadLevel) -> Result<Answers> {
        self.run(Verb::Contains(level), batch).await.map(Answers::new)
    }

    /// Removes items from a counting, cuckoo or quotient filter. Remove only items that were inserted;
    /// otherwise others are lost.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert).
    pub fn remove<I>(&self, items: I) -> impl Future<Output = Result<Removed>> + use<I>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let batch = PackedBatch::from_items(items);
        let filter = self.clone();
        async move { filter.remove_packed(batch?).await }
    }

    /// Removes a batch from a counting, cuckoo or quotient filter.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert).
    pub async fn remove_packed(&self, batch: PackedBatch) -> Result<Removed> {
        self.run(Verb::Remove, batch).await.map(Removed::new)
    }

    /// Inserts an item, in a batch with those that other tasks insert with this handle or its clones, and
    /// returns whether it was new. If several tasks insert the same item, exactly one of them gets true.
    ///
    /// No item is delayed to fill a batch: it is sent at once unless two batches are in flight. The
    /// number of waiting items is bounded only by the limit of a batch and the number of waiting tasks.
    ///
    /// [`ClientOptions::timeout`](crate::ClientOptions::timeout) limits each batch. An item that waits may take twice as long: for
    /// one of the two batches before it, and for its own. If the future is dropped while the item waits, it is not sent; if its
    /// batch is on its way, it may be inserted or not.
    ///
    /// ```no_run
    /// # async fn example(client: umbel_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let seen = client.filter("seen");
    /// for page in ["/", "/about", "/"] {
    ///     let seen = seen.clone();
    ///     tokio::spawn(async move {
    ///         if let Ok(true) = seen.insert_one(page).await {
    ///             println!("{page} is new");
    ///         }
    ///     });
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`insert`](Self::insert). The error is that of the whole batch and shared by its items: if
    /// the outcome is unknown, it is for each of them. An item that is too long is in no batch.
    pub async fn insert_one(&self, item: impl AsRef<[u8]>) -> Result<bool, Arc<ClientError>> {
        let verb = Verb::Insert { level: AckLevel::Unspecified, at_ms: None };
        singles::send(self, verb, item.as_ref()).await
    }

    /// Queries whether an item was inserted, in a batch with those that other tasks query at this level:
    /// see [`insert_one`](Self::insert_one).
    ///
    /// # Errors
    /// As for [`contains`](Self::contains), for the batch with the item; nothing is changed.
    pub async fn contains_one(
        &self,
        item: impl AsRef<[u8]>,
        level: ReadLevel,
    ) -> Result<bool, Arc<ClientError>> {
        singles::send(self, Verb::Contains(level), item.as_ref()).await
    }

    pub(crate) fn singles(&self) -> &Singles {
        &self.singles
    }

    pub(crate) async fn run(&self, verb: Verb, batch: PackedBatch) -> Result<Answer> {
        if batch.is_empty() && !self.sends_empty {
            return Ok(Answer::default());
        }
        let item_count = batch.len();
        let route = self.route(verb).await?;
        let parts = match route {
            _ if item_count == 0 => vec![Part::packed(PackedPart::default(), 0)],
            Route::Hashed(seed) => match self.caller.shard_map().await {
                Some(map) => hashed_parts(&batch, seed, &map),
                None => packed_parts(batch),
            },
            Route::Any | Route::Home => packed_parts(batch),
        };
        let (caller, filter) = (Arc::clone(&self.caller), Arc::clone(&self.name));
        let is_replicated = route == Route::Home;
        let header = Arc::new(Header { caller, filter, verb, is_replicated });
        let result = change::run(Batch { header, parts, item_count }).await;
        if let Err(ClientError::Refused(failure)) = &result {
            // Another filter may have the name by now.
            let is_about_filter = matches!(
                failure.cause,
                ErrorCode::UnknownFilter | ErrorCode::Invalid | ErrorCode::WrongKind
            );
            if is_about_filter || failure.applied == Applied::Partly {
                *self.known() = Known::default();
            }
        }
        result
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How to send the items. If the filter's properties are unknown, any node may be used, since nodes
    /// hash items of any filter themselves.
    async fn route(&self, verb: Verb) -> Result<Route> {
        let options = &self.caller.options;
        match verb {
            // Partitioned filters refuse these levels, so no lookup is needed, which could need a
            // majority.
            Verb::Insert { level: AckLevel::Local | AckLevel::OnePartner, .. }
            | Verb::Contains(ReadLevel::Local | ReadLevel::Majority) => return Ok(Route::Home),
            // Replicated filters refuse these.
            Verb::Contains(ReadLevel::Linearizable | ReadLevel::AnyReplica) | Verb::Remove
                if !options.learns_nodes =>
            {
                return Ok(Route::Any);
            }
            _ => {}
        }
        let known = *self.known();
        if known.asked.is_some_and(|asked| asked.elapsed() < options.map_age_max) {
            return Ok(known.route);
        }
        let found = if known.route == Route::Home {
            let asking = summary_of(&self.caller, &self.name);
            // It most likely still is replicated, and remains usable without a majority to confirm that.
            match tokio::time::timeout(CATALOGUE_PATIENCE, asking).await {
                Ok(Ok(found)) => found,
                Ok(Err(_)) | Err(_) => {
                    self.known().asked = Some(Instant::now());
                    return Ok(Route::Home);
                }
            }
        } else {
            match self.look_up(verb).await {
                Err(error @ ClientError::Unavailable(_)) => return Err(error),
                found => found.ok().flatten(),
            }
        };
        // If there is no such filter, the next call looks it up again: it may be created at any time.
        let Some(summary) = found else { return Ok(Route::Any) };
        let route = match (summary.distribution(), summary.hashing()) {
            (Distribution::Replicated, _) => Route::Home,
            (_, Hashing::Public) if options.learns_nodes => Route::Hashed(summary.key_id),
            _ => Route::Any,
        };
        *self.known() = Known { asked: Some(Instant::now()), route };
        Ok(route)
    }

    /// The catalogue's entry of the filter. If the verb needs a session and the client has none, one call is to bring both.
    async fn look_up(&self, verb: Verb) -> Result<Option<FilterSummary>> {
        let listed = match verb {
            Verb::Insert { .. } | Verb::Remove => self.caller.first_session(&self.name).await,
            Verb::Contains(_) => None,
        };
        match listed {
            Some(listed) => Ok(take_summary(&self.caller, &self.name, listed)),
            None => summary_of(&self.caller, &self.name).await,
        }
    }
}

/// The catalogue's entry of a filter: as the called node knows it, which needs no majority; if that node
/// does not know the filter, as a majority knows it.
async fn summary_of(caller: &Arc<Caller>, name: &str) -> Result<Option<FilterSummary>> {
    match listed(caller, name, true).await {
        Ok(None) => listed(caller, name, false).await,
        found => found,
    }
}

async fn listed(caller: &Arc<Caller>, name: &str, as_heard: bool) -> Result<Option<FilterSummary>> {
    // Among the names with this prefix, the name itself is the first.
    let (prefix, after) = (name.to_owned(), String::new());
    let with_shard_map = caller.wants_map();
    let message = ListRequest { prefix, limit: 1, after, as_heard, with_shard_map };
    let target = format!("filter {name:?}");
    let policy = CallPolicy::freely(&target);
    let answer = caller
        .request(
            &policy,
            message,
            |node, request| async move { node.filters().list(request).await },
        )
        .await?;
    Ok(take_summary(caller, name, answer))
}

/// The entry of the filter in a list that begins with its name, if there is one. The shard map that came with the list is
/// kept.
fn take_summary(caller: &Caller, name: &str, listed: ListResponse) -> Option<FilterSummary> {
    if let Some(map) = listed.shard_map {
        caller.take_map(map);
    }
    listed.filters.into_iter().next().filter(|summary| summary.name == name)
}

fn packed_parts(batch: PackedBatch) -> Vec<Part> {
    let mut start = 0;
    let place = |packed| {
        let part = Part::packed(packed, start);
        start += part.item_count();
        part
    };
    batch.into_parts().into_iter().map(place).collect()
}

/// Hashes the items and splits them by shard; within a shard, items keep their order.
fn hashed_parts(batch: &PackedBatch, seed: u64, map: &ShardMap) -> Vec<Part> {
    let hasher = ItemHasher::Xxh3 { seed };
    let shard_count = map.shard_count();
    let expected = (batch.len() / shard_count * 9 / 8 + 8).min(REQUEST_ITEMS_MAX);
    let mut open: Vec<(BytesMut, Vec<u32>)> = Vec::new();
    open.resize_with(shard_count, Default::default);
    let mut parts = Vec::new();
    let close = |(hashes, places): (BytesMut, Vec<u32>)| {
        let hashes = hashes.freeze();
        let first = hashes.first_chunk().expect("a part has at least one hash");
        let hi = u64::from_le_bytes(*first);
        Part::hashes(hashes, hi, seed, places)
    };
    for (place, item) in (0..).zip(batch.iter()) {
        let hash = hasher.hash(item);
        let shard = &mut open[map.shard_of(hash.hi())];
        if shard.1.is_empty() {
            shard.0.reserve(expected * 16);
            shard.1.reserve(expected);
        }
        shard.0.put_u64_le(hash.hi());
        shard.0.put_u64_le(hash.lo());
        shard.1.push(place);
        if shard.1.len() == REQUEST_ITEMS_MAX {
            parts.push(close(std::mem::take(shard)));
        }
    }
    parts.extend(open.into_iter().filter(|shard| !shard.1.is_empty()).map(close));
    parts
}
