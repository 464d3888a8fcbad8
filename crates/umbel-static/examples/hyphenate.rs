//! Where may a word be broken? The example of Bloom's first page (1970, doi:10.1145/362686.362692), and what became of it.
//!
//! Nine words of ten are hyphenated by simple rules, the rest stands in a dictionary on disk. Bloom's filter in memory says for
//! most of the nine that no read is needed. A *map* of the exceptions to their breaks needs no disk at all: it has no words, only their
//! values, and gives another word some value with 2^-8. And as all words of a language are known, an *exact set* of the
//! exceptions before a map without any check bit is always right, for those words.
//!
//! `cargo run --release -p umbel-static --example hyphenate`

#![allow(clippy::cast_possible_truncation, reason = "numbers are small")]

use std::error::Error;

use umbel_codec::FrameKey;
use umbel_filter::{HashFunction, ItemHash, ItemHasher};
use umbel_static::{StaticFile, build_exact, build_filter, build_map};

const WORD_COUNT: u64 = 50_000;

/// Letters of the longest word, and bits of its breaks: bit i is a break behind letter i.
const BREAK_BITS: u8 = 11;

fn hash(word: &str) -> ItemHash {
    ItemHasher::Xxh3 { seed: 0 }.hash(word.as_bytes())
}

fn number(seed: u64, at: u64) -> u64 {
    ItemHasher::Xxh3 { seed }.hash(&at.to_le_bytes()).lo()
}

/// Three to six syllables of two letters.
fn word(at: u64) -> String {
    let letter =
        |letters: &[u8], number: u64| char::from(letters[(number % letters.len() as u64) as usize]);
    let syllables = 3 + number(1, at) % 4;
    let syllable = |place| {
        [(b"bdfgklmnprstvz".as_slice(), 2), (b"aeiou", 3)]
            .map(|(letters, seed)| letter(letters, number(seed, at * 8 + place)))
    };
    (0..syllables).flat_map(syllable).collect()
}

/// The rule: behind every vowel but the last.
fn by_rule(word: &str) -> u64 {
    (1..word.len() as u64 - 1).step_by(2).map(|letter| 1 << letter).sum()
}

/// The truth: each tenth word is an exception.
fn breaks(word: &str) -> u64 {
    let random = hash(word).hi();
    let is_exception = random.is_multiple_of(10);
    if is_exception { by_rule(word) ^ (1 + (random >> 32) % 0x1ff) } else { by_rule(word) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let key = FrameKey { function: HashFunction::Xxh3Seeded, key_id: 0 };
    let mut words: Vec<String> = (0..WORD_COUNT).map(word).collect();
    words.sort_unstable();
    words.dedup();
    let (plain, exceptions): (Vec<&String>, Vec<&String>) =
        words.iter().partition(|word| breaks(word) == by_rule(word));
    let hashes = |words: &[&String]| words.iter().map(|word| hash(word)).collect::<Vec<_>>();
    let pairs = || exceptions.iter().map(|word| (hash(word), breaks(word))).collect::<Vec<_>>();
    println!("{} words, {} of them exceptions", words.len(), exceptions.len());

    let filter = StaticFile::parse(build_filter(hashes(&exceptions), 6, key)?)?;
    let reads = words.iter().filter(|word| filter.contains(hash(word))).count();
    println!(
        "a filter before the dictionary     {:>6} bytes  {reads:>5} reads, no error",
        filter.as_bytes().len()
    );
    assert!(exceptions.iter().all(|word| filter.contains(hash(word))));

    let map = StaticFile::parse(build_map(pairs(), BREAK_BITS, 8, key)?)?;
    let by_map = |word: &str| map.value(hash(word)).unwrap_or(by_rule(word));
    let wrong = words.iter().filter(|word| by_map(word) != breaks(word)).count();
    println!(
        "a map of the exceptions            {:>6} bytes      0 reads, {wrong:>3} words wrong",
        map.as_bytes().len()
    );
    assert!(exceptions.iter().all(|word| by_map(word) == breaks(word)));
    // 1/256 of plain words, and five standard deviations.
    let expected = plain.len() as f64 / 256.0;
    assert!((wrong as f64) < expected + 5.0 * expected.sqrt());

    let exact = StaticFile::parse(build_exact(hashes(&exceptions), hashes(&plain), key)?)?;
    let bare = StaticFile::parse(build_map(pairs(), BREAK_BITS, 0, key)?)?;
    let by_both = |word: &str| {
        if exact.contains(hash(word)) {
            bare.value(hash(word)).unwrap_or_default()
        } else {
            by_rule(word)
        }
    };
    let wrong = words.iter().filter(|word| by_both(word) != breaks(word)).count();
    let bytes = exact.as_bytes().len() + bare.as_bytes().len();
    println!(
        "an exact set, and a map            {bytes:>6} bytes      0 reads, {wrong:>3} words wrong"
    );
    assert_eq!(wrong, 0);
    let listed: usize = exceptions.iter().map(|word| word.len() + 2).sum();
    println!("the exceptions as a list           {listed:>6} bytes");
    assert!(bytes < listed && reads < words.len() / 8);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_hold() {
        super::main().unwrap();
    }
}
