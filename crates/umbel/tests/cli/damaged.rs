//! Compressed files that are truncated or damaged: data is never lost silently.

use crate::model::unlike_lines;
use crate::packed::{gunzip, gzip, unzstd, zstd};
use crate::sandbox::Sandbox;
use serde_json::Value;

type Pack = fn(&[u8]) -> Vec<u8>;
const PACKERS: [(&str, Pack, Pack); 2] = [("a.gz", gzip, gunzip), ("a.zst", zstd, unzstd)];

/// A file whose second member is truncated, and the contents of both members.
fn cut_off(pack: Pack) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let (first, second) = (unlike_lines(1, 1000), unlike_lines(2, 30_000));
    let mut packed = pack(&second);
    packed.truncate(packed.len() / 3 * 2);
    ([pack(&first), packed].concat(), first, second)
}

/// Whether `kept` is the first member and whole lines of the second one, at least a third of it.
fn is_front(kept: &[u8], first: &[u8], second: &[u8]) -> bool {
    let rest = kept.strip_prefix(first);
    rest.is_some_and(|rest| {
        rest.ends_with(b"\n") && second.starts_with(rest) && rest.len() >= second.len() / 3
    })
}

#[test]
fn a_file_that_is_cut_off_fails_the_job() {
    for (name, pack, _) in PACKERS {
        let sandbox = Sandbox::with(&[(name, cut_off(pack).0), ("b.txt", b"b\n".to_vec())]);
        for output in ["", "--output out.txt", "--output out/"] {
            let ran = sandbox.run(&format!("{name} b.txt {output} --duplicates d.jsonl"));
            ran.refused(1, &[name, "record ", "byte ", "cut off", "--skip-bad"]);
            assert_eq!(sandbox.files(), [name, "b.txt"], "{output}");
        }
    }
}

#[test]
fn records_in_front_of_a_cut_are_kept_if_asked_for() {
    for (name, pack, _) in PACKERS {
        let (packed, first, second) = cut_off(pack);
        let sandbox = Sandbox::with(&[(name, packed)]);
        let ran = sandbox.run(&format!("{name} --skip-bad --workers 3"));
        assert!(ran.stderr.contains(&format!("{name}: record ")), "{}", ran.stderr);
        assert!(ran.stderr.contains("the rest of the file is lost"), "{}", ran.stderr);
        assert!(ran.stderr.contains("unverified"), "{}", ran.stderr);
        assert!(is_front(&ran.ended_with(3), &first, &second), "{name}");
    }
}

#[test]
fn files_behind_a_damaged_one_are_processed() {
    for (name, pack, unpack) in PACKERS {
        let (packed, first, second) = cut_off(pack);
        let lines: Vec<&[u8]> = first.split_inclusive(|byte| *byte == b'\n').collect();
        let other = [lines[7], b"other\n"].concat();
        let sandbox = Sandbox::with(&[(name, packed), ("b.txt", other)]);
        sandbox.run(&format!("{name} b.txt --skip-bad --output out/")).ended_with(3);
        assert_eq!(sandbox.read("out/b.txt"), b"other\n");
        let kept = unpack(&sandbox.read(format!("out/{name}")));
        assert!(is_front(&kept, &first, &second), "{name}");

        let list = sandbox.text("out/bad.jsonl");
        let bad: Value = serde_json::from_str(&list).expect("one line");
        let records = kept.split_inclusive(|byte| *byte == b'\n').count();
        assert_eq!(bad["file"], name);
        assert_eq!(bad["record"], records + 1);
        assert_eq!(bad["byte"], kept.len());
        assert_eq!(bad["cause"], "truncated");
        assert_eq!(bad["rest_lost"], true);
    }
}

#[test]
fn a_wrong_checksum_fails_the_job() {
    for (name, pack, _) in PACKERS {
        let mut packed = pack(&unlike_lines(3, 2000));
        let at = packed.len() - if name == "a.gz" { 6 } else { 2 };
        packed[at] ^= 1;
        let sandbox = Sandbox::with(&[(name, packed)]);
        sandbox.run(&format!("{name} --output out.txt")).refused(1, &[name, "damaged"]);
        assert_eq!(sandbox.files(), [name]);
    }
}

#[test]
fn foreign_bytes_behind_a_member_fail_the_job() {
    for (name, pack, _) in PACKERS {
        let sandbox = Sandbox::with(&[(name, [&pack(b"a\n")[..], b"not packed\n"].concat())]);
        sandbox.run(&format!("{name} --output out.txt")).refused(1, &[name, "damaged"]);
        assert_eq!(sandbox.files(), [name]);
    }
}

#[test]
fn a_file_that_is_only_a_header_fails_the_job() {
    for (name, pack, _) in PACKERS {
        let sandbox = Sandbox::with(&[(name, &pack(b"a\n")[..5])]);
        sandbox.run(name).refused(1, &[name, "cut off"]);
    }
}

/// Then the name says what the bytes do not, and an empty file is one without records.
#[test]
fn a_file_that_ends_within_its_magic_number_fails_the_job() {
    for (name, pack, _) in PACKERS {
        let packed = pack(b"a\n");
        for cut in 1..3 {
            let sandbox = Sandbox::with(&[(name, &packed[..cut]), ("b.txt", b"b\n")]);
            sandbox.run(&format!("{name} b.txt")).refused(1, &[name, "cut off"]);
            let ran = sandbox.run(&format!("{name} b.txt --skip-bad"));
            assert_eq!(ran.ended_with(3), b"b\n");
        }
        assert!(Sandbox::with(&[(name, b"")]).run(name).kept().is_empty());
    }
}
