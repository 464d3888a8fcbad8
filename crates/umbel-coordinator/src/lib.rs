//! The role of the node that receives a client's request: hash, cut by shard, call the leaders, join the
//! answers.
//!
//! Every call ends at its deadline at the latest, with an answer or with an error that tells whether
//! anything was changed ([`LeaderCalls`]).

// Futures of calls that make calls are nested deeper than the default.
#![recursion_limit = "256"]
#![expect(
    clippy::missing_errors_doc,
    reason = "each variant of `CallFailure` says whether anything was changed, and what the caller does"
)]

use std::sync::Arc;

use tokio::time::Instant;
use umbel_engine::meta::{FilterRecord, FilterState, MetaState};
use umbel_engine::placement::ShardRanges;
use umbel_engine::{FilterId, OwnerId, RequestId, ShardId};
use umbel_filter::HashRange;
use umbel_ports::PortFuture;

pub use self::callers::{Callers, CaughtUp, StrangerLog};
pub use self::items::{graver, partial_failure, partly};
pub use self::jobs::{Jobs, NewJob};
pub use self::levels::{AckLevel, ReadLevel};
pub use self::own_node::OwnShards;
pub use self::releases::Releases;
pub use self::replicated::CopyCalls;
pub use self::report::Reports;
pub use self::sessions::Sessions;
use self::splits::SeenSplit;
pub use self::splits::Shards;
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::LeaderCalls;

pub mod any_of;
mod callers;
pub mod catalogue;
mod copy_failure;
mod growth;
pub mod held;
mod items;
mod jobs;
mod leaders;
mod levels;
pub mod location;
#[cfg(test)]
mod nodes_test;
mod own_node;
pub mod rates;
pub mod releases;
pub mod replicated;
mod report;
pub mod scrub;
mod sessions;
pub mod sizes;
mod splits;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transfers;

/// The result of most functions of this crate.
pub(crate) type Result<T, E = CallFailure> = std::result::Result<T, E>;

/// A request id from the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientRequest {
    /// The id.
    pub id: RequestId,
    /// All requests of the session with lower sequence numbers were answered or given up.
    pub acknowledged_below: u64,
    /// The owner of the session; unknown until [`Sessions::check`].
    pub owner: OwnerId,
}

/// A filter that is live, according to this node's catalogue.
#[derive(Clone, Debug)]
pub(crate) struct LiveFilter {
    pub(crate) id: FilterId,
    pub(crate) record: FilterRecord,
    /// How the shards are cut, once the split in progress is carried out.
    pub(crate) ranges: ShardRanges,
    /// How they are cut until then; None if no split is in progress.
    pub(crate) unsplit: Option<ShardRanges>,
}

impl LiveFilter {
    /// The live filter of this name.
    pub(crate) async fn find(calls: &LeaderCalls, name: &str, deadline: Instant) -> Result<Self> {
        let is_live = |filter: &Self| filter.record.state == FilterState::Live;
        // The filter may be newer than this node's copy of the catalogue, or have become live since, or have expired.
        let mut found = calls.guess_meta(|state| Self::of(state, name))?;
        if !found.as_ref().is_some_and(|filter| is_live(filter) && !filter.is_due(calls)) {
            found = Self::confirmed(calls, name, deadline).await?;
        }
        let filter = found.ok_or_else(|| CallFailure::UnknownFilter { name: name.to_owned() })?;
        if is_live(&filter) {
            Ok(filter)
        } else {
            let state = filter.record.state.to_string();
            Err(CallFailure::FilterBusy { name: name.to_owned(), state })
        }
    }

    /// The filter of this name in any state, as the leader of the catalogue knows it. The leader drops filters first whose
    /// time has come by its own clock, so one that is found had time left when this call began.
    fn confirmed<'a>(
        calls: &'a LeaderCalls,
        name: &'a str,
        deadline: Instant,
    ) -> PortFuture<'a, Result<Option<Self>>> {
        // Boxed: it is rare, and the task of every call would reserve room for it.
        Box::pin(async move {
            loop {
                let epoch_before = calls.read_meta(MetaState::epoch)?;
                calls.meta_refresh(deadline).await?;
                let (may_merge, found) = calls.read_meta(|state| {
                    // Whatever begins or ends a merge raises the epoch.
                    let is_merging = state.shard_map().merging().is_some();
                    (is_merging || state.epoch() != epoch_before, Self::of(state, name))
                })?;
                // While shards are merged, the leader cannot drop what has slices.
                let is_held =
                    |filter: &Self| !filter.record.is_replicated() && filter.is_due(calls);
                if !may_merge || !found.as_ref().is_some_and(is_held) {
                    return Ok(found);
                }
                Shards { calls }.wait_unsplit(deadline).await?;
            }
        })
    }

    fn of(state: &MetaState, name: &str) -> Option<Self> {
        let map = state.shard_map();
        let (ranges, unsplit) = (map.ranges()?, map.unsplit_ranges());
        let (id, record) = state.filter_by_name(name)?;
        Some(Self { id, record: record.clone(), ranges, unsplit })
    }

    fn is_due(&self, calls: &LeaderCalls) -> bool {
        may_have_passed(calls, self.record.expires_ms)
    }

    /// First and last hash of a shard's range, for which the parts of a batch are cut.
    fn cut_of(&self, shard: ShardId) -> (u64, u64) {
        let range = self.ranges.range(shard);
        range.map_or(HashRange::WHOLE.bounds(), HashRange::bounds)
    }
}

/// Whether the time of a filter has passed by the clock of this node, which may be wrong: a reason to ask the leader of the
/// catalogue, and for nothing else. A jump ahead is not believed, as every call of the filter would ask.
pub(crate) fn may_have_passed(calls: &LeaderCalls, expires_ms: Option<u64>) -> bool {
    expires_ms.is_some_and(|at_ms| at_ms <= own_node::believed_ms(calls))
}

/// Serves clients' requests with the help of the cluster's nodes.
pub struct Coordinator {
    /// The node's own calls go the same way.
    calls: Arc<LeaderCalls>,
    callers: Callers,
    seen_split: SeenSplit,
}

impl Coordinator {
    /// Of the node that makes these calls.
    #[must_use]
    pub fn new(calls: Arc<LeaderCalls>) -> Self {
        let (callers, seen_split) = (Callers::new(Arc::clone(&calls)), SeenSplit::default());
        Self { calls, callers, seen_split }
    }

    /// What this node knows of those who call it.
    pub const fn callers(&self) -> &Callers {
        &self.callers
    }

    /// What clients ask about the jobs of the ledger.
    pub fn jobs(&self) -> Jobs<'_> {
        Jobs { calls: &self.calls }
    }

    /// The releases of the nodes, and the cluster's version.
    pub fn releases(&self) -> Releases<'_> {
        Releases { calls: &self.calls }
    }

    /// Reports of nodes and of leaders.
    pub fn reports(&self) -> Reports<'_> {
        Reports { calls: &self.calls }
    }

    /// The sessions of clients.
    pub fn sessions(&self) -> Sessions<'_> {
        Sessions { calls: &self.calls }
    }

    /// The shards as a whole.
    pub fn shards(&self) -> Shards<'_> {
        Shards { calls: &self.calls }
    }

    /// The copies of replicated filters.
    pub fn copies(&self) -> CopyCalls<'_> {
        CopyCalls { calls: &self.calls }
    }

    /// The growth of slices, as far as quotas have room.
    pub(crate) fn growth(&self) -> growth::Growth<'_> {
        growth::Growth { calls: &self.calls }
    }

    /// A live filter by its name.
    pub(crate) fn live_filter(
        &self,
        name: &str,
        deadline: Instant,
    ) -> impl Future<Output = Result<LiveFilter>> {
        LiveFilter::find(&self.calls, name, deadline)
    }
}
