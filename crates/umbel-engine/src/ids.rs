//! The cluster's numbers as distinct types, so that a shard's number cannot be used as a node's.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{ERA_MAX, SHARD_COUNT_MAX};

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
/// // After three merges, a shard that is split off is another group than the one that had its number.
/// let again = GroupId::of_shard_in(ShardId(4), 3);
/// assert_eq!((again.shard(), again.era(), again.number()), (Some(ShardId(4)), 3, 1 + 4 + 3 * 2048));
/// assert_eq!(again.to_string(), "shard 4");
/// assert_eq!(format!("{again:#}"), "shard 4 (made after 3 merges)");
/// let copy = GroupId::of_copy(FilterId(12)).expect("a small number");
/// assert_eq!((copy.shard(), copy.copy()), (None, Some(FilterId(12))));
/// assert_eq!(copy.to_string(), "copy of filter 12");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct GroupId(u32);

/// Numbers from here on belong to copies of replicated filters.
const FIRST_COPY: u32 = 1 << 31;

/// Numbers of groups from one era to the next: twice [`SHARD_COUNT_MAX`], so that a later release may allow
/// more shards.
const ERA_GROUPS: u32 = 2048;

const _: () = assert!(ERA_MAX == FIRST_COPY / ERA_GROUPS - 1 && SHARD_COUNT_MAX < ERA_GROUPS);

/// The group of shards and eras that are beyond their limits, which no cluster has: shard 2,046 of the
/// last era.
const NO_SHARD: GroupId = GroupId(FIRST_COPY - 1);

impl GroupId {
    /// The group that holds nodes, shard map and catalogue.
    pub const META: Self = Self(0);

    /// The group of a shard that was made before the first merge of shards: era 0.
    #[must_use]
    pub const fn of_shard(shard: ShardId) -> Self {
        Self::of_shard_in(shard, 0)
    }

    /// The group of a shard that was made in an era: the number of merges that the cluster had done by
    /// then. After a merge the next split gives the same number to a new shard. Its group must be another
    /// one, because nodes may still have logs and votes of the earlier one.
    ///
    /// A shard above 2,047 or an era above [`ERA_MAX`], which no cluster has, leads to a group that no
    /// cluster has either.
    #[must_use]
    pub const fn of_shard_in(shard: ShardId, era: u32) -> Self {
        if shard.0 >= ERA_GROUPS || era > ERA_MAX {
            return NO_SHARD;
        }
        // The very last number would be 2^31, which belongs to a copy.
        let number = 1 + shard.0 + era * ERA_GROUPS;
        if number < FIRST_COPY { Self(number) } else { NO_SHARD }
    }

    /// This node's own inserts into a replicated filter. None if the filter's number is 2^31 or more.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "it is below 2^31")]
    pub const fn of_copy(filter: FilterId) -> Option<Self> {
        if filter.0 < FIRST_COPY as u64 { Some(Self(FIRST_COPY | filter.0 as u32)) } else { None }
    }

    /// The number on the wire and on disk: 0 for the meta group, 1 plus a shard's number plus 2,048 for
    /// each era, a filter's number plus 2^31.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The group with this number. Does not check that it exists.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The shard, whatever its era, or None if this is not a shard's group.
    #[must_use]
    pub const fn shard(self) -> Option<ShardId> {
        match self.0.checked_sub(1) {
            Some(shard) if self.0 < FIRST_COPY => Some(ShardId(shard % ERA_GROUPS)),
            _ => None,
        }
    }

    /// The era in which the shard was made; 0 if this is not a shard's group.
    #[must_use]
    pub const fn era(self) -> u32 {
        match self.0.checked_sub(1) {
            Some(shard) if self.0 < FIRST_COPY => shard / ERA_GROUPS,
            _ => 0,
        }
    }

    /// The filter whose copy this is, or None for a Raft group.
    #[must_use]
    pub const fn copy(self) -> Option<FilterId> {
        if self.0 >= FIRST_COPY { Some(FilterId((self.0 - FIRST_COPY) as u64)) } else { None }
    }
}

/// As operators know it: a shard's group by the shard's number alone, of which a cluster has one at a time.
/// `{:#}` also tells the groups apart that had the number one after the other.
impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.shard(), self.copy()) {
            (Some(shard), _) => match self.era() {
                1 if f.alternate() => write!(f, "{shard} (made after 1 merge)"),
                era @ 2.. if f.alternate() => write!(f, "{shard} (made after {era} merges)"),
                _ => write!(f, "{shard}"),
            },
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_of_groups_are_those_that_are_on_disks() {
        // Data folders contain these numbers: they never change.
        assert_eq!(GroupId::of_shard(ShardId(0)).number(), 1);
        assert_eq!(GroupId::of_shard_in(ShardId(1023), 0).number(), 1024);
        assert_eq!(GroupId::of_shard_in(ShardId(0), 1).number(), 2049);
        assert_eq!(GroupId::of_copy(FilterId(3)).unwrap().number(), (1 << 31) + 3);
        assert_eq!(ERA_MAX, (1 << 20) - 1);
    }

    #[test]
    fn what_no_cluster_has_leads_to_no_group_of_a_cluster() {
        for (shard, era) in
            [(2048, 0), (u32::MAX, 0), (0, ERA_MAX + 1), (0, u32::MAX), (2047, ERA_MAX)]
        {
            let group = GroupId::of_shard_in(ShardId(shard), era);
            assert!(group.shard().is_some_and(|shard| shard.0 >= SHARD_COUNT_MAX), "{group}");
        }
    }

    proptest! {
        #[test]
        fn a_shards_group_names_shard_and_era(shard in 0..SHARD_COUNT_MAX, era in 0..=ERA_MAX) {
            let group = GroupId::of_shard_in(ShardId(shard), era);
            prop_assert_eq!((group.shard(), group.era()), (Some(ShardId(shard)), era));
            prop_assert_eq!((group.copy(), group == GroupId::META), (None, false));
            prop_assert_eq!(GroupId::from_number(group.number()), group);
        }
    }
}
