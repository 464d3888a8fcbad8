//! Inserts of items that are absent: whether they are is decided where the entry is applied.

use umbel_engine::shard::{
    Bitmap, HashList, InsertPart, PreparedInsert, RequestStamp, ShardCommand, ShardReply,
};
use umbel_engine::{FilterId, Generation};

use super::{PartAnswer, ShardLeader, growing, unexpected};
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
            PreparedInsert::Propose(part) => self.propose_absent(part).await?,
        };
        Ok(ShardAnswer::Bits(bits))
    }

    async fn propose_absent(&self, part: InsertPart) -> PartAnswer {
        let (slice, item_count) = ((part.filter, part.generation), part.hashes.len());
        let reply = self.propose_alone(item_count, ShardCommand::InsertAbsent(part)).await?;
        let ShardReply::Inserted(mut answers) = reply else { return Err(unexpected(&reply)) };
        let Some(answer) = answers.pop() else {
            return Err(unexpected(&ShardReply::Inserted(answers)));
        };
        let bits = answer?;
        let new_count = bits.count_ones();
        self.arrivals.add(slice, new_count.into());
        metrics::insert_answered(new_count.into(), (bits.len() - new_count).into());
        Ok(bits)
    }
}
