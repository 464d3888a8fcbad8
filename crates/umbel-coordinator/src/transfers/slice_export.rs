//! A copy of a slice at the node that holds it, which is given up there once nobody reads it here any more.
//!
//! A node holds few copies. The one that reads them may stop at any moment: its client disconnects, or another
//! shard fails. Whoever owns the [`SliceExport`] then drops it, and that ends the copy.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::time::Instant;
use umbel_engine::{NodeId, ShardId};

use super::step_deadline;
use crate::{Coordinator, Result};
use umbel_node::calls::{ShardAnswer, ShardRequest};
use umbel_node::export_change::ExportedFrame;
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::{LeaderCalls, unexpected};

/// A copy of a slice. Dropping it gives up the copy, unless the last frame was read.
pub(super) struct SliceExport {
    calls: Arc<LeaderCalls>,
    pub(super) shard: ShardId,
    /// The node that holds the copy.
    holder: NodeId,
    /// Its number there.
    export: u64,
    /// The last entry of the shard's log that may have changed the slice before it was copied.
    pub(super) written_index: u64,
    /// Whether the holder has sent the last frame, and with it ended the export.
    is_over: bool,
}

impl Coordinator {
    /// Copies a slice with a request that begins an export. If the caller stops waiting, the copy is given up as soon as
    /// it has begun.
    pub(super) async fn begin_export(
        &self,
        shard: ShardId,
        request: ShardRequest,
        deadline: Instant,
    ) -> Result<SliceExport> {
        let calls = Arc::clone(&self.calls);
        // Only the answer has the number that ends the copy. A task of its own receives it even if nobody waits for it,
        // and drops what nobody takes.
        let begun = tokio::spawn(async move {
            match calls.shard_call(shard, request, deadline).await? {
                ShardAnswer::Export { holder, export, written_index } => {
                    let is_over = false;
                    Ok(SliceExport { calls, shard, holder, export, written_index, is_over })
                }
                other => Err(unexpected(&other)),
            }
        });
        begun.await.unwrap_or_else(|error| Err(CallFailure::storage(error)))
    }
}

impl SliceExport {
    /// The next frames, and whether they are the last ones.
    pub(super) async fn next(&mut self) -> Result<(Vec<ExportedFrame>, bool)> {
        let request = ShardRequest::ExportNext { export: self.export };
        match self.call(request, step_deadline()).await? {
            ShardAnswer::Frames { frames, is_last } if is_last || !frames.is_empty() => {
                self.is_over = is_last;
                Ok((frames, is_last))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Keeps the copy while it waits for its turn.
    pub(super) async fn keep(&self) -> Result<()> {
        let request = ShardRequest::ExportKeep { export: self.export };
        self.call(request, step_deadline()).await.map(drop)
    }

    /// Lets the writes continue that wait for the copy, if the slice is as it was copied.
    pub(super) async fn release(&self, deadline: Instant) -> Result<()> {
        let request = ShardRequest::ExportRelease { export: self.export };
        self.call(request, deadline).await.map(drop)
    }

    /// Asks the node that holds the copy, whichever node leads the shard by now.
    async fn call(&self, request: ShardRequest, deadline: Instant) -> Result<ShardAnswer> {
        let answer = self.calls.replica_call(self.shard, self.holder, request, deadline).await;
        answer.map_err(|failure| match failure {
            // No other node has this copy.
            CallFailure::Overloaded { what } => {
                let Self { holder, shard, .. } = self;
                let what = format!("{holder}, which copies {shard}, sends no more of it: {what}");
                CallFailure::Overloaded { what }
            }
            failure => failure,
        })
    }
}

impl Drop for SliceExport {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let (calls, shard, holder) = (Arc::clone(&self.calls), self.shard, self.holder);
        let request = ShardRequest::ExportEnd { export: self.export };
        runtime.spawn(async move {
            // A node that does not receive this gives up the copy by itself.
            let _ = calls.replica_call(shard, holder, request, step_deadline()).await;
        });
    }
}
