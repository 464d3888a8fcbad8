//! The repeats of a finished job: in which files they were, which files or directories they repeat, and
//! how often the same record occurred. The source are the fields of the summary that `umbel dedup
//! --report` draws for one process.

use crate::console::json::{self, Value};

/// Files, groups and classes that are shown at most: a summary names fewer.
const ROWS_MAX: usize = 64;

/// Rows of a matrix that are shown at most: a summary has 24 and one for all others.
const UNITS_MAX: usize = 32;

/// Longest name that is shown.
const NAME_CHARS_MAX: usize = 120;

/// The repeats from a summary as `umbel dedup --summary` writes it. What the job did not count is null.
pub(super) fn repeats(summary: &Value) -> Value {
    let at = |path: &str| summary.pointer(path).unwrap_or(&Value::Null);
    json::object([
        ("files", files(at("/files"))),
        ("overlap", overlap(at("/overlap"))),
        ("classes", rows(at("/groups/histogram"), class)),
        ("examples", rows(at("/most_repeated"), example)),
    ])
}

/// The rows of a list; null if `list` is none.
fn rows(list: &Value, row: fn(&Value) -> Value) -> Value {
    match list.as_array() {
        Some(list) => json::list(list.iter().take(ROWS_MAX).map(row)),
        None => Value::Null,
    }
}

fn number(of: &Value, path: &str) -> Value {
    of.pointer(path).and_then(Value::as_u64).into()
}

fn name(text: &Value) -> Value {
    let text = text.as_str().unwrap_or_default();
    text.chars().take(NAME_CHARS_MAX).collect::<String>().into()
}

/// The counts of a file, or of several together.
fn counts(of: &Value) -> [(&'static str, Value); 3] {
    [
        ("items", number(of, "/items")),
        ("within", number(of, "/repeats_within")),
        ("of_others", number(of, "/repeats_of_others")),
    ]
}

fn files(files: &Value) -> Value {
    let Some(count) = files.pointer("/count").and_then(Value::as_u64) else { return Value::Null };
    let file = |file: &Value| {
        let [items, within, of_others] = counts(file);
        let name = ("name", name(&file["file"]));
        json::object([name, ("worker", number(file, "/worker")), items, within, of_others])
    };
    json::object([
        ("count", count.into()),
        ("rows", rows(&files["named"], file)),
        ("others", json::object(counts(&files["others"]["counts"]))),
        ("all", json::object(counts(&files["all"]))),
    ])
}

/// The matrix, if it is valid: as many columns as rows, and a name for each row but that of all others.
fn overlap(overlap: &Value) -> Value {
    let list = |of: &Value| of.as_array().filter(|list| list.len() <= UNITS_MAX).cloned();
    let counted = || -> Option<(Vec<Value>, Vec<Vec<u64>>)> {
        let row = |row: &Value| list(row)?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
        let dropped = list(&overlap["dropped"])?.iter().map(row).collect::<Option<Vec<_>>>()?;
        let names = list(&overlap["names"])?;
        let has_others = number(overlap, "/others").as_u64()? > 0;
        let side = names.len() + usize::from(has_others);
        let is_square = dropped.len() == side && dropped.iter().all(|row| row.len() == side);
        is_square.then_some((names, dropped))
    };
    let Some((names, dropped)) = counted() else { return Value::Null };
    let unit = |(at, text): (usize, &Value)| {
        let worker = overlap.pointer(&format!("/workers/{at}")).and_then(Value::as_u64);
        json::object([("name", name(text)), ("worker", worker.into())])
    };
    json::object([
        ("by", name(&overlap["by"])),
        ("units", json::list(names.iter().enumerate().map(unit))),
        ("others", number(overlap, "/others")),
        ("dropped", json::list(dropped.into_iter().map(json::list))),
    ])
}

fn class(class: &Value) -> Value {
    let fields = ["/size_min", "/size_max", "/groups", "/records"];
    json::list(fields.map(|field| number(class, field)))
}

fn example(group: &Value) -> Value {
    json::object([
        ("name", name(&group["file"])),
        ("worker", number(group, "/worker")),
        ("record", number(group, "/record")),
        ("part", number(group, "/part")),
        ("size", number(group, "/size")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn summary() -> Value {
        json!({
            "files": {
                "count": 2,
                "named": [{ "worker": 1, "file": "b<", "items": 9, "repeats_within": 2, "repeats_of_others": 3 }],
                "others": { "count": 1, "counts": { "items": 4 } },
                "all": { "items": 13, "repeats_within": 2, "repeats_of_others": 3 },
            },
            "overlap": {
                "by": "file", "names": ["a", "b<"], "workers": [0, 1], "others": 0, "dropped": [[0, 0], [3, 2]],
            },
            "groups": { "histogram": [{ "size_min": 2, "size_max": 3, "groups": 4, "records": 9 }] },
            "most_repeated": [{ "worker": 0, "file": "a", "record": 7, "size": 3 }],
        })
    }

    #[test]
    fn counts_are_shown() {
        let shown = repeats(&summary());
        let row = json!({ "name": "b<", "worker": 1, "items": 9, "within": 2, "of_others": 3 });
        assert_eq!(
            (&shown["files"]["rows"][0], &shown["files"]["others"]["items"]),
            (&row, &json!(4))
        );
        assert_eq!(shown["overlap"]["units"][1], json!({ "name": "b<", "worker": 1 }));
        assert_eq!(shown["overlap"]["dropped"], json!([[0, 0], [3, 2]]));
        assert_eq!(shown["classes"], json!([[2, 3, 4, 9]]));
        let example = json!({ "name": "a", "worker": 0, "record": 7, "part": null, "size": 3 });
        assert_eq!(shown["examples"], json!([example]));
    }

    #[test]
    fn what_was_not_counted_or_cannot_be_is_null() {
        let none = json!({ "files": null, "overlap": null, "classes": null, "examples": null });
        assert_eq!(repeats(&json!({ "files": [], "overlap": 3, "groups": null })), none);
        let strange = [
            ("dropped", json!([[0, 0]])),
            ("dropped", json!([[0, 0], [1]])),
            ("dropped", json!([[0, 0], [1, "x"]])),
            ("dropped", json!(vec![vec![1; 40]; 40])),
            ("others", json!(-1)),
            ("others", json!(2)),
            ("names", json!("ab")),
        ];
        for (field, value) in strange {
            let mut summary = summary();
            summary["overlap"][field] = value.clone();
            assert_eq!(repeats(&summary)["overlap"], Value::Null, "{field} {value}");
        }
    }

    #[test]
    fn names_and_lists_are_cut() {
        let mut summary = summary();
        summary["files"]["named"] = vec![json!({ "file": "x".repeat(4000) }); 1000].into();
        let rows = repeats(&summary)["files"]["rows"].as_array().unwrap().clone();
        let length = rows[0]["name"].as_str().unwrap().len();
        assert_eq!((rows.len(), length), (ROWS_MAX, NAME_CHARS_MAX));
    }
}
