//! Compressed files: concatenated members and frames, padding, truncation at every byte, damage.
//!
//! The tests create the files with the encoders of each format; none is stored.

use std::io::Write;

use flate2::write::GzEncoder;
use proptest::collection::vec;
use proptest::prelude::*;

use super::reader_test::{drain, file_of};
use super::*;

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// One frame, with a checksum if the content is of odd length.
fn zstd_frame(content: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(content.len() % 2 == 1).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn skippable(content: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(content.len()).unwrap();
    [&[0x53, 0x2a, 0x4d, 0x18], &bytes.to_le_bytes()[..], content].concat()
}

fn xz(content: &[u8], preset: u32) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), preset);
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// One frame, whose blocks depend on each other if the content is of odd length.
fn lz4(content: &[u8]) -> Vec<u8> {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let modes = [BlockMode::Independent, BlockMode::Linked];
    let info = FrameInfo::new().block_size(BlockSize::Max64KB).content_checksum(true);
    let info = info.block_mode(modes[content.len() % 2]);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn pack(compression: Compression, content: &[u8]) -> Vec<u8> {
    match compression {
        Compression::Plain => content.to_vec(),
        Compression::Gzip => gzip(content),
        Compression::Zstd => zstd_frame(content),
        Compression::Xz => xz(content, 6),
        Compression::Bzip2 => {
            let fastest = bzip2::Compression::fast();
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), fastest);
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Lz4 => lz4(content),
    }
}

fn read(
    compression: Compression,
    stored: &[u8],
    limits: ReadLimits,
) -> (Vec<u8>, Option<ReadError>) {
    let mut reader = RecordReader::open(file_of(stored), compression, None, limits).unwrap();
    let (seen, error) = drain(&mut reader);
    if error.is_none() {
        assert_eq!(reader.stored_bytes_read(), stored.len() as u64);
    }
    (seen.concat(), error)
}

fn read_all(compression: Compression, stored: &[u8]) -> (Vec<u8>, Option<ReadError>) {
    read(compression, stored, ReadLimits::default())
}

/// The whole records of `content`.
fn whole_records(content: &[u8]) -> &[u8] {
    &content[..memrchr(b'\n', content).map_or(0, |at| at + 1)]
}

const SMALL_BLOCKS: ReadLimits = ReadLimits { block_bytes: 7, record_bytes_max: 1 << 20 };

pub(crate) const PACKED: [Compression; 5] =
    [Compression::Gzip, Compression::Zstd, Compression::Xz, Compression::Bzip2, Compression::Lz4];

/// Lines that compress to about a third, `bytes` of them or a little more.
fn lines(bytes: usize) -> Vec<u8> {
    let mut content = Vec::new();
    let mut state = 1u64;
    while content.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        writeln!(content, "line {} with the value {}", content.len(), state >> 40).unwrap();
    }
    content
}

#[test]
fn members_and_frames_follow_one_another() {
    let content = lines(700_000);
    for compression in PACKED {
        for pieces in [1, 2, 5, 40] {
            let stored: Vec<u8> = content
                .chunks(content.len() / pieces + 1)
                .flat_map(|piece| [pack(compression, piece), pack(compression, b"")].concat())
                .collect();
            assert_eq!(Compression::detect(&stored), compression);
            let (seen, error) = read_all(compression, &stored);
            assert!(error.is_none(), "{error:?}");
            assert!(seen == content);
        }
    }
}

#[test]
fn a_file_may_end_with_a_full_block() {
    for compression in PACKED {
        for content in [&b"a\n"[..], b"abc\n\n"] {
            let limits = ReadLimits { block_bytes: content.len(), ..ReadLimits::default() };
            let (seen, error) = read(compression, &pack(compression, content), limits);
            assert_eq!(seen, content);
            assert!(error.is_none(), "{error:?}");
        }
    }
}

#[test]
fn content_may_be_empty() {
    for compression in PACKED {
        let (seen, error) = read_all(compression, &pack(compression, b""));
        assert!(seen.is_empty() && error.is_none());
        let (_, error) = read_all(compression, b"");
        assert!(matches!(error, Some(ReadError::Truncated { content_offset: 0, .. })));
    }
}

#[test]
fn zero_padding_behind_gzip_is_ignored_and_other_bytes_are_damage() {
    let member = gzip(b"a\nb");
    for zeros in [1, 7, 512, 300_000] {
        let (seen, error) = read_all(Compression::Gzip, &[&member[..], &vec![0; zeros]].concat());
        assert_eq!(seen, b"a\nb");
        assert!(error.is_none());
    }
    for garbage in [&b"x"[..], b"\0x", b"\x1f\x8c", b"plain text\n", b"\0\0\x1f\x8b\x08"] {
        let (seen, error) = read_all(Compression::Gzip, &[&member[..], garbage].concat());
        assert_eq!(seen, b"a\n", "a last record in front of damage is not known to be whole");
        assert!(matches!(error, Some(ReadError::Corrupt { content_offset: 3, .. })), "{error:?}");
    }
    let (_, error) = read_all(Compression::Gzip, &[&member[..], b"\x1f"].concat());
    assert_eq!(error.unwrap().cause(), "truncated");
}

#[test]
fn skippable_frames_are_skipped_and_other_bytes_are_damage() {
    let parts = [
        skippable(b""),
        zstd_frame(b"a\nb"),
        skippable(&[7; 300_000]),
        zstd_frame(b"c\n"),
        skippable(b"end"),
    ];
    let (seen, error) = read_all(Compression::Zstd, &parts.concat());
    assert_eq!(seen, b"a\nbc\n");
    assert!(error.is_none(), "{error:?}");
    let (seen, error) = read_all(Compression::Zstd, &skippable(b"only"));
    assert!(seen.is_empty() && error.is_none());
    let stored = [&parts[1][..], b"garbage\n"].concat();
    let (seen, error) = read_all(Compression::Zstd, &stored);
    assert_eq!(seen, b"a\n");
    assert!(matches!(error, Some(ReadError::Corrupt { content_offset: 3, .. })), "{error:?}");
}

#[test]
fn padding_of_xz_is_passed_over_and_other_bytes_are_damage() {
    let stream = pack(Compression::Xz, b"a\nb");
    let padded = [&stream[..], &[0; 8], &stream, &[0; 4]].concat();
    let (seen, error) = read_all(Compression::Xz, &padded);
    assert_eq!(seen, b"a\nba\nb");
    assert!(error.is_none(), "{error:?}");
    for compression in [Compression::Xz, Compression::Bzip2, Compression::Lz4] {
        let stored = [&pack(compression, b"a\nb")[..], b"garbage that is long enough"].concat();
        let (seen, error) = read_all(compression, &stored);
        assert_eq!(seen, b"a\n");
        assert_eq!(error.unwrap().cause(), "corrupt", "{compression}");
    }
}

#[test]
fn skippable_frames_of_lz4_are_skipped() {
    let parts = [lz4(b"a\nb"), skippable(&[7; 300_000]), lz4(b"c\n"), skippable(b"end")];
    let (seen, error) = read_all(Compression::Lz4, &parts.concat());
    assert_eq!(seen, b"a\nbc\n");
    assert!(error.is_none(), "{error:?}");
    let stored = parts.concat();
    let (_, error) = read_all(Compression::Lz4, &stored[..stored.len() - 1]);
    assert_eq!(error.unwrap().cause(), "truncated");
}

#[test]
fn a_file_cut_anywhere_gives_its_whole_records_and_an_error() {
    let mut content = lines(400);
    // Long runs, which the decoders hold back, and an odd length.
    content.resize((content.len() + 2000) | 1, b'x');
    *content.last_mut().unwrap() = b'\n';
    for compression in PACKED {
        let stored = pack(compression, &content);
        for cut in 0..stored.len() {
            let (seen, error) = read_all(compression, &stored[..cut]);
            let in_small_blocks = read(compression, &stored[..cut], SMALL_BLOCKS);
            assert_eq!(format!("{:?}", (&seen, &error)), format!("{in_small_blocks:?}"));
            assert!(content.starts_with(&seen), "cut at {cut}");
            assert!(whole_records(&seen) == seen);
            match error {
                Some(ReadError::Truncated { content_offset, compression: reported }) => {
                    let decoded = usize::try_from(content_offset).unwrap();
                    assert_eq!(seen, whole_records(&content[..decoded]), "cut at {cut}");
                    assert_eq!(reported, compression);
                }
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
        // Only the checksum is incomplete: all content is there.
        let (seen, error) = read_all(compression, &stored[..stored.len() - 1]);
        assert!(seen == content && error.is_some());
    }
}

#[test]
fn records_in_front_of_damage_are_delivered() {
    let content = lines(3_000_000);
    for compression in PACKED {
        let mut stored = pack(compression, &content);
        let middle = stored.len() / 2;
        stored[middle..middle + 300].fill(0xff);
        let (seen, error) = read_all(compression, &stored);
        assert!(read(compression, &stored, SMALL_BLOCKS).0 == seen);
        let Some(ReadError::Corrupt { content_offset, stored_offset, .. }) = error else {
            panic!("{error:?}");
        };
        assert!(stored_offset >= middle as u64 - 130_000);
        assert!(content_offset >= seen.len() as u64);
        assert!(whole_records(&seen) == seen);
        // All content before the damaged block, which has at most 128 KiB, is correct.
        let agree = seen.iter().zip(&content).take_while(|(a, b)| a == b).count();
        assert!(agree > 1_350_000 - (128 << 10), "{compression}: {agree} bytes of 1.5 MB");
    }
}

#[test]
fn a_wrong_checksum_is_found() {
    for compression in PACKED {
        let mut stored = pack(compression, b"one\ntwo\nthree");
        // In gzip the length is stored last; in bzip2 a few unused bits may be.
        let last = stored.len()
            - match compression {
                Compression::Gzip => 5,
                Compression::Bzip2 => 2,
                _ => 1,
            };
        stored[last] ^= 1;
        let (seen, error) = read_all(compression, &stored);
        assert_eq!(seen, b"one\ntwo\n");
        assert_eq!(error.unwrap().cause(), "corrupt");
    }
}

#[test]
fn a_window_that_is_too_large_is_named() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(28).unwrap();
    encoder.write_all(b"a\n").unwrap();
    encoder.flush().unwrap();
    let (_, error) = read_all(Compression::Zstd, &encoder.finish().unwrap());
    assert_eq!(
        error.unwrap().to_string(),
        "zstd file needs more than 128 MiB to unpack, after 0 bytes of content; write it with a \
         window of 128 MiB or less (zstd --long=27, xz -9)"
    );
    let xz_of = |dictionary: u32| {
        use liblzma::stream::{Check, Filters, LzmaOptions, Stream};
        let mut options = LzmaOptions::new_preset(0).unwrap();
        let options = options.dict_size(dictionary);
        let stream = Stream::new_stream_encoder(Filters::new().lzma2(options), Check::Crc32);
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream.unwrap());
        encoder.write_all(b"a\n").unwrap();
        encoder.finish().unwrap()
    };
    assert_eq!(read_all(Compression::Xz, &xz(b"a\n", 9)).0, b"a\n");
    assert_eq!(read_all(Compression::Xz, &xz_of(128 << 20)).0, b"a\n");
    let (seen, error) = read_all(Compression::Xz, &xz_of(160 << 20));
    assert_eq!((seen.len(), error.unwrap().cause()), (0, "window_too_large"));
}

#[test]
fn spans_of_compressed_files_are_refused() {
    for compression in PACKED {
        let span = Some(ByteSpan { start: 0, end: 1 });
        let error = RecordReader::open(file_of(b""), compression, span, ReadLimits::default());
        assert_eq!(error.unwrap_err().cause(), "span_of_compressed");
    }
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![1 => Just(b'\n'), 4 => any::<u8>(), 4 => Just(b'a')], 0..400)
}

proptest! {
    #[test]
    fn packed_content_comes_back(
        pieces in vec(content(), 1..5), block_bytes in 1..300usize, packing in 0..PACKED.len()
    ) {
        let compression = PACKED[packing];
        let stored: Vec<u8> = pieces.iter().flat_map(|piece| pack(compression, piece)).collect();
        let limits = ReadLimits { block_bytes, ..ReadLimits::default() };
        let (seen, error) = read(compression, &stored, limits);
        prop_assert!(error.is_none(), "{:?}", error);
        prop_assert_eq!(seen, pieces.concat());
    }

    #[test]
    fn a_cut_is_detected_unless_between_members(
        pieces in vec(content(), 1..4),
        cut in any::<prop::sample::Index>(),
        packing in 0..PACKED.len()
    ) {
        let compression = PACKED[packing];
        let packed: Vec<Vec<u8>> = pieces.iter().map(|piece| pack(compression, piece)).collect();
        let stored = packed.concat();
        let cut = cut.index(stored.len());
        let mut end = 0;
        let is_between = packed.iter().any(|part| { end += part.len(); end == cut });
        let limits = ReadLimits { block_bytes: 7, ..ReadLimits::default() };
        let (seen, error) = read(compression, &stored[..cut], limits);
        prop_assert!(pieces.concat().starts_with(&seen));
        prop_assert_eq!(error.is_none(), is_between);
        prop_assert!(is_between || whole_records(&seen) == seen);
    }

    #[test]
    fn no_bytes_make_it_panic(
        content in content(), flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        packing in 0..PACKED.len()
    ) {
        let compression = PACKED[packing];
        let mut stored = pack(compression, &content);
        for (at, byte) in flips {
            let at = at.index(stored.len());
            stored[at] ^= byte;
        }
        let (seen, error) = read_all(compression, &stored);
        prop_assert!(error.is_none() || whole_records(&seen) == seen);
    }
}
