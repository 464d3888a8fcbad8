//! Comparisons of replicas on request of an operator.

use std::process::Output;

use serde_json::Value;
use umbel_client::{AckLevel, Client, Distribution, NewFilter};

use crate::load::{create_with_copies, item};
use crate::servers::{Cluster, page, umbel, until};

async fn create(client: &Client, name: &str) {
    let distribution = Distribution::Replicated;
    let filter = NewFilter { distribution, ..NewFilter::for_rate(100_000, 1e-3) };
    create_with_copies(client, name, &filter, 3).await;
}

async fn insert(client: &Client, name: &str, items: std::ops::Range<u64>) {
    client.filter(name).insert_at(items.map(item), AckLevel::Local).await.unwrap();
}

fn scrub(address: &str, args: &[&str]) -> Output {
    umbel(&[&["cluster", "--cluster", address, "scrub"], args].concat()).output().unwrap()
}

/// The exit code; and filter, nodes and result of each pair.
fn pairs(output: &Output) -> (Option<i32>, Vec<[String; 4]>) {
    let out = String::from_utf8_lossy(&output.stdout);
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        [fields[0], fields[1], fields[2], fields[4]].map(ToOwned::to_owned)
    };
    (output.status.code(), out.lines().map(row).collect())
}

/// Compares the replicas of `cut` until every row is as wanted; returns the exit code and the rows.
async fn shard_rows(
    address: &str,
    what: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> (Option<i32>, String) {
    until(what, || async {
        let output = scrub(address, &["cut"]);
        let rows = String::from_utf8_lossy(&output.stdout).into_owned();
        let are_wanted = !rows.is_empty() && rows.lines().all(&is_wanted);
        are_wanted.then(|| (output.status.code(), rows))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_has_copies_compared() {
    // No node exchanges anything by itself.
    let mut cluster =
        Cluster::form_with(3, |node| node.set("UMBEL_SWEEP_INTERVAL_MS", "600000")).await;
    let address = cluster.nodes[0].address.clone();
    let client = cluster.nodes[0].client();
    create(&client, "seen").await;
    create(&client, "shown").await;

    insert(&client, "seen", 0..5_000).await;
    let (code, under_way) = pairs(&scrub(&address, &["seen"]));
    assert_eq!((code, under_way.len()), (Some(0), 2), "{under_way:?}");
    for [filter, node, _, result] in &under_way {
        assert_eq!((filter.as_str(), node.as_str()), ("seen", "1"));
        assert!(result.starts_with("news ("), "{result}");
    }

    client.flush("seen").await.unwrap();
    let (code, equal) = pairs(&scrub(&address, &["--all"]));
    let expected =
        [["seen", "1", "2"], ["seen", "1", "3"], ["shown", "1", "2"], ["shown", "1", "3"]];
    let expected = expected.map(|[a, b, c]| [a, b, c, "equal"].map(ToOwned::to_owned));
    assert_eq!((code, equal), (Some(0), expected.to_vec()));
    let metrics = page(&address, "/metrics").await.unwrap();
    for line in
        ["umbel_scrubs_total{outcome=\"equal\"} 4", "umbel_scrubs_total{outcome=\"news\"} 2"]
    {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert!(metrics.contains("umbel_scrub_differing_bits_total{cause=\"lost\"} 0"), "{metrics}");

    // For a partitioned filter, the replicas of each shard are compared.
    client.create("cut", &NewFilter::for_rate(100_000, 1e-3)).await.unwrap();
    client.filter("cut").insert((0..5_000).map(item)).await.unwrap();
    // On a busy machine, a comparison may leave out a replica that does not respond in time.
    let is_whole = |row: &str| !row.contains("not compared") && !row.contains("failed: ");
    let (code, rows) = shard_rows(&address, "all replicas compared", is_whole).await;
    assert_eq!(code, Some(0), "{rows}");
    let shard_count = client.status().await.unwrap().shards.len();
    let expected: Vec<String> =
        (0..shard_count).map(|shard| format!("cut\t{shard}\t1 2 3\tequal")).collect();
    assert_eq!(rows.lines().collect::<Vec<_>>(), expected);

    for (args, says) in [
        (&["unknown"][..], "unknown"),
        (&[], "<FILTER|--all>"),
        (&["seen", "--all"], "cannot be used with"),
    ] {
        let refused = scrub(&address, args);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_ne!(refused.status.code(), Some(0), "{args:?}");
        assert!(said.contains(says), "{said}");
    }

    // A node that is down is named, and the others are compared.
    cluster.nodes[2].kill();
    let failed = until("the third node is away", || async {
        let output = scrub(&address, &["seen"]);
        let (code, rows) = pairs(&output);
        (code == Some(1)).then_some(rows)
    })
    .await;
    assert_eq!(failed[0][3], "equal");
    assert!(failed[1][3].starts_with("failed: "), "{failed:?}");
    let json = umbel(&["cluster", "--cluster", &address, "--json", "scrub", "seen"]).output();
    let json = json.unwrap();
    let said = String::from_utf8_lossy(&json.stderr);
    assert!(said.starts_with("umbel: not everything was compared"), "{said}");
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["pairs"][0]["failure"], Value::Null);
    assert!(json["pairs"][1]["failure"].is_string(), "{json}");
    // Once each shard that it led has another leader.
    let is_named = |row: &str| row.contains("node 3 not compared: ");
    let (code, rows) = shard_rows(&address, "the third node named for each shard", is_named).await;
    assert_eq!((code, rows.lines().count()), (Some(1), shard_count), "{rows}");
}
