//! The foundation of every state machine in Umbel.
//!
//! They all share one contract: `step(input, &mut outbox)`. A state machine receives an event (a frame
//! arrived, a list was loaded) and pushes orders into its [`Outbox`] (send this, drop that). It owns no
//! socket, file, clock, thread or random number generator, so the same code runs in a unit test that passes
//! messages in a loop, in the fuzzer, in the simulation and in production, and one seed reproduces every
//! run.
//!
//! | module | contents |
//! |---|---|
//! | [`Outbox`] | the orders of one or more steps |
//! | [`planted`] | deliberate bugs for the simulations to find, compiled only into them |

mod outbox;
pub mod planted;

pub use outbox::Outbox;
