//! Communication between nodes: one link per peer, shared by all groups.

use bytes::Bytes;
use thiserror::Error;
use umbel_engine::{GroupId, NodeId};
use umbel_ports::NodeIdentity;

mod clients;
mod incoming_link;
mod limits;
mod link;
mod link_slots;
mod outbox;
mod refused_hellos;
mod service;
mod session;

#[cfg(test)]
mod link_test;
#[cfg(test)]
mod recorded_test;
#[cfg(test)]
mod service_test;
#[cfg(test)]
pub(crate) mod test_node;

pub use clients::{member_client, peer_client};
pub use limits::LINK_MESSAGE_BYTES_MAX;
pub use link::Links;
pub use service::{AnswerStream, CallHandler, LinkCloser, PeerService};
pub use session::add_hello;
/// Why a call was refused. With `Unspecified` the call may have been carried out; with all other
/// reasons it was not.
pub use umbel_proto::v1::link_refusal::Reason as RefusalReason;

/// Version of the protocol between nodes; nodes with different versions refuse each other.
pub const PEER_PROTOCOL: u32 = 1;

/// The identity of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalIdentity {
    /// Its cluster.
    pub cluster: u128,
    /// Its number in the cluster.
    pub node: NodeId,
}

impl LocalIdentity {
    /// The identity of another node of the same cluster, as certificates name it.
    pub const fn member(self, node: NodeId) -> NodeIdentity {
        NodeIdentity { cluster: self.cluster, node: node.0 }
    }
}

/// A cluster's identity as bytes for messages, big-endian, as people read it.
pub fn cluster_bytes(cluster: u128) -> Bytes {
    Bytes::copy_from_slice(&cluster.to_be_bytes())
}

/// Decodes a cluster's identity; None if there are not 16 bytes.
pub fn cluster_of_bytes(bytes: &[u8]) -> Option<u128> {
    Some(u128::from_be_bytes(bytes.try_into().ok()?))
}

/// The kind of a call. The numbers are sent on the wire and never change their meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CallKind {
    /// Raft: append these entries.
    Append = 1,
    /// Raft: request for a vote.
    Vote = 2,
    /// Raft: pre-vote, whether the peer would vote for the caller.
    PreVote = 3,
    /// Raft: the peer should become the leader.
    TransferLeader = 4,
    /// Begins the transfer of a snapshot.
    SnapshotBegin = 5,
    /// A chunk of a snapshot.
    SnapshotChunk = 6,
    /// Ends the transfer; the peer installs the snapshot.
    SnapshotEnd = 7,
    /// A coordinator's request to a shard's replica.
    Shard = 8,
    /// A proposal or a read barrier for the meta group's leader.
    Meta = 9,
    /// The controller's requests: change members, describe the group.
    Group = 10,
    /// A coordinator's request to a copy of a replicated filter.
    Copy = 11,
    /// Asks for the progress of a job.
    Job = 12,
    /// Asks what is known of a replica: what it has confirmed, and whether it follows.
    Recall = 13,
    /// Asks for a node's report, for displays of the cluster.
    Report = 14,
    /// A heartbeat that also names the groups that the caller leads.
    Beat = 15,
    /// Raft: whether a later leader may have been elected, for many groups at once. A node of a release
    /// that does not know the call refuses it, and each group asks by itself.
    ConfirmReads = 16,
}

impl CallKind {
    /// All kinds, by number.
    const ALL: [Self; 16] = [
        Self::Append,
        Self::Vote,
        Self::PreVote,
        Self::TransferLeader,
        Self::SnapshotBegin,
        Self::SnapshotChunk,
        Self::SnapshotEnd,
        Self::Shard,
        Self::Meta,
        Self::Group,
        Self::Copy,
        Self::Job,
        Self::Recall,
        Self::Report,
        Self::Beat,
        Self::ConfirmReads,
    ];

    /// The number on the wire.
    pub(crate) const fn number(self) -> u32 {
        self as u32
    }

    /// The kind with this number; None if this release does not know it.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Whether a group needs the call to stay alive; such calls have a separate allowance.
    pub(crate) const fn is_raft(self) -> bool {
        self.number() <= Self::SnapshotEnd.number()
            || matches!(self, Self::Beat | Self::ConfirmReads)
    }

    /// The queue of the call: Raft's calls go ahead of waiting ones, except snapshots, which are large
    /// and can wait.
    const fn queue(self) -> outbox::QueueName {
        let is_number_of_raft = self.number() <= Self::TransferLeader.number();
        if is_number_of_raft || matches!(self, Self::Beat | Self::ConfirmReads) {
            outbox::QueueName::Raft
        } else {
            outbox::QueueName::Bulk
        }
    }
}

/// A handler's refusal: the response to a call that was not carried out.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{message}")]
pub struct CallRefusal {
    /// For the calling program.
    pub(crate) reason: RefusalReason,
    /// For people: what is wrong and what to do.
    pub message: String,
}

impl CallRefusal {
    /// A refusal.
    pub fn new(reason: RefusalReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// The call is about a group of which this node has no replica.
    pub fn unknown_group(group: GroupId) -> Self {
        let message = format!("this node has no replica of the {group:#}");
        Self::new(RefusalReason::UnknownGroup, message)
    }

    /// The body is not a valid argument of the call.
    pub fn bad_body(error: impl std::fmt::Display) -> Self {
        Self::new(RefusalReason::BadBody, error.to_string())
    }
}

/// Why a call has no result.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CallError {
    /// There is no link, or it broke before the response came. The call may have been carried out if
    /// `was_sent`, certainly not otherwise. Retry later, or elsewhere.
    #[error("{node} at {address} cannot be reached: {cause}")]
    Unreachable {
        /// The called node.
        node: NodeId,
        /// Its address.
        address: String,
        /// Why the link broke.
        cause: String,
        /// Whether the call may have left this node.
        was_sent: bool,
        /// Whether the machine refused the connection, as it does if no process listens there.
        is_refused: bool,
    },
    /// No response came in time. The call may have been carried out, or may still be.
    #[error("{node} did not answer within {timeout_ms} ms")]
    Timeout {
        /// The called node.
        node: NodeId,
        /// How long the caller waited.
        timeout_ms: u64,
    },
    /// Too many calls or bytes for this peer wait on this node. The call was not sent. Send more
    /// slowly.
    #[error("{node} has {waiting} calls waiting already")]
    Overloaded {
        /// The called node.
        node: NodeId,
        /// Calls that wait to be sent or answered.
        waiting: usize,
    },
    /// The peer refused the call. It was not carried out, unless the reason is `Unspecified`: then it
    /// may have been, in part or in whole.
    #[error("{node} refused: {message}")]
    Refused {
        /// The called node.
        node: NodeId,
        /// For programs.
        reason: RefusalReason,
        /// For people.
        message: String,
    },
    /// Another node is at the address, or it has another protocol version. The call was not carried
    /// out. A retry helps only after the operator has done what the message says.
    #[error("{address} is not the wanted {node}: {message}")]
    WrongPeer {
        /// The node that was expected.
        node: NodeId,
        /// The address.
        address: String,
        /// Which node is there, and what to do.
        message: String,
    },
}

impl CallError {
    /// The error of a call that did not reach its node, or got no response over its link.
    pub fn unreachable(node: NodeId, address: &str, cause: &str, was_sent: bool) -> Self {
        let (address, cause) = (address.to_owned(), cause.to_owned());
        Self::Unreachable { node, address, cause, was_sent, is_refused: false }
    }

    /// Whether the peer knows that this node was removed from the cluster.
    pub const fn is_removal(&self) -> bool {
        matches!(self, Self::Refused { reason: RefusalReason::Removed, .. })
    }

    /// Whether the call was certainly not carried out. If so, it may be sent elsewhere even if it must
    /// not happen twice.
    pub fn is_certainly_undone(&self) -> bool {
        match self {
            Self::Unreachable { was_sent, .. } => !was_sent,
            Self::Timeout { .. } => false,
            Self::Refused { reason, .. } => *reason != RefusalReason::Unspecified,
            Self::Overloaded { .. } | Self::WrongPeer { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_ever() {
        for (index, kind) in CallKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.number() as usize, index + 1);
            assert_eq!(CallKind::from_number(kind.number()), Some(kind));
            let is_late = matches!(kind, CallKind::Beat | CallKind::ConfirmReads);
            assert_eq!(kind.is_raft(), index < 7 || is_late);
        }
        for unknown in [0, 17, u32::MAX] {
            assert_eq!(CallKind::from_number(unknown), None);
        }
    }

    #[test]
    fn a_cluster_is_sixteen_bytes() {
        let cluster = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
        assert_eq!(&cluster_bytes(cluster)[..2], [0x01, 0x23]);
        assert_eq!(cluster_of_bytes(&cluster_bytes(cluster)), Some(cluster));
        assert_eq!(cluster_of_bytes(&[0; 15]), None);
    }

    #[test]
    fn what_is_undone_is_known() {
        let node = NodeId(2);
        let refused = |reason| CallError::Refused { node, reason, message: String::new() };
        let unreachable = |was_sent| CallError::unreachable(node, "h:1", "gone", was_sent);
        assert!(refused(RefusalReason::Overloaded).is_certainly_undone());
        assert!(!refused(RefusalReason::Unspecified).is_certainly_undone());
        assert!(unreachable(false).is_certainly_undone());
        assert!(!unreachable(true).is_certainly_undone());
        assert_eq!(unreachable(true).to_string(), "node 2 at h:1 cannot be reached: gone");
        assert!(!CallError::Timeout { node, timeout_ms: 5 }.is_certainly_undone());
    }
}
