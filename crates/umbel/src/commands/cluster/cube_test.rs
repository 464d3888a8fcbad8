//! Drawings of cubes, compared character by character.

use super::cube::{CubeView, exchange_facts, exchange_json};
use serde_json::json;
use umbel_client::StatusResponse;
use umbel_client::proto::{ExchangeStatus, NodeStatus};

fn node(node: u64, state: &str) -> NodeStatus {
    NodeStatus { node, state: state.to_owned(), is_reachable: true, ..NodeStatus::default() }
}

fn cluster(numbers: impl IntoIterator<Item = u64>) -> StatusResponse {
    let nodes = numbers.into_iter().map(|number| node(number, "live")).collect();
    StatusResponse { nodes, ..StatusResponse::default() }
}

fn drawn(status: &StatusResponse) -> String {
    let drawing = CubeView::of(status).unwrap().drawing().unwrap();
    format!("\n{drawing}")
}

#[test]
fn one_node_is_no_cube() {
    let view = CubeView::of(&cluster([1])).unwrap();
    assert_eq!((view.drawing(), view.rows().lines()), (None, String::new()));
    assert!(CubeView::of(&cluster([])).is_none());
}

#[test]
fn two_nodes_are_a_line() {
    assert_eq!(
        drawn(&cluster(1..=2)),
        "
1───────2
"
    );
}

#[test]
fn a_third_node_is_beyond() {
    assert_eq!(
        drawn(&cluster(1..=3)),
        "
1───────2
beyond: 3→1
"
    );
}

#[test]
fn four_nodes_are_a_square() {
    assert_eq!(
        drawn(&cluster(1..=4)),
        "
3───────4
│       │
│       │
1───────2
"
    );
}

#[test]
fn a_fifth_node_is_beyond() {
    assert_eq!(
        drawn(&cluster(1..=5)),
        "
3───────4
│       │
│       │
1───────2
beyond: 5→1
"
    );
}

#[test]
fn eight_nodes_are_a_cube() {
    assert_eq!(
        drawn(&cluster(1..=8)),
        "
  7───────8
 /│      /│
5───────6 │
│ │     │ │
│ 3─────│─4
│/      │/
1───────2
"
    );
}

#[test]
fn eleven_nodes_are_a_cube_and_three_beyond() {
    assert_eq!(
        drawn(&cluster(1..=11)),
        "
  7───────8
 /│      /│
5───────6 │
│ │     │ │
│ 3─────│─4
│/      │/
1───────2
beyond: 9→1 10→2 11→3
"
    );
}

#[test]
fn long_numbers_have_room() {
    let mut status = cluster([1, 22, 303, 4, 5, 6, 7, 8888]);
    status.nodes[1].is_reachable = false;
    assert_eq!(
        drawn(&status),
        "
     303───────────8888
  /  │          /  │
7─────────────22!  │
│    │        │    │
│    5────────│────6
│ /           │ /
1─────────────4
! does not answer
"
    );
}

#[test]
fn places_go_by_rank_among_live_nodes() {
    let nodes = [node(7, "draining"), node(2, "removed"), node(3, "live"), node(5, "live")];
    let mut status = StatusResponse { nodes: nodes.to_vec(), ..StatusResponse::default() };
    status.nodes[0].is_reachable = false;
    assert_eq!(
        drawn(&status),
        "
3───────5
beyond: 7!→3
! does not answer
"
    );
    let view = CubeView::of(&status).unwrap();
    assert_eq!(
        view.rows().lines(),
        "cube\t0\t3\tyes\t7\t5\ncube\t1\t5\tyes\t-\t3\ncube\t2\t7\tno\t3\t-\n"
    );
    assert_eq!(view.json()[0], json!({ "rank": 0, "node": 3, "hands": 7, "across": [5] }));
    assert_eq!(view.json()[2], json!({ "rank": 2, "node": 7, "hands": 3, "across": [] }));
}

#[test]
fn many_nodes_are_a_table() {
    let view = CubeView::of(&cluster(1..=16)).unwrap();
    assert_eq!(view.drawing(), None);
    let lines = view.rows().lines();
    assert_eq!(lines.lines().count(), 16);
    assert_eq!(lines.lines().nth(5), Some("cube\t5\t6\tyes\t-\t5,8,2,14"));
}

#[test]
fn sweeps_are_whole_or_broken() {
    let exchange = ExchangeStatus {
        filter_count: 2,
        sweep: 9,
        is_running: true,
        sweep_count: 8,
        broken_sweep_count: 3,
        ..ExchangeStatus::default()
    };
    let facts = exchange_facts(&exchange);
    let fact = |name: &str| &facts.iter().find(|fact| fact.0 == name).unwrap().1[..];
    assert_eq!((fact("sweep"), fact("is running"), fact("last sweep, ms")), ("9", "yes", "-"));
    assert_eq!((fact("sweeps whole"), fact("sweeps broken")), ("5", "3"));
    assert_eq!(exchange_json(&exchange)["broken_sweeps"], 3);
}
