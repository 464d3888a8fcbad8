//! Limits what a request may cost before its handler sees it: the bytes that are held while it arrives,
//! the time that it takes to arrive, and the time that its response waits to be read.
//!
//! It runs behind the gate, so refused callers use none of the budget. What nodes send each other has budgets of its own:
//! one for their calls, and one for the messages of links; the exchange and the streams of jobs bypass it, whose own
//! limits bound them. Nothing waits for room, so Raft never does: without room a request is refused, or a link ends.
//!
//! The parts of a message that has not come as a whole are held by tonic, behind this body and before the codec, which
//! gets whole messages only: so they are counted here, where its head is seen. tonic keeps the buffer of the largest
//! message of a stream as long as the stream, which counts, too.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::Instant;
use umbel_ports::ConnectionHandle;

use super::budget::Budget;
use super::console;
use super::deadlines::timeout_of;
use super::limits::{NODE_REQUESTS_BYTES_MAX, STREAM_TIMEOUT_DEFAULT, STREAM_TIMEOUT_MAX};
use super::unread;

mod answers;
mod body;

#[cfg(test)]
mod admission_test;

use body::AdmittedBody;

/// The bytes that requests in progress may hold.
#[derive(Clone)]
pub(super) struct Budgets {
    of_clients: Arc<Budget>,
    of_nodes: Arc<Budget>,
    of_links: Arc<Budget>,
}

impl Budgets {
    /// A budget for the requests of clients, one for those of nodes, and one for the messages of links.
    pub(super) fn new(of_clients: Arc<Budget>) -> Self {
        let of_nodes = Budget::of_bytes(NODE_REQUESTS_BYTES_MAX);
        Self { of_clients, of_nodes, of_links: Budget::of_links() }
    }
}

/// How a call uses request and response streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CallManner {
    /// One request message, one response; also plain pages.
    Unary,
    /// Many request messages, one response, within a time limit.
    Takes,
    /// The same without a time limit: the restore of a backup.
    TakesLong,
    /// One request message, many responses, within a time limit.
    Gives,
    /// Many responses, for as long as the client reads them: a backup, a scrub, or something that is watched.
    GivesLong,
    /// Many request messages, many responses, within a time limit.
    Talks,
    /// The same without a time limit: each request has its own.
    TalksLong,
    /// One request of a node, one response: who is there, or that it founds a cluster.
    PeerUnary,
    /// A link between nodes.
    Link,
    /// Another stream between nodes, or between workers of a job, whose own limits bound it.
    Peer,
}

impl CallManner {
    fn of(path: &str) -> Self {
        if console::is_stream(path) {
            return Self::GivesLong;
        }
        let Some((service, method)) = path.trim_start_matches('/').split_once('/') else {
            return Self::Unary;
        };
        match (service, method) {
            ("umbel.v1.Peer", "Adopt" | "WhoAreYou") => Self::PeerUnary,
            ("umbel.v1.Peer", "Link") => Self::Link,
            ("umbel.v1.Peer" | "umbel.v1.JobControl" | "umbel.v1.JobExchange", _) => Self::Peer,
            ("umbel.v1.Filters", "Import") => Self::Takes,
            ("umbel.v1.Admin", "Restore") => Self::TakesLong,
            ("umbel.v1.Filters", "Export") => Self::Gives,
            ("umbel.v1.Filters", "InsertStream" | "ContainsStream") => Self::TalksLong,
            ("umbel.v1.Admin", "Backup" | "Scrub") | ("grpc.health.v1.Health", "Watch") => {
                Self::GivesLong
            }
            (service, _) if service.starts_with("grpc.reflection.") => Self::Talks,
            _ => Self::Unary,
        }
    }

    const fn takes_many(self) -> bool {
        matches!(self, Self::Takes | Self::TakesLong | Self::Talks | Self::TalksLong)
    }

    const fn gives_many(self) -> bool {
        matches!(self, Self::Gives | Self::GivesLong | Self::Talks | Self::TalksLong)
    }
}

/// Lets a request's body arrive within the budget and in time, and limits how long its responses may wait.
pub(super) async fn admit(
    State(budgets): State<Budgets>,
    request: Request,
    next: Next,
) -> Response {
    let manner = CallManner::of(request.uri().path());
    if manner == CallManner::Peer {
        return next.run(request).await;
    }
    if manner == CallManner::Link {
        let lease = budgets.of_links.lease_on(request.extensions().get().cloned());
        return next.run(request.map(|body| Body::new(AdmittedBody::of_link(body, lease)))).await;
    }
    let ends_at = match manner {
        CallManner::Takes | CallManner::Gives | CallManner::Talks => {
            let named = timeout_of(request.headers()).map(|named| named.min(STREAM_TIMEOUT_MAX));
            Some(Instant::now() + named.unwrap_or(STREAM_TIMEOUT_DEFAULT))
        }
        CallManner::Unary
        | CallManner::PeerUnary
        | CallManner::TakesLong
        | CallManner::GivesLong
        | CallManner::TalksLong
        | CallManner::Link
        | CallManner::Peer => None,
    };
    let connection: Option<ConnectionHandle> =
        manner.gives_many().then(|| request.extensions().get().cloned()).flatten();
    let budget = match manner {
        CallManner::PeerUnary => &budgets.of_nodes,
        _ => &budgets.of_clients,
    };
    let lease = budget.lease();
    let request = if request.body().is_end_stream() {
        request
    } else {
        request.map(|body| {
            let lease = Arc::clone(&lease);
            Body::new(AdmittedBody::new(body, lease, manner.takes_many(), ends_at))
        })
    };
    let (uri, began) = (request.uri().clone(), Instant::now());
    let response = unread::answered(&uri, began, next.run(request).await);
    // The handler is done with the request, unless it still reads the body, which has its own reference.
    drop(lease);
    if manner.gives_many() {
        response.map(|body| answers::paced(body, connection, ends_at))
    } else {
        response
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    /// Each call's manner agrees with its declaration in the interface.
    #[test]
    fn every_call_has_its_manner() {
        let files = prost_types::FileDescriptorSet::decode(umbel_proto::DESCRIPTORS).unwrap();
        for service in files.file.iter().flat_map(|file| &file.service) {
            for method in &service.method {
                let path = format!("/umbel.v1.{}/{}", service.name(), method.name());
                let manner = CallManner::of(&path);
                let is_right = match (method.client_streaming(), method.server_streaming()) {
                    (false, false) if service.name() == "Peer" => manner == CallManner::PeerUnary,
                    _ if path == "/umbel.v1.Peer/Link" => manner == CallManner::Link,
                    _ if matches!(service.name(), "Peer" | "JobControl" | "JobExchange") => {
                        manner == CallManner::Peer
                    }
                    (false, false) => manner == CallManner::Unary,
                    (true, false) => matches!(manner, CallManner::Takes | CallManner::TakesLong),
                    (false, true) => matches!(manner, CallManner::Gives | CallManner::GivesLong),
                    (true, true) => matches!(manner, CallManner::Talks | CallManner::TalksLong),
                };
                assert!(is_right, "{path} is {manner:?}");
            }
        }
        assert_eq!(CallManner::of("/metrics"), CallManner::Unary);
        assert_eq!(CallManner::of("/console"), CallManner::Unary);
        assert_eq!(CallManner::of("/console/events/cluster"), CallManner::GivesLong);
    }
}
