//! Why a job ends without a result: the cause, and what was being done.

use std::error::Error;
use std::io;
use std::num::TryFromIntError;
use umbel_client::ClientError;
use umbel_dedup_engine::{ExchangeError, IndexError};
use umbel_files::UsageError;
use umbel_files::{NotBelow, OpenBelowError};
use umbel_filter::CellCountOutOfRange;
use umbel_objects::{ObjectError, StoreError};
use umbel_records::{ExtractorError, ParquetError, ReadError, ScoreError};

/// The result of most functions of this crate.
pub(crate) type Result<T, E = DedupError> = std::result::Result<T, E>;

/// Why an input cannot be used; trying again does not help.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Records are bad and may not be left out. Names the first.
    #[error("{0}")]
    Bad(String),
    /// The same; which is the first, the facts of the chunks tell.
    #[error("too many bad records")]
    TooManyBad,
    /// A second reading saw other bytes than the first.
    #[error("{0}: the file was changed while it was read; run the job again")]
    Changed(String),
}

/// Why a job ended without a result. Its text is the outermost description; [`chain_text`] has all of them.
#[derive(Debug, thiserror::Error)]
pub enum DedupError {
    /// The job makes no sense as given, or there is nothing to do: change it.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// An input cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The system failed to read or write.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The reader of standard output has gone: no failure, but nothing more to do.
    #[error("standard output was closed")]
    ClosedPipe,
    /// Whoever looks on has ended it.
    #[error("the job was cancelled")]
    Cancelled,
    /// An error of another crate, which nobody acts on.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
    /// Something else, which the text names, with what to do.
    #[error("{0}")]
    Failed(String),
    /// What was being done, and why that failed.
    #[error("{what}")]
    Context {
        /// What was being done.
        what: String,
        /// Why it failed.
        #[source]
        cause: Box<Self>,
    },
}

impl DedupError {
    /// Says what was being done.
    pub(crate) fn context(self, what: impl Into<String>) -> Self {
        Self::Context { what: what.into(), cause: Box::new(self) }
    }

    /// The error below all descriptions.
    pub fn innermost(&self) -> &Self {
        match self {
            Self::Context { cause, .. } => cause.innermost(),
            cause => cause,
        }
    }

    /// What the system said, if nothing else is the cause.
    pub(crate) fn into_io(self) -> Result<io::Error, Self> {
        match self {
            Self::Io(error) => Ok(error),
            Self::Context { what, cause } => cause.into_io().map_err(|cause| cause.context(what)),
            other => Err(other),
        }
    }

    /// Whether another try fails as well.
    pub fn is_final(&self) -> bool {
        matches!(self.innermost(), Self::Input(_) | Self::Usage(_))
    }

    /// Whether it says no more than that the reader of standard output has gone.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self.innermost(), Self::ClosedPipe)
    }

    /// Whether the job makes no sense as given.
    pub fn is_usage(&self) -> bool {
        matches!(self.innermost(), Self::Usage(_))
    }
}

/// An error and its causes, from the outermost on, separated by colons.
pub fn chain_text(error: &(dyn Error + 'static)) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// Takes over the errors of other crates.
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

/// Adds to an error what was being done.
pub(crate) trait Context<T> {
    /// Says what was being done.
    fn context(self, what: impl Into<String>) -> Result<T>;

    /// The same, put together only if it failed.
    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<DedupError>> Context<T> for Result<T, E> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|error| error.into().context(what))
    }

    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| error.into().context(what()))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.ok_or_else(|| DedupError::Failed(what.into()))
    }

    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.ok_or_else(|| DedupError::Failed(what().into()))
    }
}

/// An error of this text, as for `format!`.
macro_rules! failed {
    ($($text:tt)*) => { $crate::error::DedupError::Failed(format!($($text)*)) };
}

/// Returns an error of this text.
macro_rules! bail {
    ($($text:tt)*) => { return Err($crate::error::failed!($($text)*)) };
}

/// Returns an error of this text: the job makes no sense as given.
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
