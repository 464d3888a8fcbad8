//! Which release's log entries and peer calls a cluster may use.
//!
//! A release runs clusters of a range of versions. What came with a version, a new command of the log or a new
//! call between nodes, is used only when the cluster is at it, and it is raised to it only when each node runs a
//! release that can. So nodes of two releases that follow each other run together, and an older node never meets what
//! it cannot read. There is no way back.
//!
//! | Version | What came with it |
//! |---|---|
//! | 1 | all that was before versions |
//! | 2 | [`RaiseVersion`](super::MetaCommand::RaiseVersion), [`NoteCoreCount`](super::MetaCommand::NoteCoreCount) and [`SetAutoSplit`](super::MetaCommand::SetAutoSplit); snapshots of the meta group say their version; coordinators ask shards how often an item is in a cuckoo filter |

use std::fmt;

use serde::{Deserialize, Serialize};

/// The version of a cluster: a number that only rises, by one at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ClusterVersion(pub u32);

impl ClusterVersion {
    /// Of a cluster that was formed before there were versions.
    pub const FIRST: Self = Self(1);

    /// The newest that this release knows.
    pub const NEWEST: Self = Self(2);

    /// The one after it.
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

/// The versions of clusters that a release can run, both ends included.
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
    /// The lowest: what a cluster of a lower one needs is not in the release any more.
    pub oldest: ClusterVersion,
    /// The highest.
    pub newest: ClusterVersion,
}

impl VersionRange {
    /// Of releases before versions.
    pub const FIRST: Self = Self { oldest: ClusterVersion::FIRST, newest: ClusterVersion::FIRST };

    /// Of this release.
    pub const OWN: Self = Self { oldest: ClusterVersion::FIRST, newest: ClusterVersion::NEWEST };

    /// Whether the release can run a cluster of a version.
    #[must_use]
    pub fn contains(self, version: ClusterVersion) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// As a message says it, in which numbers that are absent are 0.
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
        match self.oldest == self.newest {
            true => write!(f, "{}", self.oldest),
            false => write!(f, "versions {} to {}", self.oldest.0, self.newest.0),
        }
    }
}
