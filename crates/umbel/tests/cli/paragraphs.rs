//! `--granularity paragraph`: pieces of a text are dropped, while their records are kept.

use crate::model::Draws;
use crate::sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The kept records of a file, with one and with several workers.
#[track_caller]
fn kept(name: &str, content: &str, options: &str) -> String {
    let sandbox = Sandbox::with(&[(name, content)]);
    let args = format!("{name} --granularity paragraph --key t {options}");
    let one = sandbox.run(&format!("{args} --workers 1")).kept_text();
    let many = sandbox.run(&format!("{args} --workers 3 --exactness bytes")).kept_text();
    assert_eq!(one, many);
    one
}

#[test]
fn dropped_pieces_go_with_their_line_ends_and_the_record_stays_as_it_was() {
    let lines = "{\"n\": 1.0, \"t\" : \"a\\nb\\u0041\\n\\nc\"}\r\n\
                 { \"t\":\"c\\nd\\na\", \"n\":\"\\u0041\"}\n{\"t\":\"a\\nc\"}\n{\"t\":\"\\u0064x\\nd\\n\"}\n";
    let expected = "{\"n\": 1.0, \"t\" : \"a\\nb\\u0041\\n\\nc\"}\r\n\
                    { \"t\":\"d\\n\", \"n\":\"\\u0041\"}\n{\"t\":\"\"}\n{\"t\":\"dx\\n\"}\n";
    assert_eq!(kept("a.jsonl", lines, ""), expected);
    assert_eq!(kept("a.jsonl", "{\"t\":\"\"}\n{\"t\":\"\"}\n", ""), "{\"t\":\"\"}\n{\"t\":\"\"}\n");
    let last = "{\"t\":\"b\"}\n{\"t\":\"a\\nb\"}\n";
    assert_eq!(
        kept("a.jsonl", "{\"t\":\"a\\nb\"}\n{\"t\":\"a\\nb\"}\n", "--keep last"),
        format!("{{\"t\":\"\"}}\n{}", &last[10..])
    );
}

#[test]
fn tables_have_paragraphs_too() {
    let table = "n,t\r\n1,\"a\nsays \"\"b\"\"\"\r\n2,a\r\n\"3\",\"x\na\ny, z\"\r\n";
    let expected = "n,t\r\n1,\"a\nsays \"\"b\"\"\"\r\n2,\"\"\r\n\"3\",\"x\ny, z\"\r\n";
    assert_eq!(kept("a.csv", table, ""), expected);
}

#[test]
fn short_and_empty_paragraphs_can_be_exempt_and_rules_hold() {
    let lines = "{\"t\":\"aa\\nbbb\\n\\n\"}\n{\"t\":\"aa\\nbbb\\n\\n AA\"}\n";
    let first = "{\"t\":\"aa\\nbbb\\n\\n\"}\n";
    assert_eq!(kept("a.jsonl", lines, ""), format!("{first}{{\"t\":\" AA\"}}\n"));
    let kept_with = |options: &str| kept("a.jsonl", lines, options)[first.len()..].to_owned();
    assert_eq!(kept_with("--paragraph-bytes-min 3"), "{\"t\":\"aa\\n\\n AA\"}\n");
    assert_eq!(kept_with("--empty keep"), "{\"t\":\"\\n AA\"}\n");
    assert_eq!(kept_with("--normalise trim,lower"), "{\"t\":\"\"}\n");
}

#[test]
fn records_without_the_text_follow_the_rules() {
    let lines = "{\"t\":\"a\"}\n{}\n{\"t\":\"a\"}\n{\"t\":null}\n";
    let sandbox = Sandbox::with(&[("a.jsonl", lines), ("b.txt", "x\n")]);
    let args = "a.jsonl --granularity paragraph --key t";
    sandbox.run(args).refused(1, &["record 2 (byte 10)", "no field `t`"]);
    sandbox
        .run(&format!("{args} --missing-key keep"))
        .refused(1, &["record 4", "`t` is not a string"]);
    let keep = sandbox.run(&format!("{args} --missing-key keep --skip-bad")).ended_with(3);
    assert_eq!(keep, b"{\"t\":\"a\"}\n{}\n{\"t\":\"\"}\n");
    let drop = sandbox.run(&format!("{args} --missing-key drop --skip-bad")).ended_with(3);
    assert_eq!(drop, b"{\"t\":\"a\"}\n{\"t\":\"\"}\n");
    for (args, said) in [
        ("a.jsonl --granularity paragraph", "one --key"),
        ("a.jsonl --granularity paragraph --key t --key u", "one --key"),
        ("a.jsonl --key t --paragraph-bytes-min 3", "--granularity paragraph"),
        ("b.txt --granularity paragraph --key t", "line"),
    ] {
        sandbox.run(args).refused(2, &[said]);
    }
}

#[test]
fn many_paragraphs_and_their_report_as_the_model_says() {
    let mut draws = Draws(11);
    let names = ["a.jsonl", "b.jsonl"];
    let mut texts: Vec<Vec<Vec<String>>> = Vec::new();
    for _ in names {
        let record = |draws: &mut Draws| {
            let pieces = if draws.below(200) == 0 { 300 } else { draws.below(6) };
            (0..pieces).map(|_| draws.below(4000).to_string()).collect()
        };
        texts.push((0..1500).map(|_| record(&mut draws)).collect());
    }
    let line = |pieces: &[String]| json!({ "t": pieces.concat() }).to_string() + "\n";
    let with_ends = |record: &[String]| -> Vec<String> {
        let last = record.len().saturating_sub(1);
        let end = |at: usize| if at == last { "" } else { "\n" };
        record.iter().enumerate().map(|(at, piece)| format!("{piece}{}", end(at))).collect()
    };
    let mut seen = BTreeSet::new();
    let (mut files, mut expected, mut report) = (Vec::new(), Vec::new(), Vec::new());
    for (name, records) in names.iter().zip(&texts) {
        let (mut all, mut left) = (String::new(), String::new());
        for (number, record) in records.iter().enumerate() {
            let pieces = with_ends(record);
            all.push_str(&line(&pieces));
            let mut stay = Vec::new();
            for (part, (item, piece)) in record.iter().zip(pieces).enumerate() {
                if seen.insert(item.clone()) {
                    stay.push(piece);
                } else {
                    report.push(json!([name, number + 1, part + 1]));
                }
            }
            left.push_str(&line(&stay));
        }
        files.push(all);
        expected.push(left);
    }
    let sandbox = Sandbox::with(&[(names[0], &files[0]), (names[1], &files[1])]);
    for options in ["--workers 1", "--workers 3", "--workers 2 --exactness bytes"] {
        let args = "a.jsonl b.jsonl --granularity paragraph --key t --output out/ --overwrite";
        sandbox.run(&format!("{args} {options} --duplicates d.jsonl --summary s.json")).kept();
        for (name, expected) in names.iter().zip(&expected) {
            assert!(&sandbox.text(&format!("out/{name}")) == expected, "{options} {name}");
        }
        let lines = sandbox.text("d.jsonl");
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut places = Vec::new();
        for line in lines {
            places.push(json!([line["file"], line["record"], line["part"]]));
            let piece = |file: &str, record: &str, part: &str| {
                let file = names.iter().position(|name| line[file] == *name).unwrap();
                let number =
                    |field: &str| usize::try_from(line[field].as_u64().unwrap()).unwrap() - 1;
                texts[file][number(record)][number(part)].clone()
            };
            let dropped = piece("file", "record", "part");
            assert_eq!(dropped, piece("kept_file", "kept_record", "kept_part"));
        }
        assert!(places == report, "{options}");
        let summary: Value = serde_json::from_slice(&sandbox.read("s.json")).unwrap();
        assert_eq!(summary["records"], 3000);
        assert_eq!(summary["dropped"]["input"], report.len());
        assert_eq!(summary["spec"]["granularity"], "paragraph");
    }
}
