//! Items and copies, compared with the crate's own record reader, which assembles rows one by one.

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use proptest::prelude::*;

use super::sample::{self, SampleRow, Style, encode, open, stored};
use super::{ParquetCopy, ParquetFile, ParquetSelection, RowGroupItems, SelectionError};
use crate::remote_test::remote;
use crate::{
    ContentDigest, Format, Granularity, ItemExtractor, KeyPath, Normaliser, Normalisers,
    ScoreExtractor,
};

/// The key columns of a file, or all columns if there are no paths.
fn select(file: &ParquetFile, paths: &[&str]) -> Result<ParquetSelection, SelectionError> {
    if paths.is_empty() {
        return ParquetSelection::record(file);
    }
    let paths: Vec<KeyPath> = paths.iter().map(|text| path(text)).collect();
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

fn path(text: &str) -> KeyPath {
    text.parse().unwrap()
}

/// The rows as the crate's record reader returns them.
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
    fn normalised_keys_equal_those_of_json(rows in sample::rows(), style in sample::styles()) {
        let normalisers = Normalisers::new(vec![Normaliser::Trim, Normaliser::Lower]);
        let file = open(&rows, style);
        let selection = select(&file, &["name", "id"]).unwrap();
        let key = Granularity::Key(vec!["name".into(), "id".into()]);
        let extractor = ItemExtractor::new(Format::JsonLines, key).unwrap();
        let mut extractor = extractor.normalised(normalisers.clone());
        let mut twins = twin(encode(&rows, style)).into_iter();
        for group in 0..file.row_group_count() {
            let items = RowGroupItems::open(&file, group, &selection).unwrap();
            let mut items = items.normalised(&normalisers);
            while let Some(item) = items.next_item().unwrap() {
                let line = json_line(&twins.next().unwrap());
                prop_assert_eq!(item, extractor.item(line.as_bytes()).unwrap());
            }
        }
        prop_assert!(twins.next().is_none());
    }

    #[test]
    fn scores_equal_those_of_json_and_change_no_item(
        rows in sample::rows(),
        style in sample::styles(),
        (field, name) in prop_oneof![
            Just(("score", "score")), Just(("user.age", "user_age")), Just(("id", "id"))
        ],
        whole in any::<bool>(),
    ) {
        let file = open(&rows, style);
        let keys: &[&str] = if whole { &[] } else { &["name", "user.age"] };
        let selection = select(&file, keys).unwrap().scored(&file, &path(field)).unwrap();
        let (mut unscored, _) = items(&file, keys);
        let mut extractor = ScoreExtractor::new(Format::JsonLines, name).unwrap();
        let twins = twin(encode(&rows, style));
        let mut row = 0;
        for group in 0..file.row_group_count() {
            let mut items = RowGroupItems::open(&file, group, &selection).unwrap();
            while let Some(item) = items.next_item().unwrap() {
                prop_assert_eq!(item, std::mem::take(&mut unscored[row]));
                prop_assert_eq!(items.score(), extractor.score(json_line(&twins[row]).as_bytes()));
                row += 1;
            }
        }
        prop_assert_eq!(row, twins.len());
    }

    #[test]
    fn copies_hold_texts_as_they_were_changed(
        rows in sample::rows(),
        style in sample::styles(),
        rows_max in 0..80usize,
    ) {
        let file = open(&rows, style);
        let selection = ParquetSelection::text(&file, &path("name")).unwrap();
        let changed = |text: &str| text.contains('a').then(|| text.replace('a', ""));
        let mut copy = ParquetCopy::new(Vec::new(), &file).unwrap();
        let mut expected = Vec::new();
        for (group, rows) in rows.chunks(style.group_rows).enumerate() {
            let mut items = RowGroupItems::open(&file, group, &selection).unwrap();
            let mut edited = Vec::new();
            let mut edit = |text: &[u8]| {
                edited.push(text.to_vec());
                changed(str::from_utf8(text).unwrap()).map(String::into_bytes)
            };
            let taken = rows.len().min(rows_max);
            let taken_rows = rows_max as u64;
            let digest = copy.copy_texts(&file, group, &selection, taken_rows, &mut edit).unwrap();
            for (row, edited) in rows[..taken].iter().zip(&edited) {
                prop_assert_eq!(items.next_item().unwrap(), Some(edited.as_slice()));
                prop_assert_eq!(edited, row.name.as_deref().unwrap_or_default().as_bytes());
                let name = row.name.as_ref().map(|name| changed(name).unwrap_or(name.clone()));
                expected.push(SampleRow { name, ..row.clone() });
            }
            prop_assert_eq!(edited.len(), taken);
            prop_assert!(digest.is_none_or(|digest| digest == items.digest().unwrap()));
        }
        prop_assert_eq!(twin(copy.finish().unwrap()), twin(encode(&expected, Style::PLAIN)));
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
    // What is named instead can be selected.
    for path in ["tags.list.element", "tags.list", "tags"] {
        assert!(matches!(select(path), Err(SelectionError::Repeated { .. })), "{path}");
    }
    let error = select("age").unwrap_err().to_string();
    assert!(error.starts_with("no column `age`; there are: id, name, user.known"), "{error}");
    let difference = select("id").unwrap().difference(&select("name").unwrap()).unwrap();
    assert_eq!(difference, "column `id` is string or bytes there and integer here");
}

#[test]
fn rows_are_ranked_by_numbers_only() {
    let file = open(&[row(1)], Style::PLAIN);
    let scored = |field| select(&file, &["name"]).unwrap().scored(&file, &path(field));
    let (id, age) = (scored("id").unwrap(), scored("user.age").unwrap());
    assert_eq!(id.difference(&age), None);
    let error = scored("name").unwrap_err().to_string();
    assert!(error.starts_with("column `name` is string or bytes, which has no number"), "{error}");
    assert!(matches!(scored("user.known"), Err(SelectionError::NoNumber { .. })));
    assert!(matches!(scored("tags.list.element"), Err(SelectionError::Repeated { .. })));
    assert!(matches!(scored("user"), Err(SelectionError::Group { .. })));
    assert!(matches!(scored("age"), Err(SelectionError::Missing { .. })));
}

#[test]
fn texts_are_columns_of_strings() {
    let file = open(&[row(1)], Style::PLAIN);
    let text = |field| ParquetSelection::text(&file, &path(field));
    assert!(text("name").is_ok());
    let error = text("id").unwrap_err().to_string();
    assert_eq!(error, "column `id` is integer; name one of strings");
    assert!(matches!(text("tags.list.element"), Err(SelectionError::Repeated { .. })));
}

#[test]
fn a_change_shows_in_the_digest() {
    let digest = |id| items(&open(&[row(id)], Style::PLAIN), &["id"]).1;
    assert_eq!(digest(5), digest(5));
    assert_ne!(digest(5), digest(6));
}

#[test]
fn a_change_of_a_score_shows_in_the_digest() {
    let digest = |id| {
        let file = open(&[SampleRow { name: None, ..row(id) }], Style::PLAIN);
        let selection = select(&file, &["name"]).unwrap().scored(&file, &path("id")).unwrap();
        RowGroupItems::open(&file, 0, &selection).unwrap().digest().unwrap()
    };
    assert_eq!(digest(5), digest(5));
    // The footer differs, too: its statistics contain the number.
    assert_ne!(digest(5).crc32c, digest(6).crc32c);
}

#[test]
fn columns_beside_changed_texts_are_copied_byte_for_byte() {
    let rows: Vec<SampleRow> = (0..50).map(row).collect();
    let bytes = encode(&rows, Style::PLAIN);
    let file = ParquetFile::open(stored(&bytes)).unwrap();
    let selection = ParquetSelection::text(&file, &path("name")).unwrap();
    let mut copy = ParquetCopy::new(Vec::new(), &file).unwrap();
    copy.copy_texts(&file, 0, &selection, 50, &mut |_| Some(b"x".to_vec())).unwrap();
    let copied_bytes = copy.finish().unwrap();
    let copied = ParquetFile::open(stored(&copied_bytes)).unwrap();
    let chunk = |file: &ParquetFile, bytes: &[u8], column: usize| {
        let (start, length) = file.group(0).column(column).byte_range();
        let (start, length) = (usize::try_from(start).unwrap(), usize::try_from(length).unwrap());
        bytes[start..start + length].to_vec()
    };
    for column in [0, 2, 3, 4, 5] {
        assert_eq!(chunk(&copied, &copied_bytes, column), chunk(&file, &bytes, column));
    }
    assert_ne!(chunk(&copied, &copied_bytes, 1), chunk(&file, &bytes, 1));
}

/// A column `l` of lists of 32-bit integers with the rows `[7]` and `[7]`, as Arrow's C++ writer (of pyarrow 26) writes it
/// in small pages: between the page of the first row and that of the second is one without values.
const PAGE_WITHOUT_VALUES: &str = "\
     504152311504150815084c15021500120000070000001500151e151e2c15021510150615061c00000002000000020002 \
     00000002030102001500151215122c15001510150615061c0000000000000000000000011500151e151e2c1502151015 \
     0615061c0000000200000002000200000002030102001504194c35001806736368656d61150200350218016c15021506 \
     4c3c000000350418046c697374150200150225021807656c656d656e74001604191c191c26001c150219350006101938 \
     016c046c69737407656c656d656e741500160416e40116e401262c2608292c15041500150200150015101506003c2926 \
     040019460000000400000016e4011604260816e401002820706172717565742d6370702d6172726f772076657273696f \
     6e2032362e302e31191c1c000000b800000050415231";

#[test]
fn a_page_without_values_is_not_the_end_of_a_column() {
    let digits: String = PAGE_WITHOUT_VALUES.split_whitespace().collect();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    let file = ParquetFile::open(stored(&bytes)).unwrap();
    let rows = items(&file, &[]).0;
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0], rows[1]);
    let mut copy = ParquetCopy::new(Vec::new(), &file).unwrap();
    let selection = ParquetSelection::record(&file).unwrap();
    copy.copy_row_group(&file, 0, &selection, u64::MAX, &|row| row == 1).unwrap();
    let copied = ParquetFile::open(stored(&copy.finish().unwrap())).unwrap();
    assert_eq!(items(&copied, &[]).0, rows[1..]);
}
