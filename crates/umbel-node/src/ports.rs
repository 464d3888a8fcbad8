//! All ports of a node: those of [`umbel_ports`], the observer of its events, and its data of jobs.

use std::io;
use std::path::Path;
use std::sync::Arc;

use umbel_engine::meta::VersionRange;
use umbel_jobs::Workshops;
use umbel_ports::{Disk, Net, RealDisk, RealNet, RealSeed, Seed, WrappingKey};

pub mod observer;

pub use observer::NodeObserver;

/// All ports of a node.
#[derive(Clone)]
pub struct Ports {
    /// The network.
    pub net: Arc<dyn Net>,
    /// The node's data folder.
    pub disk: Arc<dyn Disk>,
    /// Entropy and wall-clock time.
    pub seed: Arc<dyn Seed>,
    /// The observer of the node's events; None in production.
    pub observer: Option<Arc<dyn NodeObserver>>,
    /// Input, scratch space and outputs of jobs on this node; without them, the node takes part in no
    /// job.
    pub workshops: Option<Arc<dyn Workshops>>,
    /// The key that wraps secrets on the disk; without it they are stored unencrypted.
    pub wrapping: Option<Arc<WrappingKey>>,
    /// Cluster versions that the node supports: this release's. Simulations run nodes of earlier ones.
    pub versions: VersionRange,
}

impl Ports {
    /// The machine's own ports: TCP, a data folder that is created if it does not exist, the system's
    /// entropy.
    ///
    /// # Errors
    /// If the folder can neither be found nor created.
    pub fn real(data: &Path) -> io::Result<Self> {
        Ok(Self {
            net: Arc::new(RealNet),
            disk: Arc::new(RealDisk::open(data)?),
            seed: Arc::new(RealSeed),
            observer: None,
            workshops: None,
            wrapping: None,
            versions: VersionRange::OWN,
        })
    }
}
