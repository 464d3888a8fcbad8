//! What a node is given of the world: network, disk, seed. Simulations give another one.
//!
//! Time is tokio's, which simulations turn themselves. Everything else that a run depends on comes
//! through here, so a run with equal ports is an equal run.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use umbel_engine::meta::VersionRange;

pub(crate) use self::connections::{Connection, ConnectionSlot};
pub(crate) use self::secret::NotProved;
use crate::jobs::Workshops;

mod connections;
mod disk;
mod issued;
mod memory;
mod net;
pub mod observer;
mod secret;
mod seed;
pub(crate) mod tls;
mod wrapping;

pub use connections::raise_descriptor_limit;
pub use disk::RealDisk;
pub use issued::IssuedFiles;
pub use memory::memory_limit_bytes;
pub use net::RealNet;
pub use observer::Observer;
pub use secret::{OnRefused, SecretNet};
pub use seed::RealSeed;
pub use tls::TlsNet;
pub use umbel_tls::{NodeIdentity, NodeSigner, PeerIdentity, SecretRefusal, SecretTls};
pub use wrapping::{KeyFileError, NotUnwrapped, WRAPPED_EXTRA_BYTES, WrappingKey};

/// A future of a port's call.
pub type PortFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// All ports of a node.
#[derive(Clone)]
pub struct Ports {
    /// The network.
    pub net: Arc<dyn Net>,
    /// The node's data folder.
    pub disk: Arc<dyn Disk>,
    /// Entropy and wall-clock time.
    pub seed: Arc<dyn Seed>,
    /// The observer of what the node does; none in production.
    pub observer: Option<Arc<dyn Observer>>,
    /// Input, scratch and outputs of jobs on this node; without it, it takes no part in any.
    pub workshops: Option<Arc<dyn Workshops>>,
    /// What wraps the secrets on the disk; without it they lie there as they are.
    pub wrapping: Option<Arc<WrappingKey>>,
    /// Versions of clusters that the node can run: this release's. Simulations run nodes as of an earlier one.
    pub versions: VersionRange,
}

impl Ports {
    /// The machine's: TCP, a folder that is made if it is not there, the system's entropy.
    ///
    /// # Errors
    /// If the folder can be neither found nor made.
    pub fn real(data: &std::path::Path) -> io::Result<Self> {
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

/// A connection: bytes in, bytes out.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// Connections in and out.
pub trait Net: Send + Sync + 'static {
    /// Listens on `host:port`; port 0 lets the system choose.
    fn listen<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Listener>>>;

    /// Connects to `host:port`.
    fn connect<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Stream>>>;

    /// Connects to a certain node at `host:port`: who proves to be another one is not it. Where nobody
    /// proves anything, whoever is there will do.
    fn connect_node<'a>(
        &'a self,
        address: &'a str,
        _wanted: NodeIdentity,
    ) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        self.connect(address)
    }

    /// What signs certificates of nodes, if this node has the authority's key.
    fn node_signer(&self) -> Option<&NodeSigner> {
        None
    }

    /// Where this node's certificate lies, if the cluster issued it and it is time for the next one.
    fn due_certificate(&self) -> Option<&IssuedFiles> {
        None
    }
}

/// A connection that was taken.
pub struct Incoming {
    /// Its bytes.
    pub stream: Box<dyn Stream>,
    /// Whom it comes from, for messages.
    pub from: String,
    /// Who that is, as far as it was proved.
    pub identity: PeerIdentity,
    /// Its place among those that the process takes, where they are counted.
    pub(crate) slot: Option<ConnectionSlot>,
}

impl Incoming {
    /// A connection whose other end was not asked who it is.
    pub fn unchecked(stream: impl Stream, from: String) -> Self {
        Self { stream: Box::new(stream), from, identity: PeerIdentity::Unchecked, slot: None }
    }
}

/// Takes connections.
pub trait Listener: Send + 'static {
    /// Where it listens, with the port that was chosen.
    fn local_address(&self) -> String;

    /// The next connection. Calling it again after its future was dropped loses none.
    fn accept(&mut self) -> PortFuture<'_, io::Result<Incoming>>;
}

/// The node's data folder. Paths are relative, with `/` between parts.
///
/// What the calls promise at a power loss is what POSIX promises: written bytes and lengths are
/// durable after `sync` of the file, names after `sync_folder` of the folder.
pub trait Disk: Send + Sync + 'static {
    /// Opens a file, which must exist unless `create` is set; then an existing one is emptied.
    fn open<'a>(&'a self, path: &'a str, create: bool)
    -> PortFuture<'a, io::Result<Arc<dyn File>>>;

    /// Names in a folder, sorted; none if the folder is not there.
    fn list<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<Vec<String>>>;

    /// Makes a folder and those above it, if they are not there.
    fn make_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>>;

    /// Renames a file within the data folder, over another one if there is one.
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> PortFuture<'a, io::Result<()>>;

    /// Removes a file.
    fn remove<'a>(&'a self, path: &'a str) -> PortFuture<'a, io::Result<()>>;

    /// Makes the names in a folder durable; `""` is the data folder itself.
    fn sync_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>>;

    /// Bytes that may still be written.
    fn free_bytes(&self) -> PortFuture<'_, io::Result<u64>>;

    /// Keeps other processes off the folder while the returned guard lives.
    ///
    /// # Errors
    /// `WouldBlock` if another process has it.
    fn lock(&self) -> PortFuture<'_, io::Result<Box<dyn Send + Sync>>>;
}

/// An open file. Calls on one file come one after the other.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait File: Send + Sync + 'static {
    /// Reads up to `byte_count` bytes from `offset`; fewer only at the file's end.
    fn read_at(&self, offset: u64, byte_count: usize) -> PortFuture<'_, io::Result<Bytes>>;

    /// Writes all bytes at `offset`. After an error any part of them may have been written.
    fn write_at(&self, offset: u64, bytes: Bytes) -> PortFuture<'_, io::Result<()>>;

    /// Writes all bytes at `offset`, then syncs: what a log does most, in one call.
    fn write_and_sync(&self, offset: u64, bytes: Bytes) -> PortFuture<'_, Result<(), WriteError>>;

    /// Makes the file's bytes and length durable.
    fn sync(&self) -> PortFuture<'_, io::Result<()>>;

    /// Cuts the file or lengthens it with zeros.
    fn set_len(&self, byte_count: u64) -> PortFuture<'_, io::Result<()>>;

    /// The file's length in bytes.
    fn len(&self) -> PortFuture<'_, io::Result<u64>>;
}

/// Which half of [`File::write_and_sync`] failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The write; nothing of it counts as durable, and it may be tried again at the same place.
    #[error("write failed")]
    Write(#[source] io::Error),
    /// The sync: what the disk holds is unknown from here on. The file must not be used again.
    #[error("sync failed")]
    Sync(#[source] io::Error),
}

/// What entropy is drawn for. Each purpose has a stream of its own in simulations, so that one more
/// draw for one does not shift the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Purpose {
    /// Identity of a cluster, nonce of a joining node.
    Identity,
    /// Hash key of a filter.
    FilterKey,
    /// Election timeouts.
    Election,
    /// What distinguishes one process of a node from the one before it.
    Incarnation,
    /// Waiting times between tries.
    Backoff,
    /// Numbers of delta logs.
    DeltaLog,
    /// Seeds of jobs.
    Job,
    /// Secrets of jobs.
    JobSecret,
    /// Turns, pauses and keys of comparisons of copies.
    Scrub,
    /// What numbers of sessions are tagged with.
    SessionKey,
    /// Nonces of what is wrapped on the disk.
    Wrapping,
    /// Random items that filters are asked for, to measure their rate.
    RateProbes,
    /// Numbers of snapshots, and of copies that are made beside a filter.
    Snapshot,
}

/// A choice that a node makes seldom and a simulation often, because bugs hide behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rare {
    /// Segments of the log hold 16 KiB.
    SmallSegments,
    /// Groups write a snapshot every 64 entries and keep 4 behind it.
    SnapshotsOften,
    /// A snapshot travels in pieces of 1 KiB, what copies of a replicated filter send each other in frames
    /// of 256 bytes, and they remember little of what they sent.
    SmallPieces,
    /// An insert's batch closes after one request.
    SmallBatches,
    /// Shard map and catalogue are taken from what the node had 2 s before.
    OldMap,
}

impl Rare {
    /// All of them, with their names in plans.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::SmallSegments, "small_segments"),
        (Self::SnapshotsOften, "snapshots_often"),
        (Self::SmallPieces, "small_pieces"),
        (Self::SmallBatches, "small_batches"),
        (Self::OldMap, "old_map"),
    ];
}

/// Entropy and wall-clock time.
pub trait Seed: Send + Sync + 'static {
    /// Fills the bytes with entropy.
    fn fill(&self, purpose: Purpose, bytes: &mut [u8]);

    /// Milliseconds since 1970: for log lines and records that people read, for what expires, and for the
    /// slices of windows, into whose log it goes. No other decision rests on it.
    fn wall_ms(&self) -> u64;

    /// Whether to make a rare choice now; production never asks for one.
    fn provokes(&self, _rare: Rare) -> bool {
        false
    }

    /// A random number, from the bytes.
    fn number(&self, purpose: Purpose) -> u64 {
        let mut bytes = [0; 8];
        self.fill(purpose, &mut bytes);
        u64::from_le_bytes(bytes)
    }
}
