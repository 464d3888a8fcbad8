//! `umbel reconcile`: differences between files, directories and processes are shown and applied.

use crate::model::Draws;
use crate::sandbox::{Ran, Sandbox};
use crate::serve::{run, umbel};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::fs::{PermissionsExt, symlink};

pub(crate) fn reconcile(sandbox: &Sandbox, args: &str) -> Ran {
    run(sandbox, &format!("reconcile {args}"))
}

fn report(sandbox: &Sandbox) -> Value {
    serde_json::from_slice(&sandbox.read("report.json")).unwrap()
}

/// The number of occurrences of each line in a text.
fn counts(text: &[u8]) -> BTreeMap<Vec<u8>, usize> {
    let mut counts = BTreeMap::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        *counts.entry(line.to_vec()).or_default() += 1;
    }
    counts
}

#[test]
fn the_difference_of_lines_counts_each_occurrence() {
    let sandbox = Sandbox::with(&[("a", "x\ny\nx\nonly a\n"), ("b", "y\nonly b\nx\ny")]);
    let shown = reconcile(&sandbox, "a b --report report.json").ended_with(1);
    assert_eq!(String::from_utf8(shown).unwrap(), "- only a\n+ only b\n- x\n+ y\n");
    let report = report(&sandbox);
    assert_eq!((&report["verified"], &report["difference"]["only_a"]), (&true.into(), &2.into()));
    assert_eq!(report["difference"]["only_b"], 2);
    assert_eq!(report["items"]["a"], 4);
    let by_phase: u64 =
        report["bytes_by_phase"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    let total = ["bytes_sent", "bytes_received"].map(|name| report[name].as_u64().unwrap());
    assert_eq!(total.iter().sum::<u64>(), by_phase);
    assert_eq!((sandbox.text("a"), sandbox.text("b").len()), ("x\ny\nx\nonly a\n".into(), 12));
    assert!(reconcile(&sandbox, "a a").kept().is_empty());
}

#[test]
fn both_sides_take_what_they_lack() {
    let mut numbers = Draws(3);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for number in 0..20_000u64 {
        let line = format!("{number} {:x}\n", numbers.below(1 << 40));
        let owner = numbers.below(200);
        if owner != 0 {
            a.extend(line.bytes());
        }
        if owner != 1 {
            b.extend(line.bytes());
        }
    }
    let sandbox = Sandbox::with(&[("a", &a), ("b", &b)]);
    let all: BTreeMap<Vec<u8>, usize> = counts(&a).into_iter().chain(counts(&b)).collect();
    assert!(reconcile(&sandbox, "a b --two-way --report report.json").kept().is_empty());
    assert_eq!(counts(&sandbox.read("a")), all);
    assert_eq!(counts(&sandbox.read("b")), all);
    assert!(sandbox.read("a").starts_with(&a), "what was there stays in its order");
    let report = report(&sandbox);
    let (bytes, bound) = (report["ratio"].as_f64().unwrap(), report["lower_bound_bytes"].as_u64());
    assert!(bytes < 4.0 && bound.unwrap() > 1000, "{report}");
    assert!(reconcile(&sandbox, "a b").kept().is_empty());
}

#[test]
fn one_side_becomes_the_other() {
    let sandbox = Sandbox::with(&[("a", "1\n2\n3"), ("b", "2\n4\n")]);
    let kept = reconcile(&sandbox, "a b --pull").ended_with(1);
    assert!(kept.is_empty());
    assert_eq!((sandbox.text("a"), sandbox.text("b")), ("1\n2\n3\n4\n".into(), "2\n4\n".into()));
    reconcile(&sandbox, "a b --pull --delete").kept();
    assert_eq!(sandbox.text("a"), "2\n4\n");
    sandbox.write("a", "5\n");
    reconcile(&sandbox, "a b --push").ended_with(1);
    assert_eq!((sandbox.text("a"), sandbox.text("b")), ("5\n".into(), "2\n4\n5\n".into()));
}

#[test]
fn a_changed_file_keeps_its_permissions_and_links_to_it() {
    let sandbox = Sandbox::with(&[("real", "1\n"), ("b", "2\n")]);
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(sandbox.path("real"), mode).unwrap();
    symlink(sandbox.path("real"), sandbox.path("a")).unwrap();
    reconcile(&sandbox, "a b --two-way").kept();
    assert_eq!(sandbox.text("real"), "1\n2\n");
    assert!(sandbox.path("a").is_symlink());
    let metadata = std::fs::metadata(sandbox.path("real")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
}

#[test]
fn ids_are_sets_of_one_width() {
    let (one, two) = ("00000000000000ff", "0123456789ABCDEF");
    let sandbox = Sandbox::with(&[("a", format!("{one}\n")), ("b", format!("{two}\n{one}\n"))]);
    let shown = reconcile(&sandbox, "--ids a b").ended_with(1);
    assert_eq!(shown, b"+ 0123456789abcdef\n");
    reconcile(&sandbox, "--ids a b --pull").kept();
    assert_eq!(sandbox.text("a"), "00000000000000ff\n0123456789abcdef\n");
    sandbox.write("wide", format!("{one}{one}\n"));
    reconcile(&sandbox, "--ids a wide").refused(2, &["wide: line 1 has an id of 128 bits"]);
    sandbox.write("wider", format!("{one}{one}{one}\n"));
    reconcile(&sandbox, "--ids wide wider").refused(2, &["of 192 bits, expected 128"]);
    reconcile(&sandbox, "--ids=128 a b")
        .refused(2, &["a: line 1 has an id of 64 bits", "--ids=128"]);
    reconcile(&sandbox, "--ids=64 a b").kept();
    sandbox.write("twice", format!("{one}\n{two}\n{one}\n"));
    reconcile(&sandbox, "--ids a twice").refused(2, &["twice: line 3: the id is that of line 1"]);
    sandbox.write("short", "00ff\n");
    reconcile(&sandbox, "--ids a short").refused(2, &["line 1 has 4 characters, expected"]);
    sandbox.write("bad", format!("{one}\n00000000000000fg\n"));
    reconcile(&sandbox, "--ids a bad").refused(2, &["bad: line 2: `fg` is not hexadecimal"]);
}

#[test]
fn raw_ids_are_compared_and_appended() {
    let id = |number: u8| [number; 20];
    let sandbox = Sandbox::with(&[
        ("a", [id(1), id(2)].concat()),
        ("b", [id(2), id(3)].concat()),
        ("cut", vec![0; 21]),
    ]);
    reconcile(&sandbox, "--id-bytes 20 a b --two-way").kept();
    assert_eq!(sandbox.read("a"), [id(1), id(2), id(3)].concat());
    assert_eq!(sandbox.read("b"), [id(2), id(3), id(1)].concat());
    reconcile(&sandbox, "--id-bytes 20 a cut").refused(2, &["cut: 21 bytes are no multiple of 20"]);
}

#[test]
fn records_with_keys_have_versions() {
    let (a, b) = ("k1\told\nk2\tsame\nk3\tonly a\n", "k1\tnew\nk2\tsame\nk4\tonly b\n");
    let sandbox = Sandbox::with(&[("a", a), ("b", b)]);
    let difference = || {
        let report: Value = serde_json::from_str(&sandbox.text("r.json")).unwrap();
        report["difference"].clone()
    };
    let expected = serde_json::json!({"only_a": 2, "only_b": 2, "changed": 1});
    let shown = reconcile(&sandbox, "--kv a b --report r.json").ended_with(1);
    let shown = String::from_utf8(shown).unwrap();
    assert_eq!(shown, "+ k1\tnew\n- k1\told\n- k3\tonly a\n+ k4\tonly b\n");
    assert_eq!(difference(), expected);
    // Without a rule that decides, neither version wins.
    reconcile(&sandbox, "--kv a b --two-way --report r.json").ended_with(1);
    assert_eq!(difference(), expected);
    reconcile(&sandbox, "a b --report r.json").ended_with(1);
    assert_eq!(difference()["changed"], Value::Null);
    assert_eq!(sandbox.text("a"), "k1\told\nk2\tsame\nk3\tonly a\nk4\tonly b\n");
    assert_eq!(sandbox.text("b"), "k1\tnew\nk2\tsame\nk4\tonly b\nk3\tonly a\n");
    reconcile(&sandbox, "--kv a b --two-way --on-conflict a").kept();
    assert_eq!(sandbox.text("b"), "k1\told\nk2\tsame\nk4\tonly b\nk3\tonly a\n");
    sandbox.write("a", a);
    sandbox.write("b", b);
    reconcile(&sandbox, "--kv a b --pull --delete").kept();
    assert_eq!(sandbox.text("a"), b);
    sandbox.write("a", "k1\tolder\n");
    // Only the other version is replaced; then the sets are equal.
    sandbox.write("b", "k1\told\n");
    reconcile(&sandbox, "--kv a b --pull").kept();
    assert_eq!(sandbox.text("a"), "k1\told\n");
    sandbox.write("a", "k1\tnew\n");
    reconcile(&sandbox, "--kv a b --push").kept();
    assert_eq!(sandbox.text("b"), "k1\tnew\n");
    sandbox.write("a", "k1\tx\nk2\ty\n");
    reconcile(&sandbox, "--kv a b --pull").ended_with(1);
    assert_eq!(sandbox.text("a"), "k1\tnew\nk2\ty\n");
    sandbox.write("a", "k1\tx\nk1\ty\n");
    reconcile(&sandbox, "--kv a b").refused(2, &["a: line 2: the key is that of line 1"]);
    sandbox.write("a", "k1\tx\nk2\n");
    reconcile(&sandbox, "--kv a b").refused(2, &["a: line 2: no tab"]);
}

#[test]
fn json_records_are_named_by_fields() {
    let sandbox = Sandbox::with(&[
        ("a", "{\"id\": 1, \"n\": 1}\n{\"id\": 2}\n"),
        ("b", "{\"n\": 2, \"id\": 1}\n{\"id\": 2}\n"),
        ("bad", "{\"id\": 1}\n{\"n\": 1}\n"),
    ]);
    reconcile(&sandbox, "--kv --key id a b --two-way --on-conflict b").kept();
    assert_eq!(sandbox.text("a"), sandbox.text("b"));
    reconcile(&sandbox, "--kv --key id a bad").refused(2, &["bad: line 2: no field `id`"]);
    reconcile(&sandbox, "--kv --key id a exec:cat").refused(2, &["exec:cat"]);
}

fn tree(sandbox: &Sandbox, name: &str) -> Vec<(String, Vec<u8>)> {
    let prefix = format!("{name}/");
    let files = sandbox.files().into_iter().filter(|file| file.starts_with(&prefix));
    files.map(|file| (file[prefix.len()..].to_owned(), sandbox.read(&file))).collect()
}

#[test]
fn directories_become_equal_with_what_changed() {
    let same = vec![b'='; 100_000];
    let sandbox = Sandbox::with(&[
        ("a/same", &same[..]),
        ("a/deep/er/changed", b"old"),
        ("a/old name", b"renamed"),
        ("a/gone/x", b"gone"),
        ("b/same", &same),
        ("b/deep/er/changed", b"new"),
        ("b/new name", b"renamed"),
        ("b/added/twice", b"added"),
        ("b/added/again", b"added"),
    ]);
    symlink("same", sandbox.path("b/link")).unwrap();
    let run_mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path("b/new name"), run_mode).unwrap();
    let shown = String::from_utf8(reconcile(&sandbox, "--dir a b").ended_with(1)).unwrap();
    let expected = "+ added/again\n+ added/twice\n~ deep/er/changed\n- gone/x\n+ link\n\
                    > old name => new name\n";
    assert_eq!(shown, expected);
    reconcile(&sandbox, "--dir a b --pull --delete --report report.json").kept();
    assert_eq!(tree(&sandbox, "a"), tree(&sandbox, "b"));
    assert!(!sandbox.path("a/gone").exists(), "an empty directory goes too");
    assert_eq!(std::fs::read_link(sandbox.path("a/link")).unwrap().to_str(), Some("same"));
    let metadata = std::fs::metadata(sandbox.path("a/new name")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o755);
    assert!(reconcile(&sandbox, "--dir a b").kept().is_empty());
}

#[test]
fn directories_exchange_both_ways_and_report_conflicts() {
    let big = vec![7; 3 << 20];
    let sandbox =
        Sandbox::with(&[("a/x", &b"1"[..]), ("a/big", &big), ("b/x", b"2"), ("b/y", b"3")]);
    let ended = reconcile(&sandbox, "--dir a b --two-way");
    assert!(ended.stderr.contains(", 1 conflict\n"), "{}", ended.stderr);
    ended.ended_with(1);
    assert_eq!((sandbox.text("a/y"), sandbox.read("b/big")), ("3".into(), big));
    assert_eq!((sandbox.text("a/x"), sandbox.text("b/x")), ("1".into(), "2".into()));
    reconcile(&sandbox, "--dir a b --two-way --on-conflict b").kept();
    assert_eq!(tree(&sandbox, "a"), tree(&sandbox, "b"));
    reconcile(&sandbox, "--dir a/x b").refused(2, &["a/x: not a directory"]);
}

/// Writes a program `there.sh` that answers, so that its `exec:` endpoint contains no blanks.
pub(crate) fn script(sandbox: &Sandbox, args: &str) {
    let umbel = env!("CARGO_BIN_EXE_umbel");
    sandbox.write("there.sh", format!("#!/bin/sh\nexec {umbel} reconcile --stdio {args}\n"));
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path("there.sh"), mode).unwrap();
}

#[test]
fn a_command_leads_to_another_process() {
    let sandbox = Sandbox::with(&[("a", "1\n2\n"), ("b", "2\n3\n")]);
    script(&sandbox, "b");
    let shown = reconcile(&sandbox, "a exec:./there.sh").ended_with(1);
    assert_eq!(shown, b"- 1\n+ 3\n");
    let shown = reconcile(&sandbox, "exec:./there.sh a").ended_with(1);
    assert_eq!(shown, b"+ 1\n- 3\n");
    // It has no permission to change its set.
    reconcile(&sandbox, "a exec:./there.sh --two-way")
        .refused(2, &["exec:./there.sh", "refused", "started without --writable"]);
    assert_eq!(sandbox.text("a"), "1\n2\n");
    script(&sandbox, "--writable b");
    reconcile(&sandbox, "a exec:./there.sh --two-way").kept();
    assert_eq!((sandbox.text("a"), sandbox.text("b")), ("1\n2\n3\n".into(), "2\n3\n1\n".into()));
    reconcile(&sandbox, "--kv a exec:./there.sh").refused(2, &["no tab"]);
    sandbox.write("kv", "k\tv\n");
    let flags = "give both sides the same of --lines, --ids, --id-bytes, --kv, --key and --dir";
    reconcile(&sandbox, "--kv kv exec:./there.sh").refused(2, &["refused", flags]);
    sandbox.write("json", "{\"k\": 1}\n");
    script(&sandbox, "--kv --key k json");
    reconcile(&sandbox, "--kv kv exec:./there.sh")
        .refused(2, &["reads its items otherwise", flags]);
    for (command, how) in [("true", "with exit code 0"), ("false", "with exit code 1")] {
        let said =
            format!("program ended {how}: exec:{command}: the connection ended while greeting");
        reconcile(&sandbox, &format!("a exec:{command}")).refused(2, &[&said]);
    }
    reconcile(&sandbox, "a exec:cat").refused(2, &["exec:cat"]);
}

/// The start of a first message of 4 KiB, and then a byte now and then.
#[test]
fn a_peer_that_never_ends_is_left_in_time() {
    let sandbox = Sandbox::with(&[("a", "1\n")]);
    script(&sandbox, "a");
    let trickle = r"printf '\200\040\002'; while printf x; do sleep 0.1; done";
    sandbox.write("there.sh", format!("#!/bin/sh\n{trickle}\n"));
    let left = reconcile(&sandbox, "a exec:./there.sh --max-time 1");
    left.refused(2, &["exec:./there.sh: not done within 1 s", "nothing was applied"]);
    // A side that answers normally is not affected by the time limit.
    script(&sandbox, "a");
    reconcile(&sandbox, "a exec:./there.sh --max-time 10m --idle-timeout 600s").kept();
}

/// As where a file that the shell reads when it starts greets whoever comes.
#[test]
fn what_a_shell_says_before_a_session_is_shown_with_what_to_do() {
    let sandbox = Sandbox::with(&[("a", "1\n2\n"), ("b", "2\n3\n")]);
    script(&sandbox, "--resume kept b");
    sandbox.write("greets.sh", "#!/bin/sh\necho 'Welcome home'\nexec ./there.sh\n");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path("greets.sh"), mode).unwrap();
    let words = [
        r"exec:./greets.sh: it began with `Welcome home\n`, which is no message",
        "silence what its shell prints",
    ];
    reconcile(&sandbox, "a exec:./greets.sh").refused(2, &words);
    reconcile(&sandbox, "a exec:./greets.sh --resume journal").refused(2, &words);
    // Without a message of umbel, too.
    reconcile(&sandbox, "a exec:date").refused(2, &["exec:date: it began with `"]);
}

/// Reconciles with a file over a stand-in for ssh, as if the file were on another machine.
pub(crate) fn over_ssh(sandbox: &Sandbox, args: &str, there: &str) -> Ran {
    let umbel_there = env!("CARGO_BIN_EXE_umbel").strip_suffix("/umbel").unwrap();
    let ssh = "#!/bin/sh\n[ \"$1 $2 $3\" = \"-T -- u@host\" ] || exit 9\nexec sh -c \"$4\"\n";
    sandbox.write("bin/ssh", ssh);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path("bin/ssh"), mode).unwrap();
    let path = format!("{}:{umbel_there}:/usr/bin:/bin", sandbox.path("bin").display());
    let there = format!("ssh://u@host{}", sandbox.path(there).display());
    let mut command = umbel(sandbox, &format!("reconcile {args}"));
    let output = command.arg(there).env("PATH", path).output().unwrap();
    sandbox.ended(output)
}

/// A stand-in for ssh shows that words reach the other machine's shell unchanged.
#[test]
fn ssh_runs_the_command_on_the_other_machine() {
    let sandbox = Sandbox::with(&[("a", "1\n2\n"), ("it's $b", "2\n3\n")]);
    over_ssh(&sandbox, "a --two-way", "it's $b").kept();
    assert_eq!(sandbox.text("a"), "1\n2\n3\n");
    assert_eq!(sandbox.text("it's $b"), "2\n3\n1\n");
}

#[test]
fn sessions_are_answered_at_an_address() {
    let sandbox = Sandbox::with(&[("a", "1\n2\n"), ("b", "2\n3\n")]);
    let mut server = umbel(&sandbox, "reconcile --listen 127.0.0.1:0 --writable --delete b");
    let mut server = server.spawn().unwrap();
    let mut said = BufReader::new(server.stderr.take().unwrap()).lines();
    let listening = said.next().unwrap().unwrap();
    let address = listening.strip_prefix("umbel: listening on ").unwrap();
    assert_eq!(reconcile(&sandbox, &format!("a tcp://{address}")).ended_with(1), b"- 1\n+ 3\n");
    reconcile(&sandbox, &format!("a tcp://{address} --push")).ended_with(1);
    assert_eq!(sandbox.text("b"), "2\n3\n1\n");
    reconcile(&sandbox, &format!("a tcp://{address} --pull")).kept();
    assert_eq!(sandbox.text("a"), "1\n2\n3\n");
    sandbox.write("a", "4\n2\n");
    reconcile(&sandbox, &format!("a tcp://{address} --push --delete")).kept();
    let fourth = said.nth(3).unwrap().unwrap();
    assert!(fourth.contains(": 1 items came, 2 removed, "), "{fourth}");
    server.kill().unwrap();
    server.wait().unwrap();
    let gone = reconcile(&sandbox, &format!("a tcp://{address}"));
    gone.refused(2, &["cannot connect"]);
    let open = reconcile(&sandbox, "--listen 0.0.0.0:0 b");
    open.refused(2, &["--insecure allows that"]);
}

#[test]
fn sides_that_know_one_secret_prove_it() {
    let secret = "8f14e45fceea167a5a36dedd4bea2543\n";
    let sandbox = Sandbox::with(&[("a", "1\n2\n"), ("b", "2\n3\n"), ("s", secret)]);
    sandbox.write("other", secret.replace('8', "9"));
    sandbox.write("short", "hunter2");
    let close = |name: &str, mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(sandbox.path(name), mode).unwrap();
    };
    ["s", "other", "short"].iter().for_each(|name| close(name, 0o600));
    let args = "reconcile --listen 127.0.0.1:0 --writable --resume kept b --secret-file s";
    let mut server = umbel(&sandbox, args).spawn().unwrap();
    let mut said = BufReader::new(server.stderr.take().unwrap()).lines();
    let listening = said.next().unwrap().unwrap();
    let address = listening.strip_prefix("umbel: listening on ").unwrap();
    let ask = |args: &str| reconcile(&sandbox, &format!("a tcp://{address} {args}"));
    ask("--secret-file other").refused(2, &["it has another secret"]);
    assert!(said.next().unwrap().unwrap().ends_with("not let in: it has another secret"));
    ask("").refused(2, &["without --secret-file"]);
    assert!(said.next().unwrap().unwrap().contains("it speaks no TLS"));
    assert_eq!(ask("--secret-file s").ended_with(1), b"- 1\n+ 3\n");
    ask("--secret-file s --two-way --resume journal").kept();
    assert_eq!(sandbox.text("b"), "2\n3\n1\n");
    server.kill().unwrap();
    server.wait().unwrap();
    ask("--secret-file short").refused(2, &["short: a secret of 7 bytes: expected at least 32"]);
    reconcile(&sandbox, "a exec:true --secret-file s").refused(2, &["--listen and tcp://"]);
    close("s", 0o604);
    let open = [
        "s: others than its owner may read or write the secret (mode 604): chmod 600",
        "`defaultMode: 0440`",
    ];
    ask("--secret-file s").refused(2, &open);
    reconcile(&sandbox, "--listen 127.0.0.1:0 b --secret-file s").refused(2, &open);
}

#[test]
fn a_reader_that_leaves_changes_nothing_in_how_it_ends() {
    let sandbox = Sandbox::with(&[("a", "1\n2\n"), ("b", "2\n3\n")]);
    run(&sandbox, "sketch build b -o b.sketch --symbols 40").kept();
    for (args, code) in
        [("reconcile a b", 1), ("reconcile a b.sketch", 1), ("sketch build a -o - --symbols 40", 0)]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = umbel(&sandbox, args).stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args}: {stderr}");
        assert!(!stderr.contains("pipe"), "{args}: {stderr}");
    }
}

/// Who asks for a secret hangs up at once: a connection that breaks later has another cause.
#[test]
fn a_secret_is_named_only_where_it_may_be_what_is_missing() {
    let sandbox = Sandbox::with(&[("a", "1\n")]);
    for (first, is_named) in [(&b""[..], true), (b"\x80", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut socket, _) = listener.accept().unwrap();
                socket.write_all(first).unwrap();
                socket.shutdown(Shutdown::Write).unwrap();
                // Not closed before the other side does, whose bytes would make that a reset.
                let _ = socket.read_to_end(&mut Vec::new());
            });
            reconcile(&sandbox, &format!("a tcp://{address}"))
        });
        assert_eq!(ran.stderr.contains("--secret-file"), is_named, "{}", ran.stderr);
        ran.refused(2, &[&address.to_string()]);
    }
}
