//! Growth of filters: before a slice takes more memory than planned, the coordinator asks the meta group
//! whether the quotas of the filter's owner and of the cluster have room for that, in all replicas of the
//! slice.
//!
//! A leader reports how far its slice must grow for a request, and proposes nothing before that is
//! allowed. If the growth is refused, the request proceeds as far as there is room: of a batch, the items
//! before the next level are inserted; of a batch for a quotient filter, all or none. Imports ask as
//! well, at each level of a slice, or at the first frame of a slice that has grown
//! ([`Growth::grow_for_frame`]), and so do sums of filters that count.

use tokio::time::Instant;
use umbel_codec::FrameView;
use umbel_engine::meta::{FilterRecord, MetaCommand, MetaError, MetaReply, MetaState};
use umbel_engine::shard::{HashList, PartError, SliceShape};
use umbel_engine::{FilterId, Generation, ShardId};
use umbel_filter::{HashRange, Kind};
use umbel_step::planted::{self, Planted};

use super::{LiveFilter, Result};
use umbel_node::calls::{AllowedGrowth, ShardAnswer, ShardRequest};
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::{LeaderCalls, absorbed_by, unexpected};

/// How often a part is allowed more: others may use up what it was allowed, and then the slice has doubled.
const TIMES_ALLOWED_MAX: u32 = 4;

/// Whether slices of a filter grow, and their growth counts towards quotas.
fn grows(record: &FilterRecord) -> bool {
    let kind = Kind::from_id(record.settings.kind);
    kind.is_some_and(Kind::grows) && !planted::on(Planted::GrowthUncounted)
}

/// Whether a filter has room for every item, so that calls of several callers may go as one.
fn has_room_for_all(record: &FilterRecord) -> bool {
    let is_fixed = matches!(record.settings.shape, SliceShape::RedisBloom { is_fixed: true, .. });
    let kind = Kind::from_id(record.settings.kind);
    !is_fixed && kind.is_some_and(|kind| !kind.has_fingerprints() && kind != Kind::SingleShot)
}

/// The growth of slices, as far as quotas have room.
#[derive(Clone, Copy)]
pub(crate) struct Growth<'a> {
    pub(super) calls: &'a LeaderCalls,
}

impl Growth<'_> {
    /// Asks a shard for its part, by a request that states the allowed growth, and has its slice grow for
    /// it as far as quotas have room. `hashes` are those of the part, if it is about hashes.
    pub(super) async fn part_call(
        self,
        filter: &LiveFilter,
        shard: ShardId,
        hashes: Option<&HashList>,
        request: impl Fn(Option<AllowedGrowth>) -> ShardRequest + Send + Sync,
        deadline: Instant,
    ) -> Result<ShardAnswer> {
        let bytes = filter.record.growth_bytes(shard);
        let mut growth = grows(&filter.record).then_some(AllowedGrowth { bytes, is_final: false });
        let mut refusal = None;
        let may_join = has_room_for_all(&filter.record);
        for time in 0..=TIMES_ALLOWED_MAX {
            let call = self.calls.item_call(shard, request(growth), may_join, deadline);
            match (call.await, &mut growth) {
                (Ok(ShardAnswer::Growing { growth_bytes }), Some(allowed)) => {
                    // Boxed: it is rare, and the future of every call about items would reserve room for it.
                    let asked = self.allow_growth(filter, shard, growth_bytes, hashes, deadline);
                    match Box::pin(asked).await {
                        Ok(()) => allowed.bytes = allowed.bytes.max(growth_bytes),
                        Err(CallFailure::Meta(MetaError::Quota { what })) => refusal = Some(what),
                        Err(error) => return Err(error),
                    }
                    allowed.is_final = refusal.is_some() || time + 1 == TIMES_ALLOWED_MAX;
                }
                (Err(CallFailure::Part(PartError::Full { filter, what })), _) => {
                    // What the quota lacks is the cause; the shard knows only that it was not allowed more.
                    let what = refusal.unwrap_or(what);
                    return Err(PartError::Full { filter, what }.into());
                }
                (answer, _) => return answer,
            }
        }
        // A shard that was told that its allowance is final must not ask for more.
        Err(unexpected(&growth))
    }

    /// Allows a slice of an imported filter to grow as far as the exported slice had grown, according to
    /// its frame. An invalid frame is left to the shard, which refuses it.
    pub(super) async fn grow_for_frame(
        self,
        (filter, generation): (FilterId, Generation),
        shard: ShardId,
        range: HashRange,
        frame: &[u8],
        deadline: Instant,
    ) -> Result<()> {
        let planned = self.calls.read_meta(|state| {
            let record = state.filter(filter)?;
            Some((record.settings.shape, record.growth_bytes(shard)))
        })?;
        let Some((shape, allowed_bytes)) = planned else { return Ok(()) };
        let growth_bytes = frame_growth_bytes(&shape, range, frame).unwrap_or(0);
        if growth_bytes <= allowed_bytes {
            return Ok(());
        }
        self.propose_growth((filter, generation), shard, growth_bytes, None, deadline).await
    }

    /// Has the meta group allow a slice to grow by this many bytes beyond its plan.
    async fn allow_growth(
        self,
        filter: &LiveFilter,
        shard: ShardId,
        growth_bytes: u64,
        hashes: Option<&HashList>,
        deadline: Instant,
    ) -> Result<()> {
        let (id, generation) = (filter.id, filter.record.generation);
        let proposed = self.propose_growth((id, generation), shard, growth_bytes, hashes, deadline);
        let Err(error) = proposed.await else { return Ok(()) };
        Err(match error {
            // The caller finds out what became of the filter.
            CallFailure::Meta(MetaError::UnknownFilter { .. } | MetaError::Busy { .. }) => {
                PartError::UnknownSlice { filter: id, shard }.into()
            }
            error => match self.calls.read_meta(|state| absorbed_by(state.shard_map(), shard))? {
                Some(into) => PartError::Fenced { shard, into }.into(),
                None => error,
            },
        })
    }

    /// Proposes what is missing until nothing is: a merge of shards meanwhile moves what was counted elsewhere.
    async fn propose_growth(
        self,
        (filter, generation): (FilterId, Generation),
        shard: ShardId,
        growth_bytes: u64,
        hashes: Option<&HashList>,
        deadline: Instant,
    ) -> Result<()> {
        let missing = |state: &MetaState| {
            state.missing_growth((filter, generation), shard, growth_bytes, hashes)
        };
        loop {
            let mut shares = self.calls.read_meta(missing)?;
            if shares.is_err() {
                // There may be room by now.
                self.calls.meta_refresh(deadline).await?;
                shares = self.calls.read_meta(missing)?;
            }
            let shares = shares?;
            if shares.is_empty() {
                return Ok(());
            }
            for (shard, growth_bytes) in shares {
                let command = MetaCommand::GrowFilter { filter, generation, shard, growth_bytes };
                match self.calls.meta_propose(command, deadline).await? {
                    MetaReply::Done => {}
                    other => return Err(unexpected(&other)),
                }
            }
        }
    }
}

/// Bytes beyond its plan that a slice of this shape takes over this range once it has grown as far as the
/// frame's slice; None if the frame is not of such a filter.
fn frame_growth_bytes(shape: &SliceShape, range: HashRange, frame: &[u8]) -> Option<u64> {
    let (view, _) = FrameView::parse(frame).ok()?;
    shape.growth_bytes(range, shape.growths_of_frame(range, &view)?).ok()
}
