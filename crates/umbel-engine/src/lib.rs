//! Every distributed algorithm of Umbel as a deterministic state machine.
//!
//! The contract of the crate is one line: `step(input, &mut outbox)`. A machine is told what happened (a frame came,
//! a list was loaded) and pushes orders into its [`Outbox`] (send this, drop that). It owns no socket, file, clock,
//! thread or die, so the same code runs in a unit test that shuttles messages in a loop, in the fuzzer, in a
//! simulated world and in production, and one seed replays everything.
//!
//! | module | what it decides |
//! |---|---|
//! | [`dedup`] | which records of many workers' inputs are duplicates, for one or two bytes on the wire per record |
//! | [`distribution`] | what a filter costs partitioned and replicated, before there is one |
//! | [`placement`] | which hash ranges the shards have, and which nodes their replicas |
//! | [`routing`] | how a batch is cut into the parts of shards, and answers go back into request order |
//! | [`shard`] | what a shard's replicas do with each command of its log: filters' slices, request ids |
//! | [`hypercube`] | with whom a node exchanges when, and what a copy of a replicated filter has to tell whom |
//! | [`liveness`] | which nodes are alive, who stands for election, who leads where |
//! | [`meta`] | nodes, shard map, catalogue of filters; what has to be done next about them |
//! | [`reconcile`] | which items one of two sets lacks, for close to the fewest bytes |
//! | [`repair`] | which bits two copies of an array differ in, and how they become one again |
//! | [`planted`] | bugs for the simulations to find, compiled only into them |
//! | [`limits`] | the largest of everything, with the reason |

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::cast_possible_truncation))]

pub mod dedup;
pub mod distribution;
pub mod hypercube;
mod ids;
pub mod limits;
pub mod liveness;
pub mod meta;
mod outbox;
pub mod placement;
pub mod planted;
pub mod reconcile;
pub mod repair;
pub mod routing;
pub mod shard;

pub use ids::{
    Epoch, FilterId, Generation, GroupId, JobId, NodeId, OwnerId, RequestId, SessionId, ShardId,
};
pub use outbox::Outbox;
