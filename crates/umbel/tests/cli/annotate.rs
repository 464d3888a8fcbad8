//! `--annotate`: a line for every record, in input order; no record is dropped.

use crate::model::lines;
use crate::sandbox::Sandbox;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The annotations of each file.
fn expected(input: &[(&str, Vec<u8>)]) -> Vec<String> {
    let records = |bytes: &[u8]| -> Vec<Vec<u8>> {
        let records = bytes.split_inclusive(|byte| *byte == b'\n');
        records.map(|line| line.strip_suffix(b"\n").unwrap_or(line).to_vec()).collect()
    };
    let mut groups: BTreeMap<Vec<u8>, (usize, usize, u64)> = BTreeMap::new();
    for (file, (_, bytes)) in input.iter().enumerate() {
        for (record, line) in records(bytes).into_iter().enumerate() {
            groups.entry(line).or_insert((file, record, 0)).2 += 1;
        }
    }
    let mut files = Vec::new();
    for (file, (name, bytes)) in input.iter().enumerate() {
        let mut text = String::new();
        for (record, line) in records(bytes).into_iter().enumerate() {
            let (kept_file, kept_record, size) = groups[&line];
            let is_kept = (kept_file, kept_record) == (file, record);
            let kept =
                format!("{{\"file\":\"{}\",\"record\":{}}}", input[kept_file].0, kept_record + 1);
            let group = if is_kept { "null".to_owned() } else { kept };
            writeln!(
                text,
                "{{\"file\":\"{name}\",\"record\":{},\"duplicate\":{},\"group\":{group},\"size\":{size}}}",
                record + 1,
                !is_kept
            )
            .unwrap();
        }
        files.push(text);
    }
    files
}

#[test]
fn annotations_are_those_of_a_map() {
    let mut first = lines(1, 2000);
    first.extend(b"no line end");
    let input = [
        ("in/b.txt", first),
        ("in/c/a.txt", lines(1, 1500)),
        ("in/d.txt", b"no line end\n".to_vec()),
    ];
    let expected = expected(&input);
    let sandbox = Sandbox::with(&input);
    let inputs = "in/b.txt in/c/a.txt in/d.txt";
    for level in ["fingerprint", "bytes", "approximate --false-positive-rate 1e-9"] {
        for workers in [1, 2, 3, 8] {
            let args = format!("{inputs} --workers {workers} --exactness {level} --seed 3 -q");
            let stream = sandbox.run(&format!("{args} --annotate -")).kept_text();
            assert!(stream == expected.concat(), "{args}");
            sandbox.run(&format!("{args} --annotate out/ --overwrite")).kept();
            for (name, expected) in
                ["b.txt.jsonl", "c/a.txt.jsonl", "d.txt.jsonl"].iter().zip(&expected)
            {
                assert!(sandbox.text(&format!("out/{name}")) == *expected, "{args}: {name}");
            }
        }
    }
    for (name, bytes) in &input {
        assert!(sandbox.read(name) == *bytes, "{name} is as it was");
    }
}

#[test]
fn bad_records_have_lines_too() {
    let lines = "{\"k\":1}\nnot json\n{\"k\":1}\n{\"x\":1}\n";
    let sandbox = Sandbox::with(&[("a.jsonl", lines)]);
    let args = "a.jsonl --key k --skip-bad --annotate out.jsonl --bad bad.jsonl --keep last";
    sandbox.run(args).ended_with(3);
    let line =
        |record, rest: &str| format!("{{\"file\":\"a.jsonl\",\"record\":{record},{rest}}}\n");
    let expected = [
        line(1, r#""duplicate":true,"group":{"file":"a.jsonl","record":3},"size":2"#),
        line(2, r#""duplicate":false,"group":null,"size":null,"bad":"invalid_json""#),
        line(3, r#""duplicate":false,"group":null,"size":2"#),
        line(4, r#""duplicate":false,"group":null,"size":null,"bad":"missing_key""#),
    ];
    assert_eq!(sandbox.text("out.jsonl"), expected.concat());
    assert_eq!(sandbox.text("bad.jsonl").lines().count(), 2);
}

#[test]
fn annotations_go_with_the_best_and_with_other_reports() {
    let lines = "{\"k\":1,\"s\":1}\n{\"k\":1,\"s\":5}\n{\"k\":2}\n{\"k\":1,\"s\":4}\n";
    let sandbox = Sandbox::with(&[("a.jsonl", lines)]);
    let args =
        "a.jsonl --key k --keep best:s --annotate - --groups g.jsonl --duplicates d.jsonl -q";
    let text = sandbox.run(args).kept_text();
    let groups: Vec<serde_json::Value> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["group"]["record"].clone()
        })
        .collect();
    assert_eq!(serde_json::json!(groups), serde_json::json!([2, null, null, 2]));
    assert_eq!(
        sandbox.text("g.jsonl"),
        "{\"kept_file\":\"a.jsonl\",\"kept_record\":2,\"size\":3}\n"
    );
    assert_eq!(sandbox.text("d.jsonl").lines().count(), 2);
}

/// The members of groups do not fit in memory for sorting.
#[test]
fn more_members_than_fit_in_memory_are_annotated() {
    let text: String = (0..600_000u32).map(|at| format!("{}\n", at % 300_000)).collect();
    let sandbox = Sandbox::with(&[("a.txt", text)]);
    sandbox.run("a.txt --memory 64M --workers 3 --annotate n.jsonl -q").kept();
    let text = sandbox.text("n.jsonl");
    let mut lines = 0u32;
    for (at, line) in text.lines().enumerate() {
        let (record, is_repeat) = (at % 300_000 + 1, at >= 300_000);
        let group = if is_repeat {
            format!("{{\"file\":\"a.txt\",\"record\":{record}}}")
        } else {
            "null".into()
        };
        let number = at + 1;
        let expected = format!(
            "{{\"file\":\"a.txt\",\"record\":{number},\"duplicate\":{is_repeat},\"group\":{group},\"size\":2}}"
        );
        assert_eq!(line, expected);
        lines += 1;
    }
    assert_eq!(lines, 600_000);
}

#[test]
fn annotations_replace_neither_inputs_nor_kept_records() {
    let sandbox = Sandbox::with(&[("a", "x\n"), ("a.jsonl", "{}\n")]);
    sandbox.run("a --annotate n.jsonl --output o.txt").refused(2, &["--annotate", "--output"]);
    sandbox.run("a --annotate a --overwrite").refused(2, &["is an input"]);
    sandbox.run("a a.jsonl --annotate ./ --overwrite").refused(2, &["is the input"]);
    sandbox.run("a --annotate a.jsonl").refused(2, &["exists"]);
    sandbox.run("a --annotate d.jsonl --duplicates d.jsonl").refused(2, &["two outputs"]);
    assert_eq!(sandbox.files(), ["a", "a.jsonl"]);
}
