//! `umbel filter import --from FILE.rdb` and `insert --from FILE.rdb`.

use crate::sandbox::Sandbox;
use crate::serve::{Server, umbel};
use std::path::Path;

/// Copies a test file of umbel-rdb, whose README describes its content.
fn put(sandbox: &Sandbox, name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../umbel-rdb/testdata");
    std::fs::copy(folder.join(name), sandbox.path(name)).unwrap();
}

#[test]
fn filters_of_a_file_are_imported() {
    let sandbox = Sandbox::new();
    put(&sandbox, "redisbloom.rdb");
    let server = Server::start(&sandbox);
    let run = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    let import = |rest: &str| run(&format!("import {rest}"));
    let made = import("users --from redisbloom.rdb").kept_text();
    assert!(
        made.contains("kind\tredisbloom\n") && made.contains("hashing\tredisbloom\n"),
        "{made}"
    );
    let items: String = (0..100).map(|item| format!("{item}\n")).collect();
    sandbox.write("items", &items);
    assert_eq!(
        run("contains users foo bar --count").kept_text(),
        "present\t1\nabsent\t1\nlevel\tlinearizable\n"
    );
    import("chain --from redisbloom.rdb --db 2 --key chain").kept();
    assert_eq!(
        run("contains chain --file items --count").kept_text(),
        "present\t100\nabsent\t0\nlevel\tlinearizable\n"
    );
    assert!(run("info chain").kept_text().contains("answered new\t99\n"));
    let refused = |rest: &str, said: &[&str]| import(rest).refused(1, said);
    refused("users --from redisbloom.rdb", &["users"]);
    let two = ["redisbloom.rdb, database 2", "there are 2 filters, \"chain\", \"users\"", "--key"];
    refused("x --from redisbloom.rdb --db 2", &two);
    refused("x --from redisbloom.rdb --db 1", &["database 1", "no filter of RedisBloom"]);
    refused("x --from redisbloom.rdb --key none", &["there is no key \"none\""]);
    refused(
        "x --from redisbloom.rdb --key plain",
        &["key \"plain\"", "of type set", "insert --from"],
    );
    refused("x --from redisbloom.rdb --key cuckoo", &["MBbloomCF", "items anew"]);
    assert_eq!(run("list").kept_text().lines().count(), 2);
}

#[test]
fn damaged_files_leave_nothing_and_name_the_byte() {
    let sandbox = Sandbox::new();
    put(&sandbox, "redisbloom.rdb");
    let whole = std::fs::read(sandbox.path("redisbloom.rdb")).unwrap();
    let server = Server::start(&sandbox);
    let run = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    let mut damaged = whole.clone();
    // A byte in the array of `users`.
    damaged[180] ^= 1;
    for (bytes, said) in [
        (&damaged[..], "it is damaged"),
        (&whole[..100], "byte 100: it ends early"),
        (b"UMBLEXP1 and more", "byte 0: not a Redis database file"),
        (b"", "byte 0: not a Redis database file"),
    ] {
        std::fs::write(sandbox.path("bad.rdb"), bytes).unwrap();
        run("import x --from bad.rdb --key users").refused(1, &["bad.rdb, key \"users\"", said]);
        run("create y --capacity 10").kept();
        run("insert y --from bad.rdb --keys *").refused(1, &["bad.rdb, keys \"*\"", said]);
        assert!(run("info y").kept_text().contains("answered new\t0\n"));
        run("drop y").kept();
    }
    run("import x --from gone.rdb").refused(1, &["gone.rdb", "cannot read it"]);
    run("import x --from .").refused(1, &["no regular file"]);
    assert_eq!(run("list").kept_text(), "");
}

#[test]
fn items_of_a_file_are_inserted() {
    let sandbox = Sandbox::new();
    put(&sandbox, "redis-7.0-lfu.rdb");
    let server = Server::start(&sandbox);
    let run = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    run("create f --capacity 1000 --rate 0.0000001").kept();
    let insert = |rest: &str| run(&format!("insert f --from redis-7.0-lfu.rdb {rest}"));
    for (key, new) in [
        ("ints", 4),
        ("small", 4),
        ("many", 30),
        ("ranks", 4),
        ("scores", 4),
        ("fields", 4),
        ("table", 3),
        ("queue", 6),
        ("nodes", 2),
        ("plain", 1),
        ("fading", 2),
    ] {
        let said = insert(&format!("--key {key}")).kept_text();
        assert!(said.starts_with(&format!("new\t{new}\n")), "{key}: {said}");
    }
    let said = insert("--db 3 --keys seen:* --strip-prefix seen: --each").kept_text();
    // 1 and 2 were inserted before.
    assert_eq!(said, "present\t1\npresent\t2\n");
    insert("--db 3 --keys seen:*").kept();
    insert("--keys events").kept();
    assert_eq!(
        run("contains f alice member:17 40000 four k3 seen:1 events other v1 --count").kept_text(),
        "present\t7\nabsent\t2\nlevel\tlinearizable\n"
    );
    insert("--keys * --strip-prefix seen:").refused(1, &["does not begin with \"seen:\""]);
    insert("--key text").refused(1, &["redis-7.0-lfu.rdb, key \"text\"", "of type string"]);
    insert("--key none").refused(1, &["there is no key \"none\""]);
}

#[test]
fn arguments_that_make_no_sense_together_are_refused() {
    let sandbox = Sandbox::new();
    let run = |args: &str| {
        let output = umbel(&sandbox, &format!("filter {args}")).output().unwrap();
        sandbox.ended(output)
    };
    for (args, said) in [
        ("insert n --from f.rdb", "--key KEY or --keys PATTERN"),
        ("insert n --from f.rdb --key a --keys b", "--keys"),
        ("insert n --key a", "--from"),
        ("insert n a --db 1", "--db needs --from"),
        ("insert n --file f --key a", "--key needs --from"),
        ("insert n a --keys b", "--keys needs --from"),
        ("insert n --from redis://h/k --key a", "--key is for files"),
        ("insert n --from redis://h --keys a --db 1", "--db is for files"),
        ("import n --from redis://h/k --key a", "--key is for files"),
        ("import n --from f.rdb --db x", "--db"),
        ("import n --file f --key a", "--key needs --from"),
        ("import n --from f.rdb --cacert f", "rediss://"),
        ("insert n --from f.rdb --key a --cacert f", "rediss://"),
    ] {
        run(args).refused(2, &[said]);
    }
}
