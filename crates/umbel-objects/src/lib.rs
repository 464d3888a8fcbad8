//! Objects of S3-compatible stores: inputs that are read by offset, and outputs.
//!
//! ```text
//! s3://BUCKET/KEY, GLOB --ObjectAddress, Pattern--> ObjectStore --list, open--> Object
//! Object --RemoteBytes::open--> ObjectReader --parts, some ahead--> ObjectStore::fetch --ranged GETs--> server
//! output bytes --Upload, in parts--> ObjectStore::{begin, send_part} --PendingObject, at the commit--> finish, or put
//! ```
//!
//! An [`Object`] is pinned to the entity tag that it had when it was opened: a later read returns bytes of
//! that version or an error. An [`Upload`] becomes visible when its [`PendingObject`] is committed, and is
//! aborted if the process ends before that. `sign.rs` signs all requests, `store.rs` sends and retries them,
//! and `error.rs` describes their failures. This crate alone contains an HTTP client for object stores. The
//! program installs its own signal handler, which calls [`abort_open_uploads`].

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
pub use error::{AddressError, ObjectError, ServerRefusal, StoreError};
pub use object::{Object, ReadFailure};
pub use open_uploads::abort_open_uploads;
pub use store::ObjectStore;
pub use upload::{KeptUpload, PendingObject, Upload};
