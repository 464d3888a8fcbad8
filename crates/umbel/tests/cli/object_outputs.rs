//! Outputs in an object store: objects equal the files of the same job, despite faults, and a failed job
//! leaves no objects.

use crate::interrupt::{INTERRUPTED, send};
use crate::model::{lines, unlike_lines};
use crate::object_store::{BUCKET, Fault, Faults};
use crate::objects::Twice;
use crate::packed::{gzip, zstd};
use crate::parquet::{SCHEMA, json_lines, rows, table};
use xxhash_rust::xxh3::xxh3_128;

pub(crate) type Files = Vec<(String, Vec<u8>)>;

/// The local files below a directory, by their names relative to it.
pub(crate) fn files_below(twice: &Twice, root: &str) -> Files {
    let names = twice.sandbox.files();
    let names = names.iter().filter_map(|name| name.strip_prefix(root));
    names.map(|name| (name.to_owned(), twice.sandbox.read(format!("{root}{name}")))).collect()
}

pub(crate) fn names(files: &Files) -> Vec<&str> {
    files.iter().map(|(name, _)| &name[..]).collect()
}

/// Runs with files and with objects, and compares them; `OUT` stands for the place.
#[track_caller]
fn assert_equal(twice: &Twice, args: &str) -> Files {
    let _ = std::fs::remove_dir_all(twice.sandbox.path("here"));
    std::fs::create_dir(twice.sandbox.path("here")).unwrap();
    let local = twice.run(&args.replace("OUT", "here"));
    let place = format!("there/{:x}/", xxh3_128(args.as_bytes()));
    let there = format!("s3://{BUCKET}/{}", place.trim_end_matches('/'));
    let remote = twice.run(&args.replace("OUT", &there));
    assert_eq!((local.code, &local.stderr), (remote.code, &remote.stderr), "{args}");
    assert!(local.stdout == remote.stdout, "{args}");
    let local = files_below(twice, "here/");
    let remote = twice.store.below(&place);
    assert_eq!(names(&local), names(&remote), "{args}");
    assert!(!local.is_empty() && local == remote, "{args}");
    assert_eq!(twice.store.open_uploads(), 0);
    local
}

#[test]
fn objects_hold_what_files_would_hold_in_every_format_and_packing() {
    let rows = rows(3000);
    let json = json_lines(&rows);
    let csv = "id,url\n".to_owned() + &"1,a\n2,\"b\nc\"\n3,a\n".repeat(300);
    let long = unlike_lines(1, 40_000);
    let twice = Twice::new(&[
        ("text/a.txt", long.clone()),
        ("text/b.txt.gz", gzip(&[&long[..90_000], &lines(2, 40_000)].concat())),
        ("text/deep/c d+é.txt.zst", zstd(&lines(3, 20_000))),
        ("text/empty.txt", Vec::new()),
        ("json/a.jsonl", json.clone().into_bytes()),
        ("json/b.ndjson.gz", gzip(&[json.as_bytes(), b"{\n"].concat())),
        ("csv/a.csv", csv.clone().into_bytes()),
        ("csv/b.csv.zst", zstd(csv.as_bytes())),
        ("table/a.parquet", table(SCHEMA, &rows, 700)),
        ("table/b.parquet", table(SCHEMA, &rows[100..900], 80)),
    ]);
    let from = format!("s3://{BUCKET}");
    let outputs = assert_equal(&twice, "local/text/ -o OUT/ -q");
    assert_eq!(names(&outputs), ["a.txt", "b.txt.gz", "deep/c d+é.txt.zst", "empty.txt"]);
    assert_equal(&twice, &format!("{from}/text/ -o OUT/ -q"));
    for name in ["kept.txt", "kept.txt.gz", "kept.txt.zst"] {
        assert_equal(&twice, &format!("local/text/ --workers 3 -o OUT/{name} -q"));
    }
    assert_equal(&twice, "local/text/ --granularity file -o OUT/ -q");
    let reports = "--duplicates OUT/d.jsonl.gz --groups OUT/g --save-index OUT/i.gz --seed 1 --skip-bad --bad OUT/bad";
    assert_equal(&twice, &format!("local/json/ --key url -o OUT/out.jsonl {reports} -q"));
    assert_equal(&twice, "local/json/ --key id -o OUT/ --skip-bad -q");
    assert_equal(&twice, &format!("{from}/json/ --key id --skip-bad --annotate OUT/ -q"));
    assert_equal(&twice, "local/json/ --key id --skip-bad --annotate OUT/lines.zst -q");
    assert_equal(&twice, "local/csv/ --key url -o OUT/ -q");
    assert_equal(&twice, "local/csv/ --granularity record -o OUT/all.csv.gz -q");
    assert_equal(&twice, "local/table/ --key url -o OUT/all.parquet -q");
    assert_equal(&twice, &format!("{from}/table/ local/json/a.jsonl --key url -o OUT/ -q"));
    twice.run(&format!("local/text/ -o {from}/o/ --summary {from}/s.json -q")).kept();
    let summary = twice.store.below("s.json").remove(0).1;
    assert!(serde_json::from_slice::<serde_json::Value>(&summary).unwrap()["records"].is_u64());
}

#[test]
fn a_long_output_is_stored_in_parts() {
    let twice = Twice::new(&[("none", "")]);
    let all = unlike_lines(1, 700_000);
    let (parts, rest) = (all.len() >> 24, all.len() % (16 << 20));
    assert!(parts > 0 && rest > 0, "{}", all.len());
    twice.sandbox.write("in.txt", &all);
    let args = format!("in.txt -o s3://{BUCKET}/long/out.txt --memory 64M --summary s -q");
    twice.run(&args).kept();
    assert!(twice.store.below("long/") == [("out.txt".to_owned(), all)]);
    let asked = twice.store.asked();
    assert_eq!(asked.iter().filter(|asked| asked.query.contains("partNumber")).count(), parts + 1);
    let summary: serde_json::Value = serde_json::from_slice(&twice.sandbox.read("s")).unwrap();
    let rss = summary["run"]["rss_bytes_max"][0].as_u64().unwrap();
    assert!(rss < 64 << 21, "{rss}");
    assert_eq!(twice.store.open_uploads(), 0);
}

#[test]
fn an_old_list_of_bad_records_is_emptied_in_a_store_too() {
    // Regression: credentials that allow only to put were refused at the end of the job.
    for is_write_only in [false, true] {
        let twice = Twice::new(&[("in/a.txt", "x\nx\n"), ("out/bad.jsonl", "old")]);
        twice.store.set_faults(Faults { is_write_only, ..Faults::default() });
        twice.run(&format!("local/in/ -o s3://{BUCKET}/out/ --skip-bad --overwrite -q")).kept();
        let expected = [("a.txt", "x\n"), ("bad.jsonl", "")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
        assert!(twice.store.below("out/") == expected, "{is_write_only}");
    }
}

#[test]
fn what_stands_there_is_refused_before_anything_is_read() {
    let twice = Twice::new(&[("a.txt", "x\ny\nx\n"), ("out/a.txt", "old"), ("d", "old")]);
    let refused = |args: &str, said: &str| {
        let args = args.replace("AT", &format!("s3://{BUCKET}"));
        twice.run(&args).refused(2, &[said]);
        let asked = twice.store.asked();
        assert!(asked.iter().all(|asked| asked.method == "GET"), "{asked:?}");
    };
    let exists = "exists: --overwrite replaces it";
    refused("local/a.txt -o AT/out/", &format!("s3://{BUCKET}/out/a.txt {exists}"));
    refused("local/a.txt -o AT/d", &format!("s3://{BUCKET}/d {exists}"));
    refused("local/a.txt -o AT/k --duplicates AT/d", &format!("s3://{BUCKET}/d {exists}"));
    refused("local/a.txt -o AT/k --duplicates AT/k", "two outputs would be written there");
    refused("local/a.txt -o AT/k/ --duplicates AT/k/a.txt", "two outputs would be written there");
    let input = format!("s3://{BUCKET}/a.txt is an input, too");
    refused("AT/a.txt -o AT/k --duplicates AT/a.txt --overwrite", &input);
    refused("AT/a.txt --annotate AT/a.txt --overwrite", &input);
    // Kept records may replace the object that they were read from.
    twice.run(&format!("s3://{BUCKET}/a.txt -o s3://{BUCKET}/a.txt --overwrite -q")).kept();
    assert_eq!(twice.store.below("a.txt"), [(String::new(), b"x\ny\n".to_vec())]);
    twice.run(&format!("local/a.txt -o s3://{BUCKET}/out/ --overwrite -q")).kept();
    assert_eq!(twice.store.below("out/"), [("a.txt".to_owned(), b"x\ny\n".to_vec())]);
}

#[test]
fn what_cannot_be_written_is_said_before_anything_is_read() {
    let twice = Twice::new(&[("a.txt", "x\n")]);
    let refused = |args: &str, code, said: &[&str]| {
        twice.run(&args.replace("AT", &format!("s3://{BUCKET}"))).refused(code, said);
    };
    refused("local/ -o s3://other/k", 1, &["s3://other/k: cannot look for it", "no such bucket"]);
    refused(
        "local/ -o s3://other/k --overwrite",
        1,
        &["s3://other/k: cannot write", "no such bucket"],
    );
    refused("local/ -o s3:///k", 2, &["expected s3://BUCKET/KEY"]);
    refused(
        "local/ -o AT/k --summary AT/s/",
        2,
        &["s3://bucket/s/: expected the key of an object"],
    );
    refused(&format!("local/ -o AT/{}", "k".repeat(1025)), 2, &["the key is longer"]);
    for flags in ["-o AT/k", "-o /k --groups AT/k", "-o /k --reference AT/k"] {
        let said = ["s3://bucket/k: jobs of a cluster read and write no objects"];
        refused(&format!("/in {flags} --cluster 127.0.0.1:1"), 2, &said);
    }
    let mut command = twice.store.known_to(twice.sandbox.command("local/ -o s3://bucket/k"));
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    let ran = twice.sandbox.ended(command.output().unwrap());
    ran.refused(2, &["s3://bucket/k", "not written without credentials", "AWS_ACCESS_KEY_ID"]);
    assert_eq!(twice.store.below("").len(), 1);
}

/// A large output, small ones, an empty one, and a local file among them.
const JOB: &str = "local/ --workers 1 -q -o s3://bucket/out/ --duplicates s3://bucket/d --groups g \
                   --summary s3://bucket/s";

pub(crate) fn job() -> Twice {
    let twice = Twice::new(&[("none", "")]);
    std::fs::remove_dir_all(twice.sandbox.path("local")).unwrap();
    let long = unlike_lines(1, 20_000);
    assert!(long.len() > 256 << 10);
    twice.sandbox.write("local/long.txt", long);
    twice.sandbox.write("local/short.txt", "x\nx\ny\n");
    twice.sandbox.write("local/empty.txt", "");
    twice
}

/// The number of requests that the job makes.
fn requests() -> usize {
    let twice = job();
    twice.run(JOB).kept();
    twice.store.asked().len()
}

#[test]
fn a_job_that_fails_at_any_request_leaves_nothing() {
    let requests = requests();
    assert!(requests > 15, "{requests}");
    for request in 0..requests {
        let twice = job();
        let before = (twice.sandbox.files(), twice.store.below(""));
        twice.store.set_fault(request, Fault::Refused);
        twice.run(JOB).refused(1, &["s3://bucket/", "AccessDenied"]);
        assert_eq!(twice.store.open_uploads(), 0, "{request} of {requests}");
        let objects = twice.store.below("");
        assert_eq!(names(&objects), names(&before.1), "{request} of {requests}");
        // The summary is written after all files.
        let files = twice.sandbox.files();
        assert!(files == before.0 || request + 1 == requests, "{request}: {files:?}");
    }
}

#[test]
fn what_passes_changes_nothing_at_any_request() {
    let requests = requests();
    let expected = job();
    expected.run(JOB).kept();
    let expected = expected.store.below("out/");
    for fault in [Fault::LostAnswer, Fault::CutBody, Fault::Overload, Fault::LateError] {
        for request in 0..requests {
            let twice = job();
            twice.store.set_fault(request, fault.clone());
            twice.run(JOB).kept();
            assert!(twice.store.below("out/") == expected, "{fault:?} {request}");
            // If the response to the start of an upload was lost, its id is unknown.
            let open = twice.store.open_uploads();
            assert!(open == 0 || fault == Fault::LostAnswer && open == 1, "{fault:?} {request}");
        }
    }
}

#[test]
fn a_writer_that_comes_first_is_found_and_left_alone() {
    let requests = requests();
    let mut met = 0;
    for key in ["out/long.txt", "out/short.txt", "s"] {
        for request in requests - 7..requests {
            let twice = job();
            twice.store.set_fault(request, Fault::Race(key.to_owned()));
            let ran = twice.run(JOB);
            let theirs = twice.store.below(key).remove(0).1 == b"another writer's";
            assert!(theirs);
            if ran.code == Some(0) {
                continue; // It came behind.
            }
            met += 1;
            ran.refused(1, &[&format!("s3://bucket/{key}: cannot complete"), "stands there now"]);
            let mut left = [key, "none"];
            left.sort_unstable();
            assert_eq!(names(&twice.store.below("")), left);
            assert_eq!(twice.store.open_uploads(), 0);
        }
    }
    assert!(met > 3, "{met}");
}

#[test]
fn an_interrupt_aborts_uploads() {
    let twice = job();
    let parts = |twice: &Twice| {
        let asked = twice.store.asked();
        asked.iter().position(|asked| asked.query.contains("partNumber")).unwrap()
    };
    twice.run(JOB).kept();
    let part = parts(&twice);
    let twice = job();
    twice.store.set_fault(part, Fault::Hung);
    let child = twice.store.known_to(twice.sandbox.command(JOB)).spawn().unwrap();
    assert_eq!(twice.store.await_hung().1, "out/long.txt");
    assert_eq!(twice.store.open_uploads(), 1);
    send("-INT", child.id());
    let ran = twice.sandbox.ended(child.wait_with_output().unwrap());
    assert_eq!(ran.code, INTERRUPTED);
    assert_eq!(twice.store.open_uploads(), 0);
    assert_eq!(names(&twice.store.below("")), ["none"]);
}

/// The summary is the last output of the commit: while it is stored, all others have their names.
#[test]
fn an_interrupt_within_the_commit_waits_for_all_outputs() {
    const ARGS: &str = "local -o out/ --duplicates d --save-index i --summary s3://bucket/s -q";
    let job = || Twice::new(&[("a", lines(1, 50)), ("b", lines(2, 50))]);
    let twice = job();
    twice.run(ARGS).kept();
    let last = twice.store.asked().len() - 1;
    let twice = job();
    twice.store.set_fault(last, Fault::Held);
    let child = twice.store.known_to(twice.sandbox.command(ARGS)).spawn().unwrap();
    assert_eq!(twice.store.await_hung().1, "s");
    let placed = ["out/a", "out/b", "d", "i"].map(|name| twice.sandbox.exists(name));
    send("-INT", child.id());
    twice.store.release();
    let ran = twice.sandbox.ended(child.wait_with_output().unwrap());
    assert_eq!(placed, [true; 4]);
    assert_eq!(names(&twice.store.below("s")), [""], "exit code {:?}", ran.code);
    // A signal that the process gets no earlier than after its commit ends it as ever.
    assert!([Some(0), INTERRUPTED].contains(&ran.code), "{}", ran.stderr);
}

#[test]
fn a_store_that_goes_away_ends_the_job() {
    let twice = job();
    twice.run(JOB).kept();
    let twice = job();
    twice.store.set_faults(Faults { overloads: 1000, ..Faults::default() });
    twice.run(JOB).refused(1, &["s3://bucket/", "no answer", "after 7 tries", "SlowDown"]);
    assert_eq!(names(&twice.store.below("")), ["none"]);
}

#[test]
fn indexes_in_the_store_are_references_as_files_are() {
    let old = unlike_lines(1, 60_000);
    let twice = Twice::new(&[
        ("none", ""),
        ("text", "no index, and longer than the header of one is, which has so many bytes"),
    ]);
    twice.sandbox.write("old.txt", &old);
    twice.sandbox.write("new.txt", [&unlike_lines(2, 500)[..], &old[..300_000]].concat());
    twice.run("old.txt -o kept --save-index i.umbi --seed 1 -q").kept();
    twice.run("old.txt -o kept2 --save-index s3://bucket/i.umbi --seed 1 -q").kept();
    let expected = twice.run("new.txt --reference i.umbi -q").kept();
    assert!(!expected.is_empty() && expected.len() < 50_000);
    for workers in [1, 3] {
        let args = format!("new.txt --reference s3://bucket/i.umbi --workers {workers} -q");
        assert!(twice.run(&args).kept() == expected);
        twice.store.set_faults(Faults { overloads: 2, cuts: 3, ..Faults::default() });
        assert!(twice.run(&args).kept() == expected);
    }
    twice.store.asked();
    twice.run("new.txt --reference s3://bucket/i.umbi -q").kept();
    let asked = twice.store.asked();
    let opened = asked.iter().rposition(|asked| asked.range == "bytes=0-63").unwrap();
    assert!(asked.len() > opened + 2, "{asked:?}");
    for request in opened + 2..=asked.len() {
        let request = u32::try_from(request).unwrap();
        let change = Some((request, "i.umbi".to_owned(), b"another".to_vec()));
        twice.store.set_faults(Faults { change, ..Faults::default() });
        let said = ["--reference s3://bucket/i.umbi: cannot read", "changed while it was read"];
        twice.run("new.txt --reference s3://bucket/i.umbi").refused(1, &said);
        twice
            .run("old.txt -o kept3 --save-index s3://bucket/i.umbi --seed 1 -q --overwrite")
            .kept();
    }
    twice
        .run("new.txt --reference s3://bucket/no")
        .refused(1, &["--reference s3://bucket/no: cannot read", "404"]);
    twice.run("new.txt --reference s3://bucket/none").refused(1, &["not an index: 0 bytes"]);
    twice
        .run("new.txt --reference s3://bucket/text")
        .refused(1, &["s3://bucket/text: cannot read"]);
    twice.run("new.txt --reference s3://bucket/").refused(2, &["expected the key of an object"]);
}
