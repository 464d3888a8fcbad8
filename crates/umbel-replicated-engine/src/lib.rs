//! Replicated filters as deterministic state machines.
//!
//! Each is a `step(input, &mut outbox)` that uses no socket, file, clock, thread or random number generator
//! ([`umbel_step`]). What a cluster knows and decides, and its partitioned filters, are in [`umbel_engine`].
//!
//! | module | what it decides |
//! |---|---|
//! | [`distribution`] | what a filter costs if partitioned and if replicated, estimated before it is created |
//! | [`hypercube`] | when and with whom a node gossips, and what a copy of a replicated filter sends |
//! | [`repair`] | in which bits two copies of an array differ, and how they are made equal again |
//! | [`limits`] | every size limit, with its reason |

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::cast_possible_truncation))]

pub mod distribution;
pub mod hypercube;
pub mod limits;
pub mod repair;
