//! `umbel static`: files that are built once and queried.

use crate::sandbox::{Ran, Sandbox};
use crate::serve::{run, umbel};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;

fn stat(sandbox: &Sandbox, args: &str) -> Ran {
    run(sandbox, &format!("static {args}"))
}

fn asked(sandbox: &Sandbox, args: &str) -> String {
    stat(sandbox, &format!("ask {args}")).kept_text()
}

fn info(sandbox: &Sandbox, file: &str) -> Value {
    let text = stat(sandbox, &format!("info {file} --json")).kept_text();
    serde_json::from_str(&text).unwrap()
}

fn lines(numbers: std::ops::Range<u32>) -> String {
    numbers.map(|number| format!("line {number}\n")).collect()
}

#[test]
fn a_filter_holds_all_of_its_keys_and_few_others() {
    let sandbox = Sandbox::with(&[("keys", lines(0..20_000)), ("new", lines(19_990..119_990))]);
    let said = stat(&sandbox, "build keys --rate 0.001 -o f.umbs --json").kept_text();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["role"], &said["keys"]), (&"filter".into(), &20_000.into()));
    assert_eq!((&said["check_bits"], &said["chunks"]), (&10.into(), &1.into()));
    assert_eq!(said, info(&sandbox, "f.umbs"));
    assert_eq!(asked(&sandbox, "f.umbs --file keys --count"), "present\t20000\nabsent\t0\n");
    // 100,000 other items at 1 in 1,024: 97.7, with five standard deviations of 9.9. Ten are keys.
    let absent = asked(&sandbox, "f.umbs --file new --absent");
    let absent_count = absent.lines().count();
    assert!((100_000 - 158..100_000 - 57).contains(&absent_count), "{absent_count}");
    let present = asked(&sandbox, "f.umbs --file new --present");
    assert!(present.starts_with(&lines(19_990..20_000)));
    assert_eq!(present.lines().count() + absent_count, 100_000);
}

#[test]
fn one_item_is_answered_like_grep() {
    let sandbox = Sandbox::with(&[("keys", "alice\nbob\n")]);
    stat(&sandbox, "build keys --rate 1e-9 -o f.umbs --quiet").kept();
    assert_eq!(asked(&sandbox, "f.umbs alice"), "present\talice\n");
    assert_eq!(stat(&sandbox, "ask f.umbs carol").ended_with(1), b"absent\tcarol\n");
    assert_eq!(asked(&sandbox, "f.umbs carol bob"), "absent\tcarol\npresent\tbob\n");
    stat(&sandbox, "ask none.umbs carol").refused(2, &["none.umbs"]);
    let mut child = umbel(&sandbox, "static ask f.umbs").stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"bob\ncarol").unwrap();
    let ran = sandbox.ended(child.wait_with_output().unwrap());
    assert_eq!(ran.kept_text(), "present\tbob\nabsent\tcarol\n");
}

#[test]
fn bytes_depend_on_nothing_but_the_keys() {
    let reversed: String = lines(0..50_000).lines().rev().map(|line| format!("{line}\n")).collect();
    let sandbox = Sandbox::with(&[
        ("a/keys", lines(0..50_000)),
        ("b/1", reversed.clone()),
        ("b/2", lines(300..700)),
    ]);
    stat(&sandbox, "build a/keys -o a.umbs").kept();
    // Other files, another order, equal keys, and most of the work in scratch files.
    stat(&sandbox, "build b -o b.umbs --memory 64K").kept();
    assert!(sandbox.read("a.umbs") == sandbox.read("b.umbs"));
    stat(&sandbox, "build a/keys -o a.umbs")
        .refused(2, &["a.umbs exists: --overwrite replaces it"]);
    stat(&sandbox, "build a/keys -o a.umbs --overwrite --seed 1").kept();
    assert!(sandbox.read("a.umbs") != sandbox.read("b.umbs"));
    assert_eq!(asked(&sandbox, "a.umbs --file b/2 --count"), "present\t400\nabsent\t0\n");
}

#[test]
fn a_map_gives_the_numbers_of_its_keys() {
    let rows = (0..5000).map(|id| format!("user {id},{},x\n", id * id)).collect::<String>();
    let sandbox = Sandbox::with(&[("t.csv", format!("id,n,other\n{rows}"))]);
    stat(&sandbox, "build t.csv --key id --value n --check 30 -o m.umbs").kept();
    let found = asked(&sandbox, "m.umbs --file t.csv");
    for (id, line) in (0u64..).zip(found.lines()) {
        assert_eq!(line, format!("{}\tuser {id},{},x", id * id, id * id));
    }
    assert_eq!(info(&sandbox, "m.umbs")["value_bits"], 25);
    // Tables in other dialects and with other columns, but with the same keys.
    sandbox.write("u.tsv", "name\tid\na\tuser 7\nb\tuser 5000\n");
    assert_eq!(asked(&sandbox, "m.umbs --file u.tsv"), "49\ta\tuser 7\nabsent\tb\tuser 5000\n");
    assert_eq!(asked(&sandbox, "m.umbs --file u.tsv --absent"), "name\tid\nb\tuser 5000\n");
    sandbox.write("v.tsv", "name\na\n");
    stat(&sandbox, "ask m.umbs --file v.tsv").refused(2, &["v.tsv", "no column `id`"]);
    stat(&sandbox, "ask m.umbs --file u.tsv --format text").refused(2, &["text has no fields"]);
}

#[test]
fn a_map_refuses_wrong_numbers_by_name() {
    let sandbox = Sandbox::with(&[
        ("two.csv", "id,n\na,1\nb,2\na,3\n"),
        ("same.csv", "id,n\na,1\nb,2\na,1\n"),
        ("wide.csv", "id,n\na,1\nb,16\n"),
        ("none.csv", "id,n\na,1\nb,x\n"),
        ("less.csv", "id,n\na,-1\n"),
        ("part.jsonl", "{\"id\":1,\"n\":1}\n{\"id\":2,\"n\":1.5}\n"),
        ("void.jsonl", "{\"id\":1,\"n\":1}\n{\"id\":2}\n"),
        ("lacks.jsonl", "{\"id\":1,\"n\":1}\n\n{\"n\":1}\n"),
    ]);
    let build = |args: &str| stat(&sandbox, &format!("build {args} --key id --value n -o m.umbs"));
    build("two.csv").refused(
        1,
        &["one key has two values: 1 in record 1 of two.csv, 3 in record 3 of two.csv"],
    );
    build("wide.csv --value-bits 4")
        .refused(1, &["wide.csv: record 2: `n` is no whole number from 0 to 15"]);
    build("none.csv").refused(1, &["none.csv: record 2: `n` is no whole number"]);
    build("less.csv").refused(1, &["less.csv: record 1: `n` is no whole number"]);
    build("part.jsonl").refused(1, &["part.jsonl: record 2: `n` is no whole number"]);
    for file in ["less.csv", "lacks.jsonl"] {
        let said = build(file).stderr;
        assert_eq!(said.matches(file).count(), 1, "{said}");
    }
    build("void.jsonl").refused(1, &["void.jsonl: record 2 (byte 15): no field `n` in the record"]);
    build("lacks.jsonl").refused(1, &["lacks.jsonl: record 3 (byte 16)", "id"]);
    // Before anything is read.
    build("none.csv --value-bits 49").refused(2, &["--value-bits 49 and --check 8", "56 bits"]);
    build("none.csv --check 55 --value-bits 2").refused(2, &["--value-bits 2 and --check 55"]);
    stat(&sandbox, "build two.csv --value n -o m.umbs").refused(2, &["--key"]);
    stat(&sandbox, "build two.csv --key id --value m -o m.umbs").refused(2, &["no column `m`"]);
    assert!(!sandbox.exists("m.umbs"));
    build("same.csv").kept();
    assert_eq!(asked(&sandbox, "m.umbs a b"), "1\ta\n2\tb\n");
}

/// Several threads read parts of a file, and records are still numbered consecutively.
#[test]
fn what_is_wrong_far_behind_is_named() {
    let row = |id: u32| match id {
        15_000 => "{\"id\": 15000, \"n\": \"x\"}\n".to_owned(),
        _ => format!("{{\"id\": {id}, \"n\": {id}}}\n"),
    };
    let rows: String = (0..20_000).map(row).collect();
    let twice = rows.replace("\"x\"", "15000").replace("\"id\": 19999,", "\"id\": 3,");
    let sandbox = Sandbox::with(&[("a.jsonl", &rows), ("b.jsonl", &twice)]);
    stat(&sandbox, "build a.jsonl --key id --value n -o m.umbs")
        .refused(1, &["a.jsonl: record 15001: `n` is no whole number"]);
    stat(&sandbox, "build b.jsonl --key id --value n -o m.umbs")
        .refused(1, &["3 in record 4 of b.jsonl, 19999 in record 20000 of b.jsonl"]);
    sandbox.write("c.jsonl", rows.replace("{\"id\": 15000, ", "{"));
    stat(&sandbox, "build c.jsonl --key id -o m.umbs").refused(1, &["c.jsonl: record 15001 (byte"]);
}

#[test]
fn records_may_end_with_zero_bytes() {
    let sandbox = Sandbox::with(&[("keys", "a\nb\0c\0"), ("asked", "c\0d\0a\nb\0")]);
    stat(&sandbox, "build keys -z --rate 1e-9 -o f.umbs").kept();
    assert_eq!(asked(&sandbox, "f.umbs -z --file asked --present"), "c\0a\nb\0");
    assert_eq!(asked(&sandbox, "f.umbs -z --file asked --absent"), "d\0");
}

#[test]
fn an_exact_set_is_right_about_members_and_others() {
    let sandbox = Sandbox::with(&[
        ("members", lines(0..2000)),
        ("others/1", lines(2000..150_000)),
        ("others/2", lines(100_000..200_000)),
    ]);
    stat(&sandbox, "build members --others others -o e.umbs --memory 256K").kept();
    assert_eq!(asked(&sandbox, "e.umbs --file members --count"), "present\t2000\nabsent\t0\n");
    for others in ["others/1", "others/2"] {
        assert_eq!(asked(&sandbox, &format!("e.umbs --file {others} --present")), "");
    }
    let said = info(&sandbox, "e.umbs");
    assert_eq!((&said["keys"], &said["others"]), (&2000.into(), &198_000.into()));
    // 198,000 · ln 2 / 2,000 is 2^6.1.
    assert_eq!((&said["check_bits"], &said["role"]), (&6.into(), &"exact set".into()));
    sandbox.write("more", "x\nline 7\n");
    stat(&sandbox, "build members --others more -o f.umbs").refused(
        1,
        &["one item is a key and among the others: record 8 of members and record 2 of more"],
    );
    assert!(!sandbox.exists("f.umbs"));
}

#[test]
fn keys_of_records_are_asked_as_they_were_built() {
    let records: String = (0..100).map(|id| format!("{{\"id\": {id}, \"n\": 5}}\n")).collect();
    let sandbox = Sandbox::with(&[
        ("a.jsonl", records),
        ("urls.jsonl", "{\"url\": \"HTTP://A.example:80/x#y\"}\n".to_owned()),
        ("two.jsonl", "{\"a\": 1, \"b\": 2}\n{\"a\": \"1\", \"b\": 3}\n".to_owned()),
    ]);
    stat(&sandbox, "build a.jsonl --key id --rate 1e-9 -o a.umbs").kept();
    assert_eq!(asked(&sandbox, "a.umbs 99 99.0 100"), "present\t99\npresent\t99.0\nabsent\t100\n");
    stat(&sandbox, "ask a.umbs alice").refused(2, &["alice", "its keys are numbers"]);
    stat(&sandbox, "build urls.jsonl --key url --normalise url --rate 1e-9 -o u.umbs").kept();
    assert_eq!(asked(&sandbox, "u.umbs http://a.example/x"), "present\thttp://a.example/x\n");
    assert_eq!(info(&sandbox, "u.umbs")["items"]["normalise"], serde_json::json!(["url"]));
    stat(&sandbox, "build two.jsonl --key a --rate 1e-9 -o t.umbs").kept();
    stat(&sandbox, "ask t.umbs 1").refused(2, &["several types"]);
    let all = sandbox.text("two.jsonl");
    assert_eq!(asked(&sandbox, "t.umbs --file two.jsonl --present"), all);
    stat(&sandbox, "build two.jsonl --key a --key b --rate 1e-9 -o b.umbs").kept();
    stat(&sandbox, "ask b.umbs 1").refused(2, &["a, b"]);
    assert_eq!(asked(&sandbox, "b.umbs --file two.jsonl --present"), all);
}

#[test]
fn a_secret_key_is_needed_where_one_was_given() {
    let digits = "000102030405060708090a0b0c0d0e0f00000000000000ff\n";
    let other = digits.replace("ff", "fe");
    let sandbox = Sandbox::with(&[("keys", "a\nb\n"), ("k", digits), ("l", &other), ("m", "0\n")]);
    stat(&sandbox, "build keys --hash-key k --rate 1e-9 -o f.umbs").kept();
    assert_eq!(asked(&sandbox, "f.umbs --hash-key k a c"), "present\ta\nabsent\tc\n");
    assert_eq!(info(&sandbox, "f.umbs")["key_id"], "00000000000000ff");
    stat(&sandbox, "ask f.umbs a").refused(2, &["f.umbs", "00000000000000ff", "--hash-key"]);
    stat(&sandbox, "ask f.umbs a --hash-key l").refused(2, &["f.umbs", "under 0xfe"]);
    stat(&sandbox, "ask f.umbs a --hash-key m").refused(2, &["expected 48 hexadecimal digits"]);
    stat(&sandbox, "build keys -o g.umbs").kept();
    stat(&sandbox, "ask g.umbs a --hash-key k").refused(2, &["without a secret key"]);
}

#[test]
fn damaged_files_are_refused_whatever_is_asked() {
    let sandbox = Sandbox::with(&[("keys", lines(0..300)), ("text", lines(0..300))]);
    stat(&sandbox, "build keys -o f.umbs").kept();
    let whole = sandbox.read("f.umbs");
    let damaged = |at: usize, xor: u8| -> Vec<u8> {
        let mut bytes = whole.clone();
        bytes[at] ^= xor;
        bytes
    };
    let cases: BTreeMap<&str, (Vec<u8>, &str)> = BTreeMap::from([
        ("cut", (whole[..whole.len() - 1].to_vec(), "ends too early")),
        ("head", (whole[..70].to_vec(), "ends too early")),
        ("short", (whole[..20].to_vec(), "ends too early")),
        ("empty", (Vec::new(), "ends too early")),
        ("longer", ([&whole[..], b"x"].concat(), "bytes, expected")),
        ("cells", (damaged(whole.len() - 20, 1), "checksum of chunk 0")),
        ("count", (damaged(24, 1), "checksum of the head")),
        ("newer", (damaged(4, 3), "version 2, expected 1: a newer release wrote it")),
        ("role", (damaged(5, 5), "role 4, expected 1 to 3")),
        ("other", (damaged(0, 32), "not a static file")),
    ]);
    for (name, (bytes, said)) in &cases {
        sandbox.write(name, bytes);
        stat(&sandbox, &format!("info {name}")).refused(1, &[name, said]);
        stat(&sandbox, &format!("ask {name} --file keys")).refused(2, &[name, said]);
        stat(&sandbox, &format!("ask {name} alice")).refused(2, &[name, said]);
    }
    stat(&sandbox, "info text").refused(1, &["text: not a static file", "`UMBS` (a static file)"]);
}

#[test]
fn no_output_takes_the_place_of_an_input() {
    let sandbox = Sandbox::with(&[("keys", lines(0..3)), ("others", lines(3..6))]);
    let args = "build keys --overwrite -o";
    stat(&sandbox, &format!("{args} keys")).refused(2, &["keys", "input"]);
    let both = format!("{args} ./others --others others");
    stat(&sandbox, &both).refused(2, &["others", "input"]);
    assert_eq!(sandbox.text("keys"), lines(0..3));
    stat(&sandbox, "build nothing -o f.umbs").refused(1, &["nothing"]);
    stat(&sandbox, "build - --others - -o f.umbs").refused(2, &["standard input"]);
    stat(&sandbox, "build keys -o none/f.umbs").refused(1, &["none/f.umbs"]);
    assert!(!sandbox.exists("f.umbs"));
}

/// Else the second build would read what the first one has made.
#[test]
fn a_build_into_the_folder_of_its_keys_can_be_run_again() {
    let sandbox = Sandbox::with(&[("d/a", "x\n"), ("d/b", "y\n")]);
    for (inputs, again) in [("d", false), ("d", true), ("d/*", true)] {
        let built = stat(&sandbox, &format!("build {inputs} -o d/f.umbs --overwrite"));
        assert_eq!(built.stderr.contains("d/f.umbs is inside of the input"), again, "{inputs}");
        built.kept();
        assert_eq!(info(&sandbox, "d/f.umbs")["keys"], 2, "{inputs}");
    }
    stat(&sandbox, "build d/a d/f.umbs -o d/f.umbs --overwrite").refused(2, &["d/f.umbs", "input"]);
    sandbox.write("only/f.umbs", sandbox.read("d/f.umbs"));
    stat(&sandbox, "build only -o only/f.umbs --overwrite")
        .refused(2, &["only: no file in this directory but the output"]);
    // It is no file of ours that the output would replace.
    std::fs::remove_file(sandbox.path("d/f.umbs")).unwrap();
    stat(&sandbox, "build d -o d/a --overwrite").refused(2, &["d/a", "input"]);
    assert_eq!(sandbox.text("d/a"), "x\n");
}

#[test]
fn a_found_file_that_is_refused_comes_with_a_way_out_that_is_there() {
    let sandbox = Sandbox::with(&[("d/keys", "a\n"), ("d/image", "\x7fELF\0\0")]);
    let said = "d/image: this is ";
    let built = stat(&sandbox, "build d -o f.umbs");
    assert!(!built.stderr.contains("--binary"), "{}", built.stderr);
    built.refused(2, &[said, "not text: name the files that are meant"]);
    std::fs::remove_file(sandbox.path("d/image")).unwrap();
    std::os::unix::fs::symlink("gone", sandbox.path("d/link")).unwrap();
    let built = stat(&sandbox, "build d -o f.umbs");
    assert!(!built.stderr.contains("--skip-bad"), "{}", built.stderr);
    built.refused(1, &["d/link: cannot read: a link to gone: No such file"]);
    stat(&sandbox, "build d/keys -o f.umbs").kept();
}

#[test]
fn a_rate_is_kept_or_refused() {
    let sandbox = Sandbox::with(&[("keys", lines(0..3))]);
    stat(&sandbox, "build keys --rate 1e-17 -o f.umbs")
        .refused(2, &["--rate 1e-17: expected at least 1.39e-17, which is 2^-56"]);
    stat(&sandbox, "build keys --rate 1.4e-17 -o f.umbs").kept();
    assert!(info(&sandbox, "f.umbs")["false_positive_rate"].as_f64().unwrap() <= 1.4e-17);
}

#[test]
fn an_empty_set_is_a_set() {
    let sandbox = Sandbox::with(&[("none", ""), ("one", "x\n")]);
    stat(&sandbox, "build none -o f.umbs").kept();
    assert_eq!(stat(&sandbox, "ask f.umbs x").ended_with(1), b"absent\tx\n");
    stat(&sandbox, "build none --others one -o e.umbs").kept();
    assert_eq!(asked(&sandbox, "e.umbs --file one"), "absent\tx\n");
    stat(&sandbox, "build one --others none -o e.umbs --overwrite").kept();
    assert_eq!(asked(&sandbox, "e.umbs --file one"), "present\tx\n");
    assert_eq!(info(&sandbox, "f.umbs")["bits_per_key"], Value::Null);
}
