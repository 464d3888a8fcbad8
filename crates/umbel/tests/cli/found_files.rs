//! Files that were found in directories: the job's own outputs, unreadable files, and files that are not
//! text.

use crate::packed::gzip;
use crate::sandbox::Sandbox;
use std::os::unix::fs::symlink;

#[test]
fn an_output_directory_inside_of_the_input_is_left_out() {
    let sandbox = Sandbox::with(&[("d/a", "x\ny\nx\n"), ("d/sub/b", "y\nz\n")]);
    sandbox.run("d -o d/out/ --quiet").kept();
    let first = [sandbox.text("d/out/a"), sandbox.text("d/out/sub/b")];
    assert_eq!(first, ["x\ny\n", "z\n"]);
    for args in ["d", "d/", "./d", "d/* d/sub", "d/**/*"] {
        let ran = sandbox.run(&format!("{args} -o d/out --overwrite"));
        let again = [sandbox.text("d/out/a"), sandbox.text("d/out/sub/b")];
        assert_eq!(again, first, "{args}");
        let says = ran.stderr.contains("d/out is inside of the input");
        assert_eq!(says, !args.contains("sub"), "{args}: {}", ran.stderr);
        ran.kept();
        assert!(!sandbox.exists("d/out/out"), "{args}");
    }
    // The shell expands d/* to these names: the user decides where they go.
    sandbox.run("d/a d/out d/sub -o d/out --overwrite").refused(2, &["d/out", "leave it out"]);
    std::fs::rename(sandbox.path("d/out"), sandbox.path("d/moved")).unwrap();
    symlink("moved", sandbox.path("d/out")).unwrap();
    sandbox.run("d -o d/out --overwrite --quiet").kept();
    assert_eq!(sandbox.text("d/moved/sub/b"), "z\n");
    assert!(!sandbox.exists("d/moved/moved"));
}

#[test]
fn a_job_in_place_reads_its_directory() {
    let sandbox = Sandbox::with(&[("d/a", "x\ny\nx\n"), ("d/sub/b", "y\nz\n")]);
    sandbox.run("d -o d --overwrite").kept();
    assert_eq!([sandbox.text("d/a"), sandbox.text("d/sub/b")], ["x\ny\n", "z\n"]);
    let all = "d/* d/*/* -o d --overwrite";
    sandbox.run(all).kept();
    assert_eq!(sandbox.files(), ["d/a", "d/sub/b"]);
}

#[test]
fn a_link_that_leads_nowhere_is_named_or_listed_as_bad() {
    let sandbox = Sandbox::with(&[("d/a", "x\ny\nx\n"), ("d/z", "y\nz\n")]);
    symlink("../gone", sandbox.path("d/m")).unwrap();
    symlink("loop", sandbox.path("d/loop")).unwrap();
    for args in ["d", "d/*"] {
        sandbox.run(&format!("{args} -o out/")).refused(
            1,
            &["d/loop: cannot read: a link to loop: ", "; --skip-bad leaves such files out\n"],
        );
        let ran = sandbox.run(&format!("{args} -o out/ --skip-bad --overwrite"));
        ran.ended_with(3);
        assert_eq!([sandbox.text("out/a"), sandbox.text("out/z")], ["x\ny\n", "z\n"]);
        let bad = sandbox.text("out/bad.jsonl");
        assert_eq!(bad.lines().count(), 2, "{bad}");
        assert!(bad.contains("\"cause\":\"io\"") && bad.contains("a link to ../gone"), "{bad}");
        assert!(!sandbox.exists("out/m") && !sandbox.exists("out/loop"), "{args}");
        assert_eq!(sandbox.run(&format!("{args} --skip-bad")).ended_with(3), b"x\ny\nz\n");
        sandbox.run(&format!("{args} --skip-bad=1")).refused(1, &["d/loop"]);
    }
    // In place, they do not change.
    sandbox.run("d -o d --overwrite --skip-bad --bad list").ended_with(3);
    assert_eq!([sandbox.text("d/a"), sandbox.text("d/z")], ["x\ny\n", "z\n"]);
    assert!(sandbox.path("d/m").is_symlink() && sandbox.path("d/loop").is_symlink());
    // With any comparison, and beside any other files.
    sandbox.write("t/a.csv", "id,v\n1,a\n1,b\n");
    symlink("gone", sandbox.path("t/b.csv")).unwrap();
    for args in ["--key id", "--granularity file", "--granularity record", "--keep best:v --key id"]
    {
        let kept = sandbox.run(&format!("t {args} --skip-bad")).ended_with(3);
        assert!(kept.starts_with(b"id,v\n1,"), "{args}");
    }
    // A named file that cannot be read is an error, not a bad record.
    sandbox.run("d/m --skip-bad").refused(1, &["d/m"]);
}

/// Names, contents, and what is reported about them.
fn binaries() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    vec![
        ("d/n.png", b"\x89PNG\r\n\x1a\n\0\0\nx\nx\n".to_vec(), "PNG"),
        ("d/n.csv", utf16("a,b\n1,2\n1,2\n"), "UTF-16"),
        ("d/n.jsonl", utf16("\u{feff}{}\n{}\n"), "UTF-16"),
        ("d/n", b"\x7fELF\x02\n\n".to_vec(), "ELF"),
        ("d/n.bin", [&[0, 0, 1, 0][..], b"\n\n\n"].concat(), "zero bytes"),
        ("d/n.tar.gz", gzip(&[&[b'n'; 257][..], b"ustar", b"\n\n"].concat()), "tar"),
    ]
}

#[test]
fn what_is_no_text_is_refused_where_it_was_found_and_read_where_it_was_named() {
    for (name, bytes, said) in binaries() {
        let sandbox = Sandbox::with(&[(name, bytes), ("d/a", b"x\ny\nx\n".to_vec())]);
        for args in ["d", "d/*", "d/a d/n*"] {
            sandbox.run(args).refused(2, &[name, said, "--binary"]);
        }
        if !name.contains(['c', 'j']) {
            sandbox.run(name).kept();
            sandbox.run("d --binary text").kept();
        }
        assert_eq!(sandbox.run("d --binary skip").kept_text(), "x\ny\n", "{name}");
        sandbox.run("d --granularity file").kept();
    }
}

#[test]
fn what_is_no_text_is_copied_byte_for_byte() {
    for (name, bytes, _) in binaries() {
        let sandbox = Sandbox::with(&[(name, bytes.clone()), ("d/z", b"x\ny\nx\n".to_vec())]);
        sandbox.run("d --binary copy -o out/").kept();
        assert_eq!(sandbox.read(name.replacen('d', "out", 1)), bytes, "{name}");
        assert_eq!(sandbox.text("out/z"), "x\ny\n");
        sandbox.run("d --binary copy -o d --overwrite").kept();
        assert!(sandbox.read(name) == bytes && sandbox.text("d/z") == "x\ny\n", "{name}");
        sandbox.run("d --binary copy").refused(2, &["--output DIR/"]);
    }
}

#[test]
fn a_few_zero_bytes_and_any_other_byte_are_text() {
    let text = [&b"a\xff\0b\n"[..], &b"all the rest of it\n".repeat(9)].concat();
    let sandbox = Sandbox::with(&[("d/a", &text)]);
    assert_eq!(sandbox.run("d").kept(), &text[..24]);
}
