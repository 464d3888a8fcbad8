//! The records that the body of a snapshot consists of.

use std::io;

use bytes::Bytes;
use umbel_ports::encoding::ENCODED_BYTES_MAX;
use umbel_storage::SnapshotFile;

/// The length-prefixed records of a snapshot's body.
pub(super) struct Records<'a> {
    file: &'a SnapshotFile,
    offset: u64,
}

impl<'a> Records<'a> {
    /// The records of this file, from the first one on.
    pub(super) const fn of(file: &'a SnapshotFile) -> Self {
        Self { file, offset: 0 }
    }

    /// The next record; none at the end of the body.
    pub(super) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if self.offset == self.file.byte_count() {
            return Ok(None);
        }
        let prefix = self.take(4).await?;
        let prefix: [u8; 4] = prefix[..].try_into().map_err(|_| invalid("a cut length"))?;
        let byte_count = u32::from_le_bytes(prefix) as usize;
        if byte_count > ENCODED_BYTES_MAX + 1024 {
            return Err(invalid(format!("a record of {byte_count} bytes")));
        }
        self.take(byte_count).await.map(Some)
    }

    async fn take(&mut self, byte_count: usize) -> io::Result<Bytes> {
        let bytes = self.file.read(self.offset, byte_count).await?;
        if bytes.len() != byte_count {
            return Err(invalid("a snapshot that ends within a record"));
        }
        self.offset += byte_count as u64;
        Ok(bytes)
    }
}

/// The error for bytes of a snapshot that this node cannot read, and for what contradicts its state.
pub(super) fn invalid(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}
