//! The algorithms of a cluster as deterministic state machines.
//!
//! Each is a `step(input, &mut outbox)` or an `apply(command)` without sockets, files, clocks, threads and dice
//! ([`umbel_step`]). Those of duplicate detection and of set reconciliation are crates of their own,
//! `umbel-dedup-engine` and [`umbel_reconcile_engine`].
//!
//! | module | what it decides |
//! |---|---|
//! | [`distribution`] | what a filter costs partitioned and replicated, before there is one |
//! | [`placement`] | which hash ranges the shards have, and which nodes their replicas |
//! | [`routing`] | how a batch is cut into the parts of shards, and answers go back into request order |
//! | [`shard`] | what a shard's replicas do with each command of its log: filters' slices, request ids |
//! | [`hypercube`] | with whom a node exchanges when, and what a copy of a replicated filter has to send to whom |
//! | [`liveness`] | which nodes are alive, who stands for election, who leads where |
//! | [`meta`] | nodes, shard map, catalogue of filters; what has to be done next about them |
//! | [`repair`] | which bits two copies of an array differ in, and how they become one again |
//! | [`limits`] | the largest of everything, with the reason |

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::cast_possible_truncation))]

pub mod distribution;
pub mod hypercube;
mod ids;
pub mod limits;
pub mod liveness;
pub mod meta;
pub mod placement;
pub mod repair;
pub mod routing;
pub mod shard;

pub use ids::{
    Epoch, FilterId, Generation, GroupId, JobId, NodeId, OwnerId, RequestId, SessionId, ShardId,
};
