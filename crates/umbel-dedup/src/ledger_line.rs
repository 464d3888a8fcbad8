//! The summary of a job for the ledger of a cluster, shortened to its limit.

use crate::error::{Context, Result};
use serde_json::Value;
use umbel_engine::limits::JOB_SUMMARY_BYTES_MAX;

/// Most characters of a name in a shortened summary, as many as pages show. Both ends are kept, because they
/// tell files apart.
const NAME_CHARS_MAX: usize = 120;

/// Most inputs in a shortened summary.
const INPUTS_MAX: usize = 32;

/// A summary as JSON in one line. If it is too long for the ledger, first the middles of long names are
/// removed, then most of the inputs, then the sections about files. If it is still too long, it is returned
/// as it is; the ledger rejects it.
///
/// # Errors
///
/// If it cannot be written as JSON.
pub(crate) fn ledger_line(mut summary: Value) -> Result<Vec<u8>> {
    let steps: [fn(&mut Value); 3] = [shorten_names, shorten_inputs, leave_files_out];
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

/// Shortens all names of files and inputs.
fn shorten_names(summary: &mut Value) {
    let lists = ["/files/named", "/most_repeated", "/overlap/names", "/spec/inputs"];
    for list in lists {
        let rows = summary.pointer_mut(list).and_then(Value::as_array_mut);
        for row in rows.into_iter().flatten() {
            let name = if row.is_object() { &mut row["file"] } else { row };
            if let Value::String(name) = name {
                *name = shortened(name);
            }
        }
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
    if let Some(Value::Array(inputs)) = summary.pointer_mut("/spec/inputs")
        && inputs.len() > INPUTS_MAX
    {
        let more = inputs.len() - INPUTS_MAX;
        inputs.truncate(INPUTS_MAX);
        inputs.push(format!("and {more} more").into());
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
    use serde_json::json;

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
    fn what_would_not_fit_at_all_is_left_out_before_the_figures_are() {
        let mut large = summary(3, 10);
        large["overlap"]["dropped"] = json!(vec![vec![u64::MAX; 60]; 60]);
        let line = ledger_line(large).unwrap();
        let line_json: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((&line_json["records"], &line_json["files"]), (&json!(7), &Value::Null));
    }
}
