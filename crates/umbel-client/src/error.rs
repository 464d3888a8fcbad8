//! What can go wrong, by what the caller should do.

use std::fmt;
use std::time::Duration;

use prost::Message;
use thiserror::Error;
use tonic::{Code, Status};
use umbel_proto::v1::{Applied, ErrorCode, ErrorDetail};

use crate::change::PendingRequest;
use crate::limits::{BATCH_ITEMS_MAX, ITEM_BYTES_MAX, SESSIONS_PER_REQUEST_MAX};

/// An item that cannot travel. Nothing was sent.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ItemError {
    /// The item is too long: leave it out, or insert its digest.
    #[error("item {index} has {item_bytes} bytes, at most {ITEM_BYTES_MAX} are allowed")]
    TooLong {
        /// Its number in the batch, from 0.
        index: usize,
        /// Its length.
        item_bytes: usize,
    },
    /// The batch is full: send it and begin another one.
    #[error("a batch holds at most {BATCH_ITEMS_MAX} items")]
    TooMany,
}

/// A call that failed, sorted by what the caller should do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// An address is none: correct it. Nothing was sent.
    #[error("{address:?} is no address: host:port is expected, several separated by commas")]
    Address {
        /// What was given.
        address: String,
    },
    /// An item cannot travel: leave it out. Nothing was sent.
    #[error(transparent)]
    Item(#[from] ItemError),
    /// The cluster refuses: correct the call, or do what the cause asks for. Nothing was changed,
    /// but for [`Failure::applied`] `Partly`: then some requests of a batch were applied.
    #[error("refused: {0}")]
    Refused(Box<Failure>),
    /// No node could do it in time: call again later. Nothing was changed, or (where
    /// [`Failure::applied`] says `Unknown`) the call is one that may be repeated without harm.
    #[error("not available: {0}")]
    Unavailable(Box<Failure>),
    /// Some inserts or removals were not answered in time and may have been applied: send exactly
    /// them again with [`PendingRequest::resend`], or ask `contains`.
    #[error("outcome unknown: {failure}")]
    OutcomeUnknown {
        /// What can be sent again; dropping it gives it up.
        request: Box<PendingRequest>,
        /// The last answer, or the lack of one.
        failure: Box<Failure>,
    },
    /// An operation that must not be repeated blindly may have been applied: look, then decide.
    #[error("outcome unknown, look before calling again: {0}")]
    ChangeUnknown(Box<Failure>),
    /// An insert or removal was sent more than once, and the cluster has forgotten the first
    /// answer. The outcome of this request is unknown, and sending it again cannot tell: ask
    /// `contains`. Nothing says whether its items were new.
    #[error("the first answer is lost and the outcome of this request is unknown: {0}")]
    FirstAnswerLost(Box<Failure>),
    /// A node's answer does not fit the question: report a bug. What was asked may be applied.
    #[error("wrong answer: {0}")]
    BadAnswer(Box<Failure>),
}

impl ClientError {
    /// What the last node said; None where nothing was sent.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Address { .. } | Self::Item(_) => None,
            Self::OutcomeUnknown { failure, .. }
            | Self::Refused(failure)
            | Self::Unavailable(failure)
            | Self::ChangeUnknown(failure)
            | Self::FirstAnswerLost(failure)
            | Self::BadAnswer(failure) => Some(failure),
        }
    }
}

/// The last failed attempt of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Code of the status; `DeadlineExceeded` if nothing came in time, `Unauthenticated` if one end of the
    /// connection could not prove who it is.
    pub code: Code,
    /// The cause, `Unspecified` if the node did not say.
    pub cause: ErrorCode,
    /// Whether anything was changed, over all attempts.
    pub applied: Applied,
    /// What the node, or the connection, said.
    pub message: String,
    /// What the call was about: `filter "name"`, or the operation.
    pub target: String,
    /// Address of the node.
    pub node: String,
    /// Attempts that were made.
    pub attempt_count: u32,
    /// When to try again at the earliest, if the node said so.
    pub retry_after: Option<Duration>,
    /// Where the failure arose.
    pub(crate) origin: Origin,
}

/// Where a failure arose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A node answered so.
    Node,
    /// There was no connection, so nothing was sent.
    Connect,
    /// The connection broke, or no answer came.
    Silence,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, node, message, attempt_count, .. } = self;
        write!(f, "{target}: node {node}: {message} ({:?}", self.code)?;
        if self.cause != ErrorCode::Unspecified {
            write!(f, ", {}", self.cause.as_str_name().trim_start_matches("ERROR_CODE_"))?;
        }
        match attempt_count {
            0 | 1 => write!(f, ")"),
            _ => write!(f, ", {attempt_count} attempts)"),
        }
    }
}

impl Failure {
    /// What a status says. A status that a node sent has no source; one that the connection made
    /// up has.
    pub(crate) fn from_status(status: &Status, target: &str, node: &str) -> Self {
        let detail = ErrorDetail::decode(status.details()).unwrap_or_default();
        let source = std::error::Error::source(status);
        let origin = match source {
            None => Origin::Node,
            Some(source) if is_connect_error(source) => Origin::Connect,
            Some(_) => Origin::Silence,
        };
        let message = match source {
            None => status.message().to_owned(),
            Some(source) => innermost(source),
        };
        let applied = match (origin, detail.applied()) {
            (Origin::Connect, _) => Applied::No,
            (Origin::Silence, _) => Applied::Unknown,
            (Origin::Node, Applied::Unspecified) => unsaid(status.code()),
            (Origin::Node, applied) => applied,
        };
        let code = if source.is_some_and(is_proof_missing) {
            Code::Unauthenticated
        } else {
            status.code()
        };
        Self {
            code,
            cause: detail.code(),
            applied,
            message,
            target: target.to_owned(),
            node: node.to_owned(),
            attempt_count: 1,
            retry_after: (detail.retry_after_ms > 0)
                .then(|| Duration::from_millis(u64::from(detail.retry_after_ms))),
            origin,
        }
    }

    /// No answer came in time.
    pub(crate) fn silence(target: &str, node: &str, waited: Duration) -> Self {
        let message = format!("no answer within {} ms", waited.as_millis());
        let origin = Origin::Silence;
        Self { origin, ..Self::local(Code::DeadlineExceeded, message, target, node) }
    }

    /// The answer does not fit.
    pub(crate) fn bad_answer(message: String, target: &str, node: &str) -> Self {
        Self::local(Code::DataLoss, message, target, node)
    }

    /// The refusal of a request whose sessions, all opened for it, were unknown one after another.
    /// Nothing was applied, for none of its attempts was let in.
    pub(crate) fn of_new_sessions(self) -> Self {
        let message = format!(
            "{} ({SESSIONS_PER_REQUEST_MAX} sessions opened for this request were unknown, one \
             after the other: look whether the addresses name nodes of one cluster, and whether \
             it was restored from a backup)",
            self.message
        );
        Self { message, applied: Applied::No, ..self }
    }

    fn local(code: Code, message: String, target: &str, node: &str) -> Self {
        Self {
            code,
            cause: ErrorCode::Unspecified,
            applied: Applied::Unknown,
            message,
            target: target.to_owned(),
            node: node.to_owned(),
            attempt_count: 1,
            retry_after: None,
            origin: Origin::Node,
        }
    }

    /// Whether the same request may be sent again.
    pub(crate) fn is_transient(&self) -> bool {
        match (self.origin, self.code) {
            (Origin::Connect | Origin::Silence, _) => true,
            // A server that enforces the timeout of a call's headers says Cancelled.
            (Origin::Node, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled) => true,
            (Origin::Node, Code::Aborted) => self.cause == ErrorCode::OutcomeUnknown,
            (Origin::Node, _) => false,
        }
    }

    /// Whether the connection broke while an answer was waited for.
    pub(crate) fn is_broken(&self) -> bool {
        self.origin == Origin::Silence && self.code != Code::DeadlineExceeded
    }

    /// Whether another node would probably have done better.
    pub(crate) fn blames_node(&self) -> bool {
        let is_shared =
            matches!(self.cause, ErrorCode::NoQuorum | ErrorCode::FilterBusy | ErrorCode::DiskFull);
        self.is_transient() && !is_shared && self.cause != ErrorCode::OutcomeUnknown
    }
}

/// Whether anything was changed, where a node does not say.
fn unsaid(code: Code) -> Applied {
    match code {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unauthenticated => Applied::No,
        _ => Applied::Unknown,
    }
}

fn is_connect_error(source: &(dyn std::error::Error + 'static)) -> bool {
    let mut at = Some(source);
    while let Some(error) = at {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        at = error.source();
    }
    false
}

/// Whether both ends could not prove who they are.
#[cfg(feature = "tls")]
fn is_proof_missing(source: &(dyn std::error::Error + 'static)) -> bool {
    let mut at = Some(source);
    while let Some(error) = at {
        // What is wrapped so is no source of its wrapping.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let proof = wrapped.and_then(|wrapped| wrapped.downcast_ref::<umbel_tls::HandshakeError>());
        if proof.is_some() {
            return true;
        }
        at = error.source();
    }
    false
}

#[cfg(not(feature = "tls"))]
fn is_proof_missing(_: &(dyn std::error::Error + 'static)) -> bool {
    false
}

/// The message at the end of the chain, which names the cause.
fn innermost(source: &(dyn std::error::Error + 'static)) -> String {
    let mut at = source;
    while let Some(next) = at.source() {
        at = next;
    }
    at.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: Code, detail: &ErrorDetail) -> Failure {
        let status = Status::with_details(code, "no", detail.encode_to_vec().into());
        Failure::from_status(&status, "filter \"seen\"", "a:1")
    }

    #[test]
    fn messages_name_filter_and_node() {
        let detail =
            ErrorDetail { code: ErrorCode::UnknownFilter.into(), ..ErrorDetail::default() };
        let failure = failure(Code::NotFound, &detail);
        assert_eq!(failure.to_string(), "filter \"seen\": node a:1: no (NotFound, UNKNOWN_FILTER)");
        assert_eq!(failure.applied, Applied::No);
        assert!(!failure.is_transient());
    }

    #[test]
    fn aborted_is_transient_only_with_its_cause() {
        let detail = ErrorDetail { code: ErrorCode::OutcomeUnknown.into(), ..Default::default() };
        assert!(failure(Code::Aborted, &detail).is_transient());
        assert!(!failure(Code::Aborted, &ErrorDetail::default()).is_transient());
    }
}
