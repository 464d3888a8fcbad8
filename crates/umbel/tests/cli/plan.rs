//! `umbel plan`: figures that can be checked by hand, advice, wrong usage.

use crate::sandbox::Sandbox;
use crate::serve::run;
use serde_json::Value;

const SMALL: &str = "plan --items 1M --rate 0.01 --nodes 4";

fn planned(args: &str) -> Value {
    let text = run(&Sandbox::new(), &format!("{args} --json")).kept_text();
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let sandbox = Sandbox::new();
    for (args, said) in [
        ("plan", "--items"),
        ("plan --items many --rate 0.01 --nodes 3 --queries 1", "1000000, 1e6 or 1M"),
        ("plan --items 0 --rate 0.01 --nodes 3 --queries 1", "0 items, expected at least 1"),
        ("plan --items 1M --rate 1 --nodes 3 --queries 1", "above 0 and below 1"),
        ("plan --items 1M --rate 1e-9 --nodes 3 --queries 1", "no such filter: false-positive"),
        ("plan --items 1M --rate 0.01 --nodes 0 --queries 1", "0 nodes, expected 1 to 256"),
        ("plan --items 1M --rate 0.01 --nodes 257 --queries 1", "257 nodes"),
        ("plan --items 1M --rate 0.01 --nodes 3", "--queries"),
        ("plan --items 1M --rate 0.01 --nodes 3 --queries 1 --item-bytes 0", "an item of 0 bytes"),
        ("plan --items 1M --rate 0.01 --nodes 3 --queries 1 --replicas 0", "0 replicas"),
        ("plan --items 1M --rate 0.01 --nodes 3 --queries 1 --sweep-items 0", "expected at least"),
        ("plan --items 1M --rate 0.01 --nodes 3 --queries 1 --memory-per-node 0", "0 bytes"),
    ] {
        run(&sandbox, args).refused(2, &[said]);
    }
}

#[test]
fn numbers_are_those_of_the_formulas() {
    let plan = planned(&format!("{SMALL} --queries 2K"));
    assert_eq!((&plan["items"], &plan["queries"]), (&1_000_000.into(), &2_000.into()));
    let number = |pointer: &str| {
        plan.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {plan}"))
    };
    // 9.91 bits per item; each of four nodes has three quarters of it, or all of it.
    let filter_bytes = number("/filter_bytes");
    assert!((filter_bytes * 8.0 / 1e6 - 9.91).abs() < 0.01);
    assert_eq!(number("/replicated/node_memory_bytes"), filter_bytes);
    assert_eq!(number("/partitioned/node_memory_bytes"), (filter_bytes * 0.75).ceil());
    // 3/4 of the hashes go to a leader elsewhere: 16 bytes to it, and somewhat more than a bit back.
    assert_eq!(number("/partitioned/query_bytes"), 12.09375);
    assert_eq!(number("/partitioned/insert_bytes"), 12.09375 + 32.0);
    assert_eq!(number("/partitioned/total_bytes"), 1e6 * 44.09375 + 2e3 * 12.09375);
    assert_eq!(number("/partitioned/query_round_trips"), 1.75);
    assert_eq!(number("/replicated/query_bytes"), 0.0);
    assert_eq!(
        (number("/replicated/sweep_steps"), number("/replicated/sweep_messages")),
        (2.0, 8.0)
    );
    assert_eq!((number("/break_even_queries"), &plan["nodes_min"]), (0.0, &Value::Null));
    assert_eq!(plan["recommended"], "replicated");
}

#[test]
fn questions_turn_the_advice_at_the_break_even() {
    let cluster = "plan --items 10M --rate 0.01 --nodes 64";
    let break_even = planned(&format!("{cluster} --queries 0"))["break_even_queries"].clone();
    let break_even = break_even.as_f64().unwrap();
    assert!(break_even > 1e8, "{break_even}");
    for (queries, recommended) in
        [(break_even - 2.0, "partitioned"), (break_even + 2.0, "replicated")]
    {
        let plan = planned(&format!("{cluster} --queries {queries:.0}"));
        assert_eq!(plan["recommended"], recommended, "{plan}");
        let reason = plan["reason"].as_str().unwrap();
        assert!(reason.contains("exactly one `new` for an item needs partitioned"), "{reason}");
    }
}

#[test]
fn memory_is_asked_first() {
    for (args, recommended, said) in [
        ("--nodes 4 --queries 1T --memory-per-node 1M", "partitioned", "a copy of 1.18 MiB"),
        ("--nodes 4 --queries 1T --memory-per-node 100K", "partitioned", "on 37 nodes: a share"),
        ("--nodes 4 --queries 1T --memory-per-node 1K", "partitioned", "a cluster has at most 256"),
        ("--nodes 1 --queries 1T", "partitioned", "nothing travels on one node"),
        ("--nodes 4 --queries 1T", "replicated", "between nodes, partitioned"),
    ] {
        let plan = planned(&format!("plan --items 1M --rate 0.01 {args}"));
        assert_eq!(plan["recommended"], recommended, "{plan}");
        assert!(plan["reason"].as_str().unwrap().contains(said), "{plan}");
    }
    let plan = planned("plan --items 1G --rate 0.001 --nodes 8 --queries 1T");
    assert_eq!(plan["recommended"], "partitioned");
    assert!(plan["reason"].as_str().unwrap().contains("at most 1.00 GiB"), "{plan}");
    // No cluster can have it, so none is described.
    let plan = planned("plan --items 1G --rate 0.01 --nodes 3 --queries 1 --memory-per-node 1K");
    let reason = plan["reason"].as_str().unwrap();
    assert!(reason.contains("a cluster has at most 256") && !reason.contains("--shards"), "{plan}");
    // 11.5 GiB in slices of at most 256 MiB.
    let plan = planned("plan --items 10G --rate 0.01 --nodes 12 --queries 1M");
    let reason = plan["reason"].as_str().unwrap();
    let said = "at least 47 shards: form it with --shards 47 or more";
    assert!(reason.contains(said) && reason.contains("umbel cluster split --to 64`"), "{plan}");
    // Those with which it begins are enough.
    for cluster in [
        "--items 1M --rate 0.01 --nodes 1",
        "--items 300M --rate 0.01 --nodes 4 --memory-per-node 300M",
    ] {
        let plan = planned(&format!("plan {cluster} --queries 1"));
        assert_eq!(plan["recommended"], "partitioned", "{plan}");
        assert!(!plan["reason"].as_str().unwrap().contains("shards"), "{plan}");
    }
}

#[test]
fn both_ways_stand_side_by_side() {
    let text = run(&Sandbox::new(), &format!("{SMALL} --queries 1M --item-bytes 40")).kept_text();
    let row = |name: &str| -> Vec<&str> {
        let found = text.lines().find(|line| line.split('\t').next() == Some(name));
        found.unwrap_or_else(|| panic!("no {name}: {text}")).split('\t').skip(1).collect()
    };
    assert_eq!(row("client to node, an item"), ["40 bytes", "40 bytes"]);
    assert_eq!(row("between nodes, a query"), ["12.1 bytes", "nothing"]);
    assert_eq!(row("insert waits for"), ["1.75 round trips", "nobody"]);
    assert_eq!(row("all nodes know after")[1], "2 round trips, begun within 250 ms");
    assert_eq!(row("one `new` for an item")[0], "yes");
    assert_eq!(row("break-even"), ["0 queries: replicated inserts move no more bytes"]);
    assert!(row("recommended")[0].starts_with("replicated: "), "{text}");
}

/// The sample shows the output on a terminal; its numbers must be the present ones.
#[test]
fn the_sample_in_the_documentation_is_what_is_printed() {
    let docs = include_str!("../../../../docs/plan.md");
    let args = docs.lines().find_map(|line| line.strip_prefix("$ umbel ")).unwrap();
    let text = run(&Sandbox::new(), args).kept_text();
    for cell in text.lines().flat_map(|line| line.split('\t')) {
        assert!(docs.contains(cell), "{cell}");
    }
}
