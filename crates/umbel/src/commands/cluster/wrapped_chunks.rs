//! Backups encrypted with a wrapping key: without the key, the file reveals neither hash keys nor
//! filters.
//!
//! ```text
//! UMBLBAKW, 16 drawn bytes, then each message wrapped behind its length in four bytes
//! ```
//!
//! The random file id and the message's number are authenticated with each message, so that messages
//! cannot be swapped within a file or between files.

use anyhow::{Result, anyhow};
use ring::rand::{SecureRandom, SystemRandom};
use std::sync::Arc;
use umbel_ports::{NotUnwrapped, WrappingKey};

/// Last byte of the magic of a wrapped file, in place of its version digit.
const MARK: u8 = b'W';

/// Length of the random id of a file.
pub(super) const FILE_ID_BYTES: usize = 16;

/// The magic of a wrapped file of the kind with this magic.
pub(super) const fn wrapped_magic(mut magic: [u8; 8]) -> [u8; 8] {
    magic[7] = MARK;
    magic
}

/// Wraps or unwraps the messages of one file, in their order.
pub(super) struct WrappedChunks {
    key: Arc<WrappingKey>,
    file_id: [u8; FILE_ID_BYTES],
    message_count: u64,
}

impl WrappedChunks {
    /// For a new file, with a random id.
    pub(super) fn draw(key: Arc<WrappingKey>) -> Result<Self> {
        Ok(Self::new(key, drawn()?))
    }

    /// For an existing file, whose id was read from it.
    pub(super) const fn new(key: Arc<WrappingKey>, file_id: [u8; FILE_ID_BYTES]) -> Self {
        Self { key, file_id, message_count: 0 }
    }

    pub(super) const fn file_id(&self) -> [u8; FILE_ID_BYTES] {
        self.file_id
    }

    fn next_context(&mut self) -> Vec<u8> {
        let context = [&self.file_id[..], &self.message_count.to_le_bytes()].concat();
        self.message_count += 1;
        context
    }

    /// Wraps the next message.
    pub(super) fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>> {
        let context = self.next_context();
        Ok(self.key.wrap(drawn()?, &context, message))
    }

    /// Unwraps the next message.
    pub(super) fn unwrap(&mut self, wrapped: &[u8]) -> Result<Vec<u8>, NotUnwrapped> {
        let context = self.next_context();
        self.key.unwrap(&context, wrapped)
    }

    /// The path of the key file, for error messages.
    pub(super) fn key_path(&self) -> &str {
        self.key.path()
    }
}

fn drawn<const COUNT: usize>() -> Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| anyhow!("the system gives no entropy"))?;
    Ok(bytes)
}
