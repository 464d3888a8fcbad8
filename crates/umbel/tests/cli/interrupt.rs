//! An interrupt ends a job at once in every phase, and leaves no partial output.

use crate::meanwhile::while_reporting;
use crate::model::unlike_lines;
use crate::sandbox::{Ran, Sandbox};
use crate::serve::{SERVE, umbel};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

/// The exit code of the shell for an interrupted process.
pub(crate) const INTERRUPTED: Option<i32> = Some(130);

pub(crate) fn send(signal: &str, process: u32) {
    let status = Command::new("kill").arg(signal).arg(process.to_string()).status().unwrap();
    assert!(status.success(), "kill failed");
}

#[test]
fn an_interrupt_ends_a_job_that_reads_standard_input() {
    // Where the tests run under `nohup`, commands ignore it, too.
    let hangup = (!mask_of(std::process::id(), "SigIgn").has(HUP)).then_some("-HUP");
    for signal in ["-INT", "-TERM"].into_iter().chain(hangup) {
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

/// Numbers of signals.
const HUP: u32 = 1;
const TERM: u32 = 15;

/// A set of signals.
struct Mask(u128);

impl Mask {
    fn has(&self, signal: u32) -> bool {
        self.0 >> (signal - 1) & 1 == 1
    }
}

/// One of the sets of signals of a process.
fn mask_of(process: u32, name: &str) -> Mask {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    Mask(u128::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap())
}

/// As under `nohup`.
#[test]
fn a_hangup_that_was_ignored_at_the_start_stays_so() {
    let sandbox = Sandbox::with(&[("a", "1\n")]);
    for (args, code) in [("reconcile --listen 127.0.0.1:0 a", INTERRUPTED), (SERVE, Some(0))] {
        let command = umbel(&sandbox, args);
        let mut ignoring = Command::new("/bin/sh");
        ignoring.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(command.get_program());
        ignoring.args(command.get_args()).current_dir(sandbox.path("")).env_clear();
        ignoring.env("UMBEL_LOG_LEVEL", "error").stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = ignoring.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("listening on ") {
            assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{args}: it ended: {said}");
        }
        let process = child.id();
        assert!(mask_of(process, "SigIgn").has(HUP) && !mask_of(process, "SigCgt").has(HUP));
        assert!(mask_of(process, "SigCgt").has(TERM), "{args}");
        send("-HUP", process);
        send("-TERM", process);
        std::io::copy(&mut stderr, &mut std::io::sink()).unwrap();
        assert_eq!(child.wait().unwrap().code(), code, "{args}");
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
    for output in ["out.txt", "out/", "out/deep/", "out.txt.gz"] {
        let sandbox = Sandbox::with(&[("a.txt", &repeats)]);
        let ran = interrupted_while_reporting(&sandbox, &format!("a.txt --output {output}"), "txt");
        assert_eq!(ran.code, INTERRUPTED, "{output}: {}", ran.stderr);
        assert_eq!(sandbox.files(), ["a.txt"], "{output}");
        assert!(!sandbox.exists("out"), "{output}");
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
