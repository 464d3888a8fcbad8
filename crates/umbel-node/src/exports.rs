//! Running exports: each has a copy of a slice, or reads it where it is, and is cut into frames on request.
//!
//! The exports of a snapshot begin together in all shards of a filter. Each holds back its shard's
//! writes until the coordinator of the snapshot has a copy of every slice and releases the writes; then
//! the export waits for its turn to be read.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{OwnedRwLockWriteGuard, mpsc, watch};
use tokio::time::{Instant, sleep_until};
use umbel_engine::shard::SliceCopy;
use umbel_engine::{FilterId, Generation};
use umbel_ports::locked;

use crate::calls::{FilterSnapshotId, ShardFailure};
use crate::export_change::{ExportedFrame, FrameDigests, Known};
use crate::limits::{
    EXPORT_ANSWER_BYTES, EXPORT_FRAME_PAYLOAD_BYTES_MAX, EXPORT_IDLE_MAX, EXPORTS_MAX,
    FILTER_SNAPSHOTS_MAX,
};

/// Most frames in one response: unchanged ones are so small that the number of frames limits a
/// response.
const EXPORT_ANSWER_FRAMES: usize = 1024;

/// Frames that are made ahead of the reader.
const FRAMES_AHEAD: usize = 2;

/// The exports of a node.
#[derive(Default)]
pub(crate) struct Exports {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last: u64,
    running: BTreeMap<u64, RunningExport>,
    /// Number of a snapshot's exports that wait for their shard's writes before they begin.
    arriving: BTreeMap<FilterSnapshotId, usize>,
}

struct RunningExport {
    copied: Copied,
    used: Instant,
    /// None while a response is being gathered.
    frames: Option<mpsc::Receiver<Result<ExportedFrame, String>>>,
    /// Tells the task that makes the frames whether they were requested, and that the export is in use.
    asked: watch::Sender<bool>,
    snapshot: Option<FilterSnapshotId>,
    /// Held while writes are held back.
    held: Option<OwnedRwLockWriteGuard<()>>,
}

/// What was copied, and the index of the last entry that may have changed it before the copy.
#[derive(Clone, Copy)]
pub(crate) struct Copied {
    pub(crate) filter: FilterId,
    pub(crate) generation: Generation,
    pub(crate) written_index: u64,
}

/// The snapshot that a copy belongs to, and the shard's writes, held back since before the copy was
/// made.
pub(crate) struct Hold {
    pub(crate) arriving: Arriving,
    pub(crate) writes: OwnedRwLockWriteGuard<()>,
    /// When the writes continue at the latest.
    pub(crate) until: Instant,
}

/// Reserves room for a snapshot until its export has begun or failed.
pub(crate) struct Arriving {
    exports: Arc<Exports>,
    snapshot: FilterSnapshotId,
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut table = locked(&self.exports.table);
        if let Entry::Occupied(mut count) = table.arriving.entry(self.snapshot) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Exports {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Reserves room for an export of a snapshot. Without room, the export must not wait for a shard's
    /// writes: later writes wait behind it, and two snapshots that each hold one shard and wait for the
    /// other's would deadlock.
    ///
    /// # Errors
    /// If the node serves another snapshot.
    pub(crate) fn arrive(
        self: &Arc<Self>,
        snapshot: FilterSnapshotId,
    ) -> Result<Arriving, ShardFailure> {
        let mut table = locked(&self.table);
        table.let_go_of_idle(Instant::now());
        if !table.has_room(Some(snapshot)) {
            return Err(ShardFailure::TooManyExports);
        }
        *table.arriving.entry(snapshot).or_default() += 1;
        Ok(Arriving { exports: Arc::clone(self), snapshot })
    }

    /// Checks that there is room for an export that belongs to no snapshot. To be asked before its slice is read,
    /// because the slice keeps what its readers need.
    ///
    /// # Errors
    /// If there are as many as there may be.
    pub(crate) fn check_room(&self) -> Result<(), ShardFailure> {
        let mut table = locked(&self.table);
        table.let_go_of_idle(Instant::now());
        if table.has_room(None) { Ok(()) } else { Err(ShardFailure::TooManyExports) }
    }

    /// Begins to export a copy to a caller that may have earlier frames.
    pub(crate) fn begin(
        self: &Arc<Self>,
        copied: Copied,
        copy: SliceCopy,
        known: Option<FrameDigests>,
        hold: Option<Hold>,
    ) -> Result<u64, ShardFailure> {
        let mut table = locked(&self.table);
        let now = Instant::now();
        table.let_go_of_idle(now);
        let snapshot = hold.as_ref().map(|hold| hold.arriving.snapshot);
        if !table.has_room(snapshot) {
            return Err(ShardFailure::TooManyExports);
        }
        let (sender, frames) = mpsc::channel(FRAMES_AHEAD);
        let (asked, asks) = watch::channel(snapshot.is_none());
        // The task ends with the receivers, and drops the copy.
        tokio::spawn(make_frames(copy, known, sender, asks));
        table.last += 1;
        let export = table.last;
        let (held, arriving) = hold
            .map(|Hold { arriving, writes, until }| {
                tokio::spawn(end_unreleased(Arc::downgrade(self), export, until));
                (writes, arriving)
            })
            .unzip();
        let frames = Some(frames);
        let running = RunningExport { copied, used: now, frames, asked, snapshot, held };
        table.running.insert(export, running);
        drop(table);
        // The export itself has the room now.
        drop(arriving);
        Ok(export)
    }

    /// What an export is a copy of.
    pub(crate) fn copied(&self, export: u64) -> Result<Copied, ShardFailure> {
        let table = locked(&self.table);
        table.running.get(&export).map(|export| export.copied).ok_or(ShardFailure::NoExport)
    }

    /// Releases the writes that wait for an export.
    pub(crate) fn release(&self, export: u64) -> Result<(), ShardFailure> {
        let mut table = locked(&self.table);
        let running = table.running.get_mut(&export).ok_or(ShardFailure::NoExport)?;
        running.held = None;
        Ok(())
    }

    /// Keeps an export alive that waits for its turn.
    pub(crate) fn keep(&self, export: u64) -> Result<(), ShardFailure> {
        let mut table = locked(&self.table);
        let running = table.running.get_mut(&export).ok_or(ShardFailure::NoExport)?;
        running.used = Instant::now();
        running.asked.send_modify(|_| ());
        Ok(())
    }

    /// Ends an export, if it exists.
    pub(crate) fn end(&self, export: u64) {
        locked(&self.table).running.remove(&export);
    }

    /// The next frames, and whether they are the last ones.
    pub(crate) async fn next(
        &self,
        export: u64,
    ) -> Result<(Vec<ExportedFrame>, bool), ShardFailure> {
        let taken = locked(&self.table).running.get_mut(&export).and_then(|export| {
            export.asked.send_modify(|is_asked| *is_asked = true);
            export.frames.take()
        });
        let mut source = taken.ok_or(ShardFailure::NoExport)?;
        let (mut frames, mut byte_count) = (Vec::new(), 0);
        while byte_count < EXPORT_ANSWER_BYTES && frames.len() < EXPORT_ANSWER_FRAMES {
            match source.recv().await {
                Some(Ok(frame)) => {
                    byte_count += frame.sent().len();
                    frames.push(frame);
                }
                Some(Err(why)) => {
                    self.end(export);
                    return Err(ShardFailure::Stopped(why));
                }
                None => {
                    self.end(export);
                    return Ok((frames, true));
                }
            }
        }
        if let Some(running) = locked(&self.table).running.get_mut(&export) {
            running.used = Instant::now();
            running.frames = Some(source);
        }
        Ok((frames, false))
    }

    /// The exports that run, also those that are idle.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn count(&self) -> usize {
        locked(&self.table).running.len()
    }
}

impl Table {
    fn let_go_of_idle(&mut self, now: Instant) {
        self.running.retain(|_, export| now - export.used < EXPORT_IDLE_MAX);
    }

    /// Whether one more export may begin: one of that snapshot, or an independent one.
    fn has_room(&self, snapshot: Option<FilterSnapshotId>) -> bool {
        let others = self.running.values().filter(|export| export.snapshot != snapshot);
        match snapshot {
            Some(_) => {
                let arriving = self.arriving.keys().filter(|&&other| Some(other) != snapshot);
                let others = others.filter_map(|export| export.snapshot);
                others.chain(arriving.copied()).collect::<BTreeSet<_>>().len()
                    < FILTER_SNAPSHOTS_MAX
            }
            None => self.running.len() - others.count() < EXPORTS_MAX,
        }
    }
}

/// Ends an export of a snapshot that is not released in time, so that writes wait no longer.
async fn end_unreleased(exports: Weak<Exports>, export: u64, until: Instant) {
    sleep_until(until).await;
    let Some(exports) = exports.upgrade() else { return };
    let mut table = locked(&exports.table);
    if table.running.get(&export).is_some_and(|export| export.held.is_some()) {
        table.running.remove(&export);
    }
}

async fn make_frames(
    copy: SliceCopy,
    known: Option<FrameDigests>,
    sender: mpsc::Sender<Result<ExportedFrame, String>>,
    mut asks: watch::Receiver<bool>,
) {
    // Frames made ahead take memory, for every copy that waits for its turn; so they are made only on
    // request.
    while !*asks.borrow_and_update() {
        if !is_kept(&mut asks).await {
            return;
        }
    }
    let is_raw = known.is_some();
    let mut known = Known::new(known.unwrap_or_default());
    let frames = match copy.frames(EXPORT_FRAME_PAYLOAD_BYTES_MAX) {
        Ok(frames) if is_raw => frames.raw(),
        Ok(frames) => frames,
        Err(error) => {
            // The caller may have gone.
            let _ = sender.send(Err(error.to_string())).await;
            return;
        }
    };
    for frame in frames {
        let frame = frame.map(|frame| known.leave_out(frame.into()));
        let frame = frame.map_err(|error| error.to_string());
        let permit = loop {
            tokio::select! {
                biased;
                permit = sender.reserve() => break permit,
                is_kept = is_kept(&mut asks) => if !is_kept { return },
            }
        };
        let Ok(permit) = permit else { return };
        permit.send(frame);
    }
}

/// Waits until the export is read or kept alive. Returns false if neither happens for too long, or the
/// export was ended. Without this timeout, the copy would stay in memory until another call cleans up
/// the table.
async fn is_kept(asks: &mut watch::Receiver<bool>) -> bool {
    matches!(tokio::time::timeout(EXPORT_IDLE_MAX, asks.changed()).await, Ok(Ok(())))
}

#[cfg(test)]
mod exports_test;
