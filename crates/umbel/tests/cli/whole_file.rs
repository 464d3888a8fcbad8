//! `--granularity file`: whole files that are kept or dropped.

use crate::packed::gzip;
use crate::sandbox::Sandbox;
use serde_json::Value;

/// More than one block of reading, without a line end.
fn long(seed: u8) -> Vec<u8> {
    (0..3_000_000u32).map(|i| (i % 241) as u8 ^ seed | 0x80).collect()
}

#[test]
fn files_of_equal_content_are_dropped_whatever_their_packing() {
    let (one, other) = (long(1), long(2));
    let packed = gzip(&one);
    let files = [
        ("in/a.bin", &one[..]),
        ("in/b/a.bin.gz", &packed),
        ("in/b/c.jsonl", &other),
        ("in/d.csv", &one),
        ("in/e.txt", b""),
        ("in/f.txt", b""),
        ("in/g.txt", b"x\nx\n"),
    ];
    let sandbox = Sandbox::with(&files);
    for options in ["--workers 1", "--workers 3", "--workers 2 --exactness bytes"] {
        let args = "in --granularity file --output out/ --overwrite --duplicates d.jsonl";
        sandbox.run(&format!("{args} {options} --summary s.json")).kept();
        let files: Vec<String> =
            sandbox.files().into_iter().filter(|name| name.starts_with("out/")).collect();
        assert_eq!(files, ["out/a.bin", "out/b/c.jsonl", "out/e.txt", "out/g.txt"], "{options}");
        assert!(sandbox.read("out/a.bin") == one && sandbox.read("out/b/c.jsonl") == other);
        assert_eq!(sandbox.read("out/g.txt"), b"x\nx\n");
        let report: Vec<Value> = sandbox
            .text("d.jsonl")
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let pairs: Vec<_> = report.iter().map(|line| (&line["file"], &line["kept_file"])).collect();
        let name = |name: &str| Value::from(name);
        assert_eq!(
            pairs,
            [
                (&name("in/b/a.bin.gz"), &name("in/a.bin")),
                (&name("in/d.csv"), &name("in/a.bin")),
                (&name("in/f.txt"), &name("in/e.txt")),
            ]
        );
        let summary: Value = serde_json::from_slice(&sandbox.read("s.json")).unwrap();
        assert_eq!([&summary["records"], &summary["distinct"]], [7, 4]);
        assert_eq!(summary["spec"]["granularity"], "file");
    }
    let stream = sandbox.run("in --granularity file --keep last").kept();
    let expected = [&other[..], &one, b"x\nx\n"].concat();
    assert!(stream == expected);
}

#[test]
fn files_that_stay_follow_each_other_byte_for_byte() {
    let sandbox = Sandbox::with(&[("a", "x"), ("b", "y\n"), ("c", "x"), ("d", "z")]);
    assert_eq!(sandbox.run("a b c d --granularity file").kept_text(), "xy\nz");
}

#[test]
fn the_rules_for_items_hold_for_files() {
    let sandbox = Sandbox::with(&[("a", "X \n"), ("b", "x\n"), ("c", ""), ("d", ""), ("e", " ")]);
    let args = "a b c d e --granularity file --output out/ --overwrite";
    let left = |options: &str| {
        sandbox.run(&format!("{args} {options}")).kept();
        let kept = ["a", "b", "c", "d", "e"].map(|name| sandbox.exists(&format!("out/{name}")));
        kept.map(u8::from)
    };
    let clean = || std::fs::remove_dir_all(sandbox.path("out")).unwrap();
    assert_eq!(left(""), [1, 1, 1, 0, 1]);
    clean();
    assert_eq!(left("--normalise lower,trim"), [1, 0, 1, 0, 0]);
    clean();
    assert_eq!(left("--empty keep"), [1, 1, 1, 1, 1]);
    clean();
    assert_eq!(left("--empty keep --normalise trim"), [1, 1, 1, 1, 1]);
    clean();
    assert_eq!(left("--scope file"), [1, 1, 1, 1, 1]);
}

#[test]
fn a_damaged_file_is_named_and_can_be_left_out() {
    let packed = gzip(&long(1));
    let cut = &packed[..packed.len() - 9];
    let sandbox = Sandbox::with(&[("a.gz", cut), ("b", b"x")]);
    let said = ["a.gz: record 1 (byte 0)", "cut off"];
    sandbox.run("a.gz b --granularity file").refused(1, &said);
    let ran = sandbox.run("a.gz b --granularity file --skip-bad --output out/");
    ran.ended_with(3);
    assert!(!sandbox.exists("out/a.gz") && sandbox.exists("out/b"));
    assert!(sandbox.text("out/bad.jsonl").contains("\"cause\":\"truncated\""));
}
