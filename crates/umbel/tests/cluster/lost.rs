//! Disks that lose synced data, and data folders that are restored from an older copy, while the other
//! nodes keep running.

use std::fs::File;
use std::path::{Path, PathBuf};

use tokio::time::Instant;
use umbel_client::{AckLevel, Distribution, NewFilter, ReadLevel};

use crate::load::{contains, insert, item, sharp_filter};
use crate::servers::{Cluster, Server, page, umbel, until};

/// Bytes that a disk loses: the last entry, and some synced ones before it.
const BYTES_LOST: u64 = 100;

/// Far more calls than the nodes of an idle cluster make per second: three pairs of nodes with a
/// heartbeat every 100 ms make 30.
const CALLS_AT_REST_MAX: u64 = 300;

/// The segment of the log to which the node writes.
fn newest_segment(node: &Server) -> PathBuf {
    let entries = std::fs::read_dir(node.data.join("wal")).unwrap();
    entries.map(|entry| entry.unwrap().path()).max().unwrap()
}

fn lose_the_tail(node: &Server) {
    let file = File::options().write(true).open(newest_segment(node)).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - BYTES_LOST).unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The sum of a metric's series.
async fn metric(address: &str, name: &str) -> u64 {
    let text = until("the metrics of a node", || page(address, "/metrics")).await;
    let of_name = text
        .lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
    of_name.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Waits until the nodes make few calls per second. On a busy machine the two looks take part of the time between them.
async fn is_at_rest(cluster: &Cluster) {
    let calls = || async {
        let mut sum = 0;
        for node in &cluster.nodes {
            sum += metric(&node.address, "umbel_raft_appends_total").await;
        }
        sum
    };
    until("few calls between the nodes in a second", || async {
        let begun = Instant::now();
        let before = calls().await;
        assert!(before > 0, "the appends are counted");
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let more = calls().await - before;
        let seconds = begun.elapsed().as_secs_f64();
        ((more as f64) < CALLS_AT_REST_MAX as f64 * seconds).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lost_what_it_confirmed_has_no_vote_until_it_is_whole() {
    let mut cluster = Cluster::form(3).await;
    cluster.client().create("seen", &sharp_filter()).await.unwrap();
    let items: Vec<u64> = (0..3000).collect();
    for (round, part) in items.chunks(500).enumerate() {
        // Two nodes are a majority, so at least one other node has all that the first one had confirmed.
        insert(&cluster.client().filter("seen"), part).await;
        let node = round % 3;
        cluster.nodes[node].kill();
        lose_the_tail(&cluster.nodes[node]);
        cluster.nodes[node].start();
        cluster.nodes[node].ready().await;
    }
    let started_behind = cluster.has_logged("other nodes know of entries of this replica");
    assert!(started_behind, "{}", cluster.logs());
    is_at_rest(&cluster).await;
    // The cluster is ready, so it can lose any one node now.
    for away in 0..3 {
        cluster.nodes[away].kill();
        let asked = &cluster.nodes[(away + 1) % 3];
        let found = contains(&asked.client().filter("seen"), &items, ReadLevel::Linearizable).await;
        assert!(found.iter().all(|&is_present| is_present), "without node {}", away + 1);
        let next = 10_000 + away as u64;
        insert(&asked.client().filter("seen"), &[next]).await;
        cluster.nodes[away].start();
        cluster.nodes[away].ready().await;
    }
    let address = cluster.nodes[0].address.clone();
    // A restarted node is called again only after a pause, and until then others do not compare with it.
    let compared = || async {
        let scrubbed = umbel(&["cluster", "--cluster", &address, "scrub", "seen"]).output();
        let rows = String::from_utf8(scrubbed.unwrap().stdout).unwrap();
        (!rows.contains("not compared")).then_some(rows)
    };
    let rows = until("all replicas are compared", compared).await;
    assert!(rows.lines().all(|row| row.ends_with("equal")), "{rows}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_was_put_back_gets_what_it_lacks_before_it_votes() {
    let mut cluster = Cluster::form(3).await;
    cluster.client().create("seen", &sharp_filter()).await.unwrap();
    let filter = cluster.client().filter("seen");
    insert(&filter, &(0..1000).collect::<Vec<_>>()).await;
    let old = cluster.folder.path().join("old");
    cluster.nodes[1].kill();
    copy_folder(&cluster.nodes[1].data, &old);
    cluster.nodes[1].start();
    cluster.nodes[1].ready().await;
    let items: Vec<u64> = (0..3000).collect();
    for part in items.chunks(100) {
        insert(&filter, part).await;
    }
    cluster.nodes[1].kill();
    std::fs::remove_dir_all(&cluster.nodes[1].data).unwrap();
    copy_folder(&old, &cluster.nodes[1].data);
    cluster.nodes[1].start();
    cluster.nodes[1].ready().await;
    let said = cluster.nodes[1].log();
    assert!(said.contains("other nodes know of entries of this replica"), "{said}");
    is_at_rest(&cluster).await;
    // It is part of majorities again.
    cluster.nodes[2].kill();
    let asked = cluster.nodes[1].client().filter("seen");
    let found = contains(&asked, &items, ReadLevel::Linearizable).await;
    assert!(found.iter().all(|&is_present| is_present));
    insert(&asked, &[5000]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_lacks_its_own_inserts_into_a_replicated_filter_is_refused() {
    let mut cluster = Cluster::form(3).await;
    let distribution = Distribution::Replicated;
    let near = NewFilter { distribution, ..NewFilter::for_rate(100_000, 1e-6) };
    cluster.client().create("near", &near).await.unwrap();
    let insert = async |node: &Server, items: std::ops::Range<u64>| {
        let filter = node.client().filter("near");
        filter.insert_at(items.map(item), AckLevel::Local).await.unwrap();
        // The links to a node that has just restarted may be broken.
        until("the items on all nodes", || async {
            node.client().flush("near").await.ok()?.is_complete().then_some(())
        })
        .await;
    };
    insert(&cluster.nodes[1], 0..100).await;
    let old = cluster.folder.path().join("old");
    cluster.nodes[1].kill();
    copy_folder(&cluster.nodes[1].data, &old);
    cluster.nodes[1].start();
    cluster.nodes[1].ready().await;
    insert(&cluster.nodes[1], 100..200).await;
    cluster.nodes[1].kill();
    let newest = cluster.folder.path().join("newest");
    std::fs::rename(&cluster.nodes[1].data, &newest).unwrap();
    copy_folder(&old, &cluster.nodes[1].data);
    cluster.nodes[1].start();
    let status = cluster.nodes[1].ended().await;
    let said = cluster.nodes[1].log();
    assert_ne!(status.code(), Some(0), "{said}");
    for part in ["older than what the cluster knows", "100 of its own inserts", "200 of them"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(said.contains("umbel cluster remove 2"), "{said}");
    // As the message advises.
    std::fs::remove_dir_all(&cluster.nodes[1].data).unwrap();
    std::fs::rename(&newest, &cluster.nodes[1].data).unwrap();
    cluster.nodes[1].start();
    cluster.nodes[1].ready().await;
    insert(&cluster.nodes[1], 200..300).await;
    for node in &cluster.nodes {
        let filter = node.client().filter("near");
        let found = filter.contains((0..300).map(item), ReadLevel::Local).await.unwrap();
        assert!(found.iter().all(|is_present| is_present), "{}", node.address);
    }
}
