//! Encrypts the meta group's secrets on disk with the key that the node was configured with
//! ("wrapping").
//!
//! Entries and snapshots of the meta group contain the keys of the filters' hashes, the key of session
//! numbers, and the hashes of tokens. If the node has a key, the payload of each entry and each piece
//! of a snapshot is wrapped when written and unwrapped when read. Other groups contain only hashes and
//! are not wrapped. Each node has its own key; data sent to other nodes is not wrapped with it.
//!
//! The file `wrapping` of the data folder marks a wrapped folder, and reveals a wrong key at the start:
//!
//! ```text
//! UMBELKEY, the text CHECKED wrapped
//! ```

use std::io;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use umbel_engine::GroupId;
use umbel_ports::encoding::encode;
use umbel_ports::{Disk, Purpose, Seed, WrappingKey};

use super::wal::OpenError;
use crate::types::LogId;

const PATH: &str = "wrapping";
const PART_PATH: &str = "wrapping.part";
const MAGIC: &[u8; 8] = b"UMBELKEY";
const CHECKED: &[u8] = b"wrapped by this key";

/// Most bytes of the file that are read; more than it has.
const FILE_BYTES_MAX: usize = 256;

/// First byte of a wrapped entry; no encoding uses it as its version.
const ENTRY_MARK: u8 = 0xE1;

/// Message for a wrapped piece without a key.
pub(super) const NO_KEY: &str = "is wrapped: key_file must name the file with its key";

/// A key, and the seed that its nonces are drawn from.
pub struct Wrapping {
    key: Arc<WrappingKey>,
    seed: Arc<dyn Seed>,
}

impl Wrapping {
    /// Wraps with `key`, and draws nonces from `seed`.
    pub fn new(key: Arc<WrappingKey>, seed: Arc<dyn Seed>) -> Self {
        Self { key, seed }
    }

    pub(super) fn wrap(&self, context: &[u8], bytes: &[u8]) -> Bytes {
        let mut nonce = [0; 12];
        self.seed.fill(Purpose::Wrapping, &mut nonce);
        self.key.wrap(nonce, context, bytes).into()
    }

    /// # Errors
    /// If the data was wrapped with another key or for another place; the message names the key file.
    pub(super) fn unwrap(&self, context: &[u8], wrapped: &[u8]) -> Result<Bytes, String> {
        let path = self.key.path();
        let unwrapped = self.key.unwrap(context, wrapped);
        unwrapped.map(Bytes::from).map_err(|error| format!("{error} (key_file {path})"))
    }
}

fn context_of_entry(group: GroupId, id: LogId) -> Bytes {
    encode(&("entry", group.number(), id))
}

/// Prepares an entry's bytes for the disk.
pub(super) fn entry_out(
    wrapping: Option<&Wrapping>,
    (group, id): (GroupId, LogId),
    bytes: Bytes,
) -> Bytes {
    let Some(wrapping) = wrapping.filter(|_| group == GroupId::META) else { return bytes };
    let wrapped = wrapping.wrap(&context_of_entry(group, id), &bytes);
    let mut marked = BytesMut::with_capacity(1 + wrapped.len());
    marked.put_u8(ENTRY_MARK);
    marked.put_slice(&wrapped);
    marked.freeze()
}

/// Restores an entry's bytes as read from the disk. Entries from before the node had a key are not
/// wrapped.
///
/// # Errors
/// If the bytes are wrapped and there is no key, or another one.
pub(super) fn entry_in(
    wrapping: Option<&Wrapping>,
    (group, id): (GroupId, LogId),
    bytes: Bytes,
) -> Result<Bytes, String> {
    match bytes.split_first() {
        Some((&ENTRY_MARK, wrapped)) => {
            let wrapping = wrapping.ok_or_else(|| NO_KEY.to_owned())?;
            wrapping.unwrap(&context_of_entry(group, id), wrapped)
        }
        _ => Ok(bytes),
    }
}

/// Checks that the key is the one that wrapped the data folder; if there was none yet, records it.
pub(super) async fn check(disk: &dyn Disk, wrapping: Option<&Wrapping>) -> Result<(), OpenError> {
    let failed = || OpenError::io(PATH);
    let found = match disk.open(PATH, false).await {
        Ok(file) => Some(file.read_at(0, FILE_BYTES_MAX).await.map_err(failed())?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed()(error)),
    };
    match (found, wrapping) {
        (None, None) => Ok(()),
        (Some(_), None) => Err(OpenError::KeyMissing),
        (Some(bytes), Some(wrapping)) => {
            let checked = bytes.strip_prefix(MAGIC).map(|rest| wrapping.unwrap(MAGIC, rest));
            match checked {
                Some(Ok(text)) if text == CHECKED => Ok(()),
                _ => Err(OpenError::WrongKey { path: wrapping.key.path().to_owned() }),
            }
        }
        (None, Some(wrapping)) => {
            let mut bytes = BytesMut::from(&MAGIC[..]);
            bytes.put_slice(&wrapping.wrap(MAGIC, CHECKED));
            let write = async {
                let file = disk.open(PART_PATH, true).await?;
                file.write_at(0, bytes.freeze()).await?;
                file.sync().await?;
                disk.rename(PART_PATH, PATH).await?;
                disk.sync_folder("").await
            };
            write.await.map_err(failed())
        }
    }
}
