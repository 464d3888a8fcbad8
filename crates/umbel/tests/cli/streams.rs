//! Closed or full standard streams, and full disks.

use crate::model::unlike_lines;
use crate::sandbox::Sandbox;
use std::fs::OpenOptions;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A pipe without a reader.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full_device() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    // This does not fit in a pipe, so the writer is not done before the reader is gone.
    let sandbox = Sandbox::with(&[("a.txt", unlike_lines(1, 30_000))]);
    for workers in [1, 3] {
        let mut child = sandbox.command(&format!("a.txt --workers {workers}")).spawn().unwrap();
        let mut reader = child.stdout.take().unwrap();
        reader.read_exact(&mut [0; 100]).unwrap();
        drop(reader);
        let ran = sandbox.ended(child.wait_with_output().unwrap());
        assert_eq!((ran.code, &ran.stderr[..]), (Some(0), ""));
    }
}

/// Asserts that a job without a reader of its standard output succeeds silently.
fn ends_quietly_without_reader(args: &str) {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n")]);
    let output = sandbox.command(args).stdout(closed_pipe()).output().unwrap();
    let ran = sandbox.ended(output);
    assert_eq!((ran.code, &ran.stderr[..]), (Some(0), ""), "{args}");
}

#[test]
fn a_reader_that_was_never_there_is_no_error() {
    ends_quietly_without_reader("a.txt");
    ends_quietly_without_reader("a.txt --output /dev/null --summary -");
    ends_quietly_without_reader("--help");
}

#[test]
fn a_plan_that_nobody_reads_is_no_error() {
    ends_quietly_without_reader("a.txt --plan");
}

#[test]
fn a_reader_that_leaves_early_does_not_cost_the_other_outputs() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n")]);
    let mut command = sandbox.command("a.txt --duplicates d.jsonl --summary s.json");
    let ran = sandbox.ended(command.stdout(closed_pipe()).output().unwrap());
    // Either the job reports a failure, or all outputs are there.
    let done = sandbox.exists("d.jsonl") && sandbox.exists("s.json");
    assert!(done || ran.code == Some(1), "exit code {:?}: {}", ran.code, ran.stderr);
}

/// Asserts that a job whose report nobody reads has all other outputs.
fn keeps_the_other_outputs(report: &str, code: i32) {
    let bad = "{\"k\":1}\nx\n{\"k\":1}\n";
    let sandbox = Sandbox::with(&[("a.jsonl", bad)]);
    let others = ["groups", "duplicates", "bad", "summary"];
    let others: Vec<_> = others.iter().filter(|other| !report.contains(*other)).collect();
    let named: Vec<String> = others.iter().map(|other| format!("--{other} {other}")).collect();
    let args = format!("a.jsonl --key k --skip-bad -o out {report} - {}", named.join(" "));
    let output = sandbox.command(&args).stdout(closed_pipe()).output().unwrap();
    let ran = sandbox.ended(output);
    assert_eq!((ran.code, &ran.stderr[..]), (Some(code), ""), "{args}");
    assert_eq!(sandbox.text("out"), "{\"k\":1}\n", "{args}");
    others.iter().for_each(|other| assert!(sandbox.exists(other), "{args}: {other}"));
}

#[test]
fn a_report_that_nobody_reads_does_not_cost_the_other_outputs() {
    for report in ["--summary", "--duplicates", "--groups", "--bad"] {
        keeps_the_other_outputs(report, 3);
    }
}

#[test]
fn annotations_that_nobody_reads_do_not_cost_the_reports() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n")]);
    let mut command = sandbox.command("a.txt --annotate - --groups g --summary s");
    let ran = sandbox.ended(command.stdout(closed_pipe()).output().unwrap());
    assert_eq!((ran.code, &ran.stderr[..]), (Some(0), ""));
    assert!(sandbox.exists("g") && sandbox.exists("s"));
}

/// A named pipe whose reader leaves is treated as standard output is.
#[test]
fn a_named_pipe_that_is_closed_does_not_cost_the_other_outputs() {
    // The report does not fit in a pipe.
    let sandbox = Sandbox::with(&[("a.txt", unlike_lines(1, 2000).repeat(2))]);
    let pipe = sandbox.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = sandbox.command("a.txt --duplicates pipe -o out --summary s").spawn().unwrap();
    std::fs::File::open(&pipe).unwrap().read_exact(&mut [0; 1]).unwrap();
    sandbox.ended(child.wait_with_output().unwrap()).kept();
    assert_eq!(sandbox.read("out"), unlike_lines(1, 2000));
    assert!(sandbox.exists("s"));
}

/// An index of records that nobody got would make later jobs drop them.
#[test]
fn records_that_nobody_got_are_in_no_index() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n"), ("b.txt", "y\n")]);
    sandbox.run("b.txt --save-index seen -q").kept();
    let before = sandbox.read("seen");
    for (index, said) in [
        ("--save-index new", "--save-index new"),
        ("--reference seen --save-index seen", "--save-index seen"),
        ("--save-index new --annotate -", "--save-index new"),
    ] {
        let mut command = sandbox.command(&format!("a.txt {index} --summary s"));
        let ran = sandbox.ended(command.stdout(closed_pipe()).output().unwrap());
        ran.refused(1, &["has closed", said, "run the job again"]);
        assert_eq!(sandbox.files(), ["a.txt", "b.txt", "seen"], "{index}");
        assert_eq!(sandbox.read("seen"), before);
    }
}

/// An index that goes to a reader who leaves is not saved, which is a failure.
#[test]
fn an_index_that_nobody_reads_fails_the_job() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n")]);
    let mut command = sandbox.command("a.txt --save-index - -o out");
    let ran = sandbox.ended(command.stdout(closed_pipe()).output().unwrap());
    ran.refused(1, &["standard output", "closed"]);
    assert_eq!(sandbox.files(), ["a.txt"]);
}

#[test]
fn nobody_listening_on_standard_error_changes_nothing() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n"), ("bad.jsonl", "{\"k\":1}\nx\n")]);
    for (args, code, kept) in [
        ("a.txt", 0, "x\n"),
        ("bad.jsonl --key k --skip-bad", 3, "{\"k\":1}\n"),
        ("gone.txt", 1, ""),
        ("*.nothing", 2, ""),
    ] {
        for (stderr, how) in [(closed_pipe(), "closed"), (full_device(), "full")] {
            let output = sandbox.command(args).stderr(stderr).output().unwrap();
            assert_eq!(
                (output.status.code(), output.stdout),
                (Some(code), kept.into()),
                "{args}: {how}"
            );
        }
    }
}

/// Asserts that a job fails if standard output is a full device.
fn fails_on_full_standard_output(args: &str) {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n")]);
    let output = sandbox.command(args).stdout(full_device()).output().unwrap();
    sandbox.ended(output).refused(1, &["standard output", "No space left"]);
}

#[test]
fn a_full_standard_output_fails_the_job() {
    fails_on_full_standard_output("a.txt");
    fails_on_full_standard_output("a.txt --output /dev/null --summary -");
}

#[test]
fn a_full_standard_output_fails_the_plan() {
    fails_on_full_standard_output("a.txt --plan");
}

#[test]
fn a_full_output_fails_the_job_and_is_named() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n")]);
    for option in ["--output", "--output /dev/null --duplicates", "--output /dev/null --summary"] {
        sandbox.run(&format!("a.txt {option} /dev/full")).refused(
            1,
            &["/dev/full: cannot write; what was written there is not complete: No space left"],
        );
    }
}

/// A file system of 1 MiB, which is unmounted on drop.
struct TinyDisk {
    path: PathBuf,
}

impl TinyDisk {
    /// None if this process may not mount.
    fn mount(path: PathBuf) -> Option<Self> {
        std::fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&path);
        let mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        mounted.then_some(Self { path })
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).status();
    }
}

#[test]
fn a_disk_that_fills_up_keeps_nothing_that_looks_finished() {
    let sandbox = Sandbox::with(&[
        ("in/a.txt", unlike_lines(1, 10_000)),
        ("in/b.txt", unlike_lines(2, 40_000)),
        ("in/c.txt", unlike_lines(3, 40_000)),
    ]);
    let Some(_disk) = TinyDisk::mount(sandbox.path("disk")) else {
        println!("skipped: mount needs root");
        return;
    };
    let files = sandbox.files();
    for output in ["disk/out/", "disk/out.txt", "disk/out.txt.gz", "disk/out.txt.zst"] {
        let ran = sandbox.run(&format!("in --output {output} --summary disk/s.json"));
        ran.refused(1, &["disk/out", "No space left"]);
        assert_eq!(sandbox.files(), files, "{output}");
    }
}

#[test]
fn a_scratch_disk_that_fills_up_fails_the_job_and_is_named() {
    let sandbox = Sandbox::new();
    let Some(_disk) = TinyDisk::mount(sandbox.path("disk")) else {
        println!("skipped: mount needs root");
        return;
    };
    let ran = sandbox.run_piped("- --scratch disk --output out.txt", &unlike_lines(1, 50_000));
    ran.refused(1, &["disk", "No space left"]);
    assert_eq!(sandbox.files(), [""; 0]);
}
