//! What an observer learns of a node: its events, and its groups as their Rafts see them.

pub use umbel_raft::GroupReport;
pub use umbel_storage::observer::{EntryId, Event, NodeObserver, Payload, VoteId};
