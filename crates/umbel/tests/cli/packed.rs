//! Compressed inputs and outputs: detected by content, and written as the name or the input demands.

use crate::model::{Keep, by_line, lines};
use crate::sandbox::Sandbox;
use std::io::{Read, Write};

pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(content: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn gunzip(packed: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    flate2::read::MultiGzDecoder::new(packed).read_to_end(&mut content).unwrap();
    content
}

pub(crate) fn unzstd(packed: &[u8]) -> Vec<u8> {
    zstd::decode_all(packed).unwrap()
}

pub(crate) fn xz(content: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn bzip2(content: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn lz4(content: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// The content of a compressed file, by the reference decoders.
pub(crate) fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    match packed {
        [0x1f, 0x8b, ..] => return gunzip(packed),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => return unzstd(packed),
        [0xfd, b'7', ..] => {
            liblzma::read::XzDecoder::new_multi_decoder(packed).read_to_end(&mut content)
        }
        [b'B', b'Z', b'h', ..] => {
            bzip2::read::MultiBzDecoder::new(packed).read_to_end(&mut content)
        }
        [0x04, 0x22, 0x4d, 0x18, ..] => {
            lz4_flex::frame::FrameDecoder::new(packed).read_to_end(&mut content)
        }
        _ => return packed.to_vec(),
    }
    .unwrap();
    content
}

/// A compression: the first bytes of its files, their extension, and a function that compresses.
type Packing = (&'static [u8], &'static str, fn(&[u8]) -> Vec<u8>);

const LESS_USUAL: [Packing; 3] =
    [(b"\xfd7zXZ\0", "xz", xz), (b"BZh", "bz2", bzip2), (b"\x04\x22\x4d\x18", "lz4", lz4)];

#[test]
fn xz_bzip2_and_lz4_are_read_by_content_and_written_by_name() {
    for (magic, end, pack) in LESS_USUAL {
        let content = lines(3, 40_000);
        let sandbox = Sandbox::with(&[("in/a.txt", pack(&content)), ("in/b.jsonl", pack(b""))]);
        let expected = by_line(&[("in/a.txt", content)], Keep::First).stream();
        assert!(sandbox.run("in/a.txt").kept() == expected, "{end}");
        // Compressed like the input, whatever its name.
        sandbox.run("in/a.txt --output out/").kept();
        let packed = sandbox.read("out/a.txt");
        assert!(packed.starts_with(magic) && unpack(&packed) == expected, "{end}");
        sandbox.run(&format!("in/a.txt --output out.{end}")).kept();
        let packed = sandbox.read(format!("out.{end}"));
        assert!(packed.starts_with(magic) && unpack(&packed) == expected, "{end}");
    }
}

#[test]
fn a_packed_file_of_json_lines_is_told_by_its_name() {
    for (_, end, pack) in LESS_USUAL {
        let name = format!("a.jsonl.{end}");
        let sandbox = Sandbox::with(&[(&name[..], pack(b"{\"a\":1}\n{ \"a\": 1 }\n"))]);
        assert_eq!(sandbox.run(&format!("{name} --key a")).kept_text(), "{\"a\":1}\n");
    }
}

#[test]
fn damage_and_cuts_of_the_less_usual_packings_are_bad_input() {
    for (_, end, pack) in LESS_USUAL {
        let packed = pack(&lines(5, 60_000));
        let sandbox = Sandbox::with(&[("cut", &packed[..packed.len() - 3]), ("good", b"x\n")]);
        sandbox.run("cut good --output out").refused(1, &["cut", "cut off"]);
        assert!(!sandbox.exists("out"), "{end}");
        sandbox.run("cut good --output out --skip-bad --bad bad").ended_with(3);
        assert!(sandbox.text("bad").contains("\"cause\":\"truncated\""), "{end}");
        assert!(sandbox.read("out").ends_with(b"x\n"), "{end}");
    }
}

#[test]
fn plain_gzip_and_zstd_are_read_together() {
    let content = [lines(1, 2000), lines(2, 2000), lines(1, 1000)];
    let names = ["a.txt", "b.txt.gz", "c.txt.zst"];
    let [a, b, c] = &content;
    let sandbox = Sandbox::with(&[(names[0], a), (names[1], &gzip(b)), (names[2], &zstd(c))]);
    let input: Vec<(&str, Vec<u8>)> = names.into_iter().zip(content.clone()).collect();
    let expected = by_line(&input, Keep::First);
    for workers in [1, 3, 8] {
        let args =
            format!("{} --workers {workers} --duplicates d.jsonl --overwrite", names.join(" "));
        assert!(sandbox.run(&args).kept() == expected.stream(), "{args}");
        assert!(sandbox.text("d.jsonl") == expected.report, "{args}");
    }
}

#[test]
fn members_and_frames_in_a_row_are_one_content() {
    let sandbox = Sandbox::with(&[
        ("a.gz", [gzip(b"a\nsplit "), gzip(b""), gzip(b"line\na\n")].concat()),
        ("b.zst", [zstd(b"b\nsplit "), zstd(b""), zstd(b"line\nb\n")].concat()),
    ]);
    assert_eq!(sandbox.run("a.gz b.zst").kept_text(), "a\nsplit line\nb\n");
}

#[test]
fn content_tells_the_compression_and_not_the_name() {
    let sandbox = Sandbox::with(&[
        ("plain.gz", b"x\nplain\n".to_vec()),
        ("gzip.zst", gzip(b"x\ngzip\n")),
        ("zstd.txt", zstd(b"x\nzstd\n")),
    ]);
    let kept = sandbox.run("plain.gz gzip.zst zstd.txt").kept_text();
    assert_eq!(kept, "x\nplain\ngzip\nzstd\n");
}

#[test]
fn compressed_standard_input_is_unpacked() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run_piped("-", &gzip(b"x\nx\n")).kept_text(), "x\n");
    assert_eq!(sandbox.run_piped("-", &zstd(b"x\nx\n")).kept_text(), "x\n");
}

#[test]
fn an_empty_member_holds_no_record() {
    let sandbox = Sandbox::with(&[("a.gz", gzip(b"")), ("b.zst", zstd(b""))]);
    assert!(sandbox.run("a.gz b.zst").kept().is_empty());
}

#[test]
fn a_directory_of_outputs_has_the_paths_and_compressions_of_the_inputs() {
    let sandbox = Sandbox::with(&[
        ("in/a.txt", b"a\nx\na\n".to_vec()),
        ("in/deep/er/b.txt.gz", gzip(b"x\nb\nb\n")),
        ("in/deep/c.zst", zstd(b"c\nx\n")),
        ("in/not-packed.gz", b"x\nd\n".to_vec()),
        ("in/nothing.txt", Vec::new()),
        ("in/only-repeats.gz", gzip(b"x\na\n")),
    ]);
    assert!(sandbox.run("in --output out/ --workers 3").kept().is_empty());
    let inside = |root: &str| -> Vec<String> {
        let strip = |name: &String| name.strip_prefix(root).map(str::to_owned);
        sandbox.files().iter().filter_map(strip).collect()
    };
    assert_eq!(inside("out/"), inside("in/"));
    assert_eq!(sandbox.read("out/a.txt"), b"a\nx\n");
    assert_eq!(gunzip(&sandbox.read("out/deep/er/b.txt.gz")), b"b\n");
    assert_eq!(unzstd(&sandbox.read("out/deep/c.zst")), b"c\n");
    assert_eq!(sandbox.read("out/not-packed.gz"), b"d\n");
    assert_eq!(sandbox.read("out/nothing.txt"), b"");
    assert_eq!(gunzip(&sandbox.read("out/only-repeats.gz")), b"");
}

#[test]
fn the_name_of_an_output_file_chooses_its_compression() {
    let sandbox = Sandbox::with(&[("a.txt", "x\ny\nx\n")]);
    for (name, unpack) in [
        ("out.gz", gunzip as fn(&[u8]) -> Vec<u8>),
        ("out.zst", unzstd),
        ("out.txt", <[u8]>::to_vec),
    ] {
        assert!(sandbox.run(&format!("a.txt --output {name}")).kept().is_empty());
        assert_eq!(unpack(&sandbox.read(name)), b"x\ny\n", "{name}");
    }
}

#[test]
fn a_packed_report_and_summary_hold_what_plain_ones_hold() {
    let sandbox = Sandbox::with(&[("a.txt", "x\ny\nx\n")]);
    sandbox.run("a.txt --duplicates d.jsonl").kept();
    sandbox.run("a.txt --duplicates d.jsonl.gz --summary s.json.zst").kept();
    assert_eq!(gunzip(&sandbox.read("d.jsonl.gz")), sandbox.read("d.jsonl"));
    let summary: serde_json::Value =
        serde_json::from_slice(&unzstd(&sandbox.read("s.json.zst"))).unwrap();
    assert_eq!(summary["distinct"], 2);
}
