//! Failed attempts of a call: what a node or the connection said, and which of them the caller hears of.

use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};
use umbel_proto::detail_of;
use umbel_proto::v1::{Applied, ErrorCode, ErrorDetail};

use crate::limits::SESSIONS_PER_REQUEST_MAX;

/// The target of calls that open a session.
pub(crate) const OPEN_SESSION: &str = "open session";

/// How the message of a call begins that was not sent, in the code that tonic generates.
const NOT_READY: &str = "Service was not ready: ";

/// A failed attempt of a request: the last one, or an earlier one that says more of the cluster. What a node answered says
/// more than a connection that broke, and this more than one that could not be made.
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

/// A failed attempt, and whether it leaves a change open that its caller has to know of.
pub(crate) struct Weighed {
    pub(crate) failure: Failure,
    pub(crate) is_open: bool,
}

impl Weighed {
    /// The graver failure of this attempt's and the gravest before it. It tells what all attempts have done, as this one does.
    pub(crate) fn or_graver(self, earlier: Option<Self>) -> Self {
        let Some(earlier) = earlier.filter(|earlier| earlier.outweighs(&self)) else { return self };
        let Failure { applied, attempt_count, .. } = self.failure;
        Self {
            failure: Failure { applied, attempt_count, ..earlier.failure },
            is_open: earlier.is_open,
        }
    }

    fn outweighs(&self, later: &Self) -> bool {
        // What a node said before it went does not describe it any more.
        let is_outdated = self.failure.node == later.failure.node;
        match (self.is_open, later.is_open) {
            (true, false) => true,
            (false, true) => false,
            _ => !is_outdated && self.failure.origin.weight() > later.failure.origin.weight(),
        }
    }
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

impl Origin {
    /// How much a failure from there says of the cluster.
    const fn weight(self) -> u8 {
        match self {
            Self::Connect => 0,
            Self::Silence => 1,
            Self::Node => 2,
        }
    }
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
        let detail: ErrorDetail = detail_of(status).unwrap_or_default();
        let source = std::error::Error::source(status);
        let origin = match source {
            None if is_unsent(status) => Origin::Connect,
            None => Origin::Node,
            // A node that refuses the client's certificate takes no call.
            Some(source) if is_connect_error(source) || is_own_refused(source) => Origin::Connect,
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
        let is_proof_wanted = |source| is_proof_missing(source) || is_own_refused(source);
        let code =
            if source.is_some_and(is_proof_wanted) { Code::Unauthenticated } else { status.code() };
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

    /// Whether the node does not serve anybody yet, because it is starting or belongs to no cluster.
    pub(crate) fn is_not_ready(&self) -> bool {
        self.cause == ErrorCode::NotFormed
    }

    /// Whether the node asked others until the time was up, as without a majority.
    #[must_use]
    pub const fn lacks_majority(&self) -> bool {
        matches!(self.cause, ErrorCode::NoQuorum | ErrorCode::OutcomeUnknown)
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

/// Whether the generated client found that its channel takes no calls, because the runtime of its task ended. Such a status
/// has no source, and, unlike one that a node sent, no details and no headers.
fn is_unsent(status: &Status) -> bool {
    status.code() == Code::Unknown
        && status.message().starts_with(NOT_READY)
        && status.details().is_empty()
        && status.metadata().is_empty()
}

/// An error and its causes. `umbel_ports::causes` is for nodes and workers: programs that link the client need no ports to
/// files and sockets of theirs.
fn chain<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn is_connect_error(source: &(dyn std::error::Error + 'static)) -> bool {
    chain(source).any(<dyn std::error::Error>::is::<tonic::ConnectError>)
}

/// Whether the connection failed because one end could not authenticate in the TLS handshake.
#[cfg(feature = "tls")]
fn is_proof_missing(source: &(dyn std::error::Error + 'static)) -> bool {
    // An error that an `io::Error` wraps is not among the sources of that.
    let mut wrapped =
        chain(source).filter_map(|error| error.downcast_ref::<std::io::Error>()?.get_ref());
    wrapped.any(<dyn std::error::Error + Send + Sync>::is::<umbel_tls::HandshakeError>)
}

#[cfg(not(feature = "tls"))]
fn is_proof_missing(_: &(dyn std::error::Error + 'static)) -> bool {
    false
}

/// Whether the node refused the client's certificate after the client's end of the handshake. HTTP/2 keeps
/// only the text of an error of its connection.
#[cfg(feature = "tls")]
fn is_own_refused(source: &(dyn std::error::Error + 'static)) -> bool {
    innermost(source).contains(umbel_tls::OWN_REFUSED)
}

#[cfg(not(feature = "tls"))]
fn is_own_refused(_: &(dyn std::error::Error + 'static)) -> bool {
    false
}

/// The message at the end of the chain, which names the cause.
fn innermost(source: &(dyn std::error::Error + 'static)) -> String {
    chain(source).last().unwrap_or(source).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: Code, detail: &ErrorDetail) -> Failure {
        let details = umbel_proto::details_of(code, "no", detail);
        let status = Status::with_details(code, "no", details);
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

    /// Nodes of former releases send the detail alone.
    #[test]
    fn nodes_of_both_releases_tell_the_cause() {
        let detail = ErrorDetail {
            code: ErrorCode::Overloaded.into(),
            applied: Applied::Partly.into(),
            retry_after_ms: 7,
        };
        let newer = umbel_proto::details_of(Code::Unavailable, "no", &detail);
        let former = umbel_proto::former_details(newer.clone()).unwrap();
        for details in [newer, former] {
            let status = Status::with_details(Code::Unavailable, "no", details);
            let failure = Failure::from_status(&status, "filter \"seen\"", "a:1");
            assert_eq!((failure.cause, failure.applied), (ErrorCode::Overloaded, Applied::Partly));
            assert_eq!(failure.retry_after, Some(Duration::from_millis(7)));
        }
    }

    /// A failure of this node, and whether its attempt leaves a change open.
    fn weighed(node: &str, origin: Origin, is_open: bool) -> Weighed {
        let failure = Failure::silence("drain of node 3", node, Duration::from_secs(10));
        let applied = if is_open { Applied::Unknown } else { Applied::No };
        Weighed { failure: Failure { origin, applied, ..failure }, is_open }
    }

    #[test]
    fn a_dead_address_hides_neither_an_open_change_nor_what_a_node_said() {
        use Origin::{Connect, Node, Silence};
        let told = |earlier: Weighed, mut later: Weighed| {
            later.failure.applied = Applied::Unknown;
            later.failure.attempt_count = 2;
            let failure = later.or_graver(Some(earlier)).failure;
            assert_eq!((failure.applied, failure.attempt_count), (Applied::Unknown, 2));
            failure.node
        };
        assert_eq!(told(weighed("a:1", Silence, true), weighed("b:1", Connect, false)), "a:1");
        assert_eq!(told(weighed("a:1", Silence, true), weighed("b:1", Node, false)), "a:1");
        assert_eq!(told(weighed("a:1", Node, false), weighed("b:1", Silence, true)), "b:1");
        assert_eq!(told(weighed("a:1", Node, false), weighed("b:1", Connect, false)), "a:1");
        assert_eq!(told(weighed("a:1", Connect, false), weighed("b:1", Node, false)), "b:1");
        assert_eq!(told(weighed("a:1", Node, false), weighed("b:1", Node, false)), "b:1");
    }

    #[test]
    fn what_a_node_said_before_it_went_is_outdated_unless_a_change_is_open() {
        let last = || weighed("a:1", Origin::Connect, false);
        let told = |earlier| last().or_graver(Some(earlier)).failure.origin;
        assert_eq!(told(weighed("a:1", Origin::Node, false)), Origin::Connect);
        assert_eq!(told(weighed("a:1", Origin::Node, true)), Origin::Node);
        assert_eq!(last().or_graver(None).failure.origin, Origin::Connect);
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_refused_certificate_is_no_unknown_outcome() {
        let said = |what: &str| {
            let text = format!("a:1 {what}: UnknownCA");
            let status = Status::from_error(std::io::Error::other(text.clone()).into());
            let failure = Failure::from_status(&status, "filter \"seen\"", "a:1");
            assert_eq!(failure.message, text);
            (failure.origin, failure.code, failure.applied)
        };
        let refused = (Origin::Connect, Code::Unauthenticated, Applied::No);
        assert_eq!(said(umbel_tls::OWN_REFUSED), refused);
        assert_eq!(said("hung up"), (Origin::Silence, Code::Unknown, Applied::Unknown));
    }

    #[test]
    fn a_channel_that_takes_no_calls_is_no_unknown_outcome() {
        let told = |status: &Status| {
            let failure = Failure::from_status(status, "filter \"seen\"", "a:1");
            (failure.origin, failure.applied, failure.is_transient())
        };
        let mut status = Status::unknown(format!("{NOT_READY}transport error"));
        assert_eq!(told(&status), (Origin::Connect, Applied::No, true));
        status.metadata_mut().insert("content-type", "application/grpc".parse().unwrap());
        assert_eq!(told(&status), (Origin::Node, Applied::Unknown, false), "a node's words");
    }

    #[test]
    fn aborted_is_transient_only_with_its_cause() {
        let detail = ErrorDetail { code: ErrorCode::OutcomeUnknown.into(), ..Default::default() };
        assert!(failure(Code::Aborted, &detail).is_transient());
        assert!(!failure(Code::Aborted, &ErrorDetail::default()).is_transient());
    }
}
