//! Comparison with the kept records of earlier jobs: index files, and filters of a cluster.

use crate::sandbox::Sandbox;
use crate::serve::Server;
use serde_json::Value;
use std::collections::BTreeSet;

/// Lines with these numbers.
fn lines(numbers: impl Iterator<Item = u32>) -> String {
    numbers.map(|number| format!("line {number}\n")).collect()
}

fn summary(sandbox: &Sandbox, name: &str) -> Value {
    serde_json::from_slice(&sandbox.read(name)).unwrap()
}

/// With any number of workers, level of comparison and number of bits, records that were kept before are
/// dropped with all their copies, and reported so; new ones are kept as usual.
#[test]
fn what_an_index_holds_is_dropped() {
    let old = lines((0..3000).chain(0..500));
    let new = lines((2500..4000).chain(3500..4500).chain([7, 7]));
    let sandbox = Sandbox::with(&[("old", old), ("new", new)]);
    for bits in [64, 96, 128] {
        let args = format!(
            "old --save-index index{bits} --index-bits {bits} --seed 11 --output /dev/null"
        );
        sandbox.run(&format!("{args} --workers 2 --quiet")).kept();
    }
    let expected = lines(3000..4500);
    let mut reports = BTreeSet::new();
    for args in [
        "--reference index128 --workers 1",
        "--reference index128 --workers 5 --filter single-shot",
        "--reference index128 --workers 3 --filter wide",
        "--reference index96 --workers 3 --filter single-shot",
        "--reference index64 --workers 3 --filter single-shot",
        "--reference index64 --reference index128 --workers 2",
        "--reference index96 --workers 3 --exactness approximate --false-positive-rate 1e-6",
    ] {
        let outputs = "--duplicates report --summary summary --output kept --overwrite --quiet";
        sandbox.run(&format!("new {args} {outputs}")).kept();
        assert_eq!(sandbox.text("kept"), expected, "{args}");
        reports.insert(sandbox.text("report"));
        let summary = summary(&sandbox, "summary");
        assert_eq!(summary["dropped"]["reference"], 502, "{args}");
        assert_eq!(summary["dropped"]["input"], 500, "{args}");
        assert_eq!(summary["distinct"], 1500, "{args}");
        let level = if args.contains("128 --w") { "fingerprint" } else { "approximate" };
        let level = if args.contains("index64") { "approximate" } else { level };
        assert_eq!(summary["level"], level, "{args}");
        assert_eq!(summary["seed"], "0x000000000000000b");
    }
    assert_eq!(reports.len(), 1, "the report depends on workers or bits");
    let report = reports.pop_first().unwrap();
    let first = report.lines().next().unwrap();
    let nothing = r#""part":null,"kept_file":null,"kept_record":null,"kept_part":null"#;
    assert_eq!(
        first,
        format!(r#"{{"file":"new","record":1,{nothing},"cause":"reference","score":null}}"#)
    );
    let causes = |cause: &str| report.lines().filter(|line| line.contains(cause)).count();
    assert_eq!((causes(r#""cause":"reference""#), causes(r#""cause":"input""#)), (502, 500));
}

/// Jobs that are each compared with the indexes of all earlier ones keep the same records as one job over
/// everything.
#[test]
fn jobs_one_after_the_other_keep_what_one_job_keeps() {
    let parts = [lines((0..900).chain(0..90)), lines(600..1500), lines((0..2000).rev())];
    let sandbox = Sandbox::new();
    parts.iter().enumerate().for_each(|(number, part)| sandbox.write(format!("in{number}"), part));
    let mut references = String::new();
    let mut kept = Vec::new();
    for number in 0..parts.len() {
        let args = format!("in{number} {references} --save-index index{number} --quiet");
        kept.extend(sandbox.run(&args).kept());
        references += &format!(" --reference index{number}");
    }
    assert_eq!(kept, sandbox.run("in0 in1 in2 --quiet").kept());
    sandbox.run(&format!("in0 in1 in2 {references} --quiet --output none")).kept();
    assert_eq!(sandbox.text("none"), "");
}

/// Runs `umbel index` in the sandbox.
fn index(sandbox: &Sandbox, args: &str) -> crate::sandbox::Ran {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_umbel"));
    command.arg("index").args(args.split_whitespace()).current_dir(sandbox.path(""));
    sandbox.ended(command.output().unwrap())
}

#[test]
fn an_index_that_is_reference_and_output_is_updated() {
    let days = [lines((0..900).chain(0..90)), lines(600..5500), lines((0..6000).rev())];
    for bits in ["64", "96", "128"] {
        let sandbox = Sandbox::with(&[("in0", &days[0]), ("in1", &days[1]), ("in2", &days[2])]);
        let save = format!("--save-index seen --index-bits {bits} --quiet");
        let mut kept = sandbox.run(&format!("in0 {save}")).kept();
        let update = "--reference seen --save-index seen --quiet";
        kept.extend(sandbox.run(&format!("in1 {update} --workers 3")).kept());
        kept.extend(sandbox.run(&format!("in2 {update} --overwrite")).kept());
        assert_eq!(kept, sandbox.run("in0 in1 in2 --quiet").kept());
        // It has the content of one index of all, and no more bits than before.
        let seed = index(&sandbox, "info seen").kept_text();
        assert!(seed.contains(&format!("seen\t6000\t{bits}\t0x")), "{seed}");
        sandbox.run("in0 in1 in2 --reference seen --quiet --output none").kept();
        assert_eq!(sandbox.text("none"), "");
    }
}

#[test]
fn an_update_is_refused_where_the_index_cannot_hold_it_and_changes_nothing_then() {
    let sandbox = Sandbox::with(&[("in0", lines(0..50)), ("in1", lines(25..75))]);
    sandbox.run("in0 --save-index seen --index-bits 64 --quiet").kept();
    let before = sandbox.read("seen");
    let update = "in1 --reference seen --save-index seen";
    sandbox.run(&format!("{update} --index-bits 96")).refused(2, &["64 bits", "96"]);
    sandbox.run(&format!("{update} --output seen")).refused(2, &["seen"]);
    sandbox.run(&format!("{update} --output gone/out")).refused(1, &["gone/out"]);
    assert_eq!(sandbox.read("seen"), before);
    // A link is another name of the same index.
    std::os::unix::fs::symlink("seen", sandbox.path("latest")).unwrap();
    sandbox.run("in1 --reference seen --save-index latest --quiet").kept();
    assert!(sandbox.path("latest").is_symlink() && sandbox.read("seen") != before);
}

/// A second run would find all kept records in the index.
#[test]
fn an_input_whose_records_go_to_an_updated_index_is_not_replaced() {
    let sandbox = Sandbox::with(&[("in/a", lines(0..50)), ("in/b", lines(25..75))]);
    sandbox.run("in/a --save-index seen --quiet").kept();
    std::fs::hard_link(sandbox.path("seen"), sandbox.path("again")).unwrap();
    let read = || ["in/a", "in/b", "seen"].map(|name| sandbox.read(name));
    let before = read();
    for args in [
        "in --in-place --reference seen --save-index seen",
        "in --in-place --reference again --save-index seen",
        "in --output in --overwrite --reference seen --save-index seen",
        "in/b --output in/b --overwrite --reference seen --save-index seen",
    ] {
        let said = ["--save-index seen is a --reference, too", "second run", "another --output"];
        sandbox.run(args).refused(2, &said);
        assert!(read() == before, "{args}");
    }
    // By a link, or to what a link leads to.
    std::os::unix::fs::symlink("in/b", sandbox.path("link")).unwrap();
    for output in ["link", "in/b"] {
        let args = format!("link --output {output} --overwrite --reference seen --save-index seen");
        sandbox.run(&args).refused(2, &["link would be replaced by its kept records"]);
        assert!(read() == before, "{args}");
    }
    // Without the update, a second run finds what the first has found.
    for _ in 0..2 {
        sandbox.run("in/b --in-place --reference seen --quiet").kept();
        assert_eq!(sandbox.text("in/b"), lines(50..75));
    }
}

/// A file that is not kept has no output in a directory, and stays.
#[test]
fn whole_files_may_be_written_where_they_are_beside_an_updated_index() {
    let sandbox = Sandbox::with(&[("in/a", "x\n"), ("in/b", "y\n"), ("old", "x\n")]);
    sandbox.run("old --granularity file --save-index seen --output kept/ --quiet").kept();
    let update = "--reference seen --save-index seen --overwrite --quiet";
    for _ in 0..2 {
        sandbox.run(&format!("in --granularity file --output in/ {update}")).kept();
        let left = ["in/a", "in/b"].map(|name| sandbox.text(name));
        assert_eq!(left, ["x\n", "y\n"]);
    }
    assert!(index(&sandbox, "info seen").kept_text().contains("seen\t2\t"));
    let one = format!("in/b --granularity file --output in/b {update}");
    sandbox.run(&one).refused(2, &["--save-index seen is a --reference, too"]);
}

#[test]
fn an_output_that_replaces_another_name_of_an_input_goes_with_an_updated_index() {
    for is_soft in [true, false] {
        let sandbox = Sandbox::with(&[("in/a", lines(0..50)), ("in/b", lines(25..75))]);
        sandbox.run("in/a --save-index seen --quiet").kept();
        if is_soft {
            std::os::unix::fs::symlink("in/b", sandbox.path("other")).unwrap();
        } else {
            std::fs::hard_link(sandbox.path("in/b"), sandbox.path("other")).unwrap();
        }
        sandbox
            .run("in/b --output other --overwrite --reference seen --save-index seen --quiet")
            .kept();
        assert_eq!((sandbox.text("other"), sandbox.text("in/b")), (lines(50..75), lines(25..75)));
        assert!(!sandbox.path("other").is_symlink());
    }
}

#[test]
fn indexes_of_one_seed_are_joined() {
    let parts = [lines(0..3000), lines(2000..5000), lines((4000..9000).rev())];
    let sandbox = Sandbox::with(&[("in0", &parts[0]), ("in1", &parts[1]), ("in2", &parts[2])]);
    for (number, bits) in [(0, 128), (1, 96), (2, 128)] {
        let args = format!("in{number} --seed 7 --save-index i{number} --index-bits {bits}");
        sandbox.run(&format!("{args} --quiet --output /dev/null")).kept();
    }
    let all = "in0 in1 in2 --seed 7 --quiet --output /dev/null --save-index all";
    sandbox.run(&format!("{all} --index-bits 96")).kept();
    index(&sandbox, "merge i0 i1 i2 -o joined --quiet").kept();
    assert!(index(&sandbox, "info joined").kept_text().contains("\t9000\t96\t"));
    let left = "in0 in1 in2 --reference joined --quiet";
    assert_eq!(sandbox.run(left).kept_text(), "");
    // Again, with the output in place of an input.
    index(&sandbox, "merge i0 joined -o joined").refused(2, &["joined exists"]);
    index(&sandbox, "merge i0 joined -o joined --overwrite --index-bits 64 --quiet").kept();
    assert!(index(&sandbox, "info joined").kept_text().contains("\t9000\t64\t"));
    assert_eq!(sandbox.run(left).kept_text(), "");
    index(&sandbox, "merge i0 i1 -o two --index-bits 128").refused(2, &["128", "96"]);
    sandbox.run("in0 --seed 8 --save-index other --quiet").kept();
    index(&sandbox, "merge i0 other -o two")
        .refused(2, &["0x0000000000000007", "0x0000000000000008", "--seed"]);
    sandbox.run("in0 --seed 7 --normalise trim --save-index trimmed --quiet").kept();
    index(&sandbox, "merge i0 trimmed -o two").refused(2, &["i0", "trimmed", "other items"]);
    sandbox.write("junk", "no index");
    index(&sandbox, "merge i0 junk -o two").refused(1, &["junk", "not an index"]);
    index(&sandbox, "info junk").refused(1, &["junk", "not an index"]);
    assert!(!sandbox.exists("two"));
}

/// The index has exactly the kept records, whichever rule selected them.
#[test]
fn an_index_has_what_was_kept() {
    let sandbox = Sandbox::with(&[("in", lines((0..300).chain(0..300))), ("all", lines(0..400))]);
    for args in ["", "--exactness bytes", "--exactness approximate", "--workers 1", "--workers 4"] {
        let save = "--save-index index --overwrite --quiet --output kept";
        sandbox.run(&format!("in {args} {save}")).kept();
        let left = sandbox.run("all --reference index --quiet").kept_text();
        assert_eq!(left, lines(300..400), "{args}");
    }
    assert_eq!(
        sandbox.run("in --plan --reference index").kept_text().matches("300 hashes").count(),
        1
    );
}

#[test]
fn an_index_that_does_not_fit_is_refused() {
    let sandbox =
        Sandbox::with(&[("in", "{\"a\":1}\n"), ("junk", "no index"), ("long", &"x".repeat(99))]);
    sandbox.run("in --save-index line --seed 1 --quiet").kept();
    sandbox.run("in --save-index other --seed 2 --quiet").kept();
    sandbox.run("in --save-index short --index-bits 64 --seed 1 --quiet").kept();
    for (args, said) in [
        (
            "--reference line --key a --format jsonl",
            &["--reference line", "key a", "its digest"][..],
        ),
        ("--reference line --normalise trim", &["--reference line", "trim", "its digest"]),
        ("--reference line --scope file", &["--reference line", "scope file"]),
        ("--reference line --seed 3", &["line", "0x0000000000000001", "0x0000000000000003"]),
        (
            "--reference line --reference other",
            &["other", "0x0000000000000002", "0x0000000000000001"],
        ),
        ("--reference short --exactness approximate", &["short", "64 bits", "--index-bits 96"]),
        ("--reference line --exactness bytes", &["--exactness bytes", "hashes"]),
        ("--reference umbel://host", &["umbel://host", "/FILTER"]),
        ("--add-to file", &["--add-to `file`", "umbel://", "--save-index FILE"]),
        ("--save-index new --index-bits 65", &["64, 96 or 128"]),
        ("--index-bits 64", &["--save-index"]),
        ("--save-index line", &["line exists"]),
        ("--save-index same --duplicates same", &["same: two outputs"]),
    ] {
        sandbox.run(&format!("in {args}")).refused(2, said);
    }
    sandbox.run("in --reference junk").refused(1, &["junk", "not an index"]);
    sandbox.run("in --reference gone").refused(1, &["gone: cannot read"]);
    sandbox
        .run("in --reference gone --save-index gone")
        .refused(1, &["gone: no such file; the first job of a series is run without --reference"]);
    sandbox.run("in --reference long").refused(1, &["long: cannot read", "expected `UMBI`"]);
}

/// Damage is detected before any output gets its final name.
#[test]
fn a_damaged_index_is_found() {
    let sandbox = Sandbox::with(&[("in", lines(0..50))]);
    sandbox.run("in --save-index index --quiet").kept();
    let index = sandbox.read("index");
    for at in (0..index.len()).step_by(23) {
        let mut damaged = index.clone();
        damaged[at] ^= 0x10;
        sandbox.write("damaged", &damaged);
        sandbox.run("in --reference damaged --output kept").refused(1, &["damaged"]);
        assert!(!sandbox.exists("kept"));
    }
    sandbox.write("damaged", &index[..index.len() - 1]);
    sandbox.run("in --reference damaged --output kept").refused(1, &["damaged"]);
}

#[test]
fn a_filter_of_a_cluster_is_queried_and_updated() {
    let sandbox =
        Sandbox::with(&[("one", lines((0..500).chain(0..50))), ("two", lines(400..1000))]);
    let server = Server::start(&sandbox);
    server.run(&sandbox, "filter create seen --capacity 1e5 --rate 1e-7").kept();
    let seen = format!("umbel://{}/seen", server.address);
    let both = format!("--reference {seen} --add-to {seen} --quiet");
    assert_eq!(sandbox.run(&format!("one {both}")).kept_text(), lines(0..500));
    let outputs = "--duplicates report --summary summary --workers 3 --save-index index";
    assert_eq!(sandbox.run(&format!("two {both} {outputs}")).kept_text(), lines(500..1000));
    let summary = summary(&sandbox, "summary");
    assert_eq!((&summary["level"], &summary["distinct"]), (&"approximate".into(), &500.into()));
    assert_eq!(summary["dropped"]["reference"], 100);
    assert_eq!(summary["references"]["online"][0]["asked"], 600);
    let report = sandbox.text("report");
    assert_eq!(report.lines().filter(|line| line.contains(r#""cause":"reference""#)).count(), 100);
    // The index has the records that were kept at last.
    assert_eq!(sandbox.run("two --reference index --quiet").kept_text(), lines(400..500));
    let counted = server.run(&sandbox, "filter contains seen --file two --count").kept_text();
    assert!(counted.starts_with("present\t600\n"), "{counted}");

    let gone = format!("one --reference umbel://{}/gone --output kept", server.address);
    sandbox.run(&gone).refused(1, &["/gone"]);
    let bytes = format!("one --reference {seen} --exactness bytes");
    sandbox.run(&bytes).refused(2, &["--exactness bytes"]);
    let scoped = format!("one --reference {seen} --scope file");
    sandbox.run(&scoped).refused(2, &["--scope file"]);
    assert!(!sandbox.exists("kept"));
}

/// A filter gets nothing of a job whose kept records were not read to their end.
#[test]
fn records_that_nobody_got_are_not_added_to_a_filter() {
    let sandbox = Sandbox::with(&[("in", lines(0..50))]);
    let server = Server::start(&sandbox);
    server.run(&sandbox, "filter create seen --capacity 1e5 --rate 1e-7").kept();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = sandbox.command(&format!("in --add-to umbel://{}/seen", server.address));
    let ran = sandbox.ended(command.stdout(writer).output().unwrap());
    ran.refused(1, &["has closed them", "--add-to umbel://", "run the job again"]);
    let counted = server.run(&sandbox, "filter contains seen --file in --count").kept_text();
    assert!(counted.starts_with("present\t0\n"), "{counted}");
}
