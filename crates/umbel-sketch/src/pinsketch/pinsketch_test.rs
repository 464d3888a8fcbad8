//! Golden sketches, laws, exhaustive references for decoding, and hostile syndromes.

use std::collections::BTreeSet;
use std::hash::Hasher;

use proptest::prelude::*;
use siphasher::sip::SipHasher24;

use super::*;

/// The sketch of a set.
fn sketch(field: Field, capacity: usize, symbols: impl IntoIterator<Item = u64>) -> PinSketch {
    let mut sketch = PinSketch::new(field, capacity);
    symbols.into_iter().for_each(|symbol| sketch.toggle(symbol));
    sketch
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// bitcoin-core/minisketch, tests/pyminisketch.py.
const GOLDEN: [(u8, &str, &str); 5] = [
    (12, "01e0d2f97469", "0190814badb8"),
    (20, "010050be5541968971b1", "0100b0ed54b286784172"),
    (32, "01000000c15b45009cd30811ee91f749", "01000000ff4e4500f6c31910ffbb4e27"),
    (40, "0100000000c15b4500005108001111fe213aee34", "0100000000ff4e4500003b18111011ce964a27f7"),
    (
        48,
        "010000000000c15b45000000c10b00111110f9f3740734e7",
        "010000000000ff4e45000000ab1b1110111075d730cef701",
    ),
];

#[test]
fn golden_sketches() {
    for (bits, ours, theirs) in GOLDEN {
        let field = Field::new(bits).unwrap();
        let (mut a, b) = (sketch(field, 4, 3000..=3009), sketch(field, 4, 3002..=3011));
        assert_eq!((hex(&a.to_bytes()), hex(&b.to_bytes())), (ours.into(), theirs.into()));
        a.merge(&b).unwrap();
        // Without the spare syndrome four symbols would decode; with five syndromes they do.
        assert_eq!(a.decode(1), None);
        let mut a = sketch(field, 5, 3000..=3009);
        a.merge(&sketch(field, 5, 3002..=3011)).unwrap();
        assert_eq!(a.decode(1).unwrap(), [3000, 3001, 3010, 3011]);
    }
}

#[test]
fn golden_sketches_of_64_bits() {
    let field = Field::new(64).unwrap();
    let symbols = |range: std::ops::RangeInclusive<u64>| {
        range.map(|index| index.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    };
    let ours = "1784ce86a7a49da1ce642319098eb372aabddbb660f9c87e27fe0e61733d1b72";
    let theirs = "33845e8825a03fa5da754a8fa8b6594392998e8c5a6014f2c239f92b1e27610f";
    assert_eq!(hex(&sketch(field, 4, symbols(1..=10)).to_bytes()), ours);
    assert_eq!(hex(&sketch(field, 4, symbols(3..=12)).to_bytes()), theirs);
    let mut a = sketch(field, 5, symbols(1..=10));
    a.merge(&sketch(field, 5, symbols(3..=12))).unwrap();
    let expected: BTreeSet<u64> = symbols(1..=2).chain(symbols(11..=12)).collect();
    assert_eq!(a.decode(9).unwrap(), Vec::from_iter(expected));
}

/// The permutation of ids in the golden test session: four Feistel rounds.
fn permuted(id: u64) -> u64 {
    let key = 0x4b1f_2673_31a5_c727_1f5c_e5dc_ca09_902au128.to_be_bytes();
    (0..4).fold(id, |halves, round| {
        let right = halves & 0xffff_ffff;
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(&(right | round << 32).to_le_bytes());
        right << 32 | (halves >> 32 ^ (hasher.finish() & 0xffff_ffff))
    })
}

#[test]
fn golden_sketch_of_ids() {
    let field = Field::new(64).unwrap();
    assert_eq!(permuted(0), 0x3b67_08b9_c1a7_bf40);
    assert_eq!(permuted(u64::MAX), 0x80a4_6d5e_af16_9fd0);
    let mut sum = sketch(field, 4, (1..=5).map(permuted));
    let golden = "c11c533a9c83cf6775183e60631b330d92683e5c981b3a36435af83f7ed9c97c";
    assert_eq!(hex(&sum.to_bytes()), golden);
    sum.merge(&sketch(field, 4, (3..=6).map(permuted))).unwrap();
    let expected: BTreeSet<u64> = [1, 2, 6].map(permuted).into();
    assert_eq!(sum.decode(0).unwrap(), Vec::from_iter(expected));
}

/// Four syndromes of five symbols that are also the syndromes of four other symbols.
#[test]
fn an_overfull_sketch_is_rejected() {
    let field = Field::new(12).unwrap();
    let overfull = sketch(field, 4, [1555, 1842, 1935, 2669, 3231]);
    assert_eq!(hex(&overfull.to_bytes()), "5c405aa32473");
    assert_eq!(overfull.to_bytes(), sketch(field, 4, [527, 1997, 2586, 3972]).to_bytes());
    assert_eq!(overfull.decode(0), None);
}

#[test]
fn zero_has_a_bit_of_its_own() {
    let field = Field::new(9).unwrap();
    let mut zero = sketch(field, 3, [0, 512]); // 512 has bits above the field's only
    assert!(!zero.has_zero());
    zero.toggle_all(&[0, 17, 0, 512, 300]);
    assert!(zero.has_zero());
    assert_eq!(zero.decode(0).unwrap(), [0, 17, 300]);
    assert_eq!(sketch(field, 0, [0]).decode(0), None);
    assert_eq!(sketch(field, 1, [0]).decode(0).unwrap(), [0]);
    assert_eq!(sketch(field, 1, [1]).decode(0), None);
}

#[test]
fn mismatches_and_wrong_bytes_are_refused() {
    let (field, other) = (Field::new(12).unwrap(), Field::new(13).unwrap());
    let mut ours = sketch(field, 3, [1, 2]);
    let before = ours.clone();
    assert!(ours.merge(&PinSketch::new(other, 3)).is_err());
    assert!(ours.merge(&PinSketch::new(field, 4)).is_err());
    assert_eq!(ours, before);
    let bytes = ours.to_bytes(); // 36 bits, 5 bytes
    assert_eq!(PinSketch::from_bytes(field, 3, false, &bytes), Ok(ours.clone()));
    for capacity in [2, 4, usize::MAX] {
        assert_eq!(
            PinSketch::from_bytes(field, capacity, false, &bytes),
            Err(SyndromesError::Length { got: 5, capacity, field })
        );
    }
    let mut padded = bytes;
    padded[4] |= 0x80;
    assert_eq!(
        PinSketch::from_bytes(field, 3, false, &padded),
        Err(SyndromesError::Bits(LsbError::Padding { bits: 8 }))
    );
    assert_eq!(
        PinSketch::from_parts(field, true, vec![4095, 4096]),
        Err(SyndromesError::OutsideField { index: 1, value: 4096, field })
    );
    ours.truncate(2);
    assert_eq!(ours, sketch(field, 2, [1, 2]));
}

/// Exhaustive reference for Berlekamp-Massey and the trace algorithm: all sets of up to two symbols
/// of GF(2^8), with three syndromes.
#[test]
fn small_sets_are_distinguished_exhaustively() {
    let field = Field::new(8).unwrap();
    let mut seen = BTreeSet::new();
    for a in 0..256 {
        for b in a..256 {
            let symbols = if a == b { vec![a] } else { vec![a, b] };
            let sketch = sketch(field, 3, symbols.clone());
            assert_eq!(sketch.decode(3).unwrap(), symbols);
            assert!(seen.insert((sketch.has_zero(), sketch.to_bytes())));
        }
    }
}

/// Reference that finds the roots of the locator polynomial by trying all numbers.
fn decode_by_trying(field: Field, syndromes: &[u64], capacity: usize) -> Option<Vec<u64>> {
    // Gauss: the shortest register that continues the power sums, then all numbers as roots.
    let mut sums = Vec::new();
    for index in 0..2 * syndromes.len() {
        let half = |sums: &Vec<u64>| field.square(sums[index / 2]);
        sums.push(if index % 2 == 0 { syndromes[index / 2] } else { half(&sums) });
    }
    (0..capacity).find_map(|length| {
        let register = solve_register(field, &sums, length)?;
        let value =
            |x: u64| register.iter().fold(1, |sum, &coefficient| field.mul(sum, x) ^ coefficient);
        let roots: Vec<u64> = (1..=field.mask()).filter(|&x| value(x) == 0).collect();
        Some((roots.len() == length).then_some(roots))
    })?
}

/// C_1..C_L with S_n = Σ C_i · S_(n−i) for all n ≥ L.
fn solve_register(field: Field, sums: &[u64], length: usize) -> Option<Vec<u64>> {
    let mut rows: Vec<Vec<u64>> = (length..sums.len())
        .map(|n| (1..=length).map(|i| sums[n - i]).chain([sums[n]]).collect())
        .collect();
    for column in 0..length {
        let pivot = (column..rows.len()).find(|&row| rows[row][column] != 0)?;
        rows.swap(column, pivot);
        let inverse = field.inverse(rows[column][column]).unwrap();
        let pivot: Vec<u64> = rows[column].iter().map(|&a| field.mul(a, inverse)).collect();
        for (index, row) in rows.iter_mut().enumerate() {
            let factor = if index == column { 0 } else { row[column] };
            row.iter_mut().zip(&pivot).for_each(|(a, &b)| *a ^= field.mul(factor, b));
        }
        rows[column] = pivot;
    }
    let is_solved = rows[length..].iter().all(|row| row[length] == 0);
    is_solved.then(|| rows[..length].iter().map(|row| row[length]).collect())
}

fn any_field() -> impl Strategy<Value = Field> {
    (8..=64u8).prop_map(|bits| Field::new(bits).unwrap())
}

proptest! {
    #[test]
    fn sums_are_differences(
        field in any_field(),
        ours: BTreeSet<u64>,
        theirs: BTreeSet<u64>,
        capacity in 0..20usize,
    ) {
        let cut = |set: &BTreeSet<u64>| -> BTreeSet<u64> {
            set.iter().map(|symbol| symbol & field.mask()).collect()
        };
        let (ours, theirs) = (cut(&ours), cut(&theirs));
        let difference: BTreeSet<u64> = ours.symmetric_difference(&theirs).copied().collect();
        let mut sum = sketch(field, capacity, ours);
        sum.merge(&sketch(field, capacity, theirs)).unwrap();
        prop_assert_eq!(&sum, &sketch(field, capacity, difference.clone()));
        // A longer sketch begins with the same syndromes.
        let mut longer = PinSketch::new(field, capacity + 5);
        longer.toggle_all(&Vec::from_iter(difference));
        longer.truncate(capacity);
        prop_assert_eq!(&sum, &longer);
        let bytes = sum.to_bytes();
        prop_assert_eq!(PinSketch::from_bytes(field, capacity, sum.has_zero(), &bytes), Ok(sum));
    }

    #[test]
    fn sets_that_fit_come_back(
        field in any_field(),
        symbols in prop::collection::btree_set(any::<u64>(), 0..40),
        spare in 1..4usize,
        seed: u64,
    ) {
        let symbols: BTreeSet<u64> = symbols.iter().map(|symbol| symbol & field.mask()).collect();
        let non_zero = symbols.iter().filter(|&&symbol| symbol != 0).count();
        let sketch = sketch(field, non_zero + spare, symbols.iter().copied());
        prop_assert_eq!(sketch.decode(seed), Some(Vec::from_iter(symbols)));
    }

    #[test]
    fn decoding_agrees_with_trying(bits in 8..=12u8, syndromes: [u16; 4], count in 1..=4usize) {
        let field = Field::new(bits).unwrap();
        let cut = |&syndrome: &u16| u64::from(syndrome) & field.mask();
        let syndromes: Vec<u64> = syndromes[..count].iter().map(cut).collect();
        let found = decode_syndromes(field, &syndromes, 5);
        prop_assert_eq!(&found, &decode_by_trying(field, &syndromes, count));
        // Any result has the given syndromes.
        if let Some(symbols) = found {
            let again = sketch(field, count, symbols);
            prop_assert_eq!(again.syndromes(), syndromes);
        }
    }

    #[test]
    fn any_syndromes_end(
        field in any_field(),
        syndromes in prop::collection::vec(any::<u64>(), 0..100),
        seed: u64,
    ) {
        let found = decode_syndromes(field, &syndromes, seed);
        if let Some(symbols) = found {
            let again = sketch(field, syndromes.len(), symbols);
            let cut = syndromes.iter().map(|syndrome| syndrome & field.mask());
            prop_assert!(again.syndromes().iter().copied().eq(cut));
        }
    }

    #[test]
    fn overfull_sketches_are_refused(
        symbols in prop::collection::btree_set(1..u64::MAX, 12..60),
        capacity in 6..12usize,
    ) {
        let field = Field::new(64).unwrap();
        prop_assert_eq!(sketch(field, capacity, symbols).decode(0), None);
    }

    #[test]
    fn tables_are_rows_of_sketches(
        field in any_field(),
        symbols in prop::collection::vec((0..4u32, any::<u64>()), 0..30),
        capacity in 1..12usize,
    ) {
        let mut table = vec![0; 4 * capacity];
        toggle_buckets(field, &mut table, capacity, &symbols);
        for (bucket, row) in (0..).zip(table.chunks(capacity)) {
            let of_bucket = symbols.iter().filter(|symbol| symbol.0 == bucket);
            let expected = sketch(field, capacity, of_bucket.map(|symbol| symbol.1));
            prop_assert_eq!(row, expected.syndromes());
        }
    }
}
