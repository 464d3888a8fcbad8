//! Actions: what operators do from the console, by the same services that serve gRPC calls.
//!
//! ```text
//!   page ── POST /console/actions/NAME, JSON ──► gate      as for the call of the same meaning
//!                                                guard     from a page of this node alone
//!                                                mode      whether this console is for more than looking
//!                                                order     what was asked for, and the name typed
//!                                                service   that of gRPC: rights by name, quotas, measurements
//! ```
//!
//! A repeated request does no harm: filters to clear or drop are named by id and generation, as the page
//! saw them, and repeating any other action has the same result.

use std::sync::Arc;

use crate::jobs::JobsService;
use axum::body::Bytes;
use axum::http::StatusCode;
use tonic::{Code, Status};
use umbel_coordinator::Coordinator;
use umbel_engine::NodeId;
use umbel_engine::meta::{ClusterVerb, FilterVerb, MetaState};
use umbel_node::config::ConsoleMode;
use umbel_proto::v1;

use crate::admin::AdminService;
use crate::audit::AuditNote;
use crate::caller::{Caller, Need};
use crate::deadlines::Deadlines;
use crate::errors::{self, code_name};
use crate::filters::FiltersService;

#[cfg(test)]
mod actions_test;
mod carry_out;
mod order;

/// Largest order, in bytes: a name and the text around it, with every character escaped.
pub(super) const ORDER_BYTES_MAX: usize = 16 << 10;

/// An action that an operator can order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Creates a filter.
    Create,
    /// Clears a filter.
    Clear,
    /// Drops a filter.
    Drop,
    /// Moves a replica of a shard to another node.
    Move,
    /// Moves all replicas of a node to others, or lets the node take replicas again.
    Drain,
    /// Removes a node for ever.
    Remove,
    /// Compares replicas and copies, and repairs them.
    Compare,
    /// Requests that a job ends.
    Cancel,
    /// Resumes a failed job.
    Resume,
}

impl Action {
    /// All actions.
    pub(super) const ALL: [Self; 9] = [
        Self::Create,
        Self::Clear,
        Self::Drop,
        Self::Move,
        Self::Drain,
        Self::Remove,
        Self::Compare,
        Self::Cancel,
        Self::Resume,
    ];

    /// The name in URLs.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Clear => "clear",
            Self::Drop => "drop",
            Self::Move => "move",
            Self::Drain => "drain",
            Self::Remove => "remove",
            Self::Compare => "compare",
            Self::Cancel => "cancel",
            Self::Resume => "resume",
        }
    }

    /// The action with this name.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

    /// What the gRPC call with the same effect requires.
    pub(super) const fn need(self) -> Need {
        match self {
            Self::Create | Self::Clear | Self::Drop => Need::Filter(FilterVerb::Manage),
            Self::Move | Self::Drain | Self::Remove | Self::Compare => {
                Need::Cluster(ClusterVerb::Admin)
            }
            Self::Cancel | Self::Resume => Need::Cluster(ClusterVerb::Jobs),
        }
    }
}

/// Carries out the actions that operators order from the console.
pub(super) struct Actions {
    coordinator: Arc<Coordinator>,
    mode: ConsoleMode,
    filters: FiltersService,
    admin: AdminService,
    jobs: JobsService,
}

/// The outcome of an action: an HTTP status, and a text for people.
pub(super) type Outcome = (StatusCode, String);

impl Actions {
    pub(super) fn new(
        coordinator: &Arc<Coordinator>,
        mode: ConsoleMode,
        deadlines: Deadlines,
    ) -> Self {
        let of = || Arc::clone(coordinator);
        Self {
            coordinator: of(),
            mode,
            filters: FiltersService::new(of(), deadlines),
            admin: AdminService::new(of(), deadlines),
            jobs: JobsService::new(of(), deadlines),
        }
    }

    /// The actions that a caller may order here.
    pub(super) fn allowed(&self, caller: &Caller) -> Vec<Action> {
        let allowed = |action: &Action| caller.may(action.need());
        match self.refusal(caller) {
            Some(_) => Vec::new(),
            None => Action::ALL.into_iter().filter(allowed).collect(),
        }
    }

    /// Why this console carries out no action of the caller, whatever its rights; None if it does.
    pub(super) fn refusal(&self, caller: &Caller) -> Option<&'static str> {
        match self.mode {
            ConsoleMode::Full => None,
            ConsoleMode::Proven if caller.has_proof() => None,
            ConsoleMode::Proven => Some(
                "this console changes nothing for who has proved nothing: add principals (umbel access add), or \
                 have the node take everybody (--console full); `umbel` does the same",
            ),
            ConsoleMode::ReadOnly | ConsoleMode::Off => {
                Some("this console changes nothing (--console read-only): `umbel` does the same")
            }
        }
    }

    /// Carries out an order, unless the node stops first; notes it for the audit log and returns the outcome.
    pub(super) async fn act(
        &self,
        action: Action,
        (caller, note): (&Caller, &AuditNote),
        body: &Bytes,
        stops: impl Future<Output = ()>,
    ) -> Outcome {
        // Noted before it is done: the caller may disconnect before there is an outcome.
        note.order(&order::shown(body));
        let doing = async {
            if let Some(why) = self.refusal(caller) {
                return Err(errors::console_refuses(why));
            }
            self.carry_out(action, caller, body).await
        };
        let done = tokio::select! {
            biased;
            done = doing => done,
            () = stops => Err(errors::stopping()),
        };
        match done {
            Ok(text) => (StatusCode::OK, text),
            Err(status) => {
                note.reason(code_name(status.code()));
                (page_status(status.code()), advised(&status))
            }
        }
    }

    /// The address of a node; None if this node does not know it.
    fn address_of(&self, node: NodeId) -> Option<String> {
        let found = |state: &MetaState| state.node_address(node).map(str::to_owned);
        self.coordinator.read_meta(found).ok().flatten()
    }
}

/// The message of a failure, with advice.
fn advised(status: &Status) -> String {
    let detail: v1::ErrorDetail = umbel_proto::detail_of(status).unwrap_or_default();
    let mut text = status.message().to_owned();
    text += match detail.applied() {
        v1::Applied::Unknown => {
            ". Whether it was done is not known: look at it before you do it again"
        }
        v1::Applied::Partly => ". A part of it was done: look at it before you do it again",
        _ if detail.retry_after_ms > 0 => ". Nothing was changed: try again in a moment",
        _ => ". Nothing was changed",
    };
    text + "."
}

/// The corresponding HTTP status.
const fn page_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Cancelled | Code::Unknown | Code::Unimplemented | Code::Internal | Code::DataLoss => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

#[cfg(test)]
mod tests {
    use umbel_node::failure::CallFailure;

    use super::*;
    use crate::errors::status;

    #[test]
    fn a_failure_is_shown_with_a_remedy() {
        let name = "seen".to_owned();
        let changed = advised(&status(&CallFailure::Changed { name }));
        assert!(changed.ends_with("since you saw it. Nothing was changed."), "{changed}");
        let what = "the meta group".to_owned();
        let unknown = advised(&status(&CallFailure::OutcomeUnknown { what }));
        assert!(unknown.ends_with("look at it before you do it again."), "{unknown}");
        let later = advised(&status(&CallFailure::NotFormed));
        assert!(later.ends_with("try again in a moment."), "{later}");
    }

    /// Every new action must be added here.
    #[test]
    fn every_action_needs_what_the_call_needs_that_does_the_same() {
        let (manage, admin) = (Need::Filter(FilterVerb::Manage), Need::Cluster(ClusterVerb::Admin));
        let jobs = Need::Cluster(ClusterVerb::Jobs);
        let needs = Action::ALL.map(|action| (action.name(), action.need()));
        let expected = [
            ("create", manage),
            ("clear", manage),
            ("drop", manage),
            ("move", admin),
            ("drain", admin),
            ("remove", admin),
            ("compare", admin),
            ("cancel", jobs),
            ("resume", jobs),
        ];
        assert_eq!(needs, expected);
        assert!(expected.iter().all(|(name, _)| Action::of(name).is_some()));
        assert_eq!(Action::of("restore"), None);
    }
}
