//! Why a session fails on one side.

use std::fmt;
use std::time::Duration;

use umbel_reconcile_engine::{ResumeError, SessionError};

/// How long a side waits without reading or writing anything before it gives up.
pub(super) const IDLE: Duration = Duration::from_secs(2);

/// Why a session failed on one side.
#[derive(Debug)]
pub(super) enum Failure {
    /// The session reported an error.
    Session(SessionError),
    /// Nothing was read or written for too long.
    Silent,
    /// The connection broke.
    Broken,
    /// This side dropped the connection.
    Reset,
    /// The connection could not be established.
    Unreachable,
    /// The transport of a resumable session got invalid frames.
    Resume(ResumeError),
    /// The session cannot be resumed: what one side sends again differs from what the other one has
    /// received.
    Stale,
}

impl Failure {
    /// Whether the connection failed, and not the session.
    pub(super) const fn is_cut(&self) -> bool {
        matches!(
            self,
            Self::Silent
                | Self::Broken
                | Self::Reset
                | Self::Unreachable
                | Self::Session(SessionError::Disconnected { .. })
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(error) => write!(f, "{error}"),
            Self::Resume(error) => write!(f, "{error}"),
            other => write!(f, "{other:?}"),
        }
    }
}
