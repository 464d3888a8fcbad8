//! Only hashes every line of a file: no exact tool for lines can be faster.
//!
//! ```text
//! cargo run --release -p umbel --example hash_floor -- FILE [THREADS]
//! ```
//!
//! It reads blocks of 1 MiB, finds newlines with memchr, computes XXH3-128 of each line without its
//! newline, and XORs the results so that no hash can be optimized away. It prints the number of lines and
//! the XOR, which do not depend on the number of threads. With several threads the file is divided into
//! byte spans of equal length, and a line belongs to the span in which it begins.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, ensure};
use xxhash_rust::xxh3::xxh3_128_with_seed;

const USAGE: &str = "usage: hash_floor FILE [THREADS]";

/// Bytes per read.
const BLOCK_BYTES: usize = 1 << 20;

/// An arbitrary fixed number; hashing with a seed takes the same path as in a real job.
const SEED: u64 = 0x756D_6265_6C00_0001;

/// The result for the lines so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Total {
    line_count: u64,
    hash_xor: u128,
}

impl Total {
    fn add_line(&mut self, line: &[u8]) {
        self.line_count += 1;
        self.hash_xor ^= xxh3_128_with_seed(line, SEED);
    }

    fn add(&mut self, other: &Self) {
        self.line_count += other.line_count;
        self.hash_xor ^= other.hash_xor;
    }
}

/// Hashes the lines that begin in `span`. The source is positioned at the span's first byte or, unless
/// that is the file's first one, a byte before it: if that byte is a newline, a line begins at the start
/// of the span.
fn hash_lines(mut source: impl Read, span: Range<u64>) -> io::Result<Total> {
    let mut total = Total::default();
    let mut skips_line = span.start > 0;
    let mut line_start = span.start.saturating_sub(1);
    let mut block = vec![0; BLOCK_BYTES];
    let mut carry_bytes = 0;
    loop {
        if carry_bytes == block.len() {
            block.resize(2 * block.len(), 0); // one line fills all of it
        }
        let read_bytes = source.read(&mut block[carry_bytes..])?;
        let filled_bytes = carry_bytes + read_bytes;
        if read_bytes == 0 {
            if carry_bytes > 0 && !skips_line && line_start < span.end {
                total.add_line(&block[..carry_bytes]); // the last line may lack its newline
            }
            return Ok(total);
        }

        let mut rest = 0;
        for newline in memchr::memchr_iter(b'\n', &block[carry_bytes..filled_bytes]) {
            let end = carry_bytes + newline;
            if !skips_line {
                if line_start >= span.end {
                    return Ok(total);
                }
                total.add_line(&block[rest..end]);
            }
            skips_line = false;
            line_start += (end + 1 - rest) as u64;
            rest = end + 1;
        }
        block.copy_within(rest..filled_bytes, 0);
        carry_bytes = filled_bytes - rest;
    }
}

fn hash_span(path: &Path, span: Range<u64>) -> Result<Total> {
    let context = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(context)?;
    file.seek(SeekFrom::Start(span.start.saturating_sub(1))).with_context(context)?;
    hash_lines(file, span).with_context(context)
}

fn hash_file(path: &Path, thread_count: u64) -> Result<Total> {
    let file_bytes = path.metadata().with_context(|| format!("no file {}", path.display()))?.len();
    let span_bytes = file_bytes.div_ceil(thread_count);
    let spans = (0..thread_count)
        .map(|i| (i * span_bytes).min(file_bytes)..((i + 1) * span_bytes).min(file_bytes));
    let mut total = Total::default();
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> =
            spans.map(|span| scope.spawn(move || hash_span(path, span))).collect();
        for thread in threads {
            total.add(&thread.join().expect("hash_span does not panic")?);
        }
        Ok(())
    })?;
    Ok(total)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().context(USAGE)?;
    let thread_count = match arguments.next() {
        Some(text) => text.to_string_lossy().parse().context("THREADS is a whole number")?,
        None => 1,
    };
    ensure!(thread_count > 0, "THREADS must be at least 1");

    let total = hash_file(path.as_ref(), thread_count)?;
    println!("lines {} xor {:032x}", total.line_count, total.hash_xor);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two spans of a text, divided at any position, give the same result as one span.
    #[test]
    fn spans_share_no_line_and_lose_none() {
        for text in ["", "\n", "a", "a\n", "\n\n", "one\ntwo\n\nthree", "one\ntwo\nthree\n"] {
            let bytes = text.as_bytes();
            let whole = hash_lines(bytes, 0..bytes.len() as u64).expect("memory reads");
            assert_eq!(whole.line_count, text.lines().count() as u64, "{text:?}");
            for cut in 0..=bytes.len() {
                let mut parts = hash_lines(bytes, 0..cut as u64).expect("memory reads");
                let tail = &bytes[cut.saturating_sub(1)..];
                let tail_span = cut as u64..bytes.len() as u64;
                parts.add(&hash_lines(tail, tail_span).expect("memory reads"));
                assert_eq!(parts, whole, "{text:?} cut at {cut}");
            }
        }
    }
}
