//! Which packets carried this excerpt? A hierarchical filter of a network's payloads.
//!
//! Payloads are cut where their content says so, so that an excerpt is cut at the same places; each piece goes into a
//! filter, each pair of neighbouring pieces into one, each four, and so on up to the whole (after Shanmugasundaram et al. 2004,
//! doi:10.1145/1030083.1030089, whose blocks have one length). Single pieces of an excerpt may all be there by chance or from many
//! payloads; that their concatenations are there, too, says that they came behind each other.
//!
//! `cargo run --release -p umbel-filter --example payload`

use std::error::Error;

use umbel_filter::{Blocked, Contains, HashRange, Insert, ItemHash, ItemHasher};

const PAYLOAD_COUNT: u64 = 1_000;
const PAYLOAD_BYTES: usize = 1_400;

/// A cut is where so many bits of a sum over the last 16 bytes are 0: pieces of 64 bytes in the mean.
const CUT_BITS: u32 = 6;
const WINDOW: usize = 16;

/// Pieces, pairs, fours, eights.
const LEVELS: usize = 4;

fn hash(level: usize, bytes: &[u8]) -> ItemHash {
    ItemHasher::Xxh3 { seed: level as u64 }.hash(bytes)
}

fn payload(number: u64) -> Vec<u8> {
    let mut state = number;
    let byte = |_| {
        state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..PAYLOAD_BYTES).map(byte).collect()
}

/// Where content says that a piece ends.
fn cuts(bytes: &[u8]) -> Vec<usize> {
    let is_cut =
        |window: &[u8]| ItemHasher::Xxh3 { seed: 99 }.hash(window).lo() >> (64 - CUT_BITS) == 0;
    let ends = bytes.windows(WINDOW).zip(WINDOW..);
    ends.filter(|(window, _)| is_cut(window)).map(|(_, end)| end).collect()
}

/// All runs of 2^level pieces between cuts.
fn runs(bytes: &[u8], level: usize) -> Vec<ItemHash> {
    let cuts = cuts(bytes);
    cuts.windows((1 << level) + 1)
        .map(|cuts| hash(level, &bytes[cuts[0]..cuts[1 << level]]))
        .collect()
}

/// Whether the filters of the first levels have all runs of an excerpt.
fn carried(filters: &[Blocked], levels: usize, excerpt: &[u8]) -> bool {
    (0..levels).all(|level| runs(excerpt, level).iter().all(|run| filters[level].contains(*run)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let piece_count = (PAYLOAD_COUNT * PAYLOAD_BYTES as u64) >> CUT_BITS;
    let filter = || Blocked::for_rate(HashRange::WHOLE, piece_count, 0.05);
    let mut filters = (0..LEVELS).map(|_| filter()).collect::<Result<Vec<_>, _>>()?;
    for number in 0..PAYLOAD_COUNT {
        let bytes = payload(number);
        for (level, filter) in filters.iter_mut().enumerate() {
            filter.insert_batch(&runs(&bytes, level), &mut Vec::new())?;
        }
    }
    // Excerpts from any byte on.
    let excerpts = |from: u64| (from..from + 400).map(|number| payload(number)[137..1037].to_vec());
    assert!(excerpts(0).all(|excerpt| carried(&filters, LEVELS, &excerpt)));
    // Pieces that came, but of two payloads: half of one and half of another.
    let mixed = (0..400).map(|number| {
        let (mut a, b) = (payload(number), payload(number + 500));
        a[PAYLOAD_BYTES / 2..].copy_from_slice(&b[PAYLOAD_BYTES / 2..]);
        a
    });
    let mixed: Vec<Vec<u8>> = mixed.collect();
    println!(
        "excerpts of 900 bytes, and payloads of two halves that never came together; called carried:"
    );
    println!("levels   of 400 that came   of 400 that did not   of 400 made of two");
    let mut counts = Vec::new();
    for levels in 1..=LEVELS {
        let came = excerpts(0).filter(|excerpt| carried(&filters, levels, excerpt)).count();
        let not = excerpts(1 << 40).filter(|excerpt| carried(&filters, levels, excerpt)).count();
        let two = mixed.iter().filter(|bytes| carried(&filters, levels, bytes)).count();
        println!("{levels:>6} {came:>18} {not:>21} {two:>20}");
        assert_eq!(came, 400);
        counts.push((not, two));
    }
    let bytes: usize = filters.iter().map(|filter| filter.words().len() * 8).sum();
    println!("{bytes} bytes of filters for {} of payload", PAYLOAD_COUNT * PAYLOAD_BYTES as u64);
    let ((not, two), (not_last, two_last)) = (counts[0], counts[LEVELS - 1]);
    assert!(not_last <= not && not_last <= 8 && two_last < two && two_last < 40);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_hold() {
        super::main().unwrap();
    }
}
