//! Exports that are running: a copy of a slice each, cut into frames as they are asked for.
//!
//! Those of a snapshot begin together, in all shards of a filter. Each holds its shard's writes back until whoever takes the
//! snapshot has a copy of every slice and releases its writes, and then waits for its turn to be asked for.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedRwLockWriteGuard, mpsc, watch};
use tokio::time::{Instant, sleep_until};
use umbel_engine::shard::SliceCopy;
use umbel_engine::{FilterId, Generation};

use crate::calls::{ShardFailure, SnapshotId};
use crate::export_change::{ExportedFrame, FrameDigests, Known};
use crate::limits::{
    EXPORT_ANSWER_BYTES, EXPORT_FRAME_PAYLOAD_BYTES_MAX, EXPORT_IDLE_MAX, EXPORTS_MAX,
    SNAPSHOTS_MAX,
};

/// Frames of an answer at most: those that did not change are so small that their number is what makes an answer long.
const EXPORT_ANSWER_FRAMES: usize = 1024;

/// Frames that are made ahead of the one that is asked for.
const FRAMES_AHEAD: usize = 2;

/// The exports of a node.
#[derive(Default)]
pub(crate) struct Exports {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last: u64,
    running: BTreeMap<u64, Running>,
    /// How many exports of a snapshot wait for their shard's writes before they begin.
    arriving: BTreeMap<SnapshotId, usize>,
}

struct Running {
    copied: Copied,
    used: Instant,
    /// None while an answer is being gathered.
    frames: Option<mpsc::Receiver<Result<ExportedFrame, String>>>,
    /// Tells who makes the frames whether they are asked for, and that somebody is there.
    asked: watch::Sender<bool>,
    snapshot: Option<SnapshotId>,
    /// Writes, while they are held back.
    held: Option<OwnedRwLockWriteGuard<()>>,
}

/// What was copied, and the last entry of the log that may have changed it before.
#[derive(Clone, Copy)]
pub(crate) struct Copied {
    pub(crate) filter: FilterId,
    pub(crate) generation: Generation,
    pub(crate) written_index: u64,
}

/// A snapshot that a copy is of, and the shard's writes, held back since before the copy was made.
pub(crate) struct Hold {
    pub(crate) arriving: Arriving,
    pub(crate) writes: OwnedRwLockWriteGuard<()>,
    /// When they go on at the latest.
    pub(crate) until: Instant,
}

/// Keeps room for a snapshot until its export has begun or failed.
pub(crate) struct Arriving {
    exports: Arc<Exports>,
    snapshot: SnapshotId,
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut table = self.exports.lock();
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

    /// Takes room for an export of a snapshot. One for which there is none must not wait for a shard's writes: those that
    /// come later wait behind it, and of two snapshots that hold a shard each and wait for the other's, neither would end.
    ///
    /// # Errors
    /// If the node serves another snapshot.
    pub(crate) fn arrive(self: &Arc<Self>, snapshot: SnapshotId) -> Result<Arriving, ShardFailure> {
        let mut table = self.lock();
        table.let_go_of_idle(Instant::now());
        if !table.has_room(Some(snapshot)) {
            return Err(ShardFailure::TooManyExports);
        }
        *table.arriving.entry(snapshot).or_default() += 1;
        Ok(Arriving { exports: Arc::clone(self), snapshot })
    }

    /// Begins to export a copy to somebody who may have these frames.
    pub(crate) fn begin(
        self: &Arc<Self>,
        copied: Copied,
        copy: SliceCopy,
        known: Option<FrameDigests>,
        hold: Option<Hold>,
    ) -> Result<u64, ShardFailure> {
        let mut table = self.lock();
        let now = Instant::now();
        table.let_go_of_idle(now);
        let snapshot = hold.as_ref().map(|hold| hold.arriving.snapshot);
        if !table.has_room(snapshot) {
            return Err(ShardFailure::TooManyExports);
        }
        let (sender, frames) = mpsc::channel(FRAMES_AHEAD);
        let (asked, asks) = watch::channel(snapshot.is_none());
        // Ends with its receivers, and the copy with it.
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
        let running = Running { copied, used: now, frames, asked, snapshot, held };
        table.running.insert(export, running);
        drop(table);
        // It has the room now.
        drop(arriving);
        Ok(export)
    }

    /// What an export is a copy of.
    pub(crate) fn copied(&self, export: u64) -> Result<Copied, ShardFailure> {
        let table = self.lock();
        table.running.get(&export).map(|export| export.copied).ok_or(ShardFailure::NoExport)
    }

    /// Lets the writes go on that wait for an export.
    pub(crate) fn release(&self, export: u64) -> Result<(), ShardFailure> {
        let mut table = self.lock();
        let running = table.running.get_mut(&export).ok_or(ShardFailure::NoExport)?;
        running.held = None;
        Ok(())
    }

    /// Keeps an export that waits for its turn.
    pub(crate) fn keep(&self, export: u64) -> Result<(), ShardFailure> {
        let mut table = self.lock();
        let running = table.running.get_mut(&export).ok_or(ShardFailure::NoExport)?;
        running.used = Instant::now();
        running.asked.send_modify(|_| ());
        Ok(())
    }

    /// Gives an export up, if it is there.
    pub(crate) fn end(&self, export: u64) {
        self.lock().running.remove(&export);
    }

    /// The next frames, and whether they are the last.
    pub(crate) async fn next(
        &self,
        export: u64,
    ) -> Result<(Vec<ExportedFrame>, bool), ShardFailure> {
        let taken = self.lock().running.get_mut(&export).and_then(|export| {
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
        if let Some(running) = self.lock().running.get_mut(&export) {
            running.used = Instant::now();
            running.frames = Some(source);
        }
        Ok((frames, false))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        // No holder of the lock panics, and the table is whole after every statement.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn let_go_of_idle(&mut self, now: Instant) {
        self.running.retain(|_, export| now - export.used < EXPORT_IDLE_MAX);
    }

    /// Whether one more may begin: of that snapshot, or by itself.
    fn has_room(&self, snapshot: Option<SnapshotId>) -> bool {
        let others = self.running.values().filter(|export| export.snapshot != snapshot);
        match snapshot {
            Some(_) => {
                let arriving = self.arriving.keys().filter(|&&other| Some(other) != snapshot);
                let others = others.filter_map(|export| export.snapshot);
                others.chain(arriving.copied()).collect::<BTreeSet<_>>().len() < SNAPSHOTS_MAX
            }
            None => self.running.len() - others.count() < EXPORTS_MAX,
        }
    }
}

/// Ends an export of a snapshot that nobody releases, so that no write waits longer.
async fn end_unreleased(exports: Weak<Exports>, export: u64, until: Instant) {
    sleep_until(until).await;
    let Some(exports) = exports.upgrade() else { return };
    let mut table = exports.lock();
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
    // Frames that are made ahead take memory, of every copy that waits for its turn.
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
            // Whoever asked may have gone.
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

/// Waits until somebody asks for an export or keeps it; false if nobody does for too long, or it was given up. Nobody may
/// come again to sweep the table, and the copy shall not wait for that.
async fn is_kept(asks: &mut watch::Receiver<bool>) -> bool {
    matches!(tokio::time::timeout(EXPORT_IDLE_MAX, asks.changed()).await, Ok(Ok(())))
}

#[cfg(test)]
mod exports_test;
