//! Replicated filters: this node's copies, and how they exchange what they have with other nodes'.
//!
//! | module | what it does |
//! |---|---|
//! | [`copy`] | one copy behind a lock: local inserts and questions, deltas given and taken |
//! | [`journal`] | inserts made durable, which then take effect in the order of the log |
//! | [`load`] | how a copy is, for tables |
//! | [`image`] | a copy saved to a snapshot, and read back with what the log has since |
//! | [`copies`] | the copies that the catalogue wants this node to have |
//! | [`exchange`] | sweeps over the cube (`umbel_engine::hypercube`) |
//! | [`asking`], [`answering`] | the two sides of one step |
//! | [`questions`] | how many questions a node holds |
//! | [`settling`] | whether a copy that came late has enough to count for a majority |
//! | [`scrub`] | copies compared bit by bit with partners' |
//! | [`wire`], [`pacer`] | messages, and the rate at which they are sent |

mod answering;
mod asking;
mod copies;
mod copy;
mod exchange;
mod failure;
mod image;
mod journal;
mod load;
mod pacer;
mod questions;
mod scrub;
mod serve;
mod settling;
mod wire;

pub(crate) use answering::{AnswerParts, take_questions};
pub(crate) use copies::Copies;
pub(crate) use copy::Copy;
pub(crate) use exchange::exchange;
pub(crate) use failure::CopyFailure;
pub(crate) use image::assembler;
#[cfg(test)]
pub(crate) use scrub::shape_id;
pub(crate) use scrub::{
    Compared, SESSION_TIME_MAX, ScrubAnswer, answer_scrub, take_turns, turn_pause,
};
