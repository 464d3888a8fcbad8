//! Objects of S3-compatible stores, as bytes that are read by offset.
//!
//! ```text
//! s3://BUCKET/KEY, GLOB --ObjectAddress, Pattern--> ObjectStore --list, open--> Object
//! Object --RemoteBytes::open--> ObjectReader --parts, some ahead--> ObjectStore::fetch --ranged GETs--> server
//! ```
//!
//! An [`Object`] is pinned to the entity tag that it had when it was opened: whoever reads it later sees those bytes, or
//! an error. Everything that goes over the wire is signed in `sign.rs`, tried again in `store.rs`, and told in words in
//! `error.rs`. Nothing else of the program knows HTTP.

mod address;
mod error;
mod listing;
mod object;
mod read_ahead;
mod settings;
mod sign;
mod store;

pub(crate) use address::{ObjectAddress, is_object_address};
pub(crate) use object::{Failure, Object};
pub(crate) use store::ObjectStore;
