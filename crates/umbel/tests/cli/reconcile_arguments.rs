//! Arguments of `umbel reconcile` that are refused before anything is read.

use crate::reconcile::reconcile;
use crate::sandbox::Sandbox;
use crate::serve::umbel;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let sandbox = Sandbox::with(&[("a", "1\n")]);
    for (args, said) in [
        ("a", "two sets are compared"),
        ("a b", "b: No such file"),
        ("exec:true exec:true", "one of the two sets must be a file"),
        ("a s3://x/y", "no way to s3://"),
        ("a tcp://h:1/x", "tcp://h:1/x: expected tcp://HOST:PORT, without a path"),
        ("a ssh://h:x/y", "ssh://h:x/y: expected a PORT from 1 to 65535"),
        ("a ssh://h/~b/y", "ssh://h/~b/y: expected ssh://USER@HOST/~/PATH below"),
        ("a a --pull --push", "cannot be used with"),
        ("a a --delete", "--pull"),
        ("a a --two-way --delete", "--two-way --delete would"),
        ("a a --on-conflict a", "--on-conflict goes with --two-way, --stdio or --listen"),
        ("a a --push --on-conflict b", "--on-conflict goes with --two-way"),
        ("--stdio --delete a", "--writable"),
        ("a a --writable", "--writable goes with --stdio or --listen"),
        ("a tcp://h:1 --push --writable", "--writable goes with --stdio or --listen"),
        ("--id-bytes 7 a a", "7"),
        ("a a --max-time 3x", "expected a number of seconds, or a time like 90s"),
        ("a a --idle-timeout 0", "expected at least one second"),
        ("--stdio a a", "one file is answered for"),
        ("--stdio a --report r.json", "--report is for the side that begins the session"),
        ("--listen 127.0.0.1:0 a --report r.json", "--report is for the side that begins"),
        ("a .", ".: a directory, expected a file: a set that is a directory needs --dir"),
        ("--ids . a", ".: a directory, expected a file"),
        ("- a", "-: standard input is no set"),
        ("--listen 127.0.0.1 a", "127.0.0.1: expected HOST:PORT"),
        ("--listen 127.0.0.1:0 gone", "gone: No such file"),
        ("--listen 127.0.0.1:0 --dir a", "a: not a directory"),
        ("a a --secret-file s", "--secret-file is for --listen and tcp://"),
        ("a a.sketch --secret-file s", "--secret-file is for --listen and tcp://"),
        ("--stdio a --secret-file s", "--secret-file is for --listen and tcp://"),
        ("--key id a a", "--kv"),
        ("--lines --key id a a", "cannot be used with"),
        ("--ids --key id a a", "cannot be used with"),
        ("--id-bytes 8 --key id a a", "cannot be used with"),
        ("--dir --key id . .", "cannot be used with"),
    ] {
        reconcile(&sandbox, args).refused(2, &[said]);
    }
}

#[test]
fn a_port_and_the_home_directory_reach_ssh() {
    let sandbox =
        Sandbox::with(&[("a", "1\n"), ("bin/ssh", "#!/bin/sh\necho \"$@\" >&2\nexit 1\n")]);
    std::fs::set_permissions(sandbox.path("bin/ssh"), Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", sandbox.path("bin").display());
    for (args, said) in [
        ("a ssh://u@host:2222/~/b", "-T -p 2222 -- u@host umbel reconcile --stdio --lines -- b"),
        ("--dir bin ssh://host/~/", "-T -- host umbel reconcile --stdio --dir -- ."),
        ("a ssh://host/~/~root/b", "-T -- host umbel reconcile --stdio --lines -- '~root/b'"),
    ] {
        let mut command = umbel(&sandbox, &format!("reconcile {args}"));
        let output = command.env("PATH", &path).output().unwrap();
        sandbox.ended(output).refused(2, &[said]);
    }
}
