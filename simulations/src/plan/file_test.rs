//! Plans as files: their text, and the errors for plans that cannot be read.

use serde_json::{Value, json};

use super::*;
use crate::plan::plan_test::{filter, insert, plan_of};
use crate::plan::{Fault, FaultPlan, Who};
use crate::profile::Profile;

fn plan() -> Plan {
    let mut plan = plan_of(3, 3);
    plan.ops = vec![insert(1, 0, 7), insert(2, 7, 8)];
    let who = Who::Leader(3);
    plan.faults = vec![FaultPlan { at_ms: 5, for_ms: 10, fault: Fault::Isolate { who } }];
    plan
}

/// The error for the plan after a change of its JSON.
fn error_of(change: impl FnOnce(&mut Value)) -> String {
    let mut value = serde_json::to_value(plan()).unwrap();
    change(&mut value);
    Plan::from_json(&value.to_string()).unwrap_err().to_string()
}

fn error_of_fault(fault: Value) -> String {
    error_of(|plan| plan["faults"][0]["fault"] = fault)
}

fn error_of_op(op: Value) -> String {
    error_of(|plan| plan["ops"][1]["op"] = op)
}

#[test]
fn operations_and_faults_have_a_line_each() {
    let text = plan().to_json();
    assert_eq!(
        text,
        r#"{
  "plan": 1,
  "seed": 1,
  "profile": "mixed",
  "run_ms": 60000,
  "world": {"nodes": 3, "shards": 4, "replicas": 3, "clients": 8},
  "filters": [
    {"name": "f0", "kind": "classic", "capacity": 100, "rate_ppm": 1000, "public": false}
  ],
  "ops": [
    {"at_ms": 1, "client": 0, "via": 1, "op": {"do": "insert", "filter": "f0", "items": [7], "copies": 1}},
    {"at_ms": 2, "client": 7, "via": 1, "op": {"do": "insert", "filter": "f0", "items": [8], "copies": 1}}
  ],
  "faults": [
    {"at_ms": 5, "for_ms": 10, "fault": {"do": "isolate", "who": "leader:3"}}
  ]
}
"#
    );
    assert_eq!(Plan::from_json(&text).unwrap(), plan());
}

#[test]
fn scenarios_have_their_former_name_too() {
    let plan = Plan::draw(1, Profile::Reconcile, 5_000);
    assert!(!plan.scenarios.is_empty());
    let text = plan.to_json().replace("\"scenarios\"", "\"meetings\"");
    assert_eq!(Plan::from_json(&text).unwrap(), plan);
}

#[test]
fn only_sets_do_without_nodes() {
    let plan = Plan::draw(1, Profile::Reconcile, 5_000);
    let error = |change: fn(&mut Plan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        plan.check().unwrap_err().to_string()
    };
    let with_filter = error(|plan| plan.filters.push(filter("f0")));
    assert_eq!(with_filter, "number of parts that need a node: expected 0 to 0, got 1");
    let without_sets = error(|plan| {
        plan.sets = None;
        plan.scenarios.clear();
    });
    assert_eq!(without_sets, "world.nodes: expected 1 to 16, got 0");
}

#[test]
fn other_versions_are_refused_first() {
    let text = r#"{"plan": 2, "world": "of another shape", "faults": [{"do": "meteor"}]}"#;
    let error = |text: &str| Plan::from_json(text).unwrap_err().to_string();
    assert_eq!(error(text), "plan 2, this build reads plan 1");
    assert_eq!(error(r#"{"plan": "one"}"#), "plan \"one\", this build reads plan 1");
    for text in ["", "[]", "{}", "{\"plan\": 1"] {
        assert_eq!(error(text), "expected a JSON object with \"plan\": 1");
    }
}

#[test]
fn unknown_names_and_fields_are_refused() {
    let error = error_of_fault(json!({ "do": "meteor", "who": "all" }));
    let start = "faults[0].fault.do: unknown variant `meteor`, expected one of `isolate`, `split`,";
    assert!(error.starts_with(start), "{error}");
    let error = error_of_fault(json!({ "do": "latency", "who": "all", "sec": 1 }));
    let start = "faults[0].fault.sec: unknown field `sec`, expected `who` or `ms`";
    assert!(error.starts_with(start), "{error}");
    let error = error_of_fault(json!({ "do": "latency", "who": "all" }));
    assert_eq!(error, "faults[0].fault: missing field `ms`");
    let error = error_of(|plan| plan["speed"] = json!(1));
    let start = "speed: unknown field `speed`, expected one of `plan`, ";
    assert!(error.starts_with(start), "{error}");
    let error = error_of_op(json!({ "do": "clear", "filter": "f0", "items": [] }));
    let start = "ops[1].op.items: unknown field `items`, expected `filter`";
    assert!(error.starts_with(start), "{error}");
    assert_eq!(
        error_of_fault(json!({ "do": "ring", "who": "all" })),
        "faults[0].fault: expected no field besides \"do\" for \"ring\", got \"who\""
    );
    let error = error_of_fault(json!({ "do": "isolate", "who": "boss:1" }));
    let start = "faults[0].fault.who: expected \"node:N\", \"leader:SHARD\", \"follower:SHARD\", \
                 \"meta\" or \"all\", got \"boss:1\"";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn values_of_another_type_are_refused_by_their_place() {
    let error = error_of_fault(json!({ "do": "latency", "who": "all", "ms": -5 }));
    assert_eq!(error, "faults[0].fault.ms: invalid value: integer `-5`, expected u32");
    let error = error_of(|plan| plan["faults"][0]["for_ms"] = json!("long"));
    assert_eq!(error, "faults[0].for_ms: invalid type: string \"long\", expected u64");
    let error = error_of(|plan| plan["ops"][1]["via"] = json!(-1));
    assert_eq!(error, "ops[1].via: invalid value: integer `-1`, expected u32");
    let error = error_of(|plan| plan["world"]["nodes"] = json!(true));
    assert_eq!(error, "world.nodes: invalid type: boolean `true`, expected u32");
    let error = error_of(|plan| plan["run_ms"] = json!(-1));
    assert_eq!(error, "run_ms: invalid value: integer `-1`, expected u64");
    let error = error_of(|plan| drop(plan.as_object_mut().unwrap().remove("ops")));
    assert_eq!(error, "the plan: missing field `ops`");
}

#[test]
fn unknown_bugs_and_choices_are_refused() {
    let error = error_of(|plan| plan["planted"] = json!("ack_never"));
    assert!(error.starts_with("planted: expected \"ack_before_sync\", "), "{error}");
    assert!(error.ends_with(", got \"ack_never\""), "{error}");
    assert_eq!(
        error_of(|plan| plan["provoked"] = json!(["old_map", "luck"])),
        "provoked[1]: expected \"small_segments\", \"snapshots_often\", \"small_pieces\", \
         \"small_batches\", \"old_map\", \"short_reads\" or \"slow_moves\", got \"luck\""
    );
    let mut value = serde_json::to_value(plan()).unwrap();
    value["planted"] = json!("ack_before_sync");
    value["provoked"] = json!(["old_map"]);
    Plan::from_json(&value.to_string()).unwrap();
}

#[test]
fn unknown_profiles_and_promises_are_refused() {
    for name in ["Failover", "doomed", "../../etc/x"] {
        let error = error_of(|plan| plan["profile"] = json!(name));
        assert!(error.starts_with("profile: expected \"calm\", \"network\", "), "{error}");
        assert!(error.ends_with(&format!(" or \"failover\", got {name:?}")), "{error}");
    }
    assert_eq!(
        error_of(|plan| plan["expect"] = json!("bits_only_rise")),
        "expect: expected the name of a promise (simulations/README.md) or \"exceeded\", got \"bits_only_rise\""
    );
    for kind in ["exceeded", "no_panic"] {
        let mut value = serde_json::to_value(plan()).unwrap();
        value["expect"] = json!(kind);
        Plan::from_json(&value.to_string()).unwrap();
    }
}

#[test]
fn sizes_are_in_range() {
    let world = |field: &str, value: u32| error_of(|plan| plan["world"][field] = json!(value));
    assert_eq!(world("nodes", 0), "world.nodes: expected 1 to 16, got 0");
    assert_eq!(world("nodes", 17), "world.nodes: expected 1 to 16, got 17");
    assert_eq!(world("shards", 17), "world.shards: expected 1 to 16, got 17");
    assert_eq!(world("replicas", 10), "world.replicas: expected 1 to 9, got 10");
    assert_eq!(world("clients", 65), "world.clients: expected 1 to 64, got 65");
    assert_eq!(
        world("rot_every", 13),
        "world.rot_every: expected 0 where nothing is compared (world.scrub_s) that would mend the bits, got 13"
    );
    let error = error_of(|plan| plan["zones"] = json!(vec![1; 17]));
    assert_eq!(error, "number of zones: expected 0 to 16, got 17");
    let error = error_of(|plan| plan["zones"] = json!([1, 17]));
    assert_eq!(error, "zones[1]: expected 1 to 16, got 17");
    let error = error_of(|plan| plan["run_ms"] = json!(600_001));
    assert_eq!(error, "run_ms: expected 1 to 600000, got 600001");
    let mut large = plan();
    large.faults = vec![large.faults[0].clone(); 1001];
    let error = large.check().unwrap_err().to_string();
    assert_eq!(error, "number of faults: expected 0 to 1000, got 1001");
    large.ops = vec![large.ops[0].clone(); 100_001];
    let error = large.check().unwrap_err().to_string();
    assert_eq!(error, "number of ops: expected 0 to 100000, got 100001");
    let error = error_of(|plan| {
        let join = json!({ "at_ms": 5, "for_ms": 0, "fault": { "do": "join", "via": "meta" } });
        plan["faults"] = json!(vec![join; 14]);
    });
    assert_eq!(error, "world.nodes with joins: expected 1 to 16, got 17");
}

#[test]
fn filters_are_well_formed() {
    let filter = |field: &str, value: Value| error_of(|plan| plan["filters"][0][field] = value);
    for name in ["".to_owned(), "F0".to_owned(), "f 0".to_owned(), "é".to_owned(), "f".repeat(65)]
    {
        assert_eq!(
            filter("name", json!(name)),
            format!(
                "filters[0].name: expected 1 to 64 characters of a-z, 0-9, _ and -, got {name:?}"
            )
        );
    }
    assert_eq!(filter("capacity", json!(0)), "filters[0].capacity: expected 1 to 10000000, got 0");
    assert_eq!(
        filter("rate_ppm", json!(500_001)),
        "filters[0].rate_ppm: expected 1 to 500000, got 500001"
    );
    let error = error_of(|plan| {
        let filter = plan["filters"][0].clone();
        plan["filters"] = json!([filter, filter]);
    });
    assert_eq!(error, "filters[1].name: expected a name of its own, got \"f0\" a second time");
}

#[test]
fn operations_fit_their_world() {
    let op = |field: &str, value: u32| error_of(|plan| plan["ops"][1][field] = json!(value));
    assert_eq!(op("at_ms", 60_001), "ops[1].at_ms: expected 0 to 60000, got 60001");
    assert_eq!(op("at_ms", 0), "ops[1].at_ms: expected the order of time, 1 or later, got 0");
    assert_eq!(op("client", 8), "ops[1].client: expected 0 to 7, got 8");
    assert_eq!(op("via", 4), "ops[1].via: expected 1 to 3, got 4");
    assert_eq!(op("via", 0), "ops[1].via: expected 1 to 3, got 0");
    assert_eq!(
        error_of_op(json!({ "do": "drop", "filter": "f1" })),
        "ops[1].op.filter: expected \"f0\", got \"f1\""
    );
    assert_eq!(
        error_of_op(json!({ "do": "merge", "filter": "f0", "source": "f1" })),
        "ops[1].op.source: expected \"f0\", got \"f1\""
    );
    let insert = |items: Vec<u32>, copies: u32| {
        error_of_op(json!({ "do": "insert", "filter": "f0", "items": items, "copies": copies }))
    };
    assert_eq!(insert(vec![], 1), "number of ops[1].op.items: expected 1 to 1000, got 0");
    assert_eq!(
        insert((0..1001).collect(), 1),
        "number of ops[1].op.items: expected 1 to 1000, got 1001"
    );
    assert_eq!(
        insert(vec![1, 10_000_000], 1),
        "ops[1].op.items: expected 0 to 9999999, got 10000000"
    );
    assert_eq!(insert(vec![1], 0), "ops[1].op.copies: expected 1 to 8, got 0");
    assert_eq!(insert(vec![1], 9), "ops[1].op.copies: expected 1 to 8, got 9");
}

#[test]
fn faults_fit_their_world() {
    let error = error_of(|plan| plan["faults"][0]["for_ms"] = json!(600_001));
    assert_eq!(error, "faults[0].for_ms: expected 0 to 600000, got 600001");
    let error = error_of(|plan| plan["faults"][0]["at_ms"] = json!(60_001));
    assert_eq!(error, "faults[0].at_ms: expected 0 to 60000, got 60001");
    for (fault, error) in [
        (json!({ "do": "isolate", "who": "node:4" }), "who: expected 1 to 3, got 4"),
        (json!({ "do": "isolate", "who": "leader:4" }), "who: expected 0 to 3, got 4"),
        (json!({ "do": "isolate", "who": "follower:4" }), "who: expected 0 to 3, got 4"),
        (
            json!({ "do": "isolate", "who": "all" }),
            "who: expected one node, which \"isolate\" is about, got \"all\"",
        ),
        // The joining node would be number 4.
        (json!({ "do": "join", "via": "node:5" }), "via: expected 1 to 4, got 5"),
        (
            json!({ "do": "split", "left": [] }),
            "left: expected some but not all of nodes 1 to 3, each once, got []",
        ),
        (
            json!({ "do": "split", "left": [1, 1] }),
            "left: expected some but not all of nodes 1 to 3, each once, got [1, 1]",
        ),
        (
            json!({ "do": "split", "left": [3, 2, 1] }),
            "left: expected some but not all of nodes 1 to 3, each once, got [3, 2, 1]",
        ),
        (json!({ "do": "split", "left": [4] }), "left: expected 1 to 3, got 4"),
        (json!({ "do": "bridge", "middle": 0 }), "middle: expected 1 to 3, got 0"),
        (json!({ "do": "swap_disks", "one": 1, "other": 4 }), "other: expected 1 to 3, got 4"),
        (
            json!({ "do": "swap_disks", "one": 1, "other": 1 }),
            "other: expected another node than 1, got 1",
        ),
    ] {
        assert_eq!(error_of_fault(fault), format!("faults[0].fault.{error}"));
    }
}

#[test]
fn faults_are_in_range() {
    for (fault, error) in [
        (
            json!({ "do": "loss", "who": "all", "per_mille": 1001 }),
            "per_mille: expected 1 to 1000, got 1001",
        ),
        (
            json!({ "do": "clock_drift", "who": "all", "per_mille": 501 }),
            "per_mille: expected 1 to 500, got 501",
        ),
        (
            json!({ "do": "wall_clock", "who": "meta", "ms": -86_400_001 }),
            "ms: expected -86400000 to 86400000, got -86400001",
        ),
        (
            json!({ "do": "crash_storm", "who": "meta", "count": 0 }),
            "count: expected 1 to 100, got 0",
        ),
        (
            json!({ "do": "slow_disk", "who": "meta", "factor": 0 }),
            "factor: expected 1 to 10000, got 0",
        ),
        (
            json!({ "do": "bit_rot", "who": "meta", "part": "log", "bits": 65 }),
            "bits: expected 1 to 64, got 65",
        ),
        (json!({ "do": "latency", "who": "meta", "ms": 0 }), "ms: expected 1 to 60000, got 0"),
        (
            json!({ "do": "clock_jump", "who": "meta", "ms": 600_001 }),
            "ms: expected 1 to 600000, got 600001",
        ),
        (
            json!({ "do": "disk_full", "who": "meta", "free_bytes": 1_u64 << 41 }),
            "free_bytes: expected 0 to 1099511627776, got 2199023255552",
        ),
        (
            json!({ "do": "move_replica", "who": "meta", "shard": 4 }),
            "shard: expected 0 to 3, got 4",
        ),
    ] {
        assert_eq!(error_of_fault(fault), format!("faults[0].fault.{error}"));
    }
}

#[test]
fn only_some_faults_meet_all_nodes() {
    for class in ["crash", "hand_over", "snapshot"] {
        let mut value = serde_json::to_value(plan()).unwrap();
        value["faults"][0]["fault"] = json!({ "do": class, "who": "all" });
        Plan::from_json(&value.to_string()).unwrap();
    }
    for class in ["isolate", "reset", "freeze", "wipe_disk", "replace", "stop"] {
        let error = error_of_fault(json!({ "do": class, "who": "all" }));
        assert!(error.ends_with("got \"all\""), "{error}");
    }
}

#[test]
fn files_are_named_in_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    let error = Plan::read(&path).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot read the plan {}", path.display()));
    plan().write(&path).unwrap();
    assert_eq!(Plan::read(&path).unwrap(), plan());
    fs::write(&path, "{\"plan\": 3}").unwrap();
    let error = anyhow::Error::from(Plan::read(&path).unwrap_err());
    assert_eq!(
        format!("{error:#}"),
        format!("the plan {} cannot be run: plan 3, this build reads plan 1", path.display())
    );
    let error = plan().write(folder.path()).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot write the plan {}", folder.path().display()));
}
