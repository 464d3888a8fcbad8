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
//! | [`limits`] | the largest of everything, with the reason |

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::cast_possible_truncation))]

pub mod dedup;
pub mod limits;
mod outbox;

pub use outbox::Outbox;
