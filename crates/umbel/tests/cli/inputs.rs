//! Sources of records: files in order, directories, globs, standard input.

use crate::model::unlike_lines;
use crate::sandbox::Sandbox;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;

/// Files that have few lines in common.
fn sandbox() -> Sandbox {
    Sandbox::with(&[
        ("d/b.txt", "b\nall\n"),
        ("d/B.txt", "B\nall\n"),
        ("d/sub/z.txt", "z\nall\n"),
        ("d/sub/a.log", "a\nall\n"),
        ("d/c.txt", "c\nall\n"),
    ])
}

#[test]
fn input_order_is_the_order_of_arguments() {
    let sandbox = Sandbox::with(&[("1.txt", "one\nboth\n"), ("2.txt", "both\ntwo\n")]);
    assert_eq!(sandbox.run("1.txt 2.txt").kept_text(), "one\nboth\ntwo\n");
    assert_eq!(sandbox.run("2.txt 1.txt").kept_text(), "both\ntwo\none\n");
    assert_eq!(sandbox.run("2.txt 1.txt --keep last").kept_text(), "two\none\nboth\n");
}

#[test]
fn a_directory_gives_all_files_below_it_by_the_bytes_of_their_paths() {
    for name in ["d", "d/", "./d"] {
        let kept = sandbox().run(&format!("{name} --workers 3")).kept_text();
        assert_eq!(kept, "B\nall\nb\nc\na\nz\n", "{name}");
    }
}

#[test]
fn a_glob_gives_its_matches_by_the_bytes_of_their_paths() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run("d/*.txt").kept_text(), "B\nall\nb\nc\n");
    assert_eq!(sandbox.run("d/**/*.txt").kept_text(), "B\nall\nb\nc\nz\n");
    assert_eq!(sandbox.run("d/[bc].txt d/sub/?.log").kept_text(), "b\nall\nc\na\n");
}

#[test]
fn a_file_that_is_called_like_a_glob_is_that_file() {
    let sandbox = Sandbox::with(&[("a[1].txt", "itself\n"), ("a1.txt", "other\n")]);
    assert_eq!(sandbox.run("a[1].txt").kept_text(), "itself\n");
}

#[test]
fn a_file_given_twice_is_dropped_the_second_time() {
    let sandbox = Sandbox::with(&[("a.txt", "x\ny\nx\n")]);
    assert_eq!(sandbox.run("a.txt a.txt --workers 2").kept_text(), "x\ny\n");
}

#[test]
fn an_empty_file_among_others_is_no_harm() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n"), ("empty.txt", ""), ("b.txt", "x\ny\n")]);
    assert_eq!(sandbox.run("empty.txt a.txt empty.txt b.txt").kept_text(), "x\ny\n");
}

#[test]
fn a_pipe_is_read_where_the_dash_stands() {
    let sandbox = Sandbox::with(&[("a.txt", "a\nx\n"), ("b.txt", "b\nx\n")]);
    assert_eq!(sandbox.run_piped("-", b"x\ny\nx\n").kept_text(), "x\ny\n");
    assert_eq!(sandbox.run_piped("a.txt - b.txt", b"x\ny\n").kept_text(), "a\nx\ny\nb\n");
    assert_eq!(sandbox.run_piped("- a.txt --workers 3", b"x\ny").kept_text(), "x\ny\na\n");
}

#[test]
fn a_pipe_larger_than_its_buffer_is_read_to_its_end() {
    let input: String = (0..100_000).map(|number| format!("{}\n", number % 60_000)).collect();
    let expected: String = (0..60_000).map(|number| format!("{number}\n")).collect();
    assert!(Sandbox::new().run_piped("-", input.as_bytes()).kept_text() == expected);
}

#[test]
fn a_pipe_with_a_name_is_read_like_standard_input() {
    assert_eq!(Sandbox::new().run_piped("/dev/stdin", b"x\nx\n").kept_text(), "x\n");
}

#[test]
fn standard_input_from_a_file_is_read_from_where_it_stands() {
    let sandbox = Sandbox::with(&[("a.txt", "x\ny\nx\n")]);
    for (offset, expected) in [(0, "x\ny\n"), (2, "y\nx\n")] {
        let mut file = File::open(sandbox.path("a.txt")).unwrap();
        file.seek(SeekFrom::Start(offset)).unwrap();
        let output = sandbox.command("-").stdin(file).output().unwrap();
        assert_eq!(sandbox.ended(output).kept_text(), expected, "from byte {offset}");
    }
}

#[test]
fn standard_input_given_twice_is_empty_the_second_time() {
    assert_eq!(Sandbox::new().run_piped("- -", b"x\ny\n").kept_text(), "x\ny\n");
}

#[test]
fn names_that_are_no_text_are_found_in_directories() {
    let sandbox = Sandbox::new();
    let name = std::path::Path::new("d").join(OsStr::from_bytes(b"a\xff.txt"));
    sandbox.write(&name, "x\nx\n");
    sandbox.run("d --output out/").kept();
    assert_eq!(sandbox.read(std::path::Path::new("out").join(name.file_name().unwrap())), b"x\n");
}

#[test]
fn names_with_blanks_and_line_ends_are_files_like_any_other() {
    let sandbox = Sandbox::with(&[("a b\n.txt", "x\nx\n")]);
    let output = sandbox.command("").arg("a b\n.txt").output().unwrap();
    assert_eq!(sandbox.ended(output).kept_text(), "x\n");
}

#[test]
fn a_file_that_changes_while_it_is_read_fails_the_job() {
    // Far more chunks than threads: the last one is read only after the first has been consumed.
    let sandbox = Sandbox::with(&[("a.txt", unlike_lines(1, 400_000))]);
    let mut child = sandbox.command("a.txt --workers 64 --filter wide").spawn().unwrap();
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut [0; 1]).unwrap();
    let mut file = OpenOptions::new().write(true).open(sandbox.path("a.txt")).unwrap();
    file.seek(SeekFrom::End(-2)).unwrap();
    file.write_all(b"x").unwrap();
    reader.read_to_end(&mut Vec::new()).unwrap();
    let ran = sandbox.ended(child.wait_with_output().unwrap());
    ran.refused(1, &["a.txt", "changed while it was read"]);
}

#[test]
fn standard_input_is_read_where_no_input_is_named() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run_piped("", b"b\na\nb\n").kept_text(), "b\na\n");
    assert_eq!(sandbox.run_piped("--normalize lower", b"A\na\n").kept_text(), "A\n");
    let worker = "--rank 0 --peers 127.0.0.1:1 --job-token-file token";
    sandbox.write_secret("token", "0123456789abcdef0123456789abcdef");
    sandbox.run_piped(worker, b"a\n").refused(2, &["name what this worker reads"]);
    sandbox.run("--cluster 127.0.0.1:1 --output out/").refused(2, &["--on NODE=GLOB"]);
}

#[test]
fn an_input_without_records_gives_an_output_without_records() {
    for workers in ["", "--workers 3", "--exactness bytes", "--exactness approximate --workers 2"] {
        let sandbox = Sandbox::with(&[("a.txt", ""), ("b.csv", "id,x\n"), ("c.jsonl", "")]);
        assert_eq!(sandbox.run_piped(workers, b"").kept_text(), "", "{workers}");
        assert_eq!(sandbox.run(&format!("b.csv --key id {workers}")).kept_text(), "id,x\n");
        let all = "a.txt b.csv c.jsonl --output out/ --duplicates d --groups g --summary s";
        sandbox.run(&format!("{all} {workers}")).kept();
        assert_eq!(sandbox.text("out/a.txt") + &sandbox.text("out/b.csv"), "id,x\n");
        assert_eq!(sandbox.text("d") + &sandbox.text("g") + &sandbox.text("out/c.jsonl"), "");
        let annotated = sandbox.run(&format!("c.jsonl --key id --annotate - {workers}"));
        assert_eq!(annotated.kept_text(), "");
    }
}
