//! The interface of a node to its clients: filters and administration over gRPC, filters over the Redis
//! protocol on a separate port, health, metrics and the console. Peers connect to the gRPC port, too.
//!
//! Clients and peers use separate connections, and every limit on calls applies to one connection, so
//! that many clients cannot keep peers out.
//!
//! | module | what it does |
//! |---|---|
//! | `filters`, `admin`, `jobs`, `access`, `enrolment`, `service_methods` | the gRPC services |
//! | `convert`, `describe`, `errors` | messages of clients to the node's types and back |
//! | `former_clients` | errors as clients of the former release read them |
//! | `item_calls`, `item_streams` | inserts and questions, and streams of them |
//! | `gate`, `entrance`, `caller`, `credential`, `audit` | who calls, whether the caller may, and what the audit log says |
//! | `admission`, `budget`, `deadlines`, `limits`, `unread` | bounds on requests, and answers to those that cannot be read |
//! | `resp` | the Redis protocol |
//! | `console` | the console: pages, what they show, and what they order |
//! | `http`, `filter_series` | health and metrics over plain HTTP |
//! | [`redis_bloom_dump`] | converts RedisBloom's dumps to frames and back, for both sides of an export |
//! | [`redis_bloom_value`] | RedisBloom's filters in Redis's files and payloads, for both sides |

// Futures of calls that make calls are nested deeper than the default.
#![recursion_limit = "256"]

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::Request;
use tokio::sync::{oneshot, watch};
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::pb::FILE_DESCRIPTOR_SET as HEALTH_DESCRIPTORS;
use tonic_health::server::HealthReporter;
use umbel_coordinator::Coordinator;
use umbel_node::limits::CLIENT_CALLS_PER_CONNECTION_MAX;
use umbel_node::{ClientInterface, NodeFailure, ServedNode};
use umbel_ports::{Listener, PortFuture, channel};

mod access;
mod admin;
mod admission;
mod audit;
mod budget;
mod caller;
mod console;
mod convert;
mod credential;
mod cross_site;
mod deadlines;
mod describe;
mod enrolment;
mod entrance;
mod errors;
mod filter_series;
mod filters;
mod former_clients;
mod gate;
mod http;
mod item_calls;
mod item_streams;
mod jobs;
mod limits;
mod measure;
pub mod redis_bloom_dump;
pub mod redis_bloom_value;
mod resp;
mod service_methods;
mod status;
mod unread;

#[cfg(test)]
mod audit_recorder;
#[cfg(test)]
mod audit_test;
#[cfg(test)]
mod gateway_test;
#[cfg(test)]
mod sessions_test;
#[cfg(test)]
mod test_node;

use budget::Budget;
use console::Console;
use item_streams::ItemStreams;
use limits::{
    CATCH_UP_INTERVAL, HEALTH_INTERVAL, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, STOP_GRACE_MAX,
    STREAMS_PER_CONNECTION_MAX,
};

/// Renders all measurements as text.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// The interface of a node to its clients. Without `render_metrics` the node records no metrics.
#[must_use]
pub fn client_interface(render_metrics: Option<RenderMetrics>) -> Box<dyn ClientInterface> {
    Box::new(Interface { render_metrics })
}

struct Interface {
    render_metrics: Option<RenderMetrics>,
}

impl ClientInterface for Interface {
    fn serve(self: Box<Self>, node: ServedNode) -> PortFuture<'static, ()> {
        let coordinator = Arc::new(Coordinator::new(Arc::clone(&node.calls)));
        (*self).serve_by(coordinator, node)
    }
}

impl Interface {
    /// Serves clients by this coordinator.
    fn serve_by(self, coordinator: Arc<Coordinator>, node: ServedNode) -> PortFuture<'static, ()> {
        let ServedNode { config, address, listener, resp_listener, .. } = node;
        let ServedNode { routes, stopped, failure, .. } = node;
        let budget = Budget::new(config.request_bytes_max);
        let console = Console::new(Arc::clone(&coordinator), &address, &config);
        let local_hosts = is_loopback(&listener.local_address())
            .then(|| console::Hosts::of_node(&address, &config));
        let resp = resp_listener.map(|listener| {
            let (local, coordinator) = (listener.local_address(), Arc::clone(&coordinator));
            let budget = Arc::clone(&budget);
            let shared = resp::Shared::new(&config, &address, &local, coordinator, budget);
            (listener, shared)
        });
        let gateway = Gateway {
            coordinator,
            routes,
            render_metrics: self.render_metrics,
            timeout_max: Duration::from_millis(config.request_timeout_ms_max),
            budget,
            needs_member: config.require_node_identity,
            local_hosts,
            console,
        };
        Box::pin(serve_all((listener, gateway), resp, stopped, failure))
    }
}

/// Serves until the node stops.
async fn serve_all(
    (listener, gateway): (Box<dyn Listener>, Gateway),
    resp: Option<(Box<dyn Listener>, resp::Shared)>,
    stopped: watch::Receiver<bool>,
    failure: watch::Sender<Option<NodeFailure>>,
) {
    let stop = |mut stopped: watch::Receiver<bool>| async move {
        // A dropped sender means that the node was dropped.
        let _ = stopped.wait_for(|&is_stopped| is_stopped).await;
    };
    let resp_stop = stop(stopped.clone());
    let serving_resp = async {
        if let Some((listener, shared)) = resp {
            resp::serve(listener, shared, resp_stop).await;
        }
    };
    let serving = async {
        if let Err(error) = serve(listener, gateway, stop(stopped)).await {
            let why = format!("the server stopped: {error}");
            failure.send_replace(Some(NodeFailure::Failed(why)));
        }
    };
    tokio::join!(serving_resp, serving);
}

/// What the gateway needs to serve.
struct Gateway {
    coordinator: Arc<Coordinator>,
    /// The services for other nodes and for workers of jobs.
    routes: Routes,
    /// Renders the text of `/metrics`; None if the node records no metrics.
    render_metrics: Option<RenderMetrics>,
    /// The longest timeout that a client's call is granted.
    timeout_max: Duration,
    /// Limits the memory that the requests of clients in progress hold.
    budget: Arc<Budget>,
    /// Whether a node's certificate must name the node.
    needs_member: bool,
    /// The host names under which `/metrics` is shown without TLS. None, which is any, if others than this machine reach the
    /// port: then nobody needs a browser of this machine to read it.
    local_hosts: Option<console::Hosts>,
    /// Serves `/console`; None if the node has no console.
    console: Option<Arc<Console>>,
}

/// Why a node cannot serve. Nothing has been served.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    /// The build is broken: its descriptors are invalid.
    #[error("the interface cannot be described: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The server cannot run.
    #[error("{0}")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves until `stop` completes, then accepts no further connections and lets running calls end, for at
/// most `STOP_GRACE_MAX`.
///
/// # Errors
/// If the server cannot run.
async fn serve(
    listener: Box<dyn Listener>,
    gateway: Gateway,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let health = HealthReporter::new();
    let coordinator = Arc::clone(&gateway.coordinator);
    let console = gateway.console.clone();
    let (is_stopping, streams_stop) = watch::channel(false);
    let routes = gateway.routes(health.clone(), streams_stop)?;
    let (stopping, stopped) = oneshot::channel();
    let stop = async {
        stop.await;
        // Event streams of console pages never end by themselves, and the shutdown would wait for them.
        if let Some(console) = console {
            console.close();
        }
        // Nor do streams of requests, as long as their clients keep them.
        is_stopping.send_replace(true);
        // The receiver is dropped only when the server has ended already.
        let _ = stopping.send(());
    };
    let serving = channel::server()
        .accept_http1(true)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .concurrency_limit_per_connection(CLIENT_CALLS_PER_CONNECTION_MAX)
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .add_routes(routes)
        .serve_with_incoming_shutdown(channel::incoming(listener), stop);
    let grace = async {
        if stopped.await.is_ok() {
            tokio::time::sleep(STOP_GRACE_MAX).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let upkeep = async { tokio::join!(catch_up(&coordinator), show_health(health, &coordinator)) };
    tokio::select! {
        biased;
        served = serving => Ok(served?),
        () = grace => {
            tracing::warn!("calls that were still running were cut off");
            Ok(())
        }
        ((), ()) = upkeep => Ok(()),
    }
}

impl Gateway {
    fn routes(
        self,
        health: HealthReporter,
        is_stopping: watch::Receiver<bool>,
    ) -> Result<Routes, ServeError> {
        let Self { coordinator, routes, render_metrics, timeout_max, .. } = self;
        let console = self.console.map(|console| console.routes()).unwrap_or_default();
        let deadlines = deadlines::Deadlines::new(timeout_max);
        let streams = ItemStreams { budget: Arc::clone(&self.budget), is_stopping };
        let filters =
            filters::FiltersService::new(Arc::clone(&coordinator), deadlines).with_streams(streams);
        let admin = admin::AdminService::new(Arc::clone(&coordinator), deadlines);
        let jobs = jobs::JobsService::new(Arc::clone(&coordinator), deadlines);
        let access = access::AccessService::new(Arc::clone(&coordinator), deadlines);
        let enrolment = enrolment::EnrolmentService::new(Arc::clone(&coordinator), deadlines);
        let gate =
            gate::Gate { coordinator: Arc::clone(&coordinator), needs_member: self.needs_member };
        let gated = axum::middleware::from_fn_with_state(gate, gate::gate);
        let budgets = admission::Budgets::new(self.budget);
        let admitted = axum::middleware::from_fn_with_state(budgets, admission::admit);
        let health = tonic_health::server::HealthService::from_health_reporter(health);
        let mut routes = routes
            .add_service(filters.into_server())
            .add_service(admin.into_server())
            .add_service(jobs.into_server())
            .add_service(access.into_server())
            .add_service(enrolment.into_server())
            .add_service(tonic_health::pb::health_server::HealthServer::new(health));
        let router = std::mem::take(routes.axum_router_mut()).merge(reflection()?);
        let pages = http::pages(coordinator, render_metrics, self.local_hosts);
        let router = router
            .merge(pages)
            .merge(console)
            .fallback(async |request: Request| http::nothing(request.headers()));
        Ok(Routes::from(router.layer(admitted).layer(gated)).prepare())
    }
}

/// Whether only this machine reaches a listener at this address.
fn is_loopback(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().to_canonical().is_loopback())
}

/// The reflection of all services. It is the same for every node, and all descriptors are decoded for it, so a process
/// that starts many nodes, such as a simulation, makes it once.
fn reflection() -> Result<axum::Router, ServeError> {
    static MADE: OnceLock<axum::Router> = OnceLock::new();
    if let Some(made) = MADE.get() {
        return Ok(made.clone());
    }
    let describe = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(umbel_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(HEALTH_DESCRIPTORS)
    };
    // Older tools use the other version of reflection.
    let routes = Routes::new(describe().build_v1()?).add_service(describe().build_v1alpha()?);
    // The router that takes these in has its own fallback, and only one may.
    Ok(MADE.get_or_init(|| routes.into_axum_router().reset_fallback()).clone())
}

/// Catches up with the majority as soon as there is one, whether or not a client calls by then. If that were left to the
/// first call, a node that nobody had called before the majority was lost could not even answer what it sees of the
/// cluster, which is when operators ask it.
async fn catch_up(coordinator: &Coordinator) {
    while !coordinator.callers().has_caught_up().await {
        tokio::time::sleep(CATCH_UP_INTERVAL).await;
    }
}

/// Services whose health status is that of the node.
const SHOWN_SERVICES: [&str; 6] = [
    "",
    "umbel.v1.Filters",
    "umbel.v1.Admin",
    "umbel.v1.Jobs",
    "umbel.v1.Access",
    "umbel.v1.Enrolment",
];

/// Keeps the health service at the readiness that `/readyz` reports; never returns.
async fn show_health(health: HealthReporter, coordinator: &Coordinator) {
    let mut shown = None;
    loop {
        let is_ready = coordinator.readiness().await.why_not.is_none();
        if shown != Some(is_ready) {
            shown = Some(is_ready);
            let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
            for service in SHOWN_SERVICES {
                health.set_service_status(service, status).await;
            }
        }
        tokio::time::sleep(HEALTH_INTERVAL).await;
    }
}
