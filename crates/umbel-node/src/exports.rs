//! Exports that are running: a copy of a slice each, cut into frames as they are asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use umbel_engine::shard::SliceCopy;

use crate::calls::ShardFailure;
use crate::export_change::{ExportedFrame, FrameDigests, Known};
use crate::limits::{
    EXPORT_ANSWER_BYTES, EXPORT_FRAME_PAYLOAD_BYTES_MAX, EXPORT_IDLE_MAX, EXPORTS_MAX,
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
}

struct Running {
    used: Instant,
    /// None while an answer is being gathered.
    frames: Option<mpsc::Receiver<Result<ExportedFrame, String>>>,
}

impl Exports {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Begins to export a copy to somebody who may have these frames.
    pub(crate) fn begin(
        &self,
        copy: SliceCopy,
        known: Option<FrameDigests>,
    ) -> Result<u64, ShardFailure> {
        let mut table = self.lock();
        let now = Instant::now();
        table.running.retain(|_, export| now - export.used < EXPORT_IDLE_MAX);
        if table.running.len() >= EXPORTS_MAX {
            return Err(ShardFailure::TooManyExports);
        }
        let (sender, frames) = mpsc::channel(FRAMES_AHEAD);
        // Ends with its receiver, and the copy with it.
        tokio::spawn(make_frames(copy, known, sender));
        table.last += 1;
        let export = table.last;
        table.running.insert(export, Running { used: now, frames: Some(frames) });
        Ok(export)
    }

    /// The next frames, and whether they are the last.
    pub(crate) async fn next(
        &self,
        export: u64,
    ) -> Result<(Vec<ExportedFrame>, bool), ShardFailure> {
        let taken = self.lock().running.get_mut(&export).and_then(|export| export.frames.take());
        let mut source = taken.ok_or(ShardFailure::NoExport)?;
        let (mut frames, mut byte_count) = (Vec::new(), 0);
        while byte_count < EXPORT_ANSWER_BYTES && frames.len() < EXPORT_ANSWER_FRAMES {
            match source.recv().await {
                Some(Ok(frame)) => {
                    byte_count += frame.sent().len();
                    frames.push(frame);
                }
                Some(Err(why)) => {
                    self.lock().running.remove(&export);
                    return Err(ShardFailure::Stopped(why));
                }
                None => {
                    self.lock().running.remove(&export);
                    return Ok((frames, true));
                }
            }
        }
        if let Some(running) = self.lock().running.get_mut(&export) {
            *running = Running { used: Instant::now(), frames: Some(source) };
        }
        Ok((frames, false))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        // No holder of the lock panics, and the table is whole after every statement.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn make_frames(
    copy: SliceCopy,
    known: Option<FrameDigests>,
    sender: mpsc::Sender<Result<ExportedFrame, String>>,
) {
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
        // Nobody may come again to sweep the table, and the copy shall not wait for that.
        if !matches!(timeout(EXPORT_IDLE_MAX, sender.send(frame)).await, Ok(Ok(()))) {
            return;
        }
    }
}
