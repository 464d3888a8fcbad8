//! Parquet with the rules of JSON Lines: normalisers, the best of equal rows, paragraphs; in one process
//! and on many machines.

use crate::machines::{TOKEN, peers};
use crate::model::Draws;
use crate::sandbox::Sandbox;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;

/// A row: id, key, rank, and a text of some pieces.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    id: i64,
    key: String,
    at: Option<i64>,
    text: Option<String>,
}

/// A file of these rows, with this type of `at`, and this many rows per row group.
fn table(at_type: &str, rows: &[Row], group_rows: usize) -> Vec<u8> {
    let schema = format!(
        "message rows {{ required int64 id; required binary key (STRING); optional int64 at {at_type}; \
         optional binary text (STRING); }}"
    );
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let packing = Compression::ZSTD(ZstdLevel::default());
    let properties = Arc::new(WriterProperties::builder().set_compression(packing).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    for rows in rows.chunks(group_rows) {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let keys: Vec<ByteArray> = rows.iter().map(|row| row.key.as_str().into()).collect();
        column.typed::<ByteArrayType>().write_batch(&keys, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.at.is_some())).collect();
        let numbers: Vec<i64> = rows.iter().filter_map(|row| row.at).collect();
        column.typed::<Int64Type>().write_batch(&numbers, Some(&levels), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.text.is_some())).collect();
        let texts: Vec<ByteArray> =
            rows.iter().filter_map(|row| Some(row.text.as_deref()?.into())).collect();
        column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

fn reader(bytes: Vec<u8>) -> SerializedFileReader<bytes::Bytes> {
    SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap()
}

/// The rows of a file with an integer `at`.
fn rows_of(bytes: Vec<u8>) -> Vec<Row> {
    let row = |row: parquet::record::Row| {
        let fields: Vec<Field> = row.get_column_iter().map(|(_, field)| field.clone()).collect();
        let [Field::Long(id), Field::Str(key), at, text] = &fields[..] else { unreachable!() };
        let at = if let Field::Long(at) = at { Some(*at) } else { None };
        let text = if let Field::Str(text) = text { Some(text.clone()) } else { None };
        Row { id: *id, key: key.clone(), at, text }
    };
    reader(bytes).get_row_iter(None).unwrap().map(|read| row(read.unwrap())).collect()
}

/// The ids of a file's rows.
fn ids(bytes: Vec<u8>) -> Vec<i64> {
    use parquet::record::RowAccessor;
    let reader = reader(bytes);
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().get_long(0).unwrap()).collect()
}

/// Rows with few keys, ranks that are sometimes equal or missing, and texts of some pieces.
fn rows(seed: u64, count: i64) -> Vec<Row> {
    let mut draws = Draws(seed);
    let mut row = |id| {
        let spaces = " ".repeat(usize::try_from(draws.below(2)).unwrap());
        let case = ["key", "Key"][usize::try_from(draws.below(2)).unwrap()];
        let key = format!("{spaces}{case} {}", draws.below(60));
        let number = i64::try_from(draws.below(40)).unwrap() - 20;
        let at = (draws.below(7) > 0).then_some(number * 1_700_000_000_000_000 / 20);
        let lines: Vec<String> =
            (0..draws.below(5)).map(|_| format!("piece {}", draws.below(500))).collect();
        Row { id, key, at, text: Some(lines.join("\n")) }
    };
    (0..count).map(&mut row).collect()
}

/// The same rows as JSON Lines, with `at` as the value by which it ranks.
fn json_lines(rows: &[Row], at: impl Fn(i64) -> Value) -> String {
    rows.iter().fold(String::new(), |mut text, row| {
        let at = row.at.map_or(Value::Null, &at);
        let line = json!({"id": row.id, "key": row.key, "at": at, "text": row.text});
        writeln!(text, "{line}").unwrap();
        text
    })
}

fn json_rows(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

/// The report of dropped rows, without names of files.
fn report(sandbox: &Sandbox) -> Vec<Value> {
    let mut lines: Vec<Value> = json_rows(&sandbox.text("d.jsonl")).collect();
    for line in &mut lines {
        line["file"] = Value::Null;
        line["kept_file"] = Value::Null;
    }
    lines
}

/// Ways to divide the work.
const WAYS: [&str; 4] = [
    "--workers 1",
    "--workers 3",
    "--workers 3 --exactness bytes",
    "--workers 2 --exactness approximate --false-positive-rate 1e-9",
];

/// Asserts that the kept rows and the report equal those of the same rows as JSON Lines.
fn assert_as_json(at_type: &str, at: impl Fn(i64) -> Value, options: &str) {
    let rows = rows(3, 700);
    let sandbox = Sandbox::with(&[
        ("a.parquet", table(at_type, &rows, 90)),
        ("a.jsonl", json_lines(&rows, at).into_bytes()),
    ]);
    for way in WAYS {
        let args = format!("{options} {way} --seed 5 --duplicates d.jsonl --overwrite");
        let expected = sandbox.run(&format!("a.jsonl {args}")).kept_text();
        let expected: Vec<i64> =
            json_rows(&expected).map(|row| row["id"].as_i64().unwrap()).collect();
        let expected_report = report(&sandbox);
        assert!(expected.len() > 40 && expected.len() < rows.len(), "{}", expected.len());
        sandbox.run(&format!("a.parquet {args} -o out/")).kept();
        assert_eq!(ids(sandbox.read("out/a.parquet")), expected, "{args}");
        assert_eq!(report(&sandbox), expected_report, "{args}");
    }
}

#[test]
fn normalised_keys_are_those_of_the_same_json_lines() {
    assert_as_json("", Value::from, "--key key --normalise trim,lower");
    assert_as_json("", Value::from, "--key at --key key --normalise trim --keep last");
}

#[test]
fn normalised_rows_are_written_as_they_were() {
    let row = |id, key: &str| Row { id, key: key.to_owned(), at: None, text: Some("X ".into()) };
    let all = [row(1, " A"), row(1, "a"), row(2, "A")];
    let sandbox = Sandbox::with(&[("a.parquet", table("", &all, 10))]);
    sandbox.run("a.parquet -o out/ --normalise trim,lower").kept();
    assert_eq!(rows_of(sandbox.read("out/a.parquet")), [all[0].clone(), all[2].clone()]);
}

#[test]
fn the_best_row_by_an_integer_is_that_of_the_same_json_lines() {
    assert_as_json("", Value::from, "--key key --keep best:at");
    assert_as_json("", Value::from, "--key key --keep best:at:min --normalise lower");
}

#[test]
fn the_best_row_by_a_decimal_is_that_of_the_same_json_lines() {
    let at = |at: i64| serde_json::from_str(&format!("{at}e-15")).unwrap();
    assert_as_json("(DECIMAL(18,15))", at, "--key key --keep best:at");
}

#[test]
fn the_newest_row_is_the_one_with_most_nanoseconds() {
    let at = |at: i64| (at * 1000).into();
    assert_as_json("(TIMESTAMP(MICROS,true))", at, "--key key --keep best:at");
    assert_as_json("(TIMESTAMP(MICROS,false))", at, "--key key --keep best:at:min");
}

#[test]
fn moments_of_any_unit_compare_with_each_other() {
    let row = |id, at| Row { id, key: "k".into(), at: Some(at), text: None };
    let sandbox = Sandbox::with(&[
        ("a.parquet", table("(TIMESTAMP(MILLIS,true))", &[row(1, 1_700_000_000_001)], 9)),
        ("b.parquet", table("(TIMESTAMP(NANOS,true))", &[row(2, 1_700_000_000_001_000_001)], 9)),
        ("c.parquet", table("(TIMESTAMP(MICROS,true))", &[row(3, 1_700_000_000_001_000)], 9)),
    ]);
    for (rule, kept) in [("best:at", [0, 1, 0]), ("best:at:min", [1, 0, 0])] {
        let args = format!("a.parquet b.parquet c.parquet --key key --keep {rule}");
        sandbox.run(&format!("{args} -o out/ --overwrite")).kept();
        let counts = ["a", "b", "c"].map(|name| ids(sandbox.read(format!("out/{name}.parquet"))));
        assert_eq!(counts.map(|ids| ids.len()), kept, "{rule}");
    }
}

#[test]
fn what_cannot_rank_is_refused_before_it_is_read() {
    let mut torn = table("", &rows(1, 20), 5);
    torn[4..40].fill(0xff); // Whoever reads a page of it fails.
    let sandbox = Sandbox::with(&[
        ("a.parquet", &torn[..]),
        ("b.parquet", &table("(TIMESTAMP(MICROS,true))", &[], 5)),
        ("c.jsonl", b"{}\n"),
    ]);
    let refused = |args: &str, said: &[&str]| sandbox.run(args).refused(2, said);
    let said = ["a.parquet: --keep best:text: column `text` is string or bytes", "no number"];
    refused("a.parquet --key key --keep best:text -o out/", &said);
    let said = ["a.parquet: --keep best:score: no column `score`", "id, key, at, text"];
    refused("a.parquet --key key --keep best:score -o out/", &said);
    refused("a.parquet --key key --keep best:a..t -o out/", &["--keep best:a..t: ", "empty field"]);
    let said = ["cannot be compared: column `at` is integer there and timestamp (UTC) here"];
    refused("a.parquet b.parquet --key key --keep best:at -o out/", &said);
    let said = ["a.parquet: column `at` is integer; name one of strings"];
    refused("a.parquet --granularity paragraph --key at -o out/", &said);
    assert!(!sandbox.exists("out"));
}

/// A file of three row groups; the middle one is damaged in this column.
fn torn(column: usize) -> Vec<u8> {
    let mut bytes = table("", &rows(1, 30), 10);
    let place = reader(bytes.clone()).metadata().row_group(1).column(column).byte_range().0;
    bytes[usize::try_from(place).unwrap()] = 0xff;
    bytes
}

#[test]
fn damage_in_what_ranks_or_is_cut_is_named_or_left_out() {
    for (column, name, options) in
        [(2, "at", "--key id --keep best:at"), (3, "text", "--granularity paragraph --key text")]
    {
        let sandbox = Sandbox::with(&[("a.parquet", torn(column))]);
        let said = format!("row group 2, column `{name}` is damaged");
        let args = format!("a.parquet -o out/ {options}");
        sandbox.run(&args).refused(1, &["a.parquet: record 11", &said]);
        sandbox.run(&format!("{args} --skip-bad")).ended_with(3);
        let kept = ids(sandbox.read("out/a.parquet"));
        assert_eq!(kept, (0..10).chain(20..30).collect::<Vec<_>>());
    }
}

#[test]
fn paragraphs_are_those_of_the_same_json_lines() {
    let rows = rows(8, 700);
    let sandbox = Sandbox::with(&[
        ("a.parquet", table("", &rows, 90)),
        ("a.jsonl", json_lines(&rows, Value::from).into_bytes()),
    ]);
    for rules in [
        "--keep first",
        "--keep last --empty keep",
        "--keep best:at --paragraph-bytes-min 8",
        "--normalise punct,squeeze --keep best:at:min",
    ] {
        for way in WAYS {
            let args = format!(
                "--granularity paragraph --key text {rules} {way} --duplicates d.jsonl --overwrite --seed 1"
            );
            let expected = sandbox.run(&format!("a.jsonl {args}")).kept_text();
            let expected_report = report(&sandbox);
            sandbox.run(&format!("a.parquet {args} -o out/")).kept();
            let kept = rows_of(sandbox.read("out/a.parquet"));
            assert_eq!(json_lines(&kept, Value::from), expected, "{args}");
            assert_eq!(report(&sandbox), expected_report, "{args}");
        }
    }
}

#[test]
fn texts_that_are_null_or_empty_have_no_pieces_and_stay() {
    let texts = [None, Some(""), Some("a\n\na"), None, Some("a\nb"), Some(""), Some("a\n")];
    let left = [None, Some(""), Some("a\n\n"), None, Some("b"), Some(""), Some("")];
    let row = |(id, text): (i64, Option<&str>)| Row {
        id,
        key: "k".into(),
        at: None,
        text: text.map(str::to_owned),
    };
    let table_rows: Vec<Row> = (0..).zip(texts).map(row).collect();
    let sandbox = Sandbox::with(&[("a.parquet", table("", &table_rows, 3))]);
    for way in WAYS {
        let args = "a.parquet --granularity paragraph --key text -o out/ --overwrite";
        sandbox.run(&format!("{args} {way} --summary s.json")).kept();
        let expected: Vec<Row> = (0..).zip(left).map(row).collect();
        assert_eq!(rows_of(sandbox.read("out/a.parquet")), expected, "{way}");
        let summary: Value = serde_json::from_slice(&sandbox.read("s.json")).unwrap();
        assert_eq!((&summary["records"], &summary["items"]), (&json!(7), &json!(6)));
        assert_eq!((&summary["exempt"], &summary["dropped"]["input"]), (&json!(4), &json!(3)));
    }
}

#[test]
fn what_loses_no_piece_is_copied_byte_for_byte() {
    let shared = |id| if id < 20 { "same" } else { "also" };
    let text = |row: &Row| Some(format!("own {}\n{}", row.id, shared(row.id)));
    let rows: Vec<Row> =
        rows(5, 40).into_iter().map(|row| Row { text: text(&row), ..row }).collect();
    let bytes = table("", &rows, 20);
    // Each row group of the first file loses pieces, and none of the second.
    let unlike: Vec<Row> =
        rows.iter().map(|row| Row { text: Some(format!("x{}", row.id)), ..row.clone() }).collect();
    let sandbox =
        Sandbox::with(&[("a.parquet", bytes.clone()), ("b.parquet", table("", &unlike, 20))]);
    sandbox.run("a.parquet b.parquet --granularity paragraph --key text -o out/").kept();
    let chunk = |bytes: &[u8], group: usize, column: usize| {
        let reader = reader(bytes.to_vec());
        let (start, length) = reader.metadata().row_group(group).column(column).byte_range();
        bytes[usize::try_from(start).unwrap()..][..usize::try_from(length).unwrap()].to_vec()
    };
    let written = sandbox.read("out/a.parquet");
    for (group, column) in (0..2).flat_map(|group| (0..4).map(move |column| (group, column))) {
        let is_equal = chunk(&written, group, column) == chunk(&bytes, group, column);
        assert_eq!(is_equal, column < 3, "row group {group}, column {column}");
    }
    let (unlike, written) = (sandbox.read("b.parquet"), sandbox.read("out/b.parquet"));
    for (group, column) in (0..2).flat_map(|group| (0..4).map(move |column| (group, column))) {
        assert_eq!(chunk(&written, group, column), chunk(&unlike, group, column));
    }
}

#[test]
fn workers_on_many_machines_write_what_one_process_writes() {
    for (at_type, options) in [
        ("(TIMESTAMP(MILLIS,true))", "--key key --normalise trim,lower --keep best:at"),
        ("", "--key key --keep best:at:min --exactness bytes"),
        ("", "--granularity paragraph --key text --keep best:at"),
        ("", "--granularity paragraph --key text --keep last --exactness bytes"),
    ] {
        let sandbox = Sandbox::new();
        for (worker, file) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let bytes = table(at_type, &rows(2 * worker + file, 300), 70);
            sandbox.write(format!("in{worker}/{file}.parquet"), bytes);
        }
        sandbox.run(&format!("in0 in1 -o out/ --seed 7 {options}")).kept();
        let peers = peers(2);
        let start = |rank| {
            let args = format!(
                "in{rank} -o out{rank}/ --rank {rank} --peers {peers} --job-dir job{rank} --seed 7 -q {options}"
            );
            sandbox.command(&args).env("UMBEL_JOB_TOKEN", TOKEN).spawn().unwrap()
        };
        let children = [start(0), start(1)];
        let outputs = children.map(|child| child.wait_with_output().unwrap());
        for output in outputs {
            sandbox.ended(output).kept();
        }
        for (worker, file) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let name = format!("{file}.parquet");
            let (many, one) = (format!("out{worker}/{name}"), format!("out/in{worker}/{name}"));
            assert!(sandbox.read(&many) == sandbox.read(&one), "{many}, {options}");
        }
    }
}
