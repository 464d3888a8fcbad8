//! Bodies of snapshots that contain secrets, wrapped piece by piece.

use std::io;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use umbel_engine::GroupId;
use umbel_ports::encoding::encode;
use umbel_ports::{File, WRAPPED_EXTRA_BYTES};

use crate::wrapping::Wrapping;

/// Bytes of a piece before wrapping; reading a single byte unwraps one whole piece.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes of a full piece on disk.
const WRAPPED_PIECE_BYTES: usize = PIECE_BYTES + WRAPPED_EXTRA_BYTES;

/// Why a wrapped body was not read.
pub(super) enum ReadError {
    /// The disk failed.
    Io(io::Error),
    /// The file ends before its body does.
    Cut,
    /// The piece was wrapped with another key, or is damaged.
    Wrapping(String),
}

/// Unwrapped length of a body that takes `byte_count` bytes on disk.
pub(super) fn unwrapped_byte_count(byte_count: u64) -> u64 {
    let pieces = byte_count.div_ceil(WRAPPED_PIECE_BYTES as u64);
    byte_count.saturating_sub(pieces * WRAPPED_EXTRA_BYTES as u64)
}

/// Wraps and unwraps the body of a snapshot.
#[derive(Clone)]
pub(super) struct WrappedBody {
    wrapping: Arc<Wrapping>,
    group: GroupId,
    /// Bytes that do not fill a piece yet, and the number of pieces written.
    pending: BytesMut,
    piece_count: u64,
}

impl WrappedBody {
    pub(super) fn new(wrapping: Arc<Wrapping>, group: GroupId) -> Self {
        Self { wrapping, group, pending: BytesMut::new(), piece_count: 0 }
    }

    fn context(&self, piece: u64) -> Bytes {
        encode(&("snapshot", self.group.number(), piece))
    }

    /// Adds bytes to the body, and appends the pieces that are full to `out`.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut BytesMut) {
        self.pending.put_slice(bytes);
        while self.pending.len() >= PIECE_BYTES {
            let piece = self.pending.split_to(PIECE_BYTES);
            self.put(&piece, out);
        }
    }

    /// Appends the last piece to `out`, if bytes are left.
    pub(super) fn finish(&mut self, out: &mut BytesMut) {
        if !self.pending.is_empty() {
            let piece = self.pending.split();
            self.put(&piece, out);
        }
    }

    fn put(&mut self, piece: &[u8], out: &mut BytesMut) {
        out.put_slice(&self.wrapping.wrap(&self.context(self.piece_count), piece));
        self.piece_count += 1;
    }

    /// Reads bytes of a body, given its file and its start in the file.
    pub(super) async fn read(
        &self,
        (file, body_start): (&dyn File, u64),
        offset: u64,
        byte_count: usize,
    ) -> Result<Bytes, ReadError> {
        let mut bytes = BytesMut::with_capacity(byte_count);
        let mut piece = offset / PIECE_BYTES as u64;
        let mut skipped = usize::try_from(offset % PIECE_BYTES as u64).unwrap_or(usize::MAX);
        while bytes.len() < byte_count {
            let at = body_start + piece * WRAPPED_PIECE_BYTES as u64;
            // The length and checksum after the last piece are not part of it.
            let left = skipped + byte_count - bytes.len();
            let unwrapped = self.read_piece(file, at, piece).await?;
            let end = unwrapped.len().min(left);
            if skipped >= end {
                return Err(ReadError::Cut);
            }
            bytes.put_slice(&unwrapped[skipped..end]);
            (piece, skipped) = (piece + 1, 0);
        }
        Ok(bytes.freeze())
    }

    async fn read_piece(&self, file: &dyn File, at: u64, piece: u64) -> Result<Bytes, ReadError> {
        let file_end = file.len().await.map_err(ReadError::Io)?;
        let body_end = file_end.saturating_sub(super::TRAILER_BYTES);
        let left = usize::try_from(body_end.saturating_sub(at)).unwrap_or(usize::MAX);
        let wrapped =
            file.read_at(at, left.min(WRAPPED_PIECE_BYTES)).await.map_err(ReadError::Io)?;
        self.wrapping.unwrap(&self.context(piece), &wrapped).map_err(ReadError::Wrapping)
    }
}
