//! What a node must refuse, and what it must repair, when it starts.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use umbel_client::{NewFilter, ReadLevel};

use crate::load::{contains, insert, sharp_filter};
use crate::servers::{Cluster, Server, is_ready, umbel, until};

/// A single node that is ready and has some items.
async fn filled_node(cluster: &mut Cluster) -> Vec<u64> {
    let mut node = cluster.another(&["--dev"]);
    node.start();
    node.ready().await;
    let client = node.client();
    client.create("seen", &sharp_filter()).await.unwrap();
    let items: Vec<u64> = (0..2000).collect();
    for part in items.chunks(100) {
        insert(&client.filter("seen"), part).await;
    }
    cluster.nodes.push(node);
    items
}

/// The newest segment of a node's log.
fn newest_segment(node: &Server) -> PathBuf {
    let entries = fs::read_dir(node.data.join("wal")).unwrap();
    entries.map(|entry| entry.unwrap().path()).max().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_a_data_folder_is_refused() {
    let mut cluster = Cluster::none().await;
    filled_node(&mut cluster).await;
    let mut second = cluster.another(&["--dev"]);
    second.data.clone_from(&cluster.nodes[0].data);
    let said = second.refused().await;
    let folder = second.data.display().to_string();
    assert!(said.contains("another process uses this data folder"), "{said}");
    assert!(said.contains(&folder), "{said}");
    assert!(is_ready(&cluster.nodes[0].address).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_end_of_the_log_is_cut_off_and_nothing_is_lost() {
    let mut cluster = Cluster::none().await;
    let items = filled_node(&mut cluster).await;
    let node = &mut cluster.nodes[0];
    node.kill();
    let path = newest_segment(node);
    let file = File::options().append(true).open(&path).unwrap();
    let garbage: Vec<u8> = (0..777_u32).map(|at| (at * 37 % 251) as u8).collect();
    std::io::Write::write_all(&mut &file, &garbage).unwrap();
    node.start();
    node.ready().await;
    assert!(node.log().contains("torn end was cut off"), "{}", node.log());
    let filter = node.client().filter("seen");
    assert!(contains(&filter, &items, ReadLevel::Linearizable).await.iter().all(|found| *found));
    // The log continues after the cut.
    assert_eq!(insert(&filter, &[1_000_000]).await.new_count(), 1);
    node.kill();
    node.start();
    node.ready().await;
    let filter = node.client().filter("seen");
    assert!(contains(&filter, &[1_000_000], ReadLevel::Linearizable).await[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_byte_within_the_log_is_refused_with_its_place() {
    let mut cluster = Cluster::none().await;
    filled_node(&mut cluster).await;
    let node = &mut cluster.nodes[0];
    node.kill();
    let path = newest_segment(node);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], middle).unwrap();
    let before = fs::read(&path).unwrap();
    let said = node.refused().await;
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(said.contains(name) && said.contains("record at offset "), "{said}");
    let (_, rest) = said.split_once("record at offset ").unwrap();
    let offset: u64 = rest.split_once(' ').unwrap().0.parse().unwrap();
    assert!(offset <= middle && middle < offset + 10_000, "offset {offset}, flipped {middle}");
    assert!(said.contains("empty data folder"), "it does not say what to do: {said}");
    assert!(fs::read(&path).unwrap() == before, "the refused log was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn founders_with_empty_folders_are_refused_and_a_minority_says_nothing() {
    let mut cluster = Cluster::form(3).await;
    let client = cluster.client();
    client.create("seen", &sharp_filter()).await.unwrap();
    let items: Vec<u64> = (0..1000).collect();
    insert(&client.filter("seen"), &items).await;
    // Including the node that chose the cluster's id, which would choose another one.
    for number in [3, 1] {
        let node = &mut cluster.nodes[number - 1];
        node.kill();
        fs::remove_dir_all(&node.data).unwrap();
        let said = node.refused_with(2).await;
        assert!(said.contains("--join") && said.contains("umbel cluster remove"), "{said}");
    }
    // With one node of three, it is unknown what is absent or present now.
    let alone = cluster.nodes[1].hasty_client().filter("seen");
    let found = alone.contains([crate::load::item(0)], ReadLevel::Linearizable);
    let error = found.await.unwrap_err();
    assert!(matches!(error, umbel_client::ClientError::Unavailable(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_founder_that_lost_its_disk_is_removed_and_joins_under_its_old_address() {
    let mut cluster = Cluster::form(3).await;
    let client = cluster.client();
    client.create("seen", &sharp_filter()).await.unwrap();
    let items: Vec<u64> = (0..1000).collect();
    insert(&client.filter("seen"), &items).await;
    cluster.nodes[2].kill();
    fs::remove_dir_all(&cluster.nodes[2].data).unwrap();
    let said = cluster.nodes[2].refused_with(2).await;
    assert!(said.contains("--join") && said.contains("umbel cluster remove"), "{said}");
    until("the removal", || async { client.remove_node(3).await.ok() }).await;
    let first = cluster.nodes[0].address.clone();
    let node = &mut cluster.nodes[2];
    if node.data.exists() {
        fs::remove_dir_all(&node.data).unwrap();
    }
    node.set_args(&["--join", &first]);
    node.start();
    node.ready().await;
    let number = node.membership().0;
    assert!(number > 3, "number {number} was given before");
    cluster
        .status_until("three replicas again", |status| {
            let is_whole = |shard: &umbel_client::proto::ShardStatus| {
                shard.replicas == [1, 2, number] && shard.target.is_empty()
            };
            status.shards.iter().all(is_whole)
        })
        .await;
    let filter = cluster.nodes[2].client().filter("seen");
    assert!(contains(&filter, &items, ReadLevel::Linearizable).await.iter().all(|found| *found));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_cluster_is_refused_by_its_peers() {
    let mut cluster = Cluster::form(3).await;
    let client = cluster.client();
    client.create("seen", &sharp_filter()).await.unwrap();
    let items: Vec<u64> = (0..1000).collect();
    insert(&client.filter("seen"), &items).await;
    cluster.nodes[2].kill();

    // A node of another cluster at the address of node 3.
    let mut stranger = cluster.another(&["--dev"]);
    stranger.address.clone_from(&cluster.nodes[2].address);
    stranger.start();
    stranger.ready().await;
    let other_cluster = stranger.membership().1;
    assert_ne!(cluster.nodes[0].membership().1, other_cluster);
    let address = &stranger.address;
    // Only leaders call it.
    until(&format!("node 1 or 2 says that {address} is of another cluster"), || async {
        let is_named = |node: &Server| node.log().contains(&other_cluster);
        cluster.nodes[..2].iter().any(is_named).then_some(())
    })
    .await;
    // The others continue without it.
    let filter = cluster.nodes[0].client().filter("seen");
    assert_eq!(insert(&filter, &[5000]).await.new_count(), 1);
    assert!(contains(&filter, &items, ReadLevel::Linearizable).await.iter().all(|found| *found));
    // Node 3 itself is accepted.
    stranger.kill();
    let node = &mut cluster.nodes[2];
    node.start();
    node.ready().await;
    let filter = cluster.nodes[2].client().filter("seen");
    assert!(contains(&filter, &[5000], ReadLevel::Linearizable).await[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn data_folders_that_were_exchanged_are_refused() {
    let mut cluster = Cluster::form(3).await;
    let client = cluster.client();
    client.create("seen", &sharp_filter()).await.unwrap();
    insert(&client.filter("seen"), &[1, 2, 3]).await;
    let folders = [1, 2].map(|at| cluster.nodes[at].data.clone());
    for (at, foreign) in [(1, 1), (2, 0)] {
        cluster.nodes[at].kill();
        cluster.nodes[at].data.clone_from(&folders[foreign]);
    }
    for at in [1, 2] {
        let other = cluster.nodes[3 - at].address.clone();
        let node = &mut cluster.nodes[at];
        let said = node.refused_with(2).await;
        let says = |what: &str| assert!(said.contains(what), "no {what:?} in: {said}");
        says(&node.data.display().to_string());
        says(&format!("belongs to node {} at {other}", 4 - at));
        says(&format!("this node is at {}", node.address));
    }
    // Their data was not changed: with their own folders, both work as before.
    for at in [1, 2] {
        cluster.nodes[at].data.clone_from(&folders[at - 1]);
        cluster.nodes[at].start();
        cluster.nodes[at].ready().await;
        let filter = cluster.nodes[at].client().filter("seen");
        let found = contains(&filter, &[1, 2, 3], ReadLevel::Linearizable).await;
        assert!(found.iter().all(|found| *found));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn data_folders_that_cannot_be_used_are_named() {
    let cluster = Cluster::none().await;
    // A file in place of the folder, and one in place of a parent.
    let file = cluster.folder.path().join("file");
    fs::write(&file, "x").unwrap();
    for path in [file.clone(), file.join("inner")] {
        let mut node = cluster.another(&["--dev"]);
        node.data = path;
        let said = node.refused().await;
        assert!(said.contains(&node.data.display().to_string()), "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    // Missing parents are created.
    let mut node = cluster.another(&["--dev"]);
    node.data = cluster.folder.path().join("a/b/c");
    node.start();
    node.ready().await;
    node.kill();

    // Nobody may write here, not even root.
    let mut node = cluster.another(&["--dev"]);
    node.data = PathBuf::from("/proc/umbel");
    let said = node.refused().await;
    assert!(said.contains("/proc/umbel"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_named() {
    let mut cluster = Cluster::none().await;
    filled_node(&mut cluster).await;
    let mut second = cluster.another(&["--dev"]);
    second.address.clone_from(&cluster.nodes[0].address);
    let said = second.refused().await;
    assert!(said.contains(&format!("cannot listen on {}", second.address)), "{said}");
    assert!(said.contains("in use"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_and_a_name_that_is_not_there_are_told_apart() {
    let mut cluster = Cluster::none().await;
    filled_node(&mut cluster).await;
    let address = cluster.nodes[0].address.clone();
    let client = cluster.client();
    let other = NewFilter::for_rate(1000, 0.01);
    let error = client.create("seen", &other).await.unwrap_err();
    assert_eq!(error.failure().unwrap().cause, umbel_client::ErrorCode::NameTaken, "{error}");
    let asked = umbel(&["filter", "--cluster", &address, "contains", "unknown", "x"]).output();
    let asked = asked.unwrap();
    let said = String::from_utf8_lossy(&asked.stderr);
    assert_eq!(asked.status.code(), Some(2), "{said}");
    assert!(said.contains("unknown"), "{said}");
}
