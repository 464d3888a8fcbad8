//! Items in and out of one filter.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut, BytesMut};
use tokio::time::Instant;
use umbel_filter::ItemHasher;
use umbel_proto::v1::{Applied, ErrorCode, FilterSummary, Hashing, ListRequest, ReadLevel};

use crate::answers::{Answers, Bits, Inserted, Removed};
use crate::batch::{Batch, Header, Part, Verb};
use crate::caller::{Ask, Caller, Repeat};
use crate::change;
use crate::error::ClientError;
use crate::limits::REQUEST_ITEMS_MAX;
use crate::packed_batch::PackedBatch;
use crate::shard_map::ShardMap;

/// A handle of one filter, cheap to clone. Making one asks nobody.
///
/// Items of filters with keyed hashing go to any node. Those of filters with public hashing are
/// hashed here and go straight to the leaders of their shards; whether a filter is one of these is
/// asked at its first use and then every half minute.
///
/// A filter that is dropped and made again under its name with another seed may be asked with the
/// old seed's hashes until that is noticed: give a filter with public hashing a new name instead.
#[derive(Clone)]
pub struct Filter {
    caller: Arc<Caller>,
    name: Arc<str>,
    hasher: Arc<Mutex<Known>>,
}

/// What is known of a filter's hashing.
#[derive(Clone, Copy, Default)]
struct Known {
    asked: Option<Instant>,
    /// Of public hashing.
    seed: Option<u64>,
}

impl Filter {
    pub(crate) fn new(caller: Arc<Caller>, name: &str) -> Self {
        Self { caller, name: name.into(), hasher: Arc::default() }
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
        let batch = PackedBatch::from_items(items);
        let filter = self.clone();
        async move { filter.insert_packed(batch?).await }
    }

    /// Inserts a batch, which costs nothing an item but its bytes' way.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn insert_packed(&self, batch: PackedBatch) -> Result<Inserted, ClientError> {
        self.run(Verb::Insert, batch).await.map(Inserted::new)
    }

    /// Asks whether items were inserted.
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
    /// [`ClientError`] says what to do; nothing is changed.
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

    /// Takes items out of a counting filter: only ones that were inserted, or others go missing.
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

    /// Takes a batch out of a counting filter.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub async fn remove_packed(&self, batch: PackedBatch) -> Result<Removed, ClientError> {
        self.run(Verb::Remove, batch).await.map(Removed::new)
    }

    async fn run(&self, verb: Verb, batch: PackedBatch) -> Result<Bits, ClientError> {
        if batch.is_empty() {
            return Ok(Bits::default());
        }
        let item_count = batch.len();
        let parts = match self.seed().await? {
            Some(seed) => match self.caller.shard_map().await {
                Some(map) => hashed_parts(&batch, seed, &map),
                None => packed_parts(batch),
            },
            None => packed_parts(batch),
        };
        let (caller, filter) = (Arc::clone(&self.caller), Arc::clone(&self.name));
        let header = Arc::new(Header { caller, filter, verb });
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
        self.hasher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seed of a filter with public hashing. None of another, and where nobody can tell: nodes
    /// hash what comes as items, whatever the filter.
    async fn seed(&self) -> Result<Option<u64>, ClientError> {
        if !self.caller.options.learns_nodes {
            return Ok(None);
        }
        let known = *self.known();
        if known.asked.is_some_and(|asked| asked.elapsed() < self.caller.options.map_age_max) {
            return Ok(known.seed);
        }
        let seed = match summary_of(&self.caller, &self.name).await {
            Ok(Some(summary)) if summary.hashing() == Hashing::Public => Some(summary.key_id),
            Ok(Some(_)) => None,
            Err(error @ ClientError::Unavailable(_)) => return Err(error),
            // The next call asks again: it may be about to be created.
            Ok(None) | Err(_) => return Ok(None),
        };
        *self.known() = Known { asked: Some(Instant::now()), seed };
        Ok(seed)
    }
}

/// The catalogue's entry of one filter, which every node has at hand.
async fn summary_of(
    caller: &Arc<Caller>,
    name: &str,
) -> Result<Option<FilterSummary>, ClientError> {
    // Of the names that begin with this one, it is the first itself.
    let message = ListRequest { prefix: name.to_owned(), limit: 1, after: String::new() };
    let target = format!("filter {name:?}");
    let ask = Ask { target: &target, repeat: Repeat::Freely, hi: None };
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
