//! Golden walks and coded symbols, a heap-based encoder as reference, laws, and hostile coded
//! symbols.
#![expect(clippy::cast_possible_truncation, reason = "indices here are small, or saturate")]

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::hash::Hasher;

use proptest::prelude::*;
use siphasher::sip::SipHasher24;

use super::indices::INDEX_END;
use super::*;

/// K_check of the golden test session.
const KEY: [u8; 16] = 0xeefb_c041_5efc_d071_c23d_7676_554f_1c40u128.to_be_bytes();

fn check_hash(symbol: u64) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&KEY);
    hasher.write(&symbol.to_le_bytes());
    hasher.finish()
}

/// The permuted ids 1, 2, 3 of the golden test session.
const PERMUTED: [u64; 3] = [0xaa89_242b_7552_c5de, 0x6dfa_c9aa_72ed_eafa, 0x21fa_e205_62d3_2667];

fn encoder(symbols: impl IntoIterator<Item = u64>) -> RibltEncoder {
    let mut encoder = RibltEncoder::new();
    symbols.into_iter().for_each(|symbol| encoder.add(symbol, check_hash(symbol)));
    encoder
}

/// Slow reference: the symbol with the smallest next index first, one index at a time.
fn heap_encoder(symbols: &BTreeSet<u64>, count: u64) -> Vec<CodedSymbol> {
    let first = |&symbol: &u64| Reverse((0, symbol, check_hash(symbol)));
    let mut heap: BinaryHeap<_> = symbols.iter().map(first).collect();
    let mut coded = Vec::new();
    for index in 0..count {
        let mut sum = CodedSymbol::default();
        while let Some(&Reverse((next, symbol, state))) = heap.peek()
            && next == index
        {
            heap.pop();
            sum ^= CodedSymbol::of(symbol, check_hash(symbol));
            let state = state.wrapping_mul(0xda94_2042_e4dd_58b5);
            let uniform = 2f64.powi(32) / (state as f64 + 1.0).sqrt();
            let next = index + ((index as f64 + 1.5) * (uniform - 1.0)).ceil() as u64;
            heap.push(Reverse((next, symbol, state)));
        }
        coded.push(sum);
    }
    coded
}

/// Decodes the difference of two sets; also returns the number of coded symbols it took.
fn decode(ours: &BTreeSet<u64>, theirs: &BTreeSet<u64>) -> (BTreeSet<u64>, usize) {
    let mut encoders = [ours, theirs].map(|set| encoder(set.iter().copied()));
    let mut decoder = RibltDecoder::new(check_hash);
    while !decoder.is_complete() {
        let [a, b] = encoders.each_mut().map(|encoder| encoder.next_symbols(1)[0]);
        decoder.push(CodedSymbol { sum: a.sum ^ b.sum, check: a.check ^ b.check }).unwrap();
    }
    (decoder.symbols().iter().copied().collect(), decoder.coded_count())
}

#[test]
fn golden_walks() {
    let golden = [0, 2, 3, 9, 10, 11, 16, 27, 31, 42, 133, 258, 271];
    assert!(Indices::new(1_234_567_891).take(13).eq(golden));
    assert_eq!(check_hash(PERMUTED[0]), 0x038d_497e_9127_7cb6);
    assert!(Indices::new(check_hash(PERMUTED[0])).take(6).eq([0, 1, 3, 5, 8, 14]));
}

#[test]
fn golden_coded_symbols() {
    let coded = encoder(PERMUTED).next_symbols(6);
    let golden = [
        (0xe689_0f84_656c_0943, 0x4869_0536),
        (0xc773_ed81_07bf_2f24, 0x09d7_2804),
        (0x6dfa_c9aa_72ed_eafa, 0x0a5a_617a),
        (0xaa89_242b_7552_c5de, 0x038d_497e),
        (0x21fa_e205_62d3_2667, 0x41be_2d32),
        (0xaa89_242b_7552_c5de, 0x038d_497e),
    ];
    assert_eq!(coded, golden.map(|(sum, check)| CodedSymbol { sum, check }));
}

#[test]
fn walks_end() {
    // The worst case: state 0 stays 0, and its gaps are the largest.
    let mut worst = Indices::new(0);
    assert!(worst.by_ref().count() <= 3);
    assert!(worst.peek() >= INDEX_END);
    for seed in 1..100u64 {
        let indices: Vec<u64> = Indices::new(check_hash(seed)).collect();
        assert!(indices.is_sorted_by(|a, b| a < b));
        assert!((10..300).contains(&indices.len()), "{}", indices.len());
    }
}

/// Index i occurs with probability 1 / (1 + i/2).
#[test]
fn indices_thin_out() {
    let mut counts = [0; 64];
    for seed in 0..20_000 {
        let near = Indices::new(check_hash(seed)).take_while(|&index| index < 64);
        near.for_each(|index| counts[index as usize] += 1);
    }
    for (index, &count) in counts.iter().enumerate() {
        let expected = 20_000.0 / (1.0 + index as f64 / 2.0);
        assert!((f64::from(count) - expected).abs() < 6.0 * expected.sqrt(), "{index}: {count}");
    }
}

/// The published mean overheads, within their spread: 1.74 at d = 8, 1.41 at 256, 1.38 at 1,024.
#[test]
fn overheads_are_the_published_ones() {
    for (difference, runs, expected) in [(1, 10, 1.0), (8, 300, 1.74), (256, 30, 1.41)] {
        let mut sum = 0;
        for run in 0..runs {
            let ours = (0..difference).map(|index| check_hash(run << 32 | index)).collect();
            let (found, coded_count) = decode(&ours, &BTreeSet::new());
            assert_eq!(found, ours);
            sum += coded_count;
        }
        let mean = sum as f64 / (runs * difference) as f64;
        assert!((mean / expected - 1.0).abs() < 0.06, "{difference}: {mean}");
    }
}

#[test]
fn equal_sets_need_one_coded_symbol() {
    let set: BTreeSet<u64> = (0..1000).collect();
    assert_eq!(decode(&set, &set), (BTreeSet::new(), 1));
    let mut decoder = RibltDecoder::new(check_hash);
    assert!(!decoder.is_complete());
    decoder.push_all(&[]).unwrap();
    assert!(!decoder.is_complete());
}

#[test]
fn contradictions_are_named() {
    let one = CodedSymbol::of(5, check_hash(5));
    // Symbol 5 must be at index 0, but is only at its second index: removing it from one index puts
    // it back at the other, without end.
    let second = Indices::new(check_hash(5)).nth(1).unwrap() as usize;
    let mut coded = vec![CodedSymbol::default(); second + 1];
    coded[second] = one;
    let mut decoder = RibltDecoder::new(check_hash);
    let outcome = decoder.push_all(&coded);
    assert!(outcome.is_err());
    assert_eq!(decoder.push(CodedSymbol::default()), outcome);
    assert!(!decoder.is_complete());

    // A nonzero coded symbol after the difference was complete.
    let mut decoder = RibltDecoder::new(check_hash);
    decoder.push(CodedSymbol::default()).unwrap();
    assert!(decoder.is_complete());
    for index in 1..=second {
        let coded = if index == second { one } else { CodedSymbol::default() };
        assert_eq!(decoder.push(coded).is_err(), index == second);
    }
    assert!(!decoder.is_complete());
}

/// Found by the fuzzer: a coded symbol with several symbols is left after all were found.
#[test]
fn what_is_left_over_contradicts() {
    let mut decoder = RibltDecoder::new(check_hash);
    let honest = encoder([5, 6]).next_symbols(30);
    honest.into_iter().for_each(|coded| decoder.push(coded).unwrap());
    assert!(decoder.is_complete());
    let inconsistent = Inconsistent { symbol_count: 2, coded_count: 31 };
    assert_eq!(decoder.push(CodedSymbol { sum: 1, check: 2 }), Err(inconsistent));
    assert!(!decoder.is_complete());
}

/// Two symbols whose first 400 indices are the same: found by [`chunks_do_not_matter`].
#[test]
fn symbols_that_keep_together_come_apart_at_last() {
    let symbols = BTreeSet::from([4_861_640_158_670_723_295, 7_228_672_577_462_664_713]);
    let (found, coded_count) = decode(&symbols, &BTreeSet::new());
    assert_eq!(found, symbols);
    assert_eq!(coded_count, 471);
}

#[test]
#[should_panic(expected = "symbols come before coded symbols")]
fn symbols_do_not_come_late() {
    let mut encoder = encoder([1]);
    let _ = encoder.next_symbols(1);
    encoder.add(2, check_hash(2));
}

proptest! {
    #[test]
    fn blocks_are_what_the_heap_makes(
        symbols in prop::collection::btree_set(any::<u64>(), 0..200),
        counts in prop::collection::vec(0..80usize, 0..10),
    ) {
        let mut encoder = encoder(symbols.iter().copied());
        let coded: Vec<CodedSymbol> =
            counts.iter().flat_map(|&count| encoder.next_symbols(count)).collect();
        prop_assert_eq!(encoder.next_index(), coded.len());
        prop_assert_eq!(&coded, &heap_encoder(&symbols, coded.len() as u64));
    }

    #[test]
    fn differences_come_back(ours: BTreeSet<u64>, theirs: BTreeSet<u64>, both: BTreeSet<u64>) {
        let expected: BTreeSet<u64> =
            (&ours - &both).symmetric_difference(&(&theirs - &both)).copied().collect();
        let (found, _) = decode(&(&ours | &both), &(&theirs | &both));
        prop_assert_eq!(found, expected);
    }

    /// One push of many equals many pushes of one. Whether 400 coded symbols are enough is left to
    /// chance: two symbols among 100 have the same first 400 indices in 1 case of 30,000.
    #[test]
    fn chunks_do_not_matter(symbols: BTreeSet<u64>, cut in 0..400usize) {
        let coded = encoder(symbols.iter().copied()).next_symbols(400);
        let [mut chunked, mut single] = [(); 2].map(|()| RibltDecoder::new(check_hash));
        coded.iter().for_each(|&coded| single.push(coded).unwrap());
        chunked.push_all(&coded[..cut]).unwrap();
        chunked.push_all(&coded[cut..]).unwrap();
        prop_assert_eq!(chunked.is_complete(), single.is_complete());
        let found = |decoder: &RibltDecoder<_>| -> BTreeSet<u64> {
            decoder.symbols().iter().copied().collect()
        };
        prop_assert_eq!(found(&chunked), found(&single));
        prop_assert!(!chunked.is_complete() || found(&chunked) == symbols);
    }

    /// Coded symbols of a set, some of them replaced by others that look pure.
    #[test]
    fn hostile_coded_symbols_end(
        symbols: BTreeSet<u64>,
        changes in prop::collection::vec((0..50usize, any::<u64>(), any::<bool>()), 0..50),
    ) {
        let mut coded = encoder(symbols).next_symbols(50);
        for (index, symbol, is_pure) in changes {
            let hash = if is_pure { check_hash(symbol % 16) } else { symbol };
            coded[index] = CodedSymbol::of(symbol % 16, hash);
        }
        let mut decoder = RibltDecoder::new(check_hash);
        for coded in coded {
            let _ = decoder.push(coded);
            prop_assert!(decoder.symbols().len() <= decoder.coded_count());
        }
        let found: BTreeSet<u64> = decoder.symbols().iter().copied().collect();
        prop_assert!(!decoder.is_complete() || found.len() == decoder.symbols().len());
    }
}
