//! Errors, sorted by what the caller should do.

use thiserror::Error;
use umbel_proto::v1::Applied;

use crate::caller::{Failed, Repeat};
use crate::change::PendingRequest;
use crate::failure::Failure;
use crate::packed_batch::ItemError;

/// The result of most functions of this crate.
pub(crate) type Result<T, E = ClientError> = std::result::Result<T, E>;

/// Why a call failed, sorted by what the caller should do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// An address cannot be parsed: correct it. Nothing was sent.
    #[error("{address:?} is no address: host:port is expected, several separated by commas")]
    Address {
        /// The address as given.
        address: String,
    },
    /// An item cannot be sent: leave it out. Nothing was sent.
    #[error(transparent)]
    Item(#[from] ItemError),
    /// The cluster refuses: correct the call, or do what the cause asks for. Nothing was changed, except
    /// if [`Failure::applied`] is `Partly`: then some requests of a batch were applied.
    #[error("refused: {0}")]
    Refused(Box<Failure>),
    /// No node could answer in time: call again later. Nothing was changed; if [`Failure::applied`] is `Unknown`, the
    /// call only asks for something.
    #[error("not available: {0}")]
    Unavailable(Box<Failure>),
    /// Some inserts or removals were not answered in time and may have been applied, or were refused after
    /// a part of their items was applied: resend exactly those
    /// with [`PendingRequest::resend`], or query the items with `contains`.
    #[error("outcome unknown: {failure}")]
    OutcomeUnknown {
        /// The requests to resend; dropping it gives them up.
        request: Box<PendingRequest>,
        /// The attempt's failure that says most, as [`ClientError::failure`].
        failure: Box<Failure>,
    },
    /// An order may have been carried out, or may still be, as once a majority answers again: look, or call again, which
    /// does no harm. To take it back, give the contrary order.
    #[error("outcome unknown, it may still be carried out: {0}")]
    OrderUnknown(Box<Failure>),
    /// An operation that is not idempotent may have been applied: look, then decide.
    #[error("outcome unknown, look before calling again: {0}")]
    ChangeUnknown(Box<Failure>),
    /// An insert or removal was sent more than once, and the cluster has forgotten the answer to the
    /// first attempt. The outcome of this request is unknown, and resending cannot reveal it: query the
    /// items with `contains`. Whether they were new cannot be found out any more.
    #[error("the first answer is lost and the outcome of this request is unknown: {0}")]
    FirstAnswerLost(Box<Failure>),
    /// A node's answer does not match the request: report a bug. The request may have been applied.
    #[error("wrong answer: {0}")]
    BadAnswer(Box<Failure>),
}

impl ClientError {
    /// Of the failed attempts the last one, or an earlier one that says more: one that leaves a change open, or at which a node
    /// answered. None if nothing was sent.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Address { .. } | Self::Item(_) => None,
            Self::OutcomeUnknown { failure, .. }
            | Self::Refused(failure)
            | Self::Unavailable(failure)
            | Self::OrderUnknown(failure)
            | Self::ChangeUnknown(failure)
            | Self::FirstAnswerLost(failure)
            | Self::BadAnswer(failure) => Some(failure),
        }
    }
}

impl From<Failed> for ClientError {
    fn from(Failed { failure, is_transient, repeat }: Failed) -> Self {
        let failure = Box::new(failure);
        let is_unknown = matches!(failure.applied, Applied::Unknown | Applied::Partly);
        match (is_transient, repeat) {
            (_, Repeat::IfUnchanged) if is_unknown => Self::ChangeUnknown(failure),
            (_, Repeat::Order) if is_unknown => Self::OrderUnknown(failure),
            (true, _) => Self::Unavailable(failure),
            (false, _) => Self::Refused(failure),
        }
    }
}
