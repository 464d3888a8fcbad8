//! Coordinators of whole nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::{FilterId, Generation, ShardId};
use umbel_filter::{AnyFilter, ItemHasher};
use umbel_node::ports::Ports;
use umbel_node::ports::observer::Event;
use umbel_node::{Config, Node, StartError};
use umbel_ports::{Purpose, Rare, RealSeed, Seed};

use crate::Coordinator;

mod any_of_test;
mod arrivals_test;
mod confirm_test;
mod dropped_exports_test;
mod expiry_test;
mod full_disk_test;
mod golden_folder_test;
mod hanging_disk_test;
mod imports_test;
mod intersect_test;
mod location_test;
mod merge_test;
mod nearby_test;
pub(crate) mod node_test;
mod overlap_test;
mod recut_test;
mod releases_test;
mod renamed_test;
mod replicated_copies_test;
mod replicated_test;
mod scrub_test;
mod shard_scrub_test;
mod sum_test;
mod unreachable_test;
mod windowed_copies_test;
mod windowed_test;

/// A node with a coordinator beside the one that serves its clients.
pub(crate) trait Coordinated {
    fn coordinator(&self) -> Arc<Coordinator>;
}

impl Coordinated for Node {
    fn coordinator(&self) -> Arc<Coordinator> {
        Arc::new(Coordinator::new(Arc::new(self.leader_calls(Arc::new(FixedKeys::default())))))
    }
}

/// Draws the same keys for filters in every run, so that a test that counts new items meets the same false
/// positives each time. All else is real.
#[derive(Default)]
struct FixedKeys(AtomicU64);

impl Seed for FixedKeys {
    fn fill(&self, purpose: Purpose, bytes: &mut [u8]) {
        if purpose != Purpose::FilterKey {
            return RealSeed.fill(purpose, bytes);
        }
        for part in bytes.chunks_mut(8) {
            let seed = self.0.fetch_add(1, Ordering::Relaxed);
            let drawn = ItemHasher::Xxh3 { seed }.hash(b"key").hi().to_le_bytes();
            part.copy_from_slice(&drawn[..part.len()]);
        }
    }

    fn wall_ms(&self) -> u64 {
        RealSeed.wall_ms()
    }
}
