//! `--binary`: what happens to files in directories that are not text.

use crate::exit::{UsageError, refuse};
use clap::ValueEnum;
use umbel_dedup::{BinaryFiles, OutputTarget};

/// Values of the option.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum BinaryArg {
    /// The job ends and names the first
    Refuse,
    /// They are left out
    Skip,
    /// They go into the output directory as they are
    Copy,
    /// They are cut like any other file
    Text,
}

impl BinaryArg {
    /// The rule for the job.
    ///
    /// # Errors
    ///
    /// If files are to be copied and the output is no directory.
    pub(super) fn files(self, output: &OutputTarget) -> Result<BinaryFiles, UsageError> {
        Ok(match self {
            Self::Refuse => BinaryFiles::Refuse,
            Self::Skip => BinaryFiles::Skip,
            Self::Text => BinaryFiles::Text,
            Self::Copy if matches!(output, OutputTarget::Directory(_)) => BinaryFiles::Copy,
            Self::Copy => {
                refuse!("--binary copy needs an output directory: --output DIR/");
            }
        })
    }
}
