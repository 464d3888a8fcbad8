//! The page of a comparison has the numbers of the JSON report, and is written as a whole or not at all.

use crate::model::lines;
use crate::reconcile::reconcile;
use crate::report_pages::{grouped, sum, texts};
use crate::sandbox::Sandbox;
use serde_json::Value;
use std::path::Path;

#[test]
fn the_page_of_a_comparison_says_what_its_report_says() {
    let sandbox = Sandbox::with(&[("a.txt", lines(1, 3000)), ("b.txt", lines(2, 2500))]);
    for (options, code) in [("", 1), ("--two-way", 0), ("", 0)] {
        let args = format!("a.txt b.txt {options} --report r.json --report-html r.html");
        reconcile(&sandbox, &args).ended_with(code);
        let report: Value = serde_json::from_slice(&sandbox.read("r.json")).unwrap();
        let texts = texts(&sandbox.text("r.html"));
        let shows = |words: String| assert!(texts.contains(&words), "{words:?} not in {texts}");
        let count = |at: &str| report.pointer(at).unwrap().as_u64().unwrap();
        shows(format!("In A\n{}\n", grouped(count("/items/a"))));
        shows(format!("In B\n{}\n", grouped(count("/items/b"))));
        shows(format!("Only in A\n{}\n", grouped(count("/difference/only_a"))));
        shows(format!("Only in B\n{}\n", grouped(count("/difference/only_b"))));
        let phases = report["bytes_by_phase"].as_object().unwrap().values();
        let travelled = count("/bytes_sent") + count("/bytes_received");
        assert_eq!(sum(phases), travelled);
        shows(format!("{}\n100 %\n", grouped(travelled)));
        if let Some(ratio) = report["ratio"].as_f64() {
            shows(format!("Ratio\n{ratio:.2}\n"));
            // The bound beside the bars.
            let bytes = grouped(count("/lower_bound_bytes"));
            shows(format!("{bytes}\n1.00\n"));
            shows(format!("\n{ratio:.2}\nWhat the bytes were for"));
        }
    }
}

#[test]
fn a_page_of_a_comparison_that_cannot_be_is_known_before_it() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n"), ("b.txt", "y\n"), ("d/x", "x\n")]);
    for (path, said) in
        [("gone/r.html", "gone/r.html"), ("d", "d is a directory"), ("a.txt", "a.txt")]
    {
        for flag in ["--report", "--report-html"] {
            let args = format!("a.txt b.txt --two-way {flag} {path}");
            reconcile(&sandbox, &args).refused(2, &[said]);
            let texts = (sandbox.text("a.txt"), sandbox.text("b.txt"));
            assert_eq!(texts, ("x\n".into(), "y\n".into()), "{args}");
        }
    }
    let listening = "a.txt --listen 127.0.0.1:0 --report-html r.html";
    reconcile(&sandbox, listening).refused(2, &["--report-html", "--listen"]);
}

#[test]
fn a_report_goes_to_standard_output_where_nothing_else_does() {
    let sandbox = Sandbox::with(&[("a.txt", "x\n"), ("b.txt", "y\n")]);
    for flag in ["--report", "--report-html"] {
        let refused = reconcile(&sandbox, &format!("a.txt b.txt {flag} -"));
        refused.refused(2, &[flag, "the difference goes to standard output"]);
    }
    reconcile(&sandbox, "a.txt b.txt --two-way --report - --report-html -")
        .refused(2, &["two outputs would be written there"]);
    for (options, code) in [("--quiet", 1), ("--two-way", 0)] {
        let told = reconcile(&sandbox, &format!("a.txt b.txt {options} --report -"));
        let report: Value = serde_json::from_slice(&told.ended_with(code)).unwrap();
        assert_eq!(report["difference"]["only_a"], 1, "{options}");
    }
    assert!(!sandbox.exists("-"));
}

#[test]
fn what_was_brought_stands_where_the_page_cannot_be_written_in_the_end() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let sandbox = Sandbox::with(&[("a.txt", "x\ny\n"), ("b.txt", "y\nz\n")]);
    let ran = reconcile(&sandbox, "a.txt b.txt --pull --report r.json --report-html /dev/full");
    for words in ["the comparison is done and stands", "/dev/full", "No space left"] {
        assert!(ran.stderr.contains(words), "{words:?} is not in {}", ran.stderr);
    }
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert_eq!((sandbox.text("a.txt"), sandbox.exists("r.json")), ("x\ny\nz\n".into(), true));
}
