//! Plain HTTP/1.1 endpoints for load balancers, kubelets and Prometheus, on the same port as gRPC.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use umbel_coordinator::Coordinator;
use umbel_node::Readiness;
use umbel_ports::PeerIdentity;

use super::RenderMetrics;
use super::caller::Caller;
use super::console::Hosts;
use super::errors;
use super::filter_series::FilterSeries;
use super::gate::is_grpc;

/// The answer to a request for the metrics under a host name that is not the node's.
const FOREIGN_HOST: &str = "this node, which listens on its own machine without TLS, does not show its metrics under this host \
                            name: use its address or localhost, or add the name to console_hosts\n";

/// Version of the text format that Prometheus reads.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The routes of these endpoints.
pub(super) fn pages(
    coordinator: Arc<Coordinator>,
    render_metrics: Option<RenderMetrics>,
    local_hosts: Option<Hosts>,
) -> Router {
    let (asked, series) = (Arc::clone(&coordinator), Arc::<FilterSeries>::default());
    let measured = async move |request: Request| {
        if local_hosts.as_ref().is_some_and(|hosts| is_rebound(hosts, &request)) {
            return (StatusCode::FORBIDDEN, FOREIGN_HOST).into_response();
        }
        // Without the gate there is no caller, and the page shows no filters.
        if request.extensions().get::<Caller>().is_some() {
            series.refresh(&asked).await;
        }
        let caller = request.extensions().get::<Caller>();
        let of_filters = caller.map(|caller| series.text(caller.readable()));
        metrics(render_metrics.as_ref(), &of_filters.unwrap_or_default())
    };
    Router::new()
        .route("/livez", get(async || "live\n"))
        .route("/readyz", get(move || async move { ready(&coordinator.readiness().await) }))
        .route("/metrics", get(measured))
}

/// Whether a page may have made a browser of this machine send the request, under a name of its own that resolves to the
/// node. Without TLS the browser does not notice: it shows the page what it gets.
fn is_rebound(hosts: &Hosts, request: &Request) -> bool {
    let shown = request.extensions().get::<PeerIdentity>();
    let is_plain = shown.is_none_or(|shown| *shown == PeerIdentity::Unchecked);
    is_plain && hosts.is_foreign(request.uri(), request.headers())
}

/// The answer where nothing is. A status of gRPC alone would be 200 to a probe with a wrong path, which would never fail.
pub(super) fn nothing(headers: &HeaderMap) -> Response {
    if is_grpc(headers) {
        errors::no_such_call().into_http()
    } else {
        let text = "there is no such page: /livez, /readyz and /metrics are there\n";
        (StatusCode::NOT_FOUND, text).into_response()
    }
}

/// The body names groups without a majority whatever the code is.
fn ready(readiness: &Readiness) -> Response {
    let code = match readiness.why_not {
        None => StatusCode::OK,
        Some(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, format!("{readiness}\n")).into_response()
}

fn metrics(render: Option<&RenderMetrics>, of_filters: &str) -> Response {
    match render {
        Some(render) => {
            let text = render() + of_filters;
            // A filter's name may contain markup, which the format cannot escape: browsers must not read
            // the text as HTML.
            let headers =
                [(header::CONTENT_TYPE, METRICS_TYPE), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
            (headers, text).into_response()
        }
        None => (StatusCode::NOT_FOUND, "this node records no metrics\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{HeaderValue, Uri};
    use tower::ServiceExt as _;
    use umbel_engine::GroupId;

    use super::*;

    #[test]
    fn a_page_that_is_not_there_is_404_and_a_call_a_status() {
        let mut headers = HeaderMap::new();
        assert_eq!(nothing(&headers).status(), StatusCode::NOT_FOUND);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let answer = nothing(&headers);
        assert_eq!(
            (answer.status(), &answer.headers()["grpc-status"]),
            (StatusCode::OK, &HeaderValue::from_static("12"))
        );
        assert!(answer.headers().contains_key("grpc-message"));
    }

    #[tokio::test]
    async fn metrics_are_shown_to_no_page_of_another_name() {
        let asked = async |local_hosts: Option<Hosts>, host: &'static str, shown: PeerIdentity| {
            let coordinator = Arc::new(Coordinator::without_cluster());
            let render: RenderMetrics = Arc::new(|| "umbel_epoch 1\n".to_owned());
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = Uri::from_static("/metrics");
            request.headers_mut().insert(header::HOST, HeaderValue::from_static(host));
            request.extensions_mut().insert(shown);
            let pages = pages(coordinator, Some(render), local_hosts);
            pages.oneshot(request).await.unwrap().status()
        };
        let hosts = || Some(Hosts::new(["node.example", "umbel.example"]));
        let plain = || PeerIdentity::Unchecked;
        for host in ["127.0.0.1:7300", "localhost", "node.example:7300", "umbel.example"] {
            assert_eq!(asked(hosts(), host, plain()).await, StatusCode::OK, "{host}");
        }
        assert_eq!(asked(hosts(), "evil.example:7300", plain()).await, StatusCode::FORBIDDEN);
        // With TLS the name is in the certificate; and others than this machine reach other addresses.
        let alice = PeerIdentity::Client("alice".into());
        assert_eq!(asked(hosts(), "any.example", alice).await, StatusCode::OK);
        assert_eq!(asked(None, "any.example", plain()).await, StatusCode::OK);
    }

    #[tokio::test]
    async fn answers_say_what_is_wrong() {
        let mut readiness = Readiness { no_majority: vec![GroupId::META], ..Readiness::default() };
        let answer = ready(&readiness);
        assert_eq!(answer.status(), StatusCode::OK);
        let body = axum::body::to_bytes(answer.into_body(), 100).await.unwrap();
        assert_eq!(body, "ready\nno majority of: meta group\n");
        readiness.why_not = Some("no leader".to_owned());
        assert_eq!(ready(&readiness).status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(metrics(None, "").status(), StatusCode::NOT_FOUND);
        let render: RenderMetrics = Arc::new(|| "umbel_epoch 1\n".to_owned());
        let page = metrics(Some(&render), "");
        assert_eq!(
            (page.status(), &page.headers()["content-type"]),
            (StatusCode::OK, &HeaderValue::from_static(METRICS_TYPE))
        );
    }
}
