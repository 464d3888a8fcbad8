//! Plain files: spans cover a file without gaps, limits hold, damage is reported.
//!
//! The slow reference splits bytes in memory. Compressed files are in `packed_test.rs`.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::records;

/// So small that every boundary is reached in some test.
const TINY: ReadLimits = ReadLimits { block_bytes: 5, record_bytes_max: 1 << 20 };

pub(super) fn file_of(content: &[u8]) -> Arc<File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    Arc::new(file)
}

/// What a reader delivers: the records, and the error that follows them.
pub(super) fn drain(reader: &mut RecordReader) -> (Vec<Vec<u8>>, Option<ReadError>) {
    let mut seen = Vec::new();
    let error = loop {
        match reader.next_block() {
            Ok(Some(block)) => {
                assert!(!block.is_empty());
                seen.extend(records(block).map(<[u8]>::to_vec));
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(reader.next_block().unwrap().is_none(), "the end stays the end");
    assert!(reader.next_block().unwrap().is_none(), "the end stays the end");
    let content = seen.concat();
    assert_eq!(reader.digest(), ContentDigest::of(&content));
    (seen, error)
}

fn read_span(file: &Arc<File>, span: Option<ByteSpan>, limits: ReadLimits) -> Vec<Vec<u8>> {
    let mut reader =
        RecordReader::open(Arc::clone(file), Compression::Plain, span, limits).unwrap();
    let (seen, error) = drain(&mut reader);
    assert!(error.is_none(), "{error:?}");
    seen
}

/// The slow reference: the records of `content` that start in `span`.
fn twin(content: &[u8], span: ByteSpan) -> Vec<Vec<u8>> {
    let mut start = 0;
    let mut seen = Vec::new();
    for record in content.split_inclusive(|&byte| byte == b'\n') {
        if (span.start..span.end).contains(&start) {
            seen.push(record.to_vec());
        }
        start += record.len() as u64;
    }
    seen
}

fn all(content: &[u8]) -> Vec<Vec<u8>> {
    twin(content, ByteSpan::ALL)
}

#[test]
fn bytes_come_through_unchanged() {
    for content in [
        &b""[..],
        b"\n",
        b"\n\n\n",
        b"a",
        b"a\n",
        b"a\r\nb\r\n",
        b"\xff\xfe\0\n\0\n\x80",
        b"a long line and then\n\n a short one",
    ] {
        let file = file_of(content);
        assert_eq!(read_span(&file, None, TINY), all(content));
        assert_eq!(read_span(&file, None, ReadLimits::default()), all(content));
    }
}

#[test]
fn a_span_of_nothing_is_empty() {
    let file = file_of(b"a\nb\n");
    for (start, end) in [(0, 0), (2, 2), (3, 1), (4, 9), (100, 200), (u64::MAX, u64::MAX)] {
        assert_eq!(read_span(&file, Some(ByteSpan { start, end }), TINY), [] as [&[u8]; 0]);
    }
}

#[test]
fn a_span_inside_of_a_record_reads_no_further_than_its_end() {
    let mut content = vec![b'x'; 3 << 20];
    content.push(b'\n');
    let file = file_of(&content);
    let span = Some(ByteSpan { start: 10, end: 20 });
    let limits = ReadLimits::default();
    let mut reader = RecordReader::open(file, Compression::Plain, span, limits).unwrap();
    assert!(reader.next_block().unwrap().is_none());
    assert_eq!(reader.stored_bytes_read(), 11);
}

#[test]
fn a_span_reads_little_behind_its_end() {
    let content = b"123456789\n".repeat(1 << 20);
    let file = file_of(&content);
    let span = Some(ByteSpan { start: 0, end: 1001 });
    let limits = ReadLimits::default();
    let mut reader = RecordReader::open(file, Compression::Plain, span, limits).unwrap();
    assert_eq!(drain(&mut reader).0.len(), 101);
    assert!(reader.stored_bytes_read() <= 1001 + crate::limits::OVERHANG_BYTES as u64);
}

#[test]
fn readers_share_a_file() {
    let file = file_of(b"1\n2\n3\n4\n5\n6\n");
    let open = |start, end| {
        let span = Some(ByteSpan { start, end });
        RecordReader::open(Arc::clone(&file), Compression::Plain, span, TINY).unwrap()
    };
    let (mut a, mut b) = (open(0, 6), open(6, 12));
    assert_eq!(a.next_block().unwrap(), Some(&b"1\n2\n"[..]));
    assert_eq!(b.next_block().unwrap(), Some(&b"4\n5\n"[..]));
    assert_eq!(a.next_block().unwrap(), Some(&b"3\n"[..]));
    assert_eq!(b.next_block().unwrap(), Some(&b"6\n"[..]));
}

#[test]
fn a_long_line_passes_and_its_buffer_goes() {
    let mut content = b"head\n".to_vec();
    content.resize(100_000_000, b'x');
    content.extend_from_slice(b"\ntail");
    let file = file_of(&content);
    let mut reader =
        RecordReader::open(file, Compression::Plain, None, ReadLimits::default()).unwrap();
    let mut lengths = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        lengths.extend(records(block).map(<[u8]>::len));
        assert!(reader.buffer.len() <= 2 * content.len());
    }
    assert_eq!(lengths, [5, 100_000_000 - 5 + 1, 4]);
    assert_eq!(reader.digest(), ContentDigest::of(&content));
}

#[test]
fn a_buffer_grown_for_one_record_is_given_back() {
    let mut content = vec![b'x'; 4096];
    content.extend_from_slice(&b"\nshort".repeat(100));
    let limits = ReadLimits { block_bytes: 64, record_bytes_max: 1 << 20 };
    let mut reader =
        RecordReader::open(file_of(&content), Compression::Plain, None, limits).unwrap();
    reader.next_block().unwrap();
    assert!(reader.buffer.len() > 4096);
    while reader.next_block().unwrap().is_some() {}
    assert_eq!(reader.buffer.capacity(), 0);
}

#[test]
fn a_record_above_the_limit_is_an_error_behind_the_others() {
    let limits = ReadLimits { block_bytes: 4, record_bytes_max: 10 };
    let read = |content: &[u8]| {
        let mut reader =
            RecordReader::open(file_of(content), Compression::Plain, None, limits).unwrap();
        let result = drain(&mut reader);
        assert!(reader.buffer.capacity() <= 11);
        result
    };
    for fits in [&b"123456789\nab\n"[..], b"1234567890", b"ab\n1234567890", b"ab\n123456789\n"] {
        let (seen, error) = read(fits);
        assert_eq!(seen, all(fits));
        assert!(error.is_none());
    }
    for too_long in [&b"ab\n1234567890\ncd\n"[..], b"ab\n12345678901", b"ab\n1234567890123456\n"] {
        let (seen, error) = read(too_long);
        assert_eq!(seen, [b"ab\n"]);
        let error = error.unwrap();
        assert_eq!(error.cause(), "record_too_long");
        assert_eq!(
            error.to_string(),
            "record at byte 3 of the content is longer than the limit of 10 bytes"
        );
    }
}

#[test]
fn limits_of_nothing_are_read_as_one_byte() {
    let limits = ReadLimits { block_bytes: 0, record_bytes_max: 0 };
    assert_eq!(read_span(&file_of(b"\n\nx"), None, limits), [&b"\n"[..], b"\n", b"x"]);
}

#[test]
fn what_cannot_be_read_by_offset_is_an_error() {
    let directory = Arc::new(File::open(std::env::temp_dir()).unwrap());
    assert_eq!(
        Compression::of_file(&directory, std::path::Path::new("a.gz")).unwrap_err().cause(),
        "io"
    );
    let mut reader =
        RecordReader::open(directory, Compression::Plain, None, ReadLimits::default()).unwrap();
    let (seen, error) = drain(&mut reader);
    assert!(seen.is_empty());
    assert!(matches!(error, Some(ReadError::Io { offset: 0, .. })));
}

#[test]
fn readers_can_be_sent_to_threads() {
    fn check<T: Send>() {}
    check::<RecordReader>();
}

/// Bytes with many line ends.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => Just(b'\n'), 1 => Just(b'\r'), 1 => Just(0), 5 => Just(b'a'), 3 => any::<u8>()
    ];
    prop_oneof![4 => vec(byte, 0..120), 1 => vec(Just(b'\n'), 0..20)]
}

proptest! {
    #[test]
    fn any_span_equals_its_twin(
        content in content(), start in 0..130u64, end in 0..130u64, block_bytes in 1..20usize
    ) {
        let span = ByteSpan { start, end };
        let limits = ReadLimits { block_bytes, ..ReadLimits::default() };
        let file = file_of(&content);
        prop_assert_eq!(read_span(&file, Some(span), limits), twin(&content, span));
    }

    /// If zero bytes and line ends are exchanged and records end with zero bytes, the result is the
    /// same.
    #[test]
    fn zero_bytes_end_records_as_line_ends_do(
        content in content(), start in 0..130u64, end in 0..130u64, block_bytes in 1..20usize
    ) {
        let exchange = |bytes: &[u8]| -> Vec<u8> {
            let exchange = |byte: &u8| match byte {
                0 => b'\n',
                b'\n' => 0,
                other => *other,
            };
            bytes.iter().map(exchange).collect()
        };
        let span = ByteSpan { start, end };
        let limits = ReadLimits { block_bytes, ..ReadLimits::default() };
        let file = file_of(&exchange(&content));
        let mut reader = RecordReader::open(file, Compression::Plain, Some(span), limits).unwrap().ending(0);
        let mut seen = Vec::new();
        while reader.next_block().unwrap().is_some() {
            seen.extend(reader.block_records().map(|(_, record)| exchange(record)));
        }
        prop_assert_eq!(seen, twin(&content, span));
    }

    #[test]
    fn spans_tile(content in content(), mut cuts in vec(0..130u64, 0..12)) {
        cuts.sort_unstable();
        cuts.insert(0, 0);
        cuts.push(130);
        let file = file_of(&content);
        let seen: Vec<Vec<u8>> = cuts
            .windows(2)
            .flat_map(|cut| {
                read_span(&file, Some(ByteSpan { start: cut[0], end: cut[1] }), TINY)
            })
            .collect();
        prop_assert_eq!(seen, all(&content));
    }

    #[test]
    fn spans_of_one_byte_tile(content in content()) {
        let file = file_of(&content);
        let seen: Vec<Vec<u8>> = (0..content.len() as u64)
            .flat_map(|at| read_span(&file, Some(ByteSpan { start: at, end: at + 1 }), TINY))
            .collect();
        prop_assert_eq!(seen, all(&content));
    }

    #[test]
    fn limits_do_not_depend_on_blocks(
        content in content(), block_bytes in 1..20usize, record_bytes_max in 1..12usize
    ) {
        let limits = ReadLimits { block_bytes, record_bytes_max };
        let mut reader =
            RecordReader::open(file_of(&content), Compression::Plain, None, limits).unwrap();
        let (seen, error) = drain(&mut reader);
        let expected: Vec<Vec<u8>> = all(&content);
        let short = expected.iter().take_while(|record| record.len() <= record_bytes_max).count();
        prop_assert_eq!(&seen[..], &expected[..short]);
        prop_assert_eq!(error.is_some(), short < expected.len());
    }
}
