//! The algorithms of a cluster as deterministic state machines.
//!
//! Each is a `step(input, &mut outbox)` or an `apply(command)` that uses no socket, file, clock, thread or
//! random number generator ([`umbel_step`]). The state machines of replicated filters, of duplicate detection
//! and of set reconciliation are in crates of their own, `umbel-replicated-engine`, `umbel-dedup-engine` and
//! `umbel-reconcile-engine`.
//!
//! | module | what it decides |
//! |---|---|
//! | [`placement`] | which hash range each shard has, and which nodes hold its replicas |
//! | [`routing`] | splitting a batch into one part per shard, and putting the answers back into request order |
//! | [`shard`] | how a shard's replicas apply the commands of its log: slices of filters, request ids |
//! | [`liveness`] | which nodes are alive, which replica stands for election, where leadership should be |
//! | [`meta`] | nodes, shard map, catalogue of filters; which tasks are due for them |
//! | [`clocks`] | whose wall clock is wrong |
//! | [`limits`] | every size limit, with its reason |

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::cast_possible_truncation))]

pub mod clocks;
#[cfg(test)]
mod drawn_test;
mod ids;
pub mod limits;
pub mod liveness;
pub mod meta;
pub mod placement;
pub mod routing;
pub mod shard;

pub use ids::{
    Epoch, FilterId, Generation, GroupId, JobId, NodeId, OwnerId, RequestId, SessionId, ShardId,
};
