//! Umbel's own commands about several filters, and commands that drop all filters.

use super::resp_test::{Client, node};

/// The number in an answer: an integer, or a text in two lines.
async fn number(client: &mut Client, request: &str) -> f64 {
    client.send(format!("{request}\r\n").as_bytes()).await;
    let line = client.line().await;
    match line.strip_prefix(':') {
        Some(number) => number.parse().unwrap(),
        None => client.line().await.parse().unwrap(),
    }
}

async fn filters(client: &mut Client, items: [&str; 2]) {
    client.call("UMBEL.CREATE s KIND classic CAPACITY 10000 ERROR 0.000001", "+OK\r\n").await;
    for (like, items) in ["t", "u", "v"].into_iter().zip([items[1], "", ""]) {
        client.call(&format!("UMBEL.CREATE {like} LIKE s"), "+OK\r\n").await;
        if !items.is_empty() {
            number_of_list(client, &format!("BF.MADD {like} {items}")).await;
        }
    }
    number_of_list(client, &format!("BF.MADD s {}", items[0])).await;
}

/// Number of ones in an answer that is a list.
async fn number_of_list(client: &mut Client, request: &str) -> usize {
    client.send(format!("{request}\r\n").as_bytes()).await;
    let count: usize = client.line().await[1..].parse().unwrap();
    let mut ones = 0;
    for _ in 0..count {
        ones += usize::from(client.line().await == ":1");
    }
    ones
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_put_together_and_compared() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    let items = |range: std::ops::Range<u32>| {
        range.map(|item| item.to_string()).collect::<Vec<_>>().join(" ")
    };
    filters(&mut client, [&items(0..300), &items(200..400)]).await;
    // Few of the 20 positions of each item are shared: estimates are exact within a few items.
    let union = number(&mut client, "UMBEL.ESTIMATE union s t").await;
    assert!((395.0..405.0).contains(&union), "{union}");
    let both = number(&mut client, "UMBEL.ESTIMATE INTERSECTION s t").await;
    assert!((95.0..105.0).contains(&both), "{both}");
    let jaccard = number(&mut client, "UMBEL.ESTIMATE JACCARD s t").await;
    assert!((jaccard - both / union).abs() < 1e-9, "{jaccard}");
    client.call("UMBEL.ESTIMATE JACCARD u v", "$-1\r\n").await;
    client.call("UMBEL.ESTIMATE UNION s missing", "-ERR not found\r\n").await;

    let set = number(&mut client, "UMBEL.MERGE u s t").await;
    assert!((7_000.0..8_001.0).contains(&set), "{set}");
    client.call("UMBEL.MERGE u s t", ":0\r\n").await;
    assert!(number(&mut client, "UMBEL.INTERSECT v s t").await > 1_900.0);
    let asked = items(0..400);
    assert_eq!(number_of_list(&mut client, &format!("BF.MEXISTS u {asked}")).await, 400);
    let common = items(200..300);
    assert_eq!(number_of_list(&mut client, &format!("BF.MEXISTS v {common}")).await, 100);
    client.call("UMBEL.MERGE u missing", "-ERR not found\r\n").await;
    client.call("BF.RESERVE other 0.01 10", "+OK\r\n").await;
    let refused = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    client.call("UMBEL.MERGE u other", refused).await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_merge_adds_counts_once() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("UMBEL.CREATE s KIND counting CAPACITY 1000 ERROR 0.000001", "+OK\r\n").await;
    client.call("UMBEL.CREATE t LIKE s", "+OK\r\n").await;
    client.call("BF.ADD s x", ":1\r\n").await;
    let session = number(&mut client, "UMBEL.SESSION").await;
    let merge = format!("UMBEL.REQUEST {session}:1 UMBEL.MERGE t s");
    let set = number(&mut client, &merge).await;
    assert!(set > 0.0, "{set}");
    // The first answer.
    client.call(&merge, &format!(":{set}\r\n")).await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_emptied_and_all_of_them() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    for database in [0, 1, 2] {
        client.call(&format!("SELECT {database}"), "+OK\r\n").await;
        client.call("BF.ADD k x", ":1\r\n").await;
        client.call("CF.ADD c x", ":1\r\n").await;
    }
    client.call("SELECT 1", "+OK\r\n").await;
    client.call("FLUSHDB", "+OK\r\n").await;
    for (database, count) in [(0, 2), (1, 0), (2, 2)] {
        client.call(&format!("SELECT {database}"), "+OK\r\n").await;
        client.call("DBSIZE", &format!(":{count}\r\n")).await;
    }
    client.call("FLUSHALL ASYNC", "+OK\r\n").await;
    for database in [0, 1, 2] {
        client.call(&format!("SELECT {database}"), "+OK\r\n").await;
        client.call("DBSIZE", ":0\r\n").await;
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_a_shard_with_its_nodes() {
    let (_folder, node) = node().await;
    let mut client = Client::new(&node).await;
    client.call("BF.ADD k x", ":1\r\n").await;
    client.send(b"UMBEL.WHERE k x\r\n").await;
    let mut lines = Vec::new();
    // Six entries; of those with texts, the length is a line of its own.
    while lines.last().is_none_or(|line| line != node.address()) {
        lines.push(client.line().await);
    }
    assert_eq!(lines[..2], ["*12", "$5"]);
    let behind = |name: &str| {
        let at = lines.iter().position(|line| line == name).unwrap();
        lines[at + 1..].iter().find(|line| !line.starts_with('$')).unwrap().as_str()
    };
    // Two shards share the space.
    let expected = match behind("shard") {
        ":0" => ["0000000000000000", "7fffffffffffffff"],
        ":1" => ["8000000000000000", "ffffffffffffffff"],
        other => panic!("{other}"),
    };
    assert_eq!([behind("first_hash"), behind("last_hash")], expected);
    assert_eq!((behind("leader"), behind("replicas"), behind("node")), (":1", "*1", ":1"));
    let index = behind("applied_index").strip_prefix(':').unwrap();
    assert!(index.parse::<u64>().unwrap() > 0);

    client.call("UMBEL.CREATE r KIND blocked CAPACITY 10 ERROR 0.01 REPLICATED", "+OK\r\n").await;
    let refused = "-ERR filter \"r\" is replicated: every node keeps all of its items\r\n";
    client.call("UMBEL.WHERE r x", refused).await;
    client.call("UMBEL.WHERE missing x", "-ERR not found\r\n").await;
    node.shutdown().await;
}
