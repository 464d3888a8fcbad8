//! Which records are equal, and which are compared: normalisers, scopes, missing keys, empty items.

use crate::model::Draws;
use crate::sandbox::Sandbox;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The kept records of a file, with one and with several workers.
#[track_caller]
fn kept(name: &str, content: &str, options: &str) -> String {
    let sandbox = Sandbox::with(&[(name, content)]);
    let one = sandbox.run(&format!("{name} {options} --workers 1")).kept_text();
    let many = sandbox.run(&format!("{name} {options} --workers 3 --exactness bytes")).kept_text();
    assert_eq!(one, many);
    one
}

#[test]
fn normalisers_are_applied_to_lines_in_order_and_records_stay_as_they_are() {
    let lines = "  Ada  B\r\nada b\nADA\u{3000}B \nada.b\n";
    assert_eq!(
        kept("a", lines, "--normalise trim,lower"),
        "  Ada  B\r\nada b\nADA\u{3000}B \nada.b\n"
    );
    assert_eq!(kept("a", lines, "--normalise trim,lower,squeeze"), "  Ada  B\r\nada.b\n");
    let joined = "a .\na\n";
    assert_eq!(kept("a", joined, "--normalise trim --normalise punct"), joined);
    assert_eq!(kept("a", joined, "--normalise punct --normalise trim"), "a .\n");
    assert_eq!(kept("a", "x\r\nx\n", "--normalise crlf"), "x\r\n");
    let urls = "HTTP://A.b:80/C#1\nhttp://a.b/C\nhttp://a.b/c\n";
    assert_eq!(kept("a", urls, "--normalise url"), "HTTP://A.b:80/C#1\nhttp://a.b/c\n");
    let forms = "e\u{301}\n\u{e9}\n\u{fb01}\nfi\n";
    assert_eq!(kept("a", forms, "--normalise nfc"), "e\u{301}\n\u{fb01}\nfi\n");
    assert_eq!(kept("a", forms, "--normalise nfkc"), "e\u{301}\n\u{fb01}\n");
}

#[test]
fn normalisers_are_applied_to_strings_of_keys_and_records() {
    let lines = "{\"k\":\"A\",\"n\":1}\n{\"k\":\" a \",\"n\":2}\n{\"k\":[\"A\"],\"n\":3}\n{\"k\":[\"a\"],\"n\":4}\n";
    let expected = "{\"k\":\"A\",\"n\":1}\n{\"k\":[\"A\"],\"n\":3}\n";
    assert_eq!(kept("a.jsonl", lines, "--key k --normalise lower,trim"), expected);
    let names = "{\"K\":\"A\"}\n{\"K\":\"\\u0061\"}\n{\"k\":\"a\"}\n";
    let expected = "{\"K\":\"A\"}\n{\"k\":\"a\"}\n";
    assert_eq!(kept("a.jsonl", names, "--granularity record --normalise lower"), expected);
    let table = "k,x\nA,b\n a,B\nac,c\n";
    let expected = "k,x\nA,b\nac,c\n";
    assert_eq!(kept("a.csv", table, "--granularity record --normalise trim,lower"), expected);
    assert_eq!(kept("a.csv", table, "--key k --normalise trim,lower"), expected);
}

#[test]
fn the_summary_names_the_rules_and_wrong_ones_are_refused() {
    let sandbox = Sandbox::with(&[("a.jsonl", "{\"k\":1}\n")]);
    let rules =
        "--normalise trim,lower --normalise url --scope dir --missing-key keep --empty keep";
    sandbox.run(&format!("a.jsonl --key k {rules} --summary s.json")).kept();
    let summary: Value = serde_json::from_slice(&sandbox.read("s.json")).unwrap();
    let spec = &summary["spec"];
    assert_eq!(spec["normalise"], json!(["trim", "lower", "url"]));
    assert_eq!([&spec["scope"], &spec["missing_key"], &spec["empty"]], ["dir", "keep", "keep"]);
    for (args, said) in [
        ("--normalise trim,upper", "no normaliser is called `upper`"),
        ("--scope disk", "disk"),
        ("--missing-key keep", "--key"),
        ("--empty drop", "drop"),
    ] {
        sandbox.run(&format!("a.jsonl {args}")).refused(2, &[said]);
    }
}

#[test]
fn only_records_of_one_scope_meet() {
    let mut draws = Draws(3);
    let names = ["in/a/1.txt", "in/a/2.txt", "in/b/1.txt", "in/top.txt"];
    let contents: Vec<String> = names
        .iter()
        .map(|_| {
            let mut text = String::new();
            (0..2000).for_each(|_| writeln!(text, "{}", draws.below(1500)).unwrap());
            text
        })
        .collect();
    let files: Vec<(&str, &String)> = names.iter().copied().zip(&contents).collect();
    let sandbox = Sandbox::with(&files);
    for (scope, of) in
        [("global", ["", "", "", ""]), ("dir", ["a", "a", "b", ""]), ("file", ["1", "2", "3", "4"])]
    {
        let mut seen = BTreeSet::new();
        let expected: Vec<String> = (contents.iter().zip(of))
            .map(|(text, scope)| {
                let stays = |line: &&str| seen.insert((scope, (*line).to_owned()));
                text.split_inclusive('\n').filter(stays).collect()
            })
            .collect();
        for options in ["--workers 1", "--workers 3", "--workers 4 --exactness bytes"] {
            sandbox.run(&format!("in --scope {scope} {options} --output out/ --overwrite")).kept();
            for (name, expected) in names.iter().zip(&expected) {
                let name = name.replacen("in", "out", 1);
                assert_eq!(&sandbox.text(&name), expected, "{scope} {options} {name}");
            }
        }
    }
}

/// A list of what is in a folder names its own file, too.
#[test]
fn lines_that_name_files_stay_in_each() {
    let names = ["s/u1", "s/u2", "s/u3"];
    let texts =
        names.map(|name| format!("{name}\n{}\n{}", name.trim_start_matches("s/"), "u1\nx\n"));
    let files: Vec<_> = names.into_iter().zip(&texts).collect();
    let sandbox = Sandbox::with(&files);
    sandbox.run("s --scope file --output out/").kept();
    let kept = names.map(|name| sandbox.text(&name.replacen('s', "out", 1)));
    assert_eq!(kept, ["s/u1\nu1\nx\n", "s/u2\nu2\nu1\nx\n", "s/u3\nu3\nu1\nx\n"]);
}

#[test]
fn a_file_given_twice_is_one_scope() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n")]);
    assert_eq!(sandbox.run("a.txt a.txt --scope file").kept_text(), "x\n");
}

#[test]
fn records_without_a_key_fail_stay_or_go() {
    let lines = "{\"k\":1}\n{}\n{\"k\":1}\n{}\nno json\n";
    let sandbox = Sandbox::with(&[("a.jsonl", lines)]);
    sandbox.run("a.jsonl --key k").refused(1, &["record 2", "no field `k`"]);
    sandbox.run("a.jsonl --key k --missing-key fail").refused(1, &["record 2", "no field `k`"]);
    sandbox.run("a.jsonl --key k --missing-key keep").refused(1, &["record 5", "invalid JSON"]);
    for (rule, expected, exempt, missing) in
        [("keep", "{\"k\":1}\n{}\n{}\n", 2, 0), ("drop", "{\"k\":1}\n", 0, 2)]
    {
        for options in ["--workers 1", "--workers 2 --exactness bytes"] {
            let args = format!(
                "a.jsonl --key k --missing-key {rule} --skip-bad {options} \
                 --summary s.json --duplicates d.jsonl --overwrite"
            );
            assert_eq!(sandbox.run(&args).ended_with(3), expected.as_bytes(), "{args}");
            let summary: Value = serde_json::from_slice(&sandbox.read("s.json")).unwrap();
            let dropped = json!({ "input": 1, "reference": 0, "missing_key": missing });
            assert_eq!((&summary["dropped"], &summary["exempt"]), (&dropped, &json!(exempt)));
            let counts = [&summary["records"], &summary["items"], &summary["distinct"]];
            assert_eq!(counts, [&json!(5), &json!(2), &json!(1)]);
            assert_eq!(sandbox.text("d.jsonl").lines().count(), 1);
        }
    }
}

#[test]
fn empty_items_are_equal_or_all_stay() {
    let lines = "\na\n\n \na\n\n";
    assert_eq!(kept("a", lines, ""), "\na\n \n");
    assert_eq!(kept("a", lines, "--empty compare"), "\na\n \n");
    assert_eq!(kept("a", lines, "--empty keep"), "\na\n\n \n\n");
    assert_eq!(kept("a", "a\n \n\t\na\n", "--empty keep --normalise trim"), "a\n \n\t\n");
    let table = "k,l\n,\n,\n,x\n,x\n";
    assert_eq!(kept("a.csv", table, "--key k --key l --empty keep"), "k,l\n,\n,\n,x\n");
    assert_eq!(kept("a.csv", table, "--granularity record --empty keep"), "k,l\n,\n,\n,x\n");
    assert_eq!(kept("a.csv", table, "--key k"), "k,l\n,\n");
    let json = "{\"k\":null}\n{\"k\":\"\"}\n{\"k\":null}\n{\"k\":\"\"}\n{\"k\":[]}\n{\"k\":[]}\n";
    let expected = "{\"k\":null}\n{\"k\":\"\"}\n{\"k\":null}\n{\"k\":\"\"}\n{\"k\":[]}\n";
    assert_eq!(kept("a.jsonl", json, "--key k --empty keep"), expected);
}
