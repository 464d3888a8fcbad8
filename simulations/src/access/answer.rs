//! What comes of a call of somebody who may have no right to it.

use prost::Message;
use tonic::{Code, Status};
use umbel_client::proto::{ErrorCode, ErrorDetail};

/// What came of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It was carried out; names that it showed.
    Done(Vec<String>),
    /// It was denied, in these words.
    Denied(String),
    /// It was refused for another reason, which the caller gets.
    Refused(String),
    /// No answer, or one that only says to retry later or elsewhere.
    Open(String),
}

/// What a status says.
pub(crate) fn answer_of(done: Result<Vec<String>, Status>) -> Answer {
    let status = match done {
        Ok(names) => return Answer::Done(names),
        Err(status) => status,
    };
    let detail = ErrorDetail::decode(status.details()).unwrap_or_default();
    let text = format!("{:?}: {}", status.code(), status.message());
    match (detail.code(), status.code()) {
        (ErrorCode::Denied, _) => Answer::Denied(text),
        // A connection that broke, and a node that does not know enough.
        (ErrorCode::Unspecified | ErrorCode::NotFormed, _)
        | (_, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown) => {
            Answer::Open(text)
        }
        _ => Answer::Refused(text),
    }
}
