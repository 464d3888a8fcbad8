//! The release that each node runs, and the cluster's version, which follows the releases.

use futures_util::future::join_all;
use tokio::time::Instant;
use umbel_engine::NodeId;
use umbel_engine::meta::{ClusterVersion, MetaCommand, MetaState, VersionRange};
use umbel_step::planted::{self, Planted};

use umbel_node::failure::CallFailure;
use umbel_node::leader_calls::LeaderCalls;

use crate::Result;

/// The release of a node, as the node reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeRelease {
    /// The node.
    pub node: NodeId,
    /// The address at which it listens.
    pub address: String,
    /// Its release, empty if the node does not report it, and which cluster versions it can run; or why
    /// it did not answer.
    pub answer: Result<(String, VersionRange), String>,
}

/// The newest version that all nodes can run; None if one did not answer.
pub fn newest_common(releases: &[NodeRelease]) -> Option<ClusterVersion> {
    let newest = |release: &NodeRelease| match &release.answer {
        Ok((_, versions)) => Some(versions.newest),
        Err(_) => None,
    };
    releases.iter().map(newest).min().flatten()
}

/// The releases of the nodes, and the cluster's version.
#[derive(Clone, Copy)]
pub struct Releases<'a> {
    pub(super) calls: &'a LeaderCalls,
}

impl Releases<'_> {
    /// The releases of all nodes, in ascending order of nodes.
    ///
    /// # Errors
    /// If the list of nodes cannot be obtained.
    pub async fn list(self, deadline: Instant) -> Result<Vec<NodeRelease>> {
        self.calls.meta_refresh(deadline).await?;
        let local = self.calls.local()?;
        let calls = local.addresses().into_iter().map(|(node, address)| async move {
            let answer = local.release_of(node, &address).await;
            NodeRelease { node, address, answer }
        });
        Ok(join_all(calls).await)
    }

    /// Raises the cluster's version as far as all nodes can run it, and returns their releases. Raises
    /// nothing if a node does not answer.
    ///
    /// # Errors
    /// If the list of nodes cannot be obtained, or a node joined the cluster meanwhile. Steps that were
    /// raised before stay.
    pub async fn upgrade(self, deadline: Instant) -> Result<Vec<NodeRelease>> {
        let releases = self.list(deadline).await?;
        let mut newest = newest_common(&releases);
        if planted::on(Planted::RaiseUnasked) {
            newest = Some(self.calls.local()?.versions().newest);
        }
        let asked: Vec<NodeId> = releases.iter().map(|release| release.node).collect();
        while let Some(newest) = newest {
            let version = self.calls.read_meta(MetaState::version)?;
            if version >= newest {
                break;
            }
            let command = MetaCommand::RaiseVersion { to: version.next(), asked: asked.clone() };
            self.calls.meta_propose(command, deadline).await?;
            tracing::info!(version = version.next().0, "the cluster's version was raised");
        }
        Ok(releases)
    }

    /// Refuses a call that exists only since a later version than the cluster's: nodes of earlier
    /// releases cannot read it.
    ///
    /// # Errors
    /// If the cluster has a lower version.
    pub(super) async fn check_version(
        self,
        needed: ClusterVersion,
        deadline: Instant,
    ) -> Result<()> {
        if self.calls.read_meta(|state| state.check_version(needed))?.is_err() {
            // This node may not know yet that the version was raised.
            self.calls.meta_refresh(deadline).await?;
        }
        Ok(self.calls.read_meta(|state| state.check_version(needed))??)
    }

    /// Refuses a node whose release cannot run this cluster.
    ///
    /// # Errors
    /// If it cannot, or the cluster's version cannot be obtained.
    pub async fn check_release(self, versions: VersionRange, deadline: Instant) -> Result<()> {
        self.calls.meta_refresh(deadline).await?;
        let version = self.calls.read_meta(MetaState::version)?;
        if versions.contains(version) {
            return Ok(());
        }
        let what = format!(
            "the node's release runs clusters of {versions}, and this one is at {version}: start a release that runs that"
        );
        Err(CallFailure::Invalid { what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_release_says_how_far_all_can_go() {
        let of = |node, newest| {
            let versions =
                VersionRange { oldest: ClusterVersion::FIRST, newest: ClusterVersion(newest) };
            let answer = Ok((String::new(), versions));
            NodeRelease { node: NodeId(node), address: String::new(), answer }
        };
        assert_eq!(newest_common(&[of(1, 3), of(2, 2), of(3, 4)]), Some(ClusterVersion(2)));
        let silent = NodeRelease { answer: Err("no answer".to_owned()), ..of(4, 9) };
        assert_eq!(newest_common(&[of(1, 3), silent]), None);
        assert_eq!(newest_common(&[]), None);
    }
}
