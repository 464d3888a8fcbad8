//! A k-mer that is there has neighbours that are there: fewer errors without a bit more (Pellow et al. 2017,
//! doi:10.1007/978-3-319-31957-5_10).
//!
//! The k-mers of a sequence overlap: of the four that may follow one, and the four that may come before it, at least one is
//! in the set, but at the ends. So a k-mer is believed only if a neighbour is present, too (one side), or one at each side
//! (two sides; the ends of the sequence are kept beside the filter). With a filter of rate p another k-mer passes with
//! p (1 − (1 − p)^8), or p (1 − (1 − p)^4)².
//!
//! `cargo run --release -p umbel-filter --example kmers`

use std::error::Error;

use umbel_filter::{Blocked, Contains, HashRange, Insert, ItemHash, ItemHasher};

const BASE_COUNT: usize = 100_000;
const K: u32 = 31;
const MASK: u64 = (1 << (2 * K)) - 1;
const RATE: f64 = 0.05;

fn hash(kmer: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 1 }.hash(&kmer.to_le_bytes())
}

/// Numbers that look random.
fn random(seed: u64) -> impl Iterator<Item = u64> {
    (0u64..).map(move |number| hash(number ^ seed << 32).lo())
}

fn after(kmer: u64) -> [u64; 4] {
    [0, 1, 2, 3].map(|base| (kmer << 2 | base) & MASK)
}

fn before(kmer: u64) -> [u64; 4] {
    [0, 1, 2, 3].map(|base| kmer >> 2 | base << (2 * (K - 1)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let bases: Vec<u64> = random(1).take(BASE_COUNT).map(|number| number & 3).collect();
    let kmers: Vec<u64> = bases
        .windows(K as usize)
        .map(|bases| bases.iter().fold(0, |kmer, base| kmer << 2 | base))
        .collect();
    let mut filter = Blocked::for_rate(HashRange::WHOLE, kmers.len() as u64, RATE)?;
    for kmer in &kmers {
        filter.insert(hash(*kmer))?;
    }
    let has = |kmer: u64| filter.contains(hash(kmer));
    let any = |kmers: [u64; 4]| kmers.into_iter().any(has);
    let one_side = |kmer: u64| has(kmer) && (any(before(kmer)) || any(after(kmer)));
    let ends = [kmers[0], kmers[kmers.len() - 1]];
    let two_sides =
        |kmer: u64| has(kmer) && (ends.contains(&kmer) || (any(before(kmer)) && any(after(kmer))));
    assert!(kmers.iter().all(|kmer| one_side(*kmer) && two_sides(*kmer)));

    let asked = 200_000;
    let others: Vec<u64> = random(2).take(asked).map(|number| number & MASK).collect();
    let count = |is_there: &dyn Fn(u64) -> bool| others.iter().filter(|k| is_there(**k)).count();
    let rate = count(&has) as f64 / asked as f64;
    let one = rate * (1.0 - (1.0 - rate).powi(8));
    let two = rate * (1.0 - (1.0 - rate).powi(4)).powi(2);
    println!(
        "{:.2} bits a k-mer         of {asked} others   expected",
        filter.words().len() as f64 * 64.0 / kmers.len() as f64
    );
    for (name, found, expected) in [
        ("a k-mer alone", count(&has), RATE),
        ("a neighbour, too", count(&one_side), one),
        ("one at each side, too", count(&two_sides), two),
    ] {
        let expected = expected * asked as f64;
        println!("{name:<24} {found:>15} {expected:>10.0}");
        assert!((found as f64 - expected).abs() < 5.0 * expected.sqrt() + 0.05 * expected);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_hold() {
        super::main().unwrap();
    }
}
