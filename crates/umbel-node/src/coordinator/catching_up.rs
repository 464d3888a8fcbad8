//! Whether this node has reached the majority since it started: until then its catalogue may be any old one.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use umbel_step::planted::{self, Planted};

use super::Coordinator;

/// Longest time that a call waits for it. Every call that comes before asks anew, so it is less than what
/// clients give an attempt.
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(1);

impl Coordinator {
    /// Whether the catalogue here has all that the majority had when this node started; waits a moment
    /// for it.
    ///
    /// A node that starts reads its log from the last snapshot on, and one that joins gets it from the first
    /// entry on: who asks meanwhile would meet a cluster without principals, or one in which those have
    /// rights who have lost them.
    pub(crate) async fn has_caught_up(&self) -> bool {
        if self.caught_up.initialized() || planted::on(Planted::StartUnheard) {
            return true;
        }
        let catch_up = || self.meta_refresh(Instant::now() + CATCH_UP_TIME_MAX);
        // One asks, the others wait for its answer.
        let caught_up = timeout(CATCH_UP_TIME_MAX, self.caught_up.get_or_try_init(catch_up)).await;
        matches!(caught_up, Ok(Ok(())))
    }

    /// Takes what is here for what the majority had, in tests that have no cluster.
    #[cfg(test)]
    pub(crate) fn skip_catch_up(&self) {
        let _ = self.caught_up.set(());
    }
}
