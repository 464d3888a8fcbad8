//! `umbel reconcile --sketch`: sessions that start with stored sketches of both sets.

use crate::packed::gzip;
use crate::reconcile::{over_ssh, script};
use crate::sandbox::{Ran, Sandbox};
use crate::serve::run;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::time::Duration;

const SALT: &str = "000102030405060708090a0b0c0d0e0f";

fn reconcile(sandbox: &Sandbox, args: &str) -> Ran {
    run(sandbox, &format!("reconcile {args}"))
}

fn report(sandbox: &Sandbox) -> Value {
    serde_json::from_slice(&sandbox.read("report.json")).unwrap()
}

fn lines(numbers: std::ops::Range<u32>) -> String {
    numbers.map(|number| format!("line {number}\n")).collect()
}

/// Builds the sketch of a set, with the salt that all of these tests use.
fn build(sandbox: &Sandbox, name: &str, args: &str) {
    let args = format!("sketch build {name} -o {name}.sketch --overwrite --salt {SALT} {args}");
    run(sandbox, &args).kept();
}

/// Sets a file's time of modification this many seconds back.
fn set_age(sandbox: &Sandbox, name: &str, seconds: u64) {
    let file = File::options().write(true).open(sandbox.path(name)).unwrap();
    let was = file.metadata().unwrap().modified().unwrap();
    file.set_modified(was - Duration::from_secs(seconds)).unwrap();
}

fn line_set(text: &str) -> BTreeSet<&str> {
    text.lines().collect()
}

/// Asserts that both sketches equal ones that are built of the present sets.
#[track_caller]
fn assert_maintained(sandbox: &Sandbox, args: &str) {
    for name in ["a", "b"] {
        let kept = sandbox.read(format!("{name}.sketch"));
        build(sandbox, name, args);
        assert_eq!(kept, sandbox.read(format!("{name}.sketch")), "{name}");
    }
}

#[test]
fn equal_sets_are_not_even_read() {
    let text = lines(0..3000);
    let sandbox = Sandbox::with(&[("a", &text), ("b", &text)]);
    build(&sandbox, "a", "--symbols 100");
    build(&sandbox, "b", "--symbols 40");
    // If the sets were read, other items would be found.
    for name in ["a", "b"] {
        sandbox.write(name, text.replace("line", "LINE"));
        set_age(&sandbox, name, 60);
    }
    script(&sandbox, "--writable --sketch b.sketch b");
    let args = "a exec:./there.sh --sketch a.sketch --two-way --report report.json";
    reconcile(&sandbox, args).kept();
    let said = report(&sandbox);
    assert_eq!(said["difference"]["only_a"], 0);
    let bytes = said["bytes_sent"].as_u64().unwrap() + said["bytes_received"].as_u64().unwrap();
    assert!(bytes < 250, "{bytes}");
}

#[test]
fn a_difference_is_exchanged_and_enters_both_sketches() {
    let repeated = "line 7\nline 7\n";
    let sandbox =
        Sandbox::with(&[("a", lines(0..990) + repeated), ("b", lines(20..1000) + "line 30\n")]);
    let args = "--symbols 200";
    build(&sandbox, "a", args);
    build(&sandbox, "b", args);
    script(&sandbox, "--sketch b.sketch b");
    let shown = reconcile(&sandbox, "a exec:./there.sh --sketch a.sketch").ended_with(1);
    let shown = String::from_utf8(shown).unwrap();
    assert_eq!(shown.lines().filter(|line| line.starts_with("- line")).count(), 20 + 2);
    assert_eq!(shown.lines().filter(|line| line.starts_with("+ line")).count(), 10 + 1);
    assert_maintained(&sandbox, args);

    script(&sandbox, "--writable --sketch b.sketch b");
    let two_way = "a exec:./there.sh --sketch a.sketch --two-way --report report.json";
    reconcile(&sandbox, two_way).kept();
    let said = report(&sandbox);
    assert_eq!(said["plan"], "stored riblt h=64");
    assert_eq!(said["difference"]["only_a"], 22);
    let (a, b) = (sandbox.text("a"), sandbox.text("b"));
    assert_eq!((line_set(&a), a.lines().count()), (line_set(&lines(0..1000)), 1003));
    assert_eq!((line_set(&b), b.lines().count()), (line_set(&lines(0..1000)), 1003));
    assert_maintained(&sandbox, args);
    reconcile(&sandbox, two_way).kept();
    assert_eq!(report(&sandbox)["plan"], "digest");
    // Differences that the sketches lack are found as usual, and added to them.
    sandbox.write("b", lines(400..1300));
    build(&sandbox, "b", args);
    reconcile(&sandbox, "a exec:./there.sh --sketch a.sketch --pull --delete").kept();
    assert_eq!(line_set(&sandbox.text("a")), line_set(&lines(400..1300)));
    assert_maintained(&sandbox, args);
}

#[test]
fn replacing_records_and_ids_are_reported_too() {
    let kv = |value: &str| format!("k1\t{value}\nk2\tsame\n");
    let sandbox = Sandbox::with(&[("a", kv("old") + "k3\tmine\n"), ("b", kv("new"))]);
    build(&sandbox, "a", "--kv --symbols 30");
    build(&sandbox, "b", "--kv --symbols 30");
    script(&sandbox, "--kv --sketch b.sketch b");
    let pull = "--kv a exec:./there.sh --sketch a.sketch --pull --delete";
    reconcile(&sandbox, pull).kept();
    assert_eq!(sandbox.text("a"), kv("new"));
    assert_maintained(&sandbox, "--kv --symbols 30");

    let id = |number: u64| format!("{:016x}\n", 0x0123_4567_89ab_cdef_u64.wrapping_mul(number));
    let ids = |numbers: std::ops::Range<u64>| numbers.map(id).collect::<String>();
    sandbox.write("a", ids(1..500));
    sandbox.write("b", ids(3..510));
    build(&sandbox, "a", "--ids --symbols 40");
    build(&sandbox, "b", "--ids --symbols 40");
    script(&sandbox, "--ids --writable --sketch b.sketch b");
    reconcile(&sandbox, "--ids exec:./there.sh a --sketch a.sketch --two-way").kept();
    assert_eq!(line_set(&sandbox.text("a")), line_set(&ids(1..510)));
    assert_eq!(line_set(&sandbox.text("b")), line_set(&ids(1..510)));
    assert_maintained(&sandbox, "--ids --symbols 40");
}

#[test]
fn one_sketch_alone_or_of_another_salt_changes_no_result() {
    let sandbox = Sandbox::with(&[("a", lines(0..50)), ("b", lines(2..51))]);
    build(&sandbox, "a", "--symbols 40");
    run(&sandbox, "sketch build b -o b.sketch --symbols 40").kept();
    let expected: String = "- line 0\n- line 1\n+ line 50\n".into();
    for (ours, theirs) in [
        ("--sketch a.sketch", ""),
        ("", "--sketch b.sketch"),
        ("--sketch a.sketch", "--sketch b.sketch"),
    ] {
        script(&sandbox, &format!("{theirs} b"));
        let shown = reconcile(&sandbox, &format!("a exec:./there.sh {ours}")).ended_with(1);
        assert_eq!(String::from_utf8(shown).unwrap(), expected);
    }
}

#[test]
fn a_sketch_that_its_set_left_behind_is_refused() {
    let sandbox = Sandbox::with(&[("a", lines(0..50)), ("b", lines(2..51))]);
    build(&sandbox, "a", "--symbols 40");
    build(&sandbox, "b", "--symbols 40");
    script(&sandbox, "--sketch b.sketch b");
    let args = "a exec:./there.sh --sketch a.sketch";
    sandbox.write("a", lines(0..50).replace("line 7\n", "line 77\n"));
    set_age(&sandbox, "a.sketch", 60);
    reconcile(&sandbox, args).refused(2, &["a.sketch: is older than a", "umbel sketch add"]);
    // Times do not show this, but the first scan does.
    set_age(&sandbox, "a", 90);
    reconcile(&sandbox, args).refused(2, &["the stored sketch is not of this set"]);
    sandbox.write("a", lines(0..40));
    set_age(&sandbox, "a", 90);
    reconcile(&sandbox, args).refused(2, &["a.sketch: is of 50 items, a has 40"]);
    // After the missing item is added, the sketch is valid.
    sandbox.write("a", lines(0..50) + "more\n");
    sandbox.write("more", "more\n");
    run(&sandbox, "sketch add a.sketch more --new").kept();
    let shown = reconcile(&sandbox, args).ended_with(1);
    assert_eq!(shown, b"- line 0\n- line 1\n+ line 50\n- more\n");
}

/// A later refusal would come after the other side has changed its set.
#[test]
fn a_packed_set_is_refused_before_anything_is_changed() {
    let sandbox = Sandbox::with(&[("a.gz", gzip(b"1\n2\n")), ("b", b"2\n3\n".to_vec())]);
    build(&sandbox, "a.gz", "--symbols 40");
    build(&sandbox, "b", "--symbols 40");
    script(&sandbox, "--writable --sketch b.sketch b");
    let args = "a.gz exec:./there.sh --sketch a.gz.sketch";
    reconcile(&sandbox, &format!("{args} --two-way")).refused(2, &["a.gz: a packed file is not"]);
    assert_eq!(sandbox.text("b"), "2\n3\n");
    assert_eq!(reconcile(&sandbox, args).ended_with(1), b"- 1\n+ 3\n");
}

#[test]
fn over_ssh_the_other_sketch_is_beside_its_set() {
    let sandbox = Sandbox::with(&[("a", lines(0..50)), ("it's $b", lines(2..51))]);
    build(&sandbox, "a", "--symbols 40");
    let args = "a --two-way --sketch a.sketch --report report.json";
    let ran = over_ssh(&sandbox, args, "it's $b");
    assert!(ran.stderr.contains("it's $b.sketch is not there: the session continues with a scan"));
    ran.kept();
    assert_eq!(line_set(&sandbox.text("it's $b")), line_set(&lines(0..51)));
    assert_eq!(line_set(&sandbox.text("a")), line_set(&lines(0..51)));
    sandbox.write("a", lines(0..50));
    build(&sandbox, "a", "--symbols 40");
    sandbox.write("it's $b", lines(2..51));
    sandbox.write("b", lines(2..51));
    build(&sandbox, "b", "--symbols 40");
    std::fs::rename(sandbox.path("b.sketch"), sandbox.path("it's $b.sketch")).unwrap();
    over_ssh(&sandbox, args, "it's $b").kept();
    assert_eq!(report(&sandbox)["plan"], "stored riblt h=64");
    assert_eq!(line_set(&sandbox.text("it's $b")), line_set(&lines(0..51)));
}

#[test]
fn where_a_sketch_makes_no_sense_it_is_refused() {
    let sandbox = Sandbox::with(&[("a", lines(0..5)), ("b", lines(2..5))]);
    build(&sandbox, "a", "--symbols 40");
    reconcile(&sandbox, "a b --sketch a.sketch").refused(2, &["compare A.sketch with B.sketch"]);
    reconcile(&sandbox, "a exec:cat --sketch a.sketch --resume x")
        .refused(2, &["cannot be used with"]);
    reconcile(&sandbox, "--dir . exec:cat --sketch a.sketch")
        .refused(2, &["--sketch: of a directory"]);
    reconcile(&sandbox, "--kv a exec:cat --sketch a.sketch").refused(2, &["its items are others"]);
    reconcile(&sandbox, "a exec:cat --sketch b").refused(2, &["b: "]);
    reconcile(&sandbox, "a exec:cat --sketch none").refused(2, &["none: No such file"]);
    // Who names one insists on it.
    reconcile(&sandbox, "--stdio a --sketch none").refused(2, &["none: No such file"]);
}
