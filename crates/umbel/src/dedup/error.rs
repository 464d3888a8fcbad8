//! Why a job ends without a result.

/// Why an input cannot be used; trying again does not help.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// Records are bad and may not be left out. Names the first.
    #[error("{0}")]
    Bad(String),
    /// A second reading saw other bytes than the first.
    #[error("{0}: the file was changed while it was read; run the job again")]
    Changed(String),
}
