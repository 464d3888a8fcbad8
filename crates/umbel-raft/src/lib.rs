//! The Raft groups of a node, over openraft, and the links that carry calls between nodes.
//!
//! A node starts its groups with [`GroupHost`]; what else it has, this crate sees only as [`RunningGroups`]
//! and [`peer::CallHandler`].
//!
//! | module | what it does |
//! |---|---|
//! | `host`, `serving` | what the groups of a node share, and how they start; Raft's calls of other nodes |
//! | `group` | one group: proposals, confirmed reads, elections, members |
//! | `state_machine` | the state of a group, for openraft and for readers, and its snapshots |
//! | `network` | openraft's calls to other replicas |
//! | `read_rounds` | confirms that this node leads, for the reads of many groups at once |
//! | `beats`, `beating` | which nodes are alive; starts an election when a leader is not |
//! | `recall`, `witness` | what nodes know of a replica whose disk may have lost data |
//! | [`peer`] | links between nodes |
//! | [`metrics`] | measurements of groups and links |

mod beating;
mod beats;
mod group;
mod host;
mod known_members;
pub mod metrics;
mod network;
pub mod peer;
mod read_rounds;
mod recall;
mod serving;
mod state_machine;
mod witness;

pub use beating::beat;
pub use beats::Beats;
pub use group::{Group, GroupReport, ProposeError};
pub use host::{GroupHost, GroupMemory, HostError, RunningGroups};
pub use network::MOVE_BYTES_PER_SECOND_MIN;
pub use recall::{
    KnownInserts, Recollection, answer_standings, committed_in, request_committed,
    requests_standings,
};
pub use state_machine::GroupReplica;
pub use witness::Witness;
