//! The journal of a worker: an append-only file of records.
//!
//! ```text
//! record:  | "UJ" | kind u8 | 0 | sequence u32 | length u32 | body | crc32c u32 |     integers little-endian
//! ```
//! The checksum covers everything before it in the record. A crash can damage only the last record. So a bad
//! record that no good one follows is the result of a crash, and is truncated; one that good records follow
//! is an error.

use super::folder::{JOURNAL_MAGIC, crc32c, open_file};
use crate::error::{Context, Result, bail};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes before a body.
const HEAD_BYTES: usize = 12;

/// Bytes of a checksum.
const CRC_BYTES: usize = 4;

/// Largest body. The longest one is the list of a worker's inputs; that of a million inputs fits.
const BODY_BYTES_MAX: usize = 1 << 30;

/// A record as stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RawRecord {
    /// Its kind, a number chosen by the caller.
    pub(super) kind: u8,
    /// Its content.
    pub(super) body: Vec<u8>,
}

/// A journal, open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
    next_sequence: u32,
    /// Whether an append has failed: then the file's content is unknown until it is read again.
    is_broken: bool,
}

fn encode(kind: u8, sequence: u32, body: &[u8], bytes: &mut Vec<u8>) {
    let start = bytes.len();
    let length = u32::try_from(body.len()).expect("checked against the largest body");
    bytes.extend(JOURNAL_MAGIC);
    bytes.extend([kind, 0]);
    bytes.extend(sequence.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend_from_slice(body);
    let crc = crc32c(&bytes[start..]);
    bytes.extend(crc.to_le_bytes());
}

/// The record at the beginning of these bytes, its sequence number and its length on disk; `None` unless it is complete
/// and undamaged.
fn decode(bytes: &[u8]) -> Option<(RawRecord, u32, usize)> {
    let head = bytes.get(..HEAD_BYTES)?;
    let word = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let (sequence, length) = (word(4)?, usize::try_from(word(8)?).ok()?);
    if head[..2] != JOURNAL_MAGIC || length > BODY_BYTES_MAX {
        return None;
    }
    let crc_at = HEAD_BYTES + length;
    let crc = u32::from_le_bytes(*bytes.get(crc_at..)?.first_chunk()?);
    (crc32c(&bytes[..crc_at]) == crc).then(|| {
        let body = bytes[HEAD_BYTES..crc_at].to_vec();
        (RawRecord { kind: head[2], body }, sequence, crc_at + CRC_BYTES)
    })
}

impl Journal {
    /// Opens the journal, creating it if it does not exist, and reads its records. Truncates an incomplete end.
    ///
    /// # Errors
    ///
    /// Names file and byte of damage.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<RawRecord>)> {
        let cannot = || format!("{}: cannot open", path.display());
        let file = open_file(path)?;
        let bytes =
            std::fs::read(path).with_context(|| format!("{}: cannot read", path.display()))?;
        let mut records = Vec::new();
        let mut at = 0;
        let mut next_sequence = 0u32;
        while let Some((record, sequence, length)) = decode(&bytes[at..]) {
            if sequence != next_sequence {
                bail!(
                    "{}: record at byte {at} has number {sequence}, expected {next_sequence}",
                    path.display()
                );
            }
            records.push(record);
            next_sequence += 1;
            at += length;
        }
        if at < bytes.len() {
            if holds_record_from(&bytes[at..], next_sequence) {
                bail!(
                    "{}: damaged at byte {at}: remove the folder and start the job again",
                    path.display()
                );
            }
            file.set_len(at as u64).and_then(|()| file.sync_all()).with_context(cannot)?;
        }
        let (path, length) = (path.to_owned(), at as u64);
        Ok((Self { path, file, length, next_sequence, is_broken: false }, records))
    }

    /// Appends records; they are durable on return. After a crash, a prefix of them may be there.
    ///
    /// # Errors
    ///
    /// The I/O error, with the path. All later appends fail, too.
    pub(super) fn append<'a>(
        &mut self,
        records: impl IntoIterator<Item = (u8, &'a [u8])>,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        let mut sequence = self.next_sequence;
        for (kind, body) in records {
            if body.len() > BODY_BYTES_MAX {
                let (path, length) = (self.path.display(), body.len());
                bail!("{path}: a record of {length} bytes, at most {BODY_BYTES_MAX} are possible");
            }
            encode(kind, sequence, body, &mut bytes);
            sequence += 1;
        }
        if self.is_broken {
            bail!("{}: an earlier write has failed", self.path.display());
        }
        self.is_broken = true;
        let written = self.file.write_all_at(&bytes, self.length);
        written.and_then(|()| self.file.sync_data()).with_context(|| {
            format!("{}: cannot write {} bytes", self.path.display(), bytes.len())
        })?;
        self.is_broken = false;
        self.length += bytes.len() as u64;
        self.next_sequence = sequence;
        Ok(())
    }

    /// Length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.length
    }
}

/// Whether the bytes contain an undamaged record with this number or a greater one.
fn holds_record_from(bytes: &[u8], sequence: u32) -> bool {
    let starts = bytes.windows(2).enumerate().filter(|(_, window)| *window == JOURNAL_MAGIC);
    let mut found = starts.filter_map(|(at, _)| decode(&bytes[at..]));
    found.any(|(_, found, _)| found >= sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies() -> Vec<(u8, Vec<u8>)> {
        [&b"opened"[..], b"", b"a longer one, with UJ in it", b"last"]
            .into_iter()
            .zip(1u8..)
            .map(|(body, kind)| (kind, body.to_vec()))
            .collect()
    }

    fn written(path: &Path) -> Vec<u8> {
        let (mut journal, found) = Journal::open(path).unwrap();
        assert!(found.is_empty());
        for (kind, body) in bodies() {
            journal.append([(kind, &body[..])]).unwrap();
        }
        std::fs::read(path).unwrap()
    }

    #[test]
    fn a_torn_end_is_cut_at_every_byte_and_the_journal_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let whole = written(&path);
        let ends: Vec<usize> = bodies()
            .iter()
            .scan(0, |end, (_, body)| {
                *end += HEAD_BYTES + body.len() + CRC_BYTES;
                Some(*end)
            })
            .collect();
        for length in 0..=whole.len() {
            // A crash may also leave zeros after the last record.
            for zeros in [0, 40] {
                let mut torn = whole[..length].to_vec();
                torn.resize(length + zeros, 0);
                std::fs::write(&path, &torn).unwrap();
                let (mut journal, found) = Journal::open(&path).unwrap();
                assert_eq!(found.len(), ends.iter().filter(|end| **end <= length).count());
                journal.append([(9, &b"new"[..])]).unwrap();
                drop(journal);
                let (_, again) = Journal::open(&path).unwrap();
                assert_eq!(again[..found.len()], found[..]);
                assert_eq!(again[found.len()..], [RawRecord { kind: 9, body: b"new".into() }]);
            }
        }
    }

    #[test]
    fn damage_before_the_last_record_is_named_whichever_byte_it_hits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let whole = written(&path);
        let last = HEAD_BYTES + b"last".len() + CRC_BYTES;
        for at in 0..whole.len() - last {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            std::fs::write(&path, &damaged).unwrap();
            let error = Journal::open(&path).unwrap_err().to_string();
            assert!(error.contains("journal: damaged at byte"), "{error}");
            let named: usize =
                error.split("byte ").nth(1).unwrap().split(':').next().unwrap().parse().unwrap();
            assert!(named <= at, "{error}");
        }
    }
}
