//! Lines that are not clean text: all kinds of line ends, no line end, any bytes, any length.

use crate::sandbox::Sandbox;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The kept records of these files, named a, b, c and so on, in this order.
fn kept(files: &[&[u8]], options: &str) -> Vec<u8> {
    let names = ["a", "b", "c"];
    let named: Vec<(&str, &[u8])> = names.into_iter().zip(files.iter().copied()).collect();
    let sandbox = Sandbox::with(&named);
    sandbox.run(&format!("{} {options}", names[..files.len()].join(" "))).kept()
}

#[test]
fn a_carriage_return_is_part_of_the_line_and_stays() {
    assert_eq!(kept(&[b"a\r\nb\r\na\r\n"], ""), b"a\r\nb\r\n");
    assert_eq!(kept(&[b"a\r\na\na\r\na\n"], ""), b"a\r\na\n");
}

#[test]
fn bytes_that_are_no_text_are_compared_and_kept_as_they_are() {
    assert_eq!(kept(&[b"\xff\xfe\n\0\n\xff\xfe\n\0\0\n\0\n"], ""), b"\xff\xfe\n\0\n\0\0\n");
}

#[test]
fn a_name_that_is_not_text_is_read_where_it_is_given_and_not_left_out_by_a_glob() {
    let sandbox = Sandbox::with(&[("nud/good.txt", "a\n")]);
    let odd = OsStr::from_bytes(b"nud/bad\xff.txt");
    sandbox.write(odd, "b\n");
    assert_eq!(sandbox.run("nud").kept_text(), "b\na\n");
    for glob in ["nud/*", "n*/*.txt", "**/*.txt"] {
        let said = format!(r"{glob}: nud/bad\xff.txt has a name that is not UTF-8");
        sandbox.run(glob).refused(1, &[said.as_str(), "name it, or its directory"]);
    }
    assert_eq!(sandbox.run("nud/g*").kept_text(), "a\n");
    // As a shell expands a glob.
    let run = |args: &str, named: &OsStr| {
        let output = sandbox.command(args).arg(named).output().unwrap();
        sandbox.ended(output)
    };
    assert_eq!(run("nud/good.txt", odd).kept_text(), "a\nb\n");
    // Its name is not changed where it is an output.
    run("nud/good.txt --output out/ --summary s.json", odd).kept();
    assert_eq!(sandbox.read(OsStr::from_bytes(b"out/bad\xff.txt")), b"b\n");
    let summary: serde_json::Value = serde_json::from_str(&sandbox.text("s.json")).unwrap();
    assert_eq!(summary["spec"]["inputs"][1], "nud/bad\u{fffd}.txt");
    sandbox.write(odd, "b\na\nb\n");
    run("nud/good.txt --in-place", odd).kept();
    assert_eq!(sandbox.read(odd), b"b\n");
    // A directory of such a name.
    sandbox.write(OsStr::from_bytes(b"n\xfe/x"), "c\n");
    assert_eq!(run("", OsStr::from_bytes(b"n\xfe")).kept_text(), "c\n");
}

#[test]
fn an_index_of_a_name_that_is_not_text_is_a_reference() {
    let sandbox = Sandbox::with(&[("one", "a\nb\n"), ("two", "b\nc\n")]);
    let index = OsStr::from_bytes(b"seen\xff");
    let run = |args: &str, more: &[&OsStr]| {
        let output = sandbox.command(args).args(more).output().unwrap();
        sandbox.ended(output)
    };
    run("one --output kept --save-index", &[index]).kept();
    let update = [index, OsStr::new("--save-index"), index];
    assert_eq!(run("two --reference", &update).kept_text(), "c\n");
    assert_eq!(run("two --reference", &[index]).kept_text(), "");
    let gone = [OsStr::from_bytes(b"gone\xff")];
    run("two --reference", &gone).refused(1, &["gone\u{fffd}: cannot read"]);
}

#[test]
fn what_is_no_file_and_not_text_is_refused_by_name() {
    let sandbox = Sandbox::new();
    let cases: [(&str, &[u8], i32, [&str; 2]); 7] = [
        ("", b"gone\xff.txt", 1, ["gone\u{fffd}.txt: cannot read", "No such file"]),
        ("", b"gone\xff*", 2, ["gone\u{fffd}*: no such file", "name the files"]),
        ("", b"s3://bucket/\xff", 2, ["s3://bucket/\u{fffd}", "keys of objects are UTF-8"]),
        (
            "- --reference",
            b"umbel://127.0.0.1:1/f\xff",
            2,
            ["--reference umbel://127.0.0.1:1/f\u{fffd}:", "names of filters are UTF-8"],
        ),
        ("- --key", b"k\xff", 2, ["`--key k\u{fffd}` is not UTF-8", "Usage: umbel dedup"]),
        (
            "--cluster 127.0.0.1:1 -o /o/",
            b"/\xff",
            2,
            ["/\u{fffd}: what nodes", "name the directory"],
        ),
        (
            "--cluster 127.0.0.1:1 -o /o/",
            b"s3://b/\xff",
            2,
            ["s3://b/\u{fffd}: jobs", "no objects"],
        ),
    ];
    for (args, named, code, said) in cases {
        let output = sandbox.command(args).arg(OsStr::from_bytes(named)).output().unwrap();
        sandbox.ended(output).refused(code, &said);
    }
}

#[test]
fn letters_that_only_look_alike_differ() {
    let composed_or_not = "\u{e9}\ne\u{301}\n\u{e9}\n";
    assert_eq!(kept(&[composed_or_not.as_bytes()], ""), "\u{e9}\ne\u{301}\n".as_bytes());
    assert_eq!(kept(&[b"a\na \n A\na\n"], ""), b"a\na \n A\n");
}

#[test]
fn the_empty_line_is_a_record_like_any_other() {
    assert_eq!(kept(&[b"\n\na\n\n"], ""), b"\na\n");
    assert_eq!(kept(&[b"\n\na\n\n"], "--keep last"), b"a\n\n");
    assert_eq!(kept(&[b"\n"], ""), b"\n");
}

#[test]
fn a_last_line_without_line_end_stays_so_at_the_end() {
    assert_eq!(kept(&[b"a"], ""), b"a");
    assert_eq!(kept(&[b"a\nb"], "--workers 3"), b"a\nb");
    assert_eq!(kept(&[b"a\nb", b"b\n"], ""), b"a\nb");
}

#[test]
fn a_line_without_line_end_does_not_run_into_the_next_file() {
    assert_eq!(kept(&[b"a\nb", b"c\n", b"d"], ""), b"a\nb\nc\nd");
    assert_eq!(kept(&[b"a\nb", b"", b"c"], ""), b"a\nb\nc");
    assert_eq!(kept(&[b"a\nb", b"a\nb\n", b"c\n"], ""), b"a\nb\nc\n");
}

#[test]
fn a_line_without_line_end_equals_the_line_with_one() {
    assert_eq!(kept(&[b"a\nb\na"], ""), b"a\nb\n");
    assert_eq!(kept(&[b"a\nb\na"], "--keep last"), b"b\na");
    assert_eq!(kept(&[b"a\nb", b"b\na\n"], "--keep last"), b"b\na\n");
}

#[test]
fn a_line_far_longer_than_any_buffer_is_compared_whole() {
    let mut long = vec![b'x'; 30 << 20];
    long.push(b'\n');
    let mut other = long.clone();
    other[29 << 20] = b'y';
    let sandbox = Sandbox::with(&[
        ("once.txt", [&long[..], b"a\n"].concat()),
        ("again.txt", [b"a\n", &long[..], &other].concat()),
    ]);
    let expected = [&long[..], b"a\n", &other].concat();
    let kept = sandbox.run("once.txt again.txt --memory 64M --workers 8").kept();
    assert!(kept == expected, "{} bytes, not {}", kept.len(), expected.len());
}

/// Shared items that exceed a frame's payload make streams of several frames, whose order must be kept.
#[test]
fn long_lines_that_workers_share_are_compared_byte_by_byte() {
    let line = |number: u8| [vec![b'a' + number; 300_000], vec![b'\n']].concat();
    let lines: Vec<Vec<u8>> = (0..16).map(line).collect();
    let expected = lines.concat();
    let backwards: Vec<u8> = lines.into_iter().rev().flatten().collect();
    let files = [&expected[..], &backwards];
    for options in ["--workers 2", "--workers 2 --filter single-shot", "--workers 3"] {
        let kept = kept(&files, &format!("{options} --exactness bytes"));
        assert!(kept == expected, "{options}: {} bytes, not {}", kept.len(), expected.len());
    }
}
