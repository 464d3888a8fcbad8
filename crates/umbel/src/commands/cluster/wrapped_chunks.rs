//! Messages of a backup wrapped by a key, so that who finds the file learns neither keys nor filters.
//!
//! ```text
//! UMBLBAKW, 16 drawn bytes, then each message wrapped behind its length in four bytes
//! ```
//!
//! The drawn bytes and the number of the message go into each tag, so that none is taken for another.

use anyhow::{Result, anyhow};
use ring::rand::{SecureRandom, SystemRandom};
use std::sync::Arc;
use umbel_node::ports::{NotUnwrapped, WrappingKey};

/// Last byte of the magic of a wrapped file, in place of its version.
const MARK: u8 = b'W';

/// Drawn bytes that tell one file from another.
pub(super) const FILE_ID_BYTES: usize = 16;

/// The first bytes of a file of this kind that is wrapped.
pub(super) const fn wrapped_magic(mut magic: [u8; 8]) -> [u8; 8] {
    magic[7] = MARK;
    magic
}

/// Wraps or unwraps the messages of one file in their order.
pub(super) struct WrappedChunks {
    key: Arc<WrappingKey>,
    file_id: [u8; FILE_ID_BYTES],
    message_count: u64,
}

impl WrappedChunks {
    /// Of a new file.
    pub(super) fn draw(key: Arc<WrappingKey>) -> Result<Self> {
        Ok(Self::new(key, drawn()?))
    }

    /// Of a file that began so.
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

    /// The key's file, for messages.
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
