//! `umbel filter insert --from`: names of keys from a node's Redis port, and sets of a Redis server if
//! one is installed.

use crate::redis_server::Redis;
use crate::sandbox::Sandbox;
use crate::serve::{Server, umbel};

#[test]
fn names_of_keys_are_items() {
    let sandbox = Sandbox::new();
    let (server, redis) = Server::start_with_redis(&sandbox);
    let run = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    for name in ["seen:1", "seen:2", "other", "db3:seen:3"] {
        run(&format!("create {name} --capacity 100")).kept();
    }
    run("create names --capacity 1000 --rate 0.000001").kept();
    let insert = |rest: &str| run(&format!("insert names --from redis://{redis}{rest}"));
    let level = "level\tmajority\n";
    assert_eq!(insert(" --keys seen:*").kept_text(), format!("new\t2\npresent\t0\n{level}"));
    assert_eq!(
        insert(" --keys seen:* --strip-prefix seen: --json").kept_text(),
        "{\"level\":\"majority\",\"new\":2,\"present\":0}\n"
    );
    assert_eq!(insert("/3 --keys * --each").kept_text(), "new\tseen:3\n");
    assert_eq!(
        run("contains names seen:1 seen:2 1 2 seen:3 3 other --count").kept_text(),
        "present\t5\nabsent\t2\nlevel\tlinearizable\n"
    );
    let none = insert(" --keys nomatch*");
    assert!(none.stderr.contains("keys \"nomatch*\": no key matches"), "{}", none.stderr);
    none.kept();
    insert(" --keys * --strip-prefix seen:")
        .refused(1, &["keys \"*\"", "does not begin with \"seen:\""]);
    insert("/other").refused(1, &["key \"other\"", "`umbel filter import --from`"]);
    insert("/none").refused(1, &["key \"none\"", "there is no such key"]);
    run("insert gone --from redis://127.0.0.1:1/k").refused(1, &["key \"k\"", "cannot be reached"]);
}

#[test]
fn arguments_that_make_no_sense_together_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("f", "a\n");
    let run = |args: &str| {
        let output = umbel(&sandbox, &format!("filter {args}")).output().unwrap();
        sandbox.ended(output)
    };
    for (args, said) in [
        ("insert n a --from redis://h/k", "--from"),
        ("insert n --file f --from redis://h/k", "--from"),
        ("insert n --keys a*", "--from"),
        ("insert n --from redis://h/k --strip-prefix a", "--keys"),
        ("insert n --from redis://h", "KEY"),
        ("insert n --from redis://h/k --keys a*", "`k` is no database"),
        ("insert n --from http://h/k", "redis://"),
        ("insert n --from redis://h/k --null", "--null"),
        ("insert n --from redis://h/k --cacert f", "rediss://"),
        ("insert n a --cacert f", "rediss://"),
        ("insert n --from redis://h/k --cert f --cert-key f", "rediss://"),
        ("insert n --from rediss://h/k --cert f", "--cert-key"),
        ("import n --from redis://h/k --cacert f", "rediss://"),
        ("export n --to redis://h/k --cacert f", "rediss://"),
        ("remove n --from redis://h/k", "--from"),
    ] {
        run(args).refused(2, &[said]);
    }
}

/// A node's Redis port with TLS stands for a foreign server.
#[test]
fn servers_with_tls_prove_themselves_first() {
    let sandbox = Sandbox::new();
    let made = |args: &str| {
        let output = umbel(&sandbox, &format!("cluster certs {args}")).output().unwrap();
        sandbox.ended(output).kept();
    };
    let others = ["client alice", "client bob", "init --out other"];
    for args in ["init", "node localhost 127.0.0.1"].into_iter().chain(others) {
        made(args);
    }
    let tls = "--tls-ca certs/ca.pem --tls-cert certs/localhost.pem --tls-key certs/localhost.key";
    let (server, redis) = Server::start_with_redis_and(&sandbox, tls);
    let alice =
        "--tls-ca certs/ca.pem --tls-cert certs/client-alice.pem --tls-key certs/client-alice.key";
    let added = format!("access add root --grant *:all --may admin {alice}");
    let token = server.run(&sandbox, &added).kept_text();
    sandbox.write("token", &token);
    let run = |args: &str| {
        let args = format!("filter {args} --tls-ca certs/ca.pem --token-file token");
        let mut command = server.command(&sandbox, &args);
        sandbox.ended(command.env("REDISCLI_AUTH", token.trim()).output().unwrap())
    };
    run("create seen --kind redisbloom --capacity 1000").kept();
    run("insert seen alice bob").kept();
    let ca = "--cacert certs/ca.pem";
    run(&format!("export seen --to rediss://{redis}/copy {ca}")).kept();
    run(&format!("import back --from rediss://{redis}/copy {ca}")).kept();
    assert_eq!(
        run(&format!("insert seen --from rediss://{redis} --keys * {ca}")).kept_text(),
        "new\t3\npresent\t0\nlevel\tmajority\n"
    );
    let insert = |rest: &str| run(&format!("insert seen --from rediss://{redis}/k {rest}"));
    insert("--cacert other/ca.pem").refused(1, &["key \"k\"", "no authority that is trusted"]);
    insert("--cacert gone.pem").refused(2, &["gone.pem: cannot read it"]);
    run(&format!("import x --from redis://{redis}/copy")).refused(1, &[&redis]);
    // Bob's certificate identifies the client, so no password is needed.
    let granted =
        "access add bob --certificate --grant *:export --tls-ca certs/ca.pem --token-file token";
    server.run(&sandbox, granted).kept();
    let without_password = |rest: &str| {
        let from = format!("--from rediss://{redis}/copy {ca} {rest}");
        let args = format!("filter import copied {from} --tls-ca certs/ca.pem --token-file token");
        server.run(&sandbox, &args)
    };
    without_password("").refused(1, &["NOAUTH"]);
    let pair = "--cert certs/client-bob.pem --cert-key certs/client-bob.key";
    without_password(pair).kept();
    without_password("--cert certs/client-bob.pem --cert-key certs/client-alice.key")
        .refused(2, &["certs/client-alice.key"]);
}

#[test]
fn a_redis_server_that_asks_for_a_certificate_is_shown_one() {
    let sandbox = Sandbox::new();
    for args in ["init", "node 127.0.0.1", "client alice"] {
        let output = umbel(&sandbox, &format!("cluster certs {args}")).output().unwrap();
        sandbox.ended(output).kept();
    }
    let files = "--port 0 --tls-ca-cert-file certs/ca.pem --tls-cert-file certs/127.0.0.1.pem \
                 --tls-key-file certs/127.0.0.1.key";
    let Some(redis) = Redis::start_on(&sandbox, "--tls-port", files) else {
        eprintln!("skipped: redis-server is not here");
        return;
    };
    let server = Server::start(&sandbox);
    let run = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    run("create f --capacity 1000").kept();
    let names =
        format!("insert f --from rediss://{} --keys * --cacert certs/ca.pem", redis.address);
    run(&names).refused(1, &["asks for a certificate", "--cert FILE", "CertificateRequired"]);
    let pair = "--cert certs/client-alice.pem --cert-key certs/client-alice.key";
    let said = run(&format!("{names} {pair}")).kept_text();
    assert_eq!(said, "new\t0\npresent\t0\nlevel\tmajority\n");
}

#[test]
fn all_that_a_redis_server_has_is_inserted() {
    let sandbox = Sandbox::new();
    let Some(redis) = Redis::start(&sandbox) else {
        eprintln!("skipped: redis-server is not here");
        return;
    };
    let server = Server::start(&sandbox);
    let run = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    let mut lines: Vec<String> = (0..5_000).map(|at| format!("SADD set m{at}")).collect();
    lines.extend((0..3_000).map(|at| format!("ZADD sorted {at} z{at}")));
    lines.extend((0..2_000).map(|at| format!("HSET hash f{at} v{at}")));
    lines.extend((0..2_500).map(|at| format!("RPUSH list e{at}")));
    lines.extend(
        ["SADD small 1 2 3", "SADD bytes \"a\\x00b\" \"\\xff\\n\"", "SET text x"].map(Into::into),
    );
    lines.push("SELECT 5".to_owned());
    lines.extend((0..4_000).map(|at| format!("SET seen:{at} 1 NX")));
    redis.tell(&lines);
    run("create f --capacity 100000 --rate 0.0000001").kept();
    let from = format!("insert f --from redis://{}", redis.address);
    let level = "level\tmajority\n";
    for (rest, new) in [
        ("/set", 5_000),
        ("/sorted", 3_000),
        ("/hash", 2_000),
        ("/list", 2_500),
        ("/small", 3),
        ("/5 --keys seen:* --strip-prefix seen:", 3_997),
    ] {
        // SSCAN may return some items twice.
        let said = run(&format!("{from}{rest}")).kept_text();
        assert!(said.starts_with(&format!("new\t{new}\n")) && said.ends_with(level), "{said}");
    }
    let said = run(&format!("{from}/bytes --each --null")).kept();
    // In any order.
    assert!(said == b"new\ta\0b\0new\t\xff\n\0" || said == b"new\t\xff\n\0new\ta\0b\0", "{said:?}");
    run(&format!("{from}/text")).refused(1, &["key \"text\"", "of type string"]);
    assert_eq!(
        run("contains f m0 m4999 z2999 f1999 e2499 3999 v0 --count").kept_text(),
        "present\t6\nabsent\t1\nlevel\tlinearizable\n"
    );
}
