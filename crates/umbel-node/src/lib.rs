//! A node of an Umbel cluster: Raft groups, log, peers, coordinator, gateway.
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | settings, each described once |
//! | [`ports`] | network, disk and entropy, which simulations replace |
//! | `storage` | one log for all groups, snapshots, identity |
//! | `raft` | openraft behind Umbel's types; nothing else knows it |
//! | `peer` | links between nodes |
//! | `arrivals` | how fast new items come to slices and copies |
//! | `beats` | which nodes are alive; elections when one is not |
//! | `shard_leader` | batches of inserts into entries of a shard's log, confirmed reads |
//! | `cube` | copies of replicated filters, and their exchange |
//! | `comparisons` | what comparisons of replicas came to last |
//! | `coordinator` | hash at the edge, cut by shard, follow leaders, join |
//! | `gateway` | what clients see: gRPC, the Redis protocol, health, metrics |
//! | [`export_change`] | what changed of exported frames, for who sends exports and who takes them |
//! | [`redis_bloom_dump`] | between RedisBloom's dumps and frames, for who sends exports and who takes them |
//! | [`redis_bloom_value`] | RedisBloom's filters in Redis's files and payloads, for who sends exports and who takes them |
//! | [`jobs`] | workers of duplicate-detection jobs |
//! | `formation`, `peer_admission`, `controller` | how a cluster forms, who may enter, what its leader has done |
//! | `enrolment`, `renewal` | how a node comes to a certificate from its cluster, and to the next one |
//! | `local`, `node` | what a node has, from its start to its end |
//! | `local_copy` | a copy of a replicated filter for programs that run the node themselves |

mod arrivals;
mod beats;
mod calls;
mod comparisons;
pub mod config;
mod controller;
mod coordinator;
mod cube;
mod enrolment;
pub mod export_change;
mod exports;
mod failure;
mod formation;
mod gateway;
pub mod jobs;
pub mod limits;
mod local;
mod local_copy;
mod metrics;
mod node;
mod peer;
mod peer_admission;
pub mod ports;
mod raft;
mod rates;
mod recall;
pub mod redis_bloom_dump;
pub mod redis_bloom_value;
mod renewal;
mod self_report;
mod shard_leader;
mod space;
mod storage;
mod witness;

pub use config::{Config, ConfigError};
pub use enrolment::{EnrolError, enrol};
pub use local_copy::{LocalCopy, LocalCopyError};
pub use metrics::HISTOGRAMS;
pub use node::{Node, NodeFailure, RenderMetrics, StartError};
pub use umbel_engine::meta::CORE_COUNT_MAX;

/// The release of this node.
const VERSION: &str = env!("CARGO_PKG_VERSION");
