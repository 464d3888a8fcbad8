//! Errors of jobs: the cause, and descriptions of what was being done.

use std::error::Error;
use std::io;
use std::num::TryFromIntError;
use umbel_client::ClientError;
use umbel_dedup_engine::{ExchangeError, IndexError};
use umbel_files::UsageError;
use umbel_files::{NotBelow, OpenBelowError};
use umbel_filter::CellCountOutOfRange;
use umbel_objects::{ObjectError, StoreError};
pub use umbel_ports::chain_text;
use umbel_records::{ExtractorError, ParquetError, ReadError, ScoreError};

/// The result of most functions of this crate.
pub(crate) type Result<T, E = DedupError> = std::result::Result<T, E>;

/// Why an input cannot be used. Retrying fails as well.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// There are more bad records than may be skipped. Names the first.
    #[error("{0}")]
    Bad(String),
    /// The same, before the first one is determined from the facts of the chunks.
    #[error("too many bad records")]
    TooManyBad,
    /// Kept records would replace the only copy of what cannot be read. Names the file, the record and the cause.
    #[error(
        "{0}, and what is kept of the file would replace it; nothing was replaced: repair the file, leave it out, or \
         name another --output"
    )]
    RestLost(String),
    /// A second reading has found other bytes than the first.
    #[error("{0}: the file was changed while it was read; run the job again")]
    Changed(String),
}

/// Why a job ended without a result. Its text is the outermost description; [`chain_text`] has all of them.
#[derive(Debug, thiserror::Error)]
pub enum DedupError {
    /// The job is not possible as given, or there is nothing to do: change it.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// An input cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The system failed to read or write.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The reader of standard output, or of a named pipe, has closed it: not a failure, but the end of this
    /// output. What else the job writes does not depend on it.
    #[error("standard output or a pipe was closed by its reader")]
    ClosedPipe,
    /// The observer has cancelled the job.
    #[error("the job was cancelled")]
    Cancelled,
    /// An error of another crate, which callers do not distinguish.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
    /// Another error. The text tells what happened and what to do.
    #[error("{0}")]
    Failed(String),
    /// An error with a description of what was being done.
    #[error("{what}")]
    Context {
        /// What was being done.
        what: String,
        /// The cause.
        #[source]
        cause: Box<Self>,
    },
}

impl DedupError {
    /// Adds a description of what was being done.
    pub(crate) fn context(self, what: impl Into<String>) -> Self {
        Self::Context { what: what.into(), cause: Box::new(self) }
    }

    /// The error without all descriptions.
    pub fn innermost(&self) -> &Self {
        match self {
            Self::Context { cause, .. } => cause.innermost(),
            cause => cause,
        }
    }

    /// The system's error, if that is the cause.
    pub(crate) fn into_io(self) -> Result<io::Error, Self> {
        match self {
            Self::Io(error) => Ok(error),
            Self::Context { what, cause } => cause.into_io().map_err(|cause| cause.context(what)),
            other => Err(other),
        }
    }

    /// Whether retrying fails as well.
    pub fn is_final(&self) -> bool {
        matches!(self.innermost(), Self::Input(_) | Self::Usage(_))
    }

    /// Whether the cause is that the reader of standard output, or of a named pipe, has closed it.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self.innermost(), Self::ClosedPipe)
    }

    /// Whether the job is not possible as given.
    pub fn is_usage(&self) -> bool {
        matches!(self.innermost(), Self::Usage(_))
    }
}

/// Converts the errors of other crates.
macro_rules! from_errors {
    ($($error:ty),*) => {$(
        impl From<$error> for DedupError {
            fn from(error: $error) -> Self {
                Self::Other(error.into())
            }
        }
    )*};
}

from_errors!(
    CellCountOutOfRange,
    ClientError,
    ExchangeError,
    ExtractorError,
    IndexError,
    NotBelow,
    ObjectError,
    ParquetError,
    ReadError,
    ScoreError,
    StoreError,
    TryFromIntError,
    serde_json::Error
);

impl From<OpenBelowError> for DedupError {
    fn from(error: OpenBelowError) -> Self {
        match error {
            OpenBelowError::NotBelow(error) => error.into(),
            OpenBelowError::Io(error) => error.into(),
        }
    }
}

/// Adds descriptions of what was being done to errors.
pub(crate) trait Context<T>: Sized {
    /// Adds a description of what was being done.
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.with_context(|| what)
    }

    /// The same, with a description that is made if there is an error.
    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<DedupError>> Context<T> for Result<T, E> {
    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| error.into().context(what()))
    }
}

impl<T> Context<T> for Option<T> {
    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.ok_or_else(|| DedupError::Failed(what().into()))
    }
}

/// Makes an error with this text, with the arguments of `format!`.
macro_rules! failed {
    ($($text:tt)*) => { $crate::error::DedupError::Failed(format!($($text)*)) };
}

/// Returns an error with this text.
macro_rules! bail {
    ($($text:tt)*) => { return Err($crate::error::failed!($($text)*)) };
}

/// Returns a usage error with this text.
macro_rules! refuse {
    ($($text:tt)*) => {
        return Err($crate::error::DedupError::Usage(umbel_files::UsageError(format!($($text)*))))
    };
}

pub(crate) use {bail, failed, refuse};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_and_causes_are_kept() {
        let usage: Result<()> = Err(UsageError("no".into()).into());
        let error = usage.context("a file").context("a job").unwrap_err();
        assert_eq!(
            (error.to_string(), chain_text(&error)),
            ("a job".into(), "a job: a file: no".into())
        );
        assert!(error.is_usage());
        let system = Err::<(), _>(io::Error::other("full")).context("a file").unwrap_err();
        assert_eq!(chain_text(&system), "a file: full");
        assert!(!system.is_usage() && matches!(system.innermost(), DedupError::Io(_)));
    }
}
