//! No output may be an input under any name or link, and unfinished files are no inputs.

use crate::sandbox::Sandbox;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;

/// Asserts that a run is refused as wrong usage, with these words, and changes no file.
#[track_caller]
fn is_refused(sandbox: &Sandbox, args: &str, said: &[&str]) {
    let contents = || -> Vec<(String, Vec<u8>)> {
        let names = sandbox.files().into_iter().filter(|name| sandbox.path(name).is_file());
        names.map(|name| (name.clone(), sandbox.read(&name))).collect()
    };
    let before = contents();
    let ran = sandbox.run(args);
    assert_eq!(contents(), before, "{args}");
    ran.refused(2, said);
}

/// An input with each kind of link to it, and an index.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with(&[("a.txt", "x\ny\nx\n"), ("b.txt", "y\nz\n")]);
    fs::create_dir(sandbox.path("d")).unwrap();
    fs::hard_link(sandbox.path("a.txt"), sandbox.path("hard.txt")).unwrap();
    symlink("a.txt", sandbox.path("soft.txt")).unwrap();
    symlink(".", sandbox.path("here")).unwrap();
    sandbox.run("b.txt --save-index b.umbi --output b.out").kept();
    sandbox
}

#[test]
fn a_report_is_never_an_input_by_whatever_name() {
    let names = ["a.txt", "./a.txt", "d/../a.txt", "hard.txt", "soft.txt", "here/a.txt"];
    for option in ["--duplicates", "--groups", "--summary", "--save-index", "--skip-bad --bad"] {
        for name in names {
            let args = format!("a.txt --output /dev/null --overwrite {option} {name}");
            is_refused(&sandbox(), &args, &[name, "input", "never replaces what is read"]);
        }
    }
    for name in names {
        let args = format!("a.txt --overwrite --annotate {name}");
        is_refused(&sandbox(), &args, &[name, "input"]);
    }
}

#[test]
fn no_output_but_an_index_replaces_a_reference() {
    for option in ["--output", "--duplicates", "--groups", "--summary", "--skip-bad --bad"] {
        let rest = if option == "--output" { "" } else { "--output /dev/null" };
        for name in ["b.umbi", "./b.umbi", "here/b.umbi"] {
            let args = format!("a.txt --reference b.umbi --overwrite {option} {name} {rest}");
            is_refused(&sandbox(), &args, &[name, "input"]);
        }
    }
}

#[test]
fn an_output_of_one_input_never_replaces_another() {
    let sandbox = Sandbox::with(&[("d/x", "of d\n"), ("d/e/x", "of e\n")]);
    // The output of d/x would be d/e/x.
    is_refused(
        &sandbox,
        "d/x d/e/x --output d/e --overwrite",
        &["d/e/x", "would replace the input"],
    );
}

#[test]
fn two_outputs_are_never_one_file_by_another_name() {
    let sandbox = sandbox();
    sandbox.write("out", "");
    fs::hard_link(sandbox.path("out"), sandbox.path("out2")).unwrap();
    symlink("out", sandbox.path("out3")).unwrap();
    for (one, other) in [("out2", "out"), ("out", "out3"), ("new", "here/new")] {
        let args =
            format!("a.txt --output /dev/null --overwrite --groups {one} --duplicates {other}");
        is_refused(&sandbox, &args, &["two outputs"]);
    }
}

#[test]
fn standard_output_that_is_an_input_is_refused() {
    let sandbox = sandbox();
    let append = OpenOptions::new().append(true).open(sandbox.path("a.txt")).unwrap();
    let output = sandbox.command("a.txt b.txt").stdout(append).output().unwrap();
    sandbox.ended(output).refused(2, &["standard output goes into the input a.txt"]);
    assert_eq!(sandbox.text("a.txt"), "x\ny\nx\n");
}

/// The rename would take the file's name, and what was written to standard output would be lost with it.
#[test]
fn the_file_of_standard_output_is_not_replaced() {
    for args in [
        "a.txt --summary out",
        "a.txt --duplicates ./out",
        "a.txt --groups out",
        "a.txt --save-index out",
        "a.txt --report out",
        "a.txt --skip-bad --bad out",
        "a.txt --annotate - --summary out",
        "a.txt --output out --summary -",
        "a.txt --output out --summary /dev/stdout",
        "a.txt --output out --summary /dev/fd/1",
        "a.txt --output . --groups -",
        "a.txt --output . --groups /dev/stdout",
    ] {
        let sandbox = Sandbox::with(&[("in/a.txt", "x\ny\nx\n"), ("here/out", "before\n")]);
        let name = if args.contains("--output .") { "a.txt" } else { "out" };
        fs::rename(sandbox.path("here/out"), sandbox.path("here").join(name)).unwrap();
        let stdout = OpenOptions::new().append(true).open(sandbox.path("here").join(name)).unwrap();
        let args = args.replacen("a.txt", "../in/a.txt", 1);
        let mut command = sandbox.command(&format!("{args} --overwrite --quiet"));
        command.current_dir(sandbox.path("here")).stdout(stdout);
        let said = [name, "would replace the file that standard output goes into"];
        sandbox.ended(command.output().unwrap()).refused(2, &said);
        assert_eq!(sandbox.text(&format!("here/{name}")), "before\n", "{args}");
    }
}

#[test]
fn a_link_to_the_file_of_standard_output_is_replaced_itself() {
    let sandbox = Sandbox::with(&[("a.txt", "x\ny\nx\n"), ("out", "")]);
    symlink("out", sandbox.path("link")).unwrap();
    let stdout = OpenOptions::new().append(true).open(sandbox.path("out")).unwrap();
    let output = sandbox.command("a.txt --groups link --overwrite").stdout(stdout).output();
    sandbox.ended(output.unwrap()).kept();
    assert_eq!(sandbox.text("out"), "x\ny\n");
    assert!(!sandbox.path("link").is_symlink() && sandbox.text("link").contains("\"size\":2"));
}

#[test]
fn inputs_that_are_linked_are_replaced_in_place_each_by_its_own_output() {
    let sandbox = Sandbox::with(&[("d/a", "x\ny\nx\n"), ("far", "z\nx\nz\n")]);
    fs::hard_link(sandbox.path("d/a"), sandbox.path("d/b")).unwrap();
    symlink("../far", sandbox.path("d/c")).unwrap();
    sandbox.run("d --output d --overwrite --scope file").kept();
    let texts = ["d/a", "d/b", "d/c", "far"].map(|name| sandbox.text(name));
    assert_eq!(texts, ["x\ny\n", "x\ny\n", "z\nx\n", "z\nx\nz\n"]);
    assert!(!sandbox.path("d/c").is_symlink(), "the output takes the place of the link");
}

#[test]
fn several_inputs_may_become_one_of_them() {
    let sandbox = sandbox();
    sandbox.run("a.txt b.txt --output b.txt --overwrite").kept();
    assert_eq!(sandbox.text("b.txt"), "x\ny\nz\n");
}

#[test]
fn what_is_not_finished_is_no_input_of_a_walk_or_a_glob() {
    let sandbox = Sandbox::with(&[
        ("d/x", "a\nb\nc\n"),
        ("d/.x.umbel-1.partial", "a\nb\ntorn"),
        ("d/sub/.y.gz.umbel-00aa00aa00aa00aa-3.partial", "c\ntorn"),
        ("d/.umbel-reconcile-Xy/x", "b\nstaged\n"),
    ]);
    for args in ["d", "d/*", "d/**/*", "d/[.x]*"] {
        let output = sandbox.command(&format!("{args} --keep last --quiet")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a\nb\nc\n", "{args}");
    }
    let ran = sandbox.command("d/.x.umbel-1.partial").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.code() == Some(2) && said.contains("not finished"), "{said}");
}

/// `--add-to` reads the inputs once more when the outputs have their names. No cluster is asked before
/// this is refused.
#[test]
fn inputs_whose_records_go_to_a_filter_are_not_replaced() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n"), ("in/b.txt", "y\ny\n")]);
    let files = sandbox.files();
    for output in ["in --in-place", "a.txt -o a.txt --overwrite", "in -o in --overwrite"] {
        let args = format!("{output} --add-to umbel://127.0.0.1:1/f");
        let said = ["--add-to", "reads the inputs again", "another --output", "filter insert"];
        sandbox.run(&args).refused(2, &said);
        assert_eq!(sandbox.files(), files, "{args}");
    }
}
