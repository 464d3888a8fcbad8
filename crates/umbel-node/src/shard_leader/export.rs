//! Begins copies of slices at the shard's leader.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};
use umbel_engine::{FilterId, Generation};

use super::ShardLeader;
use crate::calls::{FilterSnapshotId, ShardAnswer, ShardFailure};
use crate::export_change::FrameDigests;
use crate::exports::{Copied, Hold};
use crate::limits::FILTER_SNAPSHOT_HOLD_MAX;

impl ShardLeader {
    /// Copies a slice as it is now. For a snapshot, waits for the writes in flight, and blocks further
    /// writes until the snapshot is released or given up.
    pub(super) async fn export_begin(
        &self,
        filter: FilterId,
        generation: Generation,
        known: Option<FrameDigests>,
        snapshot: Option<FilterSnapshotId>,
    ) -> Result<ShardAnswer, ShardFailure> {
        self.check_leader()?;
        let hold = match snapshot {
            Some(snapshot) => {
                let arriving = self.exports.arrive(snapshot)?;
                // Further writes are blocked from here on, also while this waits.
                let until = Instant::now() + FILTER_SNAPSHOT_HOLD_MAX;
                let held = async {
                    let writes = Arc::clone(&self.writes).write_owned().await;
                    self.confirm().await.map(|()| Hold { arriving, writes, until })
                };
                let held = timeout_at(until, held).await;
                Some(held.map_err(|_| ShardFailure::WrittenMeanwhile)??)
            }
            None => {
                self.confirm().await?;
                self.exports.check_room()?;
                None
            }
        };
        let owner = self.group.shard_owner();
        let (copy, written_index) = self.group.replica().read_shard(|state| {
            let copy = state.read_slice(filter, generation, &owner)?;
            Ok::<_, ShardFailure>((copy, state.written_index(filter, generation)?))
        })?;
        let copied = Copied { filter, generation, written_index };
        let export = self.exports.begin(copied, copy, known, hold)?;
        Ok(ShardAnswer::Export { holder: self.node, export, written_index })
    }

    /// Checks that a slice is still as it was copied, after confirming that this node leads, and
    /// unblocks its writes.
    pub(super) async fn export_release(&self, export: u64) -> Result<ShardAnswer, ShardFailure> {
        let Copied { filter, generation, written_index } = self.exports.copied(export)?;
        self.confirm().await?;
        let state = self.group.replica();
        let now = state.read_shard(|state| state.written_index(filter, generation))?;
        if now != written_index {
            self.exports.end(export);
            return Err(ShardFailure::WrittenMeanwhile);
        }
        self.exports.release(export)?;
        Ok(ShardAnswer::Done(0))
    }
}
