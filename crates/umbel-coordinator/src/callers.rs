//! Callers: takes their calls from their rates, and finds out whether an unknown caller is new.

use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::meta::PrincipalName;
use umbel_step::planted::{self, Planted};

use super::Coordinator;
use crate::rates::Amounts;
use umbel_node::failure::CallFailure;

/// How often a second the node asks the meta group because of callers that it does not know: often enough
/// for new principals, and rarely enough that clients with made-up tokens cost nothing.
const CONFIRMATIONS_PER_SECOND: f64 = 20.0;

/// How long such a caller waits at most: for one round trip, and for entries in flight.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(1);

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

impl Coordinator {
    /// Takes what a principal's call uses from its rates.
    ///
    /// # Errors
    /// [`CallFailure::RateExceeded`], and nothing was taken.
    pub fn take(&self, principal: &PrincipalName, amounts: Amounts) -> Result<(), CallFailure> {
        let found = self.read_meta(|state| {
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
            let mut limiter = self.confirmations.lock().unwrap_or_else(PoisonError::into_inner);
            limiter.take_one(now, CONFIRMATIONS_PER_SECOND)
        };
        if !is_due || planted::on(Planted::NewTokenUnasked) {
            return CaughtUp::NotAsked;
        }
        match self.meta_refresh(now + CONFIRMATION_TIMEOUT).await {
            Ok(()) => CaughtUp::Done,
            Err(_) => CaughtUp::NoMajority,
        }
    }
}
