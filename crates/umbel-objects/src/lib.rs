//! Objects of S3-compatible stores, as bytes that are read by offset, and as outputs.
//!
//! ```text
//! s3://BUCKET/KEY, GLOB --ObjectAddress, Pattern--> ObjectStore --list, open--> Object
//! Object --RemoteBytes::open--> ObjectReader --parts, some ahead--> ObjectStore::fetch --ranged GETs--> server
//! output bytes --Upload, in parts--> ObjectStore::{begin, send_part} --PendingObject, at the commit--> finish, or put
//! ```
//!
//! An [`Object`] is pinned to the entity tag that it had when it was opened: whoever reads it later sees those bytes, or
//! an error. An [`Upload`] is visible once its [`PendingObject`] is committed, and aborted if the process ends before.
//! Everything that goes over the wire is signed in `sign.rs`, tried again in `store.rs`, and told in words in `error.rs`.
//! Nothing else of the project knows HTTP as a client of stores. The handler of signals is the program's: it calls
//! [`abort_open_uploads`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod address;
mod error;
mod listing;
mod object;
mod open_uploads;
mod part;
mod puts;
mod read_ahead;
mod settings;
mod sign;
mod store;
mod upload;

pub use address::ObjectAddress;
pub use error::{AddressError, ObjectError, Refusal, StoreError};
pub use object::{Failure, Object};
pub use open_uploads::abort_open_uploads;
pub use store::ObjectStore;
pub use upload::{KeptUpload, PendingObject, Upload};
