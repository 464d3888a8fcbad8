//! A copy as a snapshot file; restores it from the snapshot and the node's log.
//!
//! ```text
//! length u32, head; where there are slices of time: length u32, the clock's number and the newest;
//! for each frame length u32, frame (umbel-codec); 0 u32
//! ```

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use umbel_codec::{FilterAssembler, FrameKey, FrameView, frames};
use umbel_engine::Generation;
use umbel_engine::limits::REPLICATED_BYTES_MAX;
use umbel_engine::meta::FilterSettings;
use umbel_filter::{AnyFilter, HashRange, SliceRing};
use umbel_ports::encoding::{decode, encode};
use umbel_replicated_engine::hypercube::{Coverage, Replica, ReplicaOptions, SampleTable};
use umbel_step::planted::{self, Planted};
use umbel_storage::types::{CopyEntry, LogCommand, own_snapshot_meta};
use umbel_storage::{LogStore, SnapshotFile, SnapshotStore, SnapshotWriter};

use super::copy::{Copy, CopyState};
use crate::limits::EXPORT_FRAME_PAYLOAD_BYTES_MAX;

/// Most bytes of a frame with its header, or of the head; a longer one was not written by a node.
const PIECE_BYTES_MAX: u32 = 64 << 20;

/// Most memory of a copy that is read. A single-shot copy grows with its items, on each node up to
/// [`REPLICATED_BYTES_MAX`]; what others inserted before they were that large is merged on top.
const COPY_BYTES_MAX: u64 = 2 * REPLICATED_BYTES_MAX;

/// Bytes of a snapshot that are read with one call.
const READ_BYTES: usize = 1 << 20;

/// The head before the frames.
#[derive(Serialize, Deserialize)]
struct Head {
    generation: Generation,
    coverage: Coverage,
    new_count: u64,
    is_in_sync: bool,
    /// Encoded samples of the items inserted at each node.
    samples: Vec<u8>,
}

/// What a snapshot of a copy contains.
struct CopyImage {
    head: Head,
    slices: Option<(u64, u64)>,
    filter: AnyFilter,
    key: FrameKey,
}

/// Writes a copy to a snapshot, and purges the log that the snapshot covers.
///
/// # Errors
/// If the disk or the log fails.
pub(super) async fn save(copy: &Copy, log: &LogStore, snapshots: &SnapshotStore) -> io::Result<()> {
    let _turn = copy.saving.lock().await;
    let (merge_count, generation) = (AtomicU64::new(0), AtomicU64::new(0));
    let copied = || {
        let mut state = copy.write();
        let coverage = state.replica.save();
        let head = Head {
            generation: state.generation(),
            coverage,
            new_count: state.new_count,
            is_in_sync: state.is_in_sync,
            samples: copy.samples().to_bytes(),
        };
        let (slices, filter) = (state.replica.slices(), state.replica.filter().clone());
        merge_count.store(state.merge_count, Ordering::Relaxed);
        generation.store(state.generation().0, Ordering::Relaxed);
        let meta = own_snapshot_meta(copy.node, state.applied_index);
        (meta, CopyImage { head, slices, filter, key: copy.settings.frame_key() })
    };
    let file = snapshots.build(copied, |to, image| Box::pin(write(to, image))).await?;
    let applied_index = file.last_index();
    let (merge_count, generation) = (merge_count.into_inner(), generation.into_inner());
    {
        let mut state = copy.write();
        // The copy may have been cleared meanwhile; then nothing is left to be saved.
        state.saved_merge_count = state.saved_merge_count.max(merge_count);
        state.saved_generation = Generation(generation);
    }
    if applied_index > 0 {
        log.purge_own(copy.node, applied_index).await?;
    }
    Ok(())
}

async fn write(writer: &mut SnapshotWriter, image: CopyImage) -> io::Result<()> {
    writer.write(piece(&encode(&image.head))).await?;
    if let Some(slices) = image.slices {
        writer.write(piece(&encode(&slices))).await?;
    }
    for frame in frames(&image.filter, image.key, EXPORT_FRAME_PAYLOAD_BYTES_MAX) {
        let frame = frame.map_err(|error| io::Error::other(error.to_string()))?;
        writer.write(piece(&frame)).await?;
    }
    writer.write(Bytes::from_static(&[0; 4])).await
}

fn piece(bytes: &[u8]) -> Bytes {
    let length = u32::try_from(bytes.len()).expect("frames are bounded");
    [&length.to_le_bytes()[..], bytes].concat().into()
}

/// Why a copy was not read.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(super) struct LoadError {
    what: String,
    /// True if the data on disk is not a valid copy; false if it could not be read.
    pub(super) is_damage: bool,
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        let is_damage = error.kind() == io::ErrorKind::InvalidData;
        Self { what: error.to_string(), is_damage }
    }
}

impl From<String> for LoadError {
    fn from(what: String) -> Self {
        Self { what, is_damage: true }
    }
}

/// Restores a copy: the newest snapshot, if there is one, then the log.
pub(super) async fn load(
    mut options: ReplicaOptions,
    settings: &FilterSettings,
    is_in_sync: bool,
    log: &LogStore,
    snapshots: &SnapshotStore,
) -> Result<(CopyState, SampleTable), LoadError> {
    let newest = snapshots.latest().await?;
    let (mut state, mut samples) = match newest {
        Some(file) => {
            let index = file.last_index();
            let (head, ring, filter) = read(&file, settings).await?;
            options.generation = head.generation;
            let replica = Replica::restore(options, filter, head.coverage);
            let replica = replica.map_err(|error| error.to_string())?.with_ring(ring);
            let samples = SampleTable::from_bytes(&head.samples);
            let samples = samples.map_err(|error| error.to_string())?;
            let mut state = CopyState::new(replica, index, head.is_in_sync);
            state.new_count = head.new_count;
            (state, samples)
        }
        None => {
            let empty = settings.shape.create_copy().map_err(|error| error.to_string())?;
            let replica = Replica::new(options, empty).map_err(|error| error.to_string())?;
            let ring = settings.shape.ring().map_err(|error| error.to_string())?;
            let replica = replica.with_ring(ring);
            (CopyState::new(replica, 0, is_in_sync), SampleTable::new(options.node))
        }
    };
    // The log alone does not tell: where nothing follows what was purged, it reads as an empty one.
    if state.applied_index + 1 < log.first_index() {
        return Err(snapshots.missing(log.first_index()).into());
    }
    replay(&mut state, &mut samples, settings, log).await?;
    Ok((state, samples))
}

/// Repeats the inserts that the log has after the snapshot.
async fn replay(
    state: &mut CopyState,
    samples: &mut SampleTable,
    settings: &FilterSettings,
    log: &LogStore,
) -> Result<(), LoadError> {
    loop {
        let entries = log.read_own(state.applied_index + 1).await?;
        if entries.is_empty() {
            return Ok(());
        }
        for (index, command) in entries {
            let expected = state.applied_index + 1;
            if index != expected {
                return Err(format!("entry {index} of the log, expected {expected}").into());
            }
            state.applied_index = expected;
            let (CopyEntry { generation, hashes }, slice) = match command {
                LogCommand::Copy(entry) => (entry, None),
                LogCommand::CopySlice { slice, entry } => (entry, Some(slice)),
                LogCommand::Meta(_) | LogCommand::Shard(_) => {
                    return Err(format!("entry {expected} of the log holds no inserts").into());
                }
            };
            if slice.is_some() != state.replica.ring().is_some() {
                return Err(format!("entry {expected} of the log is of slice {slice:?}").into());
            }
            if generation > state.generation() {
                // The copy was cleared, and no snapshot was written since.
                let empty = settings.shape.create_copy().map_err(|error| error.to_string())?;
                let log_number = state.replica.options().log;
                let cleared = state.replica.clear(generation, log_number, empty);
                cleared.map_err(|error| error.to_string())?;
                state.new_count = 0;
                samples.clear();
            }
            if generation == state.generation() && !planted::on(Planted::CopyLogIgnored) {
                hashes.check().map_err(|error| format!("entry {expected}: {error}"))?;
                let hashes = hashes.to_vec();
                samples.insert(&hashes);
                state.new_count += match slice {
                    Some(slice) => state.replica.insert_in_slice_again(slice, &hashes),
                    None => {
                        let inserted = state.replica.insert_again(&hashes);
                        inserted.map_err(|error| error.to_string())?
                    }
                };
            }
        }
    }
}

/// Reads the pieces of a snapshot in sequence.
struct Pieces<'f> {
    file: &'f SnapshotFile,
    offset: u64,
    ahead: Vec<u8>,
}

impl Pieces<'_> {
    async fn take(&mut self, byte_count: usize) -> Result<Vec<u8>, LoadError> {
        while self.ahead.len() < byte_count {
            let bytes = self.file.read(self.offset, READ_BYTES).await?;
            if bytes.is_empty() {
                return Err("the snapshot ends in the middle of a copy".to_owned().into());
            }
            self.offset += bytes.len() as u64;
            self.ahead.extend_from_slice(&bytes);
        }
        let rest = self.ahead.split_off(byte_count);
        Ok(std::mem::replace(&mut self.ahead, rest))
    }

    async fn next(&mut self) -> Result<Vec<u8>, LoadError> {
        let length = self.take(4).await?;
        let length = length.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if length > PIECE_BYTES_MAX {
            return Err(
                format!("a piece of {length} bytes, expected at most {PIECE_BYTES_MAX}").into()
            );
        }
        self.take(length as usize).await
    }
}

/// Assembles a copy from its frames.
///
/// # Errors
/// If the settings are not those of a copy, or there is not enough memory.
pub fn assembler(settings: &FilterSettings) -> Result<FilterAssembler, String> {
    let shape = settings.shape.shape(HashRange::WHOLE).map_err(|error| error.to_string())?;
    let assembler = FilterAssembler::new(shape, settings.frame_key(), COPY_BYTES_MAX);
    assembler.map_err(|error| error.to_string())
}

/// Reads the head, the time slices if any, and the bits of a snapshot.
async fn read(
    file: &SnapshotFile,
    settings: &FilterSettings,
) -> Result<(Head, Option<SliceRing>, AnyFilter), LoadError> {
    let mut pieces = Pieces { file, offset: 0, ahead: Vec::new() };
    let head: Head = decode(&pieces.next().await?).map_err(|error| error.to_string())?;
    let mut ring = settings.shape.ring().map_err(|error| error.to_string())?;
    if let Some(ring) = &mut ring {
        let slices = decode::<(u64, u64)>(&pieces.next().await?);
        let (own, newest) = slices.map_err(|error| error.to_string())?;
        *ring = ring.at(own, newest);
    }
    let mut assembler = assembler(settings)?;
    loop {
        let frame = pieces.next().await?;
        if frame.is_empty() {
            break;
        }
        let view = FrameView::parse(&frame).map_err(|error| error.to_string())?.0;
        assembler.push(&view).map_err(|error| error.to_string())?;
    }
    let filter = assembler.finish().map_err(|error| error.to_string())?;
    Ok((head, ring, filter))
}
