//! What every state machine of Umbel stands on.
//!
//! The contract of all of them is one line: `step(input, &mut outbox)`. A machine is told what happened (a frame came,
//! a list was loaded) and pushes orders into its [`Outbox`] (send this, drop that). It owns no socket, file, clock,
//! thread or die, so the same code runs in a unit test that shuttles messages in a loop, in the fuzzer, in a
//! simulated world and in production, and one seed replays everything.
//!
//! | module | what it has |
//! |---|---|
//! | [`Outbox`] | the orders of one or more steps |
//! | [`planted`] | bugs for the simulations to find, compiled only into them |

mod outbox;
pub mod planted;

pub use outbox::Outbox;
