//! Who the node is: the file `identity` of its data folder.
//!
//! ```text
//! UMBELIDN, version u32, length u32, fields encoded, CRC u32 of everything before
//! ```

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use umbel_codec::crc32c;
use umbel_engine::NodeId;

use super::REJOIN;
use super::wal::LogOwner;
use crate::ports::Disk;
use crate::raft::encoding::{decode, encode};

const PATH: &str = "identity";
const PART_PATH: &str = "identity.part";
const MAGIC: &[u8; 8] = b"UMBELIDN";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;

/// Most bytes of the file, far above what the longest address needs: a larger one is none of ours.
const FILE_BYTES_MAX: usize = 64 << 10;

/// How far the node is a member of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum MemberState {
    /// It belongs to no cluster; the nonce is all that it has.
    New,
    /// It is one of the nodes that form a cluster together, which has not happened yet.
    Forming,
    /// It is a member, or was one.
    Member,
}

/// Who the node is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Random, of the data folder: the log has the same.
    pub(crate) nonce: u64,
    /// The cluster, once it is known.
    pub(crate) cluster: Option<u128>,
    /// The node's number in it, once it has one.
    pub(crate) node: Option<NodeId>,
    /// Where other nodes reach it, as `host:port`; empty until it is known.
    pub(crate) address: String,
    /// How far it is a member.
    pub(crate) state: MemberState,
}

impl Identity {
    /// A node that has not joined a cluster yet.
    pub(crate) fn new(nonce: u64) -> Self {
        let (cluster, node, address) = (None, None, String::new());
        Self { nonce, cluster, node, address, state: MemberState::New }
    }

    /// Which log belongs to the identity.
    pub(crate) fn log_owner(&self) -> LogOwner {
        LogOwner::Known { nonce: self.nonce, joined: self.state != MemberState::New }
    }
}

/// Why the identity was not loaded or saved. A failed save leaves the old one in place.
#[derive(Debug, Error)]
pub(crate) enum IdentityError {
    /// Look at the disk.
    #[error("identity: {0}")]
    Io(#[from] io::Error),
    /// The file lost what it had promised to keep: remove the node from the cluster and let it join
    /// again with an empty data folder.
    #[error("identity: file is damaged: {REJOIN}")]
    Damaged,
    /// Start a release that knows the version.
    #[error("identity: format version {got}, known is {VERSION}")]
    UnknownVersion {
        /// The file's.
        got: u32,
    },
}

/// The identity, None if the folder has none.
pub(crate) async fn load(disk: &dyn Disk) -> Result<Option<Identity>, IdentityError> {
    let file = match disk.open(PATH, false).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let bytes = file.read_at(0, FILE_BYTES_MAX).await?;
    parse(&bytes).map(Some)
}

fn parse(bytes: &[u8]) -> Result<Identity, IdentityError> {
    let number = |at: usize| {
        let number = bytes.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*number))
    };
    let body_bytes = || {
        if bytes.get(..8)? != MAGIC {
            return None;
        }
        let length = usize::try_from(number(12)?).ok()?;
        let end = HEADER_BYTES.checked_add(length)?;
        let is_whole = bytes.len() == end.checked_add(4)?;
        (is_whole && number(end)? == crc32c(&[&bytes[..end]])).then(|| &bytes[HEADER_BYTES..end])
    };
    if let (Some(MAGIC), Some(got)) = (bytes.first_chunk(), number(8))
        && got != VERSION
    {
        return Err(IdentityError::UnknownVersion { got });
    }
    let body = body_bytes().ok_or(IdentityError::Damaged)?;
    decode(body).map_err(|_| IdentityError::Damaged)
}

/// Puts the identity in place of the old one, durably.
pub(crate) async fn save(disk: &dyn Disk, identity: &Identity) -> Result<(), IdentityError> {
    let body = encode(identity);
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() < FILE_BYTES_MAX / 2);
    let length = length.ok_or_else(|| io::Error::other("the address is too long"))?;
    let mut bytes = BytesMut::new();
    bytes.put_slice(MAGIC);
    bytes.put_u32_le(VERSION);
    bytes.put_u32_le(length);
    bytes.put_slice(&body);
    let crc = crc32c(&[&bytes]);
    bytes.put_u32_le(crc);
    let bytes: Bytes = bytes.freeze();

    let file = disk.open(PART_PATH, true).await?;
    file.write_at(0, bytes).await?;
    file.sync().await?;
    disk.rename(PART_PATH, PATH).await?;
    disk.sync_folder("").await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fault_disk::FaultDisk;
    use super::*;

    #[tokio::test]
    async fn saved_identities_survive_a_power_loss() {
        let disk = FaultDisk::new();
        assert!(load(&disk).await.unwrap().is_none());
        let mut identity = Identity::new(7);
        save(&disk, &identity).await.unwrap();
        identity.cluster = Some(u128::MAX);
        identity.node = Some(NodeId(3));
        identity.address = "a:1".to_owned();
        identity.state = MemberState::Member;
        save(&disk, &identity).await.unwrap();
        let disk = disk.crash(|_| 0);
        assert_eq!(load(&disk).await.unwrap(), Some(identity));
    }

    #[tokio::test]
    async fn damage_and_other_versions_are_refused() {
        let disk = FaultDisk::new();
        save(&disk, &Identity::new(7)).await.unwrap();
        for byte in 0..disk.len(PATH) {
            disk.flip(PATH, byte, 1);
            let error = load(&disk).await.unwrap_err();
            let is_version = (8..12).contains(&byte);
            assert_eq!(matches!(error, IdentityError::UnknownVersion { .. }), is_version);
            disk.flip(PATH, byte, 1);
        }
        load(&disk).await.unwrap().unwrap();
    }
}
