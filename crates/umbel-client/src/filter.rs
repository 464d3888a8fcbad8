//! Items in and out of one filter.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::{BufMut, BytesMut};
use tokio::time::Instant;
use umbel_filter::ItemHasher;
use umbel_proto::v1::{
    AckLevel, Applied, Distribution, ErrorCode, FilterSummary, Hashing, ListRequest, ReadLevel,
};

use crate::answers::{Answer, Answers, Inserted, Removed};
use crate::batch::{Batch, Header, Part, Verb};
use crate::caller::{Ask, Caller, First, Repeat};
use crate::change;
use crate::error::ClientError;
use crate::limits::{CATALOGUE_PATIENCE, REQUEST_ITEMS_MAX};
use crate::packed_batch::PackedBatch;
use crate::shard_map::ShardMap;
use crate::singles::{self, Singles};

/// A handle of one filter, cheap to clone. Making one asks nobody.
///
/// Items of filters with keyed hashing go to any node. Those of filters with public hashing are
/// hashed here and go straight to the leaders of their shards. Those of replicated filters go to one
/// node, the same for all handles of a client, until it fails: what a client inserted it finds again
/// at once, unless it had to change over. What a filter is like is asked at its first use and then
/// every half minute.
///
/// A filter that is dropped and made again under its name with another seed or distribution may be
/// asked as the old one until that is noticed: give such a filter a new name instead.
#[derive(Clone)]
pub struct Filter {
    caller: Arc<Caller>,
    name: Arc<str>,
    known: Arc<Mutex<Known>>,
    singles: Arc<Singles>,
}

/// What is known of a filter.
#[derive(Clone, Copy, Default)]
struct Known {
    asked: Option<Instant>,
    route: Route,
}

/// How a filter's items travel.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Route {
    /// As they are, to any node, which hashes them.
    #[default]
    Any,
    /// As hashes under this public seed, to the leaders of their shards.
    Hashed(u64),
    /// As they are, to the one node whose copies are used: the filter is replicated.
    Home,
}

impl Filter {
    pub(crate) fn new(caller: Arc<Caller>, name: &str) -> Self {
        Self { caller, name: name.into(), known: Arc::default(), singles: Arc::default() }
    }

    /// The filter's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Inserts items and says of each whether it was new. Of equal items in one batch the first is
    /// new and the others are present, as long as the batch fits one request.
    ///
    /// Items are copied before this returns its future; nothing is sent before that is awaited.
    /// Dropping the future gives up what has no answer: it may be applied or not.
    ///
    /// The items are durable on a majority of their shard's replicas then; those of a replicated
    /// filter on the node that answers, unless [`insert_at`](Self::insert_at) asks for more.
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
    /// [`ClientError`] says what to do.
    pub fn insert<I>(
        &self,
        items: I,
    ) -> impl Future<Output = Result<Inserted, ClientError>> + use<I>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.insert_at(items, AckLevel::Unspecified)
    }

    /// Inserts items as [`insert`](Self::insert), and is answered once they are durable on as many
    /// nodes as the level says. Levels `Local` and `OnePartner` are for replicated filters only, and
    /// need no majority of the cluster.
    ///
    /// If the answers to a replicated filter were lost and it was sent again, items that it inserted
    /// the first time are called present.
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
    /// As [`insert`](Self::insert); `Refused` if the filter does not have this level.
    pub fn insert_at<I>(
        &self,
        items: I,
        level: AckLevel,
    ) -> impl Future<Output = Result<Inserted, ClientError>> + use<I>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let batch = PackedBatch::from_items(items);
        let filter = self.clone();
        async move { filter.insert_packed_at(batch?, level).await }
    }

    /// Inserts a batch, which costs nothing an item but its bytes' way.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn insert_packed(&self, batch: PackedBatch) -> Result<Inserted, ClientError> {
        self.insert_packed_at(batch, AckLevel::Unspecified).await
    }

    /// Inserts a batch at a level.
    ///
    /// # Errors
    /// As [`insert_at`](Self::insert_at).
    pub async fn insert_packed_at(
        &self,
        batch: PackedBatch,
        level: AckLevel,
    ) -> Result<Inserted, ClientError> {
        self.run(Verb::Insert { level, at_ms: None }, batch).await.map(Inserted::new)
    }

    /// Inserts a batch of items that have this time into a window that takes the time of events
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
    /// As [`insert`](Self::insert); `Refused` with `OutsideWindow` if the time is before the window,
    /// or more than a slice ahead. A time before 1970 is taken for 1970.
    pub async fn insert_packed_of(
        &self,
        batch: PackedBatch,
        time: SystemTime,
    ) -> Result<Inserted, ClientError> {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at_ms = Some(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        let level = AckLevel::Unspecified;
        self.run(Verb::Insert { level, at_ms }, batch).await.map(Inserted::new)
    }

    /// Asks whether items were inserted. Level `Unspecified` is the filter's default: linearizable
    /// of a partitioned one, local of a replicated one. `Linearizable` and `AnyReplica` are for
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
    /// [`ClientError`] says what to do, `Refused` if the filter does not have this level; nothing is
    /// changed.
    pub fn contains<I>(
        &self,
        items: I,
        level: ReadLevel,
    ) -> impl Future<Output = Result<Answers, ClientError>> + use<I>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let batch = PackedBatch::from_items(items);
        let filter = self.clone();
        async move { filter.contains_packed(batch?, level).await }
    }

    /// Asks for a batch.
    ///
    /// # Errors
    /// As [`contains`](Self::contains).
    pub async fn contains_packed(
        &self,
        batch: PackedBatch,
        level: ReadLevel,
    ) -> Result<Answers, ClientError> {
        self.run(Verb::Contains(level), batch).await.map(Answers::new)
    }

    /// Takes items out of a counting, cuckoo or quotient filter: only ones that were inserted, or others go missing.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn remove<I>(&self, items: I) -> impl Future<Output = Result<Removed, ClientError>> + use<I>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let batch = PackedBatch::from_items(items);
        let filter = self.clone();
        async move { filter.remove_packed(batch?).await }
    }

    /// Takes a batch out of a counting, cuckoo or quotient filter.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn remove_packed(&self, batch: PackedBatch) -> Result<Removed, ClientError> {
        self.run(Verb::Remove, batch).await.map(Removed::new)
    }

    /// Inserts an item, together with those that other tasks insert by this handle or clones of it, and
    /// says whether it was new. Of several tasks that insert the same item exactly one hears that.
    ///
    /// Nothing is held back for company: an item goes at once unless two batches are on their way. There
    /// is no bound but that of a batch on what waits: as many items as there are tasks that wait.
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
    /// As [`insert`](Self::insert), of the batch that the item was in and shared by its items: where the
    /// outcome is unknown, that of each of them is. An item that is too long is in no batch.
    pub async fn insert_one(&self, item: impl AsRef<[u8]>) -> Result<bool, Arc<ClientError>> {
        let verb = Verb::Insert { level: AckLevel::Unspecified, at_ms: None };
        singles::ask(self, verb, item.as_ref()).await
    }

    /// Asks whether an item was inserted, together with those that other tasks ask for at this level: see
    /// [`insert_one`](Self::insert_one).
    ///
    /// # Errors
    /// As [`contains`](Self::contains), of the batch that the item was in; nothing is changed.
    pub async fn contains_one(
        &self,
        item: impl AsRef<[u8]>,
        level: ReadLevel,
    ) -> Result<bool, Arc<ClientError>> {
        singles::ask(self, Verb::Contains(level), item.as_ref()).await
    }

    pub(crate) fn singles(&self) -> &Singles {
        &self.singles
    }

    pub(crate) async fn run(&self, verb: Verb, batch: PackedBatch) -> Result<Answer, ClientError> {
        if batch.is_empty() {
            return Ok(Answer::default());
        }
        let item_count = batch.len();
        let route = self.route(verb).await?;
        let parts = match route {
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
            // It may be another filter by now.
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

    /// How the items travel. To any node where nobody can tell: nodes hash what comes as items,
    /// whatever the filter.
    async fn route(&self, verb: Verb) -> Result<Route, ClientError> {
        let options = &self.caller.options;
        match verb {
            // Other filters refuse these levels, so nobody need be asked, and no majority be there.
            Verb::Insert { level: AckLevel::Local | AckLevel::OnePartner, .. }
            | Verb::Contains(ReadLevel::Local | ReadLevel::Majority) => return Ok(Route::Home),
            // And replicated ones these.
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
        let asking = summary_of(&self.caller, &self.name);
        let found = if known.route == Route::Home {
            // It most likely still is, and goes on where no majority can say so.
            match tokio::time::timeout(CATALOGUE_PATIENCE, asking).await {
                Ok(Ok(found)) => found,
                Ok(Err(_)) | Err(_) => {
                    self.known().asked = Some(Instant::now());
                    return Ok(Route::Home);
                }
            }
        } else {
            match asking.await {
                Err(error @ ClientError::Unavailable(_)) => return Err(error),
                found => found.ok().flatten(),
            }
        };
        // If there is none, the next call asks again: it may be about to be created.
        let Some(summary) = found else { return Ok(Route::Any) };
        let route = match (summary.distribution(), summary.hashing()) {
            (Distribution::Replicated, _) => Route::Home,
            (_, Hashing::Public) if options.learns_nodes => Route::Hashed(summary.key_id),
            _ => Route::Any,
        };
        *self.known() = Known { asked: Some(Instant::now()), route };
        Ok(route)
    }
}

/// The catalogue's entry of one filter: as the node that is asked has heard, which needs no majority,
/// or if it has not heard of the filter, as a majority knows it.
async fn summary_of(
    caller: &Arc<Caller>,
    name: &str,
) -> Result<Option<FilterSummary>, ClientError> {
    match listed(caller, name, true).await {
        Ok(None) => listed(caller, name, false).await,
        found => found,
    }
}

async fn listed(
    caller: &Arc<Caller>,
    name: &str,
    as_heard: bool,
) -> Result<Option<FilterSummary>, ClientError> {
    // Of the names that begin with this one, it is the first itself.
    let (prefix, after) = (name.to_owned(), String::new());
    let message = ListRequest { prefix, limit: 1, after, as_heard };
    let target = format!("filter {name:?}");
    let ask = Ask { target: &target, repeat: Repeat::Freely, first: First::InTurn };
    let answer = caller
        .simple(&ask, message, |node, request| async move { node.filters().list(request).await })
        .await?;
    Ok(answer.filters.into_iter().next().filter(|summary| summary.name == name))
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

/// Hashes the items and cuts them by shard, each shard's items in their order.
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
