//! `umbel sketch`: files that stand for sets; built, updated, compared.

use crate::sandbox::{Ran, Sandbox};
use crate::serve::{run, umbel};
use serde_json::Value;
use std::io::Write;
use std::process::Stdio;

const SALT: &str = "000102030405060708090a0b0c0d0e0f";

fn sketch(sandbox: &Sandbox, args: &str) -> Ran {
    run(sandbox, &format!("sketch {args}"))
}

fn reconcile(sandbox: &Sandbox, args: &str) -> Ran {
    run(sandbox, &format!("reconcile {args}"))
}

fn shown(ran: Ran) -> String {
    String::from_utf8(ran.ended_with(1)).unwrap()
}

fn report(sandbox: &Sandbox) -> Value {
    serde_json::from_slice(&sandbox.read("report.json")).unwrap()
}

fn lines(numbers: std::ops::Range<u32>) -> String {
    numbers.map(|number| format!("line {number}\n")).collect()
}

#[test]
fn lines_are_compared_with_a_sketch() {
    let sandbox = Sandbox::with(&[("a", lines(3..5000)), ("b", lines(0..4996))]);
    sketch(&sandbox, &format!("build b -o b.sketch --differences 20 --salt {SALT}")).kept();
    let shown_b = shown(reconcile(&sandbox, "a b.sketch --report report.json"));
    let (ours, theirs): (Vec<&str>, Vec<&str>) =
        shown_b.lines().partition(|line| line.starts_with("- "));
    assert_eq!(ours, ["- line 4996", "- line 4997", "- line 4998", "- line 4999"]);
    assert_eq!(theirs.len(), 3);
    for line in theirs {
        let digits = line.strip_prefix("+ #").unwrap();
        assert!(digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    }
    // The content of three lines is not available here.
    let said = report(&sandbox);
    assert_eq!((&said["verified"], &said["verified_symbols"]), (&false.into(), &true.into()));
    assert_eq!(said["difference"], serde_json::json!({"only_a": 4, "only_b": 3}));
    assert_eq!(said["items"], serde_json::json!({"a": 4997, "b": 4996}));
    // The sketch is the command's B, and the file has all of its items and more.
    sandbox.write("b", lines(0..4998));
    let shown_a = shown(reconcile(&sandbox, "b.sketch b --report report.json"));
    assert_eq!(shown_a, "+ line 4996\n+ line 4997\n");
    assert_eq!(report(&sandbox)["verified"], true);
    sandbox.write("b", lines(0..4996));
    assert!(reconcile(&sandbox, "b b.sketch").kept().is_empty());
}

#[test]
fn ids_are_known_from_a_sketch_and_verified() {
    let id = |number: u32| format!("{:016x}\n", 0x0123_4567_89ab_cdef_u64.rotate_left(number));
    let sandbox = Sandbox::with(&[("a", id(1) + &id(2)), ("b", id(2) + &id(3))]);
    // With a drawn salt nine symbols of two differences fail now and then.
    sketch(&sandbox, &format!("build b --ids -o b.sketch --symbols 9 --salt {SALT}")).kept();
    let expected = format!("- {}+ {}", id(1), id(3));
    assert_eq!(shown(reconcile(&sandbox, "--ids a b.sketch --report report.json")), expected);
    assert_eq!(report(&sandbox)["verified"], true);
    reconcile(&sandbox, "a b.sketch").refused(2, &["b.sketch", "its items are others"]);
    reconcile(&sandbox, "--ids a b.sketch --pull").refused(2, &["a sketch takes and gives"]);
    reconcile(&sandbox, "--ids a b.sketch --max-diff 1").refused(2, &["2 items differ"]);
    reconcile(&sandbox, "b.sketch exec:true").refused(2, &["must be of this machine"]);
    let wide = "build a --ids --symbol-bits 48 -o c.sketch --symbols 9";
    sketch(&sandbox, wide).refused(2, &["symbols of 64 bits"]);
}

#[test]
fn two_sketches_of_one_salt_are_compared_alone() {
    let sandbox = Sandbox::with(&[("a", lines(0..1000)), ("b", lines(1..1002))]);
    let build = |name: &str, more: &str| {
        let args = format!("build {name} -o {name}.sketch --symbol-bits 48 --symbols 40 {more}");
        sketch(&sandbox, &args)
    };
    build("a", "").kept();
    build("b", "").kept();
    reconcile(&sandbox, "a.sketch b.sketch").refused(2, &["other salts", "--salt"]);
    build("a", "").refused(2, &["a.sketch exists: --overwrite replaces it"]);
    let said = build("a", &format!("--overwrite --salt {SALT}")).stderr;
    assert!(said.contains("1000 items, 40 coded symbols, ") && said.contains(SALT), "{said}");
    build("b", &format!("--overwrite --salt {SALT}")).kept();
    let both = shown(reconcile(&sandbox, "a.sketch b.sketch --report report.json"));
    let signs: Vec<&str> = both.lines().map(|line| &line[..3]).collect();
    assert_eq!(signs.iter().filter(|sign| **sign == "- #").count(), 1, "{both}");
    assert_eq!(signs.iter().filter(|sign| **sign == "+ #").count(), 2, "{both}");
    assert!(both.lines().all(|line| line.len() == 3 + 12), "{both}");
    // The same number of symbols as with one of the sets.
    let with_set = shown(reconcile(&sandbox, "a b.sketch"));
    let theirs = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with('+')).map(str::to_owned).collect()
    };
    assert_eq!(theirs(&both), theirs(&with_set));
    assert!(reconcile(&sandbox, "a.sketch a.sketch").kept().is_empty());
    reconcile(&sandbox, "sketch:- sketch:-").refused(2, &["one of the sketches must be a file"]);
}

#[test]
fn too_few_coded_symbols_say_what_to_do_and_are_extended() {
    let sandbox = Sandbox::with(&[("a", lines(0..3000)), ("b", lines(200..3000))]);
    sketch(&sandbox, "build b -o b.sketch --symbols 100").kept();
    let before = sandbox.read("b.sketch");
    let ran = reconcile(&sandbox, "a b.sketch");
    ran.refused(2, &["b.sketch: 100 coded symbols", "are needed", "umbel sketch extend b.sketch"]);
    sketch(&sandbox, "extend b.sketch a --symbols 400").refused(1, &["is not the sketch of a"]);
    sketch(&sandbox, "extend b.sketch b --symbols 100").refused(2, &["has 100 coded symbols"]);
    assert_eq!(sandbox.read("b.sketch"), before);
    sketch(&sandbox, "extend b.sketch b --symbols 400").kept();
    assert_eq!(shown(reconcile(&sandbox, "a b.sketch")).lines().count(), 200);
    // Much of a long sketch need not be read, or even exist.
    let long = sketch(&sandbox, "build b -o - --symbols 100000").kept();
    let mut command = umbel(&sandbox, "reconcile a sketch:- --report report.json");
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&long[..10_000]).unwrap();
    let ran = sandbox.ended(child.wait_with_output().unwrap());
    assert_eq!(shown(ran).lines().count(), 200);
    assert!(report(&sandbox)["bytes_received"].as_u64().unwrap() < 6000);
}

#[test]
fn a_kept_sketch_is_the_one_that_would_be_built() {
    let sandbox = Sandbox::with(&[
        ("old", lines(0..50)),
        ("more", lines(50..70)),
        ("gone", lines(0..10)),
        ("now", lines(10..70)),
    ]);
    let build = |set: &str, file: &str| {
        sketch(&sandbox, &format!("build {set} -o {file} --symbols 64 --salt {SALT}")).kept();
    };
    build("old", "kept.sketch");
    build("now", "built.sketch");
    let twice = ["adding an item twice removes it", "--new"];
    sketch(&sandbox, "add kept.sketch more").refused(2, &twice);
    sketch(&sandbox, "remove kept.sketch gone").refused(2, &["adds it", "--present"]);
    sketch(&sandbox, "add kept.sketch more --new").kept();
    sketch(&sandbox, "remove kept.sketch gone --present").kept();
    assert_eq!(sandbox.read("kept.sketch"), sandbox.read("built.sketch"));
    sketch(&sandbox, "remove kept.sketch gone --present").kept();
    let ran = reconcile(&sandbox, "now kept.sketch");
    ran.refused(2, &["kept.sketch: the difference does not agree with the sketch's"]);
    // Some wrong changes are detected immediately.
    let ran = sketch(&sandbox, "remove built.sketch old --present");
    ran.refused(1, &["never had all of these items"]);
    sandbox.write("kv", "k\tv\n");
    sketch(&sandbox, "add kept.sketch kv --kv --new").refused(2, &["its items are others"]);
}

#[test]
fn files_and_records_have_sketches_too() {
    let sandbox = Sandbox::with(&[
        ("a/same", "1"),
        ("a/other", "2"),
        ("b/same", "1"),
        ("kv", "k1\told\nk2\tsame\n"),
        ("kv2", "k1\tnew\nk2\tsame\n"),
    ]);
    sketch(&sandbox, &format!("build b --dir -o b.sketch --symbols 20 --salt {SALT}")).kept();
    assert_eq!(shown(reconcile(&sandbox, "--dir a b.sketch")), "- other\n");
    sketch(&sandbox, &format!("build kv2 --kv -o kv.sketch --symbols 20 --salt {SALT}")).kept();
    let shown = shown(reconcile(&sandbox, "--kv kv kv.sketch"));
    let shown: Vec<&str> = shown.lines().collect();
    assert!(shown.len() == 2 && shown[0].starts_with("+ #"), "{shown:?}");
    assert_eq!(shown[1], "- k1\told");
}

#[test]
fn what_is_no_sketch_is_refused() {
    let sandbox = Sandbox::with(&[("a", "1\n"), ("text.sketch", "some text\n"), ("empty", "")]);
    sketch(&sandbox, "build a -o a.sketch --symbols 200").kept();
    let whole = sandbox.read("a.sketch");
    sandbox.write("cut.sketch", &whole[..whole.len() - 1]);
    let mut damaged = whole.clone();
    damaged[100] ^= 1;
    sandbox.write("damaged.sketch", &damaged);
    sandbox.write("longer.sketch", [&whole[..], b"x"].concat());
    for (args, said) in [
        ("a text.sketch", "text.sketch: not a sketch"),
        ("a sketch:empty", "empty: the sketch ends early"),
        ("a damaged.sketch", "damaged.sketch: "),
        (
            "a.sketch cut.sketch",
            "cut.sketch: the sketch ends early: 128 coded symbols, expected 200",
        ),
        ("a.sketch longer.sketch", "longer.sketch: something follows"),
        ("a gone.sketch", "gone.sketch: No such file"),
        ("a a.sketch --max-bytes 100", "--max-bytes"),
    ] {
        reconcile(&sandbox, args).refused(2, &[said]);
    }
    // Whatever follows the needed part.
    assert!(reconcile(&sandbox, "a cut.sketch").kept().is_empty());
    for (args, said) in [
        ("build a -o b.sketch", "--symbols"),
        ("build a -o b.sketch --symbols 0", "--symbols 0: 0 coded symbols, expected 1 to 67108864"),
        ("build a -o b.sketch --differences 1G", "--differences 1000000000: "),
        ("extend a.sketch a --symbols 1T", "expected 1 to 67108864"),
        ("build a -o b.sketch --symbols 9 --salt 00", "32 hexadecimal digits"),
        ("build a -o b.sketch --symbols 9 --symbol-bits 31", "31"),
    ] {
        sketch(&sandbox, args).refused(2, &[said]);
    }
    let help = sketch(&sandbox, "--help").kept_text();
    assert!(help.contains("craft items that collide"), "{help}");
}
