//! The report of dropped records: complete, in input order, and independent of the division of work.

use crate::model::{Keep, by_line, lines};
use crate::sandbox::Sandbox;

#[test]
fn the_report_is_exactly_the_models() {
    let mut first = lines(1, 2500);
    first.extend(b"no line end");
    let input = [("b.txt", first), ("a.txt", lines(1, 1000)), ("c.txt", b"no line end\n".to_vec())];
    let sandbox = Sandbox::with(&input);
    let levels = ["fingerprint", "bytes", "approximate --false-positive-rate 1e-9"];
    for (keep, name) in [(Keep::First, "first"), (Keep::Last, "last")] {
        let expected = by_line(&input, keep);
        for level in levels {
            for workers in [1, 5] {
                for filter in ["single-shot", "wide"] {
                    let args = format!(
                        "b.txt a.txt c.txt --keep {name} --workers {workers} --filter {filter} \
                         --seed 3 --overwrite --duplicates d.jsonl --exactness {level}"
                    );
                    assert!(sandbox.run(&args).kept() == expected.stream(), "{args}");
                    assert!(sandbox.text("d.jsonl") == expected.report, "{args}");
                }
            }
        }
    }
}

#[test]
fn the_report_of_input_without_repeats_is_empty() {
    let sandbox = Sandbox::with(&[("a.txt", "x\ny\n")]);
    sandbox.run("a.txt --duplicates d.jsonl").kept();
    assert_eq!(sandbox.text("d.jsonl"), "");
}

#[test]
fn a_report_changes_nothing_of_what_is_kept() {
    let input = [("a.txt", lines(5, 3000))];
    let sandbox = Sandbox::with(&input);
    for workers in [1, 5] {
        let with = sandbox.run(&format!("a.txt --workers {workers} --duplicates {workers}.jsonl"));
        let without = sandbox.run(&format!("a.txt --workers {workers}"));
        assert!(with.kept() == without.kept(), "{workers} workers");
    }
}

#[test]
fn names_in_the_report_are_escaped() {
    let sandbox = Sandbox::with(&[("a\"b\n.txt", "x\nx\n")]);
    let mut command = sandbox.command("--duplicates d.jsonl");
    sandbox.ended(command.arg("a\"b\n.txt").output().unwrap()).kept();
    let line: serde_json::Value = serde_json::from_str(&sandbox.text("d.jsonl")).unwrap();
    assert_eq!((&line["file"], &line["kept_file"]), (&"a\"b\n.txt".into(), &"a\"b\n.txt".into()));
}
