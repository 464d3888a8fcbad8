//! Bad records: they end the job with their position, or are left out and listed.

use crate::sandbox::Sandbox;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Good records, except those with the given numbers, from 1; and the byte offset of the first bad one.
fn records(count: u64, bad: &[(u64, &str)]) -> (String, u64) {
    let mut text = String::new();
    let mut offset = 0;
    for number in 1..=count {
        match bad.iter().find(|(at, _)| *at == number) {
            Some((at, line)) => {
                if *at == bad[0].0 {
                    offset = text.len() as u64;
                }
                writeln!(text, "{line}").unwrap();
            }
            None => writeln!(text, "{{\"id\":{number},\"text\":\"record {number}\"}}").unwrap(),
        }
    }
    (text, offset)
}

const NO_JSON: &str = "{\"id\":7,";
const NO_KEY: &str = "{\"text\":\"no id\"}";

#[test]
fn the_first_bad_record_ends_the_job_and_is_named() {
    for (line, cause) in [(NO_JSON, "invalid JSON"), (NO_KEY, "no field `id`"), ("{", "JSON")] {
        // Far from the start, so that the file is divided among workers; the second file has another one.
        let (text, offset) = records(5000, &[(4321, line), (4400, NO_JSON)]);
        let sandbox =
            Sandbox::with(&[("a.jsonl", "{\"id\":0}\n"), ("b.jsonl", &text), ("c.jsonl", "x\n")]);
        for workers in [1, 8] {
            for output in ["", "--output out.jsonl", "--output out/"] {
                let args = format!(
                    "a.jsonl b.jsonl c.jsonl --key id --workers {workers} {output} \
                     --duplicates d.jsonl --summary s.json"
                );
                let place = format!("b.jsonl: record 4321 (byte {offset}): ");
                let hint = if line == NO_KEY { "--missing-key=keep" } else { "--skip-bad" };
                sandbox.run(&args).refused(1, &[&place, cause, hint, "--skip-bad"]);
                assert_eq!(sandbox.files(), ["a.jsonl", "b.jsonl", "c.jsonl"], "{args}");
            }
        }
    }
}

#[test]
fn invalid_utf8_in_json_is_a_bad_record() {
    let sandbox = Sandbox::with(&[("a.jsonl", b"{\"id\":1}\n{\"id\":\"\xff\"}\n")]);
    sandbox.run("a.jsonl --key id").refused(1, &["a.jsonl: record 2 (byte 9): ", "UTF-8"]);
}

#[test]
fn bad_records_are_left_out_and_listed_in_the_output_directory() {
    let (text, offset) = records(3000, &[(3, NO_KEY), (2500, NO_JSON)]);
    let second_offset = text.find(&format!("\n{NO_JSON}\n")).unwrap() + 1;
    let sandbox = Sandbox::with(&[("in/a.jsonl", &text[..]), ("in/b.jsonl", "{\"id\":1}\nx\n")]);
    for workers in [1, 8] {
        let args = format!("in --key id --skip-bad --output out/ --workers {workers} --overwrite");
        sandbox.run(&args).ended_with(3);
        let kept = text.replace(&format!("{NO_KEY}\n"), "").replace(&format!("{NO_JSON}\n"), "");
        assert_eq!(sandbox.text("out/a.jsonl"), kept);
        assert_eq!(sandbox.text("out/b.jsonl"), "");
        let list: Vec<Value> = sandbox
            .text("out/bad.jsonl")
            .lines()
            .map(|line| {
                let bad: Value = serde_json::from_str(line).unwrap();
                assert!(bad["detail"].is_string() && bad["rest_lost"] == false, "{bad}");
                json!([bad["file"], bad["record"], bad["byte"], bad["cause"]])
            })
            .collect();
        let expected = [
            json!(["in/a.jsonl", 3, offset, "missing_key"]),
            json!(["in/a.jsonl", 2500, second_offset, "invalid_json"]),
            json!(["in/b.jsonl", 2, 9, "invalid_json"]),
        ];
        assert_eq!(list, expected, "{workers} workers");
    }
}

#[test]
fn bad_records_are_listed_where_the_user_says() {
    let (text, _) = records(5, &[(2, NO_KEY)]);
    for output in ["", "--output out.jsonl", "--output out/"] {
        let sandbox = Sandbox::with(&[("a.jsonl", &text)]);
        let ran =
            sandbox.run(&format!("a.jsonl --key id --skip-bad --bad list.jsonl --quiet {output}"));
        assert_eq!((ran.code, &ran.stderr[..]), (Some(3), ""), "{output}");
        assert!(sandbox.text("list.jsonl").contains("\"record\":2"), "{output}");
        assert!(!sandbox.exists("out/bad.jsonl"), "listed twice");
    }
}

/// It would be taken for that of the later job.
#[test]
fn an_old_list_is_emptied_by_a_job_without_bad_records() {
    let bad = format!("{NO_JSON}\n");
    for (options, list) in [
        ("--output out/", "out/bad.jsonl"),
        ("--output out/ --bad list.gz", "list.gz"),
        ("--output out.jsonl --bad list", "list"),
        ("--annotate out/", "out/bad.jsonl"),
    ] {
        let sandbox = Sandbox::with(&[("a.jsonl", &*bad)]);
        let args = format!("a.jsonl --key id --skip-bad --overwrite --quiet {options}");
        sandbox.run(&args).ended_with(3);
        let records = |list: &str| sandbox.run(&format!("{list} --format text")).kept_text();
        assert_eq!(records(list).lines().count(), 1, "{args}");
        sandbox.write("a.jsonl", "{\"id\":1}\n");
        sandbox.run(&args).kept();
        assert_eq!(records(list), "", "{args}");
        // Nothing is written where nothing is replaced.
        std::fs::remove_file(sandbox.path(list)).unwrap();
        sandbox.run(&args).kept();
        assert!(!sandbox.exists(list), "{args}");
    }
}

#[test]
fn bad_records_are_shown_on_standard_error_where_no_list_is_written() {
    let (text, offset) = records(5, &[(2, NO_KEY)]);
    for output in ["", "--output out.jsonl"] {
        let sandbox = Sandbox::with(&[("a.jsonl", &text)]);
        let ran = sandbox.run(&format!("a.jsonl --key id --skip-bad {output}"));
        let place = format!("a.jsonl: record 2 (byte {offset}): no field `id`");
        assert!(ran.stderr.contains(&place), "{}", ran.stderr);
        ran.ended_with(3);
    }
}

#[test]
fn many_bad_records_do_not_flood_standard_error_but_are_counted() {
    let sandbox = Sandbox::with(&[("a.jsonl", "x\n".repeat(1000) + "{\"id\":1}\n")]);
    let ran = sandbox.run("a.jsonl --key id --skip-bad --summary s.json");
    assert!(ran.stderr.lines().count() < 50, "{}", ran.stderr);
    assert_eq!(ran.ended_with(3), b"{\"id\":1}\n");
    let summary: Value = serde_json::from_slice(&sandbox.read("s.json")).unwrap();
    assert_eq!(summary["bad"], json!({ "total": 1000, "by_cause": { "invalid_json": 1000 } }));
}

/// Without a list, what is not shown is only counted.
#[test]
fn millions_of_bad_records_take_no_memory() {
    const RECORDS: usize = 2_000_000;
    let sandbox = Sandbox::with(&[("a.jsonl", "x\n".repeat(RECORDS))]);
    let ran = sandbox.run("a.jsonl --key id --skip-bad --memory 64M --summary s.json -q");
    assert_eq!(ran.ended_with(3), b"");
    let summary: Value = serde_json::from_slice(&sandbox.read("s.json")).unwrap();
    assert_eq!(summary["bad"]["total"], RECORDS);
    let rss = summary["run"]["rss_bytes_max"][0].as_u64().unwrap();
    assert!(rss < 128 << 20, "{rss}");
}

#[test]
fn without_bad_records_nothing_is_listed_and_the_exit_code_is_0() {
    let sandbox = Sandbox::with(&[("a.jsonl", "{\"id\":1}\n{\"id\":1}\n")]);
    sandbox.run("a.jsonl --key id --skip-bad --output out/").kept();
    assert_eq!(sandbox.files(), ["a.jsonl", "out/a.jsonl"]);
}

#[test]
fn as_many_bad_records_as_allowed_are_left_out() {
    let (text, _) = records(3000, &[(2, NO_KEY), (2900, NO_JSON)]);
    let sandbox = Sandbox::with(&[("a.jsonl", &text)]);
    for workers in [1, 8] {
        sandbox.run(&format!("a.jsonl --key id --skip-bad=2 --workers {workers}")).ended_with(3);
    }
}

#[test]
fn more_bad_records_than_allowed_fail_the_job() {
    // In one chunk and in different ones, in one file and in two.
    let near = records(5000, &[(2, NO_KEY), (3, NO_JSON)]).0;
    let far = records(5000, &[(2, NO_KEY), (4900, NO_JSON)]).0;
    let once = records(5000, &[(2, NO_KEY)]).0;
    for (first, second) in [(&near[..], "{\"id\":1}\n"), (&far, "{\"id\":1}\n"), (&once, NO_JSON)] {
        let sandbox = Sandbox::with(&[("a.jsonl", first), ("b.jsonl", second)]);
        for workers in [1, 8] {
            for output in ["", "--output out.jsonl", "--output out/ --bad list.jsonl"] {
                let args =
                    format!("a.jsonl b.jsonl --key id --skip-bad=1 --workers {workers} {output}");
                sandbox.run(&args).refused(1, &["bad records", "--skip-bad=1"]);
                assert_eq!(sandbox.files(), ["a.jsonl", "b.jsonl"], "{args}");
            }
        }
    }
}

#[test]
fn a_file_of_bad_records_only_leaves_an_empty_output() {
    let sandbox = Sandbox::with(&[("a.jsonl", "x\ny\n")]);
    assert_eq!(sandbox.run("a.jsonl --key id --skip-bad").ended_with(3), b"");
}

#[test]
fn dropped_and_bad_records_are_numbered_alike() {
    let text = "{\"id\":1}\nx\n{\"id\":1}\n";
    let sandbox = Sandbox::with(&[("a.jsonl", text)]);
    sandbox.run("a.jsonl --key id --skip-bad --duplicates d.jsonl").ended_with(3);
    let report: Value = serde_json::from_str(&sandbox.text("d.jsonl")).unwrap();
    assert_eq!((&report["record"], &report["kept_record"]), (&json!(3), &json!(1)));
}
