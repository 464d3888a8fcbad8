//! `umbel cluster` against a real server.

use crate::sandbox::Sandbox;
use crate::serve::{Server, run, umbel};
use serde_json::Value;

#[test]
fn wrong_usage_is_exit_code_2() {
    let sandbox = Sandbox::new();
    for (args, said) in [
        ("", "status"),
        ("drain", "NODE"),
        ("drain one", "one"),
        ("drain 1 --undo --wait", "--wait"),
        ("move 1 --from 1", "--to"),
        ("backup", "--out"),
        ("status --cluster a:b:c:", "a:b:c:"),
    ] {
        run(&sandbox, &format!("cluster {args}")).refused(2, &[said]);
    }
}

#[test]
fn certificates_are_made_for_their_owner_and_never_over_others() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    let certs = |args: &str| run(&sandbox, &format!("cluster certs {args}"));
    certs("node node-1").refused(1, &["certs/ca.pem", "certs init"]);
    certs("init").kept();
    certs("init").refused(2, &["certs/ca.pem", "--overwrite"]);
    for (args, said) in [
        ("node", "HOST"),
        ("node node-1:7300", "node-1:7300"),
        ("node a/b", "a/b"),
        ("client a/b", "a/b"),
        ("client alice --days 0", "0 days"),
        ("client alice --days 99999", "99999 days"),
    ] {
        certs(args).refused(2, &[said]);
    }
    certs("client alice").kept();
    let names = std::fs::read_dir(sandbox.path("certs")).unwrap().count();
    assert_eq!(names, 4, "nothing of what was refused");
    let mode = |name: &str| sandbox.path(name).metadata().unwrap().permissions().mode() & 0o777;
    for (name, expected) in [("certs", 0o700), ("certs/ca.key", 0o600)] {
        assert_eq!(mode(name), expected, "{name}");
    }
    assert_eq!(mode("certs/client-alice.key"), 0o600);

    // The authority's key stays where it is.
    certs("node node-1 --authority certs --out nodes").kept();
    let mut names: Vec<_> = std::fs::read_dir(sandbox.path("nodes")).unwrap().collect();
    names.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let names = names.into_iter().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["ca.pem", "node-1.key", "node-1.pem"]);
    assert_eq!(mode("nodes"), 0o700);
    sandbox.write("nodes/ca.pem", b"two authorities");
    certs("node node-2 --authority certs --out nodes").kept();
    assert_eq!(std::fs::read(sandbox.path("nodes/ca.pem")).unwrap(), b"two authorities");
    certs("client eve --authority gone").refused(1, &["gone/ca.pem", "init --out gone"]);

    sandbox.write("certs/ca.key", b"torn");
    certs("client bob").refused(1, &["certs/ca.key"]);
}

#[test]
fn half_of_a_certificate_stops_what_reaches_a_cluster_and_nothing_else() {
    let sandbox = Sandbox::with(&[("a", "x\nx\n")]);
    let ran = |args: &str| {
        let output = umbel(&sandbox, args).env("UMBEL_TLS_CERT", "alice.pem").output().unwrap();
        sandbox.ended(output)
    };
    for args in ["filter list", "dedup a --reference umbel://127.0.0.1:1/seen"] {
        ran(args).refused(2, &["UMBEL_TLS_CERT", "UMBEL_TLS_KEY"]);
    }
    assert_eq!(ran("dedup a").kept_text(), "x\n");
    run(&sandbox, "filter list --tls-ca gone.pem").refused(2, &["gone.pem: cannot read it"]);
}

#[test]
fn status_shows_nodes_and_shards() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let cluster = |args: &str| server.run(&sandbox, &format!("cluster {args}"));
    let status: Value = serde_json::from_str(&cluster("status --json").kept_text()).unwrap();
    let id = status["cluster"].as_str().unwrap();
    assert_eq!(server.membership, format!("node 1 of cluster {id}"));
    assert_eq!(status["nodes"][0]["address"], server.address.as_str());
    assert_eq!(status["shards"].as_array().unwrap().len(), 1);
    assert_eq!(status["cube"][0]["rank"], 0);
    let lines = cluster("status").kept_text();
    let begin = |word: &str| lines.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!((begin("node\t"), begin("shard\t")), (1, 1), "{lines}");
    let joined = cluster(&format!("join {}", server.address)).kept_text();
    assert_eq!(joined, format!("node\t1\naddress\t{}\n", server.address));
    cluster("join 127.0.0.1:1 --timeout 0").refused(1, &["127.0.0.1:1", "serve --join"]);
    cluster("remove 9").refused(1, &["9"]);
}

#[test]
fn a_backup_is_restored_after_all_is_lost() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let umbel = |args: &str| server.run(&sandbox, args);
    umbel("filter create a --capacity 1e4").kept();
    umbel("filter create b --capacity 1e4 --public-hash").kept();
    umbel("filter insert a x").kept();
    umbel("filter insert b y").kept();
    umbel("cluster backup --out all.umbel").kept();
    umbel("cluster restore --file all.umbel").refused(1, &["a"]);
    umbel("filter drop a").kept();
    umbel("filter drop b").kept();
    let restored = umbel("cluster restore --file all.umbel").kept_text();
    assert_eq!(restored, "restored\ta\nrestored\tb\n");
    let counted = "present\t1\nabsent\t1\nlevel\tlinearizable\n";
    assert_eq!(umbel("filter contains a x y --count").kept_text(), counted);
    assert_eq!(umbel("filter contains b x y --count").kept_text(), counted);
    let mut bytes = sandbox.read("all.umbel");
    bytes.pop();
    sandbox.write("cut.umbel", &bytes);
    umbel("cluster restore --file cut.umbel").refused(1, &["cut.umbel", "at byte"]);
}
