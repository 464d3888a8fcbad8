//! Pages of summaries that are made up: jobs too large for a test, and hostile names.

use super::*;
use crate::picture::texts;
use serde_json::json;

/// Bound for the size of a page, so that browsers open it at once.
const PAGE_BYTES_MAX: usize = 2_000_000;

fn file(name: &str, items: u64, of_others: u64, within: u64) -> Value {
    json!({
        "file": name, "stored_bytes": 10 * items, "item_bytes": 9 * items, "records": items, "items": items,
        "repeats_of_others": of_others, "repeats_within": within, "known": 0, "missing_key": 0, "bad": 0,
    })
}

fn summary() -> Value {
    let run = json!({
        "wall_s": 1.5, "cpu_s": 2.25, "threads": 2, "rss_bytes_max": [1 << 20], "scratch_bytes_max": [0],
        "phase_wall_s": { "open": 0.25, "local": 0.75, "output": 0.5 },
        "thread_s": { "read": 0.5, "hash": 1.5 },
    });
    json!({
        "seed": "0x7", "level": "fingerprint", "keep": "first",
        "spec": { "inputs": ["in"], "granularity": "line", "scope": "global", "memory_bytes": 1 << 30 },
        "records": 300, "items": 300, "distinct": 240, "exempt": 0, "written": null,
        "dropped": { "input": 60, "reference": 0, "missing_key": 0 },
        "groups": { "count": 30, "largest": 9, "histogram": [
            { "size_min": 2, "size_max": 3, "groups": 20, "records": 44 },
            { "size_min": 4, "size_max": 7, "groups": 9, "records": 37 },
            { "size_min": 8, "size_max": 15, "groups": 1, "records": 9 },
        ] },
        "most_repeated": [{ "file": "a.txt", "record": 7, "size": 9 }],
        "files": {
            "count": 2, "named": [file("b.txt", 100, 40, 5), file("a.txt", 200, 0, 15)],
            "others": { "count": 0, "counts": file("", 0, 0, 0) }, "all": file("", 300, 40, 20),
        },
        "overlap": { "by": "file", "names": ["a.txt", "b.txt"], "others": 0, "dropped": [[15, 0], [40, 5]] },
        "references": null, "bad": { "total": 0, "by_cause": {} },
        "plan": { "workers": 1 }, "run": run,
    })
}

fn set(summary: &mut Value, pointer: &str, value: Value) {
    *summary.pointer_mut(pointer).unwrap() = value;
}

#[test]
fn a_page_says_what_the_summary_says() {
    let texts = texts(&page_of(&summary()));
    for words in [
        "20.00 % of 300 lines repeat others",
        "300 records in 2 files (2.93 KiB). The first of equal lines stays; lines are equal if all 128 bits of their hashes are.",
        "40 repeat another file (13.33 %)\n20 repeat their own file (6.67 %)\n240 distinct (80.00 %)",
        "Kept\n240",
        "Repeats\n60\n20.00 %",
        "b.txt\n100\n45\n45.00 %",
        "a.txt\n200\n15\n7.50 %",
        "All files\n300\n60\n20.00 %",
        "b.txt\na.txt\n40\na.txt\na.txt\n15\nb.txt\nb.txt\n5",
        "2 to 3 times\n20\n24\n40.00 %",
        "4 to 7 times\n9\n28\n46.67 %",
        "All groups\n30\n60\n100 %",
        "a.txt\n7\n9",
        "Reading and hashing\n750.0 ms\n50.00 %\n2.93 KiB read",
        "The whole job\n1.50 s",
        "Cutting records and hashing\n1.50 s\n75.00 %",
    ] {
        assert!(texts.contains(words), "{words:?} is not in\n{texts}");
    }
}

#[test]
fn what_was_not_found_or_not_asked_for_is_left_out() {
    let mut summary = summary();
    let nothing = [
        ("/items", json!(0)),
        ("/records", json!(0)),
        ("/distinct", json!(0)),
        ("/dropped/input", json!(0)),
        ("/groups", json!({ "count": 0, "largest": 0, "histogram": [] })),
        ("/most_repeated", json!([])),
        ("/overlap/dropped", json!([])),
        ("/files/named", json!([])),
        ("/files/count", json!(0)),
    ];
    nothing.into_iter().for_each(|(at, value)| set(&mut summary, at, value));
    let page = page_of(&summary);
    assert!(page.contains("<h1>No lines to compare</h1>"), "{page}");
    for section in ["What repeats what", "How often the same stood", "Exchange between workers"] {
        assert!(!page.contains(section), "{section}");
    }
    set(&mut summary, "/items", json!(1));
    assert!(page_of(&summary).contains("<h1>No repeats among 1 line</h1>"));
}

#[test]
fn files_of_many_machines_are_named_with_their_workers() {
    let mut summary = summary();
    summary["files"]["named"][0]["worker"] = json!(1);
    summary["most_repeated"][0]["worker"] = json!(0);
    summary["overlap"]["workers"] = json!([0, 1]);
    let texts = texts(&page_of(&summary));
    for words in [
        "worker 1: b.txt\n100\n45\n45.00 %",
        "worker 1: b.txt\nworker 0: a.txt\n40",
        "worker 0: a.txt\n7\n9",
    ] {
        assert!(texts.contains(words), "{words:?} is not in\n{texts}");
    }
}

#[test]
fn names_like_markup_are_text() {
    let name = "</td><script>alert(\"1\")</script>\u{202e}&lt;";
    let shown = "&lt;/td&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;\\u{202e}&amp;lt;";
    let mut summary = summary();
    for at in [
        "/files/named/0/file",
        "/overlap/names/0",
        "/most_repeated/0/file",
        "/spec/inputs/0",
        "/spec/scope",
        "/keep",
    ] {
        set(&mut summary, at, json!(name));
        let page = page_of(&summary);
        assert!(page.contains(shown) && !page.contains("<script"), "{at}");
    }
}

/// A summary at the limits of files and records, with names of 6,000 characters and more: the page stays
/// bounded.
#[test]
fn a_page_of_any_job_is_small() {
    let name = |at: usize| format!("{}{at}", "\"<\u{202e}".repeat(2000));
    let many = 100_000_000u64;
    let mut summary = summary();
    let named: Vec<Value> = (0..50).map(|at| file(&name(at), many, many / 3, many / 4)).collect();
    let names: Vec<String> = (0..24).map(name).collect();
    let examples: Vec<Value> = (0..20)
        .map(|at| json!({ "file": name(at), "record": u64::MAX, "part": u64::MAX, "size": many }))
        .collect();
    let histogram: Vec<Value> = (1..63)
        .map(|power| {
            let (from, to) = (1u64 << power, (1u64 << power) * 2 - 1);
            json!({ "size_min": from, "size_max": to, "groups": many, "records": u64::MAX / 64 })
        })
        .collect();
    let groups = json!({ "count": many, "largest": many, "histogram": histogram });
    for (at, value) in [
        ("/items", json!(many)),
        ("/dropped/input", json!(many / 2)),
        ("/files/count", json!(100_000)),
        ("/files/named", named.into()),
        ("/files/others", json!({ "count": 99_950, "counts": file("", many, many, many) })),
        ("/overlap/names", json!(names)),
        ("/overlap/others", json!(99_976)),
        ("/overlap/dropped", json!(vec![vec![u64::MAX / 1000; 25]; 25])),
        ("/most_repeated", examples.into()),
        ("/groups", groups),
        (
            "/spec/inputs",
            json!(
                (0..100_000)
                    .map(|at| if at < 8 { name(at) } else { at.to_string() })
                    .collect::<Vec<_>>()
            ),
        ),
        ("/plan/workers", json!(1024)),
    ] {
        set(&mut summary, at, value);
    }
    let page = page_of(&summary);
    assert!(page.len() < PAGE_BYTES_MAX, "{} bytes", page.len());
    let texts = texts(&page);
    let rest = "and 99,992 more";
    for words in ["99,950 other files", "99,976 other files", "575 other pairs", rest] {
        assert!(texts.contains(words), "{words:?} is not in\n{texts}");
    }
}
