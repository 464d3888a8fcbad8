//! A node of an Umbel cluster: Raft groups, peers, copies of replicated filters.
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | settings, each described once |
//! | [`ports`] | all ports of a node, which simulations replace; observation of a node |
//! | `raft` | openraft behind Umbel's types, over the logs and snapshots of [`umbel_storage`] |
//! | [`peer`] | links between nodes |
//! | `arrivals` | rates of new items per slice and per copy |
//! | `beats` | which nodes are alive; starts an election when a leader is not |
//! | `shard_leader` | batches inserts into entries of a shard's log; confirmed reads |
//! | `cube` | copies of replicated filters, and their exchange over the hypercube |
//! | [`comparisons`] | the last results of comparisons between replicas |
//! | [`leader_calls`] | finds the leaders of groups, calls them, and calls again |
//! | `client_interface` | what a node gives to the interface for its clients |
//! | [`export_change`] | differences between exported frames, for both sides of an export |
//! | `ledger_jobs` | workers of the cluster's duplicate-detection jobs on this node |
//! | `formation`, `peer_admission`, `controller` | how a cluster forms, who may join, controller tasks |
//! | `enrolment`, `renewal` | how a node gets its first certificate from its cluster, and renews it |
//! | `local`, `node` | the state of a running node, and its life cycle |
//! | `local_copy` | read access to a copy of a replicated filter, for programs that embed the node |

mod arrivals;
mod beats;
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
pub mod leader_calls;
mod ledger_jobs;
pub mod limits;
mod local;
mod local_copy;
pub mod metrics;
mod node;
pub mod peer;
mod peer_admission;
pub mod ports;
mod raft;
mod recall;
mod renewal;
mod self_report;
mod shard_leader;
mod space;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod witness;

pub use client_interface::{ClientInterface, ServedNode};
pub use config::{Config, ConfigError};
pub use enrolment::{EnrolError, enrol};
pub use local::Local;
pub use local_copy::{LocalCopy, LocalCopyError};
pub use metrics::HISTOGRAMS;
pub use node::{Node, NodeFailure, StartError};
pub use umbel_engine::meta::CORE_COUNT_MAX;

/// The release version of this node.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
