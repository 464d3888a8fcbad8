//! `--count`, `--repeated` and `--unique-only` against the system's `sort` and `uniq`, and a naive model.

use crate::model::lines;
use crate::sandbox::Sandbox;
use std::collections::BTreeMap;
use std::process::Command;

/// The output of a shell command in the sandbox, in the C locale.
fn shell(sandbox: &Sandbox, line: &str) -> Vec<u8> {
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", line]).current_dir(sandbox.path("")).env("LC_ALL", "C").output();
    output.unwrap().stdout
}

/// Sorted lines, since `umbel` prints in input order, and `sort` in its own.
fn sorted(bytes: &[u8], record_end: u8) -> Vec<&[u8]> {
    let mut records: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == record_end).collect();
    records.sort_unstable();
    records
}

#[test]
fn what_is_written_is_what_uniq_says() {
    let mut text = lines(11, 30_000);
    // With -z, a zero byte ends a line.
    text.retain(|byte| *byte != 0);
    let zeros: Vec<u8> = text.iter().map(|b| if *b == b'\n' { 0 } else { *b }).collect();
    let sandbox = Sandbox::with(&[("a", &text), ("b", &zeros)]);
    for (options, uniq) in [
        ("--count", "-c"),
        ("--repeated", "-d"),
        ("--unique-only", "-u"),
        ("--count --repeated", "-cd"),
        ("--count --unique-only", "-cu"),
    ] {
        for (file, zero, end) in [("a", "", b'\n'), ("b", "-z", 0)] {
            let expected = shell(&sandbox, &format!("sort {zero} {file} | uniq {zero} {uniq}"));
            assert!(expected.len() > 10_000);
            for more in ["", "--workers 3", "--exactness bytes --keep last", "--memory 64M"] {
                let kept = sandbox.run(&format!("{file} {zero} {options} {more}")).kept();
                assert!(sorted(&kept, end) == sorted(&expected, end), "{file} {options} {more}");
            }
        }
    }
}

#[test]
fn records_come_in_input_order_from_all_files() {
    let sandbox = Sandbox::with(&[("in/a", "x\ny\nx\nz"), ("in/b", "y\nw\nx\n")]);
    let run = |options: &str| sandbox.run(&format!("in {options}")).kept_text();
    assert_eq!(run("--count"), "      3 x\n      2 y\n      1 z\n      1 w\n");
    assert_eq!(run("--count --keep last"), "      1 z\n      2 y\n      1 w\n      3 x\n");
    assert_eq!(run("--repeated"), "x\ny\n");
    assert_eq!(run("--unique-only"), "z\nw\n");
    run("--count --repeated -o out/ --summary s.json --groups g.jsonl --duplicates d.jsonl");
    assert_eq!(
        (sandbox.text("out/a"), sandbox.text("out/b")),
        ("      3 x\n      2 y\n".into(), String::new())
    );
    let summary: serde_json::Value = serde_json::from_str(&sandbox.text("s.json")).unwrap();
    assert_eq!((&summary["written"], &summary["distinct"]), (&2.into(), &4.into()));
    assert_eq!(summary["groups"]["count"], 2);
    assert_eq!(sandbox.text("g.jsonl").lines().count(), 2);
    assert_eq!(sandbox.text("d.jsonl").lines().count(), 3);
    let table = sandbox.run("in --repeated").stderr;
    assert!(table.contains("distinct   4") && table.contains("written    2"), "{table}");
    assert_eq!(run("--count --scope file -o - --normalise trim").lines().count(), 6);
    assert_eq!(sandbox.run_piped("--count", b"").kept_text(), "");
}

#[test]
fn keys_and_tables_choose_whole_records() {
    let table = "id,n\n1,a\n2,b\n\"1\",c\n3,d\n";
    let json = "{\"k\":1}\n\n{\"k\":2}\n{\"k\": 1.0}\n{}\n";
    let sandbox = Sandbox::with(&[("a.csv", table), ("a.jsonl", json)]);
    let run = |args: &str| sandbox.run(args).kept_text();
    assert_eq!(run("a.csv --key id --repeated"), "id,n\n1,a\n");
    assert_eq!(run("a.csv --key id --unique-only"), "id,n\n2,b\n3,d\n");
    let rule = "--key k --missing-key";
    assert_eq!(run(&format!("a.jsonl {rule} keep --repeated")), "{\"k\":1}\n");
    // Records that are compared with none are groups of their own.
    assert_eq!(run(&format!("a.jsonl {rule} keep --unique-only")), "\n{\"k\":2}\n{}\n");
    assert_eq!(run(&format!("a.jsonl {rule} drop --unique-only")), "\n{\"k\":2}\n");
    assert_eq!(run("a.jsonl --format text --count").lines().count(), 5);
    sandbox.write("in/x", "1");
    sandbox.write("in/y", "1");
    sandbox.write("in/z", "2");
    run("in --granularity file --repeated -o out/");
    assert!(sandbox.exists("out/x") && !sandbox.exists("out/y") && !sandbox.exists("out/z"));
}

#[test]
fn what_a_reference_holds_is_in_no_group() {
    let sandbox = Sandbox::with(&[("a", "x\ny\n"), ("b", "x\nx\nz\nw\nz\n")]);
    sandbox.run("a --save-index a.umbi -o out").kept();
    let run = |options: &str| sandbox.run(&format!("b --reference a.umbi {options}")).kept_text();
    assert_eq!(run("--count"), "      2 z\n      1 w\n");
    assert_eq!(run("--repeated"), "z\n");
    assert_eq!(run("--unique-only"), "w\n");
}

#[test]
fn what_cannot_be_had_is_refused_with_the_reason() {
    let sandbox =
        Sandbox::with(&[("a", "x\n"), ("a.csv", "k\n1\n"), ("a.jsonl", "{\"k\":\"1\"}\n")]);
    let token = "--rank 0 --peers 127.0.0.1:1,127.0.0.1:2 -o out";
    let reasons: BTreeMap<String, [&str; 2]> = [
        ("a --repeated --unique-only", ["--repeated", "--unique-only"]),
        ("a.csv --count --key k", ["a.csv", "--groups"]),
        ("a.jsonl --count", ["a.jsonl", "--format text"]),
        ("a --count --annotate x.jsonl", ["--count", "--annotate"]),
        ("a --granularity file --count", ["--count", "--groups"]),
        ("a.jsonl --key k --granularity paragraph --repeated", ["--repeated", "paragraphs"]),
        ("a --unique-only --save-index i", ["--unique-only", "--save-index"]),
        ("a --repeated --add-to umbel://127.0.0.1:1/f", ["--repeated", "--add-to"]),
        ("a --repeated --cluster 127.0.0.1:1 -o /x", ["--repeated", "--groups"]),
    ]
    .into_iter()
    .map(|(args, said)| (args.to_owned(), said))
    .chain([(format!("a --count {token}"), ["--count", "worker among many"])])
    .collect();
    for (args, said) in reasons {
        sandbox.run(&args).refused(2, &said);
    }
    assert!(!sandbox.exists("out") && !sandbox.exists("i"));
}
