//! The naive model: what `umbel dedup` must keep and report, computed with a map in a few lines.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Which of equal records is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    First,
    Last,
}

/// The expected result.
pub(crate) struct Expected {
    /// The kept records of each file, with their bytes as read.
    pub(crate) files: Vec<Vec<u8>>,
    /// The report of dropped records.
    pub(crate) report: String,
    /// The number of records.
    pub(crate) records: u64,
    /// The number of dropped records.
    pub(crate) dropped: u64,
}

impl Expected {
    /// All files as one stream; a record without line end gets one if another record follows.
    pub(crate) fn stream(&self) -> Vec<u8> {
        let mut stream: Vec<u8> = Vec::new();
        for file in self.files.iter().filter(|file| !file.is_empty()) {
            if stream.last().is_some_and(|last| *last != b'\n') {
                stream.push(b'\n');
            }
            stream.extend(file);
        }
        stream
    }
}

/// Deduplicates lines of files by their bytes.
pub(crate) fn by_line(files: &[(&str, Vec<u8>)], keep: Keep) -> Expected {
    let mut kept_of: BTreeMap<&[u8], (usize, usize)> = BTreeMap::new();
    let records: Vec<Vec<&[u8]>> = files.iter().map(|(_, bytes)| records(bytes)).collect();
    let places =
        || (0..files.len()).flat_map(|file| (0..records[file].len()).map(move |r| (file, r)));
    let item = |(file, record): (usize, usize)| {
        let line = records[file][record];
        line.strip_suffix(b"\n").unwrap_or(line)
    };
    for place in places() {
        let kept = kept_of.entry(item(place)).or_insert(place);
        if keep == Keep::Last {
            *kept = place;
        }
    }
    let mut expected = Expected {
        files: vec![Vec::new(); files.len()],
        report: String::new(),
        records: 0,
        dropped: 0,
    };
    for place @ (file, record) in places() {
        expected.records += 1;
        let kept @ (kept_file, kept_record) = kept_of[item(place)];
        if kept == place {
            expected.files[file].extend(records[file][record]);
            continue;
        }
        expected.dropped += 1;
        let (name, kept_name) = (files[file].0, files[kept_file].0);
        let (number, kept_number) = (record + 1, kept_record + 1);
        writeln!(
            expected.report,
            "{{\"file\":\"{name}\",\"record\":{number},\"part\":null,\"kept_file\":\"{kept_name}\",\
             \"kept_record\":{kept_number},\"kept_part\":null,\"cause\":\"input\",\"score\":null}}"
        )
        .unwrap();
    }
    expected
}

fn records(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Pseudo-random numbers (splitmix64), the same in every run.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Lines of all lengths, about half of them repeats; some have bytes that are not text.
pub(crate) fn lines(seed: u64, count: u64) -> Vec<u8> {
    let mut draws = Draws(seed);
    let mut bytes = Vec::new();
    for _ in 0..count {
        let number = draws.below(count * 3 / 5);
        match number % 50 {
            0 => bytes.extend([0xff, 0xfe, 0x00]),
            1 => bytes.extend(b"\tline\r"),
            2 => bytes.extend(vec![b'x'; 300]),
            3 if number < 1000 => {
                bytes.push(b'\n');
                continue;
            }
            _ => {}
        }
        bytes.extend(number.to_string().into_bytes());
        bytes.push(b'\n');
    }
    bytes
}

/// Lines that rarely repeat and hardly compress.
pub(crate) fn unlike_lines(seed: u64, count: u64) -> Vec<u8> {
    let mut draws = Draws(seed);
    let mut text = String::new();
    for _ in 0..count {
        let _ = writeln!(text, "{:016x}{:016x}", draws.next(), draws.next());
    }
    text.into_bytes()
}
