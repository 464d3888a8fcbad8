//! The outcome of a finished job: the numbers of its summary that the page draws.

use crate::console::json::{self, Value};

/// Phases that are shown at most: a job has six.
const PHASES_MAX: usize = 16;

/// Longest name of a phase.
const NAME_CHARS_MAX: usize = 40;

/// The largest summary that is parsed, in bytes: the ledger keeps no longer one.
const SUMMARY_BYTES_MAX: usize = umbel_engine::limits::JOB_SUMMARY_BYTES_MAX;

/// The outcome from a summary as `umbel dedup --summary` writes it; null if it is none. Fields that a
/// release does not report are null.
pub(super) fn outcome(summary: &[u8]) -> Value {
    let Some(summary) = summary_of(summary) else { return Value::Null };
    let number = |path: &str| summary.pointer(path).and_then(Value::as_f64).into();
    let text = |path: &str| {
        let text = summary.pointer(path).and_then(Value::as_str);
        text.map(|text| text.chars().take(NAME_CHARS_MAX).collect::<String>()).into()
    };
    json::object([
        ("level", text("/level")),
        ("records", number("/records")),
        ("kept", number("/distinct")),
        ("exempt", number("/exempt")),
        ("dropped_input", number("/dropped/input")),
        ("dropped_reference", number("/dropped/reference")),
        ("dropped_missing_key", number("/dropped/missing_key")),
        ("bad", number("/bad/total")),
        ("group_count", number("/groups/count")),
        ("group_largest", number("/groups/largest")),
        ("network_bytes", number("/exchange/network_bytes")),
        ("self_bytes", number("/exchange/self_bytes")),
        ("wall_s", number("/run/wall_s")),
        ("phases", phases(summary.pointer("/run/phase_wall_s"))),
        ("bits_per_item", phases(summary.pointer("/exchange/bits_per_item"))),
    ])
}

/// Parses a summary; `None` if it is none.
pub(super) fn summary_of(bytes: &[u8]) -> Option<Value> {
    let is_read = bytes.len() <= SUMMARY_BYTES_MAX;
    let summary: Option<Value> = is_read.then(|| serde_json::from_slice(bytes).ok()).flatten();
    summary.filter(Value::is_object)
}

/// Numbers by name, as `[name, number]`, in the order of the summary.
fn phases(shown: Option<&Value>) -> Value {
    let Some(Value::Object(shown)) = shown else { return json::list::<Value>([]) };
    let numbers = shown.iter().filter_map(|(name, number)| Some((name, number.as_f64()?)));
    json::list(numbers.take(PHASES_MAX).map(|(name, number)| {
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        Value::Array(vec![name.into(), number.into()])
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_shown_by_its_numbers() {
        let summary = br#"{"level":"fingerprint","records":10,"distinct":7,
            "dropped":{"input":3,"reference":0,"missing_key":0},"groups":null,
            "run":{"wall_s":1.5,"phase_wall_s":{"open":0.5,"exchange":1}}}"#;
        let shown = outcome(summary);
        assert_eq!((&shown["records"], &shown["kept"]), (&10.0.into(), &7.0.into()));
        assert_eq!((&shown["dropped_input"], &shown["group_count"]), (&3.0.into(), &Value::Null));
        let phases = shown["phases"].as_array().unwrap();
        assert!(phases.contains(&Value::Array(vec!["open".into(), 0.5.into()])), "{shown}");
    }

    #[test]
    fn a_text_that_is_no_summary_shows_nulls() {
        for none in [&b""[..], b"[1]", b"{", b"null", &[b' '; SUMMARY_BYTES_MAX + 1]] {
            assert_eq!(outcome(none), Value::Null);
        }
        let strange = br#"{"records":"<b>","run":{"phase_wall_s":[1]},"dropped":3}"#;
        let shown = outcome(strange);
        assert_eq!((&shown["records"], &shown["phases"]), (&Value::Null, &json::list::<Value>([])));
        let many = format!("{{\"run\":{{\"phase_wall_s\":{{{}}}}}}}", {
            let names: Vec<String> = (0..100).map(|at| format!("\"{at}\":1")).collect();
            names.join(",")
        });
        assert_eq!(outcome(many.as_bytes())["phases"].as_array().unwrap().len(), PHASES_MAX);
    }
}
