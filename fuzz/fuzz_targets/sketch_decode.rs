//! Decodes any bytes as a sketch: syndromes of sets and of blocks, an estimator, coded symbols. Whatever
//! comes out must have the sketch that went in.
//!
//! Input: what u8 (modulo 5), two parameters u8, bytes; numbers are little-endian.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_fuzz::sketches::check_hash;
use umbel_sketch::{
    BLOCK_BITS, BLOCK_WORDS, BlockCode, CodedSymbol, Estimator, Field, PinSketch, RibltDecoder,
    RibltEncoder, block_syndromes, decode_block, decode_syndromes, toggle_syndromes,
};

/// Most syndromes here: decoding takes their square.
const SYNDROMES_MAX: usize = 48;

fuzz_target!(|input: &[u8]| {
    let Some((&[what, first, second], bytes)) = input.split_first_chunk() else { return };
    match what % 5 {
        0 => pin_sketch(first, second, bytes),
        1 => syndromes(first, bytes),
        2 => estimator(u64::from(first) | u64::from(second) << 8, bytes),
        3 => coded_symbols(bytes),
        _ => block(first, bytes),
    }
});

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

fn pin_sketch(bits: u8, capacity: u8, bytes: &[u8]) {
    let Ok(field) = Field::new(bits) else { return };
    let capacity = usize::from(capacity);
    let Ok(sketch) = PinSketch::from_bytes(field, capacity, bits % 2 == 0, bytes) else { return };
    assert_eq!(sketch.to_bytes(), bytes);
    if capacity > SYNDROMES_MAX {
        return;
    }
    let Some(symbols) = sketch.decode(u64::from(bits)) else { return };
    assert!(symbols.is_sorted_by(|a, b| a < b));
    let mut again = PinSketch::new(field, capacity);
    again.toggle_all(&symbols);
    assert_eq!(again, sketch);
}

fn syndromes(bits: u8, bytes: &[u8]) {
    let Ok(field) = Field::new(bits) else { return };
    let mask = u64::MAX >> (64 - bits);
    let syndromes: Vec<u64> = words(bytes).into_iter().take(SYNDROMES_MAX).collect();
    let Some(symbols) = decode_syndromes(field, &syndromes, 7) else { return };
    assert!(symbols.len() < syndromes.len() && !symbols.contains(&0));
    let mut again = vec![0; syndromes.len()];
    symbols.iter().for_each(|&symbol| toggle_syndromes(field, &mut again, symbol));
    assert!(again.iter().zip(&syndromes).all(|(a, b)| *a == b & mask));
}

fn estimator(item_count: u64, bytes: &[u8]) {
    let Ok(estimator) = Estimator::from_bytes(bytes, item_count) else { return };
    assert_eq!(estimator.to_bytes(), bytes);
    let mut other = Estimator::new();
    other.add(u64::from(bytes[0]));
    assert!(estimator.clamped_estimate(&other).is_finite());
    other.merge(&estimator);
    other.subtract(&estimator);
}

fn coded_symbols(bytes: &[u8]) {
    let mut decoder = RibltDecoder::new(check_hash);
    let mut coded = Vec::new();
    for bytes in bytes.as_chunks::<12>().0 {
        let (sum, check) = bytes.split_first_chunk().expect("twelve bytes");
        let check = *check.first_chunk().expect("four bytes");
        coded.push(CodedSymbol { sum: u64::from_le_bytes(*sum), check: u32::from_le_bytes(check) });
        if decoder.push(coded[coded.len() - 1]).is_err() {
            break;
        }
        assert!(decoder.symbols().len() <= decoder.coded_count());
    }
    if decoder.is_complete() {
        let mut encoder = RibltEncoder::new();
        decoder.symbols().iter().for_each(|&symbol| encoder.add(symbol, check_hash(symbol)));
        assert_eq!(encoder.next_symbols(coded.len()), coded);
    }
}

fn block(seed: u8, bytes: &[u8]) {
    let residues: Vec<u64> = words(bytes).into_iter().take(SYNDROMES_MAX / 4).collect();
    if residues.is_empty() {
        return;
    }
    let code = BlockCode::new(residues.len()).expect("few words");
    let found = code.decode(&residues, seed.into());
    let of = |positions: &[u32]| {
        assert!(positions.is_sorted_by(|a, b| a < b));
        assert!(positions.iter().all(|&position| position < BLOCK_BITS));
        let mut block = [0; BLOCK_WORDS];
        positions.iter().for_each(|&at| block[at as usize / 64] |= 1 << (at % 64));
        code.residues(&block)
    };
    if let Some(positions) = found {
        assert!(positions.len() <= code.flips_max());
        assert_eq!(of(&positions), residues);
    }
    // Without a spare syndrome, of any number of them.
    let count = 1 + usize::from(seed) % (4 * residues.len());
    let mut syndromes = Vec::new();
    block_syndromes(&residues, 0..count, &mut syndromes);
    if let Some(positions) = decode_block(&syndromes, count, 7) {
        let mut again = Vec::new();
        block_syndromes(&of(&positions), 0..count, &mut again);
        assert_eq!(again, syndromes);
    }
}
