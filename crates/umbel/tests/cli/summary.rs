//! The summary: stable field names, correct counts, and equal summaries of equal jobs.

use crate::model::{Keep, by_line, lines};
use crate::sandbox::Sandbox;
use serde_json::{Value, json};

/// All fields on which programs may rely.
const FIELDS: &str = "
    /job /seed /spec /level /keep /records /items /distinct /collisions
    /dropped/input /dropped/reference /bad/total /bad/by_cause
    /plan/mode /plan/workers /plan/n /plan/m /plan/f /plan/modulus_bits /plan/refine_bits
    /plan/delta_estimate /plan/delta
    /exchange/bits_per_item/sample /exchange/bits_per_item/filter
    /exchange/bits_per_item/verdict1 /exchange/bits_per_item/refine
    /exchange/bits_per_item/verdict2 /exchange/bits_per_item/settle
    /exchange/bits_per_item/verdict3 /exchange/bits_per_item/headers
    /exchange/entropy_bits_per_item/filter /exchange/entropy_bits_per_item/verdict1
    /exchange/entropy_bits_per_item/verdict2 /exchange/predicted_bits_per_item
    /exchange/local_duplicates /exchange/candidates /exchange/survivors
    /exchange/network_bytes /exchange/self_bytes
    /run/wall_s /run/cpu_s /run/rss_bytes_max/0 /run/scratch_bytes_max/0 /run/resumed
    /run/phase_wall_s
";

/// Fields that may differ between jobs with the same input and options.
const VARYING: [&str; 5] = ["job", "seed", "plan", "exchange", "run"];

fn input() -> [(&'static str, Vec<u8>); 2] {
    [("a.txt", lines(1, 2000)), ("b.txt", lines(2, 1000))]
}

/// The summary of a run on the input.
#[track_caller]
fn summary(sandbox: &Sandbox, options: &str) -> Value {
    let args = format!("a.txt b.txt --output out.txt --overwrite --summary - {options}");
    serde_json::from_slice(&sandbox.run(&args).kept()).unwrap()
}

fn without(mut summary: Value, fields: &[&str]) -> String {
    for field in fields {
        summary.as_object_mut().unwrap().remove(*field).unwrap();
    }
    summary.to_string()
}

#[test]
fn all_promised_fields_are_there() {
    let sandbox = Sandbox::with(&input());
    for options in ["--workers 1", "--workers 3 --filter single-shot", "--workers 3 --filter wide"]
    {
        for level in ["fingerprint", "bytes", "approximate"] {
            let summary = summary(&sandbox, &format!("{options} --exactness {level}"));
            let missing: Vec<&str> = FIELDS
                .split_whitespace()
                // Without a sample, the estimate is null, but its field exists.
                .filter(|field| match summary.pointer(field) {
                    Some(Value::Null) => *field != "/plan/delta_estimate",
                    other => other.is_none(),
                })
                .collect();
            assert!(missing.is_empty(), "{options} {level}: {missing:?}");
            assert_eq!(summary["level"], level);
        }
    }
}

#[test]
fn counts_are_the_models() {
    let input = input();
    let sandbox = Sandbox::with(&input);
    for (keep, name) in [(Keep::First, "first"), (Keep::Last, "last")] {
        let expected = by_line(&input, keep);
        for workers in [1, 3] {
            for report in ["", "--duplicates d.jsonl", "--exactness bytes"] {
                let options = format!("--workers {workers} --keep {name} {report}");
                let summary = summary(&sandbox, &options);
                let counts = [&summary["records"], &summary["items"], &summary["distinct"]];
                let distinct = expected.records - expected.dropped;
                assert_eq!(counts, [expected.records, expected.records, distinct], "{options}");
                let dropped =
                    json!({ "input": expected.dropped, "reference": 0, "missing_key": 0 });
                assert_eq!(summary["dropped"], dropped, "{options}");
                assert_eq!(summary["bad"], json!({ "total": 0, "by_cause": {} }), "{options}");
                assert_eq!((&summary["collisions"], &summary["keep"]), (&json!(0), &json!(name)));
                assert_eq!(summary["plan"]["workers"], workers, "{options}");
            }
        }
    }
}

#[test]
fn the_seed_is_told_as_it_must_be_given_to_repeat_the_run() {
    let sandbox = Sandbox::with(&input());
    let drawn = summary(&sandbox, "--workers 3");
    let seed = drawn["seed"].as_str().unwrap();
    let again = summary(&sandbox, &format!("--workers 3 --seed {seed}"));
    assert_eq!(without(again, &["run"]), without(drawn, &["run"]));
}

#[test]
fn one_command_with_one_seed_says_the_same_but_for_its_run() {
    let sandbox = Sandbox::with(&input());
    for options in
        ["--workers 1", "--workers 4", "--workers 4 --exactness bytes --filter single-shot"]
    {
        let run = || without(summary(&sandbox, &format!("{options} --seed 11")), &["run"]);
        let first = run();
        for _ in 0..3 {
            assert_eq!(run(), first, "{options}");
        }
    }
}

#[test]
fn seeds_and_workers_change_only_what_may_vary() {
    let sandbox = Sandbox::with(&input());
    for level in ["fingerprint", "bytes"] {
        let run = |options| {
            let options = format!("--exactness {level} {options}");
            without(summary(&sandbox, &options), &VARYING)
        };
        let first = run("--workers 1 --seed 1");
        for options in ["--workers 1 --seed 2", "--workers 5 --seed 1", "--workers 64 --seed 3"] {
            assert_eq!(run(options), first, "{level} {options}");
        }
    }
}

#[test]
fn a_summary_file_holds_what_standard_output_would() {
    let sandbox = Sandbox::with(&input());
    let printed = summary(&sandbox, "--seed 1 --workers 3");
    sandbox
        .run("a.txt b.txt --output out.txt --overwrite --summary s.json --seed 1 --workers 3")
        .kept();
    let text = sandbox.text("s.json");
    assert!(text.ends_with("}\n"), "a line end is missing");
    let written: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(without(written, &["run"]), without(printed, &["run"]));
}

#[test]
fn the_spec_shows_the_options_that_were_given() {
    let sandbox = Sandbox::with(&[("a.jsonl", "{\"a\":{\"b\":1}}\n")]);
    sandbox.run("a.jsonl --key a.b --memory 128M --output o.jsonl --summary s.json").kept();
    let summary: Value = serde_json::from_slice(&sandbox.read("s.json")).unwrap();
    let spec = &summary["spec"];
    assert_eq!(spec["inputs"], json!(["a.jsonl"]));
    assert_eq!((&spec["granularity"], &spec["key"]), (&json!("key"), &json!(["a.b"])));
    assert_eq!(spec["memory_bytes"], 128 << 20);
}

#[test]
fn no_summary_stands_where_the_job_failed() {
    let sandbox = Sandbox::with(&[("a.jsonl", "{\"a\":1}\nx\n")]);
    sandbox.run("a.jsonl --key a --summary s.json").refused(1, &["record 2"]);
    assert!(!sandbox.exists("s.json"));
}
