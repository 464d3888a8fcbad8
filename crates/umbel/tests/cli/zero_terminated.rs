//! `-z`: records that end with zero bytes, compared with the system's `sort -z`, and with lines after
//! both bytes are exchanged.

use crate::model::{Keep, by_line, lines};
use crate::sandbox::Sandbox;
use std::io::Write;
use std::process::{Command, Stdio};

/// The same bytes with zero bytes and line ends exchanged.
fn exchanged(bytes: &[u8]) -> Vec<u8> {
    let exchange = |byte: &u8| match byte {
        0 => b'\n',
        b'\n' => 0,
        other => *other,
    };
    bytes.iter().map(exchange).collect()
}

/// The output of `sort -zu` for these bytes.
fn sorted(bytes: &[u8]) -> Vec<u8> {
    let mut sort = Command::new("sort")
        .arg("-zu")
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = sort.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || pipe.write_all(bytes).unwrap());
        sort.wait_with_output().unwrap().stdout
    })
}

#[test]
fn what_stays_is_what_sort_has_once() {
    // More than a chunk of 1 MiB, so that records are divided at both ends of a span.
    let input = exchanged(&lines(5, 400_000));
    assert!(input.len() > 2 << 20, "{}", input.len());
    let sandbox = Sandbox::with(&[("a", &input)]);
    let expected = sorted(&input);
    for options in ["-z", "--zero-terminated --workers 5", "-z --exactness bytes", "-z --keep last"]
    {
        let kept = sandbox.run(&format!("a {options}")).kept();
        let records = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == 0).count();
        assert_eq!(records(&kept), records(&expected), "{options}");
        assert!(sorted(&kept) == expected, "{options}");
    }
}

#[test]
fn all_is_as_with_line_ends() {
    let texts = [lines(1, 300), b"a\nb\0\nend".to_vec(), lines(2, 50), b"a\n\nend\nlast".to_vec()];
    let names = ["in/a", "in/b.csv", "in/c", "in/d"];
    let files: Vec<(&str, Vec<u8>)> = names.into_iter().zip(texts).collect();
    let sandbox = Sandbox::new();
    files.iter().for_each(|(name, bytes)| sandbox.write(name, exchanged(bytes)));
    for (keep, option) in [(Keep::First, "first"), (Keep::Last, "last")] {
        let expected = by_line(&files, keep);
        let options = format!("-z --keep {option} --overwrite");
        let stream = sandbox.run(&format!("in {options} --duplicates d.jsonl")).kept();
        assert_eq!(exchanged(&stream), expected.stream(), "{option}");
        assert_eq!(sandbox.text("d.jsonl"), expected.report, "{option}");
        sandbox.run(&format!("in {options} --output out/ --workers 3")).kept();
        for ((name, _), kept) in files.iter().zip(&expected.files) {
            let out = sandbox.read(name.replace("in/", "out/"));
            assert_eq!(&exchanged(&out), kept, "{name}");
        }
    }
    let piped = sandbox.run_piped("-z --normalise lower", b"A\nb\0a\nB\0a\0").kept();
    assert_eq!(piped, b"A\nb\0a\0");
}

#[test]
fn programs_among_names_are_still_seen() {
    let sandbox = Sandbox::with(&[("in/names", &b"x\0\0y\0\0"[..]), ("in/tool", b"\x7fELF\0\0\0")]);
    sandbox.run("in -z").refused(2, &["in/tool", "ELF", "--binary"]);
    assert_eq!(sandbox.run("in -z --binary skip -q").kept(), b"x\0\0y\0");
}

#[test]
fn what_has_fields_is_refused() {
    let sandbox = Sandbox::with(&[("a.csv", "k\n1\n")]);
    for format in ["csv", "tsv", "jsonl", "parquet"] {
        sandbox.run(&format!("a.csv -z --format {format}")).refused(2, &["-z", "--format", format]);
    }
    sandbox.run("a.csv -z --key k").refused(2, &["-z", "--key"]);
    sandbox.run("a.csv -z --key k --granularity paragraph").refused(2, &["-z", "--key"]);
    sandbox.run("a.csv -z --keep best:k").refused(2, &["a.csv", "best:k"]);
    assert_eq!(sandbox.run("a.csv -z --format text").kept(), b"k\n1\n");
}
