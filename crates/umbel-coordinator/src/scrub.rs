//! Comparisons of replicas and copies on request.

use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use tokio::time::Instant;
use umbel_engine::meta::{FilterState, MetaState};
use umbel_engine::shard::SliceScrubbed;
use umbel_engine::{FilterId, Generation, ShardId};

use super::catalogue::ranges_of;
use super::replicated::scrub::{ScrubbedPair, scrub_pairs};
use crate::{Coordinator, Result};
use umbel_node::calls::{ShardAnswer, ShardRequest};
use umbel_node::cube::SESSION_TIME_MAX;
use umbel_node::leader_calls::{LeaderCalls, unexpected};

/// Shards of a filter whose replicas are compared at once: each comparison makes a shard wait some
/// milliseconds for every 16 MiB, and the other shards serve meanwhile.
const SHARDS_AT_ONCE_MAX: usize = 4;

/// What was compared.
#[derive(Clone, PartialEq, Debug)]
pub enum Scrubbed {
    /// Two copies of a replicated filter.
    Pair(ScrubbedPair),
    /// The replicas of a slice of a partitioned filter.
    Slice(ScrubbedSlice),
}

/// A filter's slice in a shard, and how its replicas differed or why they were not compared.
#[derive(Clone, PartialEq, Debug)]
pub struct ScrubbedSlice {
    /// The name of the filter.
    pub filter: String,
    /// The shard.
    pub shard: ShardId,
    /// The differences, or why they were not compared.
    pub compared: Result<SliceScrubbed, String>,
}

/// A filter to compare.
#[derive(Clone)]
pub(super) struct FilterToScrub {
    pub(super) name: String,
    pub(super) filter: FilterId,
    pub(super) generation: Generation,
}

impl Coordinator {
    /// Compares a filter wherever it is, or all live filters: for a replicated filter each pair of
    /// partners in the cube once, for a partitioned one the replicas of each shard. Reports arrive as
    /// comparisons end.
    ///
    /// # Errors
    /// If there is no such filter. Nothing was compared.
    pub async fn scrub(
        &self,
        name: Option<&str>,
        deadline: Instant,
    ) -> Result<impl Stream<Item = Scrubbed> + use<>> {
        let (replicated, partitioned) = match name {
            Some(name) => {
                let filter = self.live_filter(name, deadline).await?;
                let (name, generation) = (name.to_owned(), filter.record.generation);
                let wanted = vec![FilterToScrub { name, filter: filter.id, generation }];
                if filter.record.is_replicated() {
                    (wanted, Vec::new())
                } else {
                    (Vec::new(), wanted)
                }
            }
            None => {
                self.meta_refresh(deadline).await?;
                self.read_meta(all_live)?
            }
        };
        let pairs = scrub_pairs(&self.calls, replicated)?.map(Scrubbed::Pair);
        let slices = scrub_slices(&self.calls, partitioned)?.map(Scrubbed::Slice);
        Ok(pairs.chain(slices))
    }
}

/// Compares the replicas of each slice of partitioned filters. Results arrive as comparisons end.
fn scrub_slices(
    calls: &Arc<LeaderCalls>,
    filters: Vec<FilterToScrub>,
) -> Result<impl Stream<Item = ScrubbedSlice> + use<>> {
    let ranges = calls.read_meta(ranges_of)??;
    let of_filter =
        move |filter: FilterToScrub| ranges.shards().map(move |shard| (filter.clone(), shard));
    let calls = Arc::clone(calls);
    let compared = stream::iter(filters.into_iter().flat_map(of_filter)).map(move |slice| {
        let calls = Arc::clone(&calls);
        async move { scrub_slice(&calls, slice).await }
    });
    Ok(compared.buffer_unordered(SHARDS_AT_ONCE_MAX))
}

async fn scrub_slice(
    calls: &LeaderCalls,
    (wanted, shard): (FilterToScrub, ShardId),
) -> ScrubbedSlice {
    let FilterToScrub { name, filter, generation } = wanted;
    let request = ShardRequest::Scrub { filter, generation };
    let answer = calls.shard_call(shard, request, Instant::now() + SESSION_TIME_MAX).await;
    let compared = match answer {
        Ok(ShardAnswer::Scrubbed(report)) => Ok(report),
        Ok(other) => Err(unexpected(&other).to_string()),
        Err(failure) => Err(failure.to_string()),
    };
    ScrubbedSlice { filter: name, shard, compared }
}

/// The live filters, replicated and partitioned ones apart, in ascending order of their ids.
fn all_live(state: &MetaState) -> (Vec<FilterToScrub>, Vec<FilterToScrub>) {
    let live = state.filters().filter(|(_, record)| record.state == FilterState::Live);
    let (replicated, partitioned): (Vec<_>, Vec<_>) =
        live.partition(|(_, record)| record.is_replicated());
    let wanted = |all: Vec<(FilterId, &umbel_engine::meta::FilterRecord)>| {
        let wanted = |(filter, record): (FilterId, &umbel_engine::meta::FilterRecord)| {
            FilterToScrub { name: record.name.to_string(), filter, generation: record.generation }
        };
        all.into_iter().map(wanted).collect()
    };
    (wanted(replicated), wanted(partitioned))
}
