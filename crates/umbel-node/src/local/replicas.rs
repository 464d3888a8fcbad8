//! Keeps the replicas that run on this node those that the shard map assigns to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::task::JoinSet;
use umbel_engine::meta::{MetaState, NodeRecord};
use umbel_engine::placement::ShardRecord;
use umbel_engine::{Epoch, GroupId};
use umbel_filter::HashRange;
use umbel_raft::Group;

use super::Local;
use crate::metrics;
use crate::node_failure::NodeFailure;
use crate::shard_leader::ShardLeader;

/// Replicas that start at the same time: enough for the processors to be busy while logs are read. Each has 64 entries
/// of its log in memory meanwhile.
const STARTS_AT_ONCE: usize = 4;

impl Local {
    /// Starts and stops replicas so that this node runs those that the shard map assigns to it; returns
    /// the map's epoch, None if there is no map. `kept` are the groups that were on the disk before the map
    /// was brought up to date: later ones may belong to a shard that the map does not name yet.
    ///
    /// # Errors
    /// If the node must stop: it was removed, its release does not run the cluster's version, or a replica does not
    /// start.
    pub(crate) async fn follow_shard_map(
        self: &Arc<Self>,
        kept: &[GroupId],
    ) -> Result<Option<Epoch>, NodeFailure> {
        let (epoch, wanted, is_removed, version) = self.read_meta(|state| {
            let ranges = state.shard_map().ranges();
            let first_range = |shard| ranges.and_then(|ranges| ranges.first_range(shard));
            let wanted: BTreeMap<GroupId, (HashRange, ShardRecord)> = state
                .shards()
                .filter(|(_, record)| record.members().contains(&self.node))
                .filter(|(_, record)| self.may_start(state, record))
                .filter_map(|(_, record)| {
                    Some((record.group(), (first_range(record.shard)?, record.clone())))
                })
                .collect();
            let is_removed = matches!(state.node(self.node), Some(NodeRecord::Removed));
            (state.is_formed().then(|| state.epoch()), wanted, is_removed, state.version())
        });
        if is_removed {
            let node = self.node;
            return Err(NodeFailure::Removed(format!(
                "{node} was removed from the cluster; with an empty data folder it may join again"
            )));
        }
        if epoch.is_none() {
            return Ok(None);
        }
        let versions = self.versions;
        if version < versions.oldest {
            return Err(NodeFailure::Failed(format!(
                "the cluster is at {version}, and this release runs clusters of {versions}: start the release that \
                 this node had, raise the cluster's version with it (umbel cluster upgrade), then start this one"
            )));
        }
        let running: BTreeSet<GroupId> =
            self.shards().iter().map(|shard| shard.group().id()).collect();
        // The running replicas, and those that an earlier process left on the disk.
        let kept = kept.iter().copied().filter(|group| group.shard().is_some());
        let held: BTreeSet<GroupId> = running.iter().copied().chain(kept).collect();
        for &group in held.iter().filter(|&group| !wanted.contains_key(group)) {
            self.stop_shard(group).await;
        }
        if wanted.keys().any(|group| !running.contains(group)) {
            // Nodes that were down when the meta group started may be up now.
            self.host.query_again(self.addresses()).await?;
        }
        let missing = wanted.into_iter().filter(|(group, _)| !running.contains(group)).collect();
        self.start_shards(missing).await?;
        Ok(epoch)
    }

    /// Starts replicas, several at a time. Each applies its log again, which takes a processor, so each start is a task
    /// of its own.
    async fn start_shards(
        self: &Arc<Self>,
        missing: Vec<(GroupId, (HashRange, ShardRecord))>,
    ) -> Result<(), String> {
        let (mut missing, mut starting) = (missing.into_iter(), JoinSet::new());
        let mut failed: Option<String> = None;
        loop {
            while failed.is_none()
                && starting.len() < STARTS_AT_ONCE
                && let Some((id, (range, record))) = missing.next()
            {
                let host = Arc::clone(&self.host);
                starting.spawn(async move {
                    let started = host.start_shard(id, range).await;
                    let group = started.map_err(|why| format!("{id} does not start: {why}"))?;
                    Ok::<_, String>((group, record))
                });
            }
            let why = match starting.join_next().await {
                // After a failure, too: what has started is shut down with the node.
                Some(Ok(Ok((group, record)))) => {
                    self.run_shard(group, &record);
                    continue;
                }
                Some(Ok(Err(why))) => why,
                Some(Err(error)) if error.is_cancelled() => continue,
                Some(Err(error)) => format!("a replica does not start: {error}"),
                None => return failed.map_or(Ok(()), Err),
            };
            starting.abort_all();
            failed.get_or_insert(why);
        }
    }

    /// Whether a replica of this node may start. The replica of a shard that is being split off may
    /// start only from the part that was split off on this node, until other nodes have that and have
    /// elected a leader, which sends it.
    fn may_start(&self, state: &MetaState, record: &ShardRecord) -> bool {
        let is_split_off = state.shard_map().splitting() == Some(record.shard);
        !is_split_off || self.storage.has_seen(record.group())
    }

    /// Lets the node use a replica that has started, and forms its group if that is new.
    fn run_shard(self: &Arc<Self>, group: Arc<Group>, record: &ShardRecord) {
        let shard = record.shard;
        // Members that are added later are added by the group's leader.
        if !record.is_formed && record.founders.contains(&self.node) {
            let local = Arc::clone(self);
            tokio::spawn(local.found_shard(shard, Arc::clone(&group), record.founders.clone()));
        }
        let queue = usize::try_from(self.config.queue_items_max).unwrap_or(usize::MAX);
        let leader = ShardLeader::start(
            self.node,
            group,
            queue,
            Arc::clone(&self.space),
            Arc::clone(&self.exports),
            Arc::clone(self.links()),
            Arc::clone(&self.inserts),
        );
        self.shards.send_modify(|shards| {
            shards.insert(shard, leader);
        });
        tracing::info!(%shard, "replica started");
    }

    /// Stops a replica that has moved elsewhere, or was absorbed by its neighbour, and forgets it, except
    /// for its promises.
    async fn stop_shard(&self, group: GroupId) {
        if let Some(stopped) = self.leader_of(group) {
            self.shards.send_modify(|shards| {
                shards.remove(&stopped.shard());
            });
            stopped.group().shut_down().await;
        }
        metrics::shard_scrub_age(group, None);
        if let Err(error) = self.storage.leave(group).await {
            self.fail(format!("{group} cannot be forgotten: {error}"));
        }
        tracing::info!(%group, "replica left this node");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use umbel_engine::ShardId;

    use super::*;
    use crate::config::Config;
    use crate::node::Node;
    use crate::testing::{config, deadline, start};

    /// Two more than start at once: the last one starts when two others run.
    const SHARDS: u32 = 6;

    async fn start_six(data: &Path) -> Node {
        start(Config { dev: true, shards: SHARDS, replicas: 1, ..config(data) }).await
    }

    /// Waits until all groups have leaders here, and have applied something. Returns the last entry of each.
    async fn applied_by_all(node: &Node) -> Vec<u64> {
        let count = usize::try_from(SHARDS).unwrap() + 1;
        let all = async {
            loop {
                let reports = node.groups();
                let applied = reports.iter().filter(|group| group.is_leader);
                let applied: Vec<_> = applied.filter_map(|group| group.applied).collect();
                if applied.len() == count {
                    return applied.iter().map(|entry| entry.index).collect();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout_at(deadline(), all).await.expect("all groups run")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_replica_that_does_not_start_stops_those_that_have_started() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_six(folder.path()).await;
        let before = applied_by_all(&node).await;
        assert!(node.snapshot_groups().await);
        node.shutdown().await;

        let group = GroupId::of_shard(ShardId(SHARDS - 1));
        let snapshots = folder.path().join(format!("snapshots/{}", group.number()));
        let file = std::fs::read_dir(&snapshots).unwrap().next().unwrap().unwrap().path();
        let whole = std::fs::read(&file).unwrap();
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        std::fs::write(&file, damaged).unwrap();
        let node = start_six(folder.path()).await;
        let why = node.stopped().await.unwrap_err().to_string();
        let name = file.strip_prefix(folder.path()).unwrap().display().to_string();
        assert!(why.starts_with(&format!("{group} does not start: ")), "{why}");
        assert!(why.contains(&name), "{why}");
        let started = node.local().shards();
        assert!((2..6).contains(&started.len()), "{} run", started.len());
        node.shutdown().await;
        assert!(started.iter().all(|shard| shard.group().failure().is_some()));
        drop(started);

        // Nothing of them has the folder any more.
        std::fs::write(&file, whole).unwrap();
        let node = start_six(folder.path()).await;
        let after = applied_by_all(&node).await;
        assert!(after.iter().zip(&before).all(|(after, before)| after >= before), "{after:?}");
        node.shutdown().await;
    }
}
