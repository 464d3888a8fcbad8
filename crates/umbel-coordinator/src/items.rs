//! Batches of items: hashed here and nowhere else; cut by shard, joined in the order of the request.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use tokio::time::Instant;
use umbel_engine::ShardId;
use umbel_engine::meta::FilterRecord;
use umbel_engine::routing::{BatchParts, Rest};
use umbel_engine::shard::{Bitmap, HashList, PartError, WindowTime};
use umbel_filter::{ItemHash, Kind};
use umbel_step::planted::{self, Planted};

use self::operation::{HashedBatch, Operation};
pub use self::outcomes::{graver, partial_failure, partly};
pub(super) use self::recut::{cut_before, pieces_of};
use self::sought::Sought;
use super::levels::read_level;
use super::{AckLevel, ClientRequest, Coordinator, LiveFilter, ReadLevel, Result};
use umbel_node::calls::ShardAnswer;
use umbel_node::failure::CallFailure;
use umbel_node::item_batch::ItemBatch;

mod counts;
mod operation;
mod outcomes;
mod recut;
mod sought;

impl Coordinator {
    /// Inserts items; a one means that the item was new. Also returns the level of the answer: the
    /// requested one, or the filter's default.
    pub async fn insert(
        &self,
        filter: &str,
        items: &ItemBatch,
        request: Option<ClientRequest>,
        level: Option<AckLevel>,
        deadline: Instant,
    ) -> Result<(Bitmap, AckLevel)> {
        self.insert_of(filter, items, request, level, None, deadline).await
    }

    /// Inserts items with a time, in milliseconds since 1970, if one is given: only windows may accept it.
    pub async fn insert_of(
        &self,
        filter: &str,
        items: &ItemBatch,
        request: Option<ClientRequest>,
        level: Option<AckLevel>,
        at_ms: Option<u64>,
        deadline: Instant,
    ) -> Result<(Bitmap, AckLevel)> {
        let mut live = self.live_filter(filter, deadline).await?;
        if at_ms.is_some()
            && let Some(why) = why_untimed(&live.record)
        {
            return Err(CallFailure::Invalid {
                what: format!("at_ms is set, but {filter:?} {why}"),
            });
        }
        if live.record.is_replicated() {
            let level = level.unwrap_or(AckLevel::Local);
            // Boxed: the future of an insert into a shard would be as large.
            let inserted = Box::pin(self.copies().insert(live, items, level, deadline)).await?;
            return Ok((inserted, level));
        }
        if !matches!(level, None | Some(AckLevel::Majority)) {
            let what = format!(
                "filter {filter:?} is partitioned: its inserts are acknowledged at majority, and local and partner \
                 are levels of replicated filters"
            );
            return Err(CallFailure::Invalid { what });
        }
        let operation = Operation::Insert { request, at_ms };
        Ok((self.each_part(&mut live, items, operation, deadline).await?, AckLevel::Majority))
    }

    /// Removes items; a one means that the item was present.
    pub async fn remove(
        &self,
        filter: &str,
        items: &ItemBatch,
        request: Option<ClientRequest>,
        deadline: Instant,
    ) -> Result<Bitmap> {
        let mut live = self.live_filter(filter, deadline).await?;
        if live.record.is_replicated() {
            let what = format!("nothing can be removed from {filter:?}: it is replicated");
            return Err(CallFailure::Invalid { what });
        }
        self.each_part(&mut live, items, Operation::Remove(request), deadline).await
    }

    /// Looks up items; a one means that the item is present. Also returns the level of the answer.
    pub async fn contains(
        &self,
        filter: &str,
        items: &ItemBatch,
        level: Option<ReadLevel>,
        deadline: Instant,
    ) -> Result<(Bitmap, ReadLevel)> {
        let live = self.live_filter(filter, deadline).await?;
        let level = read_level(&live.record, level)?;
        Ok((self.contains_in(live, items, level, deadline).await?, level))
    }

    /// The same at the level that asks the fewest nodes: local for a replicated filter, any replica for another one.
    pub async fn contains_nearby(
        &self,
        filter: &str,
        items: &ItemBatch,
        deadline: Instant,
    ) -> Result<(Bitmap, ReadLevel)> {
        let live = self.live_filter(filter, deadline).await?;
        let level =
            if live.record.is_replicated() { ReadLevel::Local } else { ReadLevel::AnyReplica };
        Ok((self.contains_in(live, items, level, deadline).await?, level))
    }

    /// Looks up items in a filter that has this level.
    async fn contains_in(
        &self,
        mut live: LiveFilter,
        items: &ItemBatch,
        level: ReadLevel,
        deadline: Instant,
    ) -> Result<Bitmap> {
        if live.record.is_replicated() {
            // Boxed, as below: the future of a question to shards would be as large.
            return Box::pin(self.copies().contains(live, items, level, deadline)).await;
        }
        if level == ReadLevel::AnyReplica && is_final_anywhere(live.record.settings.kind) {
            let name = live.record.name.as_str();
            return Box::pin(self.contains_anywhere(name, &live, items, deadline)).await;
        }
        let operation = Operation::Contains { confirmed: true };
        self.each_part(&mut live, items, operation, deadline).await
    }

    /// Takes every "present" from this node's replicas, and asks the leaders about the other items.
    async fn contains_anywhere(
        &self,
        name: &str,
        filter: &LiveFilter,
        items: &ItemBatch,
        deadline: Instant,
    ) -> Result<Bitmap> {
        let hashes = hashed(filter, items)?;
        let parts = parts_of(filter, &hashes);
        let answers = parts.parts().iter().map(|(shard, hashes)| {
            let local = self.local_contains(filter, *shard, hashes);
            (*shard, local.unwrap_or_else(|| Bitmap::zeros(item_count(hashes))))
        });
        let mut present: Vec<bool> = joined(&parts, answers.collect())?.iter().collect();
        let absent: Vec<usize> = (0..hashes.len()).filter(|&at| !present[at]).collect();
        if !absent.is_empty() && !planted::on(Planted::AnyReplicaNo) {
            let rest: Vec<ItemHash> = absent.iter().map(|&at| hashes[at]).collect();
            let operation = Operation::Contains { confirmed: true };
            let batch = HashedBatch { hashes: &rest, operation };
            let (sought, mut filter) = (Sought::any(name), filter.clone());
            let answers = self.each_part_of(sought, &mut filter, batch, None, deadline);
            for (&at, is_present) in absent.iter().zip(answers.await?.iter()) {
                present[at] = is_present;
            }
        }
        Ok(Bitmap::from_bools(present))
    }

    /// The answer of this node's replica of a shard, if it has one.
    fn local_contains(
        &self,
        filter: &LiveFilter,
        shard: ShardId,
        hashes: &HashList,
    ) -> Option<Bitmap> {
        let leader = self.local().ok()?.shard(shard)?;
        let replica = leader.group().replica();
        replica.read_shard(|state| state.contains(filter.id, filter.record.generation, hashes)).ok()
    }

    async fn each_part(
        &self,
        filter: &mut LiveFilter,
        items: &ItemBatch,
        operation: Operation,
        deadline: Instant,
    ) -> Result<Bitmap> {
        let name = filter.record.name.as_str().to_owned();
        let hashes = hashed(filter, items)?;
        let batch = HashedBatch { hashes: &hashes, operation };
        self.each_part_of(Sought::any(&name), filter, batch, Some(items), deadline).await
    }

    /// Asks every shard for its part. If some items were inserted or removed and others were not, for
    /// whatever reason, the error tells so. `items` are those of the batch, if they can be hashed again. `filter` is
    /// the one that answered, afterwards.
    async fn each_part_of(
        &self,
        sought: Sought<'_>,
        filter: &mut LiveFilter,
        batch: HashedBatch<'_>,
        items: Option<&ItemBatch>,
        deadline: Instant,
    ) -> Result<Bitmap> {
        let kind = filter.record.settings.kind;
        let mut is_begun = false;
        let done = self.send_parts(sought, filter, batch, items, deadline, &mut is_begun).await;
        let of_batch = |error| outcomes::of_batch(error, kind, batch.hashes.len(), is_begun);
        done.map_err(|error| if batch.operation.is_read() { error } else { of_batch(error) })
    }

    /// Asks every shard for its part. A part that was refused because the catalogues differ is sent again
    /// once this node's copy is refreshed; parts that were answered under the same generation are not,
    /// and if shards were split or merged meanwhile, only the rest is cut anew ([`Rest`]). A request that
    /// looks like another one of the same id is sent again if the name means another filter by now: a copy
    /// of the request may have reached that filter by a node that knew it earlier. What was done under an
    /// earlier generation of the filter counts in the answer: a rotated window still has those items. Sets
    /// `is_begun` as soon as a part was answered, under any generation.
    async fn send_parts(
        &self,
        sought: Sought<'_>,
        filter: &mut LiveFilter,
        batch: HashedBatch<'_>,
        items: Option<&ItemBatch>,
        deadline: Instant,
        is_begun: &mut bool,
    ) -> Result<Bitmap> {
        let mut rehashed;
        let HashedBatch { mut hashes, operation } = batch;
        filter.ranges = self.seen_split.first_ranges(filter.ranges, filter.unsplit);
        // After a split or a merge of shards: the items without an answer, and the answers of the others.
        let (mut rest, mut is_replaced, mut is_reused): (Option<Rest>, _, _) = (None, false, false);
        let mut done_before = recut::DoneBefore::default();
        loop {
            let parts = parts_of(filter, rest.as_ref().map_or(hashes, Rest::hashes));
            let mut todo: Vec<(ShardId, HashList)> = parts.parts().to_vec();
            let mut answered: Vec<(ShardId, Bitmap)> = Vec::with_capacity(todo.len());
            loop {
                let batch = HashedBatch { hashes, operation };
                let tried =
                    self.try_parts(filter, todo, batch, deadline, &mut answered, is_begun).await;
                *is_begun |= !answered.is_empty();
                let reused;
                (todo, reused) = match tried {
                    Err(error @ CallFailure::Part(PartError::RequestReused { .. })) => {
                        (Vec::new(), Some(error))
                    }
                    tried => (tried?, None),
                };
                if todo.is_empty() && reused.is_none() {
                    let answers = joined(&parts, answered)?;
                    return Ok(done_before.with(match rest {
                        Some(rest) => rest.with(&answers),
                        None => answers,
                    }));
                }
                is_reused |= reused.is_some();
                // Boxed: it is rare, and every request would reserve room for it.
                let refreshed = self.refreshed(sought, operation, is_reused, deadline);
                let mut newer = Box::pin(refreshed).await?;
                newer.ranges =
                    self.seen_split.next_ranges(filter.ranges, newer.ranges, newer.unsplit);
                let is_same =
                    newer.id == filter.id && newer.record.generation == filter.record.generation;
                match reused {
                    Some(error) if newer.id == filter.id => return Err(error),
                    _ => {}
                }
                if is_same && newer.ranges != filter.ranges {
                    let all = rest.take();
                    let all = all.unwrap_or_else(|| Rest::all(hashes, operation.is_named()));
                    rest = Some(all.recut(hashes, (filter.ranges, newer.ranges), &answered));
                    *filter = newer;
                    break;
                }
                if !is_same {
                    done_before.add(rest.take(), hashes, filter.ranges, &answered);
                    if newer.id != filter.id || operation.is_read() {
                        done_before = recut::DoneBefore::default();
                    }
                    (*filter, is_replaced) = (newer, true);
                    break;
                }
                Box::pin(self.shards().wait_for_shards(deadline)).await?;
            }
            if !std::mem::take(&mut is_replaced) {
                continue;
            }
            // Another filter of the name, or another generation: all items are sent again.
            if let Some(items) = items {
                rehashed = hashed(filter, items)?;
                hashes = &rehashed;
            } else {
                let what = format!("filter {:?} was replaced meanwhile: try again", sought.name);
                let error = CallFailure::Overloaded { what };
                return Err(if is_reused { outcomes::failure_after_reuse(error) } else { error });
            }
        }
    }

    /// The filter of that name as the majority knows it now, after a try with what this node knew; `is_reused` says that
    /// a shard knew the request's id from another request.
    async fn refreshed(
        &self,
        sought: Sought<'_>,
        operation: Operation,
        is_reused: bool,
        deadline: Instant,
    ) -> Result<LiveFilter> {
        if Instant::now() >= deadline {
            return Err(outcomes::never_still(sought.name, operation.is_read()));
        }
        let newer = async {
            self.meta_refresh(deadline).await?;
            sought.find(self, deadline).await
        };
        newer
            .await
            .map_err(|error| if is_reused { outcomes::failure_after_reuse(error) } else { error })
    }

    /// One round over the parts of a batch; returns those that were refused because the catalogues differ, and adds the
    /// answers of the others to `answered`. Sets `is_begun` if a shard has answered for some hashes of the request
    /// before.
    async fn try_parts(
        &self,
        filter: &LiveFilter,
        todo: Vec<(ShardId, HashList)>,
        batch: HashedBatch<'_>,
        deadline: Instant,
        answered: &mut Vec<(ShardId, Bitmap)>,
        is_begun: &mut bool,
    ) -> Result<Vec<(ShardId, HashList)>> {
        let ask = |(shard, hashes): (ShardId, HashList)| async move {
            let cut = filter.cut_of(shard);
            let request = |growth| batch.operation.request(filter, hashes.clone(), cut, growth);
            let growth = self.growth();
            let first = growth.part_call(filter, shard, Some(&hashes), request, deadline).await;
            let Err(CallFailure::Part(PartError::CutBefore { start, last, .. })) = first else {
                return (shard, hashes, first, false);
            };
            // Boxed: it is rare, and the task of every call would reserve room for it.
            let rest = Box::pin(self.send_in_pieces(filter, shard, (start, last), batch, deadline));
            (shard, hashes, rest.await, true)
        };
        // Most requests are single items, which have one part: this path needs no room for several.
        let outcomes = match <[_; 1]>::try_from(todo) {
            // Boxed: a future is moved by whoever awaits it, so a call is as slow as all that it may await is large.
            Ok([part]) => vec![Box::pin(ask(part)).await],
            Err(todo) => join_all(todo.into_iter().map(ask)).await,
        };
        let mut stale = Vec::new();
        let mut failure = None;
        for (shard, hashes, outcome, is_cut_before) in outcomes {
            *is_begun |= is_cut_before;
            match outcome {
                Ok(ShardAnswer::Bits(bits)) if bits.len() == item_count(&hashes) => {
                    answered.push((shard, bits));
                }
                Ok(other) => return Err(umbel_node::leader_calls::unexpected(&other)),
                Err(CallFailure::Part(
                    PartError::UnknownSlice { .. }
                    | PartError::StaleGeneration { .. }
                    | PartError::ForeignHash { .. }
                    | PartError::OtherCut { .. }
                    | PartError::Fenced { .. },
                )) => stale.push((shard, hashes)),
                Err(_)
                    if planted::on(Planted::AckFirstShard)
                        && matches!(batch.operation, Operation::Insert { .. })
                        && !answered.is_empty() =>
                {
                    answered.push((shard, Bitmap::zeros(item_count(&hashes))));
                }
                Err(error) => failure = Some(graver(failure, error)),
            }
        }
        failure.map_or(Ok(stale), Err)
    }
}

/// Whether a "present" of any replica is final: not for kinds that allow removals, or forget items.
fn is_final_anywhere(kind: u8) -> bool {
    Kind::from_id(kind).is_none_or(Kind::is_monotone)
}

/// Why items of a filter have no time of their own; None if they may have one.
fn why_untimed(record: &FilterRecord) -> Option<&'static str> {
    let Some(rules) = record.settings.shape.window_rules() else { return Some("has no window") };
    if record.is_replicated() {
        return Some("is replicated: its items come when they arrive");
    }
    match rules.time {
        WindowTime::Event => None,
        WindowTime::Ingest => {
            Some("counts by the time of arrival: a window that is created with event_time takes it")
        }
        WindowTime::Manual => {
            Some("counts by rotations: a window that is created with event_time takes it")
        }
    }
}

pub(super) fn hashed(filter: &LiveFilter, items: &ItemBatch) -> Result<Vec<ItemHash>> {
    let mut hashes = Vec::with_capacity(items.len());
    items.hash(&filter.record.settings.key, &mut hashes)?;
    Ok(hashes)
}

/// Cuts a batch by shard, or into one part if the filter lies in one shard.
pub(super) fn parts_of(filter: &LiveFilter, hashes: &[ItemHash]) -> BatchParts {
    match filter.record.settings.shape.place() {
        Some(place) => BatchParts::whole(hashes, filter.ranges.shard_of(place)),
        None => BatchParts::cut(hashes, filter.ranges),
    }
}

fn joined(parts: &BatchParts, mut answers: Vec<(ShardId, Bitmap)>) -> Result<Bitmap> {
    if parts.parts().len() == 1
        && let Some((_, all)) = answers.pop()
    {
        return Ok(all);
    }
    let mut answers: BTreeMap<ShardId, Bitmap> = answers.into_iter().collect();
    parts
        .join(|shard| answers.remove(&shard))
        .map_err(|error| CallFailure::Storage { what: format!("answers do not fit: {error}") })
}

fn item_count(hashes: &HashList) -> u32 {
    u32::try_from(hashes.len()).expect("a request has at most 65,536 items")
}
