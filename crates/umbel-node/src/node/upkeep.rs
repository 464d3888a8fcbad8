//! Periodic tasks of a running node: follows the shard map and the catalogue, and truncates its log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_engine::meta::MetaState;
use umbel_engine::shard::{ShardCommand, ShardState};
use umbel_engine::{FilterId, GroupId};
use umbel_ports::Rare;
use umbel_raft::Group;
use umbel_storage::WalHealth;

use crate::calls::{ShardAnswer, ShardRequest};
use crate::leader_calls::LeaderCalls;
use crate::local::Local;

/// How often a node checks whether its groups run and its log must be truncated.
const CARE_INTERVAL: Duration = Duration::from_secs(1);

/// A group that was asked for a snapshot is not asked again for this long: a snapshot may take a while.
const SNAPSHOT_PAUSE: Duration = Duration::from_secs(10);

/// How often a node looks for slices without a filter in the shards that it leads. They only take memory.
const ORPHANS_INTERVAL: Duration = Duration::from_secs(10);

/// Longest time for the snapshot of a shard that has absorbed another one. The next check tries again.
const DECIDED_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a node waits for the newest shard map before it logs that and retries.
const MAP_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before the retry.
const MAP_PAUSE: Duration = Duration::from_millis(100);

/// Keeps this node's replicas in agreement with the shard map; ends when the node must stop. Each later entry of the meta
/// group would otherwise be a reason to try again what has failed, and to log it, while the node is being stopped.
///
/// The map must be the newest one: a node that starts replays old maps, and would otherwise form a
/// group again, or forget a replica that has long been assigned to it again.
pub(super) async fn follow(local: Arc<Local>, calls: Arc<LeaderCalls>) {
    let mut applied = local.meta().replica().applied_index();
    let mut begun = local.storage().begun_count();
    let mut followed = None;
    loop {
        applied.borrow_and_update();
        // A shard that was split off on this node can be started under the map that was followed before. Its count
        // is compared, whichever change ended the wait below: both may have come at once.
        let begun_count = *begun.borrow_and_update();
        // Most entries open client sessions and do not change the map.
        let epoch = local.read_meta(|state| state.is_formed().then(|| state.epoch()));
        if epoch.is_some() && epoch.map(|epoch| (epoch, begun_count)) != followed {
            let kept = local.storage().groups();
            match calls.meta_refresh(Instant::now() + MAP_TIMEOUT).await {
                Ok(()) => match local.follow_shard_map(&kept).await {
                    Ok(epoch) => followed = epoch.map(|epoch| (epoch, begun_count)),
                    Err(why) => {
                        local.fail(why);
                        return;
                    }
                },
                Err(error) => {
                    let unheard = local.unheard_of_meta();
                    tracing::info!(%error, unheard, "the newest shard map is not known yet");
                    tokio::time::sleep(MAP_PAUSE).await;
                    continue;
                }
            }
        }
        tokio::select! {
            changed = applied.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            Ok(()) = begun.changed() => {}
        }
    }
}

/// Keeps the copies of replicated filters in agreement with the catalogue; never ends.
///
/// Old catalogues do no harm: see [`Copies::follow`](crate::cube::Copies::follow).
pub(super) async fn follow_catalogue(local: Arc<Local>) {
    let mut applied = local.meta().replica().applied_index();
    loop {
        let index = *applied.borrow_and_update();
        let read = |look: &mut dyn FnMut(&MetaState)| local.read_meta(|s| look(s));
        if let Err(why) = local.copies().follow(index, read).await {
            local.fail(why);
            return;
        }
        if applied.changed().await.is_err() {
            return;
        }
    }
}

/// Stops the node when its log or one of its groups has failed; never ends. Nothing else is awaited here, so that
/// a disk or a shard that keeps others waiting does not keep a failed node running.
pub(super) async fn watch(local: Arc<Local>) {
    let mut health = local.storage().health();
    loop {
        if *health.borrow_and_update() == WalHealth::Failed {
            local.fail("the log cannot be written: see the error above".to_owned());
        }
        local.look_after_groups();
        // Whichever comes first.
        let _ = tokio::time::timeout(CARE_INTERVAL, health.changed()).await;
    }
}

/// Truncates the log; never ends.
pub(super) async fn care(local: Arc<Local>) {
    let mut asked: BTreeMap<GroupId, Instant> = BTreeMap::new();
    loop {
        if local.seed().provokes(Rare::SnapshotsOften) {
            for group in local.groups().iter().filter(|group| group.is_provoked_snapshot_due()) {
                group.snapshot().await;
            }
        }
        for group in local.groups().iter().filter(|group| group.needs_another_snapshot()) {
            group.snapshot().await;
        }
        drop_decided(&local).await;
        let (groups, pinning) = groups_to_snapshot(&local);
        for group in pinning {
            // Entries that it keeps for its followers would keep a whole segment of the shared log.
            group.purge_to_snapshot().await;
        }
        for group in groups {
            let is_recent = asked.get(&group.id()).is_some_and(|at| at.elapsed() < SNAPSHOT_PAUSE);
            if !is_recent {
                asked.insert(group.id(), Instant::now());
                group.snapshot().await;
            }
        }
        tokio::time::sleep(CARE_INTERVAL).await;
    }
}

/// Saves the copies of replicated filters that are due; never ends. Apart from [`care`], because it waits while the
/// disk is full, and only a shorter log makes room.
pub(super) async fn save_copies(local: Arc<Local>) {
    loop {
        let is_provoked = local.seed().provokes(Rare::SnapshotsOften);
        local.copies().save_due(local.log_bytes_max(), is_provoked).await;
        tokio::time::sleep(CARE_INTERVAL).await;
    }
}

/// Drops slices without a filter in turn; never ends.
pub(super) async fn tidy_slices(local: Arc<Local>) {
    loop {
        tokio::time::sleep(ORPHANS_INTERVAL).await;
        drop_orphans(&local).await;
    }
}

/// Removes what merges of shards left on the disk.
async fn drop_decided(local: &Local) {
    for shard in local.shards() {
        if let Err(error) = shard.group().drop_decided(DECIDED_TIMEOUT).await {
            tracing::warn!(shard = %shard.shard(), %error, "a final state was not removed yet");
        }
    }
}

/// Drops the slices whose filters the catalogue does not have, in the shards that this node leads. A deposed
/// controller's order to create a slice can arrive after the filter was dropped.
///
/// A filter's number is the index of the entry that created it, and is never used again, so a catalogue that
/// has applied that entry and lacks the filter will never have it.
async fn drop_orphans(local: &Local) {
    for shard in local.shards().iter().filter(|shard| shard.group().is_leader()) {
        let there = |state: &ShardState| state.slices().map(|(filter, _)| filter).collect();
        let there: Vec<FilterId> = shard.group().replica().read_shard(there);
        let index = local.meta().applied_index();
        let orphans: Vec<FilterId> = local.read_meta(|state| {
            let is_orphan =
                |filter: &FilterId| filter.0 <= index && state.filter(*filter).is_none();
            there.into_iter().filter(is_orphan).collect()
        });
        for filter in orphans {
            let drop = ShardRequest::Command(ShardCommand::DropSlice(filter));
            // Without a majority it would wait as long as this node leads, and the other shards with it.
            match tokio::time::timeout(ORPHANS_INTERVAL, shard.serve(drop)).await {
                Ok(ShardAnswer::Done(_)) => {
                    tracing::info!(shard = %shard.shard(), %filter, "a slice without a filter was dropped");
                }
                other => {
                    tracing::info!(shard = %shard.shard(), %filter, ?other, "a slice without a filter is still there");
                }
            }
        }
    }
}

/// Groups that need a snapshot: those with much log of their own and, if the whole log is long, those
/// that keep its oldest segment; the latter are also returned separately.
fn groups_to_snapshot(local: &Local) -> (Vec<Arc<Group>>, Vec<Arc<Group>>) {
    let storage = local.storage();
    let bytes_max = local.log_bytes_max();
    let is_long = storage.wal_bytes() > bytes_max;
    let oldest = if is_long { storage.groups_holding_oldest_segment() } else { Vec::new() };
    let shards = local.shards();
    let all = || shards.iter().map(|shard| shard.group()).chain([local.meta()]);
    let is_large = |group: &Group| storage.log_bytes(group.id()) > bytes_max / 4;
    let is_pinning = |group: &Group| oldest.contains(&group.id());
    let large = all().filter(|group| is_large(group) || is_pinning(group)).cloned().collect();
    (large, all().filter(|group| is_pinning(group)).cloned().collect())
}

#[cfg(test)]
mod tests {
    use umbel_engine::meta::Distribution;
    use umbel_engine::shard::{HashList, SliceSpec, probe_hashes};

    use super::*;
    use crate::config::Config;
    use crate::node::segment_bytes_max;
    use crate::testing::{config, create_filter, deadline, start, start_alone};

    /// Hashes of one insert, and the pause before the next one: half a MiB of log a second.
    const PART_ITEMS: u32 = 16 << 10;
    const PART_PAUSE: Duration = Duration::from_millis(500);
    const LOG_BYTES_PER_SECOND: u64 = 512 << 10;

    /// Inserts, with three times as many bytes as the limit.
    const PART_COUNT: u64 = 192;

    #[tokio::test(flavor = "multi_thread")]
    async fn slices_whose_filters_are_gone_are_dropped_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let node = start_alone(folder.path()).await;
        let local = node.local();
        let filter = create_filter(&node, Distribution::Partitioned, (1_000, 0.01)).await;
        let shard = local.shards()[0].shard();
        let slices = || {
            let shard = local.shard(shard).unwrap();
            shard
                .group()
                .replica()
                .read_shard(|state| state.slices().map(|(filter, _)| filter).collect::<Vec<_>>())
        };
        let spec = local.read_meta(|state| {
            state.filter(filter).map(|record| record.slice_spec(filter)).unwrap()
        });
        // One whose filter is gone, one whose filter this node has not learnt of yet.
        let calls = node.leader_calls(Arc::new(umbel_ports::RealSeed));
        let (gone, unknown) = (FilterId(filter.0 - 1), FilterId(u64::MAX));
        for filter in [gone, unknown] {
            let create = ShardCommand::CreateSlice(SliceSpec { filter, ..spec.clone() });
            let created = calls.shard_call(shard, ShardRequest::Command(create), deadline()).await;
            assert_eq!(created.unwrap(), ShardAnswer::Done(0));
        }
        assert_eq!(slices(), [gone, filter, unknown]);
        drop_orphans(local).await;
        assert_eq!(slices(), [filter, unknown]);
        node.shutdown().await;
    }

    /// The node's own follower has ended before the test's begins.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_replica_that_does_not_start_is_not_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let alone = || Config { dev: true, shards: 1, replicas: 1, ..config(folder.path()) };
        let node = start(alone()).await;
        create_filter(&node, Distribution::Partitioned, (1_000, 0.01)).await;
        let shard = node.local().shards()[0].group().id();
        assert!(node.snapshot_groups().await);
        node.shutdown().await;
        let snapshots = folder.path().join(format!("snapshots/{}", shard.number()));
        let file = std::fs::read_dir(&snapshots).unwrap().next().unwrap().unwrap().path();
        let mut damaged = std::fs::read(&file).unwrap();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        std::fs::write(&file, damaged).unwrap();
        let node = start(alone()).await;
        let why = node.stopped().await.unwrap_err().to_string();
        assert!(why.starts_with(&format!("{shard} does not start: ")), "{why}");
        let calls = Arc::new(node.leader_calls(Arc::new(umbel_ports::RealSeed)));
        let followed = tokio::time::timeout_at(deadline(), follow(Arc::clone(node.local()), calls));
        followed.await.expect("it ends after one try");
        node.shutdown().await;
    }

    /// Time is virtual: the pauses between snapshots are as long as everywhere, and the test does not wait
    /// for them.
    #[tokio::test(start_paused = true)]
    async fn a_log_under_load_stays_near_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let log_bytes_max = 16 << 20;
        let alone =
            Config { dev: true, shards: 4, replicas: 1, log_bytes_max, ..config(folder.path()) };
        let node = start(alone).await;
        let capacity = PART_COUNT * u64::from(PART_ITEMS);
        let filter = create_filter(&node, Distribution::Partitioned, (capacity, 0.01)).await;
        let (local, leaders) = (node.local(), node.local().shards());
        let mut longest = 0;
        for (number, leader) in (0..PART_COUNT).zip(leaders.iter().cycle()) {
            let read = |state: &ShardState| (state.slices().next().unwrap().1, state.range());
            let (generation, range) = leader.group().replica().read_shard(read);
            let hashes = HashList::from_hashes(&probe_hashes(number, range, PART_ITEMS));
            let (request, growth, at_ms) = (None, None, None);
            let insert =
                ShardRequest::Insert { filter, generation, request, hashes, growth, at_ms };
            assert!(matches!(leader.serve(insert).await, ShardAnswer::Bits(_)));
            tokio::time::sleep(PART_PAUSE).await;
            longest = longest.max(local.storage().wal_bytes());
        }
        // What came after the last snapshot: the next one is due after a pause, which one check sees, and
        // the next check that it is done. And the part of the oldest segment that was before it.
        let pause = SNAPSHOT_PAUSE + 2 * CARE_INTERVAL;
        let beyond =
            pause.as_secs() * LOG_BYTES_PER_SECOND + u64::from(segment_bytes_max(log_bytes_max));
        assert!(longest > log_bytes_max, "{longest} bytes at most: the limit was not reached");
        assert!(longest <= log_bytes_max + beyond, "{longest} bytes, {beyond} beyond are allowed");
        tokio::time::sleep(pause).await;
        let rest = local.storage().wal_bytes();
        assert!(rest <= log_bytes_max, "{rest} bytes after the load");
        drop(leaders);
        node.shutdown().await;
    }
}
