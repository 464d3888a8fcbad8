//! CSV and TSV: quoted line ends, headers, columns as keys, and refusals.

use crate::model::Draws;
use crate::packed::gzip;
use crate::sandbox::Sandbox;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The kept records of this table in `a.csv`, with one and with several workers.
#[track_caller]
fn kept(table: &str, options: &str) -> String {
    let sandbox = Sandbox::with(&[("a.csv", table)]);
    let one = sandbox.run(&format!("a.csv {options} --workers 1")).kept_text();
    let many = sandbox.run(&format!("a.csv {options} --workers 3 --exactness bytes")).kept_text();
    assert_eq!(one, many);
    one
}

#[test]
fn a_column_is_compared_and_quoted_fields_may_hold_line_ends() {
    let table = "id,text\r\n1,\"two\r\nlines, one \"\"field\"\"\"\r\n2,x\r\n\"1\",y\r\n\r\n1,z\n3,";
    let expected = "id,text\r\n1,\"two\r\nlines, one \"\"field\"\"\"\r\n2,x\r\n3,";
    assert_eq!(kept(table, "--key id"), expected);
    assert_eq!(kept("a.b,a\n1,1\n2,1\n1,2\n", "--key a.b"), "a.b,a\n1,1\n2,1\n");
    assert_eq!(kept("\"a..b\"\n1\n1\n", "--key a..b"), "\"a..b\"\n1\n");
}

#[test]
fn whole_records_are_compared_without_quotes_and_lines_with_them() {
    let table = "a,b\n1,x\n\"1\",\"x\"\n1,x\r\n1,y\n1,x";
    assert_eq!(kept(table, "--granularity record"), "a,b\n1,x\n1,y\n");
    assert_eq!(kept(table, "--granularity line"), "a,b\n1,x\n\"1\",\"x\"\n1,y\n");
    assert_eq!(kept(table, ""), "a,b\n1,x\n\"1\",\"x\"\n1,y\n");
    assert_eq!(kept("a,b\n1,23\n12,3\n", "--granularity record"), "a,b\n1,23\n12,3\n");
}

#[test]
fn the_format_is_told_by_name_or_option_also_when_packed() {
    let tsv = "id\ttext\n1\t\"a\tb\"\n1\tc\n";
    let expected = "id\ttext\n1\t\"a\tb\"\n";
    let packed = gzip(tsv.as_bytes());
    let sandbox =
        Sandbox::with(&[("a.tsv", tsv.as_bytes()), ("b.tsv.gz", &packed), ("c", tsv.as_bytes())]);
    for args in [
        "a.tsv --key id",
        "b.tsv.gz --key id",
        "c --format tsv --key id",
        "a.tsv b.tsv.gz c --format tsv --key id",
    ] {
        assert_eq!(sandbox.run(args).kept_text(), expected, "{args}");
    }
    let piped = sandbox.run_piped("- --format tsv --key id", tsv.as_bytes());
    assert_eq!(piped.kept_text(), expected);
    let text = sandbox.run("a.tsv --format text");
    assert_eq!(text.kept_text(), tsv);
}

#[test]
fn strings_of_tables_and_json_are_equal_keys() {
    let sandbox = Sandbox::with(&[
        ("a.jsonl", "{\"id\":\"7\"}\n{\"id\":8}\n"),
        ("b.csv", "n,id\n1,7\n2,8\n"),
    ]);
    sandbox.run("a.jsonl b.csv --key id --output out/").kept();
    assert_eq!(sandbox.text("out/a.jsonl"), "{\"id\":\"7\"}\n{\"id\":8}\n");
    assert_eq!(sandbox.text("out/b.csv"), "n,id\n2,8\n");
}

#[test]
fn a_header_is_written_first_in_each_file_and_once_in_a_stream() {
    let files =
        [("a.csv", "id,x\n1,1\n"), ("b.csv", "id,x\n1,2"), ("c.csv", ""), ("d.csv", "\"id\",x")];
    let sandbox = Sandbox::with(&files);
    let all = "a.csv b.csv c.csv d.csv --key id";
    assert_eq!(sandbox.run(all).kept_text(), "id,x\n1,1\n");
    sandbox.run(&format!("{all} --output out/ --duplicates d.jsonl --summary s.json")).kept();
    let out = ["a", "b", "c", "d"].map(|name| sandbox.text(&format!("out/{name}.csv")));
    assert_eq!(out, ["id,x\n1,1\n", "id,x\n", "", "\"id\",x"]);
    let report: Value = serde_json::from_str(&sandbox.text("d.jsonl")).unwrap();
    assert_eq!((&report["file"], &report["record"]), (&"b.csv".into(), &1.into()));
    let summary: Value = serde_json::from_slice(&sandbox.read("s.json")).unwrap();
    assert_eq!(summary["records"], 2);
    assert_eq!(sandbox.run("c.csv d.csv --key id").kept_text(), "\"id\",x");
}

#[test]
fn one_stream_and_whole_records_need_equal_headers() {
    let files = [
        ("a.csv", "id,x\n"),
        ("b.csv", "id,y\n1,2\n"),
        ("c.csv", "id\n1\n"),
        ("d.tsv", "id\tx\n"),
        ("e.txt", "x\n"),
    ];
    let sandbox = Sandbox::with(&files);
    let said = ["a.csv and b.csv", "column 2 is `x` and `y`", "--output DIR/"];
    sandbox.run("a.csv b.csv --key id").refused(2, &said);
    sandbox.run("a.csv c.csv --key id").refused(2, &["a.csv and c.csv", "2 and 1 columns"]);
    sandbox.run("a.csv d.tsv --key id").refused(2, &["a.csv and d.tsv", "`,` and `\\t`"]);
    sandbox.run("a.csv e.txt").refused(2, &["a.csv has a header row and e.txt has none"]);
    let said = ["a.csv and b.csv", "column 2", "--key"];
    sandbox.run("a.csv b.csv --granularity record --output out/").refused(2, &said);
    sandbox.run("a.csv b.csv c.csv d.tsv --key id --output out/").kept();
    assert_eq!(sandbox.text("out/c.csv"), "id\n");
}

#[test]
fn a_column_that_is_missing_is_named_before_anything_is_read() {
    let sandbox =
        Sandbox::with(&[("a.csv", "id,x\n1,1\n"), ("b.csv", "Id,x\n\"\n"), ("c.csv", "id,id\n")]);
    let said = ["b.csv", "no column `id`", "`Id`, `x`"];
    sandbox.run("a.csv b.csv --key id --output out/").refused(2, &said);
    sandbox
        .run("a.csv c.csv --key id --output out/")
        .refused(2, &["c.csv", "several columns", "`id`"]);
    assert!(!sandbox.exists("out"));
}

#[test]
fn a_table_that_has_only_a_byte_order_mark_is_empty() {
    for mark in ["\u{feff}", "\u{feff}\n", "\u{feff}\r\n"] {
        let sandbox = Sandbox::with(&[("mark.csv", mark), ("a.csv", "id\n1\n1\n")]);
        assert_eq!(sandbox.run("mark.csv --key id").kept_text(), "");
        assert_eq!(sandbox.run("mark.csv --key 1 --no-header").kept_text(), "");
        assert_eq!(sandbox.run("mark.csv a.csv --key id").kept_text(), "id\n1\n");
    }
}

#[test]
fn bad_records_are_named_and_can_be_left_out() {
    let table = "id,x\n1,a\n2\n3,b,c\n\"4\",\"d\n\"\n\u{feff}5,e\n";
    let mut bytes = table.as_bytes().to_vec();
    bytes.extend(b"\xff,f\n6,\"open\n7,g\n");
    let sandbox = Sandbox::with(&[("a.csv", &bytes)]);
    let said = ["a.csv: record 2 (byte 9)", "expected 2 fields, as in the first row, found 1"];
    sandbox.run("a.csv --key id").refused(1, &said);
    sandbox.run("a.csv").refused(1, &said);
    let ran = sandbox.run("a.csv --key id --skip-bad --bad bad.jsonl");
    assert_eq!(ran.ended_with(3), "id,x\n1,a\n\"4\",\"d\n\"\n\u{feff}5,e\n".as_bytes());
    let list: Vec<Value> =
        sandbox.text("bad.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let list: Vec<(u64, u64, &str, bool)> = list
        .iter()
        .map(|bad| {
            let number = |field: &str| bad[field].as_u64().unwrap();
            let cause = bad["cause"].as_str().unwrap();
            (number("record"), number("byte"), cause, bad["rest_lost"].as_bool().unwrap())
        })
        .collect();
    let at = table.len() as u64;
    let expected = [
        (2, 9, "field_count", false),
        (3, 11, "field_count", false),
        (6, at, "invalid_utf8", false),
        (7, at + 4, "unclosed_quote", true),
    ];
    assert_eq!(list, expected);
}

/// A line of blanks is a record with one field: only a line without any byte is none.
#[test]
fn rows_of_white_space_are_bad_where_their_fields_are_too_few() {
    let sandbox = Sandbox::with(&[
        ("a.csv", "id,x\n1,a\n  \n\n1,b\n"),
        ("b.tsv", "id\tx\ty\n1\ta\tb\n\t\n"),
        ("c.csv", "id\n1\n  \n  \n"),
    ]);
    for (file, options, byte) in [
        ("a.csv", "--key id", "byte 9"),
        ("a.csv", "--granularity record", "byte 9"),
        ("a.csv", "--granularity paragraph --key x", "byte 9"),
        ("b.tsv", "--key id", "byte 13"),
    ] {
        let said = [&format!("{file}: record 2 ({byte})")[..], "fields, as in the first row"];
        sandbox.run(&format!("{file} {options}")).refused(1, &said);
        sandbox.run(&format!("{file} {options} --skip-bad --bad b --overwrite -q")).ended_with(3);
        assert!(sandbox.text("b").contains(r#""cause":"field_count""#), "{file} {options}");
    }
    assert_eq!(sandbox.run("a.csv --key id --skip-bad -q").ended_with(3), b"id,x\n1,a\n");
    // Where one field is all that there is, it is an item.
    assert_eq!(sandbox.run("c.csv --key id -q").kept_text(), "id\n1\n  \n");
}

#[test]
fn many_records_in_many_files_and_packings_as_the_model_says() {
    let mut draws = Draws(7);
    let mut seen = BTreeSet::new();
    let (mut files, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (mut table, mut kept) = ("n,\"key\"\n".to_owned(), "n,\"key\"\n".to_owned());
        for n in 0..3000 {
            let key = draws.below(5000);
            let mut record = String::new();
            match draws.below(3) {
                0 => writeln!(record, "{n},{key}\"").unwrap(),
                1 => write!(record, "\"{n}\n,\",\"{key}\"\"\"\r\n").unwrap(),
                _ => writeln!(record, "\"\n\n\",\"{key}\"\"\"").unwrap(),
            }
            table.push_str(&record);
            if seen.insert(key) {
                kept.push_str(&record);
            }
        }
        files.push(table);
        expected.push(kept);
    }
    let packed = gzip(files[1].as_bytes());
    let files =
        [("a.csv", files[0].as_bytes()), ("b.csv", &packed), ("c.csv", files[2].as_bytes())];
    let sandbox = Sandbox::with(&files);
    for options in ["--workers 1", "--workers 5", "--exactness bytes --workers 4"] {
        sandbox
            .run(&format!("a.csv b.csv c.csv --key key {options} --output out/ --overwrite"))
            .kept();
        assert_eq!(sandbox.text("out/a.csv"), expected[0], "{options}");
        assert_eq!(sandbox.text("out/c.csv"), expected[2], "{options}");
        let stream = sandbox.run(&format!("a.csv b.csv c.csv --key key {options}")).kept_text();
        let header = "n,\"key\"\n";
        let rest: Vec<&str> = expected.iter().map(|kept| &kept[header.len()..]).collect();
        assert_eq!(stream, format!("{header}{}", rest.concat()), "{options}");
    }
}
