//! Raising the cluster's version, and keeping newer commands out of the log until then.

use super::catalogue::IMPORTS_BEGIN_SINCE;
use super::command::MetaCommand;
use super::filter_order::{FilterChange, FilterOrder};
use super::reply::{MetaError, MetaReply};
use super::state::MetaState;
use super::version::ClusterVersion;
use crate::ids::NodeId;
use crate::meta::Result;

impl MetaCommand {
    /// The version that introduced the command: a cluster of a lower version may have nodes that cannot
    /// decode it.
    #[must_use]
    pub const fn since(&self) -> ClusterVersion {
        match self {
            Self::RaiseVersion { to, .. } => *to,
            Self::NoteCoreCount { .. } | Self::SetAutoSplit { .. } => ClusterVersion(2),
            Self::MergeShard { .. } | Self::ShardMerged { .. } | Self::MergeGivenUp { .. } => {
                ClusterVersion(3)
            }
            Self::ReplaceExpiry { .. }
            | Self::TakeFilter { .. }
            | Self::Order(FilterOrder {
                change: FilterChange::ReplaceExpiry { .. } | FilterChange::Take { .. },
                ..
            }) => ClusterVersion(6),
            Self::Order(_) | Self::RenewImport { .. } => ClusterVersion(4),
            Self::BeginImport { .. } => IMPORTS_BEGIN_SINCE,
            _ => ClusterVersion::FIRST,
        }
    }
}

impl MetaState {
    /// The cluster's version.
    #[must_use]
    pub const fn version(&self) -> ClusterVersion {
        self.version
    }

    /// The state with another version. A snapshot stores the version beside the state, because snapshots of
    /// version 1 have none.
    #[must_use]
    pub fn at_version(self, version: ClusterVersion) -> Self {
        Self { version, ..self }
    }

    /// Whether a command may be written to the log. The leader checks before it proposes, because a node
    /// that cannot decode an entry cannot refuse it either.
    ///
    /// # Errors
    /// If the command was introduced in a later version than the cluster's. `RaiseVersion` is always
    /// writable, and is checked when it is applied.
    ///
    /// ```
    /// use umbel_engine::NodeId;
    /// use umbel_engine::meta::{ClusterVersion, MetaCommand, MetaState};
    ///
    /// let nodes = vec![(NodeId(1), "a:7070".to_owned())];
    /// let mut state = MetaState::new();
    /// state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 4, replica_count: 1 });
    /// let split = MetaCommand::SetAutoSplit { is_on: true };
    /// assert!(state.check_writable(&split).is_err());
    /// let raise = MetaCommand::RaiseVersion { to: ClusterVersion(2), asked: vec![NodeId(1)] };
    /// state.apply(2, &raise);
    /// assert_eq!((state.version(), state.check_writable(&split)), (ClusterVersion(2), Ok(())));
    /// ```
    pub fn check_writable(&self, command: &MetaCommand) -> Result<()> {
        match command {
            MetaCommand::RaiseVersion { .. } => Ok(()),
            command => self.check_version(command.since()),
        }
    }

    /// Whether features introduced in a version may be used.
    ///
    /// # Errors
    /// If the cluster is at a lower version.
    pub const fn check_version(&self, needed: ClusterVersion) -> Result<()> {
        let is = self.version;
        if needed.0 > is.0 { Err(MetaError::VersionTooLow { needed, is }) } else { Ok(()) }
    }

    /// Raises the version one step at a time, so that a release only has to handle the transition between
    /// two adjacent versions.
    pub(super) fn raise_version(
        &mut self,
        to: ClusterVersion,
        asked: &[NodeId],
    ) -> Result<MetaReply> {
        if to == self.version {
            return Ok(MetaReply::Done);
        }
        if to != self.version.next() {
            let (is, next) = (self.version, self.version.next().0);
            let what =
                format!("the cluster is at {is}, which is raised to {next}, not to {}", to.0);
            return Err(MetaError::BadVersion { what });
        }
        if let Some(node) = self.live_nodes().into_iter().find(|node| !asked.contains(node)) {
            let what = format!("{node} was not asked whether it can run {to}: ask all again");
            return Err(MetaError::BadVersion { what });
        }
        self.version = to;
        Ok(MetaReply::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::super::balance::tests::formed;
    use super::*;
    use crate::ids::FilterId;
    use crate::meta::{FilterName, SeenExpiry};

    fn raise(state: &mut MetaState, to: u32, asked: impl IntoIterator<Item = u64>) -> MetaReply {
        let asked = asked.into_iter().map(NodeId).collect();
        state.apply(9, &MetaCommand::RaiseVersion { to: ClusterVersion(to), asked })
    }

    #[test]
    fn a_version_is_raised_by_one_and_never_lowered() {
        let mut state = formed(3, 4, 3);
        assert_eq!(state.version(), ClusterVersion::FIRST);
        let refused =
            |reply: &MetaReply| matches!(reply, MetaReply::Refused(MetaError::BadVersion { .. }));
        assert!(refused(&raise(&mut state, 3, 1..=3)));
        assert_eq!(raise(&mut state, 2, 1..=3), MetaReply::Done);
        // The request is a retry.
        assert_eq!(raise(&mut state, 2, []), MetaReply::Done);
        assert!(refused(&raise(&mut state, 1, 1..=3)));
        assert_eq!(state.version(), ClusterVersion(2));
    }

    #[test]
    fn every_node_that_is_there_was_asked() {
        let mut state = formed(3, 4, 3);
        let MetaReply::Refused(error) = raise(&mut state, 2, [1, 3]) else { panic!() };
        assert_eq!(
            error.to_string(),
            "node 2 was not asked whether it can run version 2: ask all again"
        );
        assert_eq!(state.version(), ClusterVersion::FIRST);
    }

    #[test]
    fn what_came_later_is_not_written_before() {
        let state = formed(1, 1, 1);
        let command = MetaCommand::NoteCoreCount { node: NodeId(1), core_count: 2 };
        let error = state.check_writable(&command).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this needs a cluster of version 2, and it is at version 1: have all nodes run a release that can, \
             then raise it (umbel cluster upgrade)"
        );
        let state = state.at_version(ClusterVersion(2));
        assert_eq!(state.check_writable(&command), Ok(()));
        let (filter, name) = (FilterId(1), FilterName::new("a").unwrap());
        let order = |change| MetaCommand::Order(FilterOrder { filter, name: name.clone(), change });
        let dropped = order(FilterChange::Drop);
        let state = state.at_version(ClusterVersion(3));
        assert!(state.check_writable(&dropped).is_err());
        let state = state.at_version(ClusterVersion(4));
        assert_eq!(state.check_writable(&dropped), Ok(()));
        // Some changes came later than orders.
        let replaced = order(FilterChange::ReplaceExpiry { seen_ms: None, expires_ms: None });
        let taken = order(FilterChange::Take { seen: SeenExpiry::Any });
        let state = state.at_version(ClusterVersion(5));
        for command in [&replaced, &*replaced.bare(), &taken, &*taken.bare()] {
            assert!(state.check_writable(command).is_err());
        }
        let state = state.at_version(ClusterVersion(6));
        for command in [&replaced, &taken] {
            assert_eq!(state.check_writable(command), Ok(()));
        }
    }
}
