//! What a call must pass: its caller is identified, needs a right, and pays for the call.
//!
//! The gate lets calls pass by it; a stream of requests outlives rights, so each of its requests passes anew.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode};
use tonic::Status;
use umbel_coordinator::{CaughtUp, Coordinator};
use umbel_node::failure::CallFailure;
use umbel_ports::PeerIdentity;
use umbel_ports::channel::PeerAddress;

use super::audit::{self, Called};
use super::caller::{Caller, Need};
use super::credential::Credential;
use super::errors;

/// What a call brought with it, and what it requires.
#[derive(Clone)]
pub(super) struct Entrance {
    pub(super) coordinator: Arc<Coordinator>,
    /// Whether a node's certificate must name the node.
    pub(super) needs_member: bool,
    pub(super) connection: PeerIdentity,
    /// The caller's address.
    pub(super) from: Option<PeerAddress>,
    /// The header `authorization`.
    pub(super) shown: Option<HeaderValue>,
    pub(super) path: Arc<str>,
    pub(super) need: Need,
}

/// A refusal, which is the same whether or not the requested object exists.
pub(super) struct Refused {
    /// For gRPC.
    pub(super) status: Status,
    /// For plain HTTP.
    pub(super) page: StatusCode,
    pub(super) text: String,
}

impl Entrance {
    /// Identifies the caller by what the cluster grants now.
    pub(super) async fn identify(&self) -> Caller {
        let Self { coordinator, connection, need, .. } = self;
        // `/metrics` does not wait for a majority: metrics matter most when the majority is unreachable.
        let needs_grants = &*self.path != "/metrics" && need.asks_for_grants(connection);
        let call = |caller: Caller| {
            let called = Called::Path(Arc::clone(&self.path));
            caller.at(self.from.clone()).calling(Some(called))
        };
        let without_grants = || call(Caller::without_grants(connection, coordinator));
        if needs_grants && !coordinator.callers().has_caught_up().await {
            return without_grants();
        }
        let identify = || {
            let shown = Credential::of_header(self.shown.as_ref());
            call(Caller::identify(connection, shown, coordinator, self.needs_member))
        };
        let known = identify();
        if !known.may_be_new() {
            return known;
        }
        match coordinator.callers().catch_up_for_stranger().await {
            CaughtUp::Done => identify(),
            // The majority, and therefore another node, may know this caller.
            CaughtUp::NoMajority if needs_grants => without_grants(),
            CaughtUp::NoMajority | CaughtUp::NotAsked => known,
        }
    }

    /// Checks the caller's right; a denial is written to the audit log.
    pub(super) fn check(&self, caller: &Caller) -> Result<(), Refused> {
        if caller.may(self.need) {
            return Ok(());
        }
        if !caller.is_unknown() {
            audit::denied(caller, None, &caller.refusal(self.need));
        }
        Err(self.refused(caller))
    }

    /// Takes the call from the caller's rates.
    pub(super) fn charge(&self, caller: &Caller) -> Result<(), Refused> {
        if self.need == Need::Nothing {
            return Ok(());
        }
        caller.take([1, 0, 0]).map_err(|failure| {
            let status = errors::status(&failure);
            let text = status.message().to_owned();
            Refused { status, page: StatusCode::TOO_MANY_REQUESTS, text }
        })
    }

    /// The caller of one more request of a call that has passed before.
    ///
    /// # Errors
    /// With the status of a call that is refused for the same reason.
    pub(super) async fn pass(&self) -> Result<Caller, Status> {
        let caller = self.identify().await;
        let passed = self.check(&caller).and_then(|()| self.charge(&caller));
        passed.map(|()| caller).map_err(|refused| refused.status)
    }

    fn refused(&self, caller: &Caller) -> Refused {
        let failure = if caller.is_unknown() {
            caller.why_unknown()
        } else {
            CallFailure::Denied { what: caller.refusal(self.need) }
        };
        let text = failure.to_string();
        let status = errors::status(&failure);
        let is_stranger = !caller.is_unknown() && !caller.is_somebody() && self.need != Need::Node;
        let status = if is_stranger { errors::unauthenticated(&status) } else { status };
        let page = match (caller.is_unknown(), caller.is_somebody()) {
            (true, _) => StatusCode::SERVICE_UNAVAILABLE,
            (false, true) => StatusCode::FORBIDDEN,
            (false, false) => StatusCode::UNAUTHORIZED,
        };
        Refused { status, page, text }
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::meta::FilterVerb;
    use umbel_proto::detail_of;
    use umbel_proto::v1::{ErrorCode, ErrorDetail};

    use super::*;
    use crate::test_node::start_alone;

    /// What a client hears while this node does not know who may do what.
    fn heard_early(coordinator: &Arc<Coordinator>) -> String {
        let connection = PeerIdentity::Client("alice".into());
        let caller = Caller::without_grants(&connection, coordinator);
        let entrance = Entrance {
            coordinator: Arc::clone(coordinator),
            needs_member: false,
            connection,
            from: None,
            shown: None,
            path: "/umbel.v1.Filters/Info".into(),
            need: Need::Filter(FilterVerb::Read),
        };
        let refused = entrance.check(&caller).expect_err("it is too early");
        let detail = detail_of::<ErrorDetail>(&refused.status).unwrap();
        assert_eq!(detail.code(), ErrorCode::NotFormed);
        assert_eq!(refused.page, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.text, refused.status.message());
        refused.text
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_without_a_majority_is_told_from_one_without_a_cluster() {
        let without = heard_early(&Arc::new(Coordinator::without_cluster()));
        assert_eq!(without, CallFailure::NotFormed.to_string());
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let within = heard_early(&node.coordinator());
        assert_eq!(within, CallFailure::GrantsUnknown.to_string());
        node.shutdown().await;
    }
}
