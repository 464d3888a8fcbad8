//! Cluster versions: which log entries and peer calls may be used.
//!
//! A release supports a range of cluster versions. Anything introduced in a version, such as a new log
//! command or a new call between nodes, is used only once the cluster is at that version, and the cluster
//! is raised to it only when every node runs a release that supports it. So nodes of two consecutive
//! releases can run together, and an older node never receives what it cannot decode. A version cannot be
//! lowered.
//!
//! | Version | What came with it |
//! |---|---|
//! | 1 | all that was before versions |
//! | 2 | [`RaiseVersion`](super::MetaCommand::RaiseVersion), [`NoteCoreCount`](super::MetaCommand::NoteCoreCount) and [`SetAutoSplit`](super::MetaCommand::SetAutoSplit); snapshots of the meta group say their version; coordinators ask shards how often an item is in a cuckoo filter |
//! | 3 | [`MergeShard`](super::MetaCommand::MergeShard) and [`ShardMerged`](super::MetaCommand::ShardMerged); snapshots of the meta group contain the eras of shards |
//! | 4 | [`Order`](super::MetaCommand::Order) and [`RenewImport`](super::MetaCommand::RenewImport), whose time of expiry ends with the import; [`homes`](crate::placement::homes()) of shards by the whole map |
//! | 5 | [`BeginImport`](super::MetaCommand::BeginImport): two imports do not load one filter; the spec of a [`JobOrder`](super::JobOrder) is a message, no longer the words of a command |
//! | 6 | [`InsertAbsent`](crate::shard::ShardCommand::InsertAbsent): of several clients that add a new item by `CF.ADDNX`, one inserts it; [`ReplaceExpiry`](super::MetaCommand::ReplaceExpiry): a time of expiry is set as it was seen; [`TakeFilter`](super::MetaCommand::TakeFilter): of several clients that drop a filter, one has done it |

use std::fmt;

use serde::{Deserialize, Serialize};

/// The version of a cluster: it only rises, by one at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ClusterVersion(pub u32);

impl ClusterVersion {
    /// The version of a cluster that was formed before versions existed.
    pub const FIRST: Self = Self(1);

    /// The newest version that this release supports.
    pub const NEWEST: Self = Self(6);

    /// The next version.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Default for ClusterVersion {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for ClusterVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}", self.0)
    }
}

/// The range of cluster versions that a release supports, both ends included.
///
/// ```
/// use umbel_engine::meta::{ClusterVersion, VersionRange};
///
/// let range = VersionRange { oldest: ClusterVersion(2), newest: ClusterVersion(3) };
/// assert!(range.contains(ClusterVersion(3)) && !range.contains(ClusterVersion(1)));
/// assert_eq!(range.to_string(), "versions 2 to 3");
/// // A node that names none is of a release before versions.
/// assert_eq!(VersionRange::of_wire(0, 0), VersionRange::FIRST);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VersionRange {
    /// The lowest: the release no longer supports clusters of lower versions.
    pub oldest: ClusterVersion,
    /// The highest.
    pub newest: ClusterVersion,
}

impl VersionRange {
    /// The range of releases from before versions existed.
    pub const FIRST: Self = Self { oldest: ClusterVersion::FIRST, newest: ClusterVersion::FIRST };

    /// The range of this release.
    pub const OWN: Self = Self { oldest: ClusterVersion::FIRST, newest: ClusterVersion::NEWEST };

    /// Whether the release supports clusters of this version.
    #[must_use]
    pub fn contains(self, version: ClusterVersion) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// The range from a message, in which absent numbers are 0.
    #[must_use]
    pub const fn of_wire(oldest: u32, newest: u32) -> Self {
        match (oldest, newest) {
            (0, _) | (_, 0) => Self::FIRST,
            _ => Self { oldest: ClusterVersion(oldest), newest: ClusterVersion(newest) },
        }
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "{}", self.oldest)
        } else {
            write!(f, "versions {} to {}", self.oldest.0, self.newest.0)
        }
    }
}
