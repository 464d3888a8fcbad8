//! Errors, sorted by what the caller should do.

use std::fmt;
use std::time::Duration;

use prost::Message;
use thiserror::Error;
use tonic::{Code, Status};
use umbel_proto::v1::{Applied, ErrorCode, ErrorDetail};

use crate::change::PendingRequest;
use crate::limits::{BATCH_ITEMS_MAX, ITEM_BYTES_MAX, SESSIONS_PER_REQUEST_MAX};

/// The target of calls that open a session.
pub(crate) const OPEN_SESSION: &str = "open session";

/// An item that cannot be sent. Nothing was sent.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ItemError {
    /// The item is too long: leave it out, or insert a digest of it.
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
    /// No node could answer in time: call again later. Nothing was changed, or (if [`Failure::applied`]
    /// is `Unknown`) the call is idempotent.
    #[error("not available: {0}")]
    Unavailable(Box<Failure>),
    /// Some inserts or removals were not answered in time and may have been applied, or were refused after
    /// a part of their items was applied: resend exactly those
    /// with [`PendingRequest::resend`], or query the items with `contains`.
    #[error("outcome unknown: {failure}")]
    OutcomeUnknown {
        /// The requests to resend; dropping it gives them up.
        request: Box<PendingRequest>,
        /// The failure of the last attempt.
        failure: Box<Failure>,
    },
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
    /// The last failed attempt; None if nothing was sent.
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
    /// Code of the status; `DeadlineExceeded` if no answer came in time, `Unauthenticated` if one end of
    /// the connection could not authenticate.
    pub code: Code,
    /// The cause; `Unspecified` if the node gave none.
    pub cause: ErrorCode,
    /// Whether anything was changed, over all attempts.
    pub applied: Applied,
    /// The message of the node, or of the connection.
    pub message: String,
    /// The target of the call: `filter "name"`, or the operation.
    pub target: String,
    /// Address of the node.
    pub node: String,
    /// Number of attempts made.
    pub attempt_count: u32,
    /// The shortest pause before a retry, if the node asked for one.
    pub retry_after: Option<Duration>,
    /// Where the failure arose.
    pub(crate) origin: Origin,
}

/// Where a failure arose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A node answered with an error.
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
    /// The failure that a status describes. A status that a node sent has no source; one that the
    /// transport made has one.
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

    /// The failure of an attempt without an answer in time.
    pub(crate) fn silence(target: &str, node: &str, waited: Duration) -> Self {
        let message = format!("no answer within {} ms", waited.as_millis());
        let origin = Origin::Silence;
        Self { origin, ..Self::local(Code::DeadlineExceeded, message, target, node) }
    }

    /// The failure of a request that got no id, because other requests, or this one, could open no session in time.
    pub(crate) fn no_session(waited: Duration) -> Self {
        Self { applied: Applied::No, ..Self::silence(OPEN_SESSION, "(last called)", waited) }
    }

    /// The failure of an answer that does not match the request.
    pub(crate) fn bad_answer(message: String, target: &str, node: &str) -> Self {
        Self::local(Code::DataLoss, message, target, node)
    }

    /// The refusal of a request for which several sessions were opened, all of which the cluster did not
    /// know. Nothing was applied, because no attempt was accepted.
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

    /// Whether the failure is transient, so that the same request may be sent again.
    pub(crate) fn is_transient(&self) -> bool {
        match (self.origin, self.code) {
            (Origin::Connect | Origin::Silence, _) => true,
            // A server that enforces the timeout in a call's headers answers with Cancelled.
            (Origin::Node, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled) => true,
            (Origin::Node, Code::Aborted) => self.cause == ErrorCode::OutcomeUnknown,
            (Origin::Node, _) => false,
        }
    }

    /// Whether the connection broke while the client waited for an answer.
    pub(crate) fn is_broken(&self) -> bool {
        self.origin == Origin::Silence && self.code != Code::DeadlineExceeded
    }

    /// Whether another node would probably not have failed.
    pub(crate) fn blames_node(&self) -> bool {
        let is_shared =
            matches!(self.cause, ErrorCode::NoQuorum | ErrorCode::FilterBusy | ErrorCode::DiskFull);
        self.is_transient() && !is_shared && self.cause != ErrorCode::OutcomeUnknown
    }
}

/// Whether anything was changed, for a status that does not report it.
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

/// Whether the connection failed because one end could not authenticate in the TLS handshake.
#[cfg(feature = "tls")]
fn is_proof_missing(source: &(dyn std::error::Error + 'static)) -> bool {
    let mut at = Some(source);
    while let Some(error) = at {
        // An error that an `io::Error` wraps is not among the sources of that.
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
