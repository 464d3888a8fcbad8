//! Receives snapshots from other replicas: turns their calls into a file.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use umbel_engine::NodeId;
use umbel_ports::encoding::{decode, encode};
use umbel_storage::types::{SnapshotMeta, Vote};
use umbel_storage::{SnapshotFile, SnapshotStore, SnapshotWriter};

use super::terms::check_indices;
use crate::peer::{CallRefusal, RefusalReason};

/// Bytes of a snapshot in one call: few enough to let other calls pass in between.
pub(crate) const SNAPSHOT_CHUNK_BYTES: usize = 1 << 20;

/// Most concurrent incoming snapshots of one group: the leader's, and a new leader's while the old
/// leader does not know of it yet.
pub(crate) const SNAPSHOT_TRANSFERS_MAX: usize = 3;

/// A transfer that was idle for this long is dropped at the next call, or when the node looks after its groups.
pub(crate) const SNAPSHOT_IDLE: Duration = Duration::from_secs(60);

/// Bytes of a chunk's head: version, transfer, offset.
const CHUNK_HEAD_BYTES: usize = 17;

/// Body of [`CallKind::SnapshotBegin`](crate::peer::CallKind::SnapshotBegin).
#[derive(PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct SnapshotBegin {
    /// Identifies the transfer among those of the sender and the group.
    pub(super) transfer: u64,
    /// The leader's vote.
    pub(super) vote: Vote,
    /// The last entry and the members that the snapshot covers.
    pub(super) meta: SnapshotMeta,
    /// How many bytes follow.
    pub(super) byte_count: u64,
}

/// Body of [`CallKind::SnapshotEnd`](crate::peer::CallKind::SnapshotEnd).
#[derive(PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct SnapshotEnd {
    pub(super) transfer: u64,
}

/// What is before the bytes of a chunk.
#[derive(PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct ChunkHead {
    pub(super) transfer: u64,
    pub(super) offset: u64,
}

/// Body of [`CallKind::SnapshotChunk`](crate::peer::CallKind::SnapshotChunk): the head, then the
/// bytes as they are.
pub(super) fn chunk_body(transfer: u64, offset: u64, bytes: &[u8]) -> Bytes {
    let head = encode(&ChunkHead { transfer, offset });
    let mut body = BytesMut::with_capacity(head.len() + bytes.len());
    body.put(head);
    body.put_slice(bytes);
    body.freeze()
}

/// Receives the snapshots that are sent to one replica.
///
/// A transfer ends when one of its calls fails or is dropped: its next call is refused, and the sender
/// starts again.
pub(crate) struct SnapshotReceiver {
    store: SnapshotStore,
    slots: Arc<Semaphore>,
    /// By sender and transfer number. A transfer is taken out while a call works on it.
    transfers: Mutex<BTreeMap<(NodeId, u64), Transfer>>,
}

struct Transfer {
    vote: Vote,
    writer: SnapshotWriter,
    byte_count: u64,
    next_offset: u64,
    used_at: Instant,
    _slot: OwnedSemaphorePermit,
}

impl SnapshotReceiver {
    /// A receiver that writes into the store.
    pub(crate) fn new(store: SnapshotStore) -> Self {
        let slots = Arc::new(Semaphore::new(SNAPSHOT_TRANSFERS_MAX));
        Self { store, slots, transfers: Mutex::default() }
    }

    /// Begins a transfer. An earlier transfer of the same sender ends, because a sender sends one at a
    /// time; and so do those of earlier leaders, whose snapshots would be refused once this one is known.
    ///
    /// # Errors
    /// A refusal if the body or the storage is at fault, or `Overloaded` if too many transfers run.
    pub(crate) async fn begin(&self, from: NodeId, body: Bytes) -> Result<Bytes, CallRefusal> {
        let begin: SnapshotBegin = decode(&body).map_err(CallRefusal::bad_body)?;
        check_indices(begin.meta.last_log_id).map_err(CallRefusal::bad_body)?;
        let leader = begin.vote.leader_id;
        self.retain(|&(sender, _), state| sender != from && state.vote.leader_id >= leader);
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| {
            let text = format!("{SNAPSHOT_TRANSFERS_MAX} snapshots of this group come in already");
            CallRefusal::new(RefusalReason::Overloaded, text)
        })?;
        let SnapshotBegin { transfer, vote, meta, byte_count } = begin;
        let writer = self.store.writer_of(meta, byte_count).await.map_err(refused_by_storage)?;
        let used_at = Instant::now();
        let state = Transfer { vote, writer, byte_count, next_offset: 0, used_at, _slot: slot };
        self.lock().insert((from, transfer), state);
        Ok(Bytes::new())
    }

    /// Writes the next chunk of a transfer.
    ///
    /// # Errors
    /// A refusal if the transfer is unknown, the chunk is not the next one or is too long, or the
    /// storage failed. The transfer has ended then.
    pub(crate) async fn chunk(&self, from: NodeId, body: Bytes) -> Result<Bytes, CallRefusal> {
        let Some((head, bytes)) = body.split_at_checked(CHUNK_HEAD_BYTES) else {
            return Err(CallRefusal::bad_body(format!("a chunk of {} bytes", body.len())));
        };
        let ChunkHead { transfer, offset } = decode(head).map_err(CallRefusal::bad_body)?;
        let bytes = body.slice_ref(bytes);
        let mut state = self.take(from, transfer)?;
        let (next, byte_count) = (state.next_offset, state.byte_count);
        let chunk_bytes = bytes.len() as u64;
        if offset != next || chunk_bytes == 0 || chunk_bytes > byte_count - next {
            return Err(CallRefusal::bad_body(format!(
                "{chunk_bytes} bytes at {offset} of a snapshot of {byte_count} bytes that goes on \
                 at {next}"
            )));
        }
        state.writer.write(bytes).await.map_err(refused_by_storage)?;
        state.next_offset += chunk_bytes;
        state.used_at = Instant::now();
        self.lock().insert((from, transfer), state);
        Ok(Bytes::new())
    }

    /// Ends a transfer. Returns the sender's vote and the complete snapshot for
    /// `Raft::install_full_snapshot`, whose result is the response to the sender.
    ///
    /// # Errors
    /// A refusal if the transfer is unknown, bytes are missing, or the storage failed.
    pub(crate) async fn end(
        &self,
        from: NodeId,
        body: Bytes,
    ) -> Result<(Vote, SnapshotFile), CallRefusal> {
        let SnapshotEnd { transfer } = decode(&body).map_err(CallRefusal::bad_body)?;
        let state = self.take(from, transfer)?;
        if state.next_offset != state.byte_count {
            return Err(CallRefusal::bad_body(format!(
                "the snapshot ends at byte {} of {}",
                state.next_offset, state.byte_count
            )));
        }
        let file = state.writer.finish_aside().await.map_err(refused_by_storage)?;
        Ok((state.vote, file))
    }

    /// Drops the transfers that nobody continues: each of them keeps a file open.
    pub(crate) fn drop_idle(&self) {
        self.retain(|_, _| true);
    }

    /// Removes a transfer from the map, so that an error or a dropped call ends it.
    fn take(&self, from: NodeId, transfer: u64) -> Result<Transfer, CallRefusal> {
        let taken = self.lock().remove(&(from, transfer));
        self.drop_idle();
        taken.ok_or_else(|| {
            CallRefusal::bad_body(format!("snapshot transfer {transfer} of {from} is not known"))
        })
    }

    /// Drops transfers that are idle or that `keep` rejects.
    fn retain(&self, keep: impl Fn(&(NodeId, u64), &Transfer) -> bool) {
        let dropped: Vec<_> = {
            let mut transfers = self.lock();
            transfers
                .extract_if(.., |key, state| {
                    state.used_at.elapsed() > SNAPSHOT_IDLE || !keep(key, state)
                })
                .collect()
        };
        // Outside the lock: dropping a writer may clean up files.
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(NodeId, u64), Transfer>> {
        self.transfers.lock().expect("nothing panics while it holds the transfers")
    }
}

fn refused_by_storage(error: impl std::fmt::Display) -> CallRefusal {
    CallRefusal::new(
        RefusalReason::Unavailable,
        format!("the snapshot could not be stored: {error}"),
    )
}
