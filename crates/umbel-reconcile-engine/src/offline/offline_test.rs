//! Sketch files, compared with sets: their contents, what decodes, and what is rejected.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::item::{Item, ItemIndex, ItemRef};
use super::*;

const GOLDEN: &[u8] = include_bytes!("../../testdata/sketch_v1.bin");

type Set = BTreeSet<u64>;

fn spec(kind: SymbolKind, symbol_bits: u8) -> SketchSpec {
    let salt = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    SketchSpec::new(kind, 0x0102_0304_0506_0708, salt, symbol_bits).unwrap()
}

fn fill(pass: &mut Pass, kind: SymbolKind, set: &Set) {
    for &number in set {
        let bytes = number.to_be_bytes();
        pass.add(
            ItemIndex(number),
            match kind {
                SymbolKind::Hashed => ItemRef::Bytes(&bytes),
                SymbolKind::Id64 => ItemRef::Id(number),
                SymbolKind::Keyed => ItemRef::Keyed { key: &bytes[6..], value: b"v" },
            },
        );
    }
}

fn sketch(spec: SketchSpec, set: &Set, coded_count: u64) -> StoredSketch {
    let mut pass = spec.pass(coded_count).unwrap();
    fill(&mut pass, spec.kind(), set);
    StoredSketch::of_pass(spec, pass).unwrap()
}

/// The difference of a set and a file that is read in pieces.
fn decode(ours: &Set, file: &[u8], piece_bytes: usize) -> Result<SketchDifference, SketchError> {
    let mut reader = SketchReader::new();
    let mut decoder = None;
    for piece in file.chunks(piece_bytes) {
        let cells = reader.push(piece)?;
        let Some(header) = reader.header() else { continue };
        let decoder = decoder.get_or_insert_with(|| {
            let mut pass = header.pass();
            fill(&mut pass, header.spec().kind(), ours);
            SketchDecoder::new(header, pass, u64::MAX).unwrap()
        });
        if decoder.push(&cells)? && !cells.is_empty() {
            break;
        }
    }
    decoder.unwrap().finish()
}

fn symbols(spec: SketchSpec, set: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
    let bits = spec.symbol_bits();
    let one = |number| {
        let whole = sketch(spec, &Set::from([number]), 1).sums.cells[0].coded.sum;
        whole << (64 - bits)
    };
    set.into_iter().map(one).collect()
}

fn found(items: &[super::super::item::RemoteItem]) -> BTreeSet<u64> {
    items.iter().map(|item| item.symbol).collect()
}

#[test]
fn golden_file() {
    let spec = spec(SymbolKind::Id64, 64);
    let sketch = sketch(spec, &Set::from([1, 2, 3]), 8);
    assert_eq!(sketch.to_bytes(), GOLDEN);
    assert_eq!(StoredSketch::from_bytes(GOLDEN), Ok(sketch));
    // Counts of coded symbols: the first one contains all three items.
    assert_eq!(GOLDEN[GOLDEN.len() - 6] & 3, 3);
    let difference = decode(&Set::from([2, 3, 4]), GOLDEN, 7).unwrap();
    assert_eq!(difference.only_here_indices, [ItemIndex(4)]);
    assert_eq!(difference.only_there[0].item, Some(Item::Id(1)));
    assert!(difference.verified);
}

#[test]
fn too_few_coded_symbols_say_how_many_are_needed() {
    let spec = spec(SymbolKind::Hashed, 64);
    let (ours, theirs) = ((0..1000).collect(), (0..1400).collect());
    let short = sketch(spec, &theirs, 100);
    let error = decode(&ours, &short.to_bytes(), 1 << 20).unwrap_err();
    let SketchError::InsufficientSymbols { have: 100, need_at_least, estimated } = error else {
        panic!("{error}");
    };
    assert!((400..700).contains(&estimated), "{estimated}");
    assert_eq!(need_at_least, (estimated * 3).div_ceil(2));
    assert_eq!(short.difference(&sketch(spec, &ours, 100)), Err(error));
    let long = sketch(spec, &theirs, SketchSpec::coded_count_for(400));
    assert!(short.is_prefix_of(&long) && !long.is_prefix_of(&short));
    let difference = decode(&ours, &long.to_bytes(), 1 << 20).unwrap();
    assert_eq!((difference.only_there.len(), difference.there_count), (400, 1400));
    assert!(!difference.verified, "the items are not known, only their symbols");
    let back = decode(&theirs, &sketch(spec, &ours, 900).to_bytes(), 100).unwrap();
    assert!(back.verified && back.coded_count < 800);
}

#[test]
fn symbols_take_whole_bytes() {
    let bytes =
        |bits| sketch(spec(SymbolKind::Hashed, bits), &Set::from([1]), 100).to_bytes().len();
    assert_eq!((bytes(41), bytes(47)), (bytes(48), bytes(48)));
    assert_eq!(bytes(64), bytes(48) + 200);
}

#[test]
fn an_item_that_is_added_twice_is_noticed_when_the_sketch_is_used() {
    for kind in SymbolKind::ALL {
        let spec = spec(kind, 64);
        let mut kept = sketch(spec, &Set::from([1, 2]), 30);
        kept.add(&sketch(spec, &Set::from([2]), 30)).unwrap();
        let error = decode(&Set::from([1, 2]), &kept.to_bytes(), 99).unwrap_err();
        assert!(matches!(error, SketchError::Unverified { .. }), "{error}");
        // A comparison of two sketches without the set finds the item as one that only that set has.
        let difference = sketch(spec, &Set::from([1, 2]), 30).difference(&kept).unwrap();
        assert_eq!(found(&difference.only_there), symbols(spec, [2]));
        let mut small = sketch(spec, &Set::from([1]), 30);
        let gone = sketch(spec, &Set::from([1, 2]), 30);
        assert_eq!(small.remove(&gone), Err(SketchError::NotPresent));
        assert_eq!(small, sketch(spec, &Set::from([1]), 30));
        assert_eq!(small.remove(&sketch(spec, &Set::from([9]), 30)), Err(SketchError::NotPresent));
    }
}

#[test]
fn sketches_of_other_salts_do_not_meet() {
    let ours = sketch(spec(SymbolKind::Hashed, 64), &Set::new(), 9);
    let other = SketchSpec::new(SymbolKind::Hashed, 0x0102_0304_0506_0708, [0; 16], 64).unwrap();
    let mut theirs = sketch(other, &Set::new(), 9);
    assert_eq!(ours.difference(&theirs), Err(SketchError::OtherSpec));
    assert_eq!(theirs.add(&ours), Err(SketchError::OtherSpec));
    let longer = sketch(other, &Set::new(), 10);
    assert_eq!(longer.clone().add(&theirs), Err(SketchError::Shorter { got: 9, min: 10 }));
    assert_eq!(theirs.add(&longer), Ok(()));
    assert!(ours.difference(&ours).unwrap().verified);
}

#[test]
fn a_pass_refuses_other_kinds_and_lengths() {
    let spec = spec(SymbolKind::Id64, 64);
    let mut pass = spec.pass(3).unwrap();
    pass.add(ItemIndex(0), ItemRef::Bytes(b"x"));
    assert_eq!(StoredSketch::of_pass(spec, pass), Err(SketchError::Mixed));
    assert!(spec.pass(0).is_err() && spec.pass(u64::MAX).is_err());
    let (mut whole, ids) = (spec.pass(50).unwrap(), Set::from([1, 2, 3]));
    let mut part = whole.fork();
    fill(&mut whole, SymbolKind::Id64, &Set::from([1]));
    fill(&mut part, SymbolKind::Id64, &Set::from([2, 3]));
    whole.merge(part);
    assert_eq!(StoredSketch::of_pass(spec, whole).unwrap(), sketch(spec, &ids, 50));
}

/// A file with a replaced byte and a matching header checksum.
fn forged(at: usize, byte: u8) -> Vec<u8> {
    let mut file = GOLDEN.to_vec();
    file[at] = byte;
    let end = 74 + usize::from(u16::from_le_bytes([file[72], file[73]]));
    if let Some((covered, rest)) = file.split_at_mut_checked(end) {
        let checksum = umbel_codec::crc32c(&[covered]).to_le_bytes();
        rest.iter_mut().zip(checksum).for_each(|(to, from)| *to = from);
    }
    file
}

#[test]
fn what_no_sketch_has_is_refused() {
    let refused = |at, byte| StoredSketch::from_bytes(&forged(at, byte)).unwrap_err();
    assert!(matches!(refused(0, 0), SketchFormatError::Magic { .. }));
    assert_eq!(refused(4, 2), SketchFormatError::Version { expected: 1, got: 2 });
    let field = |field, got| SketchFormatError::Field { field, got };
    assert_eq!(refused(5, 3), field("kind", 3));
    assert_eq!(refused(6, 65), field("symbol bits", 65));
    assert_eq!(refused(7, 1), field("zero", 1));
    assert_eq!(refused(39, 1), field("items", 3 | 1 << 56));
    assert_eq!(refused(64, 0), field("coded symbols", 0));
    assert_eq!(refused(71, 1), field("coded symbols", 8 | 1 << 56));
    assert_eq!(refused(32, 0), field("estimator", 0));
    assert!(matches!(refused(73, 255), SketchFormatError::Field { field: "estimator bytes", .. }));
    // A file that announces many coded symbols takes no more memory than it has bytes.
    let promised = forged(66, 1);
    let mut reader = SketchReader::new();
    assert!(reader.push(&promised).unwrap().is_empty());
    assert_eq!(reader.header().unwrap().coded_count(), 65_544);
    assert!(reader.wanted_bytes() <= 128 * 12 + 32 + 4);
    let missing = SketchFormatError::Truncated { got: 0, expected: 65_544 };
    assert_eq!(reader.end(), Err(missing));
    let longer = [GOLDEN, &[0]].concat();
    let trailing = SketchFormatError::Trailing { extra: 1 };
    assert_eq!(StoredSketch::from_bytes(&longer), Err(trailing));
}

/// The claim of [`SketchSpec::coded_count_for`], with five standard deviations to spare.
#[test]
fn lengths_suffice_in_99_of_100_cases() {
    for (difference, runs) in [(1, 300), (3, 300), (10, 300), (100, 300), (500, 60)] {
        let count = SketchSpec::coded_count_for(difference);
        let ids: Set = (0..difference).collect();
        let is_too_short = |run: &u64| {
            let salt = u128::from(*run).to_le_bytes();
            let spec = SketchSpec::new(SymbolKind::Id64, 0, salt, 64).unwrap();
            let empty = sketch(spec, &Set::new(), count);
            sketch(spec, &ids, count).difference(&empty).is_err()
        };
        let short_count = (0..runs).filter(is_too_short).count();
        let allowed = runs as f64 * 0.01 + 5.0 * (runs as f64 * 0.01).sqrt();
        assert!((short_count as f64) < allowed, "{difference}: {short_count} of {runs}");
    }
}

proptest! {
    /// The expected result is the difference of two sets in memory.
    #[test]
    fn differences_are_those_of_the_sets(
        common in prop::collection::btree_set(0u64..5000, 0..300),
        ours in prop::collection::btree_set(5000u64..6000, 0..40),
        theirs in prop::collection::btree_set(6000u64..7000, 0..40),
        variant in 0usize..5,
        piece_bytes in 1usize..3000,
    ) {
        let spec = [
            spec(SymbolKind::Id64, 64),
            spec(SymbolKind::Hashed, 64),
            spec(SymbolKind::Hashed, 48),
            spec(SymbolKind::Hashed, 33),
            spec(SymbolKind::Keyed, 64),
        ][variant];
        let (a, b): (Set, Set) = (&common | &ours, &common | &theirs);
        let (sketch_a, sketch_b) = (sketch(spec, &a, 500), sketch(spec, &b, 400));
        let file = sketch_b.to_bytes();
        prop_assert_eq!(&StoredSketch::from_bytes(&file).unwrap(), &sketch_b);
        let by_set = decode(&a, &file, piece_bytes).unwrap();
        let by_sketch = sketch_a.difference(&sketch_b).unwrap();
        let indices: Set = by_set.only_here_indices.iter().map(|index| index.0).collect();
        prop_assert_eq!(&indices, &ours);
        for difference in [&by_set, &by_sketch] {
            prop_assert_eq!(found(&difference.only_here), symbols(spec, ours.clone()));
            prop_assert_eq!(found(&difference.only_there), symbols(spec, theirs.clone()));
        }
        if spec.kind() == SymbolKind::Id64 {
            let ids = by_sketch.only_there.iter().map(|item| item.item.clone().unwrap());
            let expected: BTreeSet<Item> = theirs.iter().map(|id| Item::Id(*id)).collect();
            prop_assert_eq!(ids.collect::<BTreeSet<Item>>(), expected);
        }
        prop_assert_eq!(by_set.verified, spec.kind() == SymbolKind::Id64 || theirs.is_empty());
        let both_empty = ours.is_empty() && theirs.is_empty();
        prop_assert_eq!(by_sketch.verified, spec.kind() == SymbolKind::Id64 || both_empty);
    }

    /// Updates of a sketch yield the sketch of the updated set.
    #[test]
    fn a_kept_sketch_is_a_built_one(
        before in prop::collection::btree_set(0u64..1000, 0..100),
        more in prop::collection::btree_set(1000u64..2000, 0..100),
        gone_share in 0usize..101,
    ) {
        let spec = spec(SymbolKind::Hashed, 48);
        let mut kept = sketch(spec, &before, 200);
        kept.add(&sketch(spec, &more, 200)).unwrap();
        let gone: Set = before.iter().take(before.len() * gone_share / 100).copied().collect();
        kept.remove(&sketch(spec, &gone, 200)).unwrap();
        let after: Set = &(&before | &more) - &gone;
        let built = sketch(spec, &after, 200);
        prop_assert_eq!(kept.to_bytes(), built.to_bytes());
        prop_assert!(kept.is_prefix_of(&sketch(spec, &after, 301)));
    }

    #[test]
    fn damage_is_noticed(at in 0usize..1000, bit in 0u32..8, length in 0usize..1000) {
        let at = at % GOLDEN.len();
        let mut file = GOLDEN.to_vec();
        file[at] ^= 1 << bit;
        prop_assert!(StoredSketch::from_bytes(&file).is_err());
        let cut = &GOLDEN[..length % GOLDEN.len()];
        let error = StoredSketch::from_bytes(cut).unwrap_err();
        let is_truncated = matches!(error, SketchFormatError::Truncated { .. });
        prop_assert!(is_truncated, "{}", error);
    }

    /// Decoding arbitrary coded symbols terminates with a result or an error.
    #[test]
    fn forged_coded_symbols_end(
        cells in prop::collection::vec((any::<u64>(), any::<u32>(), 0u8..4), 1..300),
        ours in prop::collection::btree_set(0u64..1000, 0..50),
    ) {
        let spec = spec(SymbolKind::Id64, 64);
        let mut forged = sketch(spec, &ours, cells.len() as u64);
        for (cell, (sum, check, count)) in forged.sums.cells.iter_mut().zip(cells) {
            *cell = SketchCell { coded: CodedSymbol { sum, check }, count };
        }
        prop_assert!(decode(&ours, &forged.to_bytes(), 500).is_err());
        prop_assert!(sketch(spec, &ours, 500).difference(&forged).is_err());
    }
}
