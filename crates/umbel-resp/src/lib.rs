//! The Redis protocol (<https://redis.io/docs/latest/develop/reference/protocol-spec/>) as pure
//! functions: bytes of a client are decoded into [`Request`]s and parsed into [`Command`]s, [`Reply`]
//! values are encoded. The crate has no socket and no clock, and carries out no command.
//!
//! | module | what it does |
//! |---|---|
//! | [`limits`] | what a client may send, each number with its reason |
//! | [`Decoder`] | bytes in pieces of any length to requests, arrays and inline lines |
//! | [`Request`] | the arguments of one command, in one allocation |
//! | [`table`] | every command: name, arity, flags, keys |
//! | [`Command`] | a request whose arguments are understood |
//! | [`Refusal`] | every error text of the dialect |
//! | [`glob`], [`slot`] | patterns of names, hash slots of keys |
//! | [`number`] | integers and floats as the dialect reads them |
//! | [`Reply`] | answers, encoded for RESP2 or RESP3 |

mod arguments;
mod command;
mod decode;
mod describe;
pub mod glob;
mod inline;
pub mod limits;
pub mod number;
mod refusal;
mod reply;
mod request;
pub mod slot;
pub mod table;

pub use arguments::Arguments;
pub use command::{
    AnswerForm, ClientAttribute, ClientChoice, ClientCommand, ClusterQuery, Command, CommandQuery,
    Condition, ConnectionCommand, CreateFilter, Credentials, CuckooCommand, CuckooInsert,
    DumpCommand, Expiry, ExpiryCommand, Hello, InfoField, InsertItems, Items, KeysCommand,
    LatePolicy, ListFilter, NewBloom, NewSize, NewWindow, PayloadCommand, ReplyMode, RequestName,
    RestoreTime, Scan, SetEstimate, TimeUnit, Transaction, UmbelCommand, WindowEnd,
};
pub use decode::{Decoder, ProtocolError};
pub use refusal::Refusal;
pub use reply::{Protocol, Reply, encode_array_head};
pub use request::Request;
