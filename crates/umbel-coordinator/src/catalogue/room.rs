//! Whether disks have room for a new filter, asked before anything of it is written.

use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::meta::{Distribution, FilterName, FilterSettings};
use umbel_engine::{FilterId, Generation, ShardId};

use super::ranges_of;
use crate::{Coordinator, Result};
use umbel_node::calls::ShardRequest;
use umbel_node::failure::CallFailure;

/// Longest time for which shards are asked: two tries at a leader on a busy machine.
const ROOM_TIME: Duration = Duration::from_secs(1);

/// The number of no filter, as numbers begin at 1.
const NO_FILTER: FilterId = FilterId(0);

impl Coordinator {
    /// Refuses a new filter if the disk of a shard's leader is nearly full. The leader would refuse its slice, and the
    /// filter would be unfinished for as long as that disk is full. A shard that does not answer is no reason to refuse:
    /// its disk may have room.
    pub(super) async fn refuse_without_room(
        &self,
        name: &FilterName,
        settings: &FilterSettings,
        deadline: Instant,
    ) -> Result<()> {
        match self.full_disk(settings, deadline).await? {
            Some(full) => self.refuse_unless_there(name, full, deadline).await,
            None => Ok(()),
        }
    }

    /// Refuses a new filter for this reason, unless the name is in use: it may be this very request's, which was sent
    /// again. Where no majority tells whether it is, the reason remains.
    pub(crate) async fn refuse_unless_there(
        &self,
        name: &FilterName,
        full: CallFailure,
        deadline: Instant,
    ) -> Result<()> {
        let is_fresh = self.meta_refresh(deadline).await.is_ok();
        if is_fresh && self.read_meta(|state| state.filter_by_name(name.as_str()).is_some())? {
            return Ok(());
        }
        Err(full)
    }

    /// The refusal of a shard that is to have a slice, if its leader's disk is nearly full.
    async fn full_disk(
        &self,
        settings: &FilterSettings,
        deadline: Instant,
    ) -> Result<Option<CallFailure>> {
        if settings.distribution == Distribution::Replicated {
            return Ok(None);
        }
        let ranges = self.read_meta(ranges_of)??;
        let remaining = deadline.saturating_duration_since(Instant::now());
        let until = Instant::now() + ROOM_TIME.min(remaining / 2);
        // Asked for a slice that it does not have, a leader says whether it could make one.
        let generation = Generation(0);
        let request = |_: ShardId| ShardRequest::Describe { filter: NO_FILTER, generation };
        let refusals: Vec<CallFailure> = match settings.shape.place() {
            Some(place) => {
                let home = ranges.shard_of(place);
                self.shard_call(home, request(home), until).await.err().into_iter().collect()
            }
            None => {
                let answers = self.call_every_shard(ranges, request, until).await;
                answers.into_iter().filter_map(|(_, answer)| answer.err()).collect()
            }
        };
        Ok(refusals.into_iter().find(|refusal| matches!(refusal, CallFailure::DiskFull { .. })))
    }
}
