//! What this node reports to the cluster: its memory, which quotas of filters depend on; its cores,
//! which the number of shards depends on; and its zone.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::NodeId;
use umbel_engine::meta::{ClusterVersion, MetaCommand, MetaState, VersionRange};
use umbel_engine::placement::Zone;
use umbel_step::planted::{self, Planted};

use crate::config::Config;
use crate::failure::CallFailure;
use crate::leader_calls::LeaderCalls;
use crate::local::Local;

/// Time limit of one attempt.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before the next attempt: a cluster that is being formed has no leader yet.
const REPORT_PAUSE: Duration = Duration::from_secs(1);

/// The node whose settings determine the number of shards of a new cluster.
const FOUNDER: NodeId = NodeId(1);

/// The facts that a node knows of itself.
#[derive(Clone, Debug)]
pub(crate) struct SelfReport {
    /// Memory that it may use, in bytes; 0 if unknown.
    pub(crate) limit_bytes: u64,
    /// Cores that it may use; 0 if unknown.
    pub(crate) core_count: u32,
    /// Whether shards are split automatically; only the founder reports it, once.
    pub(crate) auto_split: bool,
    /// The zone in which the node fails together with others.
    pub(crate) zone: Option<Zone>,
    /// Cluster versions that it supports.
    pub(crate) versions: VersionRange,
}

impl SelfReport {
    /// The facts from the settings.
    pub(crate) fn of(config: &Config, versions: VersionRange) -> Self {
        Self {
            limit_bytes: config.memory_limit_bytes,
            core_count: config.cores,
            auto_split: config.shards == 0,
            zone: config.zone(),
            versions,
        }
    }

    /// What the cluster does not know yet.
    fn news(&self, node: NodeId, state: &MetaState) -> News {
        let news = self.news_of(node, state);
        let is_complete = news.is_empty();
        let is_planted = planted::on(Planted::WrittenEarly);
        let may_write = |command: &MetaCommand| {
            if is_planted {
                command.since() <= self.versions.newest
            } else {
                state.check_writable(command).is_ok()
            }
        };
        match news.into_iter().find(may_write) {
            Some(command) => News::Next(command),
            None if is_complete => News::Complete,
            None => News::Later(state.version()),
        }
    }

    fn news_of(&self, node: NodeId, state: &MetaState) -> Vec<MetaCommand> {
        let mut news = Vec::new();
        let limit_bytes = self.limit_bytes;
        if limit_bytes != 0 && state.memory_limit(node) != Some(limit_bytes) {
            news.push(MetaCommand::NoteMemoryLimit { node, limit_bytes });
        }
        let core_count = self.core_count;
        if core_count != 0 && state.core_count(node) != Some(core_count) {
            news.push(MetaCommand::NoteCoreCount { node, core_count });
        }
        // Other nodes may be configured with another number of shards than the one that formed the
        // cluster.
        if node == FOUNDER && state.auto_split().is_none() {
            news.push(MetaCommand::SetAutoSplit { is_on: self.auto_split });
        }
        let zone = self.zone.clone();
        if state.zones().get(node) != zone.as_ref() {
            news.push(MetaCommand::NoteZone { node, zone });
        }
        news
    }
}

/// What remains to be reported.
#[derive(PartialEq, Debug)]
enum News {
    /// Everything is in the cluster's log.
    Complete,
    /// The command to propose next.
    Next(MetaCommand),
    /// The rest needs a later version than this one, which is the cluster's.
    Later(ClusterVersion),
}

/// Proposes this node's facts until the cluster knows them, then ends. Facts that need a later cluster
/// version wait until the version is raised.
pub(crate) async fn propose_report(local: Arc<Local>, calls: Arc<LeaderCalls>, report: SelfReport) {
    let node = local.node();
    let mut applied = local.meta().replica().applied_index();
    loop {
        let deadline = Instant::now() + REPORT_TIMEOUT;
        let proposed = async {
            calls.meta_refresh(deadline).await?;
            let news = calls.read_meta(|state| report.news(node, state))?;
            if let News::Next(command) = &news {
                calls.meta_propose(command.clone(), deadline).await?;
            }
            Ok::<_, CallFailure>(news)
        };
        match proposed.await {
            Ok(News::Complete) => return,
            Ok(News::Next(_)) => {}
            Ok(News::Later(version)) => {
                while local.read_meta(MetaState::version) == version {
                    if applied.changed().await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the cluster was not told of this node yet");
                tokio::time::sleep(REPORT_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_founder_alone_says_whether_shards_are_split_by_themselves() {
        let nodes = (1..=2).map(|node| (NodeId(node), format!("n{node}:1"))).collect();
        let mut state = MetaState::new();
        state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 4, replica_count: 1 });
        let mut state = state.at_version(ClusterVersion(2));
        let report =
            |shards| SelfReport::of(&Config { shards, ..Config::default() }, VersionRange::OWN);
        // Another node's report does not matter: only the founder reports the setting.
        assert_eq!(report(0).news(NodeId(2), &state), News::Complete);
        let proposed = report(4).news(NodeId(1), &state);
        assert_eq!(proposed, News::Next(MetaCommand::SetAutoSplit { is_on: false }));
        state.apply(2, &MetaCommand::SetAutoSplit { is_on: true });
        // An operator has changed it since, so the founder does not report it again.
        assert_eq!(report(4).news(NodeId(1), &state), News::Complete);
    }

    #[test]
    fn facts_of_a_later_version_are_proposed_later() {
        let mut state = MetaState::new();
        let nodes = vec![(NodeId(1), "n1:1".to_owned())];
        state.apply(1, &MetaCommand::Form { cluster: 9, nodes, shard_count: 4, replica_count: 1 });
        let config = Config { cores: 2, memory_limit_bytes: 7, ..Config::default() };
        let report = SelfReport::of(&config, VersionRange::OWN);
        let node = NodeId(1);
        let first = MetaCommand::NoteMemoryLimit { node, limit_bytes: 7 };
        assert_eq!(report.news(node, &state), News::Next(first.clone()));
        state.apply(2, &first);
        assert_eq!(report.news(node, &state), News::Later(ClusterVersion::FIRST));
        let cores = MetaCommand::NoteCoreCount { node, core_count: 2 };
        assert_eq!(report.news(node, &state.at_version(ClusterVersion(2))), News::Next(cores));
    }
}
