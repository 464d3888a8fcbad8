//! A token with which a node joins, and its use.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

/// The node that used a token: the same node may retry if the response was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct TokenUse {
    pub(super) node: NodeId,
    pub(super) nonce: u64,
    pub(super) key: [u8; 32],
}

/// A token, stored under the hash of its secret. The secret itself is not stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct JoinToken {
    pub(super) expires_ms: u64,
    pub(super) used: Option<TokenUse>,
}

/// A node that asks to join with a token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Applicant {
    /// The address that it listens on.
    pub address: String,
    /// Drawn once by the node.
    pub nonce: u64,
    /// BLAKE3 hash of the token's secret.
    pub digest: [u8; 32],
    /// BLAKE3 hash of the public key for which it requests a certificate.
    pub key: [u8; 32],
    /// Clock of the node that received the request, in milliseconds since 1970.
    pub now_ms: u64,
}
