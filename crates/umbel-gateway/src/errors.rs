//! Maps a failure to what the client receives: a gRPC status with an encoded `ErrorDetail`.

use axum::http::HeaderMap;
use tonic::{Code, Status};
use umbel_engine::meta::MetaError;
use umbel_engine::shard::PartError;
use umbel_node::failure::CallFailure;
use umbel_proto::v1::{Applied, ErrorCode, ErrorDetail};
use umbel_proto::{detail_of, details_of};

use super::limits::ERROR_MESSAGE_BYTES_MAX;

/// The result of most functions that answer calls.
pub(crate) type Result<T, E = CallFailure> = std::result::Result<T, E>;

/// Retry delay after an overload, in milliseconds: a full queue has moved by then.
const AFTER_OVERLOAD_MS: u32 = 50;

/// Retry delay for a busy filter, in milliseconds: it may be live by then.
const AFTER_BUSY_MS: u32 = 100;

/// Retry delay without a leader, in milliseconds: a new one may be elected by then.
const AFTER_ELECTION_MS: u32 = 500;

/// Retry delay while the cluster is not formed, or a node does not know what it grants, in milliseconds.
const AFTER_FORMING_MS: u32 = 1000;

/// What the client is told about a failure.
struct Verdict {
    status: Code,
    code: ErrorCode,
    applied: Applied,
    retry_after_ms: u32,
}

/// Nothing was changed, and a retry does not help.
const fn refused(status: Code, code: ErrorCode) -> Verdict {
    Verdict { status, code, applied: Applied::No, retry_after_ms: 0 }
}

/// Nothing was changed; a retry may help.
const fn later(code: ErrorCode, retry_after_ms: u32) -> Verdict {
    Verdict { status: Code::Unavailable, code, applied: Applied::No, retry_after_ms }
}

/// A retry does not help, and it is unknown whether something was changed.
const fn open(status: Code, code: ErrorCode) -> Verdict {
    Verdict { status, code, applied: Applied::Unknown, retry_after_ms: 0 }
}

/// The gRPC status of a failure.
pub(super) fn status(failure: &CallFailure) -> Status {
    let Verdict { status, code, applied, retry_after_ms } = verdict(failure);
    let detail = ErrorDetail { code: code.into(), applied: applied.into(), retry_after_ms };
    detailed(status, failure.to_string(), &detail)
}

/// A status with its details, which have its code and its message, too: some libraries read only those, others refuse
/// details that say something else.
fn detailed(code: Code, mut message: String, detail: &ErrorDetail) -> Status {
    message.truncate(message.floor_char_boundary(ERROR_MESSAGE_BYTES_MAX));
    let details = details_of(code, &message, detail);
    Status::with_details(code, message, details)
}

/// The status of a call that this release does not have.
pub(super) fn no_such_call() -> Status {
    Status::unimplemented("there is no such call in this release of umbel")
}

/// The same refusal for a caller who has proved nothing: it may be allowed with a proof.
pub(super) fn unauthenticated(denied: &Status) -> Status {
    let detail = detail_of(denied).unwrap_or_default();
    detailed(Code::Unauthenticated, denied.message().to_owned(), &detail)
}

/// The header that names how requests may be compressed: only refusals of compressed ones have it.
const ACCEPTED_ENCODINGS: &str = "grpc-accept-encoding";

/// The status of a request that could not be read, for that of tonic's decoder; None for any other one. The statuses of
/// services have details.
pub(super) fn unread(status: &Status) -> Option<Status> {
    if !status.details().is_empty() {
        return None;
    }
    let accepted = status.metadata().get(ACCEPTED_ENCODINGS);
    let (code, what) = match status.code() {
        // Larger than a message may be, or of more numbers. Clients take the code for that of items outside a window.
        Code::OutOfRange => (Code::ResourceExhausted, "the request cannot be read"),
        // No message, or not all of one. Nothing is wrong with the node.
        Code::Internal => (Code::InvalidArgument, "the request cannot be read"),
        // gRPC prescribes this code, and the header.
        Code::Unimplemented if accepted.is_some() => {
            (Code::Unimplemented, "requests must not be compressed")
        }
        _ => return None,
    };
    let (cause, applied) = (ErrorCode::Invalid.into(), Applied::No.into());
    let detail = ErrorDetail { code: cause, applied, retry_after_ms: 0 };
    let mut answer = detailed(code, format!("{what}: {}", status.message()), &detail);
    if let Some(accepted) = accepted {
        answer.metadata_mut().insert(ACCEPTED_ENCODINGS, accepted.clone());
    }
    Some(answer)
}

/// The same for a response that is only a status.
pub(super) fn unread_answer(headers: &HeaderMap) -> Option<Status> {
    unread(&Status::from_header_map(headers)?)
}

/// A service that was made without streams was asked to open one.
pub(super) fn opens_no_streams() -> Status {
    Status::internal("streams are not opened here: this is a bug of umbel")
}

/// A page's order that makes no sense.
pub(super) fn bad_order(what: impl Into<String>) -> Status {
    Status::invalid_argument(what)
}

/// An order that this console carries out for nobody, or not for this caller.
pub(super) fn console_refuses(why: &str) -> Status {
    Status::permission_denied(why)
}

/// The node stops before it has carried the order out.
pub(super) fn stopping() -> Status {
    Status::unavailable("the node stops: ask another one")
}

fn verdict(failure: &CallFailure) -> Verdict {
    match failure {
        CallFailure::UnknownFilter { .. } => refused(Code::NotFound, ErrorCode::UnknownFilter),
        CallFailure::Changed { .. } => refused(Code::FailedPrecondition, ErrorCode::BadChange),
        CallFailure::FilterBusy { .. } => later(ErrorCode::FilterBusy, AFTER_BUSY_MS),
        CallFailure::Invalid { .. } => refused(Code::InvalidArgument, ErrorCode::Invalid),
        CallFailure::Part(error) => part_verdict(error),
        CallFailure::Partly(error) => partly_verdict(error),
        CallFailure::OfFilter { cause, .. } => verdict(cause),
        CallFailure::Meta(error) => meta_verdict(error),
        CallFailure::UnknownShard { .. } => refused(Code::NotFound, ErrorCode::UnknownNode),
        CallFailure::NoQuorum { .. } => later(ErrorCode::NoQuorum, AFTER_ELECTION_MS),
        CallFailure::Overloaded { .. } => later(ErrorCode::Overloaded, AFTER_OVERLOAD_MS),
        CallFailure::TooSlow { .. } => refused(Code::DeadlineExceeded, ErrorCode::Invalid),
        CallFailure::RateExceeded { retry_after, .. } => {
            let millis = u32::try_from(retry_after.as_millis()).unwrap_or(u32::MAX);
            later(ErrorCode::Overloaded, millis.max(1))
        }
        CallFailure::DiskFull { is_partial: false, .. } => {
            refused(Code::ResourceExhausted, ErrorCode::DiskFull)
        }
        CallFailure::DiskFull { is_partial: true, .. } => Verdict {
            applied: Applied::Partly,
            ..refused(Code::ResourceExhausted, ErrorCode::DiskFull)
        },
        CallFailure::OutcomeUnknown { .. } => Verdict {
            retry_after_ms: AFTER_BUSY_MS,
            ..open(Code::Aborted, ErrorCode::OutcomeUnknown)
        },
        CallFailure::RestoreBroken { is_partial: false, cause, .. } => verdict(cause),
        CallFailure::RestoreBroken { is_partial: true, cause, .. } => {
            Verdict { applied: Applied::Partly, retry_after_ms: 0, ..verdict(cause) }
        }
        CallFailure::NotFormed | CallFailure::Forming { .. } | CallFailure::GrantsUnknown => {
            later(ErrorCode::NotFormed, AFTER_FORMING_MS)
        }
        CallFailure::Denied { .. } => refused(Code::PermissionDenied, ErrorCode::Denied),
        CallFailure::Storage { .. } => open(Code::Internal, ErrorCode::StorageFailed),
    }
}

/// The verdict on a request of which a part was done and the rest refused for good.
fn partly_verdict(error: &PartError) -> Verdict {
    match error {
        // A client that is told that its session is lost opens another one and sends all of the request again; kinds
        // that count would count the done part twice.
        PartError::RequestExpired { .. } | PartError::SessionExpired { .. } => Verdict {
            applied: Applied::Partly,
            ..refused(Code::FailedPrecondition, ErrorCode::OutcomeUnknown)
        },
        error => Verdict { applied: Applied::Partly, retry_after_ms: 0, ..part_verdict(error) },
    }
}

fn part_verdict(error: &PartError) -> Verdict {
    match error {
        // The filter was dropped or cleared while the request was in flight.
        PartError::UnknownSlice { .. } => refused(Code::NotFound, ErrorCode::UnknownFilter),
        PartError::StaleGeneration { .. } => later(ErrorCode::FilterBusy, AFTER_BUSY_MS),
        PartError::RequestExpired { .. } => {
            open(Code::FailedPrecondition, ErrorCode::RequestExpired)
        }
        PartError::SessionExpired { .. } => {
            open(Code::FailedPrecondition, ErrorCode::SessionExpired)
        }
        // Other shards, which have not seen this request id before, may have inserted their items by now.
        PartError::RequestReused { .. } => Verdict {
            applied: Applied::Partly,
            ..refused(Code::FailedPrecondition, ErrorCode::RequestReused)
        },
        PartError::WrongKind { .. } => refused(Code::FailedPrecondition, ErrorCode::WrongKind),
        PartError::ShapeMismatch { .. } => {
            refused(Code::FailedPrecondition, ErrorCode::ShapeMismatch)
        }
        PartError::BadFrame { .. } => refused(Code::InvalidArgument, ErrorCode::Invalid),
        PartError::LateItem { .. } | PartError::FutureItem { .. } => {
            refused(Code::OutOfRange, ErrorCode::OutsideWindow)
        }
        PartError::Full { .. } => refused(Code::ResourceExhausted, ErrorCode::FilterFull),
        PartError::NotJoined { .. } => refused(Code::FailedPrecondition, ErrorCode::BadChange),
        PartError::Fenced { .. } => later(ErrorCode::FilterBusy, AFTER_BUSY_MS),
        // Only requests between nodes cause these errors, never a client's.
        PartError::ForeignHash { .. }
        | PartError::OtherCut { .. }
        | PartError::CutBefore { .. }
        | PartError::Malformed { .. } => open(Code::Internal, ErrorCode::Internal),
    }
}

fn meta_verdict(error: &MetaError) -> Verdict {
    match error {
        MetaError::UnknownFilter { .. } => refused(Code::NotFound, ErrorCode::UnknownFilter),
        MetaError::NameTaken { .. } => refused(Code::AlreadyExists, ErrorCode::NameTaken),
        MetaError::Busy { .. } | MetaError::ShardBusy { .. } | MetaError::ExpiryChanged { .. } => {
            later(ErrorCode::FilterBusy, AFTER_BUSY_MS)
        }
        MetaError::UnknownNode { .. } => refused(Code::NotFound, ErrorCode::UnknownNode),
        MetaError::AddressTaken { .. } => refused(Code::AlreadyExists, ErrorCode::BadChange),
        MetaError::TooFewNodes { .. }
        | MetaError::BadMove { .. }
        | MetaError::BadSplit { .. }
        | MetaError::BadMerge { .. }
        | MetaError::VersionTooLow { .. }
        | MetaError::BadVersion { .. } => refused(Code::FailedPrecondition, ErrorCode::BadChange),
        MetaError::Quota { .. } => refused(Code::ResourceExhausted, ErrorCode::Quota),
        MetaError::NotFormed => later(ErrorCode::NotFormed, AFTER_FORMING_MS),
        MetaError::BadJoinToken { .. } => refused(Code::PermissionDenied, ErrorCode::Denied),
        MetaError::BadPrincipal { .. } => {
            refused(Code::FailedPrecondition, ErrorCode::BadPrincipal)
        }
        MetaError::BadSettings { .. } => refused(Code::InvalidArgument, ErrorCode::Invalid),
        MetaError::UnknownJob { .. } => refused(Code::NotFound, ErrorCode::UnknownJob),
        MetaError::JobState { .. } => refused(Code::FailedPrecondition, ErrorCode::JobState),
    }
}

/// The name of a status code as used in metrics.
pub(super) const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::Cancelled => "cancelled",
        Code::Unknown => "unknown",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbel_engine::{FilterId, Generation, NodeId, RequestId, SessionId, ShardId};

    use super::*;

    fn text() -> String {
        "text".to_owned()
    }

    #[test]
    fn every_failure_has_its_status() {
        use {Applied as A, Code as C, ErrorCode as E};
        let within = Duration::from_millis(1500);
        let disk_full = |is_partial| CallFailure::DiskFull { free_bytes: 1, is_partial };
        let table = [
            (CallFailure::UnknownFilter { name: text() }, C::NotFound, E::UnknownFilter, A::No, 0),
            (
                CallFailure::FilterBusy { name: text(), state: text() },
                C::Unavailable,
                E::FilterBusy,
                A::No,
                100,
            ),
            (CallFailure::Changed { name: text() }, C::FailedPrecondition, E::BadChange, A::No, 0),
            (CallFailure::Invalid { what: text() }, C::InvalidArgument, E::Invalid, A::No, 0),
            (
                CallFailure::NoQuorum { what: text(), within },
                C::Unavailable,
                E::NoQuorum,
                A::No,
                500,
            ),
            (
                CallFailure::UnknownShard { shard: ShardId(9) },
                C::NotFound,
                E::UnknownNode,
                A::No,
                0,
            ),
            (CallFailure::Overloaded { what: text() }, C::Unavailable, E::Overloaded, A::No, 50),
            (CallFailure::TooSlow { what: text() }, C::DeadlineExceeded, E::Invalid, A::No, 0),
            (rate_exceeded(), C::Unavailable, E::Overloaded, A::No, 250),
            (disk_full(false), C::ResourceExhausted, E::DiskFull, A::No, 0),
            (disk_full(true), C::ResourceExhausted, E::DiskFull, A::Partly, 0),
            (
                CallFailure::OutcomeUnknown { what: text() },
                C::Aborted,
                E::OutcomeUnknown,
                A::Unknown,
                100,
            ),
            (restore_broken(false), C::Unavailable, E::Overloaded, A::No, 50),
            (restore_broken(true), C::Unavailable, E::Overloaded, A::Partly, 0),
            (CallFailure::NotFormed, C::Unavailable, E::NotFormed, A::No, 1000),
            (CallFailure::Forming { what: text() }, C::Unavailable, E::NotFormed, A::No, 1000),
            (CallFailure::GrantsUnknown, C::Unavailable, E::NotFormed, A::No, 1000),
            (CallFailure::Denied { what: text() }, C::PermissionDenied, E::Denied, A::No, 0),
            (CallFailure::Storage { what: text() }, C::Internal, E::StorageFailed, A::Unknown, 0),
        ];
        for (failure, code, cause, applied, retry_after_ms) in table {
            check(&failure, code, cause, applied, retry_after_ms);
        }
    }

    fn restore_broken(is_partial: bool) -> CallFailure {
        let cause = Box::new(CallFailure::Overloaded { what: text() });
        CallFailure::RestoreBroken { what: text(), is_partial, cause }
    }

    fn rate_exceeded() -> CallFailure {
        let (principal, retry_after) = ("p".to_owned(), Duration::from_millis(250));
        CallFailure::RateExceeded { principal, limit: 9, what: "calls", retry_after }
    }

    #[test]
    fn every_refusal_of_a_shard_has_its_status() {
        use {Applied as A, Code as C, ErrorCode as E};
        let (filter, shard) = (FilterId(1), ShardId(2));
        let (got, current) = (Generation(1), Generation(2));
        let id = RequestId { session: SessionId(3), sequence: 4 };
        let table = [
            (PartError::UnknownSlice { filter, shard }, C::NotFound, E::UnknownFilter, A::No, 0),
            (
                PartError::StaleGeneration { filter, got, current },
                C::Unavailable,
                E::FilterBusy,
                A::No,
                100,
            ),
            (PartError::ForeignHash { hi: 1, shard }, C::Internal, E::Internal, A::Unknown, 0),
            (
                PartError::RequestExpired { id },
                C::FailedPrecondition,
                E::RequestExpired,
                A::Unknown,
                0,
            ),
            (
                PartError::SessionExpired { id },
                C::FailedPrecondition,
                E::SessionExpired,
                A::Unknown,
                0,
            ),
            (
                PartError::RequestReused { id },
                C::FailedPrecondition,
                E::RequestReused,
                A::Partly,
                0,
            ),
            (PartError::WrongKind { what: text() }, C::FailedPrecondition, E::WrongKind, A::No, 0),
            (
                PartError::ShapeMismatch { what: text() },
                C::FailedPrecondition,
                E::ShapeMismatch,
                A::No,
                0,
            ),
            (PartError::BadFrame { what: text() }, C::InvalidArgument, E::Invalid, A::No, 0),
            (
                PartError::LateItem { filter, at_ms: 1, oldest_ms: 2 },
                C::OutOfRange,
                E::OutsideWindow,
                A::No,
                0,
            ),
            (
                PartError::FutureItem { filter, at_ms: 3, latest_ms: 2 },
                C::OutOfRange,
                E::OutsideWindow,
                A::No,
                0,
            ),
            (
                PartError::Full { filter, what: text() },
                C::ResourceExhausted,
                E::FilterFull,
                A::No,
                0,
            ),
            (PartError::Malformed { what: text() }, C::Internal, E::Internal, A::Unknown, 0),
        ];
        for (error, code, cause, applied, retry_after_ms) in table {
            check(&CallFailure::Part(error), code, cause, applied, retry_after_ms);
        }
    }

    #[test]
    fn what_was_done_in_part_is_not_sent_again() {
        let (filter, id) = (FilterId(1), RequestId { session: SessionId(3), sequence: 4 });
        let (open, range) = (Code::FailedPrecondition, Code::OutOfRange);
        let full = PartError::Full { filter, what: text() };
        let table = [
            (full, Code::ResourceExhausted, ErrorCode::FilterFull),
            (PartError::RequestReused { id }, open, ErrorCode::RequestReused),
            (PartError::RequestExpired { id }, open, ErrorCode::OutcomeUnknown),
            (PartError::SessionExpired { id }, open, ErrorCode::OutcomeUnknown),
            (
                PartError::LateItem { filter, at_ms: 1, oldest_ms: 2 },
                range,
                ErrorCode::OutsideWindow,
            ),
        ];
        for (error, code, cause) in table {
            check(&CallFailure::Partly(error), code, cause, Applied::Partly, 0);
        }
    }

    #[test]
    fn a_failure_of_a_filter_has_the_status_of_its_cause() {
        let late = PartError::LateItem { filter: FilterId(23), at_ms: 1, oldest_ms: 2 };
        let (code, cause) = (Code::OutOfRange, ErrorCode::OutsideWindow);
        let failure = CallFailure::Part(late.clone()).of_filter("seen");
        check(&failure, code, cause, Applied::No, 0);
        check(&CallFailure::Partly(late).of_filter("seen"), code, cause, Applied::Partly, 0);
    }

    /// These errors are answers between nodes: a client that receives one has met a bug.
    #[test]
    fn what_is_said_of_splits_is_no_answer() {
        let id = RequestId { session: SessionId(1), sequence: 2 };
        let other = PartError::OtherCut { shard: ShardId(1), start: 1, last: 2 };
        for error in [other, PartError::CutBefore { id, start: 1, last: 2 }] {
            let (code, cause) = (Code::Internal, ErrorCode::Internal);
            check(&CallFailure::Part(error), code, cause, Applied::Unknown, 0);
        }
    }

    #[test]
    fn every_refusal_of_the_meta_group_has_its_status() {
        use {Code as C, ErrorCode as E};
        let node = NodeId(1);
        let (name, state, what, address) = (text(), text(), text(), text());
        let table = [
            (MetaError::UnknownFilter { filter: FilterId(1) }, C::NotFound, E::UnknownFilter, 0),
            (MetaError::NameTaken { name: text() }, C::AlreadyExists, E::NameTaken, 0),
            (MetaError::Busy { name, state }, C::Unavailable, E::FilterBusy, 100),
            (MetaError::UnknownNode { node }, C::NotFound, E::UnknownNode, 0),
            (MetaError::AddressTaken { address, node }, C::AlreadyExists, E::BadChange, 0),
            (MetaError::TooFewNodes { what: text() }, C::FailedPrecondition, E::BadChange, 0),
            (MetaError::BadMove { what: text() }, C::FailedPrecondition, E::BadChange, 0),
            (MetaError::BadSplit { what: text() }, C::FailedPrecondition, E::BadChange, 0),
            (MetaError::BadMerge { what: text() }, C::FailedPrecondition, E::BadChange, 0),
            (MetaError::ShardBusy { what: text() }, C::Unavailable, E::FilterBusy, 100),
            (MetaError::BadVersion { what: text() }, C::FailedPrecondition, E::BadChange, 0),
            (MetaError::ExpiryChanged { filter: FilterId(1) }, C::Unavailable, E::FilterBusy, 100),
            (MetaError::Quota { what: text() }, C::ResourceExhausted, E::Quota, 0),
            (MetaError::NotFormed, C::Unavailable, E::NotFormed, 1000),
            (MetaError::BadSettings { what }, C::InvalidArgument, E::Invalid, 0),
        ];
        for (error, code, cause, retry_after_ms) in table {
            check(&CallFailure::Meta(error), code, cause, Applied::No, retry_after_ms);
        }
    }

    fn check(
        failure: &CallFailure,
        code: Code,
        cause: ErrorCode,
        applied: Applied,
        retry_after_ms: u32,
    ) {
        let status = status(failure);
        assert_eq!((status.code(), status.message()), (code, &*failure.to_string()));
        let detail: ErrorDetail = detail_of(&status).unwrap();
        assert_eq!((detail.code(), detail.applied()), (cause, applied), "{failure}");
        assert_eq!(detail.retry_after_ms, retry_after_ms, "{failure}");
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let what = "é".repeat(ERROR_MESSAGE_BYTES_MAX);
        let status = status(&CallFailure::Invalid { what: format!("a{what}") });
        assert_eq!(status.message().len(), ERROR_MESSAGE_BYTES_MAX - 1);
        assert!(status.message().ends_with('é'));
    }

    /// Some libraries read the code and the message in the details alone, and others refuse details with other ones.
    #[test]
    fn details_repeat_the_status() {
        let denied = status(&CallFailure::Denied { what: text() });
        for status in [unauthenticated(&denied), denied] {
            let detail: ErrorDetail = detail_of(&status).unwrap();
            assert_eq!(detail.code(), ErrorCode::Denied);
            let details = details_of(status.code(), status.message(), &detail);
            assert_eq!(status.details(), details);
        }
    }

    /// Libraries read 8 KiB of headers, in which a byte of a message takes three, and one of the details 4/3.
    #[test]
    fn the_longest_status_fits_the_headers() {
        let status = status(&CallFailure::Invalid { what: "é".repeat(ERROR_MESSAGE_BYTES_MAX) });
        let header_bytes = 3 * status.message().len() + status.details().len().div_ceil(3) * 4;
        assert!(header_bytes <= 8 << 10, "{header_bytes}");
        assert!(header_bytes >= 7 << 10, "{header_bytes}");
    }
}
