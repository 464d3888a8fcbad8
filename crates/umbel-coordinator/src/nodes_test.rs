//! Coordinators of whole nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::{FilterId, Generation, ShardId};
use umbel_filter::AnyFilter;
use umbel_node::ports::Ports;
use umbel_node::ports::observer::Event;
use umbel_node::{Config, Node, StartError};
use umbel_ports::{Purpose, Rare, RealSeed};

use crate::Coordinator;

mod any_of_test;
mod arrivals_test;
mod confirm_test;
mod golden_folder_test;
mod intersect_test;
mod merge_test;
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
        Arc::new(Coordinator::new(Arc::new(self.leader_calls(Arc::new(RealSeed)))))
    }
}
