//! The console: pages on the node's own port that show the cluster live and let operators act on it.
//!
//! ```text
//!   browser ── GET /console, scripts, style ──► assets     the same for everybody: no data
//!           ── GET /console/events/VIEW ──────► events     a stream of snapshots, each when it changed
//!                                                 ▲
//!                                              sampler     one for all who watch the same, none without
//!                                                 ▲
//!                                               views      what the coordinator knows, as JSON
//!           ── POST /console/actions/NAME ────► actions    what other programs do by gRPC
//! ```
//!
//! The gate runs before all of it, so a caller sees a view only if it may make the gRPC calls with the
//! same content. `guard` refuses requests that browsers send for other sites. The node keeps nothing of
//! what it showed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Extension, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{any, get, post};
use tokio::sync::watch;
use umbel_coordinator::Coordinator;
use umbel_engine::meta::ClusterVerb;
use umbel_node::config::{Config, ConsoleMode};
use umbel_ports::PeerIdentity;

use super::audit::AuditNote;
use super::caller::{Caller, Need};
use super::deadlines::Deadlines;

mod actions;
mod assets;
mod events;
mod guard;
mod json;
mod places;
mod query;
mod sampler;
mod views;

#[cfg(test)]
mod console_test;

use actions::{Action, Actions, ORDER_BYTES_MAX};
use events::Watcher;
use guard::Foreign;
pub(super) use guard::{Hosts, is_cross_site};
use places::{NoPlace, Places};
use query::QueryError;
use sampler::Topics;
use views::View;

/// What the pages may load and run: their own scripts, styles and requests, and nothing inline. Scripts
/// cannot turn text into markup: the names in it come from anybody.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'";

/// Headers of every response of the console.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The console of a node, served at `/console`.
pub(crate) struct Console {
    coordinator: Arc<Coordinator>,
    hosts: Hosts,
    /// Whether a node's certificate must name the node.
    needs_member: bool,
    actions: Actions,
    topics: Arc<Topics>,
    places: Arc<Places>,
    contact: Mutex<MajorityContact>,
    /// True once the node stops: all streams end.
    is_closing: watch::Sender<bool>,
}

/// Why a stream is refused. Nothing was sampled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum WatchError {
    /// The view does not exist: use one of the listed names.
    #[error("there is no such view: expected {}", View::ALL.map(View::name).join(", "))]
    UnknownView,
    /// The query after the `?` is invalid: correct it.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// This node's routes are wrong, which is a bug.
    #[error("the request has not passed the gate: this is a bug of umbel")]
    NotGated,
    /// No place is free: try again later, or use another node.
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
}

impl IntoResponse for WatchError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::UnknownView | Self::Query(_) => StatusCode::BAD_REQUEST,
            Self::NotGated => StatusCode::FORBIDDEN,
            Self::NoPlace(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, format!("{self}\n")).into_response()
    }
}

/// When this node last reached the majority, as far as watched pages made it check.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct MajorityContact {
    /// By the node's clock, in milliseconds since 1970.
    last_contact_ms: Option<u64>,
    /// When contact was lost, dated from the last contact; None while the node has contact.
    lost_since_ms: Option<u64>,
}

impl MajorityContact {
    /// Records whether the majority was reached now.
    fn note(&mut self, is_reached: bool, now_ms: u64) -> Self {
        if is_reached {
            *self = Self { last_contact_ms: Some(now_ms), lost_since_ms: None }
        } else {
            let since = self.last_contact_ms.unwrap_or(now_ms);
            self.lost_since_ms.get_or_insert(since);
        }
        *self
    }
}

/// What a path of the console requires of the caller; None if the path is not the console's.
pub(super) fn need(path: &str) -> Option<Need> {
    let rest = path.strip_prefix("/console")?;
    // A caller that has proved its identity learns that the view or action does not exist.
    if is_stream(path) {
        return Some(view_of(path).map_or(Need::Somebody, View::need));
    }
    if is_action(path) {
        return Some(action_of(path).map_or(Need::Somebody, Action::need));
    }
    // Assets are the same for everybody and contain nothing of the cluster.
    (rest.is_empty() || rest == "/" || assets::has(path)).then_some(Need::Nothing)
}

/// Begin the paths of streams and of actions.
const STREAMS: &str = "/console/events/";
const ACTIONS: &str = "/console/actions/";

/// Whether a path is that of a stream.
pub(super) fn is_stream(path: &str) -> bool {
    path.starts_with(STREAMS)
}

/// Whether a path is that of an action.
pub(super) fn is_action(path: &str) -> bool {
    path.starts_with(ACTIONS)
}

/// The view of a path. Like [`action_of`], it reads the path as it was sent, for what is required and for what is
/// done: with `%64rain` decoded in one of the two, everybody might drain a node.
fn view_of(path: &str) -> Option<View> {
    View::of(path.strip_prefix(STREAMS)?)
}

/// The action of a path.
fn action_of(path: &str) -> Option<Action> {
    Action::of(path.strip_prefix(ACTIONS)?)
}

impl Console {
    /// The console of a node with this address; None if its configuration turns the console off.
    pub(crate) fn new(
        coordinator: Arc<Coordinator>,
        address: &str,
        config: &Config,
    ) -> Option<Arc<Self>> {
        let mode = config.console_mode().filter(|mode| *mode != ConsoleMode::Off)?;
        let deadlines = Deadlines::new(Duration::from_millis(config.request_timeout_ms_max));
        let places = Arc::<Places>::default();
        Some(Arc::new(Self {
            actions: Actions::new(&coordinator, mode, deadlines),
            coordinator,
            hosts: Hosts::of_node(address, config),
            needs_member: config.require_node_identity,
            topics: Arc::new(Topics::new(Arc::clone(&places))),
            places,
            contact: Mutex::default(),
            is_closing: watch::Sender::new(false),
        }))
    }

    /// Ends all streams.
    pub(super) fn close(&self) {
        self.is_closing.send_replace(true);
    }

    /// The console's routes.
    pub(super) fn routes(self: &Arc<Self>) -> Router {
        let bounded = DefaultBodyLimit::max(ORDER_BYTES_MAX);
        let mut router = Router::new()
            .route("/console/", get(async || Redirect::permanent("/console")))
            .route("/console/events/{view}", get(events))
            .route("/console/actions/{action}", post(act).layer(bounded))
            .route("/console/{*path}", any(async || (StatusCode::NOT_FOUND, "no such page\n")));
        for asset in &assets::ALL {
            router = router.route(asset.path, get(async || asset.into_response()));
        }
        let guarded = from_fn_with_state(Arc::clone(self), guard);
        router.layer(guarded).with_state(Arc::clone(self))
    }

    /// Starts to watch a view.
    ///
    /// # Errors
    /// If there is no such view, the query is invalid, or no place is free.
    fn watch(self: &Arc<Self>, request: &Request) -> Result<Watcher, WatchError> {
        let view = view_of(request.uri().path()).ok_or(WatchError::UnknownView)?;
        let page = query::page(request.uri().query().unwrap_or_default())?;
        let caller = request.extensions().get::<Caller>().ok_or(WatchError::NotGated)?;
        let owner = caller.owner();
        let place = self.places.take(&owner)?;
        let topic = view.topic(page, caller.viewer());
        let (console, asked, asker) = (Arc::clone(self), topic.clone(), caller.clone());
        let latest = self.topics.watch(topic.clone(), move |depth| {
            let (console, asked, asker) = (Arc::clone(&console), asked.clone(), asker.clone());
            async move { views::sample(&console, &asked, &asker, depth).await }
        });
        Ok(Watcher::new(self, view, owner, latest, place, request))
    }

    /// Identifies the caller of a stream again, from the current catalogue.
    fn identify(&self, connection: &PeerIdentity, shown: Option<&HeaderValue>) -> Caller {
        let shown = super::credential::Credential::of_header(shown);
        Caller::identify(connection, shown, &self.coordinator, self.needs_member)
    }
}

impl View {
    /// What the gRPC calls with the same content require.
    const fn need(self) -> Need {
        match self {
            Self::Cluster | Self::Cube | Self::Repair => Need::Cluster(ClusterVerb::Metrics),
            Self::Jobs => Need::Cluster(ClusterVerb::Jobs),
            // The view shows what a list shows, and of each filter what the caller may read.
            Self::Filters => Need::Somebody,
        }
    }
}

/// Refuses requests that browsers send for other sites; adds the headers.
async fn guard(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let (path, headers) = (request.uri().path().to_owned(), request.headers());
    let checked = console.hosts.check(request.uri(), headers).and_then(|()| match &*path {
        path if is_stream(path) && is_cross_site(headers) => Err(Foreign::Origin),
        path if is_action(path) => guard::check_order(headers),
        _ => Ok(()),
    });
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(why) => {
            if let Some(note) = request.extensions().get::<AuditNote>() {
                note.reason(&why.to_string());
            }
            let status = match why {
                Foreign::Kind => StatusCode::UNSUPPORTED_MEDIA_TYPE,
                Foreign::Host | Foreign::Origin | Foreign::Order => StatusCode::FORBIDDEN,
            };
            (status, format!("{why}\n")).into_response()
        }
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn events(State(console): State<Arc<Console>>, request: Request) -> Response {
    match console.watch(&request) {
        Ok(watcher) => watcher.into_response(),
        Err(error) => error.into_response(),
    }
}

async fn act(
    State(console): State<Arc<Console>>,
    uri: Uri,
    Extension(caller): Extension<Caller>,
    Extension(note): Extension<AuditNote>,
    body: Bytes,
) -> Response {
    let Some(action) = action_of(uri.path()) else {
        return (StatusCode::NOT_FOUND, "there is no such action\n").into_response();
    };
    let mut is_closing = console.is_closing.subscribe();
    let stops = async {
        if is_closing.wait_for(|&is_closing| is_closing).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let (status, text) = console.actions.act(action, (&caller, &note), &body, stops).await;
    (status, format!("{text}\n")).into_response()
}
