//! `umbel filter` against a real server: inserts and queries, files, exit codes.

use crate::sandbox::Sandbox;
use crate::serve::{Server, run};
use serde_json::{Value, json};

/// An address on which nobody listens, since ordinary processes may not use the port.
const NOBODY: &str = "127.0.0.1:1";

/// The output of `--count` for a partitioned filter.
fn counts(present: u32, absent: u32) -> String {
    format!("present\t{present}\nabsent\t{absent}\nlevel\tlinearizable\n")
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let sandbox = Sandbox::new();
    for (args, said) in [
        ("create", "NAME"),
        ("create a", "--capacity"),
        ("create a --capacity many", "1000000, 1e6 or 1M"),
        ("create a --capacity 1 --rate 2", "above 0 and below 1"),
        ("create a --capacity 1 --rate 0.1 --memory 1M", "--memory"),
        ("create a --like b --public-hash", "--public-hash"),
        ("insert a x --file b", "--file"),
        ("insert a x --null", "--null"),
        ("create a --like b --replicated", "--replicated"),
        ("create a --capacity 1 --replicated --kind classic", "--kind single-shot"),
        ("insert a x --ack none", "partner"),
        ("contains a x --level none", "any-replica"),
        ("contains-any", "FILTER"),
        ("contains-any a,b x --level none", "any-replica"),
        ("remove a x --ack local", "--ack"),
        ("flush", "NAME"),
        ("merge a", "SOURCE"),
        ("export a", "--out"),
        ("list --cluster nowhere", "nowhere"),
    ] {
        run(&sandbox, &format!("filter {args}")).refused(2, &[said]);
    }
}

#[test]
fn a_damaged_file_is_found_before_anybody_is_asked() {
    let sandbox = Sandbox::with(&[("a", "UMBLEXP1\x05"), ("b", "something else")]);
    for (file, said) in [
        ("a", "a: damaged export at byte 9: the file ends within the length of a message"),
        ("b", "b: not an umbel export"),
        ("gone", "gone: cannot read"),
    ] {
        let args = format!("filter import x --file {file} --cluster {NOBODY}");
        run(&sandbox, &args).refused(1, &[said]);
    }
}

#[test]
fn items_are_new_once_and_present_ever_after() {
    let sandbox = Sandbox::with(&[("items", "a\r\n\nb\nb\n"), ("nul", "a\nb\0\0")]);
    let server = Server::start(&sandbox);
    let filter = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    let created = filter("create seen --capacity 1M --rate 0.001 --json").kept_text();
    let created: Value = serde_json::from_str(&created).unwrap();
    assert_eq!(created["capacity"], 1_000_000);
    assert_eq!(created["state"], "live");
    assert_eq!(
        filter("insert seen alice bob").kept_text(),
        "new\t2\npresent\t0\nlevel\tmajority\n"
    );
    assert_eq!(filter("insert seen bob carol --each").kept_text(), "present\tbob\nnew\tcarol\n");
    assert_eq!(
        filter("insert seen --file items").kept_text(),
        "new\t3\npresent\t1\nlevel\tmajority\n"
    );
    let piped = server.run_piped(&sandbox, "filter contains seen -0", b"a\r\0\0dave\0");
    assert_eq!(piped.kept_text(), "present\ta\r\0present\t\0absent\tdave\0");
    let counted = filter("contains seen alice eve --count --json").kept_text();
    assert_eq!(
        counted,
        format!("{}\n", json!({ "present": 1, "absent": 1, "level": "linearizable" }))
    );
    assert_eq!(filter("contains seen alice").ended_with(0), b"present\talice\n");
    assert_eq!(filter("contains seen eve").ended_with(1), b"absent\teve\n");
    assert_eq!(
        filter("contains seen alice --level any-replica").ended_with(0),
        b"present\talice\n"
    );
    filter("contains gone alice").refused(2, &["gone"]);
    filter("insert gone alice").refused(1, &["gone"]);
    filter("remove seen alice").refused(1, &["seen"]);
}

#[test]
fn the_first_filter_that_has_an_item_is_named() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let filter = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    for (name, items) in [("monday", "alice bob"), ("tuesday", "bob carol"), ("absent", "dave")] {
        filter(&format!("create {name} --capacity 1e4 --rate 1e-6")).kept();
        filter(&format!("insert {name} {items}")).kept();
    }
    let asked = filter("contains-any tuesday,monday,absent alice bob carol dave eve");
    assert_eq!(
        asked.kept_text(),
        "present\tmonday\talice\npresent\ttuesday\tbob\npresent\ttuesday\tcarol\n\
         present\tabsent\tdave\nabsent\t\teve\n"
    );
    let counted = filter("contains-any monday,tuesday alice bob carol eve --count").kept_text();
    assert_eq!(
        counted,
        "first in monday\t2\nfirst in tuesday\t1\nabsent\t1\nlevel\tlinearizable\n"
    );
    let piped =
        server.run_piped(&sandbox, "filter contains-any monday,tuesday --json", b"bob\neve\n");
    let lines =
        [json!({ "item": "bob", "filter": "monday" }), json!({ "item": "eve", "filter": null })];
    assert_eq!(piped.kept_text(), format!("{}\n{}\n", lines[0], lines[1]));
    assert_eq!(
        filter("contains-any monday,tuesday carol").ended_with(0),
        b"present\ttuesday\tcarol\n"
    );
    assert_eq!(filter("contains-any monday,tuesday eve").ended_with(1), b"absent\t\teve\n");
    // A missing filter is named, even after one that has the item.
    filter("contains-any monday,gone alice").refused(2, &["\"gone\""]);
    filter("contains-any monday,monday alice").refused(2, &["filters[1] is named twice"]);
    let many: Vec<String> = (0..33).map(|at| format!("f{at}")).collect();
    let said = "filters has 33 names, expected 1 to 32";
    filter(&format!("contains-any {} x", many.join(","))).refused(2, &[said]);
}

#[test]
fn an_input_without_items_still_needs_a_filter_and_a_cluster() {
    let sandbox = Sandbox::with(&[("none", "")]);
    let server = Server::start(&sandbox);
    let filter = |args: &str| server.run(&sandbox, &format!("filter {args} --file none"));
    server.run(&sandbox, "filter create seen --capacity 1000 --kind counting").kept();
    assert_eq!(filter("insert seen").kept_text(), "new\t0\npresent\t0\nlevel\tmajority\n");
    assert_eq!(filter("contains seen --count").kept_text(), counts(0, 0));
    for verb in ["contains", "contains-any", "remove --each", "insert --each"] {
        assert_eq!(filter(&format!("{verb} seen")).kept_text(), "", "{verb}");
    }
    for (verb, code) in [("insert", 1), ("remove", 1), ("contains", 2), ("contains-any", 2)] {
        filter(&format!("{verb} sen")).refused(code, &["there is no filter named \"sen\""]);
        let args = format!("filter {verb} seen --file none --cluster {NOBODY}");
        run(&sandbox, &args).refused(code, &["is a node running there?"]);
    }
}

#[test]
fn a_level_that_one_node_cannot_reach_is_refused_at_once() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let filter = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    filter("create near --capacity 1M --replicated").kept();
    let said = ["two nodes, and this cluster has one", "local"];
    filter("insert near alice --ack partner").refused(1, &said);
    filter("contains near alice").ended_with(1);
    filter("insert near alice --ack local").kept();
    filter("insert near bob --ack majority").kept();
    assert_eq!(filter("contains near alice bob").kept_text(), "present\talice\npresent\tbob\n");
    // A level of the other distribution is refused in the words of the command.
    filter("create far --capacity 1M").kept();
    let said = ["filter \"far\" is partitioned", "acknowledged at majority"];
    filter("insert far alice --ack partner").refused(1, &said);
    let said = ["filter \"far\" is partitioned", "read at linearizable or any-replica"];
    filter("contains far alice --level local").refused(2, &said);
    let said = ["filter \"near\" is replicated", "read at local or majority"];
    filter("contains near alice --level linearizable").refused(2, &said);
}

#[test]
fn many_items_stream_in_order() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let filter = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    filter("create seen --capacity 1M --rate 1e-6").kept();
    let lines: String = (0..50_000).map(|at| format!("item {at}\n")).collect();
    let inserted = server.run_piped(&sandbox, "filter insert seen", lines.as_bytes()).kept_text();
    assert_eq!(inserted, "new\t50000\npresent\t0\nlevel\tmajority\n");
    let asked = server.run_piped(&sandbox, "filter contains seen", lines.as_bytes()).kept_text();
    let expected = lines.lines().map(|line| format!("present\t{line}\n"));
    assert!(expected.collect::<String>() == asked);
}

/// What is in the filter has been told: a second run would not call it new.
#[test]
fn the_items_before_one_that_is_too_long_are_answered() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let filter = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    filter("create seen --capacity 1M --rate 1e-6").kept();
    let mut input: String = (0..25_000).map(|at| format!("item {at}\n")).collect();
    let expected: String = input.lines().map(|line| format!("new\t{line}\n")).collect();
    input += &"x".repeat((16 << 20) + 1);
    let inserted = server.run_piped(&sandbox, "filter insert seen --each", input.as_bytes());
    let said = "after 25000 answered items: standard input: item 25001 has more than";
    assert!(inserted.stderr.contains(said), "{}", inserted.stderr);
    assert!(inserted.ended_with(2) == expected.as_bytes());
}

#[test]
fn filters_are_listed_described_merged_emptied_and_dropped() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let filter = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    filter("create a --capacity 1e4").kept();
    filter("create b --like a").kept();
    filter("create other --capacity 1e4 --kind counting").kept();
    filter("insert a x y").kept();
    filter("insert b y z").kept();
    filter("merge a b").kept();
    assert_eq!(filter("contains a x y z --count").kept_text(), counts(3, 0));
    let listed = filter("list").kept_text();
    let names: Vec<&str> = listed.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(names, ["a", "b", "other"]);
    assert_eq!(filter("list o").kept_text().lines().count(), 1);
    let info: Value = serde_json::from_str(&filter("info a --json").kept_text()).unwrap();
    assert_eq!(
        (&info["filter"]["kind"], info["slices"].as_array().unwrap().len()),
        (&json!("blocked"), 1)
    );
    // The items of the queries are random, as expected; and it was not observed for a minute yet.
    assert!(info["measured"]["rate"].as_f64().unwrap() < 0.01, "{info}");
    assert_eq!(
        (&info["measured"]["probes"], &info["unexplained_ones"]),
        (&json!(10_000), &json!(0))
    );
    assert_eq!(info["new_per_second"], Value::Null);
    assert!(filter("info a").kept_text().contains("\nones beyond chance\t0\n"));
    filter("merge a other").refused(1, &["other"]);
    filter("create both --like a").kept();
    filter("intersect both a b").kept();
    assert_eq!(filter("contains both x y z").kept_text(), "absent\tx\npresent\ty\npresent\tz\n");
    filter("intersect both a").refused(2, &["SOURCE"]);
    filter("intersect other a b").refused(1, &["\"other\" is counting"]);
    filter("drop both").kept();
    filter("insert other x").kept();
    assert_eq!(filter("remove other x y --each").kept_text(), "removed\tx\nabsent\ty\n");
    filter("clear a").kept();
    assert_eq!(filter("contains a x y z --count").kept_text(), counts(0, 3));
    filter("drop a").kept();
    filter("info a").refused(1, &["\"a\""]);
}

#[test]
fn an_exported_filter_is_imported_under_another_name() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let filter = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    filter("create a --capacity 1e4").kept();
    filter("insert a x y").kept();
    filter("export a --out a.umbel").kept();
    filter("export a --out a.umbel").refused(2, &["--overwrite"]);
    filter("export a --out a.umbel --overwrite").kept();
    filter("import b --file a.umbel").kept();
    assert_eq!(filter("contains b x y z --count").kept_text(), counts(2, 1));
    filter("import b --file a.umbel").refused(1, &["b"]);
    filter("export gone --out gone.umbel").refused(1, &["gone"]);
    assert!(!sandbox.exists("gone.umbel"));
}

#[test]
fn an_export_since_another_one_is_the_same_file_for_fewer_bytes() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let filter = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    let items: String = (0..400_000).map(|item| format!("{item}\n")).collect();
    sandbox.write("items", items);
    for create in ["create a --capacity 2e6", "create a --capacity 2e6 --replicated"] {
        filter(create).kept();
        filter("insert a --file items").kept();
        let exported = |args: &str| -> Value {
            let told = filter(&format!("export a --overwrite --json {args}")).kept();
            serde_json::from_slice(&told).unwrap()
        };
        let received = |told: &Value| told["received_bytes"].as_u64().unwrap();
        // Few bits are set, so that a plain export is compressed, and cannot serve as the basis of a
        // difference.
        exported("--out coded");
        exported("--out old --since coded");
        filter("insert a new").kept();
        let since = exported("--out since --since old");
        let whole = exported("--out whole --since coded");
        assert_eq!(sandbox.read("since"), sandbox.read("whole"));
        assert!(received(&since) < received(&whole) / 10, "{since} {whole}");
        // The output may replace the file of the earlier export.
        filter("create b --capacity 1e4").kept();
        filter("export b --out other --overwrite").kept();
        filter("export a --out other --since other --overwrite").kept();
        assert_eq!(sandbox.read("other"), sandbox.read("whole"));
        filter("import c --file since").kept();
        let found = filter("contains c 0 399999 new --count").kept_text();
        assert!(found.starts_with("present\t3\nabsent\t0\n"), "{found}");
        for name in ["a", "b", "c"] {
            filter(&format!("drop {name}")).kept();
        }
    }
    sandbox.write("damaged", "UMBLEXP1 and more");
    filter("create a --capacity 4e5").kept();
    filter("export a --out out --since damaged").refused(1, &["damaged: damaged export at byte 8"]);
    filter("export a --out out --since missing").refused(1, &["missing: cannot read"]);
    assert!(!sandbox.exists("out"));
}

#[test]
fn a_filter_gets_another_name_and_takes_anothers_place() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let filter = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    filter("rename old new").refused(1, &["there is no filter named \"old\""]);
    for name in ["old", "new"] {
        filter(&format!("create {name} --capacity 1e4")).kept();
        filter(&format!("insert {name} {name}")).kept();
    }
    filter("rename new old").refused(1, &["\"old\" exists already"]);
    assert_eq!(filter("contains old old new --count").kept_text(), counts(1, 1));
    let told = filter("rename new old --replace").kept_text();
    assert!(told.contains("old"), "{told}");
    assert_eq!(filter("contains old new --count").kept_text(), counts(1, 0));
    assert_eq!(filter("contains old new old --count").kept_text(), counts(1, 1));
    filter("contains new new").refused(2, &["there is no filter named \"new\""]);
    filter("rename old \u{1}").refused(1, &["new_name"]);
    filter("snapshot old").refused(2, &["snapshot"]);
    filter("export old --out copy --snapshot").kept();
    filter("import again --file copy").kept();
    assert_eq!(filter("contains again new --count").kept_text(), counts(1, 0));
}

#[test]
fn a_manual_window_is_rotated() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox);
    let filter = |args: &str| server.run(&sandbox, &format!("filter {args}"));
    filter("create runs --capacity 1e4 --window manual --slices 2").kept();
    filter("insert runs x").kept();
    for generation in [2, 3] {
        let told = filter("rotate runs").kept_text();
        assert_eq!(told, format!("generation\t{generation}\n"));
        assert_eq!(filter("contains runs x y --count").kept_text(), counts(1, 1));
    }
    let info = filter("info runs").kept_text();
    assert!(info.contains("2 slices that end by hand"), "{info}");
    filter("rotate runs").kept();
    assert_eq!(filter("contains runs x y --count").kept_text(), counts(0, 2));
    filter("create hours --capacity 1e4 --window 24h").kept();
    for other in ["hours", "nothing"] {
        filter(&format!("rotate {other}")).refused(1, &[other]);
    }
    filter("create bad --capacity 1e4 --window manual --event-time").refused(2, &["--event-time"]);
    filter("create bad --capacity 1e4 --window manual --slices 63")
        .refused(2, &["--slices 63", "1 to 62"]);
}
