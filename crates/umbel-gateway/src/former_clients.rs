//! Details of errors for clients, nodes and workers of the former release, which read no `google.rpc.Status` in
//! `grpc-status-details-bin`, only the message that it holds: without it, a partial failure reads as one that changed nothing.
//!
//! They are known by the header `user-agent`, which begins with the name of the library in former releases, and with that of
//! the program in this one:
//!
//! ```text
//! tonic/0.14.0                        of the former release, or a program that uses tonic and does not name itself
//! umbel-client/0.1.0 tonic/0.14.0     of this release; nodes and workers: umbel/0.1.0 tonic/0.14.0
//! grpc-go/1.70.0                      a library of another language
//! ```

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use tonic::metadata::{BinaryMetadataValue, MetadataMap};
use umbel_proto::former_details;

/// The header of a status's details.
const DETAILS: &str = "grpc-status-details-bin";

/// Whether a call comes from the former release.
pub(super) fn is_former(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT);
    agent.is_some_and(|agent| agent.as_bytes().starts_with(b"tonic/"))
}

/// The response as the former release reads it.
pub(super) fn readable(mut response: Response) -> Response {
    rewrite(response.headers_mut());
    if response.body().is_end_stream() {
        return response;
    }
    response.map(|body| Body::new(FormerBody(body)))
}

/// Replaces details of a status by those that former releases wrote.
fn rewrite(headers: &mut HeaderMap) {
    if !headers.contains_key(DETAILS) {
        return;
    }
    let mut metadata = MetadataMap::from_headers(std::mem::take(headers));
    let details = metadata.get_bin(DETAILS).and_then(|details| details.to_bytes().ok());
    if let Some(former) = details.and_then(former_details) {
        metadata.insert_bin(DETAILS, BinaryMetadataValue::from_bytes(&former));
    }
    *headers = metadata.into_headers();
}

/// A body whose trailers may be a status.
struct FormerBody(Body);

impl HttpBody for FormerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut part = ready!(Pin::new(&mut self.0).poll_frame(cx));
        if let Some(Ok(frame)) = &mut part
            && let Some(trailers) = frame.trailers_mut()
        {
            rewrite(trailers);
        }
        Poll::Ready(part)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use axum::http::HeaderValue;
    use prost::Message as _;
    use tonic::Status;
    use umbel_node::failure::CallFailure;
    use umbel_proto::detail_of;
    use umbel_proto::v1::{ErrorCode, ErrorDetail};

    use super::*;
    use crate::errors;

    #[test]
    fn who_names_a_library_alone_that_former_clients_use_is_one() {
        let is_former = |agent: &'static str| {
            let agent = (header::USER_AGENT, HeaderValue::from_static(agent));
            is_former(&[agent].into_iter().collect())
        };
        assert!(is_former("tonic/0.14.9"));
        for agent in
            ["umbel-client/0.1.0 tonic/0.14.9", "grpc-go/1.70.0", "grpc-python/1.60.0 grpc-c/1", ""]
        {
            assert!(!is_former(agent), "{agent}");
        }
        assert!(!super::is_former(&HeaderMap::new()));
    }

    fn refused() -> Status {
        errors::status(&CallFailure::Denied { what: "no".to_owned() })
    }

    /// Whether details are a message alone, which says what it said before.
    fn check(headers: &HeaderMap) {
        let status = Status::from_header_map(headers).unwrap();
        assert_eq!((status.code(), status.message()), (refused().code(), refused().message()));
        let bare = ErrorDetail::decode(status.details()).unwrap();
        assert_eq!(bare.code(), ErrorCode::Denied);
        assert_eq!(detail_of(&status), Some(bare), "clients of this release read it, too");
    }

    #[test]
    fn a_status_is_rewritten_at_the_start_of_a_response() {
        let response = readable(refused().into_http());
        check(response.headers());
        let without_details = readable(errors::no_such_call().into_http::<Body>());
        assert!(!without_details.headers().contains_key(DETAILS));
    }

    #[tokio::test]
    async fn a_status_is_rewritten_at_the_end_of_a_stream() {
        /// A body of trailers alone.
        struct Ends(Option<HeaderMap>);
        impl HttpBody for Ends {
            type Data = Bytes;
            type Error = axum::Error;

            fn poll_frame(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
                Poll::Ready(self.0.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
        }
        let mut trailers = HeaderMap::new();
        refused().add_header(&mut trailers).unwrap();
        let mut body = readable(Response::new(Body::new(Ends(Some(trailers))))).into_body();
        let part = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().unwrap();
        check(part.trailers_ref().unwrap());
    }
}
