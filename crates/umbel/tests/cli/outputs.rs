//! Output files: nothing is replaced without permission, and no partial file appears under its final
//! name.

use crate::packed::gzip;
use crate::sandbox::Sandbox;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;

/// Options with an output, the file, and its content for the input below.
const OUTPUTS: [(&str, &str); 4] = [
    ("--output out.txt", "out.txt"),
    ("--output out/", "out/a.txt"),
    ("--output /dev/null --duplicates out.jsonl", "out.jsonl"),
    ("--output /dev/null --summary out.json", "out.json"),
];

#[test]
fn an_output_that_exists_is_refused_and_left_alone() {
    for (option, file) in OUTPUTS {
        let sandbox = Sandbox::with(&[("a.txt", "x\nx\n"), (file, "old")]);
        let files = sandbox.files();
        sandbox.run(&format!("a.txt {option}")).refused(2, &[file, "exists", "--overwrite"]);
        assert_eq!((sandbox.text(file), sandbox.files()), ("old".into(), files), "{option}");
    }
}

#[test]
fn an_output_that_exists_is_replaced_if_asked_for() {
    for (option, file) in OUTPUTS {
        let sandbox = Sandbox::with(&[("a.txt", "x\nx\n"), (file, "old")]);
        sandbox.run(&format!("a.txt {option} --overwrite")).kept();
        assert_ne!(sandbox.text(file), "old", "{option}");
    }
}

#[test]
fn one_existing_output_of_many_stops_all() {
    let sandbox = Sandbox::with(&[("in/a.txt", "a\n"), ("in/b.txt", "b\n"), ("out/b.txt", "old")]);
    let files = sandbox.files();
    let args = "in --output out/ --duplicates d.jsonl --summary s.json";
    sandbox.run(args).refused(2, &["out/b.txt"]);
    assert_eq!((sandbox.text("out/b.txt"), sandbox.files()), ("old".into(), files));
}

#[test]
fn outputs_that_exist_are_refused_before_anything_is_read() {
    // The input fails on reading, with another exit code.
    for (option, file) in OUTPUTS.into_iter().chain([("--skip-bad=0 --bad b.jsonl", "b.jsonl")]) {
        let sandbox = Sandbox::with(&[("a.txt", b"x\n".to_vec()), (file, b"old".to_vec())]);
        sandbox.write("cut.gz", &gzip(b"x\n")[..8]);
        sandbox.run(&format!("a.txt cut.gz {option}")).refused(2, &[file, "exists"]);
    }
}

#[test]
fn outputs_that_exist_are_refused_before_standard_input_is_read() {
    // This does not fit in a pipe, so the writer waits for a reader.
    let input = b"x\n".repeat(1 << 20);
    let sandbox = Sandbox::with(&[("out.txt", "old")]);
    let (ran, written) = sandbox.run_piping("- --output out.txt", &input);
    ran.refused(2, &["out.txt", "exists"]);
    assert!(written.is_err(), "all of standard input was read first");
}

#[test]
fn an_existing_directory_is_one_with_or_without_a_slash() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n"), ("out/other.txt", "other")]);
    sandbox.run("a.txt --output out").kept();
    assert_eq!(sandbox.files(), ["a.txt", "out/a.txt", "out/other.txt"]);
    sandbox.run("a.txt --output out/new/deep/").kept();
    assert_eq!(sandbox.read("out/new/deep/a.txt"), b"x\n");
}

#[test]
fn a_directory_that_is_missing_is_named() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n")]);
    for option in ["--output", "--output /dev/null --duplicates", "--output /dev/null --summary"] {
        sandbox.run(&format!("a.txt {option} gone/out")).refused(1, &["gone/out"]);
        assert!(!sandbox.exists("gone"), "{option}");
    }
}

#[test]
fn an_output_directory_that_is_a_file_is_named() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n"), ("b.txt", "b\n")]);
    let ran = sandbox.run("a.txt --output b.txt/");
    assert_eq!(sandbox.text("b.txt"), "b\n");
    assert!(ran.stderr.contains("b.txt"), "{}", ran.stderr);
    assert_ne!(ran.code, Some(0));
}

#[test]
fn one_output_that_cannot_be_made_keeps_the_others_from_appearing() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n")]);
    for args in
        ["--output out.txt --duplicates gone/d.jsonl", "--output out/ --summary gone/s.json"]
    {
        sandbox.run(&format!("a.txt {args}")).refused(1, &["gone/"]);
        assert_eq!(sandbox.files(), ["a.txt"], "{args}");
    }
}

#[test]
fn an_input_can_be_replaced_by_its_own_output() {
    let sandbox = Sandbox::with(&[("a.txt", "x\ny\nx\n"), ("d/b.txt", "x\nz\nz\n")]);
    sandbox.run("a.txt --output a.txt").refused(2, &["a.txt exists"]);
    assert_eq!(sandbox.text("a.txt"), "x\ny\nx\n");
    sandbox.run("a.txt --output a.txt --overwrite").kept();
    assert_eq!(sandbox.text("a.txt"), "x\ny\n");
    sandbox.run("d --output d --overwrite").kept();
    assert_eq!(sandbox.text("d/b.txt"), "x\nz\n");
}

#[test]
fn a_dash_is_standard_output_and_no_file() {
    let sandbox = Sandbox::with(&[("a.txt", "x\ny\nx\n")]);
    assert_eq!(sandbox.run("a.txt --output -").kept_text(), "x\ny\n");
    let ran = sandbox.run("a.txt --output out.txt --duplicates -");
    assert!(!sandbox.exists("-"), "a file called - was made");
    let report = "{\"file\":\"a.txt\",\"record\":3,\"part\":null,\"kept_file\":\"a.txt\",\
                  \"kept_record\":1,\"kept_part\":null,\"cause\":\"input\",\"score\":null}\n";
    assert_eq!(ran.kept_text(), report);
}

#[test]
fn a_device_is_written_to_and_not_replaced() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n")]);
    for _ in 0..2 {
        sandbox.run("a.txt --output /dev/null --duplicates /dev/null --summary /dev/null").kept();
    }
    assert_eq!(sandbox.run("a.txt --output /dev/stdout").kept_text(), "x\n");
}

#[test]
fn outputs_have_the_permissions_of_any_new_file() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n"), ("new", "")]);
    sandbox.run("a.txt --output out.txt").kept();
    let mode = |name| std::fs::metadata(sandbox.path(name)).unwrap().permissions().mode();
    assert_eq!(mode("out.txt"), mode("new"));
}

fn set_mode(sandbox: &Sandbox, name: &str, mode: u32) {
    std::fs::set_permissions(sandbox.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(sandbox: &Sandbox, name: &str) -> u32 {
    std::fs::metadata(sandbox.path(name)).unwrap().mode() & 0o7777
}

#[test]
fn files_of_an_output_directory_have_the_permissions_of_their_inputs() {
    let modes = [("in/a", 0o600), ("in/b", 0o640), ("in/sub/c", 0o755), ("in/d", 0o444)];
    let sandbox = Sandbox::with(&modes.map(|(name, _)| (name, format!("{name}\nx\nx\n"))));
    modes.iter().for_each(|(name, mode)| set_mode(&sandbox, name, *mode));
    sandbox.run("in --output out/").kept();
    for (name, expected) in modes {
        assert_eq!(mode(&sandbox, &name.replacen("in", "out", 1)), expected, "{name}");
    }
    sandbox.run("in --output in --overwrite").kept();
    modes.iter().for_each(|(name, expected)| assert_eq!(mode(&sandbox, name), *expected, "{name}"));
}

#[test]
fn a_file_that_is_replaced_keeps_its_permissions() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n"), ("out", ""), ("s.json", ""), ("i", "")]);
    ["a.txt", "out", "s.json", "i"].iter().for_each(|name| set_mode(&sandbox, name, 0o600));
    sandbox.run("a.txt --output out --summary s.json --save-index i --overwrite").kept();
    sandbox.run("a.txt --output a.txt --overwrite").kept();
    for name in ["a.txt", "out", "s.json", "i"] {
        assert_eq!(mode(&sandbox, name), 0o600, "{name}");
    }
}

#[test]
fn what_stays_as_it_was_stays_as_old_as_it_was() {
    let sandbox = Sandbox::with(&[("d/same", "a\nb"), ("d/changed", "c\nc\n")]);
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123);
    let modified = |name| std::fs::metadata(sandbox.path(name)).unwrap().modified().unwrap();
    for name in ["d/same", "d/changed"] {
        let file = std::fs::File::options().write(true).open(sandbox.path(name)).unwrap();
        file.set_modified(old).unwrap();
    }
    sandbox.run("d --output out/").kept();
    assert_eq!(modified("out/same"), old);
    assert!(modified("out/changed") > old);
    sandbox.run("d --output d --overwrite").kept();
    assert!(modified("d/same") == old && modified("d/changed") > old);
}

#[test]
fn an_input_that_cannot_be_read_is_named() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n"), ("secret.txt", "x\n")]);
    if std::fs::metadata(sandbox.path("a.txt")).unwrap().uid() == 0 {
        println!("skipped: root can read every file");
        return;
    }
    let secret = sandbox.path("secret.txt");
    std::fs::set_permissions(secret, std::fs::Permissions::from_mode(0o000)).unwrap();
    let ran = sandbox.run("a.txt secret.txt --output out.txt");
    ran.refused(1, &["secret.txt", "Permission denied"]);
    assert!(!sandbox.exists("out.txt"));
}
