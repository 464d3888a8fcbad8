//! The gate before every call: identifies the caller and checks whether it may make the call.
//!
//! It runs in front of the router, so a path without an entry here needs the administrator's verb.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;
use umbel_coordinator::Coordinator;
use umbel_engine::meta::{ClusterVerb, FilterVerb};
use umbel_ports::{ConnectionHandle, PeerIdentity};

use super::audit::{AuditLine, Outcome};
use super::caller::Need;
use super::console;
use super::cross_site;
use super::deadlines::Came;
use super::entrance::{Entrance, Refused};
use super::former_clients;

/// Calls that carry many requests, each of which passes the gate like a call of its own.
const STREAMS_OF_REQUESTS: [&str; 2] =
    ["/umbel.v1.Filters/InsertStream", "/umbel.v1.Filters/ContainsStream"];

impl Need {
    /// What a path requires of the caller; the path of a gRPC call is `/SERVICE/METHOD`.
    fn of(path: &str) -> Self {
        match path {
            "/livez" | "/readyz" => return Self::Nothing,
            "/metrics" => return Self::Cluster(ClusterVerb::Metrics),
            _ => {}
        }
        if let Some(need) = console::need(path) {
            return need;
        }
        let mut parts = path.trim_start_matches('/').splitn(2, '/');
        let (service, method) =
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        match service {
            "umbel.v1.Filters" => Self::of_filters(method),
            "umbel.v1.Admin" => Self::of_admin(method),
            "umbel.v1.Jobs" => Self::Cluster(ClusterVerb::Jobs),
            // The token in the request proves the caller; the handler checks it.
            "umbel.v1.Enrolment" if method == "Enrol" => Self::Nothing,
            "umbel.v1.Enrolment" if method == "Renew" => Self::Node,
            "umbel.v1.Access" if method == "WhoAmI" => Self::Somebody,
            "umbel.v1.Peer" | "umbel.v1.JobControl" | "umbel.v1.JobExchange" => Self::Node,
            "grpc.health.v1.Health" => Self::Nothing,
            "grpc.reflection.v1.ServerReflection" | "grpc.reflection.v1alpha.ServerReflection" => {
                Self::Somebody
            }
            _ => Self::Cluster(ClusterVerb::Admin),
        }
    }

    fn of_filters(method: &str) -> Self {
        match method {
            "Info" | "Contains" | "ContainsStream" | "ContainsAny" | "Overlap" => {
                Self::Filter(FilterVerb::Read)
            }
            "Insert" | "InsertStream" | "Flush" | "Merge" | "Intersect" => {
                Self::Filter(FilterVerb::Insert)
            }
            "Remove" => Self::Filter(FilterVerb::Remove),
            "Create" | "Drop" | "Clear" | "Rotate" | "Rename" | "Import" | "Expire" => {
                Self::Filter(FilterVerb::Manage)
            }
            "Export" => Self::Filter(FilterVerb::Export),
            // A list shows only the filters that the caller may see.
            "List" => Self::Somebody,
            // A session is of use only with a filter, and the cluster remembers it.
            "OpenSession" => Self::SomeFilter,
            _ => Self::Cluster(ClusterVerb::Admin),
        }
    }

    fn of_admin(method: &str) -> Self {
        match method {
            // Clients learn by it which other nodes there are, whatever they call them for, and find leaders.
            "ShardMap" => Self::Somebody,
            "Status" => Self::Cluster(ClusterVerb::Metrics),
            "Join" => Self::NodeOr(ClusterVerb::Admin),
            "Backup" | "Restore" => Self::Cluster(ClusterVerb::Backup),
            _ => Self::Cluster(ClusterVerb::Admin),
        }
    }

    /// Whether each call with this need is written to the audit log.
    fn is_audited(self, path: &str) -> bool {
        // Those about filters, too: people order them.
        if console::is_action(path) {
            return true;
        }
        let is_followed = path.ends_with("/ListJobs")
            || path.ends_with("/DescribeJob")
            || console::is_stream(path);
        match self {
            Self::Cluster(ClusterVerb::Metrics)
            | Self::Nothing
            | Self::Somebody
            | Self::Filter(_)
            | Self::SomeFilter
            | Self::Node => false,
            Self::Cluster(_) | Self::NodeOr(_) => !is_followed,
        }
    }
}

/// The state of the gate.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) coordinator: Arc<Coordinator>,
    /// Whether a node's certificate must name the node.
    pub(super) needs_member: bool,
}

/// Adds the caller to the request's extensions and lets the request pass, or answers with a refusal.
pub(super) async fn gate(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(Came(Instant::now()));
    let is_former = former_clients::is_former(request.headers());
    let response = pass(gate, request, next).await;
    if is_former { former_clients::readable(response) } else { response }
}

/// The answer of whoever the request gets to.
async fn pass(
    Gate { coordinator, needs_member }: Gate,
    mut request: Request,
    next: Next,
) -> Response {
    // An unknown connection is anonymous.
    let connection = request.extensions().get().cloned().unwrap_or(PeerIdentity::Anonymous);
    let path: Arc<str> = request.uri().path().into();
    if is_call(&path)
        && let Err(refused) = cross_site::check(request.headers())
    {
        return refused.into_response();
    }
    let need = Need::of(&path);
    let from = request.extensions().get().cloned();
    let shown = request.headers().get(header::AUTHORIZATION).cloned();
    let entrance = Entrance { coordinator, needs_member, connection, from, shown, path, need };
    let caller = entrance.identify().await;
    if let Err(refused) = entrance.check(&caller) {
        return answer(request.headers(), &refused);
    }
    if caller.is_somebody()
        && let Some(connection) = request.extensions().get::<ConnectionHandle>()
    {
        connection.prove();
    }
    if let Err(refused) = entrance.charge(&caller) {
        return answer(request.headers(), &refused);
    }
    let audited = need.is_audited(&entrance.path).then(|| AuditLine::begin(&caller));
    let caller = match &audited {
        Some(line) => {
            request.extensions_mut().insert(line.note());
            caller.noting(line.note())
        }
        None => caller,
    };
    request.extensions_mut().insert(caller);
    if STREAMS_OF_REQUESTS.contains(&&*entrance.path) {
        request.extensions_mut().insert(entrance.clone());
    }
    let response = next.run(request).await;
    if let Some(line) = audited {
        line.answered(Outcome::of_response(&response));
    }
    response
}

/// Whether a path is that of a gRPC call of the services here.
fn is_call(path: &str) -> bool {
    path.starts_with("/umbel.v1.") || path.starts_with("/grpc.")
}

/// Whether a request is a gRPC call.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// A gRPC status, or a plain text page for a plain HTTP client.
fn answer(headers: &HeaderMap, refused: &Refused) -> Response {
    if is_grpc(headers) {
        refused.status.clone().into_http()
    } else {
        (refused.page, format!("{}\n", refused.text)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use ClusterVerb::{Admin, Backup, Jobs, Metrics};
    use FilterVerb::{Export, Insert, Manage, Read};
    use Need::{Cluster, Filter, Node, NodeOr, SomeFilter, Somebody};
    use axum::body::Body;
    use axum::http::{StatusCode, Uri};
    use axum::middleware::from_fn_with_state;
    use axum::{Extension, Router};
    use prost::Message as _;
    use tower::ServiceExt as _;
    use umbel_ports::channel::PeerAddress;

    use super::*;
    use crate::audit;
    use crate::audit_recorder::AuditRecorder;
    use crate::caller::Caller;

    #[tokio::test]
    async fn the_line_of_a_call_has_the_address_of_its_caller() {
        let recorder = AuditRecorder::default();
        let _recording = recorder.begin();
        let coordinator = Arc::new(Coordinator::without_cluster());
        let gated = from_fn_with_state(Gate { coordinator, needs_member: false }, gate);
        let routes = Router::new().fallback(async || StatusCode::CONFLICT).layer(gated);
        for path in ["/umbel.v1.Admin/Drain", "/console/actions/clear", "/umbel.v1.Filters/Info"] {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = Uri::from_static(path);
            let kind = HeaderValue::from_static("application/grpc");
            request.headers_mut().insert(header::CONTENT_TYPE, kind);
            request.extensions_mut().insert(PeerIdentity::Node);
            request.extensions_mut().insert(PeerAddress::from("10.0.0.7:1".to_owned()));
            routes.clone().oneshot(request).await.unwrap();
        }
        // Calls about filters are many, and are not audited; what people order by the console is.
        let line = |path: &str| {
            format!(
                r#"called who="node" from="10.0.0.7:1" call="{path}" outcome="failed" reason="409 Conflict""#
            )
        };
        let expected = ["/umbel.v1.Admin/Drain", "/console/actions/clear"].map(line);
        assert_eq!(recorder.lines(), expected);
    }

    /// As a call does that finds out which filter it is about.
    async fn denies(Extension(caller): Extension<Caller>) -> StatusCode {
        audit::denied(&caller, Some("verb=manage filter=seen"), "no right");
        StatusCode::FORBIDDEN
    }

    #[tokio::test]
    async fn a_call_that_is_denied_inside_has_one_line() {
        let recorder = AuditRecorder::default();
        let _recording = recorder.begin();
        let coordinator = Arc::new(Coordinator::without_cluster());
        let gated = from_fn_with_state(Gate { coordinator, needs_member: false }, gate);
        let routes = Router::new().fallback(denies).layer(gated);
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = Uri::from_static("/console/actions/drop");
        request.extensions_mut().insert(PeerIdentity::Node);
        routes.oneshot(request).await.unwrap();
        let denied =
            r#"denied who="node" call="/console/actions/drop" ordered="verb=manage filter=seen""#;
        let expected = format!(r#"{denied} outcome="refused" reason="no right""#);
        assert_eq!(recorder.lines(), [expected]);
    }

    #[test]
    fn what_nobody_thought_of_is_an_administrators() {
        for path in ["/livez", "/readyz", "/grpc.health.v1.Health/Check", "/console"] {
            assert_eq!(Need::of(path), Need::Nothing, "{path}");
        }
        let strange = [
            "/",
            "",
            "/livez/",
            "//livez",
            "/umbel.v1.Filters/New",
            "/x",
            "/umbel.v1.Admin",
            "/console/x",
            "/consoles",
        ];
        for path in strange {
            assert_eq!(Need::of(path), Cluster(Admin), "{path}");
        }
    }

    /// Every new call must be added here.
    const NEEDS: [(&str, Need); 54] = [
        ("Access/Put", Cluster(Admin)),
        ("Access/Revoke", Cluster(Admin)),
        ("Access/SetQuota", Cluster(Admin)),
        ("Access/ListPrincipals", Cluster(Admin)),
        ("Access/WhoAmI", Somebody),
        ("Admin/Status", Cluster(Metrics)),
        ("Admin/ShardMap", Somebody),
        ("Admin/Join", NodeOr(Admin)),
        ("Admin/PutJoinToken", Cluster(Admin)),
        ("Admin/Drain", Cluster(Admin)),
        ("Admin/Remove", Cluster(Admin)),
        ("Admin/MoveShard", Cluster(Admin)),
        ("Admin/SplitShard", Cluster(Admin)),
        ("Admin/SetAutoSplit", Cluster(Admin)),
        ("Admin/Upgrade", Cluster(Admin)),
        ("Admin/Backup", Cluster(Backup)),
        ("Admin/Restore", Cluster(Backup)),
        ("Admin/Scrub", Cluster(Admin)),
        ("Admin/MergeShard", Cluster(Admin)),
        ("Enrolment/Enrol", Need::Nothing),
        ("Enrolment/Renew", Node),
        ("Filters/Create", Filter(Manage)),
        ("Filters/Drop", Filter(Manage)),
        ("Filters/List", Somebody),
        ("Filters/Info", Filter(Read)),
        ("Filters/Insert", Filter(Insert)),
        ("Filters/InsertStream", Filter(Insert)),
        ("Filters/Contains", Filter(Read)),
        ("Filters/ContainsStream", Filter(Read)),
        ("Filters/ContainsAny", Filter(Read)),
        ("Filters/Remove", Filter(FilterVerb::Remove)),
        ("Filters/Expire", Filter(Manage)),
        ("Filters/Clear", Filter(Manage)),
        ("Filters/Rotate", Filter(Manage)),
        ("Filters/Rename", Filter(Manage)),
        ("Filters/Merge", Filter(Insert)),
        ("Filters/Intersect", Filter(Insert)),
        ("Filters/Overlap", Filter(Read)),
        ("Filters/Flush", Filter(Insert)),
        ("Filters/Export", Filter(Export)),
        ("Filters/Import", Filter(Manage)),
        ("Filters/OpenSession", SomeFilter),
        ("JobControl/Control", Node),
        ("JobExchange/Frames", Node),
        ("Jobs/SubmitJob", Cluster(Jobs)),
        ("Jobs/ListJobs", Cluster(Jobs)),
        ("Jobs/DescribeJob", Cluster(Jobs)),
        ("Jobs/CancelJob", Cluster(Jobs)),
        ("Jobs/ResumeJob", Cluster(Jobs)),
        ("Peer/Link", Node),
        ("Peer/Exchange", Node),
        ("Peer/Scrub", Node),
        ("Peer/Adopt", Node),
        ("Peer/WhoAreYou", Node),
    ];

    #[test]
    fn every_call_has_its_need() {
        let files = prost_types::FileDescriptorSet::decode(umbel_proto::DESCRIPTORS).unwrap();
        let services = files.file.iter().flat_map(|file| &file.service);
        let calls = services.flat_map(|service| {
            let name = |method: &str| format!("{}/{method}", service.name());
            service.method.iter().map(move |method| name(method.name()))
        });
        let needed = calls.map(|call| (Need::of(&format!("/umbel.v1.{call}")), call));
        let mut found: Vec<_> = needed.map(|(need, call)| (call, need)).collect();
        found.sort_by_key(|(call, _)| call.split('/').next().map(str::to_owned));
        assert_eq!(found, NEEDS.map(|(call, need)| (call.to_owned(), need)));
    }
}
