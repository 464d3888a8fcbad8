//! Why a running node stopped by itself.

use thiserror::Error;

/// Why a running node stopped by itself. Whatever it acknowledged is on the other replicas.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum NodeFailure {
    /// The cluster has removed the node: start it with an empty data folder to join again, or no more.
    #[error("{0}")]
    Removed(String),
    /// Its storage, a group or its server failed: do what the message says, and start it again.
    #[error("{0}")]
    Failed(String),
}

impl NodeFailure {
    /// Whether the node will not start again with its settings, the data folder among them: as
    /// [`StartError::is_usage`](crate::StartError::is_usage) would then say.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Removed(_))
    }
}

impl From<String> for NodeFailure {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}
