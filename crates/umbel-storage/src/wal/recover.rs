//! Opens the log: reads the segments, and decides which damage prevents a start.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, watch};
use umbel_ports::{Disk, File, WriteError};
use umbel_step::planted::{self, Planted};

use super::disk_wait::DiskWait;
use super::format::{
    Record, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentName, proof_of_damage, segment_number,
    segment_path,
};
use super::members::MemberEntries;
use super::segment_reader::SegmentReader;
use super::state::{Location, Segment, State, Written, WrittenGroups};
use super::writer::{Current, Writer};
use super::{
    LogOwner, QUEUE_CALLS_MAX, QUEUE_KIB_MAX, SEGMENT_FILE_BYTES_MAX, WAL_FOLDER, WAL_VERSION, Wal,
    WalHealth, WalOptions,
};
use crate::REJOIN;
use crate::wrapping::{Wrapping, entry_in};

/// Why the storage was not opened. Nothing was changed, except that leftovers of an interrupted start
/// or write may have been removed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Stop the other process, or configure another folder.
    #[error("another process uses this data folder")]
    Locked,
    /// Check the disk.
    #[error("{path}: {source}")]
    Io {
        /// The path that was read or written.
        path: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The data folder lost data that the node had promised to keep; the other replicas have it.
    #[error("{path}: record at offset {offset} is damaged: {REJOIN}")]
    Damaged {
        /// The segment.
        path: String,
        /// Offset in the segment, in bytes.
        offset: u32,
    },
    /// Proceed as after [`Damaged`](Self::Damaged).
    #[error("{path} is missing: {REJOIN}")]
    MissingSegment {
        /// The segment.
        path: String,
    },
    /// Proceed as after [`Damaged`](Self::Damaged).
    #[error("{group} has no entries from {from} to {to}: {REJOIN}")]
    MissingEntries {
        /// The group.
        group: umbel_engine::GroupId,
        /// The first missing entry.
        from: u64,
        /// The last missing entry.
        to: u64,
    },
    /// Restore the folder `wal` that belongs to the identity file; if it is lost, proceed as after
    /// [`Damaged`](Self::Damaged).
    #[error("the log of a node that has joined a cluster is missing: {REJOIN}")]
    MissingLog,
    /// Proceed as after [`MissingLog`](Self::MissingLog), but restore the file `identity`.
    #[error("there is a log but no identity file: {REJOIN}")]
    MissingIdentity,
    /// The data folder was assembled from two: restore the parts that belong together.
    #[error("identity and log belong to different nodes: identity {expected:016x}, log {got:016x}")]
    ForeignLog {
        /// The identity's nonce.
        expected: u64,
        /// The log's.
        got: u64,
    },
    /// Configure the file with the key that the data folder was wrapped with.
    #[error(
        "the data folder is wrapped: key_file must name the file with the key that it was wrapped by"
    )]
    KeyMissing,
    /// Configure another key file. If the key is lost, remove the node, as after
    /// [`Damaged`](Self::Damaged).
    #[error(
        "key_file {path}: not the key that the data folder was wrapped by; name the file with that key, or, if it is \
         lost, {REJOIN}"
    )]
    WrongKey {
        /// The configured file.
        path: String,
    },
    /// Start a release that supports the version.
    #[error("{path}: format version {got}, known is {WAL_VERSION}")]
    UnknownVersion {
        /// The file.
        path: String,
        /// Its version.
        got: u32,
    },
}

impl OpenError {
    /// Whether the data folder is damaged, as opposed to a wrong setting or a failed operation.
    pub const fn is_damage(&self) -> bool {
        !matches!(self, Self::Locked | Self::Io { .. } | Self::KeyMissing | Self::WrongKey { .. })
    }

    /// Whether a setting is wrong: the log will not be opened before it is corrected.
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::KeyMissing | Self::WrongKey { .. })
    }

    pub(crate) fn io(path: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// Result of opening the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The log's nonce; the identity file must have the same.
    pub nonce: u64,
    /// Segments that were read.
    pub(crate) segment_count: usize,
    /// Records that were read.
    pub(crate) record_count: u64,
    /// Bytes cut off after the last complete record: a write that was never acknowledged.
    pub cut_byte_count: u64,
}

struct Recovery {
    disk: Arc<dyn Disk>,
    wrapping: Option<Arc<Wrapping>>,
    nonce: u64,
    /// Bytes that are read at once.
    piece_bytes: usize,
    groups: WrittenGroups,
    members: MemberEntries,
    segments: BTreeMap<u32, Segment>,
    synced: u32,
    recovered: Recovered,
}

/// Opens the log, whose entries with secrets are wrapped. `guard` is dropped when the writer has stopped.
pub(crate) async fn open(
    disk: Arc<dyn Disk>,
    options: WalOptions,
    wrapping: Option<Arc<Wrapping>>,
    guard: Box<dyn Send + Sync>,
) -> Result<(Wal, Recovered), OpenError> {
    let make = disk.make_folder(WAL_FOLDER).await;
    make.map_err(OpenError::io(WAL_FOLDER))?;
    disk.sync_folder("").await.map_err(OpenError::io("data folder"))?;
    // A process that died before it synced the folder may have left a segment whose name is not durable. From here on
    // this one writes into it, and syncs only the file.
    disk.sync_folder(WAL_FOLDER).await.map_err(OpenError::io(WAL_FOLDER))?;
    let mut recovery = Recovery::start(disk, &options, wrapping).await?;
    recovery.read_segments(options.owner).await?;
    recovery.check_entries()?;
    if planted::on(Planted::DropUncommitted) {
        recovery.drop_uncommitted();
    }
    if recovery.segments.is_empty() {
        if let LogOwner::Known { joined: true, .. } = options.owner {
            return Err(OpenError::MissingLog);
        }
        recovery.create().await?;
    }
    if let LogOwner::New { .. } = options.owner
        && recovery.groups.iter().next().is_some()
    {
        return Err(OpenError::MissingIdentity);
    }
    let recovered = recovery.recovered;
    Ok((recovery.run(options, guard), recovered))
}

impl Recovery {
    async fn start(
        disk: Arc<dyn Disk>,
        options: &WalOptions,
        wrapping: Option<Arc<Wrapping>>,
    ) -> Result<Self, OpenError> {
        let (LogOwner::New { nonce } | LogOwner::Known { nonce, .. }) = options.owner;
        let piece_bytes = options.read_bytes_max as usize;
        let recovered = Recovered { nonce, segment_count: 0, record_count: 0, cut_byte_count: 0 };
        let (groups, members) = (WrittenGroups::default(), MemberEntries::default());
        let segments = BTreeMap::new();
        let synced = 0;
        Ok(Self {
            disk,
            wrapping,
            nonce,
            piece_bytes,
            groups,
            members,
            segments,
            synced,
            recovered,
        })
    }

    async fn read_segments(&mut self, owner: LogOwner) -> Result<(), OpenError> {
        let names = self.disk.list(WAL_FOLDER).await.map_err(OpenError::io(WAL_FOLDER))?;
        let mut numbers: Vec<_> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.sort_unstable();
        if let Some(gap) = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
            return Err(OpenError::MissingSegment { path: segment_path(gap[0] + 1) });
        }
        let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) else { return Ok(()) };
        for number in numbers {
            self.read_segment(number, number == first, number == last, owner).await?;
        }
        Ok(())
    }

    async fn read_segment(
        &mut self,
        number: u32,
        is_first: bool,
        is_last: bool,
        owner: LogOwner,
    ) -> Result<(), OpenError> {
        let path = segment_path(number);
        let file = self.disk.open(&path, false).await.map_err(OpenError::io(&*path))?;
        let length = file.len().await.map_err(OpenError::io(&*path))?;
        let is_possible = length <= u64::from(SEGMENT_FILE_BYTES_MAX);
        let Some(byte_count) = u32::try_from(length).ok().filter(|_| is_possible) else {
            return Err(OpenError::Damaged { path, offset: SEGMENT_FILE_BYTES_MAX });
        };
        // The newest segment is read once: its tail is written again below, and after a failed sync a second read may
        // return other bytes than those that were replayed.
        let piece_bytes = if is_last { byte_count as usize } else { self.piece_bytes };
        let mut reader = SegmentReader::new(Arc::clone(&file), byte_count, piece_bytes);
        let head = reader.bytes(0..first_offset()).await.map_err(OpenError::io(&*path))?;
        let header = match SegmentHeader::decode(&head) {
            Err(got) => return Err(OpenError::UnknownVersion { path, got }),
            Ok(header) => header.filter(|header| header.name.number == number),
        };
        drop(head);
        if let Some(header) = header {
            self.check_owner(header.name.nonce, is_first, owner)?;
        }
        let name = SegmentName { nonce: self.nonce, number };
        // A segment's head is made durable before the segment is used. So if the head is incomplete,
        // the segment was never in use, unless older segments have been removed since.
        let head_end = header.map_or(u32::MAX, |header| header.head_byte_count);
        let (end, proven) =
            if header.is_some() { self.replay(&mut reader, name).await? } else { (0, 0) };
        if end < byte_count || end < head_end {
            let is_lost = end < head_end && is_first && number > 1;
            if !is_last || is_lost || is_damaged(&mut reader, end, name).await? {
                return Err(OpenError::Damaged { path, offset: end });
            }
            self.recovered.cut_byte_count = u64::from(byte_count - end);
            if end < head_end {
                return self.remove(&path).await;
            }
            file.set_len(u64::from(end)).await.map_err(OpenError::io(&*path))?;
        }
        if is_last {
            // From here on the node relies on bytes that a previous process may have left in the page
            // cache only. A sync is not enough: after a failed sync, the system may consider the pages
            // written (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC
            // 2020). So everything that no later record proves to be durable is written again.
            let tail = reader.bytes(proven..end).await.map_err(OpenError::io(&*path))?;
            let rewritten = file.write_and_sync(u64::from(proven), tail).await;
            rewritten.map_err(|error| match error {
                WriteError::Write(source) | WriteError::Sync(source) => {
                    OpenError::Io { path: path.clone(), source }
                }
            })?;
        }
        self.recovered.segment_count += 1;
        self.segments.insert(number, Segment { file, byte_count: end });
        self.synced = end;
        Ok(())
    }

    /// Removes a segment that was never in use; the previous segment becomes the last one.
    async fn remove(&mut self, path: &str) -> Result<(), OpenError> {
        self.disk.remove(path).await.map_err(OpenError::io(path))?;
        self.disk.sync_folder(WAL_FOLDER).await.map_err(OpenError::io(WAL_FOLDER))?;
        self.synced = self.segments.last_key_value().map_or(0, |(_, segment)| segment.byte_count);
        Ok(())
    }

    fn check_owner(&mut self, got: u64, is_first: bool, owner: LogOwner) -> Result<(), OpenError> {
        if matches!(owner, LogOwner::New { .. }) && is_first {
            self.nonce = got;
            self.recovered.nonce = got;
        }
        if got == self.nonce {
            Ok(())
        } else {
            Err(OpenError::ForeignLog { expected: self.nonce, got })
        }
    }

    /// Applies the segment's records up to the first incomplete one. Returns the offset of that one,
    /// and the offset up to which the last complete record proves that the segment was synced.
    async fn replay(
        &mut self,
        reader: &mut SegmentReader,
        name: SegmentName,
    ) -> Result<(u32, u32), OpenError> {
        let failed = |error| OpenError::io(name.path())(error);
        let (mut offset, mut proven) = (first_offset(), 0);
        while let Some(found) = reader.record(offset, name).await.map_err(failed)? {
            let Some(record) = Record::decode(&found.body) else {
                // The checksum is correct, but this release would not have written the record.
                return Err(OpenError::Damaged { path: name.path(), offset });
            };
            let byte_count = found.end - offset;
            let location = Location { segment: name.number, offset, byte_count };
            self.groups.apply(&record, location);
            self.note_members(record);
            self.recovered.record_count += 1;
            (offset, proven) = (found.end, found.synced);
        }
        Ok((offset, proven))
    }

    /// Notes the members that an entry names. Whoever reads one that cannot be unwrapped is told.
    fn note_members(&mut self, record: Record) {
        if let Record::Entry(group, id, bytes) = record
            && let Ok(entry) = entry_in(self.wrapping.as_deref(), (group, id), bytes)
        {
            self.members.note_encoded(group, &entry);
        }
    }

    /// Checks that entries follow the purged ones; the first entry of all may have index 1.
    fn check_entries(&self) -> Result<(), OpenError> {
        for (group, written) in self.groups.iter() {
            let chain = &written.chain;
            let from = chain.purged().map_or(0, |id| id.index.saturating_add(1));
            if !chain.is_empty() && chain.first() > from.max(1) {
                return Err(OpenError::MissingEntries { group, from, to: chain.first() - 1 });
            }
        }
        Ok(())
    }

    /// A planted bug: treats entries as lost if this node has not learned that they are committed.
    fn drop_uncommitted(&mut self) {
        let is_behind = |written: &Written| written.committed < written.chain.last();
        let groups = self.groups.iter().filter(|(_, written)| is_behind(written));
        let records: Vec<Record> =
            groups.map(|(group, written)| Record::Truncate(group, written.committed)).collect();
        let nowhere = Location { segment: 0, offset: 0, byte_count: 0 };
        records.iter().for_each(|record| self.groups.apply(record, nowhere));
    }

    /// Creates the first segment of a new log.
    async fn create(&mut self) -> Result<(), OpenError> {
        let name = SegmentName { nonce: self.nonce, number: 1 };
        let path = name.path();
        let head_byte_count = first_offset();
        let header = SegmentHeader { name, head_byte_count }.encode();
        let create = async || {
            let file = self.disk.open(&path, true).await?;
            file.write_at(0, Bytes::copy_from_slice(&header)).await?;
            file.sync().await?;
            self.disk.sync_folder(WAL_FOLDER).await?;
            Ok(file)
        };
        let file: Arc<dyn File> = create().await.map_err(OpenError::io(&*path))?;
        self.segments.insert(1, Segment { file, byte_count: head_byte_count });
        self.synced = head_byte_count;
        Ok(())
    }

    fn run(self, options: WalOptions, guard: Box<dyn Send + Sync>) -> Wal {
        let read_bytes_max = options.read_bytes_max;
        let (&number, newest) = self.segments.last_key_value().expect("there is one at least");
        let current = Current {
            name: SegmentName { nonce: self.nonce, number },
            file: Arc::clone(&newest.file),
            end: newest.byte_count,
            synced: self.synced,
            // 0, so that the next record that does not fit begins a new segment.
            head_end: 0,
        };
        let mut state = State::new(self.groups, self.segments, options.cache_bytes_max);
        state.members = self.members;
        let state = Arc::new(Mutex::new(state));
        let (queue, calls) = mpsc::channel(QUEUE_CALLS_MAX);
        let (closing, close_asked) = watch::channel(false);
        let health = Arc::new(watch::Sender::new(WalHealth::Good));
        let disk_wait = DiskWait::default();
        let writer = Writer {
            disk: self.disk,
            options,
            state: Arc::clone(&state),
            calls,
            closing: close_asked,
            health: Arc::clone(&health),
            disk_wait: disk_wait.clone(),
            current,
            hints: BTreeMap::new(),
            _guard: guard,
        };
        let writer = tokio::spawn(writer.run());
        Wal {
            nonce: self.nonce,
            read_bytes_max,
            wrapping: self.wrapping,
            state,
            queue,
            room: Arc::new(Semaphore::new(QUEUE_KIB_MAX as usize)),
            closing,
            health,
            disk_wait,
            writer: tokio::sync::Mutex::new(Some(writer)),
        }
    }
}

/// Offset of the first record of a segment.
fn first_offset() -> u32 {
    u32::try_from(SEGMENT_HEADER_BYTES).expect("a small number")
}

/// Whether the bytes after the last complete record of the newest segment were durable, so that they are not a torn
/// write.
async fn is_damaged(
    reader: &mut SegmentReader,
    end: u32,
    name: SegmentName,
) -> Result<bool, OpenError> {
    if planted::on(Planted::CutMidLog) {
        return Ok(false);
    }
    let whole = reader.whole().await.map_err(OpenError::io(name.path()))?;
    Ok(proof_of_damage(&whole, end, name).is_some())
}
