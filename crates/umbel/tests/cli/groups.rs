//! `--groups`, and groups in the summary: as a map counts them, for every division of work.

use crate::model::lines;
use crate::sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Lines of two files, some of which are very frequent.
fn input() -> [(&'static str, Vec<u8>); 2] {
    let mut second = lines(1, 900);
    (0..700).for_each(|at| second.extend(format!("hot {}\n", at % 2).into_bytes()));
    second.extend((0..40).flat_map(|at| format!("pair {at}\npair {at}\n").into_bytes()));
    [("b.txt", lines(1, 2000)), ("a.txt", second)]
}

/// Every group of two or more members: file, record and size, in the order of first members.
fn expected(input: &[(&str, Vec<u8>)]) -> Vec<(String, u64, u64)> {
    let mut groups: BTreeMap<&[u8], (usize, u64, u64)> = BTreeMap::new();
    for (file, (_, bytes)) in input.iter().enumerate() {
        for (record, line) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
            groups.entry(line).or_insert((file, record, 0)).2 += 1;
        }
    }
    let mut rows: Vec<_> = groups.into_values().filter(|&(.., size)| size > 1).collect();
    rows.sort_unstable();
    rows.into_iter().map(|(file, record, size)| (input[file].0.to_owned(), record, size)).collect()
}

#[test]
fn groups_are_those_of_a_map() {
    let input = input();
    let groups = expected(&input);
    let list: String = groups
        .iter()
        .map(|(file, record, size)| {
            format!("{{\"kept_file\":\"{file}\",\"kept_record\":{record},\"size\":{size}}}\n")
        })
        .collect();
    let mut by_power: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    groups.iter().for_each(|(.., size)| by_power.entry(size.ilog2()).or_default().push(*size));
    let histogram: Vec<Value> = by_power
        .into_iter()
        .map(|(power, sizes)| {
            json!({
                "size_min": 1u64 << power, "size_max": (2u64 << power) - 1,
                "groups": sizes.len(), "records": sizes.iter().sum::<u64>(),
            })
        })
        .collect();
    let largest = groups.iter().map(|(.., size)| size).max();
    let mut most = groups.clone();
    most.sort_by_key(|(.., size)| std::cmp::Reverse(*size)); // stable: of equal sizes the first
    let most: Vec<Value> = most
        .into_iter()
        .take(20)
        .map(|(file, record, size)| json!({"file": file, "record": record, "size": size}))
        .collect();

    let sandbox = Sandbox::with(&input);
    for level in ["fingerprint", "bytes", "approximate --false-positive-rate 1e-9"] {
        for workers in [1, 2, 3, 8] {
            let args = format!(
                "b.txt a.txt --workers {workers} --exactness {level} --groups g.jsonl --seed 3 \
                 --summary s.json --output o.txt --overwrite -q"
            );
            sandbox.run(&args).kept();
            assert!(sandbox.text("g.jsonl") == list, "{args}");
            let summary: Value = serde_json::from_str(&sandbox.text("s.json")).unwrap();
            let due = json!({"count": groups.len(), "largest": largest, "histogram": histogram});
            assert_eq!(summary["groups"], due, "{args}");
            assert_eq!(summary["most_repeated"], json!(most), "{args}");
        }
    }
}

#[test]
fn figures_come_with_a_report_and_only_then() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\ny\n")]);
    let summary = |args: &str| -> Value {
        sandbox.run(&format!("a.txt --summary s.json --overwrite {args}")).kept();
        serde_json::from_str(&sandbox.text("s.json")).unwrap()
    };
    let without = summary("");
    assert!(without["groups"].is_null() && without["most_repeated"].is_null());
    let with = summary("--duplicates d.jsonl");
    assert_eq!(with["groups"]["count"], 1);
    assert_eq!(with["most_repeated"], json!([{"file": "a.txt", "record": 1, "size": 2}]));
    sandbox.write("a.txt", "x\ny\n");
    let nothing = summary("--groups g.jsonl");
    assert_eq!(nothing["groups"], json!({"count": 0, "largest": 0, "histogram": []}));
    assert_eq!((sandbox.text("g.jsonl"), &nothing["most_repeated"]), (String::new(), &json!([])));
}

/// The groups do not fit in memory for counting.
#[test]
fn more_groups_than_fit_in_memory_are_counted() {
    let text: String = (0..600_000u32).map(|at| format!("{}\n", at % 300_000)).collect();
    let sandbox = Sandbox::with(&[("a.txt", text)]);
    sandbox.run("a.txt --memory 64M --workers 3 --groups g.jsonl --output o.txt -q").kept();
    let list = sandbox.text("g.jsonl");
    assert_eq!(list.lines().count(), 300_000);
    let mut lines = list.lines().enumerate();
    let line = |at| format!("{{\"kept_file\":\"a.txt\",\"kept_record\":{},\"size\":2}}", at + 1);
    assert!(lines.all(|(at, got)| got == line(at)));
}
