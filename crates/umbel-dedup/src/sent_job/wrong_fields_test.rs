//! Tests of wrong fields in the message of a job.

use super::sent_job_test::plain;
use super::*;

/// A change of a message, and the error that names the field.
type Wrong = (fn(&mut proto::DedupSpec), &'static str);

const WRONG: &[Wrong] = &[
    (|m| m.inputs.clear(), "inputs: expected at least one, or own_inputs, got none"),
    (
        |m| m.own_inputs = vec![proto::DedupOwnInput { node: 3, input: String::new() }],
        "own_inputs: expected an input for each node, got none for 3",
    ),
    (|m| m.inputs = vec!["a".into()], "inputs: expected absolute paths of files, got \"a\""),
    (|m| m.inputs.push("-".into()), "inputs: expected absolute paths of files, got \"-\""),
    (
        |m| m.inputs = vec!["s3://b/k".into()],
        "inputs: expected absolute paths of files, got \"s3://b/k\"",
    ),
    (
        |m| m.inputs = vec![format!("/{}", "a".repeat(5000))],
        "inputs: expected paths of at most 4095 bytes, got 5001 bytes",
    ),
    (
        |m| m.own_inputs = vec![proto::DedupOwnInput { node: 3, input: "a".into() }],
        "own_inputs: expected absolute paths of files, got \"a\"",
    ),
    (|m| m.inputs = vec!["/a".into(); 16_385], "inputs: expected at most 16384, got 16385"),
    (
        |m| m.own_inputs = vec![proto::DedupOwnInput::default(); 16_385],
        "own_inputs: expected at most 16384, got 16385",
    ),
    (|m| m.include = vec!["a".into(); 1025], "include: expected at most 1024, got 1025"),
    (|m| m.exclude = vec!["a".into(); 1025], "exclude: expected at most 1024, got 1025"),
    (
        |m| (m.granularity, m.keys) = (2, vec!["a".into(); 1025]),
        "keys: expected at most 1024, got 1025",
    ),
    (|m| m.normalise = vec![1; 65], "normalise: expected at most 64, got 65"),
    (|m| m.references = vec!["/a".into(); 1025], "references: expected at most 1024, got 1025"),
    (
        |m| m.reference_filters = vec!["a".into(); 1025],
        "reference_filters: expected at most 1024, got 1025",
    ),
    (
        |m| (m.exactness, m.reference_filters) = (3, vec!["f".into()]),
        "reference_filters: expected none with BYTES, as they hold no items, got a value",
    ),
    (
        |m| (m.granularity, m.add_to) = (5, Some("f".into())),
        "granularity: expected not FILE with filters, whose items are no whole files, got FILE",
    ),
    (
        |m| (m.scope, m.references) = (2, vec!["/i".into()]),
        "scope: expected GLOBAL with references, filters and save_index, got dir",
    ),
    (
        |m| (m.scope, m.add_to) = (3, Some("f".into())),
        "scope: expected GLOBAL with references, filters and save_index, got file",
    ),
    (|m| m.include = vec!["/a".into()], "include: expected a pattern ("),
    (|m| m.exclude = vec!["[".repeat(5000)], "exclude: expected a pattern ("),
    (
        |m| m.format = 7,
        "format: expected none, TEXT, ZERO_TERMINATED, JSONL, CSV, TSV or PARQUET, got 7",
    ),
    (|m| m.delimiter = Some(200), "delimiter: expected a byte of ASCII"),
    (|m| m.delimiter = Some(10), "delimiter: expected a byte of ASCII"),
    (|m| m.delimiter = Some(u32::MAX), "delimiter: expected a byte of ASCII"),
    (
        |m| (m.format, m.delimiter) = (1, Some(59)),
        "delimiter: expected none, or a table as the format",
    ),
    (
        |m| (m.format, m.delimiter) = (5, Some(59)),
        "delimiter: expected none, or a table as the format",
    ),
    (|m| (m.format, m.is_headless) = (3, true), "is_headless: expected false, or a table"),
    (|m| m.binary = 0, "binary: expected REFUSE, SKIP, COPY or TEXT, got 0"),
    (
        |m| (m.binary, m.output) = (3, Some("/none/file".into())),
        "binary: expected COPY only with an output that ends in a slash, got COPY",
    ),
    (|m| m.granularity = 0, "granularity: expected LINE, KEY, RECORD, PARAGRAPH or FILE, got 0"),
    (|m| m.granularity = -1, "granularity: expected LINE, KEY, RECORD, PARAGRAPH or FILE, got -1"),
    (|m| m.granularity = 2, "keys: expected at least one with KEY, got 0"),
    (|m| m.granularity = 4, "keys: expected one with PARAGRAPH, got 0"),
    (
        |m| (m.granularity, m.keys) = (4, vec!["a".into(), "b".into()]),
        "keys: expected one with PARAGRAPH, got 2",
    ),
    (|m| m.keys = vec!["a".into()], "keys: expected none without KEY and PARAGRAPH, got 1"),
    (
        |m| (m.granularity, m.keys, m.format) = (2, vec!["a".into()], 2),
        "format: expected one with fields, as keys are given, got ZERO_TERMINATED",
    ),
    (
        |m| m.normalise = vec![1, 9],
        "normalise: expected TRIM, LOWER, NFC, NFKC, SQUEEZE, CRLF, PUNCT or URL, got 9",
    ),
    (|m| m.scope = 4, "scope: expected GLOBAL, DIRECTORY or FILE, got 4"),
    (|m| m.missing_key = 0, "missing_key: expected FAIL, KEEP or DROP, got 0"),
    (|m| m.missing_key = 2, "missing_key: expected FAIL without keys"),
    (|m| m.empty = 3, "empty: expected COMPARE or KEEP, got 3"),
    (|m| m.paragraph_bytes_min = 1, "paragraph_bytes_min: expected 0 without PARAGRAPH"),
    (|m| m.exactness = 9, "exactness: expected APPROXIMATE, FINGERPRINT or BYTES, got 9"),
    (|m| m.exactness = 1, "false_positive_rate: expected a rate above 0 and below 1, got 0"),
    (
        |m| (m.exactness, m.false_positive_rate) = (1, f64::NAN),
        "false_positive_rate: expected a rate above 0 and below 1, got NaN",
    ),
    (
        |m| m.false_positive_rate = 0.1,
        "false_positive_rate: expected none without APPROXIMATE, got 0.1",
    ),
    (
        |m| (m.exactness, m.references) = (3, vec!["/i".into()]),
        "references: expected none with BYTES, as they hold only hashes, got a value",
    ),
    (|m| m.keep = 0, "keep: expected FIRST, LAST or BEST, got 0"),
    (|m| m.keep = 3, "best: expected a field exactly with BEST, got none"),
    (
        |m| m.best = Some(proto::DedupBest { field: "x".into(), is_smallest: false }),
        "best: expected a field exactly with BEST, got one",
    ),
    (
        |m| (m.keep, m.best) = (3, Some(proto::DedupBest::default())),
        "best.field: expected a field or column, got none",
    ),
    (
        |m| (m.annotates, m.reference_filters) = (true, vec!["f".into()]),
        "annotates: expected false with references",
    ),
    (|m| m.bad = Some("/b".into()), "bad: expected none without skip_bad"),
    (|m| m.reference_filters = vec![String::new()], "reference_filters: expected a name, got none"),
    (|m| m.add_to = Some(String::new()), "add_to: expected a name, got none"),
    (
        |m| m.save_index = Some(proto::DedupSaveIndex { path: "/i".into(), bits: Some(65) }),
        "save_index.bits: expected 64, 96 or 128, got 65",
    ),
    (|m| m.filter = 4, "filter: expected AUTO, SINGLE_SHOT or WIDE, got 4"),
];

#[test]
fn a_wrong_field_is_named_with_what_was_expected() {
    for (change, expected) in WRONG {
        let mut message = plain().message().unwrap();
        change(&mut message);
        let error = SentJob::decode(&message.encode_to_vec()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{expected}: {error}");
        assert!(error.len() < 400, "{} bytes: {error}", error.len());
    }
}
