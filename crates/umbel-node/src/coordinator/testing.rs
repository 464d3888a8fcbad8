//! Coordinators without a cluster, for tests of what serves clients. Compiled only with the feature `testing`.

use std::sync::Arc;

use umbel_ports::RealSeed;

use super::Coordinator;

impl Coordinator {
    /// The coordinator of a node that belongs to no cluster.
    #[must_use]
    pub fn without_cluster() -> Self {
        Self::new(Arc::default(), Arc::new(RealSeed))
    }

    /// Treats this node's catalogue as current, although no majority was asked.
    pub fn skip_catch_up(&self) {
        let _ = self.caught_up.set(());
    }
}
