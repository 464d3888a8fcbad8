//! Saves copies to snapshots: those that are due, and those that a whole filter was merged into.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::{FilterId, Generation};
use umbel_filter::AnyFilter;

use super::super::failure::CopyFailure;
use super::super::image;
use super::{Copies, OpenCopy};
use crate::cube::Result;

/// A copy with merges that are not on this node's disk is saved after this long, so that a restart need
/// not request them again.
const VOLATILE_MAX: Duration = Duration::from_secs(300);

impl Copies {
    /// Saves a copy to a snapshot, and purges the log that the snapshot covers. On a full disk it waits for room.
    ///
    /// # Errors
    /// If the copy was forgotten, or the disk fails.
    pub(super) async fn save(&self, filter: FilterId) -> Result<()> {
        let stored =
            |held: &OpenCopy| (Arc::clone(&held.copy), held.log.clone(), held.snapshots.clone());
        let unknown = CopyFailure::UnknownCopy { filter };
        let Some((copy, log, snapshots)) = self.read().get(&filter).map(stored) else {
            return Err(unknown);
        };
        let saved = image::save(&copy, &log, &snapshots).await;
        match (saved, self.write().get_mut(&filter)) {
            (_, None) => Err(unknown),
            (Err(error), Some(_)) => {
                Err(CopyFailure::NotSaved(format!("{} cannot be saved: {error}", copy.group)))
            }
            (Ok(()), Some(held)) => {
                held.saved_at = Instant::now();
                Ok(())
            }
        }
    }

    /// ORs a filter into this node's copy and returns the number of newly set positions, once the copy
    /// is on disk. After that it is sent to other nodes. For a windowed filter, `newest_slice` is the
    /// newest time slice of `other`.
    ///
    /// The caller must await the result: if this is cancelled half way, the copy sends nothing to other
    /// nodes until it is saved.
    ///
    /// # Errors
    /// If there is no such copy, it has another generation or shape, or the disk is nearly full or
    /// fails.
    pub async fn absorb(
        &self,
        filter: FilterId,
        generation: Generation,
        other: &AnyFilter,
        newest_slice: Option<u64>,
    ) -> Result<u64> {
        if let Some(free_bytes) = self.space.shortage() {
            return Err(CopyFailure::DiskFull { free_bytes });
        }
        let copy = self.get(filter).ok_or(CopyFailure::UnknownCopy { filter })?;
        let new_bit_count = copy.absorb(generation, other, newest_slice)?;
        self.save(filter).await?;
        self.begin_sweep();
        Ok(new_bit_count)
    }

    /// Saves each copy that was cleared, has a long log, keeps the oldest segment of the shared log from being
    /// removed, or has merges that have not been on disk for a long time. On a full disk it waits for room.
    pub async fn save_due(&self, log_bytes_max: u64, is_provoked: bool) {
        let is_long = self.storage.wal_bytes() > log_bytes_max;
        let oldest =
            if is_long { self.storage.groups_holding_oldest_segment() } else { Vec::new() };
        let due: Vec<FilterId> = {
            let held = self.read();
            let is_due = |held: &OpenCopy| {
                let log_bytes = self.storage.log_bytes(held.copy.group);
                log_bytes > log_bytes_max / 4
                    || oldest.contains(&held.copy.group)
                    || held.copy.is_left_unsaved()
                    || held.copy.is_cleared_unsaved()
                    || (is_provoked && (log_bytes > 0 || held.copy.is_volatile()))
                    || (held.copy.is_volatile() && held.saved_at.elapsed() > VOLATILE_MAX)
            };
            held.iter().filter(|(_, held)| is_due(held)).map(|(&filter, _)| filter).collect()
        };
        for filter in due {
            match self.save(filter).await {
                Ok(()) | Err(CopyFailure::UnknownCopy { .. }) => {}
                // The log still has what the snapshot lacks.
                Err(error) => tracing::warn!(%error, "a copy was not saved"),
            }
        }
    }
}
