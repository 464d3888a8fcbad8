//! The node's identity: the file `identity` of its data folder.
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
use umbel_ports::Disk;
use umbel_ports::encoding::{decode, encode};

use super::REJOIN;
use super::wal::LogOwner;

const PATH: &str = "identity";
const PART_PATH: &str = "identity.part";
const MAGIC: &[u8; 8] = b"UMBELIDN";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;

/// Most bytes of the file, far more than the longest address needs; a longer file was not written by a
/// node.
const FILE_BYTES_MAX: usize = 64 << 10;

/// How far the node has become a member of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MemberState {
    /// The node belongs to no cluster; it has nothing but the nonce.
    New,
    /// The node is one of the founders of a cluster that has not formed yet.
    Forming,
    /// The node is a member, or was one.
    Member,
}

/// The node's identity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// Random number of the data folder; the log has the same.
    pub nonce: u64,
    /// The cluster's id, once known.
    pub cluster: Option<u128>,
    /// The node's number in the cluster, once assigned.
    pub node: Option<NodeId>,
    /// The node's address for other nodes, as `host:port`; empty until known.
    pub address: String,
    /// The state of its membership.
    pub state: MemberState,
}

impl Identity {
    /// The identity of a node that has not joined a cluster yet.
    pub fn new(nonce: u64) -> Self {
        let (cluster, node, address) = (None, None, String::new());
        Self { nonce, cluster, node, address, state: MemberState::New }
    }

    /// The owner that the log must have.
    pub fn log_owner(&self) -> LogOwner {
        LogOwner::Known { nonce: self.nonce, joined: self.state != MemberState::New }
    }
}

/// Why the identity was not loaded or saved. After a failed save the old identity is still in place.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// Check the disk.
    #[error("identity: {0}")]
    Io(#[from] io::Error),
    /// The file is damaged, so the node's promises are lost: remove the node from the cluster and let
    /// it join again with an empty data folder.
    #[error("identity: file is damaged: {REJOIN}")]
    Damaged,
    /// Start a release that supports the version.
    #[error("identity: format version {got}, known is {VERSION}")]
    UnknownVersion {
        /// The file's version.
        got: u32,
    },
}

/// Reads the identity; None if the folder has none.
///
/// # Errors
/// If the disk fails, or the file is damaged or of an unknown version.
pub async fn load(disk: &dyn Disk) -> Result<Option<Identity>, IdentityError> {
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

/// Replaces the identity, durably.
///
/// # Errors
/// If the disk fails, or the address is too long; the old identity is still in place then.
pub async fn save(disk: &dyn Disk, identity: &Identity) -> Result<(), IdentityError> {
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
    use super::super::testing::FaultDisk;
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
