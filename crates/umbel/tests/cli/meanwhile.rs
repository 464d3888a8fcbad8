//! What others do to the files of a job while it runs: it is found before any output gets its name.

use crate::model::unlike_lines;
use crate::sandbox::{Ran, Sandbox};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::Command;

/// Records of which half are repeats. Their report does not fit in a pipe, so a job whose report is not
/// read waits, after it has read its inputs for the last time and before it commits.
fn repeats() -> Vec<u8> {
    unlike_lines(1, 2000).repeat(2)
}

/// Runs a job, and calls `act` with the process while it writes a report that does not fit in a pipe: after its last
/// reading, and before its commit. The rest of the report is read if `reads`.
pub(crate) fn while_reporting<T>(
    sandbox: &Sandbox,
    args: &str,
    reads: bool,
    act: impl FnOnce(u32) -> T,
) -> (Ran, T) {
    let pipe = sandbox.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = sandbox.command(&format!("{args} --duplicates pipe")).spawn().unwrap();
    let process = child.id();
    let (output, acted) = std::thread::scope(|scope| {
        let ending = scope.spawn(|| {
            let output = child.wait_with_output().unwrap();
            // If the job ended without opening the pipe, this lets the other thread open it.
            drop(OpenOptions::new().read(true).write(true).open(&pipe).unwrap());
            output
        });
        let mut reader = File::open(&pipe).unwrap();
        let began = reader.read(&mut [0; 1]).unwrap() == 1;
        let acted = began.then(|| act(process));
        if reads {
            reader.read_to_end(&mut Vec::new()).unwrap();
        }
        (ending.join().unwrap(), acted)
    });
    std::fs::remove_file(&pipe).unwrap();
    let ran = sandbox.ended(output);
    assert!(acted.is_some(), "the job ended first: {}", ran.stderr);
    (ran, acted.unwrap())
}

/// Runs a job, and calls `act` after its last reading and before its commit.
fn run_meanwhile(sandbox: &Sandbox, args: &str, act: impl FnOnce()) -> Ran {
    while_reporting(sandbox, args, true, |_| act()).0
}

fn append(sandbox: &Sandbox, name: &str) {
    let mut file = OpenOptions::new().append(true).open(sandbox.path(name)).unwrap();
    file.write_all(b"late\n").unwrap();
}

#[test]
fn lines_that_are_appended_to_an_input_end_the_job_and_stay() {
    for output in ["--in-place", "--output out.txt", "--output out/deep/", "--workers 3 --in-place"]
    {
        let sandbox = Sandbox::with(&[("a.txt", repeats()), ("b.txt", repeats())]);
        let ran =
            run_meanwhile(&sandbox, &format!("a.txt b.txt {output}"), || append(&sandbox, "b.txt"));
        ran.refused(1, &["b.txt: the file was changed while it was read; run the job again"]);
        assert_eq!(sandbox.files(), ["a.txt", "b.txt"], "{output}");
        assert!(!sandbox.exists("out"), "{output}");
        assert_eq!(sandbox.read("a.txt"), repeats(), "{output}");
        assert_eq!(sandbox.read("b.txt"), [&repeats()[..], b"late\n"].concat(), "{output}");
    }
}

#[test]
fn an_input_that_is_replaced_ends_the_job() {
    let sandbox = Sandbox::with(&[("a.txt", repeats()), ("new", repeats())]);
    let ran = run_meanwhile(&sandbox, "a.txt --in-place", || {
        std::fs::rename(sandbox.path("new"), sandbox.path("a.txt")).unwrap();
    });
    ran.refused(1, &["a.txt: the file was changed"]);
    assert_eq!(sandbox.read("a.txt"), repeats());
}

#[test]
fn an_output_that_others_make_meanwhile_is_refused_and_left_alone() {
    for (option, file) in
        [("--output out.txt", "out.txt"), ("--output out/", "out/a.txt"), ("-o k --groups g", "g")]
    {
        let sandbox = Sandbox::with(&[("a.txt", repeats())]);
        let args = format!("a.txt {option} --summary s.json");
        let ran = run_meanwhile(&sandbox, &args, || sandbox.write(file, "theirs"));
        ran.refused(2, &[file, "exists: --overwrite replaces it"]);
        assert_eq!((sandbox.text(file), sandbox.exists("s.json")), ("theirs".into(), false));
    }
}

/// Of two jobs that update one index, the later one would undo what the earlier one has put there.
#[test]
fn an_index_that_another_job_is_replacing_is_not_updated() {
    let sandbox = Sandbox::with(&[("old", "x\n"), ("new", "x\ny\n")]);
    sandbox.run("old --save-index seen --output none --quiet").kept();
    let before = sandbox.read("seen");
    let update = "new --reference seen --save-index seen --output kept --quiet";
    let other = File::open(sandbox.path("seen")).unwrap();
    other.lock().unwrap();
    sandbox.run(update).refused(1, &["seen: another process has locked this index", "run the job"]);
    assert!(!sandbox.exists("kept") && sandbox.read("seen") == before);
    other.unlock().unwrap();
    sandbox.run(update).kept();
    assert_eq!(sandbox.text("kept"), "y\n");
}

#[test]
fn an_output_that_others_make_meanwhile_is_replaced_if_asked_for() {
    let sandbox = Sandbox::with(&[("a.txt", repeats())]);
    let ran = run_meanwhile(&sandbox, "a.txt --output out.txt --overwrite", || {
        sandbox.write("out.txt", "theirs");
    });
    ran.kept();
    assert_eq!(sandbox.read("out.txt"), unlike_lines(1, 2000));
}

/// A dangling link is no file that a job could replace by mistake: it is replaced, as ever.
#[test]
fn a_link_to_nothing_is_replaced_by_an_output() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n")]);
    std::os::unix::fs::symlink("nothing", sandbox.path("out.txt")).unwrap();
    sandbox.run("a.txt --output out.txt --quiet").kept();
    assert!(!sandbox.path("out.txt").is_symlink() && sandbox.text("out.txt") == "x\n");
}
