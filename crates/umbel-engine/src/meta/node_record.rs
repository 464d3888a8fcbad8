//! What the cluster knows about a node.

use serde::{Deserialize, Serialize};
use umbel_step::planted::{self, Planted};

/// What the cluster knows about a node.
///
/// ```
/// use umbel_engine::meta::NodeRecord;
///
/// let node = NodeRecord::Live { address: "a:1".into(), nonce: Some(4), is_draining: true };
/// assert_eq!(node.address(), Some("a:1"));
/// assert!(node.is_live() && !node.is_available());
/// assert_eq!(NodeRecord::Removed.address(), None);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeRecord {
    /// A member of the cluster, whether or not it is reachable.
    Live {
        /// The address that it listens on, as `host:port`.
        address: String,
        /// The nonce that it drew when it joined; None for nodes that formed the cluster.
        nonce: Option<u64>,
        /// Whether it must give up all replicas and gets no new ones.
        is_draining: bool,
    },
    /// It was removed permanently; its number is never reused.
    Removed,
}

impl NodeRecord {
    /// The address that the node listens on, if it is a member.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        match self {
            Self::Live { address, .. } => Some(address),
            Self::Removed => None,
        }
    }

    /// The nonce that it drew when it joined; None if it is not a member or formed the cluster.
    #[must_use]
    pub const fn nonce(&self) -> Option<u64> {
        match self {
            Self::Live { nonce, .. } => *nonce,
            Self::Removed => None,
        }
    }

    /// Whether it is a member.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }

    /// Whether it may have replicas: it is a member and is not draining.
    #[must_use]
    pub fn is_available(&self) -> bool {
        match self {
            Self::Live { is_draining, .. } => {
                !is_draining || planted::on(Planted::DrainedNodeGetsReplicas)
            }
            Self::Removed => false,
        }
    }
}
