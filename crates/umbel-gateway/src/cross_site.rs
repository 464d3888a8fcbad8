//! Refuses gRPC calls that a browser sends for a page.
//!
//! A browser shows a client certificate, and reaches a node of its own machine, for any page that it shows. What keeps pages from
//! calls are headers that scripts cannot choose:
//!
//! ```text
//! the page is of             browser sends                                  refused by
//! ─────────────────────────  ─────────────────────────────────────────────  ─────────────────────────
//! another site               text/plain, a form or none, without asking     its content type
//! another site               application/grpc, after asking by OPTIONS      the content type of OPTIONS
//! this node's address, by    any content type, with `Origin`                `Origin`
//!   DNS rebinding
//! ```
//!
//! Clients of gRPC send `application/grpc` and no `Origin`; gRPC-Web, which pages speak, is not served. The console's own requests are
//! checked by `console::guard`.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::console::is_cross_site;
use super::gate::is_grpc;

/// Why a call is refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NoClient {
    /// It is of a content type that pages may send to other sites without asking.
    #[error("a gRPC call is of content type application/grpc")]
    Kind,
    /// A page sent it.
    #[error("gRPC calls of pages are refused: leave the header origin out, or use the console")]
    Page,
}

impl IntoResponse for NoClient {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Kind => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Page => StatusCode::FORBIDDEN,
        };
        (status, format!("{self}\n")).into_response()
    }
}

/// Refuses what no client of gRPC sends.
///
/// # Errors
/// If the content type is not gRPC's, or a page sent the request.
pub(super) fn check(headers: &HeaderMap) -> Result<(), NoClient> {
    if !is_grpc(headers) {
        Err(NoClient::Kind)
    } else if headers.contains_key(header::ORIGIN) || is_cross_site(headers) {
        Err(NoClient::Page)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn checked(pairs: &[(&'static str, &'static str)]) -> Result<(), NoClient> {
        let header =
            |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        check(&pairs.iter().map(header).collect())
    }

    #[test]
    fn clients_pass_and_pages_do_not() {
        const KIND: (&str, &str) = ("content-type", "application/grpc");
        assert_eq!(checked(&[KIND]), Ok(()));
        assert_eq!(checked(&[("content-type", "application/grpc+proto")]), Ok(()));
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json"] {
            assert_eq!(checked(&[("content-type", kind)]), Err(NoClient::Kind), "{kind}");
        }
        assert_eq!(checked(&[]), Err(NoClient::Kind));
        assert_eq!(checked(&[KIND, ("origin", "https://evil.example")]), Err(NoClient::Page));
        assert_eq!(checked(&[KIND, ("origin", "null")]), Err(NoClient::Page));
        assert_eq!(checked(&[KIND, ("sec-fetch-site", "cross-site")]), Err(NoClient::Page));
    }
}
