//! Classifies the results of calls whose caller may lack the right to make them.

use tonic::{Code, Status};
use umbel_client::proto::{ErrorCode, ErrorDetail};

/// The result of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It succeeded; the names that the response contained, if any.
    Done(Vec<String>),
    /// It was denied, with this error text.
    Denied(String),
    /// It was refused for another definite reason, with this error text.
    Refused(String),
    /// There was no response, or an error that asks the caller to retry later or at another node.
    Open(String),
}

/// Classifies a result by its status and error code.
pub(crate) fn answer_of(done: Result<Vec<String>, Status>) -> Answer {
    let status = match done {
        Ok(names) => return Answer::Done(names),
        Err(status) => status,
    };
    let detail: ErrorDetail = umbel_proto::detail_of(&status).unwrap_or_default();
    let text = format!("{:?}: {}", status.code(), status.message());
    match (detail.code(), status.code()) {
        (ErrorCode::Denied, _) => Answer::Denied(text),
        // The connection broke, the node does not know a formed cluster yet, or it stopped while the call was on its way.
        (ErrorCode::Unspecified | ErrorCode::NotFormed | ErrorCode::OutcomeUnknown, _)
        | (_, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown) => {
            Answer::Open(text)
        }
        _ => Answer::Refused(text),
    }
}
