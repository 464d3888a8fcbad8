//! How full a slice is, for tables. That takes reading all of it, up to 256 MiB: in pieces, between which
//! the replica's lock and the thread are others', and once for all who ask meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Mutex;
use umbel_engine::shard::{OverlapCount, PartError, SliceDescription};
use umbel_engine::{FilterId, Generation};
use umbel_filter::OnesCount;

use super::ShardLeader;
use crate::calls::ShardFailure;
use crate::limits::COUNTED_WORDS_MAX;
use crate::raft::group::Group;

/// Counts of a shard's slices: one at a time.
#[derive(Default)]
pub(super) struct Loads {
    counted: Mutex<Counted>,
    /// How many counts have begun.
    begun: std::sync::atomic::AtomicU64,
    /// Held by everybody who asks, so that the last one is known.
    asking: Arc<()>,
    /// Held by the one that counts what two filters have in common; others wait.
    overlapping: Mutex<()>,
}

/// The newest count of each filter, with its number, while somebody waits who may use it.
type Counted = BTreeMap<(FilterId, Generation), (u64, SliceDescription)>;

impl Loads {
    /// What a slice is and how full, as it was at some moment between the call and its answer. Bits that are
    /// set while they are counted may be counted or not.
    ///
    /// # Errors
    /// If there is no such slice, or it is at another generation.
    pub(super) async fn describe(
        &self,
        group: &Group,
        filter: FilterId,
        generation: Generation,
    ) -> Result<SliceDescription, PartError> {
        use std::sync::atomic::Ordering::Relaxed;

        let asking = Arc::clone(&self.asking);
        let begun_before = self.begun.load(Relaxed);
        let mut counted = self.counted.lock().await;
        let slice = (filter, generation);
        let newest = counted.get(&slice).filter(|(number, _)| *number > begun_before);
        let described = match newest {
            // It has begun after this call, so it has seen all that the caller knows of.
            Some((_, described)) => {
                group.replica().read_shard(|state| state.check_slice(filter, generation))?;
                described.clone()
            }
            None => {
                let number = self.begun.fetch_add(1, Relaxed) + 1;
                let described = count(group, slice).await?;
                counted.insert(slice, (number, described.clone()));
                described
            }
        };
        drop(asking);
        if Arc::strong_count(&self.asking) == 1 {
            counted.clear();
        }
        Ok(described)
    }
}

impl ShardLeader {
    /// What the slices of two filters have in common, counted piece by piece.
    pub(super) async fn overlap(
        &self,
        ours: (FilterId, Generation),
        theirs: (FilterId, Generation),
    ) -> Result<OverlapCount, ShardFailure> {
        let _one_at_a_time = self.loads.overlapping.lock().await;
        self.confirm().await?;
        let mut count = OverlapCount::default();
        loop {
            let piece = |state: &umbel_engine::shard::ShardState| {
                state.overlap_on(ours, theirs, &mut count, COUNTED_WORDS_MAX)
            };
            if self.group.replica().read_shard(piece)? {
                return Ok(count);
            }
            tokio::task::yield_now().await;
        }
    }
}

async fn count(
    group: &Group,
    slice: (FilterId, Generation),
) -> Result<SliceDescription, PartError> {
    let mut count = OnesCount::default();
    loop {
        let piece = |state: &umbel_engine::shard::ShardState| {
            state.describe_on(slice, &mut count, COUNTED_WORDS_MAX)
        };
        if let Some(described) = group.replica().read_shard(piece)? {
            return Ok(described);
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use umbel_engine::ShardId;
    use umbel_engine::meta::{Distribution, FilterName};
    use umbel_filter::Kind;

    use super::*;
    use crate::coordinator::catalogue::{Hashing, NewFilter};
    use crate::coordinator::sizes::FilterSize;
    use crate::node::node_test::{deadline, items, start_alone};

    /// Others run between the pieces of a count, and it is made twice at most, however many ask: once for who
    /// came first, and once for all that came while it was under way.
    #[tokio::test]
    async fn a_flood_of_questions_costs_two_counts_and_stops_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let asked = node.coordinator();
        let new = NewFilter::Planned {
            kind: Kind::Blocked,
            distribution: Distribution::Partitioned,
            capacity: 20_000_000,
            size: FilterSize::Rate(1e-4),
            hashing: Hashing::Keyed,
        };
        let name = FilterName::new("seen").unwrap();
        let filter = asked.create(&name, &new, None, deadline()).await.unwrap().0;
        asked.insert("seen", &items(0..1000), None, None, deadline()).await.unwrap();
        let leader = node.shard_leader(ShardId(0));
        let state = leader.group.replica();
        let generation = state.read_shard(|state| state.slices().next().unwrap().1);
        let whole = state.read_shard(|state| state.describe(filter)).unwrap();

        let ticks = Arc::new(AtomicUsize::new(0));
        let others = Arc::clone(&ticks);
        let other = tokio::spawn(async move {
            loop {
                others.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let loads = Loads::default();
        let ask = || loads.describe(&leader.group, filter, generation);
        let answers = join_all((0..50).map(|_| ask())).await;
        other.abort();
        assert!(answers.into_iter().all(|answer| answer.unwrap() == whole));
        assert_eq!(loads.begun.load(Ordering::Relaxed), 2);
        assert!(loads.counted.lock().await.is_empty());
        let pieces =
            usize::try_from(whole.description.memory_bytes).unwrap() / (8 * COUNTED_WORDS_MAX);
        assert!(
            pieces > 50 && ticks.load(Ordering::Relaxed) >= pieces,
            "{pieces} pieces, {ticks:?}"
        );

        let stale = loads.describe(&leader.group, filter, Generation(generation.0 + 1)).await;
        assert!(matches!(stale, Err(PartError::StaleGeneration { .. })));
        drop((asked, leader));
        node.shutdown().await;
    }
}
