//! The summary of a job as a table, and the exit code that it determines.

use crate::exit::Exit;
use crate::picture::{grouped, number_of};
use crate::stderr::eprint_text;
use crate::units::size;
use serde_json::Value;
use std::fmt::Write as _;

/// Prints the result of a job, unless `--quiet` is given.
pub(super) fn show(summary: &Value, is_quiet: bool) {
    if !is_quiet {
        eprint_text(table(summary));
    }
}

/// The exit code of the command.
pub(super) fn exit(summary: &Value) -> Exit {
    let bad = summary.pointer("/bad/total").and_then(Value::as_u64).unwrap_or(0);
    if bad > 0 { Exit::BadSkipped } else { Exit::Done }
}

/// The summary as a table.
pub(crate) fn table(summary: &Value) -> String {
    let get = |path: &str| summary.pointer(path).cloned().unwrap_or(Value::Null);
    let number = |path: &str| get(path).as_f64().unwrap_or(0.0);
    let count = |path: &str| grouped(get(path).as_u64().unwrap_or(0));
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<10} {value}");
    };
    row("records", count("/records"));
    // What is kept and dropped are pieces there, of which a record has any number.
    let is_in_pieces = get("/spec/granularity") == "paragraph";
    if is_in_pieces {
        row("paragraphs", count("/items"));
    }
    let whole = number(if is_in_pieces { "/items" } else { "/records" });
    let share = 100.0 * number("/dropped/input") / whole.max(1.0);
    let kept = |path: &str| get(path).as_u64().unwrap_or(0);
    let annotates = get("/spec/annotates") == true;
    let kept = grouped(kept("/distinct") + kept("/exempt"));
    let is_chosen = !get("/written").is_null();
    row(if annotates || is_chosen { "distinct" } else { "kept" }, kept);
    if is_chosen {
        row("written", count("/written"));
    }
    row(
        if annotates { "repeats" } else { "dropped" },
        format!("{} ({share:.2} %)", count("/dropped/input")),
    );
    if number("/dropped/missing_key") > 0.0 {
        let missing = get("/dropped/missing_key").as_u64().unwrap_or(0);
        row("no key", number_of(missing, "record dropped", "records dropped"));
    }
    if !get("/references").is_null() {
        let wrong = number("/references/expected_wrong_drops");
        let known = count("/dropped/reference");
        let wrong = if wrong > 0.0 { format!("{wrong:.1e}") } else { "none".to_owned() };
        row("known", format!("{known} dropped for references, {wrong} wrongly in expectation"));
    }
    if number("/bad/total") > 0.0 {
        row("left out", left_out(&get("/bad")));
    }
    if number("/collisions") > 0.0 {
        row("collisions", count("/collisions"));
    }
    row("equal by", equal_by(&get("/level"), &get("/references/online")).into());
    if number("/plan/workers") > 1.0 {
        let workers = count("/plan/workers");
        let bytes = number("/exchange/network_bytes");
        let each = bytes / number("/items").max(1.0);
        let bytes = size(bytes);
        row("exchange", format!("{bytes} between {workers} workers, {each:.2} bytes a record"));
    }
    let wall = number("/run/wall_s");
    let rate = rate(number("/records") / wall.max(1e-9));
    let cpu = number("/run/cpu_s");
    let memory = size(number("/run/rss_bytes_max/0"));
    let scratch = size(number("/run/scratch_bytes_max/0"));
    row("time", format!("{wall:.2} s, {cpu:.2} s of processor, {rate} records/s"));
    row("memory", format!("{memory}, {scratch} of scratch disk"));
    text
}

/// How many bad records were left out, and how many for which cause.
fn left_out(bad: &Value) -> String {
    let total = bad.get("total").and_then(Value::as_u64).unwrap_or(0);
    let causes = bad.get("by_cause").and_then(Value::as_object).into_iter().flatten();
    let causes: Vec<String> = causes.map(|(cause, count)| format!("{count} {cause}")).collect();
    format!("{}: {}", number_of(total, "bad record", "bad records"), causes.join(", "))
}

/// What is compared at a level of exactness, where these filters of clusters are asked.
fn equal_by(level: &Value, online: &Value) -> &'static str {
    let is_filter_asked = online.as_array().is_some_and(|filters| !filters.is_empty());
    match level.as_str().unwrap_or_default() {
        "approximate" if is_filter_asked => "their hashes, and what the filters answer for them",
        "approximate" => "some bits of their hashes",
        "bytes" => "their bytes",
        _ => "128 bits of their hashes",
    }
}

/// A rate in the unit that fits.
fn rate(per_second: f64) -> String {
    if per_second >= 1e6 {
        format!("{:.1} million", per_second / 1e6)
    } else {
        format!("{per_second:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_share_is_one_of_what_is_dropped() {
        let mut summary = json!({
            "records": 2, "items": 8, "distinct": 3, "dropped": { "input": 5 }, "written": null,
            "spec": { "granularity": "paragraph" },
        });
        let text = table(&summary);
        assert!(text.contains("  records    2\n  paragraphs 8\n  kept       3\n"), "{text}");
        assert!(text.contains("  dropped    5 (62.50 %)\n"), "{text}");
        summary["spec"]["granularity"] = json!("line");
        summary["records"] = json!(10);
        let text = table(&summary);
        assert!(text.contains("  records    10\n  kept       3\n"), "{text}");
        assert!(text.contains("  dropped    5 (50.00 %)\n"), "{text}");
    }

    #[test]
    fn a_filter_of_a_cluster_is_named_and_no_wrong_drop_is_none() {
        let mut summary = json!({
            "records": 2, "level": "approximate", "dropped": { "reference": 1 },
            "references": { "online": [{ "filter": "seen" }], "expected_wrong_drops": 0.0 },
        });
        let text = table(&summary);
        assert!(text.contains("  known      1 dropped for references, none wrongly"), "{text}");
        assert!(text.contains("  equal by   their hashes, and what the filters answer"), "{text}");
        summary["references"] = json!({ "online": [], "expected_wrong_drops": 1e-9 });
        let text = table(&summary);
        assert!(text.contains(" 1.0e-9 wrongly") && text.contains("some bits of"), "{text}");
    }

    #[test]
    fn nothing_is_no_record_a_second() {
        let text = table(&json!({ "records": 0, "run": { "wall_s": 0.002 } }));
        assert!(text.contains("  dropped    0 (0.00 %)\n"), "{text}");
        assert!(text.contains(", 0 records/s\n"), "{text}");
    }

    #[test]
    fn bad_records_are_told_by_cause() {
        let bad = json!({ "total": 3, "by_cause": { "invalid_json": 1, "missing_key": 2 } });
        assert_eq!(left_out(&bad), "3 bad records: 1 invalid_json, 2 missing_key");
        let bad = json!({ "total": 1, "by_cause": { "io": 1 } });
        assert_eq!(left_out(&bad), "1 bad record: 1 io");
    }
}
