//! How many connections a process takes: descriptors are for its log, too.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of so many descriptors one is kept for log, snapshots, jobs and connections to peers.
const KEPT_SHARE: u64 = 3;

/// Descriptors that are counted on where the system has no limit: some ten kilobytes each, which
/// connections that say nothing may cost.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// Room for connections. Who comes when there is none waits in the system's queue.
pub(super) struct ConnectionSlots(Arc<Semaphore>);

/// A connection's place, as long as it lives.
pub(crate) struct ConnectionSlot {
    _permit: OwnedSemaphorePermit,
}

impl ConnectionSlots {
    /// As many as the process's descriptors allow.
    pub(super) fn of_process() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS_MAX);
        Self::new(slot_count(limit))
    }

    fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Waits for a place.
    pub(super) async fn take(&self) -> ConnectionSlot {
        let permit = Arc::clone(&self.0).acquire_owned().await;
        ConnectionSlot { _permit: permit.expect("nobody closes it") }
    }
}

fn slot_count(descriptors: u64) -> usize {
    let descriptors = descriptors.min(DESCRIPTORS_MAX);
    usize::try_from(descriptors - descriptors / KEPT_SHARE).expect("below 2^20").max(1)
}

/// Lets this process have as many descriptors as it may: systems start programs with few, for the
/// sake of those that count on small numbers.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Refused, the process has what it had.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_descriptors_is_kept() {
        assert_eq!(slot_count(1024), 683);
        assert_eq!(slot_count(3), 2);
        assert_eq!(slot_count(1), 1);
        assert_eq!(slot_count(u64::MAX), 699_051);
    }

    #[tokio::test]
    async fn a_place_is_free_again_when_its_connection_is_gone() {
        let slots = ConnectionSlots::new(1);
        let first = slots.take().await;
        let waiting = slots.take();
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(first);
        assert!(futures_util::poll!(&mut waiting).is_ready());
    }
}
