//! `--keep best:FIELD`: of equal records the one with the best number is kept, for every division of
//! work.

use crate::model::Draws;
use crate::sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Scores as written, from best to worst; those in a row are equal. The last row has values that are no
/// numbers.
const SCORES: [&[&str]; 9] = [
    &["18446744073709551615"],
    &["9007199254740993"],
    &["9007199254740992", "9007199254740992.0"],
    &["7.5", "75e-1"],
    &["7", "7.0"],
    &["0", "-0.0"],
    &["-3"],
    &["-9007199254740993"],
    &["null", "\"8\"", "[9]", "true"],
];

/// A record in the model.
struct Record {
    line: String,
    key: u64,
    /// The row of [`SCORES`].
    row: usize,
    file: usize,
    number: u64,
}

/// An index below `bound`.
fn pick(draws: &mut Draws, bound: usize) -> usize {
    usize::try_from(draws.below(bound as u64)).unwrap()
}

/// Two files of records, some of which lack the score.
fn records(seed: u64, count: u64, keys: u64) -> Vec<Record> {
    let mut draws = Draws(seed);
    let mut numbers = [0, 0];
    (0..count)
        .map(|at| {
            let file = usize::from(at >= count * 2 / 3);
            let (key, row) = (draws.below(keys), pick(&mut draws, SCORES.len()));
            let texts = SCORES[row];
            let text = texts[pick(&mut draws, texts.len())];
            let score = match row {
                8 if draws.below(2) == 0 => String::new(),
                _ => format!(", \"q\": {{\"s\": {text}}}"),
            };
            numbers[file] += 1;
            let line = format!("{{\"id\": {key}, \"n\": {at}{score}}}\n");
            Record { line, key, row, file, number: numbers[file] }
        })
        .collect()
}

/// The record that is kept in place of each record.
fn kept(records: &[Record], smallest: bool) -> Vec<usize> {
    let order = |record: &Record| match record.row {
        8 => 8,
        row if smallest => 7 - row,
        row => row,
    };
    let mut best: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        let holder = best.entry(record.key).or_insert(at);
        if order(record) < order(&records[*holder]) {
            *holder = at;
        }
    }
    records.iter().map(|record| best[&record.key]).collect()
}

const NAMES: [&str; 2] = ["a.jsonl", "b.jsonl"];

fn sandbox(records: &[Record]) -> Sandbox {
    let content = |file| {
        let own = records.iter().filter(|record| record.file == file);
        own.map(|record| &record.line[..]).collect::<String>()
    };
    Sandbox::with(&[(NAMES[0], content(0)), (NAMES[1], content(1))])
}

/// The records that must be kept, and the report of dropped ones.
fn expected(records: &[Record], smallest: bool) -> (String, Vec<Value>) {
    let mut stream = String::new();
    let mut report = Vec::new();
    for (at, kept) in kept(records, smallest).into_iter().enumerate() {
        let (record, kept_record) = (&records[at], &records[kept]);
        if at == kept {
            stream.push_str(&record.line);
            continue;
        }
        let score: Value = match record.row {
            0 => json!(18_446_744_073_709_551_615.0),
            8 => Value::Null,
            row => serde_json::from_str(SCORES[row][0]).unwrap(),
        };
        report.push(json!({
            "file": NAMES[record.file], "record": record.number, "part": null,
            "kept_file": NAMES[kept_record.file], "kept_record": kept_record.number,
            "kept_part": null, "cause": "input", "score": score,
        }));
    }
    (stream, report)
}

fn equals_the_model(level: &str) {
    let records = records(1, 3000, 700);
    let sandbox = sandbox(&records);
    for (rule, smallest) in [("best:q.s", false), ("best:q.s:min", true)] {
        let (stream, report) = expected(&records, smallest);
        for workers in [1, 2, 3, 8] {
            for filter in ["single-shot", "wide"] {
                let args = format!(
                    "a.jsonl b.jsonl --key id --keep {rule} --workers {workers} --filter {filter} \
                     --seed 5 --overwrite {level}"
                );
                assert!(sandbox.run(&args).kept_text() == stream, "{args}");
                let with_report = format!("{args} --duplicates d.jsonl");
                assert!(sandbox.run(&with_report).kept_text() == stream, "{args}");
                let lines = sandbox.text("d.jsonl");
                let lines: Vec<Value> =
                    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
                let differs = lines.iter().zip(&report).find(|(got, due)| !is_same(got, due));
                assert!(lines.len() == report.len() && differs.is_none(), "{args}: {differs:?}");
            }
        }
    }
}

/// Whether two lines of the report are equal; scores at 2^64 are not exact.
fn is_same(got: &Value, due: &Value) -> bool {
    match (got["score"].as_f64(), due["score"].as_f64()) {
        (Some(a), Some(b)) if b > 1e19 => {
            let (mut got, mut due) = (got.clone(), due.clone());
            (got["score"], due["score"]) = (Value::Null, Value::Null);
            (a / b - 1.0).abs() < 1e-14 && got == due
        }
        _ => got == due,
    }
}

#[test]
fn fingerprints_keep_the_best_of_the_model() {
    equals_the_model("--exactness fingerprint");
}

#[test]
fn bytes_keep_the_best_of_the_model() {
    equals_the_model("--exactness bytes");
}

#[test]
fn approximate_keeps_the_best_of_the_model() {
    equals_the_model("--exactness approximate --false-positive-rate 1e-9");
}

/// These records do not fit in memory as entries of 28 bytes.
#[test]
fn what_does_not_fit_in_memory_changes_nothing() {
    let mut text = String::new();
    let mut draws = Draws(3);
    let mut best: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for at in 0..500_000u64 {
        let (key, score) = (draws.below(430_000), draws.below(5));
        writeln!(text, "{{\"k\":{key},\"s\":{score}}}").unwrap();
        let holder = best.entry(key).or_insert((score, at));
        *holder = if score > holder.0 { (score, at) } else { *holder };
    }
    let sandbox = Sandbox::with(&[("a.jsonl", &text)]);
    let args = "a.jsonl --key k --keep best:s --workers 3 --memory 64M --summary s.json -q";
    let kept = sandbox.run(args).kept_text();
    let stays: std::collections::BTreeSet<u64> = best.into_values().map(|(_, at)| at).collect();
    let mut lines = kept.lines();
    for (at, line) in text.lines().enumerate() {
        if stays.contains(&(at as u64)) {
            assert!(lines.next() == Some(line), "record {}", at + 1);
        }
    }
    assert_eq!(lines.next(), None);
    let summary: Value = serde_json::from_str(&sandbox.text("s.json")).unwrap();
    assert_eq!(summary["keep"], "best:s");
    assert!(summary["run"]["scratch_bytes_max"][0].as_u64().unwrap() > 0);
}

#[test]
fn whole_records_and_lines_can_rank_too() {
    let lines = "{\"a\":1,\"s\":1}\n{\"s\":1.0,\"a\":1}\nnot json\nnot json\n";
    let sandbox = Sandbox::with(&[("a.jsonl", lines)]);
    let kept = sandbox.run("a.jsonl --granularity line --keep best:s").kept_text();
    assert_eq!(kept, "{\"a\":1,\"s\":1}\n{\"s\":1.0,\"a\":1}\nnot json\n");
    let lines = "{\"a\":1,\"s\":1}\n{\"s\":1.0,\"a\":1}\n";
    sandbox.write("a.jsonl", lines);
    let kept = sandbox.run("a.jsonl --granularity record --keep best:s:max").kept_text();
    assert_eq!(kept, "{\"a\":1,\"s\":1}\n"); // equal numbers: the first
}

#[test]
fn columns_of_tables_can_rank_too() {
    let table = "id,q\n1,\"2.5\"\n1, 3 \n2,x\n1,3.0\n2,-1\n";
    let sandbox = Sandbox::with(&[("a.csv", table)]);
    for level in ["fingerprint", "bytes"] {
        let args = format!(
            "a.csv --key id --exactness {level} --workers 2 --duplicates d.jsonl --overwrite"
        );
        let kept = sandbox.run(&format!("{args} --keep best:q")).kept_text();
        assert_eq!(kept, "id,q\n1, 3 \n2,-1\n");
        let scores: Vec<Value> = sandbox
            .text("d.jsonl")
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["score"].clone())
            .collect();
        assert_eq!(json!(scores), json!([2.5, null, 3]));
        let kept = sandbox.run(&format!("{args} --keep best:q:min")).kept_text();
        assert_eq!(kept, "id,q\n1,\"2.5\"\n2,-1\n");
    }
    sandbox
        .run("a.csv --key id --keep best:score")
        .refused(2, &["a.csv: --keep best:score", "no column `score`"]);
}

#[test]
fn a_rule_that_cannot_be_followed_is_wrong_usage() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n"), ("a.jsonl", "{\"k\":1}\n")]);
    for (args, said) in [
        ("a.txt --keep best:s", "read it as JSON Lines (--format jsonl), CSV or TSV"),
        ("a.jsonl --keep best:", "expected a field behind best:"),
        ("a.jsonl --keep best", "expected first, last, best:FIELD"),
        ("a.jsonl --keep best:s..t:min", "empty field"),
    ] {
        sandbox.run(args).refused(2, &[said]);
    }
}
