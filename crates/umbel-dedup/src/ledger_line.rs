//! The summary of a job for the ledger of a cluster, shortened to its limit.

use crate::error::{Context, Result};
use serde_json::{Value, json};
use umbel_engine::limits::JOB_SUMMARY_BYTES_MAX;

/// Most characters of a name in a shortened summary, as many as pages show. Both ends are kept, because they
/// tell files apart.
const NAME_CHARS_MAX: usize = 120;

/// Most inputs in a shortened summary.
const INPUTS_MAX: usize = 32;

/// Most keys, references and filters each in a summary that would not fit otherwise.
const LIST_MAX: usize = 4;

/// A summary as JSON in one line. If it is too long for the ledger, first the middles of long names are
/// removed, then most of the inputs, then the sections about files, then most keys and references. If it is still too
/// long, it is returned as it is; the ledger rejects it.
///
/// # Errors
///
/// If it cannot be written as JSON.
pub(crate) fn ledger_line(mut summary: Value) -> Result<Vec<u8>> {
    let steps: [fn(&mut Value); 4] =
        [shorten_names, shorten_inputs, leave_files_out, shorten_references];
    let line = |summary: &Value| serde_json::to_vec(summary).context("summary");
    let mut bytes = line(&summary)?;
    for step in steps {
        if bytes.len() <= JOB_SUMMARY_BYTES_MAX {
            break;
        }
        step(&mut summary);
        bytes = line(&summary)?;
    }
    Ok(bytes)
}

/// Shortens all names of files, inputs, filters and fields. The name in a row is its field of this name.
fn shorten_names(summary: &mut Value) {
    let lists = [
        ("/files/named", "file"),
        ("/most_repeated", "file"),
        ("/overlap/names", ""),
        ("/spec/inputs", ""),
        ("/spec/key", ""),
        ("/references/files", "file"),
        ("/references/online", "filter"),
    ];
    for (list, field) in lists {
        let rows = summary.pointer_mut(list).and_then(Value::as_array_mut);
        for row in rows.into_iter().flatten() {
            shorten_name(if row.is_object() { &mut row[field] } else { row });
        }
    }
    if let Some(output) = summary.pointer_mut("/spec/output") {
        shorten_name(output);
    }
}

fn shorten_name(name: &mut Value) {
    if let Value::String(name) = name {
        *name = shortened(name);
    }
}

/// A name without its middle, if it is long.
fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= NAME_CHARS_MAX {
        return name.to_owned();
    }
    let head = (NAME_CHARS_MAX - 1) / 3;
    let tail = NAME_CHARS_MAX - 1 - head;
    name.chars().take(head).chain(['…']).chain(name.chars().skip(count - tail)).collect()
}

fn shorten_inputs(summary: &mut Value) {
    shorten_list(summary, "/spec/inputs", INPUTS_MAX, Value::String);
}

/// A job may have thousands of them, each with a long name.
fn shorten_references(summary: &mut Value) {
    shorten_list(summary, "/spec/key", LIST_MAX, Value::String);
    shorten_list(summary, "/references/files", LIST_MAX, |more| json!({ "file": more }));
    shorten_list(summary, "/references/online", LIST_MAX, |more| json!({ "filter": more }));
}

/// Leaves so many rows of a list, and one, as `last` makes it, that says how many more there were.
fn shorten_list(summary: &mut Value, list: &str, count_max: usize, last: fn(String) -> Value) {
    if let Some(Value::Array(rows)) = summary.pointer_mut(list)
        && rows.len() > count_max
    {
        let more = rows.len() - count_max;
        rows.truncate(count_max);
        rows.push(last(format!("and {more} more")));
    }
}

fn leave_files_out(summary: &mut Value) {
    for section in ["files", "overlap", "most_repeated"] {
        summary[section] = Value::Null;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A summary of a job of so many inputs, whose files have names of this length.
    fn summary(inputs: usize, name_length: usize) -> Value {
        let name = |at: usize| format!("{at}{}", "\u{202e}x".repeat(name_length / 2));
        let file = |at: usize| json!({ "worker": 0, "file": name(at), "items": u64::MAX });
        json!({
            "records": 7,
            "spec": { "inputs": (0..inputs).map(name).collect::<Vec<_>>() },
            "files": { "count": 50, "named": (0..50).map(file).collect::<Vec<_>>() },
            "overlap": { "names": (0..24).map(name).collect::<Vec<_>>() },
            "most_repeated": (0..20).map(file).collect::<Vec<_>>(),
        })
    }

    fn kept(inputs: usize, name_length: usize) -> Value {
        let line = ledger_line(summary(inputs, name_length)).unwrap();
        assert!(line.len() <= JOB_SUMMARY_BYTES_MAX, "{} bytes", line.len());
        serde_json::from_slice(&line).unwrap()
    }

    #[test]
    fn a_short_summary_is_kept_as_it_is() {
        assert_eq!(kept(3, 100), summary(3, 100));
    }

    #[test]
    fn long_names_lose_their_middles_and_inputs_their_number() {
        let line_json = kept(3, 4000);
        let name = line_json["files"]["named"][7]["file"].as_str().unwrap();
        assert_eq!(name.chars().count(), NAME_CHARS_MAX);
        assert!(name.starts_with('7') && name.contains('…') && name.ends_with('x'), "{name}");
        let line_json = kept(2000, 300);
        let inputs = line_json["spec"]["inputs"].as_array().unwrap();
        assert_eq!((inputs.len(), &inputs[INPUTS_MAX]), (INPUTS_MAX + 1, &json!("and 1968 more")));
        assert_eq!(line_json["overlap"]["names"].as_array().unwrap().len(), 24);
    }

    #[test]
    fn of_many_references_and_keys_a_few_are_kept() {
        let mut large = summary(3, 10);
        let name = |at: usize| format!("{at}{}", "x".repeat(200));
        let files = (0..1024).map(|at| json!({ "file": name(at), "items": 1 }));
        let filters = (0..1024).map(|at| json!({ "filter": name(at), "asked": 1 }));
        large["references"] = json!({
            "files": files.collect::<Vec<_>>(), "online": filters.collect::<Vec<_>>(),
        });
        large["spec"]["key"] = json!((0..1024).map(name).collect::<Vec<_>>());
        let line = ledger_line(large).unwrap();
        assert!(line.len() <= JOB_SUMMARY_BYTES_MAX, "{} bytes", line.len());
        let line_json: Value = serde_json::from_slice(&line).unwrap();
        let more = "and 1020 more";
        let last =
            |list: &str| line_json.pointer(list).unwrap().as_array().unwrap()[LIST_MAX].clone();
        assert_eq!(last("/references/files"), json!({ "file": more }));
        assert_eq!(last("/references/online"), json!({ "filter": more }));
        assert_eq!((last("/spec/key"), &line_json["records"]), (json!(more), &json!(7)));
    }

    #[test]
    fn what_would_not_fit_at_all_is_left_out_before_the_figures_are() {
        let mut large = summary(3, 10);
        large["overlap"]["dropped"] = json!(vec![vec![u64::MAX; 60]; 60]);
        let line = ledger_line(large).unwrap();
        let line_json: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((&line_json["records"], &line_json["files"]), (&json!(7), &Value::Null));
    }
}
