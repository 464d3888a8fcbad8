//! Nodes that join and leave, and replicas that move, under load.

use umbel_client::proto::ShardStatus;
use umbel_client::{ClientError, ErrorCode, ReadLevel, StatusResponse};

use crate::crashes::addresses;
use crate::load::{Load, contains, sharp_filter};
use crate::servers::{Cluster, Server, is_ready, line_of, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_and_another_is_drained_and_removed_under_load() {
    let mut cluster = Cluster::form(3).await;
    let client = cluster.client();
    client.create("seen", &sharp_filter()).await.unwrap();
    let mut load = Load::begin("seen", &addresses(&cluster));
    load.progress(1500).await;

    let mut fourth = cluster.another(&["--join", &cluster.nodes[1].address]);
    fourth.start();
    fourth.ready().await;
    let (number, identity) = fourth.membership();
    assert!(number > 3, "number {number} was given before");
    assert_eq!(identity, cluster.nodes[0].membership().1);
    cluster.nodes.push(fourth);
    cluster
        .status_until("the fourth node live", |status| {
            status.nodes.iter().any(|node| node.node == number && node.state == "live")
        })
        .await;
    load.progress(500).await;

    // Of a shard that is being moved to the fourth node, the status tells the nodes of before, and the plan begins behind.
    until("a plan that empties node 1", || async {
        let planned = client.status_with_plan(Some(1)).await.ok()?;
        let goes = |shard: &ShardStatus| after(&planned, shard) == [2, 3, number];
        planned.shards.iter().all(goes).then_some(())
    })
    .await;
    let refused = client.status_with_plan(Some(99)).await.unwrap_err();
    assert!(refused.to_string().contains("99"), "{refused}");
    client.drain(1, false).await.unwrap();
    let status = cluster
        .status_until("node 1 drained, three replicas of each shard elsewhere", |status| {
            let is_settled =
                |shard: &ShardStatus| shard.replicas == [2, 3, number] && shard.target.is_empty();
            line_of(status, 1).replica_count == 0 && status.shards.iter().all(is_settled)
        })
        .await;
    assert_eq!(line_of(&status, 1).state, "draining");
    load.progress(500).await;
    // The part of the meta group's log that it has does not contain its removal.
    cluster.nodes[0].kill();
    remove(&cluster, 1).await;
    let status = cluster
        .status_until("node 1 removed", |status| {
            status.nodes.iter().all(|node| node.node != 1 || node.state == "removed")
        })
        .await;
    assert!(status.shards.iter().all(|shard| !shard.replicas.contains(&1)), "{status:?}");
    let said = cluster.nodes[0].refused_with(2).await;
    assert!(said.contains("node 1 was removed from the cluster"), "{said}");
    load.progress(1500).await;

    let mut history = load.finish().await;
    let items = history.acknowledged().to_vec();
    for node in &cluster.nodes[1..] {
        // A group may have to elect a leader after a member has left.
        until("each node ready", || async { is_ready(&node.address).await.then_some(()) }).await;
        let found = contains(&node.client().filter("seen"), &items, ReadLevel::Linearizable).await;
        items.iter().zip(found).for_each(|(&item, is_present)| history.asked(item, is_present));
    }
    history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_to_join_another_cluster_says_that_it_stays_in_its_own() {
    let mut cluster = Cluster::form(1).await;
    let mut member = cluster.another(&["--join", &cluster.nodes[0].address]);
    member.start();
    member.ready().await;
    let own = member.membership();
    // With the same command, it starts again.
    assert_eq!(member.stop().await.code(), Some(0));
    member.start();
    member.ready().await;
    assert_eq!(member.membership(), own);
    let unused = "the data folder belongs to a cluster, join is not used";
    assert!(member.log().contains(unused), "{}", member.log());

    let mut stranger = cluster.another(&["--dev"]);
    stranger.start();
    stranger.ready().await;
    assert_eq!(member.stop().await.code(), Some(0));
    member.set_args(&["--join", &stranger.address]);
    member.start();
    let (theirs, ours) = (stranger.membership().1, &own.1);
    let place = format!("{} is of cluster {theirs}", stranger.address);
    until("the other cluster is named", || async { member.log().contains(&place).then_some(()) })
        .await;
    assert!(member.log().contains(&format!("belongs to cluster {ours}")), "{}", member.log());
    member.ready().await;
    assert_eq!(&member.membership(), &own);
    cluster.nodes.extend([member, stranger]);
}

/// The nodes of a shard after all planned moves.
fn after(planned: &StatusResponse, shard: &ShardStatus) -> Vec<u64> {
    let mut replicas = shard.replicas.clone();
    for moved in planned.moves.iter().filter(|moved| moved.shard == shard.shard) {
        replicas.retain(|node| !moved.from.contains(node));
        replicas.extend(&moved.to);
    }
    replicas.sort_unstable();
    replicas
}

/// Removes a node. A repeated attempt may find it removed already.
pub(crate) async fn remove(cluster: &Cluster, number: u64) {
    let client = cluster.client();
    until("the removal", || async {
        match client.remove_node(number).await {
            Ok(()) => Some(()),
            Err(ClientError::Unavailable(_) | ClientError::OrderUnknown(_)) => None,
            Err(ClientError::Refused(failure)) if failure.cause == ErrorCode::UnknownNode => {
                Some(())
            }
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_move_under_load() {
    let mut cluster = Cluster::form_with(3, |node| node.set("UMBEL_REPLICAS", "1")).await;
    let client = cluster.client();
    client.create("seen", &sharp_filter()).await.unwrap();
    let mut load = Load::begin("seen", &addresses(&cluster));
    load.progress(1000).await;
    for shard in 0..4_u32 {
        let status = client.status().await.unwrap();
        let from = status.shards[shard as usize].replicas[0];
        let to = from % 3 + 1;
        client.move_shard(shard, from, to).await.unwrap();
        cluster
            .status_until(&format!("shard {shard} moved from {from} to {to}"), |status| {
                let shard = &status.shards[shard as usize];
                shard.replicas == [to] && shard.target.is_empty() && shard.leader == to
            })
            .await;
        load.progress(300).await;
    }
    let mut history = load.finish().await;
    let logs: String = cluster.nodes.iter().map(Server::log).collect();
    let changes: Vec<&str> =
        logs.lines().filter(|line| line.contains("members were changed")).collect();
    let are_plain =
        changes.iter().all(|line| line.contains("voters=[") && !line.contains("NodeId"));
    assert!(!changes.is_empty() && are_plain, "nodes are logged by their numbers: {changes:?}");
    // Moved replicas are on the disks of their new nodes.
    for node in &mut cluster.nodes {
        node.kill();
        node.start();
        node.ready().await;
    }
    let items = history.acknowledged().to_vec();
    let found = contains(&client.filter("seen"), &items, ReadLevel::Linearizable).await;
    items.iter().zip(found).for_each(|(&item, is_present)| history.asked(item, is_present));
    history.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_move_to_zones_that_have_none() {
    let mut zones = ["a", "a", "b"].into_iter();
    let mut cluster = Cluster::form_with(3, |node| {
        node.set("UMBEL_ZONE", zones.next().unwrap());
    })
    .await;
    cluster
        .status_until("each node's zone", |status| {
            let zones: Vec<_> = status.nodes.iter().map(|node| node.zone.as_str()).collect();
            zones == ["a", "a", "b"]
        })
        .await;
    let mut fourth = cluster.another(&["--join", &cluster.nodes[0].address, "--zone", "c"]);
    fourth.start();
    fourth.ready().await;
    cluster.nodes.push(fourth);
    let status = cluster
        .status_until("a replica of each shard in each zone", |status| {
            let is_apart =
                |shard: &ShardStatus| shard.replicas.contains(&3) && shard.replicas.contains(&4);
            status.shards.iter().all(is_apart)
        })
        .await;
    assert!(status.shards.iter().all(|shard| shard.replicas.len() == 3), "{status:?}");
    // Zone a has a second node, which would bring two replicas into it.
    let second = [1, 2].into_iter().find(|node| !status.shards[0].replicas.contains(node)).unwrap();
    let error = cluster.client().move_shard(0, 4, second).await.unwrap_err();
    let ClientError::Refused(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.cause, ErrorCode::BadChange, "{error}");
    assert!(failure.message.contains("is in zone a, where node "), "{error}");
}
