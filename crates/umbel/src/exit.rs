//! How a command ends, as the shell sees it.

use std::process::ExitCode;
use umbel_dedup::DedupError;
use umbel_node::{EnrolError, NodeFailure, StartError};
use umbel_reconcile::ReconcileError;

pub(crate) use umbel_files::UsageError;

/// Returns a usage error with this text, with the arguments of `format!`.
macro_rules! refuse {
    ($($text:tt)*) => { return Err($crate::exit::UsageError(format!($($text)*)).into()) };
}

pub(crate) use refuse;

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Everything requested was done: 0.
    Done,
    /// It failed, no incomplete output looks complete: 1.
    Failed,
    /// It did what was requested, and the answer is no (items are absent, sets differ): 1.
    No,
    /// Nothing to do, or wrong usage: 2.
    Usage,
    /// A command failed whose 1 is an answer: 2.
    Unanswered,
    /// Done, but bad records were skipped: 3.
    BadSkipped,
}

impl Exit {
    /// The exit code of an error: 2 if the command was used wrongly, else 1.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        let is_usage = error.is::<UsageError>()
            || error.downcast_ref().is_some_and(ReconcileError::is_usage)
            || error.downcast_ref().is_some_and(DedupError::is_usage)
            || error.downcast_ref().is_some_and(StartError::is_usage)
            || error.downcast_ref().is_some_and(NodeFailure::is_usage)
            || error.downcast_ref().is_some_and(EnrolError::is_usage);
        if is_usage { Self::Usage } else { Self::Failed }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Failed | Exit::No => 1,
            Exit::Usage | Exit::Unanswered => 2,
            Exit::BadSkipped => 3,
        })
    }
}

/// The texts of an error and its causes, separated by colons. A cause is left out where the text before ends with
/// it: many errors name their cause themselves.
pub(crate) fn text_of(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_node::ConfigError;

    #[test]
    fn wrong_settings_of_a_node_are_wrong_usage() {
        let token_file = |kind: std::io::ErrorKind| {
            let source = std::io::Error::from(kind);
            Exit::of(&EnrolError::TokenFile { file: "token".to_owned(), source }.into())
        };
        assert_eq!(token_file(std::io::ErrorKind::NotFound), Exit::Usage);
        assert_eq!(token_file(std::io::ErrorKind::Other), Exit::Failed, "a disk that fails");
        assert_eq!(Exit::of(&EnrolError::Address.into()), Exit::Usage);
        let no_origin = || StartError::from(ConfigError::NoOrigin);
        assert_eq!(Exit::of(&no_origin().into()), Exit::Usage);
        assert_eq!(Exit::of(&EnrolError::from(no_origin()).into()), Exit::Usage);
        for (error, exit) in [
            (StartError::Unfit("another node's".to_owned()), Exit::Usage),
            (StartError::Founded("without it".to_owned()), Exit::Usage),
            (StartError::Removed("for ever".to_owned()), Exit::Usage),
            (StartError::Data("damaged".to_owned()), Exit::Failed),
            (StartError::Membership("no".to_owned()), Exit::Failed),
        ] {
            assert_eq!(Exit::of(&error.into()), exit);
        }
        // A node that is removed ends as it would end if it were started again.
        assert_eq!(Exit::of(&NodeFailure::Removed("for ever".to_owned()).into()), Exit::Usage);
        assert_eq!(Exit::of(&NodeFailure::Failed("a disk".to_owned()).into()), Exit::Failed);
        let unread = EnrolError::Files(std::io::Error::from(std::io::ErrorKind::NotFound));
        assert_eq!(Exit::of(&unread.into()), Exit::Failed);
    }

    #[test]
    fn no_cause_is_told_twice() {
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        let twice = EnrolError::TokenFile { file: "F".to_owned(), source };
        let error = anyhow::Error::from(twice);
        assert_eq!(format!("{error:#}"), "join_token_file F: entity not found: entity not found");
        assert_eq!(text_of(&error), "join_token_file F: entity not found");
        let error = anyhow::anyhow!("no space").context("F: cannot write").context("export");
        assert_eq!(text_of(&error), "export: F: cannot write: no space");
    }
}
