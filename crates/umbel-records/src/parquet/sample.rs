//! Small Parquet files for tests.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use proptest::prelude::*;

use super::ParquetFile;

/// Levels and values of every kind: required, optional, in an optional struct, in a list.
const SCHEMA: &str = "
    message rows {
        required int64 id;
        optional binary name (STRING);
        optional group user {
            required boolean known;
            optional int32 age (INTEGER(32,false));
        }
        optional double score;
        optional group tags (LIST) { repeated group list { optional binary element (STRING); } }
    }";

/// A row of a sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SampleRow {
    pub(super) id: i64,
    pub(super) name: Option<String>,
    pub(super) user: Option<(bool, Option<i32>)>,
    pub(super) score: Option<f64>,
    pub(super) tags: Option<Vec<Option<String>>>,
}

/// How a sample is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub(super) codec: Compression,
    pub(super) version: WriterVersion,
    pub(super) encoding: Option<Encoding>,
    pub(super) page_rows: usize,
    pub(super) group_rows: usize,
}

impl Style {
    pub(super) const PLAIN: Self = Self {
        codec: Compression::UNCOMPRESSED,
        version: WriterVersion::PARQUET_1_0,
        encoding: None,
        page_rows: 1000,
        group_rows: 1000,
    };
}

/// Rows with few different values, so that some are equal.
pub(super) fn rows() -> impl Strategy<Value = Vec<SampleRow>> {
    let text = || prop_oneof![Just(String::new()), "[abA ]{1,2}", "é\"\\{20,60\\}"];
    let user = proptest::option::of((any::<bool>(), proptest::option::of(-2i32..2)));
    let score = proptest::option::of(prop_oneof![Just(0.5), Just(-0.0), Just(3.0), Just(1e300)]);
    let tags = proptest::collection::vec(proptest::option::of(text()), 0..4);
    let row = (-1i64..3, proptest::option::of(text()), user, score, proptest::option::of(tags));
    let row =
        row.prop_map(|(id, name, user, score, tags)| SampleRow { id, name, user, score, tags });
    proptest::collection::vec(row, 0..60)
}

/// All compressions, versions and encodings.
pub(super) fn styles() -> impl Strategy<Value = Style> {
    let codec = prop_oneof![
        Just(Compression::UNCOMPRESSED),
        Just(Compression::SNAPPY),
        Just(Compression::GZIP(parquet::basic::GzipLevel::default())),
        Just(Compression::LZ4),
        Just(Compression::LZ4_RAW),
        Just(Compression::ZSTD(ZstdLevel::default())),
    ];
    let version = prop_oneof![Just(WriterVersion::PARQUET_1_0), Just(WriterVersion::PARQUET_2_0)];
    let encoding = prop_oneof![
        Just(None),
        Just(Some(Encoding::PLAIN)),
        Just(Some(Encoding::DELTA_LENGTH_BYTE_ARRAY)),
        Just(Some(Encoding::DELTA_BYTE_ARRAY)),
    ];
    (codec, version, encoding, 1usize..20, 1usize..40).prop_map(
        |(codec, version, encoding, page_rows, group_rows)| Style {
            codec,
            version,
            encoding,
            page_rows,
            group_rows,
        },
    )
}

/// The bytes of a file of these rows.
pub(super) fn encode(rows: &[SampleRow], style: Style) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut properties = WriterProperties::builder()
        .set_compression(style.codec)
        .set_writer_version(style.version)
        .set_write_batch_size(1)
        .set_data_page_row_count_limit(style.page_rows)
        .set_key_value_metadata(Some(vec![KeyValue::new("made".into(), "by a test".to_owned())]));
    if let Some(encoding) = style.encoding {
        for path in [vec!["name"], vec!["tags", "list", "element"]] {
            let path = ColumnPath::new(path.into_iter().map(str::to_owned).collect());
            properties = properties.set_column_dictionary_enabled(path.clone(), false);
            properties = properties.set_column_encoding(path, encoding);
        }
    }
    let mut writer =
        SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
    for rows in rows.chunks(style.group_rows) {
        let mut group = writer.next_row_group().unwrap();
        write_group(&mut group, rows);
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

fn write_group(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, rows: &[SampleRow]) {
    let bytes = |text: &String| ByteArray::from(text.as_str());

    let mut column = group.next_column().unwrap().unwrap();
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
    column.close().unwrap();

    let mut column = group.next_column().unwrap().unwrap();
    let def: Vec<i16> = rows.iter().map(|row| i16::from(row.name.is_some())).collect();
    let names: Vec<ByteArray> =
        rows.iter().filter_map(|row| row.name.as_ref()).map(bytes).collect();
    column.typed::<ByteArrayType>().write_batch(&names, Some(&def), None).unwrap();
    column.close().unwrap();

    let mut column = group.next_column().unwrap().unwrap();
    let def: Vec<i16> = rows.iter().map(|row| i16::from(row.user.is_some())).collect();
    let known: Vec<bool> = rows.iter().filter_map(|row| Some(row.user?.0)).collect();
    column.typed::<BoolType>().write_batch(&known, Some(&def), None).unwrap();
    column.close().unwrap();

    let mut column = group.next_column().unwrap().unwrap();
    let level = |row: &SampleRow| row.user.map_or(0, |(_, age)| 1 + i16::from(age.is_some()));
    let def: Vec<i16> = rows.iter().map(level).collect();
    let ages: Vec<i32> = rows.iter().filter_map(|row| row.user?.1).collect();
    column.typed::<Int32Type>().write_batch(&ages, Some(&def), None).unwrap();
    column.close().unwrap();

    let mut column = group.next_column().unwrap().unwrap();
    let def: Vec<i16> = rows.iter().map(|row| i16::from(row.score.is_some())).collect();
    let scores: Vec<f64> = rows.iter().filter_map(|row| row.score).collect();
    column.typed::<DoubleType>().write_batch(&scores, Some(&def), None).unwrap();
    column.close().unwrap();

    let mut column = group.next_column().unwrap().unwrap();
    let (mut rep, mut def, mut tags) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        match &row.tags {
            Some(list) if !list.is_empty() => {
                for (index, tag) in list.iter().enumerate() {
                    rep.push(i16::from(index > 0));
                    def.push(2 + i16::from(tag.is_some()));
                    tags.extend(tag.as_ref().map(bytes));
                }
            }
            list => {
                rep.push(0);
                def.push(i16::from(list.is_some()));
            }
        }
    }
    column.typed::<ByteArrayType>().write_batch(&tags, Some(&def), Some(&rep)).unwrap();
    column.close().unwrap();
}

/// A file of these bytes.
pub(super) fn stored(bytes: &[u8]) -> Arc<File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Arc::new(file)
}

/// A file of these rows, opened.
pub(super) fn open(rows: &[SampleRow], style: Style) -> ParquetFile {
    ParquetFile::open(stored(&encode(rows, style))).unwrap()
}
