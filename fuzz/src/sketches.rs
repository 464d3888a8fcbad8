//! Inputs of `sketch_decode` and `sketch_file`, and a sketch file whose checksums are put right.

use umbel_codec::crc32c;
use umbel_reconcile_engine::{ItemIndex, ItemRef, SketchSpec, StoredSketch, SymbolKind};
use umbel_sketch::{BlockCode, Estimator, Field, PinSketch, RibltEncoder};

/// Bytes of a sketch file before its estimator.
const FIXED_BYTES: usize = 74;

/// Coded symbols of a block of a sketch file.
const BLOCK_CELLS: usize = 128;

/// The keyed hash of the coded symbols here.
#[must_use]
pub const fn check_hash(symbol: u64) -> u64 {
    let mixed = (symbol ^ (symbol >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// The file with checksums that fit what is there, as far as it goes.
#[must_use]
pub fn forged(bytes: &[u8]) -> Option<Vec<u8>> {
    let (&[e0, e1], &symbol_bits) = (bytes.get(72..74)?.first_chunk()?, bytes.get(6)?);
    let header_bytes = FIXED_BYTES + usize::from(u16::from_le_bytes([e0, e1]));
    let coded_count = u64::from_le_bytes(*bytes.get(64..72)?.first_chunk()?);
    let (header, mut rest) = (bytes.get(..header_bytes)?, bytes.get(header_bytes + 4..)?);
    let mut forged = header.to_vec();
    let header_checksum = crc32c(&[header]).to_le_bytes();
    forged.extend(header_checksum);
    let mut first = 0u64;
    while first < coded_count && !rest.is_empty() {
        let cells = usize::try_from(coded_count - first).unwrap_or(usize::MAX).min(BLOCK_CELLS);
        let length = cells * (usize::from(symbol_bits).div_ceil(8) + 4) + cells.div_ceil(4);
        let Some(block) = rest.split_off(..length) else { break };
        forged.extend_from_slice(block);
        forged.extend(crc32c(&[&header_checksum, &first.to_le_bytes(), block]).to_le_bytes());
        rest = rest.get(4..).unwrap_or_default();
        first += BLOCK_CELLS as u64;
    }
    forged.extend_from_slice(rest);
    Some(forged)
}

/// A file of the ids from one number to another, or of their bytes.
///
/// # Panics
/// If the sketch fails, which would be a bug.
#[must_use]
pub fn file(kind: SymbolKind, ids: std::ops::Range<u64>, coded_count: u64) -> Vec<u8> {
    let bits = if kind == SymbolKind::Hashed { 40 } else { 64 };
    let spec = SketchSpec::new(kind, 1, [7; 16], bits).expect("possible bits");
    let mut pass = spec.pass(coded_count).expect("few");
    for id in ids {
        let bytes = id.to_le_bytes();
        let item = match kind {
            SymbolKind::Id64 => ItemRef::Id(id),
            SymbolKind::Hashed => ItemRef::Bytes(&bytes),
            SymbolKind::Keyed => ItemRef::Keyed { key: &bytes, value: b"v" },
        };
        pass.add(ItemIndex(id), item);
    }
    StoredSketch::of_pass(spec, pass).expect("a pass of the spec").to_bytes()
}

/// Inputs of `sketch_decode`: what u8, two parameters u8, bytes.
///
/// # Panics
/// If a sketch fails, which would be a bug.
#[must_use]
pub fn decode_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let with = |head: [u8; 3], bytes: Vec<u8>| [head.to_vec(), bytes].concat();
    let pin = |bits: u8, capacity: u8| {
        let mut sketch = PinSketch::new(Field::new(bits).expect("a field"), capacity.into());
        (1..u64::from(capacity)).for_each(|symbol| sketch.toggle(symbol * 0x9e37_79b9 + 1));
        with([0, bits, capacity], sketch.to_bytes())
    };
    let mut estimator = Estimator::new();
    (0..200).for_each(|id| estimator.add(check_hash(id)));
    let mut encoder = RibltEncoder::new();
    (1..=10).for_each(|symbol| encoder.add(symbol, check_hash(symbol)));
    let coded = |coded: &umbel_sketch::CodedSymbol| {
        [&coded.sum.to_le_bytes()[..], &coded.check.to_le_bytes()].concat()
    };
    let coded: Vec<u8> = encoder.next_symbols(24).iter().flat_map(coded).collect();
    let left_over = [&coded[..], &[1; 12]].concat();
    let mut block = [0; 512];
    (0..5).for_each(|at| block[at * 90] = 1 << (at * 9));
    let residues = BlockCode::new(2).expect("two words").residues(&block);
    let residues: Vec<u8> = residues.iter().flat_map(|word| word.to_le_bytes()).collect();
    vec![
        ("pin-12", pin(12, 6)),
        ("pin-64", pin(64, 9)),
        ("syndromes-16", with([1, 16, 0], vec![1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])),
        ("estimator", with([2, 200, 0], estimator.to_bytes())),
        ("riblt", with([3, 0, 0], coded)),
        ("riblt-left-over", with([3, 0, 0], left_over)),
        ("block", with([4, 2, 0], residues)),
    ]
}
