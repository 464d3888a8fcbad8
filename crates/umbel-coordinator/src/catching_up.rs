//! Whether this node has reached the majority since it started: until then its catalogue may be
//! arbitrarily old.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use umbel_step::planted::{self, Planted};

use super::Coordinator;

/// How long a call waits for that at most. Every call before then asks again, so this is less than what
/// clients allow for an attempt.
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(1);

impl Coordinator {
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
        let catch_up = || self.meta_refresh(Instant::now() + CATCH_UP_TIME_MAX);
        // One call asks, the others wait for its answer.
        let caught_up = timeout(CATCH_UP_TIME_MAX, self.caught_up.get_or_try_init(catch_up)).await;
        matches!(caught_up, Ok(Ok(())))
    }
}
