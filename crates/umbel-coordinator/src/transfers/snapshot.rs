//! Snapshots: copies of all slices of a filter as they were at one moment, although each shard has its own log.
//!
//! Each shard's leader waits for the writes in flight, lets no other begin, and copies its slice. Once
//! there is a copy of every slice, each leader is asked whether its slice is still as it was copied; it
//! answers after it has confirmed that it leads, and lets writes continue. If all say yes, then at the
//! moment between the last copy and the first question every slice was as it was copied. So everything
//! that was answered before that moment is in the snapshot, and nothing that was requested after it is
//! (two collects that agree: Afek et al. 1993, doi:10.1145/153724.153741).
//!
//! Because writes wait, the collects agree soon. Because they agree, the snapshot is right: if a leader
//! is succeeded by another meanwhile, or writes have waited too long and continue, it is taken once more.

use std::future::pending;

use futures_util::future::join_all;
use tokio::time::Instant;
use umbel_engine::placement::ShardRanges;
use umbel_engine::shard::HashList;
use umbel_engine::{FilterId, Generation, ShardId};
use umbel_ports::Purpose;

use super::outgoing::KnownFrames;
use super::slice_export::SliceExport;
use crate::{Coordinator, Result};
use umbel_node::calls::ShardRequest;
use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::Tries;
use umbel_node::limits::{EXPORT_IDLE_MAX, FILTER_SNAPSHOT_HOLD_MAX, FILTER_SNAPSHOT_TRIES_MAX};

/// The copies of a snapshot that wait for their turn to be read, by shard.
pub(super) struct FilterSnapshot {
    copies: Vec<SliceExport>,
    kept: Instant,
}

impl Coordinator {
    /// Takes a snapshot of a filter.
    ///
    /// # Errors
    /// If a shard does not answer, the filter is cleared or dropped, or the copies do not agree in
    /// several tries. Nothing is left of the snapshot then, and writes continue.
    pub(super) async fn filter_snapshot(
        &self,
        (filter, generation): (FilterId, Generation),
        ranges: ShardRanges,
        known: Option<&KnownFrames>,
        deadline: Instant,
    ) -> Result<FilterSnapshot> {
        let shards: Vec<ShardId> = ranges.shards().collect();
        let snapshot = self.seed().number(Purpose::Snapshot);
        let mut tries = Tries::new(deadline);
        loop {
            // Checked first, so that no writes wait for a shard that has no leader.
            let ready = shards.iter().map(|&shard| {
                let hashes = HashList::from_hashes(&[]);
                let request =
                    ShardRequest::Contains { filter, generation, hashes, confirmed: true };
                self.shard_call(shard, request, deadline)
            });
            join_all(ready).await.into_iter().collect::<Result<Vec<_>, _>>()?;
            let begun = Instant::now();
            let begin = |&shard: &ShardId| {
                let known = known.map(|known| known.of(shard));
                let snapshot = Some(snapshot);
                (shard, ShardRequest::ExportBegin { filter, generation, known, snapshot })
            };
            let failure = match self.try_filter_snapshot(shards.iter().map(begin), deadline).await {
                Ok(snapshot) => {
                    let (shards, held_ms) = (shards.len(), begun.elapsed().as_millis());
                    tracing::info!(%filter, shards, held_ms, "a snapshot was taken");
                    return Ok(snapshot);
                }
                Err(failure) => failure,
            };
            let is_passing = matches!(
                failure,
                CallFailure::Overloaded { .. }
                    | CallFailure::NoQuorum { .. }
                    | CallFailure::OutcomeUnknown { .. }
            );
            tracing::debug!(%filter, %failure, "a snapshot was not taken");
            if !is_passing || tries.count + 1 >= FILTER_SNAPSHOT_TRIES_MAX || tries.is_over() {
                return Err(failure);
            }
            tries.pause(false, pending()).await;
        }
    }

    /// Copies every slice once; an error if the copies are not of one moment.
    async fn try_filter_snapshot(
        &self,
        begins: impl Iterator<Item = (ShardId, ShardRequest)>,
        deadline: Instant,
    ) -> Result<FilterSnapshot> {
        let deadline = deadline.min(Instant::now() + FILTER_SNAPSHOT_HOLD_MAX);
        let begins = begins.map(|(shard, request)| self.begin_export(shard, request, deadline));
        let (copies, failures): (Vec<_>, Vec<_>) =
            join_all(begins).await.into_iter().partition(Result::is_ok);
        let copies = copies.into_iter().flatten().collect();
        let kept = Instant::now();
        // If a copy is missing, dropping this gives up the others.
        let snapshot = FilterSnapshot { copies, kept };
        failures.into_iter().collect::<Result<Vec<_>, _>>()?;
        let released = snapshot.copies.iter().map(|copy| copy.release(deadline));
        join_all(released).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(snapshot)
    }
}

impl FilterSnapshot {
    /// The copy of this shard, whose turn it is. The others wait for theirs.
    pub(super) fn turn_of(&mut self, shard: ShardId) -> Option<SliceExport> {
        let at = self.copies.iter().position(|copy| copy.shard == shard)?;
        Some(self.copies.remove(at))
    }

    /// Keeps the copies that wait for their turn, from time to time. If one is gone, its turn fails.
    pub(super) async fn keep(&mut self) {
        if self.kept.elapsed() < EXPORT_IDLE_MAX / 4 {
            return;
        }
        self.kept = Instant::now();
        join_all(self.copies.iter().map(SliceExport::keep)).await;
    }

    /// By shard, the last entry of its log that may have changed the slice before it was copied.
    pub(super) fn log_indexes(&self) -> Vec<u64> {
        self.copies.iter().map(|copy| copy.written_index).collect()
    }
}
