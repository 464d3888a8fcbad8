//! `umbel cluster` against a real server.

use crate::sandbox::Sandbox;
use crate::serve::{Server, run, umbel};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

#[test]
fn wrong_usage_is_exit_code_2() {
    let sandbox = Sandbox::new();
    for (args, said) in [
        ("", "status"),
        ("drain", "NODE"),
        ("drain one", "one"),
        ("drain 1 --undo --wait", "--wait"),
        ("drain 1 --dry-run --wait", "--wait"),
        ("join node-1", "expected HOST:PORT"),
        ("join node-1:0", "expected HOST:PORT"),
        ("move 1 --from 1", "--to"),
        ("merge --to few", "few"),
        ("scrub", "<FILTER|--all>"),
        ("scrub seen --all", "cannot be used with"),
        ("merge --auto off", "--auto"),
        ("backup", "--out"),
        ("top --interval 0", "--interval"),
        ("status --color blue", "--color"),
        ("status --ready --plan", "--plan"),
        ("status --ready --cluster a:1,b:1", "a:1,b:1"),
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
        ("init --out -", "--out -: a stream, expected a folder; ./- is"),
        ("client alice --out -", "--out -: a stream"),
        ("node node-1 --authority -", "--authority -: a stream"),
    ] {
        certs(args).refused(2, &[said]);
    }
    assert!(!sandbox.exists("-"));
    certs("client alice").kept();
    let names = std::fs::read_dir(sandbox.path("certs")).unwrap().count();
    assert_eq!(names, 4, "nothing of what was refused");
    let mode = |name: &str| sandbox.path(name).metadata().unwrap().permissions().mode() & 0o777;
    for (name, expected) in [("certs", 0o700), ("certs/ca.key", 0o600)] {
        assert_eq!(mode(name), expected, "{name}");
    }
    assert_eq!(mode("certs/client-alice.key"), 0o600);

    // The authority's key is not moved.
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
fn a_list_is_one_json_object() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    for (args, list) in
        [("filter list", "filters"), ("access list", "principals"), ("job list", "jobs")]
    {
        let listed = server.run(&sandbox, &format!("{args} --json")).kept_text();
        let listed: Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed, serde_json::json!({ list: [] }), "{args}");
    }
}

/// Attempts to read a status that does not change meanwhile, or is whole; far more than there are changes of leaders
/// and moments without a processor.
const STATUS_TRIES: usize = 50;

/// How often a node is asked whether it is ready: more than a busy machine needs.
const READY_TRIES: usize = 1000;

#[test]
fn a_node_that_serves_says_that_it_is_ready() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let ready = || server.command(&sandbox, "cluster status --ready --json").output().unwrap();
    // It may have no leaders yet.
    let ready =
        std::iter::repeat_with(ready).take(READY_TRIES).find(|asked| asked.status.success());
    let ready: Value = serde_json::from_slice(&ready.expect("it becomes ready").stdout).unwrap();
    assert_eq!((&ready["ready"], &ready["text"]), (&Value::Bool(true), &Value::from("ready")));
}

/// Pipes get plain text; colours and drawings are for terminals, or on request.
#[test]
fn a_pipe_gets_no_colours_unless_it_asks() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let status = |args: &str| server.run(&sandbox, &format!("cluster status {args}")).kept_text();
    // A new cluster still changes, so the status is compared only if it was the same before and after.
    let (plain, never) = (0..STATUS_TRIES)
        .map(|_| (status(""), status("--color never")))
        .find(|(plain, _)| status("") == *plain)
        .expect("the status of an idle cluster stays");
    assert!(
        plain.is_ascii() && !plain.contains('\x1b') && plain.starts_with("cluster\t"),
        "{plain}"
    );
    assert_eq!(never, plain);
    let painted = status("--color always");
    assert!(painted.contains("\x1b[32mnode 1"), "{painted}");
    assert!(painted.contains("█ leads") && painted.contains("moves to"), "{painted}");
}

#[test]
fn top_in_a_pipe_is_a_line_an_interval_until_nobody_reads() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let mut command = server.command(&sandbox, "cluster top --interval 1");
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let line = lines.next().unwrap().unwrap();
        assert!(line.starts_with("nodes 1/1\tled 1/1\tcalls/s "), "{line}");
    }
    drop(lines);
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));

    server.run(&sandbox, "filter create a --capacity 1e4").kept();
    let once = server.run(&sandbox, "cluster top --once --interval 1").kept_text();
    assert!(once.contains(&format!("\n1\t{}\tlive\t1\t", server.address)), "{once}");
    // A node that gets no processor for a moment is shown without measurements.
    let sample = || -> Value {
        let json = server.run(&sandbox, "cluster top --once --interval 1 --json").kept_text();
        serde_json::from_str(&json).unwrap()
    };
    let is_measured = |json: &Value| {
        json["troubles"] == Value::Array(vec![])
            && json["nodes"][0]["per_second"]["calls"].is_number()
    };
    let json = std::iter::repeat_with(sample).take(STATUS_TRIES).find(is_measured);
    let json = json.expect("nothing troubles an idle node");
    assert_eq!(json["nodes"][0]["address"], server.address.as_str());
    assert!(json["nodes"][0]["per_second"]["calls"].as_f64().unwrap() >= 0.0, "{json}");
    assert!(json["nodes"][0]["now"]["filter_bytes"].as_f64().unwrap() > 0.0, "{json}");
    assert_eq!(json["running_jobs"], 0);

    let gone = "cluster top --once --cluster 127.0.0.1:1";
    server.run(&sandbox, gone).refused(1, &["127.0.0.1:1", "is a node running there?"]);
}

/// Whether the program that provides a terminal is installed.
fn has_terminal() -> bool {
    let version = Command::new("script").arg("--version").output();
    let is_known = version
        .is_ok_and(|version| String::from_utf8_lossy(&version.stdout).contains("util-linux"));
    if !is_known {
        eprintln!("skipped: there is no script(1) of util-linux, which plays a terminal");
    }
    is_known
}

/// A command that runs `umbel` on a terminal of 30 lines, followed by other commands of the shell.
fn on_a_terminal(server: &Server, sandbox: &Sandbox, args: &str, behind: &str) -> Command {
    let binary = env!("CARGO_BIN_EXE_umbel");
    // The trap keeps the shell alive on an interrupt, which reaches the whole foreground process group.
    let line = format!("trap : INT; stty rows 30 cols 100; {binary} {args}{behind}");
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]);
    command.env("UMBEL_CLUSTER", &server.address).env("TERM", "xterm").env_remove("NO_COLOR");
    command.env("SHELL", "/bin/sh");
    command.current_dir(sandbox.path("")).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

#[test]
fn a_terminal_gets_pictures_and_colours_unless_it_is_dumb() {
    if !has_terminal() {
        return;
    }
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let shown = |name: &str, value: &str| {
        let mut command = on_a_terminal(&server, &sandbox, "cluster status", "");
        let output = command.env(name, value).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let painted = shown("TERM", "xterm");
    assert!(painted.contains("█ leads") && painted.contains("\x1b[32m"), "{painted}");
    for plain in [shown("TERM", "dumb"), shown("NO_COLOR", "1")] {
        assert!(plain.contains("█ leads") && !plain.contains("\x1b["), "{plain}");
    }
}

#[test]
fn top_puts_the_terminal_back_however_it_ends() {
    if !has_terminal() {
        return;
    }
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    for (key, code) in [("q", 0), ("\x03", 130)] {
        // The shell prints the state in which the terminal was left.
        let behind = "; code=$?; stty -a; exit $code";
        let top = "cluster top --interval 1";
        let mut command = on_a_terminal(&server, &sandbox, top, behind);
        let mut child = command.spawn().unwrap();
        let mut keys = child.stdin.take().unwrap();
        let mut shown = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        while !shown.contains("shards led") {
            assert!(out.read_line(&mut shown).unwrap() > 0, "{shown}");
        }
        keys.write_all(key.as_bytes()).unwrap();
        out.read_to_string(&mut shown).unwrap();
        assert!(shown.contains("\x1b[?1049h") && shown.contains("q ends"), "{shown}");
        let (_, after) = shown.split_once("\x1b[?25h\x1b[?1049l").unwrap();
        assert!(after.contains(" icanon") && after.contains(" echo "), "{after}");
        assert_eq!(child.wait().unwrap().code(), Some(code), "{shown}");
    }
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

#[test]
fn a_restore_that_is_refused_half_way_names_what_exists_and_goes_on_when_repeated() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let umbel = |args: &str| server.run(&sandbox, args);
    umbel("filter create a --capacity 1e4").kept();
    umbel("filter create b --capacity 1e4").kept();
    umbel("cluster backup --out all.umbel").kept();
    umbel("filter drop a").kept();
    umbel("filter drop b").kept();
    umbel("access quota --all --filters 1").kept();
    let refused = [
        "restored in part: ",
        "filter \"b\"",
        "was not restored: the cluster has a quota of 1 filters",
    ];
    let next = ["; restored before it: \"a\"; those behind it", "restore the same backup again"];
    umbel("cluster restore --file all.umbel").refused(1, &[&refused[..], &next[..]].concat());
    umbel("filter info b").refused(1, &["b"]);
    umbel("access quota --all --filters 2").kept();
    let again = umbel("cluster restore --file all.umbel");
    let advice = "left out, because filters of these names exist: a (a restore that broke off may have restored them); \
                  drop one only if the backup's is to take its place\n";
    assert!(again.stderr.ends_with(advice), "{}", again.stderr);
    assert_eq!(again.ended_with(1), b"restored\tb\n");
    for name in ["a", "b"] {
        umbel(&format!("filter info {name}")).kept();
    }
}

/// Filters that grow are included at their present size.
#[test]
fn a_backup_holds_filters_of_every_kind() {
    const KINDS: [&str; 11] = [
        "blocked",
        "classic",
        "partitioned",
        "single-shot",
        "counting",
        "cuckoo",
        "quotient",
        "scalable",
        "redisbloom",
        "aging",
        "stable",
    ];
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let umbel = |args: &str| server.run(&sandbox, args);
    let items: String = (0..5_000).map(|item| format!("{item}\n")).collect();
    sandbox.write("items", items);
    for kind in KINDS {
        // The initial capacity of kinds that grow.
        let capacity =
            if matches!(kind, "scalable" | "quotient" | "redisbloom") { 300 } else { 6_000 };
        umbel(&format!("filter create {kind} --kind {kind} --capacity {capacity}")).kept();
        umbel(&format!("filter insert {kind} --file items")).kept();
    }
    umbel("filter create window --window 1h --capacity 6e3").kept();
    umbel("filter insert window --file items").kept();
    let names = || KINDS.into_iter().chain(["window"]);
    let count =
        |name: &str| umbel(&format!("filter contains {name} --file items --count")).kept_text();
    // A stable filter forgets some items.
    let counted: Vec<String> = names().map(count).collect();
    umbel("cluster backup --out all.umbel").kept();
    for name in names() {
        umbel(&format!("filter drop {name}")).kept();
    }
    umbel("cluster restore --file all.umbel").kept();
    for (name, before) in names().zip(counted) {
        assert_eq!(count(name), before, "{name}");
        let is_certain = name != "stable";
        assert!(!is_certain || before.starts_with("present\t5000\nabsent\t0\n"), "{before}");
    }
    // They grow further from there.
    for kind in ["scalable", "quotient", "redisbloom"] {
        umbel(&format!("filter insert {kind} 5000 5001")).kept();
        let counts = umbel(&format!("filter contains {kind} 0 5000 5001 --count")).kept_text();
        assert!(counts.starts_with("present\t3\n"), "{counts}");
    }
}

#[test]
fn shards_are_split_and_merged_back() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let umbel = |args: &str| server.run(&sandbox, args);
    let json = |args: &str| -> Value {
        serde_json::from_str(&umbel(&format!("{args} --json")).kept_text()).unwrap()
    };
    let lines = |numbers: std::ops::Range<u32>| -> String {
        numbers.map(|item| format!("{item}\n")).collect()
    };
    sandbox.write("before", lines(0..2_000));
    sandbox.write("after", lines(2_000..4_000));
    sandbox.write("all", lines(0..4_000));
    umbel("filter create seen --capacity 1e4").kept();
    umbel("filter insert seen --file before").kept();
    let split = umbel("cluster split").kept_text();
    assert_eq!(split, "shards\t2\nsplit\tshard 0, whose upper half is shard 1\n");
    umbel("cluster split --to 4").kept();
    umbel("filter insert seen --file after").kept();

    assert_eq!(umbel("cluster merge").kept_text(), "shards\t3\nmerged\tshard 3 into shard 1\n");
    assert_eq!(umbel("cluster merge --to 3").kept_text(), "shards\t3\nmerged\tnone\n");
    umbel("cluster merge --to 4").refused(2, &["there are 3 shards", "cluster split --to 4"]);
    for number in [0, 1025] {
        let said = format!("--to {number}: a cluster has 1 to 1024 shards; nothing was split");
        umbel(&format!("cluster split --to {number}")).refused(2, &[&said]);
    }
    umbel("cluster split --to 2").refused(2, &["there are 3 shards", "cluster merge --to 2"]);
    let merges = json("cluster merge --to 1");
    let pairs = serde_json::json!([{ "shard": 0, "gone": 2 }, { "shard": 0, "gone": 1 }]);
    assert_eq!((&merges["shards"], &merges["merges"]), (&1.into(), &pairs));
    umbel("cluster merge").refused(1, &["was started with 1 shards has at least 1, not 0"]);
    let counted = "present\t4000\nabsent\t0\nlevel\tlinearizable\n";
    assert_eq!(umbel("filter contains seen --file all --count").kept_text(), counted);

    umbel("cluster split").kept();
    umbel("cluster split --auto on").kept();
    umbel("cluster merge").refused(1, &["split again", "`umbel cluster split --auto off` first"]);
    umbel("cluster split --auto off").kept();
    umbel("cluster merge --to 1").kept();
    let status = json("cluster status");
    assert_eq!(status["shards"].as_array().unwrap().len(), 1);
    assert_eq!((&status["merging"], &status["merging_into"]), (&Value::Null, &Value::Null));
    assert_eq!(umbel("filter contains seen --file all --count").kept_text(), counted);
}
