//! Files of killed processes are never read, and removed if nobody can complete them any more.

use crate::model::unlike_lines;
use crate::sandbox::Sandbox;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;

/// Runs without the check of what is left behind.
fn kept(sandbox: &Sandbox, args: &str) -> Vec<u8> {
    let output = sandbox.command(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn a_leftover_in_the_directory_of_a_job_in_place_is_no_input_and_goes() {
    let sandbox = Sandbox::with(&[("d/x", "a\nb\nc\n"), ("d/.x.umbel-1.partial", "a\nb\ntorn")]);
    sandbox.run("d -o d --overwrite").kept();
    assert_eq!(sandbox.text("d/x"), "a\nb\nc\n");
    assert_eq!(sandbox.files(), ["d/x"]);
}

#[test]
fn what_a_killed_job_leaves_is_its_owners_alone_and_the_next_one_removes_it() {
    let sandbox = Sandbox::new();
    for number in 0..40 {
        let name = format!("in/{}/f{number}", number % 3);
        sandbox.write(&name, unlike_lines(number / 2, 2000));
        fs::set_permissions(sandbox.path(&name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let expected = kept(&sandbox, "in --quiet");
    let left = || -> Vec<String> {
        sandbox.files().into_iter().filter(|name| name.contains(".partial")).collect()
    };
    // Nobody reads the report after the records, so all files of the directory wait for their final
    // names.
    let mut child = sandbox.command("in -o out/ --duplicates -").spawn().unwrap();
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut [0; 1]).unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(left().len(), 41, "a file aside for each, and one that is locked for all");
    left().iter().for_each(|name| {
        assert_eq!(fs::metadata(sandbox.path(name)).unwrap().mode() & 0o777, 0o600, "{name}");
    });
    kept(&sandbox, "in -o out/ --quiet --overwrite");
    assert_eq!(left(), [""; 0]);
    assert_eq!(kept(&sandbox, "out --quiet"), expected);
}

#[test]
fn what_a_live_process_writes_is_left_alone() {
    let sandbox = Sandbox::with(&[("in/x", "a\n"), ("out/.x.umbel-1.partial", "of another")]);
    sandbox.write("out/.umbel-2d.partial", "");
    sandbox.write("out/.y.umbel-2d.partial", "of a third");
    let locked = ["out/.x.umbel-1.partial", "out/.umbel-2d.partial"]
        .map(|name| File::open(sandbox.path(name)).unwrap());
    locked.iter().for_each(|file| file.lock().unwrap());
    kept(&sandbox, "in -o out/ --quiet");
    let there = ["out/.umbel-2d.partial", "out/.x.umbel-1.partial", "out/.y.umbel-2d.partial"];
    there.iter().for_each(|name| assert!(sandbox.exists(name), "{name}"));
    drop(locked);
    sandbox.run("in -o out/ --quiet --overwrite").kept();
    assert_eq!(sandbox.files(), ["in/x", "out/x"]);
}

#[test]
fn files_with_the_longest_names_are_written() {
    let name = "n".repeat(255);
    let sandbox = Sandbox::with(&[(&format!("in/{name}")[..], "a\na\n")]);
    sandbox.run("in -o out/").kept();
    assert_eq!(sandbox.text(&format!("out/{name}")), "a\n");
}
