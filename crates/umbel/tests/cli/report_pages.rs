//! Report pages have the numbers of the summary and the report, and are written as a whole or not at all.

use crate::machines::{Job, TOKEN, json_lines};
use crate::model::{Keep, by_line, lines};
use crate::sandbox::Sandbox;
use serde_json::{Value, json};
use std::path::Path;

/// No page is as large as this.
const PAGE_BYTES_MAX: usize = 2_000_000;

/// The texts of a page, one per line, without its style.
pub(crate) fn texts(page: &str) -> String {
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"), "not whole");
    let body = page.split("</style>").nth(1).unwrap();
    let texts = body.split('<').filter_map(|tag| tag.split_once('>')).map(|(_, text)| text);
    texts.filter(|text| !text.is_empty()).map(|text| format!("{text}\n")).collect()
}

/// A number with a comma before every group of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits: Vec<char> = number.to_string().chars().rev().collect();
    let threes: Vec<String> = digits.chunks(3).map(|three| three.iter().collect()).collect();
    threes.join(",").chars().rev().collect()
}

/// The sum of whole numbers.
pub(crate) fn sum<'a>(numbers: impl Iterator<Item = &'a Value>) -> u64 {
    numbers.map(|number| number.as_u64().unwrap()).sum()
}

/// The summary and the page of a run; asserts that they agree.
#[track_caller]
fn reported(sandbox: &Sandbox, args: &str, code: i32) -> (Value, String) {
    let args = format!("{args} --overwrite --summary s.json --report page.html");
    sandbox.run(&args).ended_with(code);
    let summary: Value = serde_json::from_slice(&sandbox.read("s.json")).unwrap();
    let page = sandbox.text("page.html");
    assert_agree(&summary, &page, &args);
    (summary, page)
}

/// Asserts that the numbers of a page are those of a summary, and that their sums are correct.
#[track_caller]
pub(crate) fn assert_agree(summary: &Value, page: &str, args: &str) {
    assert!(page.len() < PAGE_BYTES_MAX, "{args}: {} bytes", page.len());
    let texts = texts(page);
    let shows = |words: String| assert!(texts.contains(&words), "{args}: {words:?} not in {texts}");

    let count = |at: &str| summary.pointer(at).unwrap().as_u64().unwrap();
    let (items, repeats) = (count("/items"), count("/dropped/input"));
    shows(format!("Records\n{}\n", grouped(count("/records"))));
    shows(format!("Repeats\n{}\n", grouped(repeats)));
    let all = &summary["files"]["all"];
    for (field, total) in [
        ("records", count("/records")),
        ("items", items),
        ("known", count("/dropped/reference")),
        ("missing_key", count("/dropped/missing_key")),
        ("bad", count("/bad/total")),
    ] {
        assert_eq!(all[field], total, "{args}: {field}");
        let named = summary["files"]["named"].as_array().unwrap().iter().map(|file| &file[field]);
        let others = &summary["files"]["others"]["counts"][field];
        assert_eq!(sum(named.chain([others])), total, "{args}: {field}");
    }
    assert_eq!(sum([&all["repeats_within"], &all["repeats_of_others"]].into_iter()), repeats);
    let rows = summary["overlap"]["dropped"].as_array().unwrap();
    assert_eq!(sum(rows.iter().flat_map(|row| row.as_array().unwrap())), repeats, "{args}");
    let classes = summary["groups"]["histogram"].as_array().unwrap();
    let records = sum(classes.iter().map(|class| &class["records"]));
    let groups = sum(classes.iter().map(|class| &class["groups"]));
    assert_eq!((groups, records - groups), (count("/groups/count"), repeats), "{args}");

    if repeats > 0 {
        shows(format!("All files\n{}\n{}\n", grouped(items), grouped(repeats)));
        shows(format!("All groups\n{}\n{}\n", grouped(groups), grouped(repeats)));
    }
    for file in summary["files"]["named"].as_array().unwrap() {
        let number = |field: &str| file[field].as_u64().unwrap();
        let repeats = number("repeats_within") + number("repeats_of_others");
        if repeats > 0 {
            let name = name_of(file);
            shows(format!("{name}\n{}\n{}\n", grouped(number("items")), grouped(repeats)));
        }
    }
    for group in summary["most_repeated"].as_array().unwrap() {
        let (record, size) = (group["record"].as_u64().unwrap(), group["size"].as_u64().unwrap());
        let file = name_of(group);
        if group["part"].is_null() {
            shows(format!("{file}\n{}\n{}\n", grouped(record), grouped(size)));
        }
    }
}

/// The name of a file on a page.
fn name_of(file: &Value) -> String {
    let name = file["file"].as_str().unwrap();
    file.get("worker").map_or(name.to_owned(), |worker| format!("worker {worker}: {name}"))
}

#[test]
fn a_page_says_what_the_summary_says_whatever_the_job() {
    let input =
        [("a.txt", lines(1, 2000)), ("d/b.txt", lines(2, 1000)), ("d/c.txt", lines(1, 300))];
    let sandbox = Sandbox::with(&input);
    for (options, keep) in [
        ("--workers 1", Keep::First),
        ("--workers 3 --keep last", Keep::Last),
        ("--workers 3 --exactness bytes", Keep::First),
        ("--workers 2 --filter single-shot --duplicates d.jsonl --groups g.jsonl", Keep::First),
    ] {
        let (summary, page) = reported(&sandbox, &format!("a.txt d --output out/ {options}"), 0);
        let expected = by_line(&input, keep);
        assert_eq!(summary["dropped"]["input"], expected.dropped, "{options}");
        assert_eq!(summary["overlap"]["names"], json!(["a.txt", "d/b.txt", "d/c.txt"]));
        let has_workers = !options.contains("--workers 1");
        assert_eq!(page.contains("Exchange between workers"), has_workers, "{options}");
    }
    reported(&sandbox, "a.txt d --annotate notes.jsonl", 0);
    reported(&sandbox, "a.txt d --count --repeated -o counted.txt", 0);
    reported(&sandbox, "d/b.txt --save-index b.umbi -o b-kept.txt", 0);
    let (summary, page) = reported(&sandbox, "a.txt d --reference b.umbi -o new.txt", 0);
    assert!(summary["files"]["all"]["known"].as_u64().unwrap() > 500);
    assert!(page.contains("known to references"));
}

#[test]
fn keys_parts_and_bad_records_are_reported_by_file() {
    let texts = "{\"t\":\"x\\ny\\nx\"}\n{\"t\":\"y\"}\n";
    let sandbox = Sandbox::with(&[
        ("a.jsonl", "{\"k\":1,\"s\":1}\n{\"k\":1,\"s\":2}\nbad\n{}\n"),
        ("b.jsonl", "{\"k\":1,\"s\":9}\n"),
        ("t.jsonl", texts),
    ]);
    let options =
        "--key k --skip-bad --missing-key drop --keep best:s --bad bad.jsonl -o out.jsonl";
    let (summary, page) = reported(&sandbox, &format!("a.jsonl b.jsonl {options}"), 3);
    assert_eq!(summary["overlap"]["dropped"], json!([[0, 2], [0, 0]]));
    assert!(page.contains("Bad records") && page.contains("Without a key"), "{page}");
    let (summary, page) =
        reported(&sandbox, "t.jsonl --granularity paragraph --key t -o t2.jsonl", 0);
    assert_eq!((&summary["items"], &summary["dropped"]["input"]), (&json!(4), &json!(2)));
    assert!(page.contains("50.00 % of 4 paragraphs repeat others"), "{page}");
}

#[test]
fn a_job_without_records_and_files_like_markup_have_pages() {
    let sandbox = Sandbox::with(&[("empty.txt", "")]);
    let (_, page) = reported(&sandbox, "empty.txt --output out.txt", 0);
    assert!(page.contains("<h1>No lines to compare</h1>"), "{page}");
    let name = "<img_src=x_onerror=alert('1')>.txt";
    sandbox.write(name, "x\nx\n");
    let (_, page) = reported_raw(&sandbox, &format!("{name} --output out.txt --overwrite"));
    assert!(page.contains("&lt;img_src=x_onerror=alert(&#39;1&#39;)&gt;.txt"), "{page}");
    assert!(!page.contains("<img"), "{page}");
}

/// The summary and the page of a run, without checking its texts, in which names are escaped.
fn reported_raw(sandbox: &Sandbox, args: &str) -> (Value, String) {
    sandbox.run(&format!("{args} --summary s.json --report page.html")).kept();
    (serde_json::from_slice(&sandbox.read("s.json")).unwrap(), sandbox.text("page.html"))
}

#[test]
fn a_page_that_cannot_be_is_known_before_the_job() {
    let sandbox = Sandbox::with(&[("a.txt", "x\nx\n"), ("there.html", "old\n"), ("d/x", "x\n")]);
    let files = sandbox.files();
    for (path, code, said) in [
        ("gone/page.html", 1, "gone/page.html"),
        ("there.html", 2, "there.html exists: --overwrite replaces it"),
        ("d", 2, "d is a directory"),
        ("a.txt", 2, "a.txt"),
        ("-", 2, "two outputs would go to standard output"),
    ] {
        let args = format!("a.txt --report {path}");
        sandbox.run(&args).refused(code, &[said]);
        assert_eq!(sandbox.files(), files, "{args}");
    }
    for (others, path) in [
        ("--rank 0 --peers localhost:1,localhost:2", "there.html"),
        ("--rank 0 --peers localhost:1,localhost:2", "gone/page.html"),
        ("--cluster localhost:1", "there.html"),
        ("--cluster localhost:1", "gone/page.html"),
    ] {
        let args = format!("a.txt -o out.txt --report {path} {others}");
        let mut command = sandbox.command(&args);
        let ran = command.env("UMBEL_JOB_TOKEN", TOKEN).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && said.contains(path), "{args}: {said}");
        assert_eq!(sandbox.files(), files, "{args}");
    }
}

/// There is no other output about repeats, so workers tell each other their files only for the page.
#[test]
fn a_page_of_many_machines_is_drawn_by_the_first_one() {
    let mut job = Job::new(3, "jsonl", "--key id", json_lines);
    job.tells_pages_alone = true;
    job.run_as_one_process();
    assert!(job.sandbox.text("page.html").contains("worker 2: in2/1.jsonl"));
    let alone = |rank: usize| job.sandbox.exists(&format!("page{rank}.html"));
    assert!(!alone(1) && !alone(2) && !job.sandbox.exists("drops0.jsonl"));
}

/// With more files than a matrix has rows, they are grouped by worker and directory.
#[test]
fn many_files_of_many_machines_are_told_by_directory() {
    let job = Job::new(2, "txt", "--binary text", |seed| lines(seed, 40));
    for at in 0..26 {
        job.sandbox.write(format!("in{}/{}/{at}.txt", at % 2, at % 3), lines(at, 30));
    }
    job.run_as_one_process();
    let summary = job.summary("summary.json");
    assert_eq!(summary["overlap"]["by"], "directory");
    assert_eq!(summary["overlap"]["names"].as_array().unwrap().len(), 8);
}

#[test]
fn what_was_done_stands_where_the_page_cannot_be_written_in_the_end() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let sandbox = Sandbox::with(&[("a.txt", "x\ny\nx\n")]);
    let job = "a.txt --output out.txt --summary s.json --report /dev/full";
    sandbox.run(job).refused(1, &["its other outputs stand", "/dev/full", "No space left"]);
    assert_eq!(sandbox.text("out.txt"), "x\ny\n");
    assert!(sandbox.exists("s.json"));
}
