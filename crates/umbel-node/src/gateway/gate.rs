//! The gate before every call: who asks, and whether such a one may.
//!
//! It stands in front of the router, so a call that nobody thought of needs a client's certificate.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tonic::Status;

use crate::metrics;
use crate::ports::PeerIdentity;

/// Who may ask for something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Right {
    /// Everybody who reaches the port: whether the node lives and is ready.
    Anybody,
    /// Clients, and nodes.
    Client,
    /// Nodes.
    Node,
}

/// What everybody may ask: load balancers and kubelets have no certificate.
const OPEN: [&str; 2] = ["/livez", "/readyz"];

/// Services that everybody may call.
const OPEN_SERVICES: [&str; 1] = ["grpc.health.v1.Health"];

/// Services that nodes use among themselves, and workers of jobs on nodes.
const NODE_SERVICES: [&str; 3] = ["umbel.v1.Peer", "umbel.v1.JobControl", "umbel.v1.JobExchange"];

impl Right {
    /// What a path asks for; a path of a call is `/SERVICE/METHOD`.
    fn needed(path: &str) -> Self {
        let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        if NODE_SERVICES.contains(&service) {
            Self::Node
        } else if OPEN.contains(&path) || OPEN_SERVICES.contains(&service) {
            Self::Anybody
        } else {
            Self::Client
        }
    }

    /// What somebody has.
    const fn of(identity: &PeerIdentity) -> Self {
        match identity {
            // There is no TLS, or not yet: whoever reaches the port may do all.
            PeerIdentity::Unchecked | PeerIdentity::Node => Self::Node,
            PeerIdentity::Client(_) => Self::Client,
            PeerIdentity::Anonymous => Self::Anybody,
        }
    }
}

/// Lets a request pass, or answers it.
pub(super) async fn gate(request: Request, next: Next) -> Response {
    // Where the connection is not known, nobody is.
    let identity = request.extensions().get().unwrap_or(&PeerIdentity::Anonymous);
    let path = request.uri().path();
    let needed = Right::needed(path);
    if Right::of(identity) >= needed {
        return next.run(request).await;
    }
    tracing::warn!(target: "umbel::audit", who = %identity, path, "denied");
    metrics::call_denied();
    refusal(&request, identity, needed)
}

/// Why not, the same whether or not what was asked for exists.
fn refusal(request: &Request, identity: &PeerIdentity, needed: Right) -> Response {
    let is_known = *identity != PeerIdentity::Anonymous;
    let text = match (needed, is_known) {
        (Right::Node, _) => format!(
            "this call is for nodes of the cluster, whose certificates say umbel:node; the caller is \
             {identity}"
        ),
        _ => "this call needs a client's certificate (umbel:client:NAME): connect with --tls-cert and \
              --tls-key; `umbel cluster certs client` makes them"
            .to_owned(),
    };
    let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
        let status =
            if is_known { Status::permission_denied(text) } else { Status::unauthenticated(text) };
        return status.into_http();
    }
    let status = if is_known { StatusCode::FORBIDDEN } else { StatusCode::UNAUTHORIZED };
    (status, format!("{text}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn who_is_nobody_asks_for_life_only() {
        for path in ["/livez", "/readyz", "/grpc.health.v1.Health/Check"] {
            assert_eq!(Right::needed(path), Right::Anybody, "{path}");
        }
        for path in ["/metrics", "/", "", "/livez/", "//livez", "/umbel.v1.Filters/Insert", "/x"] {
            assert_eq!(Right::needed(path), Right::Client, "{path}");
        }
        assert_eq!(Right::of(&PeerIdentity::Anonymous), Right::Anybody);
        assert_eq!(Right::of(&PeerIdentity::Client("a".into())), Right::Client);
    }

    /// A service that is added must be thought of here.
    #[test]
    fn every_service_has_its_right() {
        let files = prost_types::FileDescriptorSet::decode(umbel_proto::DESCRIPTORS).unwrap();
        let mut services: Vec<(String, Right)> = Vec::new();
        for file in &files.file {
            for service in &file.service {
                let name = format!("{}.{}", file.package(), service.name());
                let rights: Vec<Right> = service
                    .method
                    .iter()
                    .map(|method| Right::needed(&format!("/{name}/{}", method.name())))
                    .collect();
                assert!(rights.windows(2).all(|pair| pair[0] == pair[1]));
                services.push((name, rights[0]));
            }
        }
        services.sort();
        let expected = [
            ("umbel.v1.Admin", Right::Client),
            ("umbel.v1.Filters", Right::Client),
            ("umbel.v1.JobControl", Right::Node),
            ("umbel.v1.JobExchange", Right::Node),
            ("umbel.v1.Jobs", Right::Client),
            ("umbel.v1.Peer", Right::Node),
        ];
        assert_eq!(services, expected.map(|(name, right)| (name.to_owned(), right)));
    }
}
