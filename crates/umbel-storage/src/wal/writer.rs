//! The single task that writes the log.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::{mpsc, watch};
use umbel_engine::GroupId;
use umbel_ports::{Disk, File, WriteError, locked};
use umbel_step::planted::{self, Planted};

use super::disk_wait::DiskWait;
use super::format::{Record, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentName, segment_path};
use super::state::{Failure, Location, Segment, State};
use super::{
    Call, FULL_RETRY, HINT_DELAY, QUEUE_CALLS_MAX, SEGMENT_BYTES_LIMIT, WAL_FOLDER,
    WRITE_BYTES_MAX, WalHealth, WalOptions, is_full, is_short_of_descriptors,
};
use crate::types::LogId;

/// The segment that is being written.
pub(super) struct Current {
    pub(super) name: SegmentName,
    pub(super) file: Arc<dyn File>,
    /// Offset after the last complete record.
    pub(super) end: u32,
    /// Everything below this offset is durable.
    pub(super) synced: u32,
    /// Offset after the records with which the segment began. A segment with nothing after them is not
    /// rotated.
    pub(super) head_end: u32,
}

pub(super) struct Writer {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: WalOptions,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) calls: mpsc::Receiver<Call>,
    pub(super) closing: watch::Receiver<bool>,
    pub(super) health: Arc<watch::Sender<WalHealth>>,
    pub(super) disk_wait: DiskWait,
    pub(super) current: Current,
    /// Commit hints that are not written yet; a hint alone causes no write.
    pub(super) hints: BTreeMap<GroupId, Option<LogId>>,
    /// The lock on the data folder.
    pub(super) _guard: Box<dyn Send + Sync>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let message = "log: the writer panicked".to_owned();
            locked(&self.state).failure = Some(Failure { kind: io::ErrorKind::Other, message });
            self.health.send_replace(WalHealth::Failed);
        }
    }
}

/// Records to be written to the current segment with one write.
#[derive(Default)]
struct Batch {
    bytes: BytesMut,
    records: Vec<(Record, Location)>,
    /// Calls whose last record is in the batch.
    done: Vec<Call>,
    /// Whether the batch contains anything but hints.
    needs_sync: bool,
}

/// The reason why the writer woke up.
enum Wake {
    Calls,
    Hints,
    Close,
    Gone,
}

impl Writer {
    pub(super) async fn run(mut self) {
        let mut calls = Vec::new();
        let mut is_closing = false;
        loop {
            let wake = self.wake(&mut calls, is_closing).await;
            let result = match wake {
                Wake::Calls => {
                    self.gather(&mut calls).await;
                    self.write(&mut calls).await
                }
                Wake::Hints => self.write_hints().await,
                Wake::Close => {
                    is_closing = true;
                    self.calls.close();
                    continue;
                }
                Wake::Gone => self.finish().await,
            };
            if let Err(failure) = result {
                return self.fail(calls, failure).await;
            }
            if matches!(wake, Wake::Gone) {
                return;
            }
        }
    }

    async fn wake(&mut self, calls: &mut Vec<Call>, is_closing: bool) -> Wake {
        let has_hints = !self.hints.is_empty();
        tokio::select! {
            biased;
            count = self.calls.recv_many(calls, QUEUE_CALLS_MAX) => {
                if count == 0 { Wake::Gone } else { Wake::Calls }
            }
            // An error means that all users are gone, which the queue shows too.
            _ = self.closing.wait_for(|closing| *closing), if !is_closing => Wake::Close,
            () = tokio::time::sleep(HINT_DELAY), if has_hints => Wake::Hints,
        }
    }

    /// Adds the calls of tasks that are about to append: a sync costs as much as hundreds of records, so whoever has one in
    /// this turn of all tasks passes it before. Nobody is waited for.
    async fn gather(&mut self, calls: &mut Vec<Call>) {
        if !self.options.sync {
            return;
        }
        tokio::task::yield_now().await;
        while calls.len() < QUEUE_CALLS_MAX
            && let Ok(call) = self.calls.try_recv()
        {
            calls.push(call);
        }
    }

    /// Writes all calls with as few writes as the segments allow, and completes them in order.
    ///
    /// After an error, `calls` contains the calls that were not completed.
    async fn write(&mut self, calls: &mut Vec<Call>) -> Result<(), Failure> {
        let mut batch = Batch::default();
        let mut may_remove = false;
        let mut waiting = mem::take(calls).into_iter();
        while let Some(mut call) = waiting.next() {
            for record in mem::take(&mut call.records) {
                match &record {
                    Record::Committed(group, id) => {
                        self.hints.insert(*group, *id);
                        continue;
                    }
                    Record::Forget(group) | Record::Left(group, _) => {
                        self.hints.remove(group);
                    }
                    _ => {}
                }
                may_remove |= !matches!(record, Record::Vote(..) | Record::Entry(..));
                if let Err(failure) = self.add(&mut batch, record).await {
                    *calls = mem::take(&mut batch.done);
                    calls.push(call);
                    calls.extend(waiting);
                    return Err(failure);
                }
            }
            batch.done.push(call);
        }
        if !batch.records.is_empty() {
            self.add_hints(&mut batch);
        }
        if let Err(failure) = self.flush(&mut batch).await {
            *calls = mem::take(&mut batch.done);
            return Err(failure);
        }
        if may_remove { self.remove_segments().await } else { Ok(()) }
    }

    /// Adds the pending hints after the entries that they refer to.
    fn add_hints(&mut self, batch: &mut Batch) {
        for (group, id) in mem::take(&mut self.hints) {
            self.put(batch, Record::Committed(group, id));
        }
    }

    async fn write_hints(&mut self) -> Result<(), Failure> {
        let mut batch = Batch::default();
        self.add_hints(&mut batch);
        batch.needs_sync = false;
        self.flush(&mut batch).await
    }

    /// Adds a record to the batch, in a new segment if it does not fit into the current one. Writes the batch first if
    /// it has no room for the record.
    async fn add(&mut self, batch: &mut Batch, record: Record) -> Result<(), Failure> {
        let used = self.current.end as usize + batch.bytes.len();
        let limit = self.options.segment_bytes_max.min(SEGMENT_BYTES_LIMIT) as usize;
        if used + record.byte_count() > limit && used > self.current.head_end as usize {
            self.flush(batch).await?;
            self.rotate().await?;
            self.remove_segments().await?;
        } else if batch.bytes.len() + record.byte_count() > WRITE_BYTES_MAX {
            self.flush(batch).await?;
        }
        let is_late = planted::on(Planted::AckBeforeSync) && matches!(record, Record::Entry(..));
        self.put(batch, record);
        batch.needs_sync |= !is_late;
        Ok(())
    }

    fn put(&self, batch: &mut Batch, record: Record) {
        let Current { name, end, synced, .. } = self.current;
        let start = batch.bytes.len();
        let offset = end + u32::try_from(start).expect("segments are bounded");
        record.put(&mut batch.bytes, name, offset, synced);
        let byte_count = u32::try_from(batch.bytes.len() - start).expect("records are bounded");
        batch.records.push((record, Location { segment: name.number, offset, byte_count }));
    }

    /// Writes the batch, syncs if needed, and completes its calls.
    async fn flush(&mut self, batch: &mut Batch) -> Result<(), Failure> {
        let bytes = mem::take(&mut batch.bytes).freeze();
        let byte_count = u32::try_from(bytes.len()).expect("segments are bounded");
        if byte_count > 0 {
            let syncs = batch.needs_sync && self.options.sync;
            let file = Arc::clone(&self.current.file);
            self.write_bytes(&file, self.current.end, bytes, syncs).await?;
            self.current.end += byte_count;
            if syncs && self.options.sync {
                self.current.synced = self.current.end;
            }
        }
        let done = mem::take(&mut batch.done);
        {
            let mut state = locked(&self.state);
            for (record, location) in batch.records.drain(..) {
                state.written.apply(&record, location);
            }
            if let Some(segment) = state.segments.get_mut(&self.current.name.number) {
                segment.byte_count = self.current.end;
            }
            if let Some(call) = done.last() {
                state.wrote(call.serial);
            }
        }
        batch.needs_sync = false;
        for call in done {
            call.done.complete(Ok(()));
        }
        Ok(())
    }

    /// Writes at an offset, retrying while the disk is full.
    async fn write_bytes(
        &mut self,
        file: &Arc<dyn File>,
        offset: u32,
        bytes: Bytes,
        syncs: bool,
    ) -> Result<(), Failure> {
        loop {
            let (offset, began) = (u64::from(offset), tokio::time::Instant::now());
            let result = if syncs {
                self.disk_wait.during(file.write_and_sync(offset, bytes.clone())).await
            } else {
                let written = self.disk_wait.during(file.write_at(offset, bytes.clone())).await;
                written.map_err(WriteError::Write)
            };
            match result {
                Ok(()) => {
                    crate::metrics::wal_written(bytes.len(), began.elapsed());
                    self.set_health(WalHealth::Good);
                    return Ok(());
                }
                Err(WriteError::Write(error))
                    if planted::on(Planted::FullDiskAcks) && is_full(&error) =>
                {
                    self.options.sync = false;
                    return Ok(());
                }
                Err(WriteError::Sync(_)) if planted::on(Planted::SyncErrorIgnored) => {
                    self.options.sync = false;
                    return Ok(());
                }
                Err(WriteError::Write(error)) => self.wait_if_full("write", error).await?,
                Err(WriteError::Sync(error)) => return Err(failed("sync", &error)),
            }
        }
    }

    /// Waits a moment if the disk is full; any other error fails the log.
    async fn wait_if_full(&mut self, what: &str, error: io::Error) -> Result<(), Failure> {
        if !is_full(&error) {
            return Err(failed(what, &error));
        }
        self.set_health(WalHealth::Full);
        tokio::select! {
            biased;
            _ = self.closing.wait_for(|closing| *closing) => Err(failed(what, &error)),
            () = tokio::time::sleep(FULL_RETRY) => Ok(()),
        }
    }

    fn set_health(&self, health: WalHealth) {
        let is_new = self.health.send_if_modified(|old| mem::replace(old, health) != health);
        if is_new {
            tracing::warn!(?health, "write-ahead log");
        }
    }

    async fn sync(&mut self) -> Result<(), Failure> {
        if self.current.synced < self.current.end {
            let synced = self.disk_wait.during(self.current.file.sync()).await;
            synced.map_err(|error| failed("sync", &error))?;
            self.current.synced = self.current.end;
        }
        Ok(())
    }

    /// Syncs the log's folder. Without a descriptor to open it with, nothing was synced and nothing is lost,
    /// so this waits for one; a sync that failed is not repeated.
    async fn sync_folder(&mut self) -> Result<(), Failure> {
        loop {
            let what = "sync of the folder";
            match self.disk_wait.during(self.disk.sync_folder(WAL_FOLDER)).await {
                Ok(()) => break,
                Err(error) if is_short_of_descriptors(&error) => {
                    self.wait_if_full(what, error).await?;
                }
                Err(error) => return Err(failed(what, &error)),
            }
        }
        // There may be nothing to write after this, and a full log refuses inserts.
        self.set_health(WalHealth::Good);
        Ok(())
    }

    /// Begins the next segment with the small state of all groups.
    ///
    /// The segment is used only after its head, its name and everything before it are durable.
    async fn rotate(&mut self) -> Result<(), Failure> {
        self.sync().await?;
        let nonce = self.current.name.nonce;
        let name = SegmentName { nonce, number: self.current.name.number + 1 };
        let records = locked(&self.state).written.head_records();
        let mut bytes = BytesMut::zeroed(SEGMENT_HEADER_BYTES);
        for record in &records {
            let offset = u32::try_from(bytes.len()).expect("a head is small");
            record.put(&mut bytes, name, offset, 0);
        }
        let head_byte_count = u32::try_from(bytes.len()).expect("a head is small");
        let header = SegmentHeader { name, head_byte_count }.encode();
        bytes[..SEGMENT_HEADER_BYTES].as_mut().put_slice(&header);

        let path = name.path();
        let file = loop {
            match self.disk_wait.during(self.disk.open(&path, true)).await {
                Ok(file) => break file,
                Err(error) => self.wait_if_full("new segment", error).await?,
            }
        };
        self.write_bytes(&file, 0, bytes.freeze(), true).await?;
        if !planted::on(Planted::NoFolderSync) {
            self.sync_folder().await?;
        }
        let segment = Segment { file: Arc::clone(&file), byte_count: head_byte_count };
        locked(&self.state).segments.insert(name.number, segment);
        let (end, synced, head_end) = (head_byte_count, head_byte_count, head_byte_count);
        self.current = Current { name, file, end, synced, head_end };
        Ok(())
    }

    /// Removes the oldest segments that no group needs any more.
    async fn remove_segments(&mut self) -> Result<(), Failure> {
        let newest = self.current.name.number;
        loop {
            let oldest = {
                let state = locked(&self.state);
                let needed = state.written.oldest_segment().unwrap_or(newest).min(newest);
                let oldest = state.segments.first_key_value().map(|(number, _)| *number);
                oldest.filter(|oldest| *oldest < needed)
            };
            let Some(oldest) = oldest else { return Ok(()) };
            // The records that make the segment unnecessary must be durable first.
            self.sync().await?;
            let path = segment_path(oldest);
            if let Err(error) = self.disk_wait.during(self.disk.remove(&path)).await {
                // The removal is retried at the next rotation.
                tracing::warn!(path, %error, "old segment not removed");
                return Ok(());
            }
            // One segment at a time, so that a power loss leaves no gap.
            self.sync_folder().await?;
            locked(&self.state).segments.remove(&oldest);
        }
    }

    /// Completes the log such that all of its bytes are known to be durable.
    async fn finish(&mut self) -> Result<(), Failure> {
        let mut batch = Batch::default();
        self.add_hints(&mut batch);
        self.flush(&mut batch).await?;
        self.sync().await?;
        self.put(&mut batch, Record::Mark);
        self.flush(&mut batch).await?;
        self.sync().await
    }

    /// Fails these calls and all later ones: nothing is acknowledged any more.
    async fn fail(mut self, calls: Vec<Call>, failure: Failure) {
        tracing::error!(error = failure.message, "write-ahead log");
        locked(&self.state).failure = Some(failure.clone());
        self.health.send_replace(WalHealth::Failed);
        let refuse = |call: Call| call.done.complete(Err(failure.error()));
        calls.into_iter().for_each(refuse);
        loop {
            tokio::select! {
                biased;
                call = self.calls.recv() => match call {
                    Some(call) => refuse(call),
                    None => return,
                },
                _ = self.closing.wait_for(|closing| *closing), if !self.calls.is_closed() => {
                    self.calls.close();
                }
            }
        }
    }
}

fn failed(what: &str, error: &io::Error) -> Failure {
    Failure { kind: error.kind(), message: format!("log: {what} failed: {error}") }
}
