//! Text lines: the kept ones equal those of a naive filter, for every way to do the work.

use crate::model::{Keep, by_line, lines};
use crate::sandbox::Sandbox;

const WORKERS: [u32; 5] = [1, 2, 3, 8, 64];
const FILTERS: [&str; 3] = ["auto", "single-shot", "wide"];

/// Three files with repeats within and between them; the second one lacks the last line end.
fn input() -> Vec<(&'static str, Vec<u8>)> {
    let mut second = lines(2, 500);
    second.extend(b"no line end");
    vec![("c.txt", lines(1, 1200)), ("a.txt", second), ("b.txt", lines(1, 700))]
}

/// Asserts this for one level, with all numbers of workers and all filters.
fn equals_the_model(level: &str) {
    let input = input();
    let sandbox = Sandbox::with(&input);
    for (keep, name) in [(Keep::First, "first"), (Keep::Last, "last")] {
        let expected = by_line(&input, keep).stream();
        for workers in WORKERS {
            for filter in FILTERS {
                let args = format!(
                    "c.txt a.txt b.txt --workers {workers} --filter {filter} --keep {name} \
                     --seed 7 --quiet {level}"
                );
                assert!(sandbox.run(&args).kept() == expected, "{args}");
            }
        }
    }
}

#[test]
fn fingerprints_keep_what_the_model_keeps() {
    equals_the_model("--exactness fingerprint");
}

#[test]
fn bytes_keep_what_the_model_keeps() {
    equals_the_model("--exactness bytes");
}

#[test]
fn a_tiny_false_positive_rate_keeps_what_the_model_keeps() {
    equals_the_model("--exactness approximate --false-positive-rate 1e-9");
}

#[test]
fn a_coarse_false_positive_rate_keeps_no_repeat_and_drops_few_others() {
    let input = input();
    let sandbox = Sandbox::with(&input);
    let expected = by_line(&input, Keep::First).stream();
    let args = "c.txt a.txt b.txt --workers 3 --seed 7 --exactness approximate \
                --false-positive-rate 0.01";
    let kept = sandbox.run(args).kept();
    let kept: Vec<&[u8]> = kept.split_inclusive(|byte| *byte == b'\n').collect();
    let expected: Vec<&[u8]> = expected.split_inclusive(|byte| *byte == b'\n').collect();
    let mut rest = expected.iter();
    assert!(kept.iter().all(|line| rest.any(|other| other == line)), "records out of order");
    let lost = expected.len() - kept.len();
    assert!(lost <= expected.len() / 25, "{lost} of {} dropped wrongly", expected.len());
}

#[test]
fn a_drawn_seed_keeps_what_the_model_keeps() {
    let input = input();
    let sandbox = Sandbox::with(&input);
    let expected = by_line(&input, Keep::First).stream();
    for _ in 0..3 {
        assert!(sandbox.run("c.txt a.txt b.txt").kept() == expected);
    }
}

#[test]
fn little_memory_spills_and_keeps_what_it_must() {
    // More entries than fit in the part of 64M that two threads leave, and there are no more with 64M.
    const DISTINCT: usize = 230_000;
    let distinct: String = (0..DISTINCT).map(|number| format!("{number}\n")).collect();
    let sandbox = Sandbox::with(&[("a.txt", distinct.repeat(2))]);
    for (keep, dropped_from, kept_from) in [("first", DISTINCT, 0), ("last", 0, DISTINCT)] {
        let args = format!(
            "a.txt --memory 64M --workers 3 --keep {keep} --duplicates {keep}.jsonl \
             --summary {keep}.json"
        );
        assert!(sandbox.run(&args).kept() == distinct.as_bytes(), "{args}");
        let report = sandbox.text(&format!("{keep}.jsonl"));
        assert_eq!(report.lines().count(), DISTINCT, "{args}");
        for (index, line) in (1..).zip(report.lines()) {
            let (record, kept) = (dropped_from + index, kept_from + index);
            let numbers = format!(
                "\"record\":{record},\"part\":null,\"kept_file\":\"a.txt\",\"kept_record\":{kept},"
            );
            assert!(line.contains(&numbers), "{args}: {line}");
        }
        let summary: serde_json::Value =
            serde_json::from_slice(&sandbox.read(format!("{keep}.json"))).unwrap();
        assert!(summary["run"]["scratch_bytes_max"][0].as_u64() > Some(0), "nothing was spilled");
    }
}

#[test]
fn what_was_deduplicated_stays_as_it_is() {
    let sandbox = Sandbox::with(&input());
    let once = sandbox.run("c.txt a.txt b.txt").kept();
    sandbox.write("once.txt", &once);
    assert!(sandbox.run("once.txt --workers 5").kept() == once);
}

#[test]
fn more_workers_than_records_are_no_harm() {
    let sandbox = Sandbox::with(&[("a.txt", "b\na\nb\n")]);
    assert_eq!(sandbox.run("a.txt --workers 100").kept_text(), "b\na\n");
}
