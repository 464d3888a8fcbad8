//! Encodes a content as its differences from an older version.
//!
//! The receiver, if it has an older version of a content, cuts that version into content-defined chunks
//! and sends a short hash of each. The sender cuts its content by the same rule and sends runs of chunk
//! numbers for the chunks that match, and the bytes of all others:
//!
//! ```text
//! | 0 | count | bytes |            so many bytes
//! | 1 + first | count |            so many chunks of the older version, from that one on
//! ```
//!
//! All numbers are LEB128. The hash of the whole content verifies the result.
//!
//! FastCDC: Xia et al., "The Design of Fast Content-Defined Chunking for Data Deduplication Based Storage Systems",
//! IEEE TPDS 31, 2020, doi:10.1109/TPDS.2020.2984632.

use crate::error::{Context, Result, bail, ensure};
use fastcdc::v2020::StreamCDC;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use umbel_bits::{LEB128_BYTES_MAX, Leb128, Leb128Error, put_leb128};
use umbel_filter::ItemHasher;

/// Maximum number of chunks of all older versions that one side may name: 80 MiB of hashes, which is 8 GiB of
/// small files.
pub(super) const CHUNKS_MAX: u64 = 1 << 24;

/// Bytes of a chunk's hash on the wire. A file has thousands of chunks; two of them collide in one file
/// of 10^5. The hash of the whole content detects that, and the next session uses another salt.
pub(super) const HASH_BYTES: usize = 5;

/// Approximate number of chunks of a file: with more, the hashes would cost more bytes than they save.
const CHUNKS: u64 = 4096;

/// Smallest average chunk size: five bytes of hash are a hundredth of it.
const AVERAGE_MIN: u32 = 512;

/// Largest average chunk size, so that a chunk fits in memory.
const AVERAGE_MAX: u32 = 1 << 20;

/// Bytes of a literal part, before it is written.
const LITERAL_BYTES: usize = 64 << 10;

/// An older version of a content, cut into chunks.
#[derive(Debug)]
pub(super) struct Basis {
    /// Opened anew for each chunk: there may be more older versions than the process may have open files.
    path: PathBuf,
    /// Start offset of each chunk, and the end of the last one.
    ends: Vec<u64>,
    pub(super) average: u32,
    pub(super) hashes: Vec<[u8; HASH_BYTES]>,
}

/// Average chunk size for a file of `bytes` bytes.
fn average_for(bytes: u64) -> u32 {
    let average = (bytes / CHUNKS).next_power_of_two();
    u32::try_from(average).unwrap_or(AVERAGE_MAX).clamp(AVERAGE_MIN, AVERAGE_MAX)
}

/// Whether a peer may request this average chunk size.
pub(super) fn is_average(average: u32) -> bool {
    average.is_power_of_two() && (AVERAGE_MIN..=AVERAGE_MAX).contains(&average)
}

fn cut(content: impl Read, average: u32) -> StreamCDC<impl Read> {
    let average = average as usize;
    StreamCDC::new(content, average / 4, average, average * 4)
}

fn hash(chunk: &[u8], salt: u64) -> [u8; HASH_BYTES] {
    let hash = ItemHasher::Xxh3 { seed: salt }.hash(chunk).hi().to_be_bytes();
    *hash.first_chunk().expect("eight bytes are more than five")
}

impl Basis {
    /// Cuts a file of `bytes` bytes into chunks.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub(super) fn of(path: PathBuf, bytes: u64, salt: u64) -> Result<Self> {
        let file = File::open(&path)?;
        let average = average_for(bytes);
        let (mut ends, mut hashes) = (vec![0], Vec::new());
        for chunk in cut(&file, average) {
            let chunk = chunk.map_err(io::Error::other)?;
            ends.push(chunk.offset + chunk.length as u64);
            hashes.push(hash(&chunk.data, salt));
        }
        Ok(Self { path, ends, average, hashes })
    }

    /// Reads chunk number `place`.
    fn chunk(&self, place: u64) -> Result<Vec<u8>> {
        let place = usize::try_from(place).ok().context(TOO_LONG)?;
        let bounds = self.ends.get(place..).and_then(|ends| ends.first_chunk());
        let &[start, end] = bounds.context("a chunk that there is not")?;
        let mut bytes = vec![0; usize::try_from(end - start).ok().context(TOO_LONG)?];
        File::open(&self.path)?.read_exact_at(&mut bytes, start)?;
        Ok(bytes)
    }
}

/// Writes a content as its differences from the chunks with these hashes.
///
/// # Errors
///
/// If the content cannot be read, or `out` not be written.
pub(super) fn write(
    content: &mut dyn Read,
    (average, salt): (u32, u64),
    hashes: &[[u8; HASH_BYTES]],
    out: &mut dyn Write,
) -> Result<()> {
    if hashes.is_empty() {
        return write_literally(content, out);
    }
    let mut places: BTreeMap<&[u8; HASH_BYTES], usize> = BTreeMap::new();
    for (place, hash) in hashes.iter().enumerate() {
        places.entry(hash).or_insert(place);
    }
    let (mut literal, mut run) = (Vec::new(), 0..0);
    for chunk in cut(content, average) {
        let chunk = chunk.map_err(io::Error::other)?;
        let hash = hash(&chunk.data, salt);
        // Prefer the chunk that continues the run over an equal one earlier in the file.
        let place = match hashes.get(run.end) {
            Some(next) if *next == hash && !run.is_empty() => Some(run.end),
            _ => places.get(&hash).copied(),
        };
        match place {
            Some(place) if place == run.end && !run.is_empty() => run.end += 1,
            Some(place) => {
                write_run(&mut run, out)?;
                write_literal(&mut literal, out)?;
                run = place..place + 1;
            }
            None => {
                write_run(&mut run, out)?;
                literal.extend_from_slice(&chunk.data);
                if literal.len() >= LITERAL_BYTES {
                    write_literal(&mut literal, out)?;
                }
            }
        }
    }
    write_run(&mut run, out)?;
    write_literal(&mut literal, out)
}

/// Writes a content for which there is no older version.
fn write_literally(content: &mut dyn Read, out: &mut dyn Write) -> Result<()> {
    let mut literal = Vec::new();
    while content.take(LITERAL_BYTES as u64).read_to_end(&mut literal)? > 0 {
        write_literal(&mut literal, out)?;
    }
    Ok(())
}

fn write_run(run: &mut std::ops::Range<usize>, out: &mut dyn Write) -> Result<()> {
    if run.start < run.end {
        write_number(run.start as u64 + 1, out)?;
        write_number((run.end - run.start) as u64, out)?;
    }
    *run = 0..0;
    Ok(())
}

fn write_literal(literal: &mut Vec<u8>, out: &mut dyn Write) -> Result<()> {
    if !literal.is_empty() {
        write_number(0, out)?;
        write_number(literal.len() as u64, out)?;
        out.write_all(literal)?;
        literal.clear();
    }
    Ok(())
}

/// Writes a number as LEB128.
pub(super) fn write_number(number: u64, out: &mut dyn Write) -> Result<()> {
    let mut bytes = Vec::with_capacity(LEB128_BYTES_MAX as usize);
    put_leb128(&mut bytes, number);
    Ok(out.write_all(&bytes)?)
}

/// Reads a LEB128 number.
pub(super) fn read_number(source: &mut dyn Read) -> Result<u64> {
    let mut number = Leb128::padded(LEB128_BYTES_MAX);
    loop {
        let mut byte = [0];
        source.read_exact(&mut byte)?;
        match number.push(byte[0]) {
            Ok(None) => {}
            Ok(Some(number)) => return Ok(number),
            Err(Leb128Error::TooLong { .. }) => bail!("a number of more than ten bytes"),
            Err(_) => bail!("a number above 2^64"),
        }
    }
}

/// Reassembles a content from the received parts and the older version.
pub(super) struct Patched<'p> {
    source: &'p mut dyn Read,
    basis: Option<&'p Basis>,
    /// Bytes of the content that the parts read so far do not cover.
    left: u64,
    /// Literal bytes that are still to be read from the source.
    literal_left: u64,
    /// Chunks of the older version that are still to be read.
    run: std::ops::Range<u64>,
    /// The chunk that is being read.
    chunk: io::Cursor<Vec<u8>>,
}

impl<'p> Patched<'p> {
    /// Reassembles a content of `bytes` bytes.
    pub(super) fn new(source: &'p mut dyn Read, basis: Option<&'p Basis>, bytes: u64) -> Self {
        let chunk = io::Cursor::default();
        Self { source, basis, left: bytes, literal_left: 0, run: 0..0, chunk }
    }

    fn next_part(&mut self) -> Result<()> {
        let kind = read_number(self.source)?;
        let count = read_number(self.source)?;
        ensure!(count > 0, "a part of nothing");
        match kind.checked_sub(1) {
            None => {
                self.left = self.left.checked_sub(count).context(TOO_LONG)?;
                self.literal_left = count;
            }
            Some(first) => {
                let end = first.checked_add(count).context("a run without end")?;
                self.run = first..end;
            }
        }
        Ok(())
    }

    /// Reads a single chunk: a run may be a whole file, too much to hold in memory.
    fn next_chunk(&mut self, place: u64) -> Result<()> {
        let basis = self.basis.context("chunks of a version that is not here")?;
        let bytes = basis.chunk(place)?;
        self.left = self.left.checked_sub(bytes.len() as u64).context(TOO_LONG)?;
        self.chunk = io::Cursor::new(bytes);
        Ok(())
    }
}

const TOO_LONG: &str = "more bytes than the content has";

impl Read for Patched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.chunk.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if let Some(place) = self.run.next() {
                self.next_chunk(place).map_err(io::Error::other)?;
            } else if self.literal_left > 0 {
                let count = self.source.take(self.literal_left).read(buffer)?;
                self.literal_left -= count as u64;
                return Ok(count);
            } else if self.left == 0 {
                return Ok(0);
            } else {
                self.next_part().map_err(io::Error::other)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Incompressible bytes.
    fn noise(bytes: usize, mut seed: u64) -> Vec<u8> {
        let mut noise = Vec::new();
        while noise.len() < bytes {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            noise.push(seed.to_be_bytes()[0]);
        }
        noise
    }

    fn basis(file: &tempfile::NamedTempFile, bytes: &[u8], salt: u64) -> Basis {
        std::fs::write(file.path(), bytes).unwrap();
        Basis::of(file.path().to_owned(), bytes.len() as u64, salt).unwrap()
    }

    fn encoded(new: &[u8], basis: &Basis, salt: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut &*new, (basis.average, salt), &basis.hashes, &mut out).unwrap();
        let mut read = Vec::new();
        let mut source = &*out;
        let length = new.len() as u64;
        Patched::new(&mut source, Some(basis), length).read_to_end(&mut read).unwrap();
        assert!(read == new && source.is_empty());
        out
    }

    #[test]
    fn an_edit_costs_the_chunks_that_it_touches() {
        let old = noise(100_000, 1);
        let file = tempfile::NamedTempFile::new().unwrap();
        let basis = basis(&file, &old, 5);
        let mut new = old.clone();
        new.splice(50_000..50_010, b"something else".iter().copied());
        assert!(encoded(&new, &basis, 5).len() < 4 * 512 * 2);
        assert!(encoded(&old, &basis, 5).len() < 10);
        assert!(encoded(&[&old[40_000..], &old[..40_000]].concat(), &basis, 5).len() < 4000);
        let other = noise(70_000, 2);
        assert!(encoded(&other, &basis, 5).len() < 70_100);
        assert!(encoded(&[], &basis, 5).is_empty());
    }

    #[test]
    fn repeated_chunks_go_on_with_their_run() {
        let old = [noise(20_000, 3), vec![0; 20_000], noise(20_000, 4)].concat();
        let file = tempfile::NamedTempFile::new().unwrap();
        let basis = basis(&file, &old, 5);
        assert!(encoded(&old, &basis, 5).len() < 20);
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let basis = basis(&file, &noise(5000, 1), 5);
        let parts: [&[u8]; 6] =
            [&[0, 9, 1], &[0, 0], &[200, 1, 1], &[1, 0], &[0xff; 11], &[2, 0xff, 0xff, 0x7f]];
        for mut part in parts {
            let mut read = Vec::new();
            let mut patched = Patched::new(&mut part, Some(&basis), 8);
            assert!(patched.read_to_end(&mut read).is_err(), "{part:?}");
        }
        let mut run: &[u8] = &[1, 1];
        assert!(Patched::new(&mut run, None, 8).read_to_end(&mut Vec::new()).is_err());
    }
}
