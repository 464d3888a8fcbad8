//! Arguments of `umbel reconcile` that are refused before anything is read.

use crate::reconcile::reconcile;
use crate::sandbox::Sandbox;

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let sandbox = Sandbox::with(&[("a", "1\n")]);
    for (args, said) in [
        ("a", "two sets are compared"),
        ("a b", "b: No such file"),
        ("exec:true exec:true", "one of the two sets must be a file"),
        ("a s3://x/y", "no way to s3://"),
        ("a a --pull --push", "cannot be used with"),
        ("a a --delete", "--pull"),
        ("a a --two-way --delete", "--two-way --delete would"),
        ("a a --on-conflict a", "--on-conflict goes with --two-way, --stdio or --listen"),
        ("a a --push --on-conflict b", "--on-conflict goes with --two-way"),
        ("--stdio --delete a", "--writable"),
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
