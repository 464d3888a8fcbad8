//! Sketches, coded symbols and counters of known ids under a known key, which every other implementation
//! must reproduce.

use umbel_bits::Hex;
use umbel_sketch::{CodedSymbol, Estimator, Field, PinSketch, RibltEncoder};

use super::item::ItemRef;
use super::keys::{KeySource, SessionKey};
use super::options::SymbolKind;

fn key() -> SessionKey {
    let source = KeySource {
        seed: [0; 16],
        dataset_id: 0x0102_0304_0506_0708,
        nonce_initiator: 0x1111_1111_1111_1111,
        nonce_responder: 0x2222_2222_2222_2222,
    };
    SessionKey::derive(&source, 1, SymbolKind::Id64)
}

fn sketch(ids: std::ops::RangeInclusive<u64>) -> PinSketch {
    let mut sketch = PinSketch::new(Field::new(64).unwrap(), 4);
    ids.for_each(|id| sketch.toggle(key().permute(id)));
    sketch
}

#[test]
fn sketches_of_ids() {
    let mut ours = sketch(1..=5);
    let hex = Hex(&ours.to_bytes()).to_string();
    assert_eq!(hex, "c11c533a9c83cf6775183e60631b330d92683e5c981b3a36435af83f7ed9c97c");
    ours.merge(&sketch(3..=6)).unwrap();
    let symbols = ours.decode(key().decode_seed()).unwrap();
    let mut ids: Vec<u64> = symbols.iter().map(|&symbol| key().unpermute(symbol)).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 6]);
}

#[test]
fn coded_symbols_of_ids() {
    let mut encoder = RibltEncoder::new();
    for id in 1..=3 {
        let symbol = key().permute(id);
        encoder.add(symbol, key().check(symbol));
    }
    let expected = [
        (0xe689_0f84_656c_0943, 0x4869_0536),
        (0xc773_ed81_07bf_2f24, 0x09d7_2804),
        (0x6dfa_c9aa_72ed_eafa, 0x0a5a_617a),
        (0xaa89_242b_7552_c5de, 0x038d_497e),
        (0x21fa_e205_62d3_2667, 0x41be_2d32),
        (0xaa89_242b_7552_c5de, 0x038d_497e),
    ];
    assert_eq!(encoder.next_symbols(6), expected.map(|(sum, check)| CodedSymbol { sum, check }));
}

#[test]
fn counters_of_ids() {
    let mut estimator = Estimator::new();
    (1..=5).for_each(|id| estimator.add(key().hash(ItemRef::Id(id)).hi));
    assert_eq!(estimator.counters()[..8], [1, 1, 1, 3, 1, 5, 3, -3]);
}
