//! The interfaces between a node, or a worker of a job, and its environment: network, disk, seed.
//! Simulations replace them. And what both send over them: gRPC, and the encoding of what only they read.
//!
//! Time is tokio's, which simulations control themselves. Everything else that a run depends on passes
//! through these ports, so two runs with equal ports are equal.
//!
//! | module | what it has |
//! |---|---|
//! | crate root | the traits [`Net`], [`Disk`] and [`Seed`] |
//! | `net`, `tls`, `secret` | TCP; with certificates, or with a secret that both ends know |
//! | `connections` | how many connections a process accepts, and which of them make room |
//! | `failed_accepts` | how many lines of the log connections take that cannot be accepted |
//! | `disk`, `issued`, `wrapping` | a folder; certificates in files; encryption of what is stored |
//! | `seed`, `memory` | entropy and wall-clock time; how much memory the process may use |
//! | `long_work` | how a task computes for long without keeping others waiting |
//! | `pacer` | a limit on the byte rate at which a process sends |
//! | `causes`, `locks` | what caused an error, as text; locks that do not spread a panic |
//! | [`channel`] | gRPC over [`Net`]; `frame_watch` and `frame_allowance` bound what a connection may send |
//! | [`encoding`] | bytes of what only nodes and workers read |
//! | [`metrics`] | measurements of connections |
//! | `testing` | networks, seeds, free ports and recordings, for tests alone |

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

mod causes;
pub mod channel;
mod connections;
mod disk;
pub mod encoding;
mod failed_accepts;
mod frame_allowance;
mod frame_watch;
mod hex;
mod issued;
mod limits;
mod locks;
mod long_work;
mod memory;
pub mod metrics;
mod net;
mod pacer;
mod secret;
mod seed;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls;
mod wrapping;

pub use causes::{causes, chain_text};
pub use connections::{ConnectionHandle, ConnectionSlot, raise_descriptor_limit};
pub use disk::RealDisk;
pub use failed_accepts::FailedAccepts;
pub use issued::IssuedFiles;
pub use locks::locked;
pub use long_work::run_blocking;
pub use memory::memory_limit_bytes;
pub use net::{RealNet, listen_advice};
pub use pacer::Pacer;
pub use secret::{NotProved, OnRefused, SecretNet};
pub use seed::RealSeed;
pub use tls::{PinnedNet, TlsNet};
pub use umbel_tls::{
    LeftOut, NodeIdentity, NodeSigner, PeerIdentity, SecretRefusal, SecretTls, StrangerLines,
};
pub use wrapping::{KeyFileError, NotUnwrapped, WRAPPED_EXTRA_BYTES, WrappingKey};

/// The future of a port's call.
pub type PortFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A connection, as a stream of bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// Outgoing and incoming connections.
pub trait Net: Send + Sync + 'static {
    /// Listens on `host:port`; with port 0 the system chooses one.
    fn listen<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Listener>>>;

    /// Connects to `host:port`.
    fn connect<'a>(&'a self, address: &'a str) -> PortFuture<'a, io::Result<Box<dyn Stream>>>;

    /// Connects to a particular node at `host:port`; fails if the server proves to be another node. If
    /// the network proves no identities, any server is accepted.
    fn connect_node<'a>(
        &'a self,
        address: &'a str,
        _wanted: NodeIdentity,
    ) -> PortFuture<'a, io::Result<Box<dyn Stream>>> {
        self.connect(address)
    }

    /// Signs certificates of nodes, if this node has the authority's key.
    fn node_signer(&self) -> Option<&NodeSigner> {
        None
    }

    /// Where this node's certificate is stored, if the cluster issued it and it is due for renewal.
    fn due_certificate(&self) -> Option<&IssuedFiles> {
        None
    }
}

/// An accepted connection.
pub struct Incoming {
    /// The stream of bytes.
    pub stream: Box<dyn Stream>,
    /// The peer's address, for messages.
    pub from: String,
    /// The peer's identity, as far as it was proved.
    pub identity: PeerIdentity,
    /// Its slot among the connections that the process accepts, if they are counted.
    pub slot: Option<ConnectionSlot>,
}

impl Incoming {
    /// A connection whose peer was not asked to prove its identity.
    pub fn unchecked(stream: impl Stream, from: String) -> Self {
        Self { stream: Box::new(stream), from, identity: PeerIdentity::Unchecked, slot: None }
    }
}

/// Accepts connections.
pub trait Listener: Send + 'static {
    /// The address that it listens on, with the port that was chosen.
    fn local_address(&self) -> String;

    /// The next connection. Cancel-safe: dropping the future loses no connection.
    fn accept(&mut self) -> PortFuture<'_, io::Result<Incoming>>;
}

/// The node's data folder. Paths are relative, with `/` as separator.
///
/// Durability at a power loss is that of POSIX: written bytes and lengths are durable after `sync` of
/// the file, names after `sync_folder` of the folder.
pub trait Disk: Send + Sync + 'static {
    /// Opens a file. It must exist unless `create` is set; with `create`, an existing file is
    /// truncated.
    fn open<'a>(&'a self, path: &'a str, create: bool)
    -> PortFuture<'a, io::Result<Arc<dyn File>>>;

    /// The names in a folder, sorted; empty if the folder does not exist.
    fn list<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<Vec<String>>>;

    /// Creates a folder and its parents, if they do not exist.
    fn make_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>>;

    /// Renames a file within the data folder; replaces an existing one.
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> PortFuture<'a, io::Result<()>>;

    /// Removes a file.
    fn remove<'a>(&'a self, path: &'a str) -> PortFuture<'a, io::Result<()>>;

    /// Removes a folder; does nothing if it does not exist or contains anything. It may return at a power loss until
    /// the folder above it is synced.
    fn remove_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>>;

    /// Makes the names in a folder durable; `""` is the data folder itself.
    fn sync_folder<'a>(&'a self, folder: &'a str) -> PortFuture<'a, io::Result<()>>;

    /// Free bytes of the disk.
    fn free_bytes(&self) -> PortFuture<'_, io::Result<u64>>;

    /// Keeps other processes from using the folder while the returned guard lives.
    ///
    /// # Errors
    /// `WouldBlock` if another process has it.
    fn lock(&self) -> PortFuture<'_, io::Result<Box<dyn Send + Sync>>>;
}

/// An open file. Calls on one file are made one after the other.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait File: Send + Sync + 'static {
    /// Reads up to `byte_count` bytes from `offset`; fewer only at the file's end.
    fn read_at(&self, offset: u64, byte_count: usize) -> PortFuture<'_, io::Result<Bytes>>;

    /// Reads several pieces, each an offset and a number of bytes, like [`read_at`](Self::read_at), in their order.
    fn read_pieces(&self, pieces: Vec<(u64, usize)>) -> PortFuture<'_, io::Result<Vec<Bytes>>> {
        Box::pin(async move {
            let mut read = Vec::with_capacity(pieces.len());
            for (offset, byte_count) in pieces {
                read.push(self.read_at(offset, byte_count).await?);
            }
            Ok(read)
        })
    }

    /// Writes all bytes at `offset`. After an error any part of them may have been written.
    fn write_at(&self, offset: u64, bytes: Bytes) -> PortFuture<'_, io::Result<()>>;

    /// Writes all bytes at `offset`, then syncs: the most frequent operation of a log, in one call.
    fn write_and_sync(&self, offset: u64, bytes: Bytes) -> PortFuture<'_, Result<(), WriteError>>;

    /// Makes the file's bytes and length durable.
    fn sync(&self) -> PortFuture<'_, io::Result<()>>;

    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, byte_count: u64) -> PortFuture<'_, io::Result<()>>;

    /// The file's length in bytes.
    fn len(&self) -> PortFuture<'_, io::Result<u64>>;
}

/// Which part of [`File::write_and_sync`] failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The write failed; none of it counts as durable, and it may be retried at the same offset.
    #[error("write failed")]
    Write(#[source] io::Error),
    /// The sync failed: the content of the disk is unknown from here on. The file must not be used
    /// again.
    #[error("sync failed")]
    Sync(#[source] io::Error),
}

/// What entropy is drawn for. In simulations each purpose has its own stream, so that an additional
/// draw for one does not shift the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Purpose {
    /// Identity of a cluster, nonce of a joining node.
    Identity,
    /// Hash key of a filter, and the position of one that is in one shard.
    FilterKey,
    /// Election timeouts.
    Election,
    /// Number that distinguishes a process of a node from the previous one.
    Incarnation,
    /// Pauses between retries.
    Backoff,
    /// Numbers of delta logs.
    DeltaLog,
    /// Seeds of jobs.
    Job,
    /// Secrets of jobs.
    JobSecret,
    /// Order, pauses and keys of comparisons of copies.
    Scrub,
    /// Key for the tags of session numbers.
    SessionKey,
    /// Nonces for wrapping data on the disk.
    Wrapping,
    /// Random items that are looked up in filters to measure their false-positive rate.
    RateProbes,
    /// Numbers of snapshots, and of new copies of a filter.
    Snapshot,
    /// What tells imports under one name apart.
    Import,
}

/// A choice that a node makes rarely and a simulation often, because it hides bugs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rare {
    /// Segments of the log have 16 KiB.
    SmallSegments,
    /// Groups write a snapshot every 64 entries and keep 4 covered entries.
    SnapshotsOften,
    /// Snapshots are sent in pieces of 1 KiB, and deltas between copies of replicated filters in frames
    /// of 256 bytes; the copies' delta logs are small.
    SmallPieces,
    /// A batch of inserts closes after one request.
    SmallBatches,
    /// The coordinator uses the shard map and catalogue that the node had 2 s before.
    OldMap,
    /// The log is read 300 bytes at once, or one record.
    ShortReads,
    /// Replicas that are added are sent at most 16 KiB of snapshots per second, in pieces of 1 KiB.
    SlowMoves,
}

impl Rare {
    /// All of them, with their names in plans of simulations.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::SmallSegments, "small_segments"),
        (Self::SnapshotsOften, "snapshots_often"),
        (Self::SmallPieces, "small_pieces"),
        (Self::SmallBatches, "small_batches"),
        (Self::OldMap, "old_map"),
        (Self::ShortReads, "short_reads"),
        (Self::SlowMoves, "slow_moves"),
    ];
}

/// Entropy and wall-clock time.
pub trait Seed: Send + Sync + 'static {
    /// Fills the bytes with entropy.
    fn fill(&self, purpose: Purpose, bytes: &mut [u8]);

    /// Milliseconds since 1970: for log lines and records that people read, for expiry, and for the
    /// time slices of windowed filters, where the time is written to their log. No other decision
    /// depends on it. It may jump: what forgets for good asks a node for the time that it believes.
    fn wall_ms(&self) -> u64;

    /// Whether to make this rare choice now; always false in production.
    fn provokes(&self, _rare: Rare) -> bool {
        false
    }

    /// A random number made from such bytes.
    fn number(&self, purpose: Purpose) -> u64 {
        let mut bytes = [0; 8];
        self.fill(purpose, &mut bytes);
        u64::from_le_bytes(bytes)
    }
}
