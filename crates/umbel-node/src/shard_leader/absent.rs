//! Inserts of items that are absent: whether they are is decided where the entry is applied.

use umbel_engine::shard::{Bitmap, HashList, PreparedInsert, RequestStamp};
use umbel_engine::{FilterId, Generation};

use super::queue::Way;
use super::{ShardLeader, growing};
use crate::calls::{AllowedGrowth, ShardAnswer, ShardFailure};
use crate::metrics;

impl ShardLeader {
    /// Proposes nothing if all items are present.
    pub(super) async fn insert_absent(
        &self,
        (filter, generation): (FilterId, Generation),
        request: Option<RequestStamp>,
        hashes: &HashList,
        growth: Option<AllowedGrowth>,
    ) -> Result<ShardAnswer, ShardFailure> {
        self.check_leader()?;
        let others = growth.map(|_| self.growing.enter(filter, hashes.len() as u64));
        let growth = growing::slice_growth(growth, others.as_ref());
        let prepare = || {
            self.group.replica().read_shard(|state| {
                state.prepare_insert_absent(filter, generation, request, hashes, growth)
            })
        };
        let mut prepared = prepare()?;
        if matches!(prepared, PreparedInsert::AllPresent { .. }) {
            // Another leader may have removed them before this call began.
            self.confirm().await?;
            prepared = prepare()?;
        }
        let bits = match prepared {
            PreparedInsert::Answered(bits) => {
                self.confirm().await?;
                metrics::insert_repeated(bits.len().into());
                bits
            }
            PreparedInsert::AllPresent { item_count } => {
                metrics::insert_answered(0, item_count.into());
                Bitmap::zeros(item_count)
            }
            PreparedInsert::Growing { growth_bytes } => {
                return Ok(ShardAnswer::Growing { growth_bytes });
            }
            PreparedInsert::Propose(part) => self.propose_insert(part, Way::IfAbsent)?.await?,
        };
        Ok(ShardAnswer::Bits(bits))
    }
}
