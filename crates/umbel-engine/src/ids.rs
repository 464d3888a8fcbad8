//! The cluster's numbers as distinct types, so that a shard's number cannot be used as a node's.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Defines a newtype for numbers of one meaning.
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
    /// One process of the cluster. The meta group's log numbers them from 1 and never reuses a number.
    ///
    /// ```
    /// assert_eq!(umbel_engine::NodeId(3).to_string(), "node 3");
    /// ```
    NodeId(u64), "node "
}

/// For code that is generic over node numbers.
impl From<u64> for NodeId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

number! {
    /// One shard: a hash range with its Raft group. The shards of a new cluster are numbered from 0 in
    /// the order of their ranges.
    ///
    /// ```
    /// assert_eq!(umbel_engine::ShardId(0).to_string(), "shard 0");
    /// ```
    ShardId(u32), "shard "
}
number! {
    /// One filter: the index of the meta group's log entry that created it. Never reused.
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
    /// The owner of a session: a number that stands for a principal's name. It is the same on all
    /// nodes of a cluster and differs between clusters.
    ///
    /// ```
    /// assert_eq!(umbel_engine::OwnerId(5).to_string(), "owner 5");
    /// ```
    OwnerId(u64), "owner "
}
number! {
    /// One job: the index of the meta group's log entry that submitted it. Never reused.
    ///
    /// ```
    /// assert_eq!(umbel_engine::JobId(5).to_string(), "job 5");
    /// ```
    JobId(u64), "job "
}
number! {
    /// A client's session: the index of the meta group's log entry that opened it, and a tag. Later
    /// sessions have higher numbers, and the tag keeps clients from making numbers up.
    ///
    /// ```
    /// assert!(umbel_engine::SessionId(2) > umbel_engine::SessionId(1));
    /// ```
    SessionId(u64), "session "
}

/// Anything that has a log of its own: the meta group, a shard's group, or one node's inserts into a
/// replicated filter, whose log only that node keeps.
///
/// ```
/// use umbel_engine::{FilterId, GroupId, ShardId};
///
/// assert_eq!((GroupId::META.shard(), GroupId::META.copy()), (None, None));
/// assert_eq!(GroupId::of_shard(ShardId(0)).shard(), Some(ShardId(0)));
/// assert_eq!(GroupId::of_shard(ShardId(4)).to_string(), "shard 4");
/// let copy = GroupId::of_copy(FilterId(12)).expect("a small number");
/// assert_eq!((copy.shard(), copy.copy()), (None, Some(FilterId(12))));
/// assert_eq!(copy.to_string(), "copy of filter 12");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct GroupId(u32);

/// Numbers from here on belong to copies of replicated filters.
const FIRST_COPY: u32 = 1 << 31;

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

    /// This node's own inserts into a replicated filter. None if the filter's number is 2^31 or more.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "it is below 2^31")]
    pub const fn of_copy(filter: FilterId) -> Option<Self> {
        if filter.0 < FIRST_COPY as u64 { Some(Self(FIRST_COPY | filter.0 as u32)) } else { None }
    }

    /// The number on the wire and on disk: 0 for the meta group, a shard's number plus 1, a
    /// filter's number plus 2^31.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The group with this number. Does not check that it exists.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The shard, or None if this is not a shard's group.
    #[must_use]
    pub const fn shard(self) -> Option<ShardId> {
        match self.0.checked_sub(1) {
            Some(shard) if self.0 < FIRST_COPY => Some(ShardId(shard)),
            _ => None,
        }
    }

    /// The filter whose copy this is, or None for a Raft group.
    #[must_use]
    pub const fn copy(self) -> Option<FilterId> {
        if self.0 >= FIRST_COPY { Some(FilterId((self.0 - FIRST_COPY) as u64)) } else { None }
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.shard(), self.copy()) {
            (Some(shard), _) => shard.fmt(f),
            (None, Some(filter)) => write!(f, "copy of {filter}"),
            (None, None) => f.write_str("meta group"),
        }
    }
}

/// Identifies a request permanently, so that a retry is safe: the shard remembers the answer that it
/// gave.
///
/// ```
/// use umbel_engine::{RequestId, SessionId};
///
/// let id = RequestId { session: SessionId(7), sequence: 2 };
/// assert_eq!(id.to_string(), "request 2 of session 7");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RequestId {
    /// The session that sent the request.
    pub session: SessionId,
    /// The request's number within its session, from 1, rising.
    pub sequence: u64,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} of {}", self.sequence, self.session)
    }
}
