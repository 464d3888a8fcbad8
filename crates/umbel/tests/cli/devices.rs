//! Outputs that are devices, pipes, or names of open files: written directly or refused, and never replaced. The
//! tests make them in their own folders.

use crate::sandbox::Sandbox;
use crate::serve::{run, umbel};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::Command;

fn make_pipe(sandbox: &Sandbox, name: &str) {
    assert!(Command::new("mkfifo").arg(sandbox.path(name)).status().unwrap().success());
}

#[test]
fn a_pipe_is_refused_where_a_file_is_not_written_from_first_to_last() {
    let sandbox = Sandbox::with(&[("a", "1\n2\n")]);
    make_pipe(&sandbox, "pipe");
    symlink("pipe", sandbox.path("link")).unwrap();
    for command in ["static build", "index build"] {
        for output in ["pipe", "link", "pipe --overwrite", "link --overwrite"] {
            let said = [&output[..4], ": a device or pipe, expected a file"].concat();
            run(&sandbox, &format!("{command} a -o {output}")).refused(2, &[&said]);
            assert!(sandbox.path("pipe").symlink_metadata().unwrap().file_type().is_fifo());
            assert!(sandbox.path("link").is_symlink(), "{command} {output}");
        }
    }
    assert_eq!(sandbox.files(), ["a", "link", "pipe"]);
}

/// Also where a file of that name is there: what `-` means does not depend on that.
#[test]
fn a_dash_is_refused_where_a_file_is_needed() {
    for is_there in [false, true] {
        let sandbox = Sandbox::with(&[("a", "1\n2\n"), ("./-", "3\n")]);
        if !is_there {
            std::fs::remove_file(sandbox.path("-")).unwrap();
        }
        let files = sandbox.files();
        for (args, said) in [
            ("static build a --overwrite -o -", "--output -: standard output, expected a file"),
            ("index build a --overwrite -o -", "--output -: standard output, expected a file"),
            ("index merge a --overwrite -o -", "--output -: standard output, expected a file"),
            ("index build - -o f.umbx", "-: standard input, expected a file; ./- is a file"),
            ("reconcile a - --push", "-: standard input is no set"),
            ("reconcile - a --two-way", "-: standard input is no set"),
            ("reconcile --dir - a --pull", "-: standard input is no set"),
            ("reconcile --stdio - --writable", "-: standard input is no set"),
            ("reconcile a exec:true --resume -", "--resume -: standard output, expected a file"),
            ("reconcile a exec:true --sketch -", "--sketch -: standard input, expected a file"),
        ] {
            run(&sandbox, args).refused(2, &[said]);
            assert_eq!(sandbox.files(), files, "{args}");
        }
        run(&sandbox, "static build a -o ./- --overwrite --quiet").kept();
        assert_eq!(sandbox.files(), ["-", "a"]);
    }
}

#[test]
fn a_sketch_is_written_into_a_pipe() {
    let sandbox = Sandbox::with(&[("a", "1\n2\n")]);
    make_pipe(&sandbox, "pipe");
    let build = "sketch build a --differences 5 --salt 000102030405060708090a0b0c0d0e0f -o";
    run(&sandbox, &format!("{build} file")).kept();
    let expected = sandbox.read("file");
    // Open for both, so that neither side waits for the other: the sketch fits in the pipe.
    let mut pipe = OpenOptions::new().read(true).write(true).open(sandbox.path("pipe")).unwrap();
    for overwrite in ["", "--overwrite"] {
        run(&sandbox, &format!("{build} pipe {overwrite}")).kept();
        assert!(sandbox.path("pipe").symlink_metadata().unwrap().file_type().is_fifo());
        let mut written = vec![0; expected.len()];
        pipe.read_exact(&mut written).unwrap();
        assert!(written == expected, "{overwrite}");
    }
}

/// `link` is to standard output what `/dev/stdout` is.
#[test]
fn a_link_to_standard_output_is_written_directly_also_if_that_is_a_file() {
    let target = Path::new("/proc/self/fd/1");
    for (args, code) in [
        ("reconcile a b -q --report link", 1),
        ("reconcile a b -q --report-html link", 1),
        ("dedup a -o kept -q --summary link", 0),
        ("dedup a -o kept -q --report link", 0),
        ("dedup a -o kept -q --overwrite --summary link", 0),
        ("dedup a -o kept -q --overwrite --report link", 0),
        ("dedup a -o kept -q --overwrite --save-index link", 0),
        ("dedup a -o link -q --overwrite", 0),
        ("sketch build a --differences 5 --overwrite -o link", 0),
    ] {
        let sandbox = Sandbox::with(&[("a", "1\n2\n1\n"), ("b", "1\n3\n"), ("out", "before\n")]);
        symlink(target, sandbox.path("link")).unwrap();
        let out = OpenOptions::new().append(true).open(sandbox.path("out")).unwrap();
        let ran = sandbox.ended(umbel(&sandbox, args).stdout(out).output().unwrap());
        ran.ended_with(code);
        assert_eq!(std::fs::read_link(sandbox.path("link")).unwrap(), target, "{args}");
        let written = sandbox.read("out");
        assert!(written.len() > 7 && written.starts_with(b"before\n"), "{args}");
    }
}

/// Its file is also that of standard error, and neither is opened for appending, as with `> out 2>&1`.
#[test]
fn a_link_to_standard_output_is_written_where_that_stands() {
    let sandbox = Sandbox::with(&[("a", "1\n2\n1\n")]);
    symlink("/proc/self/fd/1", sandbox.path("link")).unwrap();
    let out = File::create(sandbox.path("out")).unwrap();
    let command = &mut umbel(&sandbox, "dedup a -o link --overwrite");
    let both = command.stdout(out.try_clone().unwrap()).stderr(out);
    assert!(both.status().unwrap().success());
    let written = sandbox.text("out");
    assert!(written.starts_with("1\n2\n") && written.len() > 4, "{written}");
}

#[test]
fn an_input_is_not_written_through_a_link_to_standard_output() {
    for args in ["-o link", "-o link --overwrite", "-o kept --summary link"] {
        let sandbox = Sandbox::with(&[("a", "1\n1\n")]);
        symlink("/proc/self/fd/1", sandbox.path("link")).unwrap();
        let out = OpenOptions::new().append(true).open(sandbox.path("a")).unwrap();
        let command = &mut umbel(&sandbox, &format!("dedup a {args}"));
        sandbox.ended(command.stdout(out).output().unwrap()).refused(2, &["link", "input"]);
        assert_eq!(sandbox.text("a"), "1\n1\n", "{args}");
        assert!(sandbox.path("link").is_symlink(), "{args}");
    }
}
