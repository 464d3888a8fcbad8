//! `--include` and `--exclude`, compared with the system's `find`.

use crate::sandbox::Sandbox;
use std::process::Command;

/// Files of a tree, each with its path as its only line.
fn tree() -> Sandbox {
    let sandbox = Sandbox::new();
    for name in [
        "in/a.txt",
        "in/b.log",
        "in/.hidden.txt",
        "in/d/a.txt",
        "in/d/c.csv.log",
        "in/d/cache/x.txt",
        "in/d/e/cache/deep/y.txt",
        "in/d/e/z.log",
        "in/cache.txt",
        "in/readme",
        "in/ä.txt",
        "other/a.txt",
    ] {
        sandbox.write(name, format!("{name}\n"));
    }
    sandbox
}

/// The files that `find in` finds with these conditions, in the order of a walk.
fn found(sandbox: &Sandbox, conditions: &[&str]) -> Vec<String> {
    let find = Command::new("find")
        .args(["in", "-type", "f"])
        .args(conditions)
        .current_dir(sandbox.path(""))
        .output();
    let text = String::from_utf8(find.unwrap().stdout).unwrap();
    let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
    names.sort_unstable();
    names
}

fn read(sandbox: &Sandbox, options: &str) -> Vec<String> {
    let text = sandbox.run(&format!("in {options}")).kept_text();
    let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
    names.sort_unstable();
    names
}

#[test]
fn what_is_read_is_what_find_finds() {
    let sandbox = tree();
    let cases: [(&str, &[&str]); 8] = [
        ("--include *.txt", &["-name", "*.txt"]),
        ("--exclude *.txt", &["!", "-name", "*.txt"]),
        ("--include *.txt --include *.log", &["(", "-name", "*.txt", "-o", "-name", "*.log", ")"]),
        (
            "--include *.txt --exclude a* --exclude .*",
            &["-name", "*.txt", "!", "-name", "a*", "!", "-name", ".*"],
        ),
        ("--exclude cache", &["!", "-path", "*/cache/*"]),
        ("--exclude d/cache", &["!", "-path", "in/d/cache/*"]),
        ("--include d/**/*.txt", &["-path", "in/d/*", "-name", "*.txt"]),
        ("--include [ab].*", &["-name", "[ab].*"]),
    ];
    for (options, conditions) in cases {
        let expected = found(&sandbox, conditions);
        assert!(!expected.is_empty() && expected.len() < 11, "{options}");
        assert_eq!(read(&sandbox, options), expected, "{options}");
    }
}

#[test]
fn files_that_are_named_are_read_whatever_they_are_called() {
    let sandbox = tree();
    let run = |args: &str| sandbox.run(args).kept_text();
    assert_eq!(run("in/d in/b.log --include *.csv.log"), "in/d/c.csv.log\nin/b.log\n");
    assert_eq!(run("in/d other/*.txt --include *.csv.log"), "in/d/c.csv.log\nother/a.txt\n");
    // Files that are not read may have any content.
    sandbox.write("in/tool", b"\x7fELF\0\0");
    std::os::unix::fs::symlink("nowhere", sandbox.path("in/dangling")).unwrap();
    assert_eq!(run("in --include b.log"), "in/b.log\n");
    // The paths in an output directory do not depend on the choice.
    run("in --include y.txt -o out/");
    assert_eq!(sandbox.text("out/d/e/cache/deep/y.txt"), "in/d/e/cache/deep/y.txt\n");
}

#[test]
fn what_chooses_nothing_is_refused() {
    let sandbox = tree();
    for (args, said) in [
        ("in --include *.nothing", ["in: no file in this directory", "--include"]),
        ("in/a.txt --include *.txt", ["--include", "no input is one"]),
        ("in/*.txt --exclude *.txt", ["--exclude", "no input is one"]),
        ("in --include [", ["--include", "["]),
        ("in --exclude cache/", ["--exclude", "cache/**"]),
        ("in --exclude /in", ["--exclude", "cache/**"]),
    ] {
        sandbox.run(args).refused(2, &said);
    }
    sandbox.run_piped("--include *.txt", b"x\n").refused(2, &["no input is one"]);
}
