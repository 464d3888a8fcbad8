//! Callers: takes their calls from their rates, and finds out whether an unknown caller is new, and whether
//! this node has reached the majority since it started: until then its catalogue may be arbitrarily old.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};
use umbel_engine::meta::PrincipalName;
use umbel_ports::{StrangerLines, locked};
use umbel_step::planted::{self, Planted};

use crate::Result;
use crate::rates::{Amounts, Limiter, TakenByPrincipals};
use umbel_node::leader_calls::LeaderCalls;

/// How often a second the node asks the meta group because of callers that it does not know: often enough
/// for new principals, and rarely enough that clients with made-up tokens cost nothing.
const CONFIRMATIONS_PER_SECOND: f64 = 20.0;

/// How long such a caller waits at most: for one round trip, and for entries in flight.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a call waits at most until this node has caught up. Every call before then asks again, so this
/// is less than what clients allow for an attempt.
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(1);

/// The outcome of catching up with the meta group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaughtUp {
    /// This node has all that the majority had.
    Done,
    /// The meta group was asked too often: this node must decide by what it has.
    NotAsked,
    /// The majority was not reached: what this node has may be old.
    NoMajority,
}

/// Limits the lines of the log that strangers cause, by cause.
#[derive(Default)]
pub struct StrangerLog {
    /// Calls that are denied.
    pub denied: StrangerLines,
    /// Wrong passwords of the Redis protocol.
    pub wrong_passwords: StrangerLines,
    /// Tokens for joining that are not valid.
    pub enrolments: StrangerLines,
    /// Browsers that speak to a port of the Redis protocol.
    pub browsers: StrangerLines,
}

/// What this node knows of those who call it.
pub struct Callers {
    calls: Arc<LeaderCalls>,
    /// Set once this node has reached the majority after its start.
    caught_up: OnceCell<()>,
    /// What principals have used of their rates.
    taken: TakenByPrincipals,
    /// Limits the requests to the majority about callers that this node does not know.
    confirmations: Mutex<Limiter>,
    stranger_log: StrangerLog,
}

impl Callers {
    pub(crate) fn new(calls: Arc<LeaderCalls>) -> Self {
        Self {
            calls,
            caught_up: OnceCell::new(),
            taken: TakenByPrincipals::default(),
            confirmations: Mutex::default(),
            stranger_log: StrangerLog::default(),
        }
    }

    /// Whether this node's catalogue has all that the majority had when the node started; waits a moment
    /// for it.
    ///
    /// A node that starts reads its log from the last snapshot on, and one that joins receives it from
    /// the first entry on: a client that calls meanwhile would meet a cluster without principals, or one
    /// in which principals still have revoked rights.
    pub async fn has_caught_up(&self) -> bool {
        if self.caught_up.initialized() || planted::on(Planted::StartUnheard) {
            return true;
        }
        let catch_up = || self.calls.meta_refresh(Instant::now() + CATCH_UP_TIME_MAX);
        // One call asks, the others wait for its answer.
        let caught_up = timeout(CATCH_UP_TIME_MAX, self.caught_up.get_or_try_init(catch_up)).await;
        matches!(caught_up, Ok(Ok(())))
    }

    /// Whether [`has_caught_up`](Self::has_caught_up) has succeeded before.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_caught_up(&self) -> bool {
        self.caught_up.initialized()
    }

    /// Treats this node's catalogue as current, although no majority was asked.
    #[cfg(any(test, feature = "testing"))]
    pub fn skip_catch_up(&self) {
        let _ = self.caught_up.set(());
    }

    /// Limits the lines of the log that strangers cause.
    pub const fn stranger_log(&self) -> &StrangerLog {
        &self.stranger_log
    }

    /// Takes what a principal's call uses from its rates.
    ///
    /// # Errors
    /// [`CallFailure::RateExceeded`](umbel_node::failure::CallFailure::RateExceeded), and nothing was taken.
    pub fn take(&self, principal: &PrincipalName, amounts: Amounts) -> Result<()> {
        let found = self.calls.read_meta(|state| {
            let rates = state.quota(principal.as_str()).rates;
            (rates, state.nodes().filter(|(_, node)| node.is_live()).count())
        });
        let Ok((rates, node_count)) = found else { return Ok(()) };
        self.taken.take(principal, rates, node_count, amounts, Instant::now())
    }

    /// Catches up with the meta group, unless that was done too often.
    pub async fn catch_up_for_stranger(&self) -> CaughtUp {
        let now = Instant::now();
        let is_due = {
            let mut limiter = locked(&self.confirmations);
            limiter.take_one(now, CONFIRMATIONS_PER_SECOND)
        };
        if !is_due || planted::on(Planted::NewTokenUnasked) {
            return CaughtUp::NotAsked;
        }
        match self.calls.meta_refresh(now + CONFIRMATION_TIMEOUT).await {
            Ok(()) => CaughtUp::Done,
            Err(_) => CaughtUp::NoMajority,
        }
    }
}
