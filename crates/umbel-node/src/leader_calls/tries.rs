//! How often, and how long, a call tries to reach a node that can answer it.

use std::time::Duration;

use tokio::time::Instant;

use crate::failure::CallFailure;
use crate::limits::{RETRY_WAIT_MAX, RETRY_WAIT_MIN, TRY_TIMEOUT};

/// The tries of one call.
pub struct Tries {
    deadline: Instant,
    began: Instant,
    wait: Duration,
    /// How many tries have failed.
    pub count: usize,
    /// Whether the last try followed a leader that the try before had named.
    has_followed: bool,
    /// Why the outcome is open, if a try has left it open.
    pub(crate) open: Option<String>,
}

impl Tries {
    /// Of a call that ends at this time.
    pub fn new(deadline: Instant) -> Self {
        let began = Instant::now();
        Self { deadline, began, wait: RETRY_WAIT_MIN, count: 0, has_followed: false, open: None }
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.remaining().min(TRY_TIMEOUT)
    }

    /// Waits before the next try; follows a newly named leader at once, but not twice in a row.
    pub async fn pause(&mut self, knows_leader: bool) {
        if knows_leader && !self.has_followed {
            self.has_followed = true;
            return;
        }
        self.has_followed = false;
        self.count += 1;
        tokio::time::sleep(self.wait.min(self.remaining())).await;
        self.wait = (self.wait * 2).min(RETRY_WAIT_MAX);
    }

    /// Whether the deadline is reached.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    pub(crate) fn failure(self, what: &str) -> CallFailure {
        match self.open {
            Some(what) => CallFailure::OutcomeUnknown { what },
            None => CallFailure::NoQuorum { what: what.to_owned(), within: self.began.elapsed() },
        }
    }
}
