//! How a command ends, as the shell sees it.

use std::process::ExitCode;
use umbel_dedup::DedupError;
use umbel_reconcile::ReconcileError;

pub(crate) use umbel_files::UsageError;

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Everything requested was done.
    Done = 0,
    /// It failed; no incomplete output looks complete.
    Failed = 1,
    /// Nothing to do, or wrong usage.
    Usage = 2,
    /// Done, but bad records were skipped.
    BadSkipped = 3,
}

impl Exit {
    /// The exit code of an error: 2 if the command was used wrongly, else 1.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        let is_usage = error.is::<UsageError>()
            || error.downcast_ref().is_some_and(ReconcileError::is_usage)
            || error.downcast_ref().is_some_and(DedupError::is_usage);
        if is_usage { Self::Usage } else { Self::Failed }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}
