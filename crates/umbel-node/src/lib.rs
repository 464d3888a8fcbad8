//! A node of an Umbel cluster: replicas of shards, copies of replicated filters, its life cycle. Its Raft groups
//! and its links to other nodes are in [`umbel_raft`].
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | settings, each described once |
//! | [`ports`] | all ports of a node, which simulations replace; observation of a node |
//! | `arrivals` | rates of new items per slice and per copy |
//! | `shard_leader` | batches inserts into entries of a shard's log; confirmed reads |
//! | `cube` | copies of replicated filters, and their exchange over the hypercube |
//! | [`comparisons`] | the last results of comparisons between replicas |
//! | [`item_batch`] | the items of a request, checked and hashed where they were received |
//! | [`leader_calls`] | finds the leaders of groups, calls them, and calls again |
//! | `client_interface` | what a node gives to the interface for its clients |
//! | [`export_change`] | differences between exported frames, for both sides of an export |
//! | `ledger_jobs` | workers of the cluster's duplicate-detection jobs on this node |
//! | `formation`, `peer_admission`, `controller` | how a cluster forms, who may join, controller tasks |
//! | `founder_looks`, `awaited` | which founders do not answer, and what clients hear until the cluster is formed |
//! | `enrolment`, `renewal` | how a node gets its first certificate from its cluster, and renews it |
//! | `reasons` | what a node logs while it asks a cluster to take it |
//! | `wall_clock` | the wall clock by which filters expire and windows forget, also when it jumps |
//! | `local`, `node` | the state of a running node, and its life cycle |
//! | `member` | who a node is in its cluster, and its calls to other nodes, for `local` and `cube` |
//! | `local_copy` | read access to a copy of a replicated filter, for programs that embed the node |

mod arrivals;
mod awaited;
pub mod calls;
mod client_interface;
pub mod comparisons;
pub mod config;
mod controller;
pub mod cube;
mod enrolment;
pub mod export_change;
mod exports;
pub mod failure;
mod formation;
mod founder_looks;
pub mod item_batch;
pub mod leader_calls;
mod ledger_jobs;
pub mod limits;
mod local;
mod local_copy;
mod member;
pub mod metrics;
mod node;
mod node_failure;
mod peer_admission;
pub mod ports;
mod reasons;
mod renewal;
mod self_report;
mod shard_leader;
mod space;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod wall_clock;

pub use client_interface::{ClientInterface, ServedNode};
pub use config::{Config, ConfigError};
pub use enrolment::{EnrolError, enrol};
pub use formation::warn_of_other_cluster;
pub use local::{Local, Readiness};
pub use local_copy::{LocalCopy, LocalCopyError};
pub use metrics::HISTOGRAMS;
pub use node::{Node, StartError};
pub use node_failure::NodeFailure;
pub use renewal::warn_of_refused_certificate;
pub use umbel_engine::meta::CORE_COUNT_MAX;

/// Calls between nodes, as far as what is above the node needs them.
pub mod peer {
    pub use umbel_raft::peer::{
        LocalIdentity, PEER_PROTOCOL, add_hello, cluster_bytes, peer_client,
    };
}

/// The release version of this node.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
