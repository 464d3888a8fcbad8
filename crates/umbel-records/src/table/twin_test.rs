//! Examples of tables, and random tests against the csv crate.

use std::io::Write;
use std::sync::Arc;

use proptest::prelude::*;

use super::fields::TableFields;
use super::*;
use crate::{
    Compression, ContentDigest, ExtractorError, Granularity, ItemExtractor, ReadError, ReadLimits,
    RecordItemError, RecordReader,
};

/// A record and its fields.
type Row = (String, Vec<String>);

fn file(content: &[u8]) -> Arc<std::fs::File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    Arc::new(file)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// All records below the header, and the error that follows them.
fn read(content: &[u8], limits: ReadLimits) -> (Vec<Row>, Option<ReadError>) {
    let mut reader =
        RecordReader::open_table(file(content), Compression::Plain, b',', limits).unwrap();
    let mut fields = TableFields::new(b',');
    let mut rows = Vec::new();
    loop {
        match reader.next_block() {
            Err(error) => return (rows, Some(error)),
            Ok(None) => {
                assert_eq!(reader.digest(), ContentDigest::of(content));
                return (rows, None);
            }
            Ok(Some(_)) => {}
        }
        let block_offset = usize::try_from(reader.block_offset()).unwrap();
        for (at, record) in reader.block_records() {
            assert_eq!(&content[block_offset + at..][..record.len()], record);
            fields.split(record).unwrap();
            for index in 0..fields.count() {
                let raw = text(&record[fields.raw(index)]);
                let unquoted = raw.starts_with('"').then(|| raw.replace('"', ""));
                let plain = text(fields.text(index)).replace('"', "");
                assert_eq!(unquoted.unwrap_or_else(|| raw.replace('"', "")), plain);
            }
            rows.push((text(record), fields.texts().map(text).collect()));
        }
    }
}

fn header(content: &[u8]) -> TableHeader {
    let limits = ReadLimits::default();
    TableHeader::read(file(content), Compression::Plain, b',', limits).unwrap().unwrap()
}

#[test]
fn records_keep_their_bytes_and_blank_lines_are_none() {
    let content = b"\n\xef\xbb\xbfa,b\n\r\n\n1,\"x\n\"\"y\"\r\n\n2,p\"q\r\n\r\n3,";
    let (rows, error) = read(content, ReadLimits::default());
    assert!(error.is_none());
    let records: Vec<&str> = rows.iter().map(|(record, _)| &record[..]).collect();
    assert_eq!(records, ["1,\"x\n\"\"y\"\r\n", "2,p\"q\r\n", "3,"]);
    let fields: Vec<Vec<&str>> =
        rows.iter().map(|(_, fields)| fields.iter().map(|field| &field[..]).collect()).collect();
    assert_eq!(fields, [["1", "x\n\"y"], ["2", "p\"q"], ["3", ""]]);
}

#[test]
fn headers_name_columns_with_and_without_a_byte_order_mark() {
    let marked = header(b"\xef\xbb\xbf\"a b\",c,c\r\n1,2,3\n");
    assert_eq!(marked.columns(), [&b"a b"[..], b"c", b"c"]);
    assert_eq!(marked.bytes(), b"\xef\xbb\xbf\"a b\",c,c\r\n");
    assert_eq!(marked.column("a b"), Ok(0));
    assert_eq!(marked.column("c"), Err(ExtractorError::AmbiguousColumn { name: "c".into() }));
    let error = marked.column("A b").unwrap_err().to_string();
    assert_eq!(error, "no column `A b` in the header; it has `a b`, `c`, `c`");
    let limits = ReadLimits::default();
    for empty in ["", "\n\r\n", "\u{feff}"] {
        let none = TableHeader::read(file(empty.as_bytes()), Compression::Plain, b',', limits);
        assert_eq!(none.unwrap(), None);
    }
}

/// The reader ends the record at the line end, so the quote is none that opens a field.
#[test]
fn a_quote_behind_a_mark_that_nothing_closes_is_an_ordinary_character() {
    let content = "\n\u{feff}\"a,b\n1,2\n".as_bytes();
    let marked = header(content);
    assert_eq!(marked.columns(), ["\u{feff}\"a".as_bytes(), b"b"]);
    assert_eq!(marked.bytes(), "\u{feff}\"a,b\n".as_bytes());
    let (rows, error) = read(content, ReadLimits::default());
    assert!(error.is_none());
    assert_eq!(rows, [("1,2\n".to_owned(), vec!["1".to_owned(), "2".to_owned()])]);
    assert_eq!(header("\n\u{feff}\"a\",b\n".as_bytes()).columns(), [b"a", b"b"]);
}

/// Its first row is split as often as any other, and each time as its columns were counted.
#[test]
fn rows_of_a_table_without_a_header_are_split_as_its_columns_are_counted() {
    for (first, key) in [
        ("\u{feff}\"a,b\n", "\u{feff}\"a"),
        ("\u{feff}\"a\",b\n", "a"),
        ("\u{feff}a,b\n", "a"),
        ("\u{feff}\"a\"\"\",\"b\"\n", "a\""),
    ] {
        let (content, limits) = (file(format!("\n{first}1,2\n").as_bytes()), ReadLimits::default());
        let made_up = TableHeader::numbered(content, Compression::Plain, b',', limits);
        let made_up = made_up.unwrap().unwrap();
        assert_eq!(made_up.columns(), [b"1", b"2"], "{first:?}");
        let by_first = Granularity::Key(vec!["1".into()]);
        let mut extractor = ItemExtractor::of_table(&made_up, by_first).unwrap();
        for _ in 0..2 {
            let length = char::from(u8::try_from(key.len()).unwrap());
            let item = format!("s{length}{key}");
            assert_eq!(extractor.item(first.as_bytes()).unwrap(), item.as_bytes(), "{first:?}");
            assert_eq!(extractor.item(b"1,2\n").unwrap(), b"s\x011");
            assert_eq!(extractor.item(b"\"1,2\n"), Err(RecordItemError::UnclosedQuote));
        }
    }
}

#[test]
fn a_mark_without_a_record_is_a_blank_line() {
    for blank in
        ["\u{feff}", "\u{feff}\n\n", "\u{feff}\r\n", "\u{feff}\r", "\n\u{feff}", "\n\u{feff}\n"]
    {
        let (rows, error) = read(blank.as_bytes(), ReadLimits::default());
        assert!(rows.is_empty() && error.is_none(), "{blank:?}: {error:?}");
        let (content, limits) = (file(blank.as_bytes()), ReadLimits::default());
        let made_up = TableHeader::numbered(content, Compression::Plain, b',', limits);
        assert_eq!(made_up.unwrap(), None, "{blank:?}");
    }
    assert_eq!(header(b"\xef\xbb\xbf\r\na,b\r\n").columns(), [b"a", b"b"]);
    // Further behind it is a field like any other.
    let (rows, error) = read("a\n\u{feff}\r\n\u{feff}".as_bytes(), ReadLimits::default());
    assert!(error.is_none());
    let records: Vec<&str> = rows.iter().map(|(record, _)| &record[..]).collect();
    assert_eq!(records, ["\u{feff}\r\n", "\u{feff}"]);
    // What follows a mark is no more blank than elsewhere.
    let (rows, error) = read("\u{feff}\"".as_bytes(), ReadLimits::default());
    let is_unclosed = matches!(error, Some(ReadError::UnclosedQuote { content_offset: 0 }));
    assert!(rows.is_empty() && is_unclosed, "{error:?}");
}

#[test]
fn items_of_tables() {
    let header = header(b"id,a.b\n");
    let mut key = ItemExtractor::of_table(&header, Granularity::Key(vec!["a.b".into()])).unwrap();
    assert_eq!(key.item(b"1,\"x\"\"\"\r\n").unwrap(), b"s\x02x\"");
    let utf8 = RecordItemError::FieldNotUtf8 { column: "a.b".into() };
    assert_eq!(key.item(b"1,\xff\n"), Err(utf8));
    assert_eq!(key.item(b"\xff,1\n").unwrap(), b"s\x011");
    let count = RecordItemError::FieldCount { found: 3, expected: 2 };
    assert_eq!(key.item(b"1,2,3\n"), Err(count));
    assert_eq!(key.item(b"1,\"2\n"), Err(RecordItemError::UnclosedQuote));
    assert_eq!(key.item(b"\n"), Err(RecordItemError::FieldCount { found: 0, expected: 2 }));
    assert_eq!(key.item(b"\xef\xbb\xbf1,2").unwrap(), b"s\x012", "as if nothing had been");
    let mut record = ItemExtractor::of_table(&header, Granularity::Record).unwrap();
    let plain = record.item(b"1,2\n").unwrap().to_vec();
    assert_eq!(plain, b"s\x011s\x012");
    assert_eq!(record.item(b"\"1\",\"2\"\r\n").unwrap(), plain);
    let trim = crate::Normalisers::new(vec![crate::Normaliser::Trim]);
    let mut record = record.normalised(trim.clone());
    assert_eq!(record.item(b"\" 1\",2 \n").unwrap(), plain);
    let is_empty = record.emptiness();
    assert!(!is_empty(b"s\x011s\0") && is_empty(b"s\0s\0"));
    let mut key = key.normalised(trim);
    assert_eq!(key.item(b"1, 2\n").unwrap(), b"s\x012");
    let mut line = ItemExtractor::of_table(&header, Granularity::Line).unwrap();
    assert_eq!(line.item(b"\"1\",2\r\n").unwrap(), b"\"1\",2");
}

#[test]
fn a_record_above_the_limit_ends_the_reading() {
    let limits = ReadLimits { block_bytes: 64, record_bytes_max: 100 };
    let long = "x".repeat(200);
    for end in ["", "\n", "\"\n"] {
        let content = format!("a\n1\n\"{long}{end}");
        let (rows, error) = read(content.as_bytes(), limits);
        assert_eq!(rows.len(), 1);
        let start = 4;
        assert!(
            matches!(error, Some(ReadError::RecordTooLong { content_offset, limit: 100 })
                if content_offset == start),
            "{error:?}"
        );
    }
}

/// The rows of a table as the csv crate reads them, header included, and whether the last record ends.
fn twin(content: &[u8]) -> (Vec<Row>, bool) {
    let mut builder = csv::ReaderBuilder::new();
    builder.has_headers(false).flexible(true).terminator(csv::Terminator::Any(b'\n'));
    let mut reader = builder.from_reader(content);
    let mut rows: Vec<Row> = Vec::new();
    let mut record = csv::ByteRecord::new();
    let mut start = 0;
    while reader.read_byte_record(&mut record).unwrap() {
        let end = usize::try_from(reader.position().byte()).unwrap();
        let raw = text(&content[start..end]);
        let raw = raw.trim_start_matches('\n');
        start = end;
        let mut fields: Vec<String> = record.iter().map(text).collect();
        if raw.ends_with("\r\n") || raw.ends_with('\r') {
            let last = fields.last_mut().unwrap();
            *last = last.strip_suffix('\r').unwrap_or(last).to_owned();
        }
        if raw != "\r\n" && raw != "\r" {
            rows.push((raw.to_owned(), fields));
        }
    }
    let probe = [content, b"\nprobe"].concat();
    let last = builder.from_reader(&probe[..]).byte_records().last().unwrap().unwrap();
    (rows, last == vec!["probe"])
}

fn contents() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        6 => Just("a"), 1 => Just("é"), 4 => Just(","), 5 => Just("\""), 3 => Just("\n"),
        2 => Just("\r\n"), 1 => Just("\"\""), 1 => Just("\",\""), 1 => Just("\"\r\n\""),
    ];
    proptest::collection::vec(token, 0..200).prop_map(|tokens| tokens.concat().into_bytes())
}

proptest! {
    #[test]
    fn equals_the_csv_crate(content in contents(), block_bytes in 1usize..70) {
        let (mut expected, is_closed) = twin(&content);
        if !is_closed {
            expected.pop();
        }
        if !expected.is_empty() {
            expected.remove(0); // The header.
        }
        let limits = ReadLimits { block_bytes, ..ReadLimits::default() };
        let (rows, error) = read(&content, limits);
        prop_assert_eq!(rows, expected);
        let is_unclosed = matches!(error, Some(ReadError::UnclosedQuote { .. }));
        prop_assert_eq!((error.is_some(), is_unclosed), (!is_closed, !is_closed));
    }
}
