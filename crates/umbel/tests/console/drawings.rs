//! Drawings of clusters that are too large for a test: a view's module, with made-up responses of a node.

use serde_json::{Value, json};

use crate::browser;
use crate::servers::Cluster;
use crate::webdriver::Browser;

/// The result of a script in a view that got this response.
fn shown(browser: &Browser, view: &str, told: &Value, find: &str) -> Value {
    browser.run(&format!(
        "return import('/console/{view}.js').then((view) => {{ \
           const root = document.createElement('div'); \
           view.create(root, () => {{}})({told}); \
           return {find}; \
         }});"
    ))
}

fn node(number: u64, state: &str, answers: bool) -> Value {
    json!({
        "node": number, "address": "10.0.0.1:7300", "state": state, "answers": answers,
        "replica_count": 1, "leader_count": 0, "meta_role": "voter",
    })
}

fn cluster() -> Value {
    let shard = |number: u32, start: f64, end: f64, leader: u64, target: &[u64]| {
        json!({
            "shard": number, "start": start, "end": end, "first": "0", "last": "f", "leader": leader,
            "replicas": [1, 2], "target": target, "memory_bytes": 0, "applied_index": 1,
        })
    };
    let nodes = [
        node(1, "live", true),
        node(2, "draining", true),
        node(3, "live", true),
        node(4, "removed", false),
    ];
    let shards = [shard(0, 0.0, 0.5, 1, &[1, 3]), shard(1, 0.5, 1.0, 0, &[])];
    json!({ "cluster": {
        "epoch": 7, "meta_leader": 1, "filter_count": 0, "replica_count": 2, "nodes": nodes, "shards": shards,
    } })
}

fn cube(count: u64) -> Value {
    let nodes: Vec<Value> = (0..count)
        .map(
            |rank| json!({ "node": 10 + rank, "rank": rank, "answers": rank != 3, "sweeps": null }),
        )
        .collect();
    let across = |bit: u64| {
        (0..count).filter(move |rank| rank >> bit & 1 == 0).map(move |rank| (rank, rank | 1 << bit))
    };
    let pairs = (0..4).flat_map(across).filter(|(_, partner)| *partner < count);
    let edges: Vec<Value> = pairs
        .map(|(rank, partner)| {
            let lag = u64::from(rank == 0 && partner == 1);
            json!({
                "node": 10 + rank, "partner": 10 + partner, "step": "dimension 0", "partner_lacks": lag,
                "node_lacks": null,
            })
        })
        .collect();
    let sweeps = json!({
        "sweep": 1, "is_running": false, "sweep_count": 1, "broken_sweep_count": 0, "last_sweep_ms": null,
    });
    json!({ "cube": {
        "filter_count": 0, "own_sweeps": sweeps, "nodes": nodes, "edges": edges, "filters": [],
    } })
}

/// A finished job, optionally with counts of repeats in many directories.
fn job(counts: bool) -> Value {
    let outcome = json!({
        "level": "fingerprint", "records": 900, "kept": 600, "exempt": 0, "dropped_input": 300,
        "dropped_reference": 0, "dropped_missing_key": 0, "bad": 0, "group_count": 9, "group_largest": 3,
        "network_bytes": 1, "self_bytes": 1, "wall_s": 1.0, "phases": [], "bits_per_item": [],
    });
    let row = json!({
        "job": "18446744073709551615", "run": 1, "state": "done", "is_active": false, "cause": null,
        "is_resumable": false, "workers": [3, 4], "submitted_ms": 1, "progress": null, "settled": [],
        "outcome": outcome,
    });
    let units: Vec<Value> =
        (0..24).map(|at| json!({ "name": format!("in/{at}"), "worker": at % 2 })).collect();
    let dropped: Vec<Vec<u64>> = (0..25u32)
        .map(|row| (0..25).map(|column| u64::from(row == column) << row).collect())
        .collect();
    let counted = json!({
        "files": { "count": 1, "rows": [], "others": { "items": 9, "within": 1, "of_others": 2 },
            "all": { "items": 9, "within": 1, "of_others": 2 } },
        "overlap": { "by": "directory", "units": units, "others": 1000, "dropped": dropped },
        "classes": [[2, 3, 9, 20]],
        "examples": [{ "name": "a", "worker": 0, "record": 7, "part": 2, "size": 3 }],
    });
    let none = json!({ "files": null, "overlap": null, "classes": null, "examples": null });
    let repeats = if counts { counted } else { none };
    let opened = json!({ "job": row["job"], "repeats": repeats });
    json!({ "jobs": { "rows": [row], "has_more": false, "opened": opened } })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_moves_is_hatched_and_a_cube_is_drawn_up_to_sixteen_nodes() {
    let Some(browser) = browser() else { return };
    let running = Cluster::form(1).await;
    browser.open(&format!("http://{}/console", running.nodes[0].address));
    let find = "[...root.querySelectorAll('.range-row')].map((row) => \
                [...row.querySelectorAll('i')].map((box) => `${box.className} ${box.style.left} ${box.style.width}`))";
    let expected = json!([
        ["leader 0% 50%", "replica 50% 50%"],
        ["replica 0% 50%", "replica 50% 50%"],
        ["target 0% 50%"],
    ]);
    assert_eq!(shown(&browser, "cluster", &cluster(), find), expected);
    let find = "[...root.querySelectorAll('tbody')].map((body) => body.innerText.includes('draining') || body.innerText.includes('none known'))";
    assert_eq!(shown(&browser, "cluster", &cluster(), find), json!([true, true]));

    // A large table is only drawn when it is opened.
    let find =
        "[root.querySelector('details').open, root.querySelectorAll('tbody')[1].children.length]";
    assert_eq!(shown(&browser, "cluster", &cluster(), find), json!([true, 2]));
    let mut large = cluster();
    let shards = large["cluster"]["shards"].as_array_mut().unwrap();
    let one = shards[0].clone();
    shards.extend((2..129).map(|shard| {
        let mut another = one.clone();
        another["shard"] = shard.into();
        another
    }));
    assert_eq!(shown(&browser, "cluster", &large, find), json!([false, 0]));

    let find = "[root.querySelectorAll('.corner').length, root.querySelectorAll('.edge').length, \
                root.querySelectorAll('.behind').length, root.querySelectorAll('.corner.bad').length, \
                root.querySelector('.cube').hidden, root.querySelectorAll('tbody tr').length]";
    assert_eq!(shown(&browser, "cube", &cube(16), find), json!([16, 32, 1, 1, false, 48]));
    assert_eq!(shown(&browser, "cube", &cube(17), find), json!([0, 0, 0, 0, true, 49]));
    // An opened job with more files than a matrix has rows, and one without counts.
    let find = "(root.querySelector('tbody th button').click(), [root.querySelectorAll('.square').length, \
                root.querySelectorAll('.units li').length, root.querySelectorAll('section section:not([hidden])').length, \
                [...root.querySelectorAll('.units li')].at(-1)?.textContent])";
    assert_eq!(
        shown(&browser, "jobs", &job(true), find),
        json!([25, 25, 3, "1,000 other directories"])
    );
    assert_eq!(shown(&browser, "jobs", &job(false), find), json!([0, 0, 0, null]));
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
