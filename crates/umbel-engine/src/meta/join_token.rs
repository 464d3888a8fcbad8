//! A token by which a node joins, and who uses it.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// Who has used a token: the same node may ask again, if its answer was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct TokenUse {
    pub(super) node: NodeId,
    pub(super) nonce: u64,
    pub(super) key: [u8; 32],
}

/// A token, whose secret's hash it is known by. The secret itself is nowhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct JoinToken {
    pub(super) expires_ms: u64,
    pub(super) used: Option<TokenUse>,
}

/// A node that wants to join by a token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Applicant {
    /// Where it listens.
    pub address: String,
    /// Drawn once by the node.
    pub nonce: u64,
    /// BLAKE3 of the token's secret.
    pub digest: [u8; 32],
    /// BLAKE3 of the public key for which it asks a certificate.
    pub key: [u8; 32],
    /// Milliseconds since 1970, by the clock of the node that was asked.
    pub now_ms: u64,
}
