//! Why a set cannot be read, compared or changed: the cause, with context.

use std::error::Error;
use std::{fmt, io};
use umbel_files::UsageError;
use umbel_reconcile_engine::{ResumeError, SessionError, SketchError, SketchFormatError};
use umbel_records::{ExtractorError, ReadError, RecordItemError};
use umbel_tls::SecretRefusal;

/// The result of most functions of this crate.
pub(crate) type Result<T, E = ReconcileError> = std::result::Result<T, E>;

/// Why a set could not be read, compared or changed.
///
/// `{}` shows the outermost description, `{:#}` all of them down to the cause, separated by colons. The
/// text includes what had already been changed.
#[derive(Debug)]
pub enum ReconcileError {
    /// The call is invalid as given: the caller must change it.
    Usage(UsageError),
    /// The session failed. [`SessionError`] says whether another try can succeed.
    Session(SessionError),
    /// The peer violated the protocol of resumable sessions.
    Resume(ResumeError),
    /// A sketch cannot answer the question.
    Sketch(SketchError),
    /// A sketch file is damaged, or is not a sketch.
    SketchFormat(SketchFormatError),
    /// A file of records cannot be read.
    Read(ReadError),
    /// A record is not an item.
    Item(RecordItemError),
    /// Items cannot be extracted in the requested way.
    Extractor(ExtractorError),
    /// An I/O operation failed.
    Io(io::Error),
    /// The other end did not prove that it knows the secret.
    Secret(SecretRefusal),
    /// The other side could not apply the change. This is its reason, bounded and without control characters:
    /// what it says is to be corrected there.
    Refused(String),
    /// Another error; the text names it, and what to do.
    Failed(String),
    /// The other side ended the connection before it said anything, as one does that asks for a secret. It is
    /// shown as the error that this was noticed by.
    Unanswered(Box<Self>),
    /// This side refuses, and has written that to the other side, which shows it. It is shown as the error itself.
    Told(Box<Self>),
    /// The operation that failed, and the cause.
    Context {
        /// The operation that failed.
        what: String,
        /// The cause.
        cause: Box<Self>,
    },
}

impl ReconcileError {
    /// Adds the operation that failed.
    pub(crate) fn context(self, what: impl Into<String>) -> Self {
        Self::Context { what: what.into(), cause: Box::new(self) }
    }

    /// Adds the other side's name, unless the error has it.
    pub(crate) fn of_peer(self, peer: &str) -> Self {
        if format!("{self:#}").contains(peer) { self } else { self.context(peer) }
    }

    /// The error of another crate that this one wraps; itself if there is none.
    fn original(&self) -> &(dyn Error + 'static) {
        match self {
            Self::Usage(error) => error,
            Self::Session(error) => error,
            Self::Resume(error) => error,
            Self::Sketch(error) => error,
            Self::SketchFormat(error) => error,
            Self::Read(error) => error,
            Self::Item(error) => error,
            Self::Extractor(error) => error,
            Self::Io(error) => error,
            Self::Secret(error) => error,
            Self::Unanswered(error) | Self::Told(error) => error.original(),
            Self::Refused(_) | Self::Failed(_) | Self::Context { .. } => self,
        }
    }

    /// The error and its causes, outermost first.
    fn chain(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        let mut next: Option<&(dyn Error + 'static)> = Some(self);
        std::iter::from_fn(move || {
            let error = next?;
            let original = error.downcast_ref::<Self>().map_or(error, Self::original);
            // An error of this crate that went through a reader or writer of the standard library is inside of an
            // I/O error, which names the cause of the former as its own.
            let inner = original.downcast_ref().and_then(io::Error::get_ref);
            next = match inner.and_then(|inner| inner.downcast_ref::<Self>()) {
                Some(inner) => Some(inner),
                None => error.source(),
            };
            Some(original)
        })
    }

    /// Whether the call was invalid as given.
    pub fn is_usage(&self) -> bool {
        self.chain().any(<dyn Error>::is::<UsageError>)
    }

    /// Whether the error only says that the other side has gone.
    pub fn is_peer_gone(&self) -> bool {
        let is_aborted = |cause: &(dyn Error + 'static)| {
            matches!(cause.downcast_ref(), Some(SessionError::Aborted { .. }))
        };
        self.is_cut_off() || self.chain().any(is_aborted)
    }

    /// Whether the connection ended, and the other side has not said why.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.chain().any(|cause| {
            matches!(cause.downcast_ref(), Some(SessionError::Disconnected { .. }))
                || cause.downcast_ref().is_some_and(is_broken)
        })
    }

    /// Whether the other side has said why it could not apply the change.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Refused(_) => true,
            Self::Context { cause, .. } => cause.is_refusal(),
            _ => false,
        }
    }

    /// Whether the other side ended the connection before it said anything.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unanswered(_))
    }

    /// Whether the other side was told what this side refuses, and shows it.
    pub fn is_told(&self) -> bool {
        matches!(self, Self::Told(_))
    }

    /// Whether it is that of a session which is refused.
    pub(crate) fn is_refused_session(&self) -> bool {
        let is_refused = |cause: &(dyn Error + 'static)| {
            matches!(cause.downcast_ref(), Some(SessionError::Refused(_)))
        };
        self.chain().any(is_refused)
    }

    /// The same error, as [`Self::Told`] if the other side was told.
    pub(crate) fn told_if(self, is_told: bool) -> Self {
        if is_told { Self::Told(Box::new(self)) } else { self }
    }

    /// The same error, as [`Self::Unanswered`] if the other side has gone and nothing was received from it.
    pub(crate) fn after_receiving(self, has_received: bool) -> Self {
        if self.is_peer_gone() && !has_received { Self::Unanswered(Box::new(self)) } else { self }
    }

    /// Whether the session itself failed, and would fail again with the same bytes.
    pub(crate) fn is_final(&self) -> bool {
        let is_final = |error: &SessionError| !matches!(error, SessionError::Disconnected { .. });
        self.chain().any(|cause| cause.downcast_ref().is_some_and(is_final))
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) => f.write_str(text)?,
            Self::Refused(why) => {
                write!(f, "the change could not be applied there; the other side says: \"{why}\"")?;
            }
            Self::Context { what, .. } => f.write_str(what)?,
            other => write!(f, "{}", other.original())?,
        }
        let mut cause = if f.alternate() { self.source() } else { None };
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl Error for ReconcileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(_) | Self::Failed(_) => None,
            Self::Context { cause, .. } => Some(&**cause),
            other => other.original().source(),
        }
    }
}

/// Implements `From` for the errors of other crates.
macro_rules! from_errors {
    ($($variant:ident($error:ty)),*) => {$(
        impl From<$error> for ReconcileError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )*};
}

from_errors!(
    Usage(UsageError),
    Session(SessionError),
    Resume(ResumeError),
    Sketch(SketchError),
    SketchFormat(SketchFormatError),
    Read(ReadError),
    Item(RecordItemError),
    Extractor(ExtractorError),
    Io(io::Error),
    Secret(SecretRefusal)
);

/// Whether an operation failed because the other side has gone.
pub(crate) fn is_broken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Adds context to an error.
pub(crate) trait Context<T>: Sized {
    /// Adds a description of the operation that failed.
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.with_context(|| what)
    }

    /// The same, with a description that is built only on failure.
    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<ReconcileError>> Context<T> for Result<T, E> {
    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| error.into().context(what()))
    }
}

impl<T> Context<T> for Option<T> {
    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.ok_or_else(|| ReconcileError::Failed(what().into()))
    }
}

/// An error with this text, as for `format!`.
macro_rules! failed {
    ($($text:tt)*) => { $crate::error::ReconcileError::Failed(format!($($text)*)) };
}

/// Returns an error with this text.
macro_rules! bail {
    ($($text:tt)*) => { return Err($crate::error::failed!($($text)*)) };
}

/// Returns an error with this text unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err($crate::error::failed!($($text)*));
        }
    };
}

pub(crate) use {bail, ensure, failed};

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_reconcile_engine::SessionRefusal;

    #[test]
    fn descriptions_and_causes_are_kept() {
        let gone = ReconcileError::from(SessionError::Disconnected { phase: "hello" });
        let cause = gone.to_string();
        let error = Err::<(), _>(gone).context("a peer").context("a set").unwrap_err();
        assert_eq!(error.to_string(), "a set");
        assert_eq!(format!("{error:#}"), format!("a set: a peer: {cause}"));
        assert!(error.is_peer_gone() && !error.is_final() && !error.is_usage());
        let named = error.of_peer("a peer").of_peer("1.2.3.4:5");
        assert_eq!(format!("{named:#}"), format!("1.2.3.4:5: a set: a peer: {cause}"));
        let usage = Err::<(), _>(UsageError("no".into())).context("a call").unwrap_err();
        assert!(usage.is_usage() && !usage.is_peer_gone());
        let broken: Result<()> = Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        assert!(broken.context("a peer").unwrap_err().is_peer_gone());
        // As through the stream of contents.
        let gone = ReconcileError::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("sent");
        let through: Result<()> = Err(io::Error::other(gone).into());
        assert!(through.context("a content did not come").unwrap_err().is_peer_gone());
        let other: Result<()> = Err(io::Error::other(failed!("changed")).into());
        assert!(!other.context("a content did not come").unwrap_err().is_peer_gone());
        assert!(ReconcileError::from(SessionError::Key).is_final());
        let reset: Result<()> = Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
        let reset = reset.context("a peer: cannot read").unwrap_err();
        let shown = format!("{reset:#}");
        let reset = reset.after_receiving(true);
        assert!(!reset.is_unanswered());
        let unanswered = reset.after_receiving(false);
        assert_eq!(format!("{unanswered:#}"), shown);
        assert!(unanswered.is_unanswered() && unanswered.is_peer_gone());
        let refused: Result<()> = Err(SessionError::Refused(SessionRefusal::Kind).into());
        let refused = refused.context("a peer").unwrap_err();
        assert!(refused.is_refused_session() && !refused.is_told());
        let (shown, told) = (format!("{refused:#}"), refused.told_if(true));
        assert_eq!(format!("{told:#}"), shown);
        assert!(told.is_told() && told.is_final() && !told.is_peer_gone());
        assert!(
            !failed!("a peer").is_refused_session() && !failed!("a peer").told_if(false).is_told()
        );
    }
}
