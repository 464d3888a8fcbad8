//! Calls that make no sense as given.

/// The call makes no sense as given, or there is nothing to do. Nothing was changed; correct the call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);
