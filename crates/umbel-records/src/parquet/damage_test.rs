//! Damaged files give errors: no panic, no endless loop, no huge allocation.

use parquet::basic::{Compression, Encoding};
use parquet::file::properties::WriterVersion;

use super::sample::{SampleRow, Style, encode, stored};
use super::{ParquetCopy, ParquetError, ParquetFile, ParquetSelection, RowGroupItems};

fn rows() -> Vec<SampleRow> {
    let row = |id: i64| SampleRow {
        id,
        name: (id % 3 > 0).then(|| format!("name {}", id / 2)),
        user: (id % 4 > 0).then(|| (id % 2 == 0, (id % 5 > 0).then_some(7))),
        score: (id % 2 > 0).then_some(0.25),
        tags: (id % 3 < 2).then(|| vec![Some("x".into()); usize::from(id % 3 == 1) * 2]),
    };
    (0..20).map(row).collect()
}

/// Reads all rows of a file and returns their number.
fn read_all(bytes: &[u8]) -> Result<usize, ParquetError> {
    let file = ParquetFile::open(stored(bytes))?;
    read_rows(&file)
}

fn read_rows(file: &ParquetFile) -> Result<usize, ParquetError> {
    let Ok(mut selection) = ParquetSelection::record(file) else { return Ok(0) };
    if let Ok(scored) = selection.clone().scored(file, &"score".parse().expect("a path")) {
        selection = scored;
    }
    let mut count = 0;
    for group in 0..file.row_group_count() {
        let mut rows = RowGroupItems::open(file, group, &selection)?;
        while rows.next_item()?.is_some() {
            count += 1;
        }
        rows.digest()?;
    }
    Ok(count)
}

/// Copies every other row of a file.
fn copy_some(bytes: &[u8]) -> Result<(), ParquetError> {
    let file = ParquetFile::open(stored(bytes))?;
    let Ok(selection) = ParquetSelection::record(&file) else { return Ok(()) };
    let mut copy = ParquetCopy::new(Vec::new(), &file)?;
    for group in 0..file.row_group_count() {
        copy.copy_row_group(&file, group, &selection, u64::MAX, &|row| row % 2 == 0)?;
    }
    copy.finish().map(|_| ())
}

/// Copies a file with other texts in the column `name`.
fn copy_names(bytes: &[u8]) -> Result<(), ParquetError> {
    let file = ParquetFile::open(stored(bytes))?;
    let path = "name".parse().expect("a path");
    let Ok(selection) = ParquetSelection::text(&file, &path) else { return Ok(()) };
    let mut copy = ParquetCopy::new(Vec::new(), &file)?;
    for group in 0..file.row_group_count() {
        let mut edit = |text: &[u8]| text.len().is_multiple_of(2).then(|| text.to_vec());
        copy.copy_texts(&file, group, &selection, u64::MAX, &mut edit)?;
    }
    copy.finish().map(|_| ())
}

fn styles() -> [Style; 3] {
    let small = Style { page_rows: 5, group_rows: 12, ..Style::PLAIN };
    [
        small,
        Style { codec: Compression::SNAPPY, version: WriterVersion::PARQUET_2_0, ..small },
        Style {
            encoding: Some(Encoding::DELTA_BYTE_ARRAY),
            codec: Compression::ZSTD(Default::default()),
            ..small
        },
    ]
}

#[test]
fn no_flipped_byte_panics() {
    for (style, change) in styles().into_iter().zip([0xff, 0x80, 0x11]) {
        let sound = encode(&rows(), style);
        assert_eq!(read_all(&sound).unwrap(), 20);
        for index in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[index] ^= change;
            // Many changes only give other valid values; the test checks that reading ends.
            let _ = read_all(&bytes);
            if change == 0xff {
                let _ = copy_some(&bytes);
                let _ = copy_names(&bytes);
            }
        }
    }
}

#[test]
fn no_truncation_passes() {
    let sound = encode(&rows(), styles()[0]);
    for length in 0..sound.len() {
        assert!(read_all(&sound[..length]).is_err(), "{length}");
    }
}

#[test]
fn errors_name_row_group_and_column() {
    let sound = encode(&rows(), styles()[0]);
    let file = ParquetFile::open(stored(&sound)).unwrap();
    let start = file.group(1).column(1).byte_range().0;
    let mut bytes = sound.clone();
    bytes[usize::try_from(start).unwrap()] = 0xff;
    let error = read_all(&bytes).unwrap_err();
    assert!(error.to_string().starts_with("row group 2, column `name` is damaged: "), "{error}");
    let error = read_all(&sound[..sound.len() - 1]).unwrap_err().to_string();
    assert!(error.contains("does not end with `PAR1`"), "{error}");
}

#[test]
fn damage_in_the_column_of_scores_names_it() {
    let sound = encode(&rows(), styles()[0]);
    let file = ParquetFile::open(stored(&sound)).unwrap();
    let start = file.group(1).column(4).byte_range().0;
    let mut bytes = sound;
    bytes[usize::try_from(start).unwrap()] = 0xff;
    let file = ParquetFile::open(stored(&bytes)).unwrap();
    let paths = ["id", "score"].map(|path| path.parse().unwrap());
    let selection = ParquetSelection::key(&file, &paths[..1]).unwrap();
    let selection = selection.scored(&file, &paths[1]).unwrap();
    let mut rows = RowGroupItems::open(&file, 1, &selection).unwrap();
    let error = rows.next_item().unwrap_err().to_string();
    assert!(error.starts_with("row group 2, column `score` is damaged: "), "{error}");
}
