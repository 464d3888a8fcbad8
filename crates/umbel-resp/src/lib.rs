//! The Redis protocol (<https://redis.io/docs/latest/develop/reference/protocol-spec/>) as pure
//! functions: bytes of a client become [`Request`]s, [`Reply`] values become bytes. No socket, no
//! clock, no knowledge of what a command does.
//!
//! | module | what it does |
//! |---|---|
//! | [`limits`] | what a client may send, each number with its reason |
//! | [`Decoder`] | bytes in pieces of any length to requests, arrays and inline lines |
//! | [`Request`] | the arguments of one command, in one allocation |
//! | [`number`] | integers and floats as the dialect reads them |
//! | [`Reply`] | answers, encoded for RESP2 or RESP3 |

mod decode;
mod inline;
pub mod limits;
pub mod number;
mod reply;
mod request;

pub use decode::{Decoder, ProtocolError};
pub use reply::{Protocol, Reply};
pub use request::Request;
