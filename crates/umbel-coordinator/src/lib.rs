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

use std::sync::{Arc, Mutex};

use tokio::sync::OnceCell;
use tokio::time::Instant;
use umbel_engine::meta::{FilterRecord, FilterState, MetaState};
use umbel_engine::placement::ShardRanges;
use umbel_engine::{FilterId, OwnerId, RequestId, ShardId};
use umbel_filter::HashRange;

pub use self::callers::CaughtUp;
pub use self::items::{beside_done, graver, partly};
pub use self::jobs::NewJob;
pub use self::levels::{AckLevel, ReadLevel};
pub use self::own_node::OwnShards;
use crate::rates::{Limiter, TakenByPrincipals};
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::LeaderCalls;

pub mod any_of;
mod callers;
pub mod catalogue;
mod catching_up;
mod growth;
pub mod held;
mod items;
mod jobs;
mod leaders;
mod levels;
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

/// A request id from the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientRequest {
    /// The id.
    pub id: RequestId,
    /// All requests of the session with lower sequence numbers were answered or given up.
    pub acknowledged_below: u64,
    /// The owner of the session; unknown until [`Coordinator::check_session`].
    pub owner: OwnerId,
}

/// A filter that is live, according to this node's catalogue.
#[derive(Clone, Debug)]
pub(crate) struct LiveFilter {
    pub(crate) id: FilterId,
    pub(crate) record: FilterRecord,
    /// How the shards are cut.
    pub(crate) ranges: ShardRanges,
}

impl LiveFilter {
    /// First and last hash of a shard's range, for which the parts of a batch are cut.
    fn cut_of(&self, shard: ShardId) -> (u64, u64) {
        let range = self.ranges.range(shard);
        range.map_or(HashRange::WHOLE.bounds(), HashRange::bounds)
    }
}

/// Serves clients' requests with the help of the cluster's nodes.
pub struct Coordinator {
    /// The node's own calls go the same way.
    calls: Arc<LeaderCalls>,
    /// Set once this node has reached the majority after its start.
    caught_up: OnceCell<()>,
    /// What principals have used of their rates.
    taken: TakenByPrincipals,
    /// Limits the requests to the majority about callers that this node does not know.
    confirmations: Mutex<Limiter>,
}

impl Coordinator {
    /// Of the node that makes these calls.
    #[must_use]
    pub fn new(calls: Arc<LeaderCalls>) -> Self {
        Self {
            calls,
            caught_up: OnceCell::new(),
            taken: TakenByPrincipals::default(),
            confirmations: Mutex::default(),
        }
    }

    /// A live filter by its name.
    pub(crate) async fn live_filter(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<LiveFilter, CallFailure> {
        let look = |state: &MetaState| {
            let ranges = state.shard_map().ranges()?;
            let (id, record) = state.filter_by_name(name)?;
            Some(LiveFilter { id, record: record.clone(), ranges })
        };
        let is_live = |filter: &LiveFilter| filter.record.state == FilterState::Live;
        // The filter may be newer than this node's copy of the catalogue, or have become live since.
        let mut found = self.calls.guess_meta(look)?;
        if !found.as_ref().is_some_and(is_live) {
            self.meta_refresh(deadline).await?;
            found = self.read_meta(look)?;
        }
        let filter = found.ok_or_else(|| CallFailure::UnknownFilter { name: name.to_owned() })?;
        if is_live(&filter) {
            Ok(filter)
        } else {
            let state = filter.record.state.to_string();
            Err(CallFailure::FilterBusy { name: name.to_owned(), state })
        }
    }
}
