//! A stream of server-sent events: a snapshot whenever the view changes, and comments in between.
//!
//! ```text
//! : live                          at once, and each 15 s: a client that receives nothing knows that it broke
//!
//! event: rights
//! data: {"actions":[...],...}     what the caller may do from here: first, and whenever it changes
//!
//! event: snapshot
//! data: {"node":1,...}            one line of JSON, the newest: what came in between is left out
//!
//! event: end
//! data: {"why":"..."}             the last one; nothing follows
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use umbel_ports::PeerIdentity;

use super::Console;
use super::actions::Action;
use super::json::{self, Value};
use super::places::StreamPlace;
use super::sampler::Latest;
use super::views::View;
use crate::caller::Caller;

/// A stream sends something at least this often: proxies drop idle connections after half a minute or
/// more. It also bounds how long a page shows data after its rights were revoked.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

const COMMENT: Bytes = Bytes::from_static(b": live\n\n");

/// An open page.
pub(super) struct Watcher {
    console: Arc<Console>,
    view: View,
    /// The principal by whose rights the page is shown; empty if the caller is none.
    owner: String,
    latest: watch::Receiver<Latest>,
    is_closing: watch::Receiver<bool>,
    /// The proof that the request presented: checked again before each event, because streams outlive rights.
    connection: PeerIdentity,
    shown: Option<HeaderValue>,
    /// The rights that were last sent; None before the first time.
    allowed: Option<Vec<Action>>,
    /// When a comment is due if nothing changes before; None before the first part.
    speaks_at: Option<Instant>,
    _place: StreamPlace,
}

impl Watcher {
    pub(super) fn new(
        console: &Arc<Console>,
        view: View,
        owner: String,
        latest: watch::Receiver<Latest>,
        place: StreamPlace,
        request: &Request,
    ) -> Self {
        let connection = request.extensions().get().cloned().unwrap_or(PeerIdentity::Anonymous);
        Self {
            console: Arc::clone(console),
            view,
            owner,
            latest,
            is_closing: console.is_closing.subscribe(),
            connection,
            shown: request.headers().get(header::AUTHORIZATION).cloned(),
            allowed: None,
            speaks_at: None,
            _place: place,
        }
    }

    /// The caller as identified now; None if it may no longer see this view.
    fn caller(&self) -> Option<Caller> {
        let caller = self.console.identify(&self.connection, self.shown.as_ref());
        let may_see =
            caller.is_somebody() && caller.owner() == self.owner && caller.may(self.view.need());
        may_see.then_some(caller)
    }

    /// The caller's rights as an event, if they differ from those that were last sent.
    fn news_of_rights(&mut self, caller: &Caller) -> Option<Bytes> {
        let actions = &self.console.actions;
        let allowed = actions.allowed(caller);
        if self.allowed.as_ref() == Some(&allowed) {
            return None;
        }
        let shown = rights(caller, &allowed, actions.refusal(caller));
        self.allowed = Some(allowed);
        Some(shown)
    }

    /// The next part, and whether others follow.
    async fn next(&mut self) -> (Bytes, bool) {
        let Some(speaks_at) = self.speaks_at else {
            return (self.note_sent(COMMENT), true);
        };
        loop {
            let ended = self.is_closing.wait_for(|&is_closing| is_closing);
            let spoke = tokio::select! {
                biased;
                _ = ended => return (end("the node stops"), false),
                changed = self.latest.changed() => changed.map(|()| true),
                () = sleep_until(speaks_at) => Ok(false),
            };
            let Ok(is_new) = spoke else { return (end("the view ended"), false) };
            let Some(caller) = self.caller() else {
                return (end("what you may see has changed: sign in again"), false);
            };
            if let Some(rights) = self.news_of_rights(&caller) {
                if is_new {
                    self.latest.mark_changed();
                }
                return (self.note_sent(rights), true);
            }
            let latest = if is_new { self.latest.borrow_and_update().clone() } else { None };
            let part = match latest {
                Some(event) => event,
                // Nothing has been sampled yet.
                None if is_new => continue,
                None => COMMENT,
            };
            return (self.note_sent(part), true);
        }
    }

    fn note_sent(&mut self, part: Bytes) -> Bytes {
        self.speaks_at = Some(Instant::now() + COMMENT_INTERVAL);
        part
    }
}

/// One event; the data is a single line.
fn event(name: &str, data: &str) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

/// The event for a sample of a view, which is one line of JSON.
pub(super) fn view_event(data: &str) -> Bytes {
    event("snapshot", data)
}

fn rights(caller: &Caller, allowed: &[Action], refusal: Option<&str>) -> Bytes {
    let shown = json::object([
        ("who", caller.to_string().into()),
        ("is_proved", caller.has_proof().into()),
        ("actions", json::list(allowed.iter().map(|action| Value::from(action.name())))),
        ("refusal", refusal.into()),
    ]);
    event("rights", &json::line(&shown))
}

fn end(why: &str) -> Bytes {
    event("end", &json::line(&json::object([("why", why.into())])))
}

impl IntoResponse for Watcher {
    fn into_response(self) -> Response {
        let parts = stream::unfold(Some(self), |watcher| async {
            let mut watcher = watcher?;
            let (part, goes_on) = watcher.next().await;
            Some((Ok::<_, Infallible>(part), goes_on.then_some(watcher)))
        });
        ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(parts)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_name_and_one_line() {
        let data = json::line(&json::object([("name", "a\nb\r".into())]));
        let framed = event("snapshot", &data);
        assert_eq!(framed, "event: snapshot\ndata: {\"name\":\"a\\nb\\r\"}\n\n");
        assert_eq!(end("why"), "event: end\ndata: {\"why\":\"why\"}\n\n");
    }
}
