//! An interrupt ends a job at once in every phase, and leaves no partial output.

use crate::meanwhile::while_reporting;
use crate::model::unlike_lines;
use crate::sandbox::{Ran, Sandbox};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// The exit code of the shell for an interrupted process.
pub(crate) const INTERRUPTED: Option<i32> = Some(130);

pub(crate) fn send(signal: &str, process: u32) {
    let status = Command::new("kill").arg(signal).arg(process.to_string()).status().unwrap();
    assert!(status.success(), "kill failed");
}

#[test]
fn an_interrupt_ends_a_job_that_reads_standard_input() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let sandbox = Sandbox::with(&[("out.txt", "old")]);
        let mut child = sandbox
            .command("- --output out.txt --overwrite --duplicates d.jsonl")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        // This does not fit in the pipe, so once it is written, the job is reading.
        pipe.write_all(&unlike_lines(1, 30_000)).unwrap();
        send(signal, child.id());
        let ran = sandbox.ended(child.wait_with_output().unwrap());
        drop(pipe);
        assert_eq!((ran.code, &ran.stdout[..]), (INTERRUPTED, &b""[..]), "{signal}");
        assert_eq!(sandbox.files(), ["out.txt"]);
        assert_eq!(sandbox.text("out.txt"), "old");
    }
}

/// Interrupts a job that writes its report into a named pipe without a reader, after it has written its
/// other output to a temporary file.
fn interrupted_while_reporting(sandbox: &Sandbox, args: &str, aside: &str) -> Ran {
    let (ran, was_aside) = while_reporting(sandbox, args, false, |process| {
        let was_aside = sandbox.files().iter().any(|name| {
            name.contains(aside) && name.ends_with(".partial") && !sandbox.read(name).is_empty()
        });
        send("-INT", process);
        was_aside
    });
    assert!(was_aside, "no output was written aside");
    ran
}

#[test]
fn an_interrupt_while_outputs_are_written_leaves_none_of_them() {
    // The report does not fit in a pipe.
    let repeats = unlike_lines(1, 2000).repeat(2);
    for output in ["out.txt", "out/", "out.txt.gz"] {
        let sandbox = Sandbox::with(&[("a.txt", &repeats)]);
        let ran = interrupted_while_reporting(&sandbox, &format!("a.txt --output {output}"), "txt");
        assert_eq!(ran.code, INTERRUPTED, "{output}: {}", ran.stderr);
        assert_eq!(sandbox.files(), ["a.txt"], "{output}");
    }
}

#[test]
fn an_interrupt_while_outputs_are_replaced_leaves_the_old_ones() {
    let repeats = unlike_lines(1, 2000).repeat(2);
    let sandbox = Sandbox::with(&[("a.txt", &repeats[..]), ("out.txt", b"old")]);
    let ran =
        interrupted_while_reporting(&sandbox, "a.txt --output out.txt --overwrite", "out.txt");
    assert_eq!(ran.code, INTERRUPTED, "{}", ran.stderr);
    assert_eq!(sandbox.files(), ["a.txt", "out.txt"]);
    assert_eq!(sandbox.text("out.txt"), "old");
}

#[test]
fn an_interrupt_ends_a_job_whose_standard_output_is_not_read() {
    let sandbox = Sandbox::with(&[("a.txt", unlike_lines(1, 30_000))]);
    let mut child = sandbox.command("a.txt --duplicates d.jsonl --summary s.json").spawn().unwrap();
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut [0; 1]).unwrap();
    send("-INT", child.id());
    let ran = sandbox.ended(child.wait_with_output().unwrap());
    drop(reader);
    assert_eq!((ran.code, &ran.stderr[..]), (INTERRUPTED, ""));
    assert_eq!(sandbox.files(), ["a.txt"]);
}
