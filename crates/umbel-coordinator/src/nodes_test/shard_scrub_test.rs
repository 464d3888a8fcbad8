//! Comparisons and repairs of shard replicas, on whole nodes.

use futures_util::StreamExt;
use umbel_engine::ShardId;
use umbel_engine::shard::ShardState;
use umbel_filter::Kind;

use super::node_test::{config, create, deadline, free_addresses, items, start, start_cluster};
use super::replicated_test::stop;
use super::*;
use crate::ReadLevel;
use crate::scrub::{Scrubbed, ScrubbedSlice};

const SHARDS: u32 = 4;

async fn insert(coordinator: &Coordinator, filter: &str, range: std::ops::Range<u32>) -> usize {
    let inserted = coordinator.insert(filter, &items(range), None, None, deadline()).await;
    inserted.unwrap().0.count_ones() as usize
}

async fn scrub(coordinator: &Arc<Coordinator>, filter: Option<&str>) -> Vec<ScrubbedSlice> {
    let reports: Vec<Scrubbed> =
        coordinator.scrub(filter, deadline()).await.unwrap().collect().await;
    let slice = |report| match report {
        Scrubbed::Slice(slice) => slice,
        Scrubbed::Pair(pair) => panic!("{pair:?}"),
    };
    let mut slices: Vec<ScrubbedSlice> = reports.into_iter().map(slice).collect();
    slices.sort_by_key(|slice| slice.shard);
    slices
}

/// Whether all replicas were compared completely. On a busy machine, a replica that does not respond in
/// time may be left out, and a comparison ends when the shard's leader changes.
fn is_whole(slices: &[ScrubbedSlice]) -> bool {
    let is_whole =
        |slice: &ScrubbedSlice| slice.compared.as_ref().is_ok_and(|report| report.away.is_empty());
    slices.iter().all(is_whole)
}

/// Compares until all replicas were compared completely.
async fn scrub_whole(coordinator: &Arc<Coordinator>, filter: Option<&str>) -> Vec<ScrubbedSlice> {
    let end = deadline();
    loop {
        let slices = scrub(coordinator, filter).await;
        if is_whole(&slices) {
            return slices;
        }
        assert!(Instant::now() < end, "no comparison is whole: {slices:?}");
    }
}

/// Whether all replicas of all shards have the same state, once they have applied the same entries.
async fn are_equal(nodes: &[Node]) -> bool {
    for shard in (0..SHARDS).map(ShardId) {
        let groups: Vec<_> = nodes
            .iter()
            .map(|node| Arc::clone(node.local().shard(shard).unwrap().group()))
            .collect();
        let newest = groups.iter().map(|group| group.applied_index()).max().unwrap();
        let mut digests = Vec::new();
        for group in &groups {
            let mut applied = group.replica().applied_index();
            applied.wait_for(|&index| index >= newest).await.unwrap();
            digests.push(group.replica().read_shard(ShardState::digest));
        }
        if digests.iter().any(|digest| *digest != digests[0]) {
            return false;
        }
    }
    true
}

/// Waits until they have, without another comparison.
async fn wait_until_equal(nodes: &[Node]) {
    let end = deadline();
    while !are_equal(nodes).await {
        assert!(Instant::now() < end, "the replicas stay different");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Damages a node's replicas of a filter, and returns the number of changed bits.
fn rot(node: &Node, filter: FilterId, every: usize) -> u64 {
    (0..SHARDS).map(|shard| node.rot_slice(ShardId(shard), filter, every, false)).sum()
}

/// Lost and surplus bits, and blocks that still differ, summed over all shards.
fn sums(slices: &[ScrubbedSlice]) -> (u64, u64, u64) {
    let mut sums = (0, 0, 0);
    for slice in slices {
        let report = slice.compared.as_ref().unwrap();
        assert!(report.away.is_empty(), "{slice:?}");
        sums.0 += report.differing.values().map(|bits| bits.lost).sum::<u64>();
        sums.1 += report.differing.values().map(|bits| bits.surplus).sum::<u64>();
        sums.2 += report.left_blocks;
    }
    sums
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_memory_rots_is_mended_from_the_others() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let nodes = start_cluster(&folders).await;
    let coordinator = nodes[0].coordinator();
    let mut counted = 0;
    for (kind, rotten) in Kind::ALL.into_iter().zip([0, 1, 2].into_iter().cycle()) {
        let filter = kind.to_string();
        let id = create(&coordinator, &filter, kind).await;
        assert_eq!(insert(&coordinator, &filter, 0..1000).await, 1000, "{kind}");
        let slices = scrub_whole(&coordinator, Some(&filter)).await;
        assert_eq!((slices.len(), sums(&slices)), (4, (0, 0, 0)), "{kind}");
        for every in [3_001, 7] {
            let flipped = rot(&nodes[rotten], id, every);
            assert!(flipped == 0 || !are_equal(&nodes).await, "{kind}");
            let slices = scrub(&coordinator, Some(&filter)).await;
            if is_whole(&slices) {
                let (lost, surplus, left) = sums(&slices);
                assert_eq!((lost + surplus, left), (flipped, 0), "{kind} {every}");
                counted += 1;
            } else {
                assert_eq!(sums(&scrub_whole(&coordinator, Some(&filter)).await).2, 0, "{kind}");
            }
            assert!(are_equal(&nodes).await, "{kind}");
        }
        let level = Some(ReadLevel::Linearizable);
        let found = coordinator.contains(&filter, &items(0..1000), level, deadline()).await;
        assert_eq!(found.unwrap().0.count_ones(), 1000, "{kind}");
    }
    assert!(counted > 0, "no comparison was whole");
    let all = scrub_whole(&coordinator, None).await;
    assert_eq!((all.len(), sums(&all)), (4 * Kind::ALL.len(), (0, 0, 0)));
    drop(coordinator);
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_that_is_inserted_meanwhile() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let nodes = start_cluster(&folders).await;
    let (coordinator, other) = (nodes[0].coordinator(), nodes[1].coordinator());
    let id = create(&coordinator, "seen", Kind::Blocked).await;
    insert(&coordinator, "seen", 0..1000).await;
    let writing = async {
        for batch in 0..40 {
            insert(&other, "seen", 1000 + 20 * batch..1020 + 20 * batch).await;
        }
    };
    let scrubbing = async {
        for round in 0..6 {
            // Few surplus bits in a block, which are kept, and many, which are cleared.
            rot(&nodes[round % 3], id, if round % 2 == 0 { 5 } else { 1_003 });
            scrub(&coordinator, Some("seen")).await;
        }
    };
    tokio::join!(writing, scrubbing);
    assert_eq!(sums(&scrub_whole(&coordinator, Some("seen")).await).2, 0);
    assert!(are_equal(&nodes).await);
    let level = Some(ReadLevel::Linearizable);
    let found = coordinator.contains("seen", &items(0..1000), level, deadline()).await.unwrap().0;
    assert_eq!(found.count_ones(), 1000);
    drop((coordinator, other));
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_compared_in_turn_without_being_asked() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let addresses = free_addresses(3);
    let often = folders.iter().zip(&addresses).map(|(folder, address)| {
        start(Config {
            listen: address.clone(),
            initial_cluster: addresses.clone(),
            shards: SHARDS,
            scrub_interval_s: 1,
            ..config(folder.path())
        })
    });
    let mut nodes = futures_util::future::join_all(often).await;
    let coordinator = nodes[0].coordinator();
    let id = create(&coordinator, "seen", Kind::Blocked).await;
    insert(&coordinator, "seen", 0..1000).await;
    // A comparison may come right behind the damage.
    wait_until_equal(&nodes).await;
    assert!(rot(&nodes[1], id, 3) > 0);
    wait_until_equal(&nodes).await;
    // An absent replica is named and the others are compared, also in shards that it led until now.
    drop(coordinator);
    let leads = |node: &Node| node.local().shard(ShardId(0)).unwrap().group().is_leader();
    let away = nodes.swap_remove(nodes.iter().position(leads).unwrap_or(2));
    let (coordinator, number) = (nodes[0].coordinator(), away.id());
    insert(&coordinator, "seen", 1000..2000).await;
    away.shutdown().await;
    let end = deadline();
    let slices = loop {
        let slices = scrub(&coordinator, Some("seen")).await;
        // A comparison ends when the shard's leader changes.
        if slices.iter().all(|slice| slice.compared.is_ok()) {
            break slices;
        }
        assert!(Instant::now() < end, "not all shards are compared: {slices:?}");
    };
    for slice in slices {
        let report = slice.compared.unwrap();
        assert!(report.away.contains_key(&number), "{report:?}");
    }
    drop(coordinator);
    stop(nodes).await;
}
