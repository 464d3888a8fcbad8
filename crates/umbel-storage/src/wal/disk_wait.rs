//! For how long the disk keeps the writer of the log waiting.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use umbel_ports::locked;

/// Since when one call of the disk has not returned. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskWait(Arc<Mutex<Option<Instant>>>);

impl DiskWait {
    /// Waits for a call of the disk.
    pub(super) async fn during<T>(&self, call: impl Future<Output = T>) -> T {
        *locked(&self.0) = Some(Instant::now());
        let _until_then = Returned(self);
        call.await
    }

    /// How long the call that runs has taken; zero if none does.
    pub(super) fn so_far(&self) -> Duration {
        let began = *locked(&self.0);
        began.map_or(Duration::ZERO, |began| began.elapsed())
    }
}

/// Ends the wait when it is dropped, also by a panic: the log has failed then, and the disk does not hang.
struct Returned<'a>(&'a DiskWait);

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        *locked(&self.0.0) = None;
    }
}
