//! The nouns of the cluster as types, so that no shard is taken for a node.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Makes a number of one meaning.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
        )]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number! {
    /// One process of the cluster, numbered by the meta group's log from 1 and never renumbered.
    ///
    /// ```
    /// assert_eq!(umbel_engine::NodeId(3).to_string(), "node 3");
    /// ```
    NodeId(u64), "node "
}

/// For code that is generic over numbers of nodes.
impl From<u64> for NodeId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

number! {
    /// One hash range of the space with its Raft group, numbered from 0 in the order of ranges.
    ///
    /// ```
    /// assert_eq!(umbel_engine::ShardId(0).to_string(), "shard 0");
    /// ```
    ShardId(u32), "shard "
}
number! {
    /// One filter for ever: the index of the entry of the meta group's log that created it.
    ///
    /// ```
    /// assert_eq!(umbel_engine::FilterId(12).to_string(), "filter 12");
    /// ```
    FilterId(u64), "filter "
}
number! {
    /// Version of the shard map: it rises with every change of ranges, replicas or nodes.
    ///
    /// ```
    /// assert!(umbel_engine::Epoch(2) > umbel_engine::Epoch(1));
    /// ```
    Epoch(u64), "epoch "
}
number! {
    /// Incarnation of a filter, from 1: clearing a filter starts the next one.
    ///
    /// ```
    /// assert!(umbel_engine::Generation(2) > umbel_engine::Generation(1));
    /// ```
    Generation(u64), "generation "
}
number! {
    /// A client's session: the index of the entry of the meta group's log that opened it, so later
    /// sessions have higher numbers.
    ///
    /// ```
    /// assert!(umbel_engine::SessionId(2) > umbel_engine::SessionId(1));
    /// ```
    SessionId(u64), "session "
}

/// A Raft group: the meta group, or a shard's.
///
/// ```
/// use umbel_engine::{GroupId, ShardId};
///
/// assert_eq!(GroupId::META.shard(), None);
/// assert_eq!(GroupId::of_shard(ShardId(0)).shard(), Some(ShardId(0)));
/// assert_eq!(GroupId::of_shard(ShardId(4)).to_string(), "shard 4");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct GroupId(u32);

impl GroupId {
    /// The group that holds nodes, shard map and catalogue.
    pub const META: Self = Self(0);

    /// The group of a shard.
    ///
    /// # Panics
    /// If the shard's number is `u32::MAX`, which no cluster has
    /// ([`SHARD_COUNT_MAX`](crate::limits::SHARD_COUNT_MAX)).
    #[must_use]
    pub const fn of_shard(shard: ShardId) -> Self {
        Self(shard.0 + 1)
    }

    /// The number on the wire and on disk: 0 for the meta group, a shard's number plus 1.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The group with this number; whether it exists is another question.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The shard, or None for the meta group.
    #[must_use]
    pub const fn shard(self) -> Option<ShardId> {
        match self.0.checked_sub(1) {
            Some(shard) => Some(ShardId(shard)),
            None => None,
        }
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shard() {
            Some(shard) => shard.fmt(f),
            None => f.write_str("meta group"),
        }
    }
}

/// Names a request for ever, so that sending it again is safe: the shard remembers what it
/// answered.
///
/// ```
/// use umbel_engine::{RequestId, SessionId};
///
/// let id = RequestId { session: SessionId(7), sequence: 2 };
/// assert_eq!(id.to_string(), "request 2 of session 7");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RequestId {
    /// Whose request.
    pub session: SessionId,
    /// Which of its requests, from 1, rising.
    pub sequence: u64,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} of {}", self.sequence, self.session)
    }
}
