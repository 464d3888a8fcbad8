//! Parquet: columns and whole rows as keys, copies with schema and compression, refusals, damage.

use crate::sandbox::Sandbox;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

pub(crate) const SCHEMA: &str = "message rows { required int64 id; optional binary url (STRING); }";

pub(crate) type Row = (i64, Option<&'static str>);

/// A file of these rows, with this many per row group.
pub(crate) fn table(schema: &str, rows: &[Row], group_rows: usize) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for rows in rows.chunks(group_rows) {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let ids: Vec<i64> = rows.iter().map(|row| row.0).collect();
        column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.1.is_some())).collect();
        let urls: Vec<ByteArray> =
            rows.iter().filter_map(|row| row.1).map(ByteArray::from).collect();
        column.typed::<ByteArrayType>().write_batch(&urls, Some(&levels), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

fn reader(bytes: Vec<u8>) -> SerializedFileReader<bytes::Bytes> {
    SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap()
}

/// The ids of a file's rows.
fn ids(bytes: Vec<u8>) -> Vec<i64> {
    use parquet::record::RowAccessor;
    let reader = reader(bytes);
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().get_long(0).unwrap()).collect()
}

const URLS: [Option<&str>; 5] = [Some("a"), Some("b\n\"é"), None, Some(""), Some("a/very/long")];

/// Rows with distinct ids, and few distinct values in the other fields.
pub(crate) fn rows(count: usize) -> Vec<Row> {
    let url = |at: usize| URLS[at * at % 7 % URLS.len()];
    (0..count).map(|at| (i64::try_from(at).unwrap(), url(at))).collect()
}

pub(crate) fn json_lines(rows: &[Row]) -> String {
    rows.iter().fold(String::new(), |mut text, (id, url)| {
        writeln!(text, "{}", json!({"id": id, "url": url})).unwrap();
        text
    })
}

#[test]
fn kept_rows_are_those_of_the_same_json_lines() {
    let rows = rows(200);
    let sandbox = Sandbox::with(&[
        ("a.parquet", table(SCHEMA, &rows, 30)),
        ("a.jsonl", json_lines(&rows).into_bytes()),
    ]);
    let expected = sandbox.run("a.jsonl --key url").kept_text();
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_i64().unwrap();
    let expected: Vec<i64> = expected.lines().map(id).collect();
    assert!(expected.len() > 3 && expected.len() < 10);
    for options in ["--workers 1", "--workers 3", "--workers 3 --exactness bytes"] {
        sandbox.run(&format!("a.parquet --key url -o out/ --overwrite {options}")).kept();
        assert_eq!(ids(sandbox.read("out/a.parquet")), expected, "{options}");
        sandbox.run(&format!("a.parquet --key url -o one.parquet --overwrite {options}")).kept();
        assert_eq!(ids(sandbox.read("one.parquet")), expected, "{options}");
    }
}

#[test]
fn rows_and_lines_are_equal_keys_in_one_job() {
    let rows = rows(40);
    let (table_rows, line_rows) = rows.split_at(20);
    let sandbox = Sandbox::with(&[
        ("a.parquet", table(SCHEMA, table_rows, 7)),
        ("b.jsonl", json_lines(line_rows).into_bytes()),
    ]);
    let args = "a.parquet b.jsonl --key url -o out/ --duplicates dropped.jsonl --workers 3";
    sandbox.run(args).kept();
    assert_eq!(sandbox.text("out/b.jsonl"), "");
    let kept = ids(sandbox.read("out/a.parquet")).len();
    let dropped = sandbox.text("dropped.jsonl");
    assert_eq!(dropped.lines().count(), 40 - kept);
    let last: Value = serde_json::from_str(dropped.lines().last().unwrap()).unwrap();
    assert_eq!((&last["file"], &last["record"]), (&json!("b.jsonl"), &json!(20)));
    assert_eq!(last["kept_file"], json!("a.parquet"));
}

#[test]
fn schema_and_packing_stay_and_whole_rows_are_compared_by_default() {
    let mut twice = rows(10);
    twice.extend(rows(10));
    let sandbox =
        Sandbox::with(&[("a.parquet", table(SCHEMA, &twice, 8)), ("b", table(SCHEMA, &[], 8))]);
    sandbox.run("a.parquet b -o out/").kept();
    let (before, after) =
        (reader(sandbox.read("a.parquet")), reader(sandbox.read("out/a.parquet")));
    let schema = |reader: &SerializedFileReader<_>| {
        reader.metadata().file_metadata().schema_descr().root_schema().clone()
    };
    assert_eq!(schema(&before), schema(&after));
    for group in after.metadata().row_groups() {
        for column in group.columns() {
            assert_eq!(
                column.compression_codec(),
                before.metadata().row_group(0).column(0).compression_codec()
            );
        }
    }
    assert_eq!(ids(sandbox.read("out/a.parquet")), (0..10).collect::<Vec<_>>());
    assert!(ids(sandbox.read("out/b")).is_empty());
}

/// Messages show both names as the same text.
#[test]
fn files_whose_names_differ_in_bytes_that_are_no_text_are_not_mixed_up() {
    let rows = rows(60);
    let sandbox = Sandbox::new();
    let at = |folder: &str, name| sandbox.path(folder).join(Path::new(OsStr::from_bytes(name)));
    let parts = [(&b"\xb1.parquet"[..], &rows[..20], 20), (b"\xb9.parquet", &rows[20..], 7)];
    for (name, rows, group_rows) in parts {
        sandbox.write(at("in", name), table(SCHEMA, rows, group_rows));
    }
    for options in ["-o out/", "-o out/ --overwrite --workers 3", "--in-place"] {
        sandbox.run(&format!("in --key id {options}")).kept();
        for (name, rows, _) in parts {
            let folder = if options.contains("out/") { "out" } else { "in" };
            let kept: Vec<i64> = rows.iter().map(|row| row.0).collect();
            assert_eq!(ids(sandbox.read(at(folder, name))), kept, "{options}");
        }
    }
}

#[test]
fn what_cannot_be_compared_or_written_is_refused_before_it_is_read() {
    let other = "message rows { required int64 id; optional binary url (DECIMAL(9,2)); }";
    let less = "message rows { required int64 id; required int64 url; }";
    let sandbox = Sandbox::with(&[
        ("a.parquet", table(SCHEMA, &rows(5), 5)),
        ("b.parquet", table(other, &[], 5)),
        ("c.parquet", table(less, &[], 5)),
        ("d.jsonl", json_lines(&rows(5)).into_bytes()),
    ]);
    let refused = |args: &str, said: &[&str]| sandbox.run(args).refused(2, said);
    refused("a.parquet --key url", &["a.parquet is Parquet, which is no stream", "--output DIR/"]);
    refused("a.parquet --key link -o out/", &["a.parquet: no column `link`", "id, url"]);
    refused("a.parquet --granularity line -o out/", &["Parquet has rows and no lines"]);
    let said = ["a.parquet and b.parquet cannot be compared: column `url`", "decimal here"];
    refused("a.parquet b.parquet --key url -o out/", &said);
    let said = ["a.parquet and c.parquet have different schemas: column 2", "--output DIR/"];
    refused("a.parquet c.parquet --key id -o one.parquet", &said);
    refused(
        "a.parquet d.jsonl --key id -o one.parquet",
        &["a.parquet is Parquet and d.jsonl is not"],
    );
    assert!(!sandbox.exists("out") && !sandbox.exists("one.parquet"));
}

#[test]
fn damage_is_named_or_left_out() {
    let sound = table(SCHEMA, &rows(30), 10);
    let place = reader(sound.clone()).metadata().row_group(1).column(1).byte_range().0;
    let mut torn = sound.clone();
    torn[usize::try_from(place).unwrap()] = 0xff;
    let sandbox =
        Sandbox::with(&[("a.parquet", &torn[..]), ("cut.parquet", &sound[..sound.len() - 9])]);
    let said = ["a.parquet: record 11", "row group 2, column `url` is damaged"];
    sandbox.run("a.parquet --key url -o out/").refused(1, &said);
    sandbox.run("cut.parquet --key url -o out/").refused(1, &["cut.parquet", "footer is damaged"]);
    sandbox.run("a.parquet --key url -o out/ --skip-bad").ended_with(3);
    let kept = ids(sandbox.read("out/a.parquet"));
    assert!(kept.iter().all(|id| !(10..20).contains(id)), "{kept:?}");
    assert_eq!(kept[0], 0);
}
