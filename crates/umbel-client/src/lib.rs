//! Rust client of an Umbel cluster: shard-map cache, batches, retries that are safe.
//!
//! A [`Client`] knows some nodes of a cluster and learns the others; it spreads calls over those
//! that answer. [`Client::filter`] gives a [`Filter`], which inserts, asks and removes batches of
//! any number of items; the rest of [`Client`] makes, lists, copies and drops filters and looks
//! after the cluster.
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
//! A lost answer must not make an item that was new look present. So each insert and removal has a
//! name, which its retries repeat, and the cluster answers a name it knows with its first answer.
//! [`ClientError`] sorts what still can go wrong by what the caller should do; an insert whose
//! outcome is unknown comes back as a [`PendingRequest`], which can be sent again at any time.
//!
//! # Replicated filters
//!
//! A filter with [`Distribution::Replicated`] is whole on every node: inserts and questions are
//! answered by one node alone, unless a level asks for more, and what changed travels to the others.
//! A client stays with one node, the first address it was given, until that fails. Such a filter
//! remembers no requests. An insert may be sent again, since it is idempotent, but then it hears
//! "present" of what its first attempt inserted; and two nodes may both call one item new.
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
//! [`Filter::contains_one`] have the items of all tasks that share a handle, or clones of it, travel
//! together: the first goes at once, and what comes while two batches are on their way goes with the next.
//!
//! # Large batches
//!
//! Items are copied once, one behind the other. A batch above 65,536 items or 8 MiB is cut into
//! several requests, of which a few are in flight at once. [`PackedBatch`] uses the memory of the
//! last batch again.

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
pub use catalogue::{Cleared, Created, Dropped, Flushed};
pub use change::{Outcome, PendingInsert, PendingRemove, PendingRequest};
pub use client::{Client, NewFilter};
pub use connector::{Connecting, Connection, Connector};
pub use error::{ClientError, Failure, ItemError};
pub use filter::Filter;
pub use kind::{kind_in_messages, kind_name};
pub use limits::{
    BATCH_ITEMS_MAX, ITEM_BYTES_MAX, MESSAGE_BYTES_MAX, REQUEST_DATA_BYTES_CUT, REQUEST_ITEMS_MAX,
};
pub use nodes::Addresses;
pub use options::ClientOptions;
pub use packed_batch::PackedBatch;
#[cfg(feature = "tls")]
pub use tls::TlsConnector;
pub use token::{Token, TokenError};
pub use tonic::Code;
pub use transfer::{Chunks, ExportOptions};
/// Messages as they travel: chunks of exports and backups, what status and info say.
pub use umbel_proto::v1 as proto;
pub use umbel_proto::v1::{
    AckLevel, Applied, Distribution, ErrorCode, FilterSummary, Hashing, InfoResponse, Kind,
    LateItems, ReadLevel, StatusResponse, Window,
};
#[cfg(feature = "tls")]
pub use umbel_tls::{KeyPairFiles, TlsError, TlsFiles};
