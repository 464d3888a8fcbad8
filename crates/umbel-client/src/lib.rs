//! Rust client of an Umbel cluster: caches the shard map, batches items, and retries safely.
//!
//! A [`Client`] is given some nodes of a cluster and learns the others; it spreads calls over the nodes
//! that answer. [`Client::filter`] returns a [`Filter`], which inserts, queries and removes batches of
//! any number of items. The other methods of [`Client`] create, list, copy and drop filters and
//! administer the cluster.
//!
//! ```no_run
//! # async fn example() -> Result<(), umbel_client::ClientError> {
//! use umbel_client::{Client, NewFilter, ReadLevel};
//!
//! let client = Client::connect("10.0.0.1:7000,10.0.0.2:7000")?;
//! client.create("seen", &NewFilter::for_rate(1_000_000, 0.01)).await?;
//! let seen = client.filter("seen");
//! let inserted = seen.insert(["alice", "bob"]).await?;
//! assert_eq!(inserted.iter().collect::<Vec<_>>(), [true, true]);
//! let answers = seen.contains(["alice"], ReadLevel::Linearizable).await?;
//! assert_eq!(answers.is_present(0), Some(true));
//! # Ok(())
//! # }
//! ```
//!
//! # Retries
//!
//! A lost answer must not make a new item look present. So each insert and removal has a request id,
//! which its retries repeat, and the cluster answers a repeated request id with the answer to its first
//! attempt. [`ClientError`] sorts the remaining failures by what the caller should do; an insert whose
//! outcome is unknown is returned as a [`PendingRequest`], which can be resent at any time.
//!
//! # Replicated filters
//!
//! Each node has a complete copy of a filter with [`Distribution::Replicated`]: a single node answers
//! inserts and queries, unless a level requires more, and sends changes to the others later. A client
//! uses one node, the first address that it was given, until that node fails. Such a filter does not
//! remember requests. An insert may be retried, since it is idempotent, but the retry reports "present"
//! for items that the first attempt inserted; and two nodes may both report one item as new.
//!
//! ```no_run
//! # async fn example(client: umbel_client::Client) -> Result<(), umbel_client::ClientError> {
//! use umbel_client::{AckLevel, Distribution, NewFilter, ReadLevel};
//!
//! let distribution = Distribution::Replicated;
//! let wanted = NewFilter { distribution, ..NewFilter::for_rate(1_000_000, 0.01) };
//! client.create("near", &wanted).await?;
//! let near = client.filter("near");
//! let inserted = near.insert_at(["alice"], AckLevel::OnePartner).await?;
//! assert_eq!(inserted.level(), AckLevel::OnePartner);
//! assert!(client.flush("near").await?.is_complete()); // now every node has it
//! let answers = near.contains(["alice"], ReadLevel::Local).await?;
//! assert_eq!(answers.is_present(0), Some(true));
//! # Ok(())
//! # }
//! ```
//!
//! # Single items of many tasks
//!
//! A call costs the same with one item as with a hundred. [`Filter::insert_one`] and
//! [`Filter::contains_one`] send the items of all tasks that share a handle, or clones of it, in common
//! batches: the first item is sent at once, and items that arrive while two batches are in flight go with
//! the next.
//!
//! # Large batches
//!
//! Items are copied once, into contiguous memory. A batch above 65,536 items or 8 MiB is split into
//! several requests, of which a few are in flight concurrently. A [`PackedBatch`] reuses the memory of
//! the previous batch.

mod access;
mod admin;
mod answers;
mod any_of;
mod batch;
mod caller;
mod catalogue;
mod change;
mod client;
mod connector;
mod error;
mod failure;
mod filter;
mod jobs;
mod kind;
mod limits;
mod measurements;
mod merging;
mod nodes;
mod options;
mod packed_batch;
mod session;
mod shard_map;
mod singles;
#[cfg(feature = "tls")]
mod tls;
mod token;
mod transfer;

pub use answers::{Answers, Inserted, Removed};
pub use any_of::FirstFilters;
pub use catalogue::{Cleared, Created, Dropped, Flushed, Renamed};
pub use change::{Outcome, PendingInsert, PendingRemove, PendingRequest};
pub use client::{Client, NewFilter};
pub use connector::{Connecting, Connection, Connector};
pub use error::ClientError;
pub use failure::Failure;
pub use filter::Filter;
pub use kind::{kind_in_messages, kind_name};
pub use limits::{
    BATCH_ITEMS_MAX, ITEM_BYTES_MAX, MESSAGE_BYTES_MAX, REQUEST_DATA_BYTES_CUT, REQUEST_ITEMS_MAX,
};
pub use measurements::NodeReadiness;
pub use nodes::Addresses;
pub use options::ClientOptions;
pub use packed_batch::{ItemError, PackedBatch};
#[cfg(feature = "tls")]
pub use tls::TlsConnector;
pub use token::{Token, TokenError};
pub use tonic::Code;
pub use transfer::{Chunks, ExportOptions};
/// The messages of the protocol, such as chunks of exports and backups, and the contents of status and
/// info.
pub use umbel_proto::v1 as proto;
pub use umbel_proto::v1::{
    AckLevel, Applied, Distribution, ErrorCode, FilterSummary, Hashing, InfoResponse, Kind,
    LateItems, ReadLevel, StatusResponse, Window,
};
#[cfg(feature = "tls")]
pub use umbel_tls::{KeyPairFiles, TlsError, TlsFiles};
