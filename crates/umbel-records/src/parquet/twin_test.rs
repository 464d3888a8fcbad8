//! Items and copies against the crate's own record reader, which assembles rows one by one.

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use proptest::prelude::*;

use super::sample::{self, SampleRow, Style, encode, open, stored};
use super::{ParquetCopy, ParquetFile, ParquetSelection, RowGroupItems, SelectionError};
use crate::remote_test::remote;
use crate::{ContentDigest, Format, Granularity, ItemExtractor, KeyPath};

/// The key columns of a file, or all for no path.
fn select(file: &ParquetFile, paths: &[&str]) -> Result<ParquetSelection, SelectionError> {
    if paths.is_empty() {
        return ParquetSelection::record(file);
    }
    let paths: Vec<KeyPath> = paths.iter().map(|path| path.parse().unwrap()).collect();
    ParquetSelection::key(file, &paths)
}

/// All items of a file, and the digest of each row group.
fn items(file: &ParquetFile, paths: &[&str]) -> (Vec<Vec<u8>>, Vec<ContentDigest>) {
    let selection = select(file, paths).unwrap();
    let (mut items, mut digests) = (Vec::new(), Vec::new());
    for group in 0..file.row_group_count() {
        let mut rows = RowGroupItems::open(file, group, &selection).unwrap();
        while let Some(item) = rows.next_item().unwrap() {
            items.push(item.to_vec());
        }
        digests.push(rows.digest().unwrap());
        assert!(rows.stored_bytes_read() <= file.stored_bytes(group));
    }
    (items, digests)
}

/// Rows as the twin sees them.
fn twin(bytes: Vec<u8>) -> Vec<Row> {
    let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
    reader.get_row_iter(None).unwrap().collect::<Result<_, _>>().unwrap()
}

fn json(field: &Field) -> String {
    match field {
        Field::Null => "null".into(),
        Field::Bool(value) => value.to_string(),
        Field::UInt(value) => value.to_string(),
        Field::Long(value) => value.to_string(),
        Field::Double(value) => format!("{value:e}"),
        Field::Str(value) => serde_json::to_string(value).unwrap(),
        other => unreachable!("the samples have no {other:?}"),
    }
}

/// The row's fields as a line of JSON, struct by struct.
fn json_line(row: &Row) -> String {
    let mut fields = Vec::new();
    for (name, field) in row.get_column_iter() {
        match field {
            Field::Group(group) if name == "user" => {
                for (name, field) in group.get_column_iter() {
                    fields.push(format!("\"user_{name}\":{}", json(field)));
                }
            }
            Field::Null if name == "user" => {
                fields.push("\"user_known\":null,\"user_age\":null".into());
            }
            _ if name == "tags" => {}
            field => fields.push(format!("\"{name}\":{}", json(field))),
        }
    }
    format!("{{{}}}", fields.join(","))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn keys_equal_those_of_the_same_rows_in_json(rows in sample::rows(), style in sample::styles()) {
        let file = open(&rows, style);
        let (items, _) = items(&file, &["score", "id", "user.age", "name", "user.known"]);
        let paths = ["score", "id", "user_age", "name", "user_known"];
        let key = Granularity::Key(paths.iter().map(|path| path.parse().unwrap()).collect());
        let mut extractor = ItemExtractor::new(Format::JsonLines, key).unwrap();
        let twins = twin(encode(&rows, style));
        prop_assert_eq!(items.len(), twins.len());
        for (item, row) in items.iter().zip(&twins) {
            let line = json_line(row);
            let expected = extractor.item(line.as_bytes()).unwrap();
            prop_assert_eq!(item.as_slice(), expected);
        }
    }

    #[test]
    fn rows_that_come_in_pieces_are_those_of_a_file(
        rows in sample::rows(),
        style in sample::styles(),
        piece_bytes_max in 1..5000_usize,
    ) {
        let there = ParquetFile::open(remote(encode(&rows, style), piece_bytes_max)).unwrap();
        prop_assert_eq!(items(&there, &[]), items(&open(&rows, style), &[]));
    }

    #[test]
    fn rows_are_equal_where_their_items_are(rows in sample::rows(), style in sample::styles()) {
        let (items, _) = items(&open(&rows, style), &[]);
        let (twice, _) = items_of_other_style(&rows);
        prop_assert_eq!(&items, &twice);
        for (index, (item, row)) in items.iter().zip(&rows).enumerate() {
            for (other, other_row) in items.iter().zip(&rows).skip(index) {
                prop_assert_eq!(item == other, row == other_row);
            }
        }
    }

    #[test]
    fn copies_hold_the_rows_that_stay(
        rows in sample::rows(),
        style in sample::styles(),
        mask in proptest::collection::vec(proptest::bool::weighted(0.7), 60),
        whole in any::<bool>(),
    ) {
        let file = open(&rows, style);
        let selection = select(&file, &["name", "id"]).unwrap();
        let (_, digests) = items(&file, &["name", "id"]);
        let mut copy = ParquetCopy::new(Vec::new(), &file).unwrap();
        let mut before = 0;
        let stays = |row: usize| mask[row] || (whole && row < style.group_rows);
        for (group, expected) in digests.iter().enumerate() {
            let stays = |row: u64| stays(before + usize::try_from(row).unwrap());
            let digest = copy.copy_row_group(&file, group, &selection, u64::MAX, &stays).unwrap();
            prop_assert!(digest.is_none_or(|digest| digest == *expected));
            before += usize::try_from(file.row_count(group)).unwrap();
        }
        let copied = copy.finish().unwrap();
        let expected: Vec<Row> = twin(encode(&rows, style))
            .into_iter()
            .enumerate()
            .filter_map(|(index, row)| stays(index).then_some(row))
            .collect();
        prop_assert_eq!(twin(copied.clone()), expected);
        let copied = ParquetFile::open(stored(&copied)).unwrap();
        prop_assert_eq!(file.schema_difference(&copied), None);
        let metadata = |file: &ParquetFile| {
            file.metadata().file_metadata().key_value_metadata().cloned()
        };
        prop_assert_eq!(metadata(&copied), metadata(&file));
        for group in copied.metadata().row_groups() {
            for column in group.columns() {
                prop_assert_eq!(column.compression_codec(), file.group(0).column(0).compression_codec());
            }
        }
    }
}

fn items_of_other_style(rows: &[SampleRow]) -> (Vec<Vec<u8>>, Vec<ContentDigest>) {
    items(&open(rows, Style { group_rows: 7, ..Style::PLAIN }), &[])
}

fn row(id: i64) -> SampleRow {
    SampleRow { id, name: Some(format!("n{id}")), user: None, score: None, tags: None }
}

#[test]
fn many_rows_come_in_batches() {
    let rows: Vec<SampleRow> = (0..5000).map(row).collect();
    let file = open(&rows, Style { group_rows: 3000, ..Style::PLAIN });
    let (items, _) = items(&file, &["id", "user.age"]);
    assert_eq!(items.len(), 5000);
    assert_eq!(items[4321], b"d\x044321n\0");
}

#[test]
fn columns_are_selected_by_path() {
    let file = open(&[row(1)], Style::PLAIN);
    let select = |path| select(&file, &[path]);
    assert!(select("user.age").is_ok());
    assert!(matches!(select("user").unwrap_err(), SelectionError::Group { columns, .. }
        if columns == "user.known, user.age"));
    assert!(matches!(select("tags.list.element"), Err(SelectionError::Repeated { .. })));
    let error = select("age").unwrap_err().to_string();
    assert!(error.starts_with("no column `age`; there are: id, name, user.known"), "{error}");
    let difference = select("id").unwrap().difference(&select("name").unwrap()).unwrap();
    assert_eq!(difference, "column `id` is string or bytes there and integer here");
}

#[test]
fn a_change_shows_in_the_digest() {
    let digest = |id| items(&open(&[row(id)], Style::PLAIN), &["id"]).1;
    assert_eq!(digest(5), digest(5));
    assert_ne!(digest(5), digest(6));
}
