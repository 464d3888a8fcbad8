//! `--in-place`: each file is replaced by its kept records, compared with the naive model.

use crate::model::{Draws, Keep, by_line, lines};
use crate::packed::gzip;
use crate::sandbox::Sandbox;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

fn inode(sandbox: &Sandbox, name: &str) -> u64 {
    std::fs::metadata(sandbox.path(name)).unwrap().ino()
}

#[test]
fn files_here_and_there_are_what_the_model_leaves_of_them() {
    let mut draws = Draws(9);
    for round in 0..12 {
        let names = ["a", "b.txt", "d/a", "d/e/c", "other/x"];
        let files: Vec<(&str, Vec<u8>)> = names
            .iter()
            .map(|name| (*name, lines(draws.next() % 5, 1 + draws.below(200))))
            .collect();
        let (keep, option) = [(Keep::First, "first"), (Keep::Last, "last")][round % 2];
        let sandbox = Sandbox::with(&files);
        let mode = |name: &str| 0o600 + u32::try_from(name.len() % 4).unwrap() * 0o011;
        for name in names {
            let mode = std::fs::Permissions::from_mode(mode(name));
            std::fs::set_permissions(sandbox.path(name), mode).unwrap();
        }
        let args =
            format!("a b.txt d other/x --in-place --keep {option} --workers {}", 1 + round % 3);
        assert_eq!(sandbox.run(&args).kept_text(), "");
        assert_eq!(sandbox.files(), names);
        for ((name, _), kept) in files.iter().zip(&by_line(&files, keep).files) {
            assert!(sandbox.read(name) == *kept, "{name} in round {round}");
            let now = std::fs::metadata(sandbox.path(name)).unwrap().permissions().mode();
            assert_eq!(now & 0o777, mode(name), "{name}");
        }
    }
}

#[test]
fn more_files_than_may_be_open_are_replaced_too() {
    let sandbox = Sandbox::new();
    for number in 0..1500 {
        sandbox.write(format!("in/{}/{number}", number % 7), format!("{}\nall\n", number / 2));
    }
    let mut command = Command::new("sh");
    let script = "ulimit -n 200; exec \"$0\" dedup in --in-place -q";
    let run =
        command.args(["-c", script, env!("CARGO_BIN_EXE_umbel")]).current_dir(sandbox.path(""));
    sandbox.ended(run.output().unwrap()).kept();
    let files = sandbox.files();
    assert_eq!(files.len(), 1500);
    let records: usize = files.iter().map(|name| sandbox.text(name).lines().count()).sum();
    assert_eq!(records, 750 + 1);
}

#[test]
fn a_file_that_loses_nothing_is_not_touched() {
    let packed = gzip(b"p\nx\n");
    let sandbox = Sandbox::with(&[("a", &b"x\ny\n"[..]), ("b", b"z\nx\n"), ("c.gz", &packed)]);
    let before = (inode(&sandbox, "a"), inode(&sandbox, "b"));
    sandbox.run("a b c.gz --in-place --duplicates d.jsonl --summary s.json").kept();
    assert_eq!(inode(&sandbox, "a"), before.0);
    assert_ne!(inode(&sandbox, "b"), before.1);
    assert_eq!((sandbox.text("a"), sandbox.text("b")), ("x\ny\n".into(), "z\n".into()));
    assert_eq!(sandbox.run("c.gz").kept_text(), "p\n");
    assert_eq!(sandbox.text("d.jsonl").lines().count(), 2);
    let files: Vec<Vec<u8>> = ["a", "b", "c.gz"].map(|name| sandbox.read(name)).into();
    sandbox.run("a b c.gz --in-place").kept();
    assert_eq!(
        ["a", "b", "c.gz"].map(|name| sandbox.read(name)).to_vec(),
        files,
        "nothing is left to do"
    );
    sandbox.write("n", "1\n1\n2\n");
    sandbox.run("n --in-place --count").refused(2, &["--in-place", "--count"]);
    assert_eq!(sandbox.text("n"), "1\n1\n2\n");
    sandbox.run("n -o n --overwrite --count").kept();
    assert_eq!(sandbox.text("n"), "      2 1\n      1 2\n");
    sandbox.run("n --in-place --plan").kept();
}

#[test]
fn records_that_occur_once_are_left_and_a_second_run_changes_nothing() {
    let files = [("a", "x\ny\nx\n"), ("b", "z\nx\nz\n"), ("c", "u\nv\n")];
    let sandbox = Sandbox::with(&files);
    let states = || {
        let metadata = ["a", "b", "c"].map(|name| std::fs::metadata(sandbox.path(name)).unwrap());
        metadata.map(|found| (found.ino(), found.mtime(), found.mtime_nsec()))
    };
    let before = states();
    sandbox.run("a --in-place --unique-only").kept();
    assert_eq!(sandbox.text("a"), "y\n");
    sandbox.run("a b c --in-place --unique-only --scope file").kept();
    let after = states();
    assert_eq!(["a", "b", "c"].map(|name| sandbox.text(name)), ["y\n", "x\n", "u\nv\n"]);
    assert_eq!(after[2], before[2], "it loses nothing");
    assert!(after[0].0 != before[0].0 && after[1].0 != before[1].0);
    sandbox.run("a b c --in-place --unique-only --scope file").kept();
    assert_eq!(states(), after);
}

/// A kill between two renames would leave a repeated record in one of them, where it occurs once by then.
#[test]
fn several_inputs_are_not_replaced_by_their_records_that_occur_once() {
    let files = [("d/a", "x\ny\n"), ("d/b", "z\nx\n"), ("d/c", "u\n")];
    let sandbox = Sandbox::with(&files);
    for args in [
        "d --in-place",
        "d/a d/b --in-place",
        "d -o d --overwrite",
        "d --in-place --scope dir",
        "d --in-place --plan",
    ] {
        let ran = sandbox.run(&format!("{args} --unique-only"));
        ran.refused(2, &["--unique-only: d/a and d/b", "killed", "another --output"]);
        for (name, text) in files {
            assert_eq!(sandbox.text(name), text, "{args}");
        }
    }
    sandbox.run("d -o new --unique-only --quiet").kept();
    assert_eq!(sandbox.text("new"), "y\nz\nu\n");
    // Files that are dropped as a whole stay where they are.
    sandbox.run("d -o d --overwrite --granularity file --unique-only").kept();
    for (name, text) in files {
        assert_eq!(sandbox.text(name), text);
    }
}

/// What is left occurs once, so the next job would leave nothing.
#[test]
fn no_input_is_replaced_by_its_repeated_records() {
    let files = [("a", "x\ny\nx\n"), ("d/b", "u\nu\n"), ("d/c", "u\nu\n"), ("d/e", "v\n")];
    let sandbox = Sandbox::with(&files);
    let unchanged = |args: &str| {
        for (name, text) in files {
            assert_eq!(sandbox.text(name), text, "{args}");
        }
    };
    for (args, replaced) in [
        ("a d --in-place", "a"),
        ("a -o a --overwrite", "a"),
        ("a d -o ./a --overwrite --count", "a"),
        ("d -o d --overwrite", "d/b"),
        ("a d/b -o d/b --overwrite --granularity file", "d/b"),
    ] {
        let said = format!("--repeated: {replaced} would be replaced");
        let ran = sandbox.run(&format!("{args} --repeated"));
        ran.refused(2, &[said.as_str(), "a second run", "another --output"]);
        unchanged(args);
    }
    sandbox.run("d -o kept --repeated --quiet").kept();
    assert_eq!(sandbox.text("kept"), "u\n");
    // Files that are dropped as a whole stay where they are.
    let whole = "d -o d --overwrite --granularity file --repeated";
    sandbox.run(whole).kept();
    unchanged(whole);
}

#[test]
fn what_fails_leaves_all_as_it_was() {
    let sandbox =
        Sandbox::with(&[("a.jsonl", "{\"k\":1}\n{\"k\":1}\n"), ("b.jsonl", "{\"k\":1}\nno\n")]);
    let run = |options: &str| sandbox.run(&format!("a.jsonl b.jsonl --key k --in-place {options}"));
    run("").refused(1, &["b.jsonl: record 2"]);
    run("--skip-bad").refused(2, &["--in-place", "--bad FILE"]);
    assert_eq!((sandbox.text("a.jsonl").len(), sandbox.text("b.jsonl").len()), (16, 11));
    run("--skip-bad --bad bad.jsonl").ended_with(3);
    assert_eq!(
        (sandbox.text("a.jsonl"), sandbox.text("b.jsonl")),
        ("{\"k\":1}\n".into(), String::new())
    );
    assert_eq!(sandbox.text("bad.jsonl").lines().count(), 1);
}

/// Its rest is nowhere else.
#[test]
fn a_file_whose_rest_cannot_be_read_is_not_replaced() {
    let table = format!("n,t\n1,a\n1,a\n2,\"open\n{}", "3,c\n".repeat(50));
    let packed = gzip(&lines(3, 20_000));
    let cut = &packed[..packed.len() - 3];
    let files: [(&str, &[u8]); 3] =
        [("d/a.csv", table.as_bytes()), ("d/b", &b"x\nx\n"[..]), ("c.gz", cut)];
    let sandbox = Sandbox::with(&files);
    for (args, said) in [
        ("d --in-place", "d/a.csv: record 3 (byte"),
        ("d --in-place --workers 3", "d/a.csv: record 3 (byte"),
        ("d -o d --overwrite", "d/a.csv: record 3 (byte"),
        ("d/a.csv -o d/a.csv --overwrite", "d/a.csv: record 3 (byte"),
        ("c.gz --in-place", "c.gz: record "),
        ("c.gz -o c.gz --overwrite --count", "c.gz: record "),
        ("c.gz -o c.gz --overwrite --granularity file", "c.gz: record 1 "),
    ] {
        let ran = sandbox.run(&format!("{args} --skip-bad --bad bad"));
        ran.refused(1, &[said, "rest of the file is lost", "nothing was replaced"]);
        assert_eq!(sandbox.files(), ["c.gz", "d/a.csv", "d/b"], "{args}");
        for (name, content) in &files {
            assert!(sandbox.read(name) == *content, "{name} by {args}");
        }
    }
    // Elsewhere the file keeps its rest.
    sandbox.run("d -o out/ --skip-bad").ended_with(3);
    assert_eq!(sandbox.text("out/a.csv"), "n,t\n1,a\n");
    // Whole files that are bad are not replaced.
    sandbox.run("c.gz -o . --overwrite --granularity file --skip-bad --bad bad").ended_with(3);
    assert!(sandbox.read("c.gz") == cut);
}

#[test]
fn what_cannot_be_replaced_is_refused_and_named() {
    let sandbox = Sandbox::with(&[("a", "x\nx\n"), ("d/b", "y\n"), ("seen", "z\n")]);
    symlink("a", sandbox.path("link")).unwrap();
    symlink("../a", sandbox.path("d/link")).unwrap();
    std::fs::hard_link(sandbox.path("a"), sandbox.path("hard")).unwrap();
    // Nobody writes to it: whoever opened it would wait.
    assert!(Command::new("mkfifo").arg(sandbox.path("pipe")).status().unwrap().success());
    for (args, said) in [
        ("link", ["link is a link", "--exclude"]),
        ("d", ["d/link is a link", "--exclude"]),
        ("a hard", ["a and hard are one file", "leave one"]),
        ("a ./a", ["are one file", "./a"]),
        ("- a", ["- is no file", "--in-place"]),
        ("a pipe", ["pipe is no file", "--in-place"]),
        ("a -o out", ["--in-place", "--output"]),
        ("a --annotate out", ["--in-place", "--annotate"]),
        // The numbers would be records of the next job, which would count them.
        ("a --count", ["--in-place", "--count"]),
        ("a --count --repeated", ["--in-place", "--count"]),
        ("a --granularity file", ["--in-place", "--output DIR/"]),
        ("a --duplicates a --overwrite", ["--duplicates a", "input"]),
        ("a --duplicates seen", ["seen exists", "--overwrite"]),
        ("a --cluster 127.0.0.1:1", ["--in-place", "one process"]),
        ("a --rank 0 --peers 127.0.0.1:1,127.0.0.1:2", ["--in-place", "one process"]),
    ] {
        sandbox.run(&format!("{args} --in-place")).refused(2, &said);
        assert_eq!(
            (sandbox.text("a"), sandbox.text("seen")),
            ("x\nx\n".into(), "z\n".into()),
            "{args}"
        );
    }
    sandbox.run("d --exclude link --in-place").kept();
    sandbox.run_piped("--in-place", b"x\n").refused(2, &["- is no file"]);
}

#[test]
fn a_folder_that_cannot_be_written_is_told_from_its_file() {
    let sandbox = Sandbox::with(&[("d/a", "x\nx\n")]);
    if std::fs::metadata(sandbox.path("d/a")).unwrap().uid() == 0 {
        println!("skipped: root can write to every folder");
        return;
    }
    let set_mode = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(sandbox.path("d"), mode).unwrap();
    };
    set_mode(0o500);
    let ran = sandbox.run("d/a --in-place");
    set_mode(0o700);
    ran.refused(1, &["d/a: cannot create a file beside it: Permission denied"]);
    assert_eq!(sandbox.text("d/a"), "x\nx\n");
}

#[test]
fn what_a_dead_process_left_is_neither_read_nor_left() {
    let sandbox = Sandbox::with(&[("d/a", "x\nx\n"), ("d/.a.umbel-1.partial", "x\ntorn")]);
    sandbox.write("d/e/.b.umbel-1d.partial", "torn");
    sandbox.write("d/.umbel-1d.partial", "");
    sandbox.write("d/e/b", "y\nx\n");
    sandbox.run("d --in-place").kept();
    assert_eq!(sandbox.files(), ["d/a", "d/e/b"]);
    assert_eq!((sandbox.text("d/a"), sandbox.text("d/e/b")), ("x\n".into(), "y\n".into()));
}
