//! Changes of the sets of `umbel reconcile`: deleted items, obstacles, unchanged properties of a file,
//! and sets that do not exist yet.

use crate::model::Draws;
use crate::packed::gzip;
use crate::reconcile::{over_ssh, reconcile, script};
use crate::sandbox::Sandbox;
use crate::serve::{run, umbel};
use std::fs::{File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

#[test]
fn what_is_pushed_to_loses_what_only_it_has_where_that_is_asked_for() {
    let ids = |ids: &[u64]| ids.iter().map(|id| format!("{id:032x}\n")).collect::<String>();
    for (form, a, b, after) in [
        ("--lines", "1\n2\n2\n".into(), "2\n3\n4\n".to_owned(), "2\n1\n2\n".to_owned()),
        ("--ids", ids(&[1, 2]), ids(&[2, 3, 4]), ids(&[2, 1])),
        ("--kv", "x\t1\ny\t1\n".into(), "y\t2\nz\t2\n".into(), "y\t1\nx\t1\n".into()),
    ] {
        let sandbox = Sandbox::with(&[("a", &a), ("b", &b), ("c", &b), ("d", &b)]);
        reconcile(&sandbox, &format!("{form} a b --push --delete")).kept();
        assert_eq!((sandbox.text("a"), sandbox.text("b")), (a.clone(), after.clone()), "{form}");
        reconcile(&sandbox, &format!("{form} a b")).kept();
        over_ssh(&sandbox, &format!("{form} a --push --delete"), "c").kept();
        assert_eq!(sandbox.text("c"), after, "{form}");
        // The command's A may be the remote side and accept changes: then items go there.
        script(&sandbox, &format!("{form} --writable --delete d"));
        reconcile(&sandbox, &format!("{form} exec:./there.sh a --pull --delete")).kept();
        assert_eq!((sandbox.text("d"), sandbox.text("a")), (after, a), "{form}");
    }
}

#[test]
fn a_responder_removes_nothing_unless_both_sides_pass_delete() {
    let sandbox = Sandbox::with(&[("a", "1\n"), ("b", "1\n2\n")]);
    script(&sandbox, "--writable b");
    let refused = reconcile(&sandbox, "a exec:./there.sh --push --delete");
    // Both sides have one terminal.
    assert_eq!(refused.stderr.matches("answer with --writable --delete").count(), 1);
    refused.refused(2, &["answer with --writable --delete", "this side's set is unchanged"]);
    script(&sandbox, "b");
    let refused = reconcile(&sandbox, "a exec:./there.sh --push");
    assert_eq!(refused.stderr.matches("started without --writable").count(), 1);
    refused.ended_with(2);
    assert_eq!(sandbox.text("b"), "1\n2\n");
    script(&sandbox, "--writable --delete b");
    reconcile(&sandbox, "a exec:./there.sh --push").ended_with(1);
    assert_eq!(sandbox.text("b"), "1\n2\n");
    reconcile(&sandbox, "a exec:./there.sh --push --delete").kept();
    assert_eq!(sandbox.text("b"), "1\n");
}

#[test]
fn both_sides_keep_the_version_of_the_same_side_whichever_is_a() {
    let (here, there) = ("k\t1\n", "k\t2\n");
    for (sets, rule, kept) in [
        ("a exec:./there.sh", "a", here),
        ("a exec:./there.sh", "b", there),
        ("exec:./there.sh a", "a", there),
        ("exec:./there.sh a", "b", here),
    ] {
        // The option that earlier builds pass changes nothing.
        for given in ["", "--as-a", &format!("--on-conflict {rule}")] {
            let sandbox = Sandbox::with(&[("a", here), ("b", there)]);
            script(&sandbox, &format!("--kv --writable {given} b"));
            let args = format!("--kv {sets} --two-way --on-conflict {rule}");
            reconcile(&sandbox, &args).kept();
            assert_eq!([sandbox.text("a"), sandbox.text("b")], [kept; 2], "{args}, {given}");
        }
    }
}

#[test]
fn a_responder_with_another_rule_refuses_and_nothing_changes() {
    let sandbox = Sandbox::with(&[("a", "k\t1\n"), ("b", "k\t2\n")]);
    script(&sandbox, "--kv --writable --on-conflict b b");
    for rule in ["a", "report"] {
        let args = format!("--kv a exec:./there.sh --two-way --on-conflict {rule}");
        reconcile(&sandbox, &args).refused(2, &["another rule for what differs on both sides"]);
    }
    assert_eq!((sandbox.text("a"), sandbox.text("b")), ("k\t1\n".into(), "k\t2\n".into()));
}

#[test]
fn a_directory_that_is_pushed_to_becomes_the_other() {
    let files = [("a/x", "1"), ("a/new/y", "2"), ("b/x", "0"), ("b/old/z", "3")];
    let sandbox = Sandbox::with(&files);
    reconcile(&sandbox, "--dir a b --push --delete").kept();
    assert_eq!(sandbox.files(), ["a/new/y", "a/x", "b/new/y", "b/x"]);
    assert_eq!(sandbox.text("b/x"), "1");
}

#[test]
fn no_output_is_one_of_the_sets() {
    let sandbox = Sandbox::with(&[("a", "1\n"), ("b", "2\n"), ("d/x", "1")]);
    symlink(sandbox.path("a"), sandbox.path("link")).unwrap();
    std::fs::hard_link(sandbox.path("b"), sandbox.path("hard")).unwrap();
    for args in [
        "reconcile a b --report a",
        "reconcile a b --report ./b",
        "reconcile a b --report link",
        "reconcile a b --pull --report hard",
        "reconcile a exec:true --resume link",
        "reconcile a exec:true --sketch a",
        "sketch build a -o a --differences 3",
        "sketch build a -o link --differences 3",
        "sketch build b -o hard --differences 3",
        "sketch extend a a --symbols 9",
        "sketch add a link --new",
    ] {
        run(&sandbox, args).refused(2, &["an output never replaces what is read"]);
    }
    assert_eq!((sandbox.text("a"), sandbox.text("b")), ("1\n".into(), "2\n".into()));
}

#[test]
fn no_output_is_a_file_of_a_set() {
    let sandbox = Sandbox::with(&[("a/x", "1"), ("b/y/z", "2"), ("c", "3")]);
    symlink(sandbox.path("b"), sandbox.path("link")).unwrap();
    let files = sandbox.files();
    for args in [
        "--dir a b --two-way --report b/y/z",
        "--dir a b --report a/new.json",
        "--dir a b --report-html link/y/new.html",
        "--dir a exec:true --resume a/journal",
        "--dir --listen 127.0.0.1:0 --resume b/y/journals b",
        "--dir . exec:true --report r.json --quiet",
    ] {
        reconcile(&sandbox, args).refused(2, &["would be a file of the set"]);
    }
    assert_eq!((sandbox.files(), sandbox.text("b/y/z")), (files, "2".into()));
    // Beside a set, and on standard output, there is room for a report.
    reconcile(&sandbox, "--dir a b --report r.json").ended_with(1);
    let mut within = umbel(&sandbox, "reconcile --dir . ../b --quiet --report -");
    within.current_dir(sandbox.path("a"));
    assert_eq!(within.output().unwrap().status.code(), Some(1));
}

#[test]
fn a_directory_within_the_other_is_not_changed() {
    let sandbox = Sandbox::with(&[("a/x", "1"), ("a/b/y", "2")]);
    symlink(sandbox.path("a/b"), sandbox.path("link")).unwrap();
    let files = sandbox.files();
    for args in ["a a/b --push", "a/b a --pull --delete", "link a --two-way", "a a/new --push"] {
        let ran = reconcile(&sandbox, &format!("--dir {args}"));
        ran.refused(2, &["is inside of a: a change of one would change the other"]);
        assert_eq!(sandbox.files(), files, "{args}");
    }
    assert!(!reconcile(&sandbox, "--dir a a/b").ended_with(1).is_empty());
    reconcile(&sandbox, "--dir a ./a --two-way").kept();
}

#[test]
fn names_of_files_are_shown_on_one_line() {
    let sandbox = Sandbox::with(&[("a/one\ntwo", "1"), ("b/\x1b[0m", "1")]);
    let shown = reconcile(&sandbox, "--dir a b").ended_with(1);
    assert_eq!(String::from_utf8(shown).unwrap(), "> one\\#012two => \\#033[0m\n");
    reconcile(&sandbox, "--dir a b --two-way").kept();
    assert!(sandbox.exists("a/\x1b[0m") && sandbox.exists("b/one\ntwo"));
}

#[test]
fn a_file_that_is_changed_is_nobodys_to_read_on_the_way() {
    let sandbox = Sandbox::with(&[("a", "1\n"), ("b", "2\n")]);
    for mode in [0o600, 0o640, 0o444, 0o604] {
        std::fs::set_permissions(sandbox.path("a"), Permissions::from_mode(mode)).unwrap();
        reconcile(&sandbox, "a b --pull").ended_with(1);
        let found = std::fs::metadata(sandbox.path("a")).unwrap().permissions().mode();
        assert_eq!(found & 0o7777, mode, "{mode:o}");
        sandbox.write("b", format!("2\n{mode}\n"));
    }
}

#[test]
fn a_set_begins_from_nothing() {
    for bits in [64, 128, 160, 256] {
        let ids = |ids: &[u8]| -> String {
            ids.iter().map(|id| format!("{}\n", format!("{id:02x}").repeat(bits / 8))).collect()
        };
        let full = ids(&[1, 2, 3]);
        let sandbox = Sandbox::with(&[("full", &full), ("empty", &String::new())]);
        sandbox.write("blank", "");
        reconcile(&sandbox, "--ids empty full --pull").kept();
        reconcile(&sandbox, "--ids new full --pull").kept();
        reconcile(&sandbox, "--ids full pushed --push").kept();
        over_ssh(&sandbox, "--ids full --push", "blank").kept();
        over_ssh(&sandbox, "--ids full --two-way", "there").kept();
        over_ssh(&sandbox, &format!("--ids={bits} here --pull"), "full").kept();
        for name in ["empty", "new", "pushed", "blank", "there", "here"] {
            assert_eq!(sandbox.text(name), full, "{name}, {bits} bits");
        }
    }
}

#[test]
fn a_set_that_is_not_there_is_begun_where_items_come_and_said_to_be() {
    let sandbox = Sandbox::with(&[("a", "1\n"), ("d/x/y", "1")]);
    let ran = reconcile(&sandbox, "new a --pull");
    assert!(ran.stderr.contains("new does not exist: begun as an empty set"), "{}", ran.stderr);
    assert_eq!(sandbox.text("new"), "1\n");
    reconcile(&sandbox, "--dir fresh d --pull").kept();
    assert_eq!(sandbox.text("fresh/x/y"), "1");
    // These sets get no items, or the session fails: no file of them is left.
    reconcile(&sandbox, "gone a").refused(2, &["gone: No such file"]);
    reconcile(&sandbox, "gone a --push").refused(2, &["gone: No such file"]);
    reconcile(&sandbox, "gone exec:false --pull").refused(2, &["exec:false"]);
    reconcile(&sandbox, "--dir gone exec:false --pull").refused(2, &["exec:false"]);
    reconcile(&sandbox, "no/such/place a --pull").refused(2, &["cannot be created"]);
    assert!(!sandbox.exists("gone") && !sandbox.exists("no"));
}

#[test]
fn a_file_takes_the_place_of_a_directory_and_the_other_way_round() {
    let files = [("a/x", "1"), ("a/y/z", "2"), ("b/x/w/v", "3"), ("b/x/u", "4"), ("b/y", "5")];
    let sandbox = Sandbox::with(&files);
    symlink("x", sandbox.path("a/link")).unwrap();
    sandbox.write("b/link/t", "6");
    let before = sandbox.files();
    // Without --delete an item would be lost, which is an error before anything is applied.
    for args in ["--dir a b --pull", "--dir a b --two-way", "--dir a b --push"] {
        let ran = reconcile(&sandbox, args);
        ran.refused(2, &["stands where a", "would be lost", "nothing was applied"]);
        assert_eq!(sandbox.files(), before, "{args}");
    }
    reconcile(&sandbox, "--dir a b --push --delete").kept();
    assert_eq!(sandbox.files(), ["a/link", "a/x", "a/y/z", "b/link", "b/x", "b/y/z"]);
    assert!(sandbox.path("b/link").is_symlink());
    // Directories without files are not part of a set, and do not obstruct files.
    sandbox.write("c/x", "1");
    std::fs::create_dir_all(sandbox.path("d/x/empty/more")).unwrap();
    reconcile(&sandbox, "--dir d c --pull").kept();
    assert_eq!(sandbox.text("d/x"), "1");
}

#[test]
fn what_a_killed_process_left_is_no_part_of_a_set_and_goes() {
    let sandbox =
        Sandbox::with(&[("a/x", "1"), ("b/y", "2"), ("b/.umbel-reconcile-aaaaaa/lock", "")]);
    sandbox.write("b/.umbel-reconcile-bbbbbb/lock", "");
    // An interrupt had removed the lock of this one.
    sandbox.write(format!("b/.umbel-reconcile-cccccc/{}", "4".repeat(64)), "4");
    sandbox.write("b/.umbel-reconcile-backup/x", "of the user");
    let held = File::open(sandbox.path("b/.umbel-reconcile-bbbbbb/lock")).unwrap();
    held.lock().unwrap();
    reconcile(&sandbox, "--dir a b --two-way").kept();
    let (user, used) = ("b/.umbel-reconcile-backup/x", "b/.umbel-reconcile-bbbbbb/lock");
    let files = ["a/x", "a/y", user, used, "b/x", "b/y"];
    assert_eq!(sandbox.files(), files, "what is in use, or the user's, stays");
}

#[test]
fn an_interrupt_leaves_no_staging_directory() {
    let mut draws = Draws(5);
    let content: Vec<u8> = (0..1 << 17).flat_map(|_| draws.below(u64::MAX).to_le_bytes()).collect();
    let sandbox = Sandbox::with(&[("a/x", &b"1"[..]), ("b/y", &content)]);
    script(&sandbox, "--dir b");
    // The other side stops in the middle of a content, and exits when this side does.
    let held = sandbox.text("there.sh").replace("exec ", "export PATH=/usr/bin:/bin; ")
        + "| (stdbuf -o0 head -c 300000; cat > /dev/null; true)";
    sandbox.write("there.sh", held.replace("b\n|", "b |"));
    let mut child = umbel(&sandbox, "reconcile --dir a exec:./there.sh --pull").spawn().unwrap();
    let is_staging = || sandbox.files().iter().any(|name| name.starts_with("a/.umbel-reconcile-"));
    while !is_staging() {
        if let Some(status) = child.try_wait().unwrap() {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("it ended before a content came, {status}: {said}");
        }
        std::thread::yield_now();
    }
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(sandbox.files(), ["a/x", "b/y", "there.sh"]);
}

#[test]
fn what_cannot_be_changed_there_changes_nothing_here() {
    let sandbox = Sandbox::with(&[("a", "1\n"), ("b", "2\n")]);
    script(&sandbox, "--writable b");
    // The other side cannot write files, as on a full disk, but can write to pipes.
    let limited = sandbox.text("there.sh").replace("exec", "trap '' XFSZ; ulimit -f 0; exec");
    sandbox.write("there.sh", limited);
    let ran = reconcile(&sandbox, "a exec:./there.sh --two-way");
    ran.refused(
        2,
        &[
            "exec:./there.sh: this side's set is unchanged: the change could not be applied there; the other side says: \"",
            "File too large",
        ],
    );
    assert_eq!((sandbox.text("a"), sandbox.text("b")), ("1\n".into(), "2\n".into()));
    sandbox.write("b.gz", gzip(b"2\n"));
    reconcile(&sandbox, "a b.gz --push").refused(2, &["b.gz: a packed file is not changed"]);
    // A content that the other side cannot store.
    for (name, text) in [("da/x", "1\n"), ("db/y", "2\n")] {
        sandbox.write(name, text);
    }
    let limited = sandbox.text("there.sh").replace("--writable b", "--dir --writable db");
    sandbox.write("there.sh", limited);
    let ran = reconcile(&sandbox, "--dir da exec:./there.sh --push");
    ran.refused(2, &["the other side says: \"", "File too large"]);
    let shown = reconcile(&sandbox, "a b.gz").ended_with(1);
    assert_eq!(shown, b"- 1\n+ 2\n");
}

/// More waits to be written than pipes hold when the other side leaves: the write fails, and is not the cause.
#[test]
fn who_gives_up_while_much_is_sent_to_it_is_understood() {
    let mut draws = Draws(9);
    let mut lines: Vec<u8> = (0..200 << 13)
        .flat_map(|_| draws.below(u64::MAX).to_le_bytes().map(|byte| byte | 128))
        .collect();
    lines.chunks_mut(1 << 16).for_each(|line| line[0] = b'\n');
    let sandbox = Sandbox::with(&[("a", &lines[..]), ("b", b"")]);
    script(&sandbox, "--writable --max-diff 5 b");
    let ran = reconcile(&sandbox, "a exec:./there.sh --push");
    ran.refused(2, &["exec:./there.sh: the peer gave up: ", "differences, at most 5 are allowed"]);
    assert_eq!(sandbox.text("b"), "");
}

/// Regression: it was told as an item of the set to which it was to come.
#[test]
fn an_item_that_is_too_long_is_named_by_its_set_and_line() {
    let long = vec![b'x'; 17 << 20];
    let sandbox = Sandbox::with(&[("a", &b"1\n"[..]), ("huge", &[&b"1\n"[..], &long].concat())]);
    // With the number of equal lines before it.
    let named = "huge: line 2: an item of 17825796 bytes, at most 16777216 are sent";
    reconcile(&sandbox, "a huge --pull").refused(2, &[named]);
    reconcile(&sandbox, "huge a --push").refused(2, &[named]);
    script(&sandbox, "huge");
    let told = "exec:./there.sh: the peer gave up: an item of its set is longer";
    reconcile(&sandbox, "a exec:./there.sh --pull").refused(2, &[named, told]);
    assert_eq!(sandbox.text("a"), "1\n");
}

#[test]
fn ids_of_a_packed_file_are_read() {
    let ids = "00000000000000ff\n0000000000000100\n";
    let wide = format!("{:032x}\n", 7);
    let sandbox = Sandbox::with(&[("a", ids), ("wide", &*wide)]);
    sandbox.write("b.gz", gzip(&ids.as_bytes()[..17]));
    sandbox.write("none.gz", gzip(b""));
    assert_eq!(reconcile(&sandbox, "--ids a b.gz").ended_with(1), b"- 0000000000000100\n");
    // The other set shows how long they are.
    let shown = reconcile(&sandbox, "--ids none.gz wide").ended_with(1);
    assert_eq!(shown, format!("+ {wide}").into_bytes());
}

#[test]
fn sets_of_any_two_sizes_are_compared() {
    let sandbox = Sandbox::with(&[("empty", ""), ("a", "1\n")]);
    let many: Vec<u8> = (0..=1u64 << 20).flat_map(u64::to_be_bytes).collect();
    sandbox.write("many", many);
    // There is no peer that could ask for too much; another limit ends the session after its first frame.
    let ran = reconcile(&sandbox, "--id-bytes 8 many empty --max-bytes 190");
    ran.refused(2, &["bytes on the wire, at most 190 are allowed"]);
    // Over ssh, who allows it allows it on both sides.
    sandbox.write("bin/ssh", "#!/bin/sh\necho \"$4\" >&2\nexit 1\n");
    let mode = Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path("bin/ssh"), mode).unwrap();
    let mut command = umbel(&sandbox, "reconcile a ssh://host/b --push --allow-skew");
    let path = format!("{}:/usr/bin:/bin", sandbox.path("bin").display());
    let output = command.env("PATH", path).output().unwrap();
    sandbox.ended(output).refused(2, &["--writable --allow-skew -- /b"]);
}
