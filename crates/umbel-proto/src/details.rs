//! The details of a gRPC status (`grpc-status-details-bin`): by convention a `google.rpc.Status`, which has the status's code
//! and message again, and messages with the names of their types. Libraries of other languages read them so.
//!
//! Former releases wrote a message of the details alone, and read nothing else. It is still read, and written for them: it has
//! a number in a field that is text or a list in the other form, or the other way round, so neither form is taken for the other.

use prost::Message;
use prost::bytes::Bytes;
use tonic::{Code, Status};

use crate::v1::{ErrorDetail, JobOptions};

/// What the name of a type follows, by convention.
const TYPE_PREFIX: &str = "type.googleapis.com/";

/// A message that stands in the details of a status.
pub trait StatusDetail: Message + Default {
    /// The full name of its type.
    const TYPE_NAME: &'static str;
}

impl StatusDetail for ErrorDetail {
    const TYPE_NAME: &'static str = "umbel.v1.ErrorDetail";
}

impl StatusDetail for JobOptions {
    const TYPE_NAME: &'static str = "umbel.v1.JobOptions";
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<TypedMessage>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct TypedMessage {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// The details of a status with this code and message.
#[must_use]
pub fn details_of<D: StatusDetail>(code: Code, message: &str, detail: &D) -> Bytes {
    let type_url = format!("{TYPE_PREFIX}{}", D::TYPE_NAME);
    let value = detail.encode_to_vec().into();
    let details = vec![TypedMessage { type_url, value }];
    RpcStatus { code: code.into(), message: message.to_owned(), details }.encode_to_vec().into()
}

/// The message of this type in a status's details; None if there is none.
#[must_use]
pub fn detail_of<D: StatusDetail>(status: &Status) -> Option<D> {
    let details = status.details();
    if details.is_empty() {
        return None;
    }
    let Ok(rpc) = RpcStatus::decode(details) else {
        return D::decode(details).ok();
    };
    let is_asked_for =
        |typed: &TypedMessage| typed.type_url.rsplit('/').next() == Some(D::TYPE_NAME);
    let typed = rpc.details.into_iter().find(is_asked_for)?;
    D::decode(typed.value).ok()
}

/// What former releases wrote in the place of these details: the message alone. None if they are no `google.rpc.Status`
/// that holds one.
#[must_use]
pub fn former_details(details: Bytes) -> Option<Bytes> {
    let rpc = RpcStatus::decode(details).ok()?;
    Some(rpc.details.into_iter().next()?.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{Applied, ErrorCode, JobOption};

    fn detail() -> ErrorDetail {
        ErrorDetail {
            code: ErrorCode::Quota.into(),
            applied: Applied::No.into(),
            retry_after_ms: 7,
        }
    }

    fn status(details: Bytes) -> Status {
        Status::with_details(Code::ResourceExhausted, "no", details)
    }

    /// The bytes that other languages read, by the numbers of the fields.
    #[test]
    fn details_are_a_status_of_google_rpc() {
        let value = detail().encode_to_vec();
        let name = b"type.googleapis.com/umbel.v1.ErrorDetail";
        let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
        let any = [&[0x0a, length(name)][..], name, &[0x12, length(&value)], &value[..]].concat();
        let expected = [&[0x08, 8, 0x12, 2][..], b"no", &[0x1a, length(&any)], &any[..]].concat();
        assert_eq!(details_of(Code::ResourceExhausted, "no", &detail()), expected);
    }

    #[test]
    fn both_forms_are_read_and_nothing_else() {
        let written = status(details_of(Code::ResourceExhausted, "no", &detail()));
        assert_eq!(detail_of(&written), Some(detail()));
        assert_eq!(detail_of::<JobOptions>(&written), None);
        let former = ErrorDetail { retry_after_ms: 0, ..detail() };
        assert_eq!(detail_of(&status(former.encode_to_vec().into())), Some(former));
        let option = JobOption { name: "--key".to_owned(), ..JobOption::default() };
        let options = JobOptions { options: vec![option] };
        assert_eq!(detail_of(&status(options.encode_to_vec().into())), Some(options.clone()));
        let written = status(details_of(Code::FailedPrecondition, "", &options));
        assert_eq!(detail_of(&written), Some(options));
        // A former release takes these details for none, and not for others.
        ErrorDetail::decode(written.details()).unwrap_err();
        assert_eq!(detail_of::<ErrorDetail>(&status(Bytes::new())), None);
        assert_eq!(detail_of::<ErrorDetail>(&status(Bytes::from_static(b"\xff\xff"))), None);
    }

    #[test]
    fn former_releases_read_the_message_alone() {
        let written = details_of(Code::ResourceExhausted, "no", &detail());
        let former = former_details(written).unwrap();
        assert_eq!(ErrorDetail::decode(former.clone()), Ok(detail()));
        assert_eq!(former_details(former), None, "it is in that form already");
        assert_eq!(former_details(Bytes::new()), None);
        assert_eq!(former_details(Bytes::from_static(b"\xff\xff")), None);
    }
}
