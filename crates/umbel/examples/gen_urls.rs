//! Writes URL-like lines as input for benchmarks; equal arguments give equal lines.
//!
//! ```text
//! cargo run --release -p umbel --example gen_urls -- LINES DUPLICATE_SHARE SEED > FILE
//! cargo run --release -p umbel --example gen_urls -- 20000000 0.25 1 > urls20m.txt
//! ```
//!
//! A line is about 68 bytes. As in a real crawl, a few hosts have most of the lines. With the given share
//! as its probability, a line repeats an earlier one, which is drawn uniformly from the distinct lines so
//! far. The number of distinct lines is printed to standard error, so that a benchmark can check the
//! result of its tools. Published figures depend on these bytes: after a change here they would not be
//! comparable.

use std::io::{self, Write};

use anyhow::{Context, Result, ensure};

const USAGE: &str = "usage: gen_urls LINES DUPLICATE_SHARE SEED > FILE";

/// Number of hosts; the cube of a uniform number selects one, so that low ones are popular.
const HOST_COUNT: f64 = 200_000.0;

/// The buffer is written when it has this size.
const BLOCK_BYTES: usize = 1 << 20;

/// Longest line; the buffer is written when the next line might not fit.
const LINE_BYTES_MAX: usize = 512;

/// 2^53: an f64 represents every whole number up to this one.
const UNIT: f64 = 9_007_199_254_740_992.0;

const WORDS: [&str; 64] = [
    "news", "sports", "article", "view", "item", "product", "category", "blog", "post", "archive",
    "forum", "thread", "user", "profile", "gallery", "photo", "video", "watch", "music", "album",
    "docs", "wiki", "page", "help", "search", "shop", "cart", "review", "recipe", "travel",
    "hotel", "flight", "city", "map", "event", "ticket", "game", "play", "download", "file",
    "software", "driver", "health", "finance", "stock", "market", "weather", "science", "tech",
    "mobile", "laptop", "camera", "fashion", "shoes", "books", "author", "story", "poem",
    "history", "culture", "politics", "world", "local", "opinion",
];

const DOMAINS: [&str; 8] = ["com", "org", "net", "de", "co.uk", "fr", "io", "info"];

/// The odd constant of SplitMix64: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output function of SplitMix64 (Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195).
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The word that the six low bits select.
fn word(bits: u64) -> &'static str {
    WORDS[(bits & 63) as usize]
}

/// The number of a line's host, from 53 random bits.
#[expect(clippy::cast_possible_truncation, reason = "the product is below HOST_COUNT")]
fn host_number(bits: u64) -> u64 {
    let uniform = bits as f64 / UNIT;
    (HOST_COUNT * uniform * uniform * uniform) as u64
}

/// Appends the line with this id; equal ids give equal lines.
fn push_line(id: u64, out: &mut Vec<u8>) -> io::Result<()> {
    let a = mix(id.wrapping_mul(2_654_435_761));
    let b = mix(a);
    let c = mix(b);

    let host = mix(host_number(a >> 11) ^ 0xABCD);
    let prefix = if host & 3 == 0 { "www." } else { "" };
    let domain = DOMAINS[((host >> 24) & 7) as usize];
    write!(out, "https://{prefix}{}{}.{domain}/", word(host >> 8), word(host >> 16))?;
    for i in 0..=(b % 3) {
        write!(out, "{}/", word(b >> (8 + 8 * i)))?;
    }
    let number = id.wrapping_mul(GOLDEN) >> 24;
    write!(out, "{}-{}-{number}", word(c >> 8), word(c >> 16))?;
    match c & 3 {
        0 => out.extend_from_slice(b".html"),
        1 => write!(out, "?id={}", c >> 44)?,
        _ => {}
    }
    out.push(b'\n');
    Ok(())
}

/// Writes all lines; returns the number of distinct ones.
fn generate(
    line_count: u64,
    duplicate_share: f64,
    seed: u64,
    out: &mut impl Write,
) -> io::Result<u64> {
    #[expect(clippy::cast_possible_truncation, reason = "the share is at most 1")]
    let threshold = (duplicate_share * UNIT) as u64;
    let stream = mix(seed);
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    let mut distinct_count = 0;
    for i in 0..line_count {
        let random = mix(i ^ stream);
        let id = if distinct_count > 0 && (random >> 11) < threshold {
            mix(random) % distinct_count
        } else {
            distinct_count += 1;
            distinct_count - 1
        };
        push_line(id.wrapping_add(seed << 40), &mut block)?;
        if block.len() > BLOCK_BYTES - LINE_BYTES_MAX {
            out.write_all(&block)?;
            block.clear();
        }
    }
    out.write_all(&block)?;
    out.flush()?;
    Ok(distinct_count)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context(USAGE);
    let line_count: u64 = next()?.parse().context("LINES is a whole number")?;
    let duplicate_share: f64 = next()?.parse().context("DUPLICATE_SHARE is a number")?;
    let seed: u64 = next()?.parse().context("SEED is a whole number")?;
    ensure!((0.0..=1.0).contains(&duplicate_share), "DUPLICATE_SHARE must be from 0 to 1");

    let distinct_count = generate(line_count, duplicate_share, seed, &mut io::stdout().lock())?;
    eprintln!("lines {line_count} distinct {distinct_count}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_LINES: &str = "\
https://laptopculture.info/camera/hotel-travel-40342061056
https://laptopculture.info/camera/hotel-travel-40342061056
https://laptopculture.info/camera/hotel-travel-40342061056
https://laptopculture.info/camera/hotel-travel-40342061056
https://postworld.org/history/music/politics/album-post-719877618047
https://historyprofile.com/books/play/article/search-game-299901547262
";

    #[test]
    fn first_lines_never_change() {
        let mut lines = Vec::new();
        let distinct_count = generate(6, 0.5, 7, &mut lines).expect("memory takes all");
        assert_eq!(distinct_count, 3);
        assert_eq!(String::from_utf8(lines).expect("words and digits"), FIRST_LINES);
    }
}
