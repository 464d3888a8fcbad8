//! Outputs that would coincide or leave their directory are refused, because records would be lost.

use crate::sandbox::Sandbox;

/// Asserts that a run is refused as wrong usage and changes no file.
#[track_caller]
fn is_refused(sandbox: &Sandbox, args: &str) {
    is_refused_with(sandbox, args, &[]);
}

/// The same, with a message that has these words.
#[track_caller]
fn is_refused_with(sandbox: &Sandbox, args: &str, said: &[&str]) {
    let contents = || -> Vec<(String, String)> {
        sandbox.files().into_iter().map(|name| (name.clone(), sandbox.text(&name))).collect()
    };
    let before = contents();
    let ran = sandbox.run(args);
    assert_eq!(contents(), before, "{args}");
    ran.refused(2, said);
}

fn two_files() -> Sandbox {
    Sandbox::with(&[("d/a.txt", "x\ny\nx\n"), ("e/a.txt", "y\nz\n"), ("b.txt", "x\nb\nb\n")])
}

#[test]
fn two_inputs_for_one_output_file_are_refused() {
    is_refused(&two_files(), "b.txt b.txt --output out/");
    let said = ["out/b.txt: what is kept of b.txt and of ./b.txt", "name each input once"];
    is_refused_with(&two_files(), "b.txt ./b.txt --output out/", &said);
    is_refused_with(&two_files(), "b.txt b.txt --annotate out/", &["name each input once"]);
}

#[test]
fn one_input_under_two_spellings_for_one_output_file_is_refused() {
    is_refused(&two_files(), "b.txt ./b.txt --output out/");
    is_refused(&two_files(), "b.txt d/../b.txt --output out/");
}

#[test]
fn equal_names_in_different_directories_do_not_meet() {
    let sandbox = two_files();
    sandbox.run("d/a.txt e/a.txt --output out/").kept();
    assert_eq!(sandbox.text("out/d/a.txt"), "x\ny\n");
    assert_eq!(sandbox.text("out/e/a.txt"), "z\n");
}

#[test]
fn one_file_for_two_outputs_is_refused() {
    for args in [
        "b.txt --output out --duplicates out",
        "b.txt --output out --summary out",
        "b.txt --duplicates out --summary out",
        "b.txt --output out/ --duplicates out/b.txt",
        "b.txt --output out --duplicates ./out",
    ] {
        is_refused(&two_files(), args);
        is_refused(&two_files(), &format!("{args} --overwrite"));
    }
}

#[test]
fn an_input_called_like_the_list_of_bad_records_does_not_meet_it() {
    let sandbox =
        Sandbox::with(&[("in/bad.jsonl", "{\"a\":1}\n{\n"), ("in/b.jsonl", "{\"a\":2}\n")]);
    let said = ["--bad FILE puts the list elsewhere"];
    is_refused_with(&sandbox, "in --key a --skip-bad --output out/", &said);
    sandbox.run("in --key a --skip-bad --output out/ --bad list.jsonl").ended_with(3);
    assert_eq!(sandbox.text("out/bad.jsonl"), "{\"a\":1}\n");
}

#[test]
fn outputs_of_absolute_and_relative_inputs_stay_in_the_output_directory() {
    let sandbox = two_files();
    let absolute = sandbox.path("d/a.txt").display().to_string();
    let ran = sandbox.run(&format!("b.txt {absolute} --output out/ --overwrite"));
    assert_eq!(sandbox.text("d/a.txt"), "x\ny\nx\n", "an input was replaced");
    ran.kept();
    assert_eq!(sandbox.text("out/b.txt"), "x\nb\n");
}

#[test]
fn outputs_of_standard_input_and_absolute_inputs_stay_in_the_output_directory() {
    let sandbox = two_files();
    let absolute = sandbox.path("d/a.txt").display().to_string();
    let ran = sandbox.run_piped(&format!("- {absolute} --output out/ --overwrite"), b"x\n");
    assert_eq!(sandbox.text("d/a.txt"), "x\ny\nx\n", "an input was replaced");
    ran.kept();
    assert_eq!(sandbox.text("out/stdin"), "x\n");
}

#[test]
fn outputs_of_inputs_above_the_working_directory_stay_in_the_output_directory() {
    let sandbox = Sandbox::with(&[("here/b.txt", "b\n"), ("a.txt", "a\na\n")]);
    let mut command = sandbox.command("b.txt ../a.txt --output out/ --overwrite");
    let ran = sandbox.ended(command.current_dir(sandbox.path("here")).output().unwrap());
    let outside =
        |name: &String| !name.starts_with("here/out/") && name != "here/b.txt" && name != "a.txt";
    let outside: Vec<String> = sandbox.files().into_iter().filter(outside).collect();
    assert!(outside.is_empty(), "written outside of the output directory: {outside:?}");
    ran.kept();
    // Below the common directory of both inputs.
    assert_eq!(sandbox.text("here/out/here/b.txt"), "b\n");
    assert_eq!(sandbox.text("here/out/a.txt"), "a\n");
}

#[test]
fn a_report_never_replaces_an_input() {
    for option in ["--duplicates", "--summary", "--skip-bad --bad"] {
        let args = format!("d/a.txt b.txt --output out/ --overwrite {option}");
        is_refused(&two_files(), &format!("{args} b.txt"));
        is_refused(&two_files(), &format!("{args} d/../d/a.txt"));
    }
}

#[test]
fn a_directory_is_no_place_for_a_report() {
    for option in ["--duplicates", "--summary"] {
        for overwrite in ["", "--overwrite"] {
            is_refused(&two_files(), &format!("b.txt --output out.txt {option} d {overwrite}"));
        }
    }
}

/// Its rename would fail when another output has replaced a file.
#[test]
fn a_directory_in_an_output_directory_is_no_place_for_an_output() {
    let sandbox = two_files();
    sandbox.write("out/d/a.txt", "old");
    sandbox.write("out/e/a.txt/other", "other");
    for overwrite in ["", "--overwrite"] {
        let args = format!("d/a.txt e/a.txt --output out {overwrite}");
        is_refused_with(&sandbox, &args, &["out/e/a.txt is a directory, expected a file"]);
    }
}

/// Temporary names are shorter, so the rename would fail when another output has its name.
#[test]
fn a_name_that_is_too_long_is_no_place_for_an_output() {
    let long = "n".repeat(252);
    let sandbox = Sandbox::with(&[("in/a", "a\n"), (&format!("in/{long}")[..], "b\n")]);
    let said = ["new/nnn", "nnn.jsonl: too long a name for a file"];
    is_refused_with(&sandbox, "in --annotate new/", &said);
    is_refused_with(&sandbox, &format!("in/a -o {long}.txt"), &["nnn.txt: too long a name"]);
    sandbox.run("in -o new/").kept();
}

/// The folder would stand at the name of the file when that is renamed.
#[test]
fn an_output_below_another_one_is_refused() {
    let sandbox = Sandbox::with(&[("in/a", "a\n"), ("in/x", "x\n"), ("in/x.jsonl/y", "y\n")]);
    let said = ["new/x.jsonl cannot be a file and the folder of", "new/x.jsonl/y.jsonl"];
    for overwrite in ["", "--overwrite"] {
        is_refused_with(&sandbox, &format!("in --annotate new/ {overwrite}"), &said);
    }
    std::fs::create_dir(sandbox.path("out")).unwrap();
    let said = ["--duplicates out/x.jsonl cannot be a file and the folder of out/x.jsonl/y"];
    is_refused_with(&sandbox, "in -o out/ --duplicates out/x.jsonl", &said);
    sandbox.run("in -o out/").kept();
}

#[test]
fn two_streams_into_standard_output_are_refused() {
    is_refused(&two_files(), "b.txt --summary -");
}
