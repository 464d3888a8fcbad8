//! Stable filters beside plain cells, at the borders, and beside their formulas.

use proptest::prelude::*;

use super::*;
use crate::capability::{Contains, Insert};
use crate::hash::ItemHasher;
use crate::range::CellCount;
use crate::shape::LINE_BITS;
use crate::sizing::{stable_missed_rate, stable_zeros};
use crate::stable_pace::STABLE_LOWERED_MAX;

fn hash(number: u64) -> ItemHash {
    ItemHasher::Xxh3 { seed: 5 }.hash(&number.to_le_bytes())
}

fn empty(blocks: u64, probes: u32, lowered_cells: u32, cell_max: u32) -> Stable {
    let shape = BlockShape::new(Kind::Stable, HashRange::WHOLE, blocks, LINE_BITS, probes).unwrap();
    let pace = StablePace { lowered_cells, cell_max };
    Stable::with_shape(shape.with_pace(pace.number()).unwrap()).unwrap()
}

/// The slow twin: a byte a cell, one step after the other.
struct Twin {
    cells: Vec<u8>,
    inserts: u64,
}

impl Twin {
    fn positions(filter: &Stable, hash: ItemHash) -> Vec<usize> {
        let block = filter.shape.map().block(hash.hi()) * 512;
        let positions = lanes::positions(&filter.sets, scalar::probe_seed(hash));
        positions.map(|position| index(block + u64::from(position))).collect()
    }

    fn insert(&mut self, filter: &Stable, hash: ItemHash) -> Insertion {
        let positions = Self::positions(filter, hash);
        let is_present = positions.iter().all(|&at| self.cells[at] > 0);
        // The stream of SplitMix64 from state 0 on.
        let mut z = (self.inserts + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let len = self.cells.len();
        let first = index(u64::try_from((u128::from(z) * len as u128) >> 64).unwrap());
        for step in 0..(filter.pace.lowered_cells as usize).min(len) {
            let cell = &mut self.cells[(first + step) % len];
            *cell = cell.saturating_sub(1);
        }
        for at in positions {
            self.cells[at] = u8::try_from(filter.pace.cell_max).unwrap();
        }
        self.inserts += 1;
        if is_present { Insertion::Present } else { Insertion::New }
    }
}

fn cells_of(filter: &Stable) -> Vec<u8> {
    let nibbles =
        |word: &u64| (0..16).map(|at| u8::try_from(word >> (4 * at) & 15).unwrap()).collect();
    filter.words().iter().flat_map(|word| -> Vec<u8> { nibbles(word) }).collect()
}

proptest! {
    #[test]
    fn it_is_cells_that_are_lowered_and_set(
        blocks in 1..4u64, probes in 1..=16u32, lowered in 1..=STABLE_LOWERED_MAX, max in 1..=15u32,
        items in prop::collection::vec(0..60u64, 0..80),
    ) {
        let mut filter = empty(blocks, probes, lowered, max);
        let mut twin = Twin { cells: vec![0; index(blocks * 512)], inserts: 0 };
        for item in items {
            let expected = twin.insert(&filter, hash(item));
            prop_assert_eq!(filter.insert(hash(item)), Ok(expected));
            prop_assert!(filter.contains(hash(item)));
            prop_assert_eq!(cells_of(&filter), twin.cells.clone());
            prop_assert_eq!(filter.counts(), [twin.inserts, 0]);
        }
    }
}

/// Replicas and stored filters depend on it: the first places are those of SplitMix64 from 0 on.
#[test]
fn golden_places() {
    assert_eq!(split_mix(0), 0xe220_a839_7b1d_cdaf);
    assert_eq!(split_mix(1), 0x6e78_9e6a_a1b9_65f4);
    let mut filter = empty(4, 1, 700, 1);
    filter.cells.words_mut().fill(0x1111_1111_1111_1111);
    // ⌊0xe220a839… · 2,048 / 2^64⌋ = 1,809: 1,809 to 2,047, and 0 to 460.
    filter.lower();
    let zeros: Vec<usize> = (0..2_048).filter(|&at| cells_of(&filter)[at] == 0).collect();
    assert_eq!((zeros.len(), zeros[0], zeros[460], zeros[461]), (700, 0, 460, 1_809));
}

/// The golden case of the design, and two more settings: zeros, strangers and the missing beside their
/// formulas, when the filter has come to its limit.
#[test]
fn errors_are_those_of_the_formulas() {
    for (blocks, probes, lowered, max, ages) in [
        (400, 3, 11, 1, [200, 650, 2_000]),
        (400, 6, 26, 3, [2_000, 4_000, 8_000]),
        (400, 8, 141, 15, [8_000, 10_000, 14_000]),
    ] {
        let mut filter = empty(blocks, probes, lowered, max);
        let cells = filter.shape.position_count();
        // Many times what the filter holds, so that nothing is left of its beginning.
        let count = 40 * cells / u64::from(lowered) * u64::from(max);
        let (mut next, mut asked, mut missed) = (0, [0_u64; 3], [0_u64; 3]);
        let (mut strangers, mut zeros, mut samples) = (0_u64, 0_u64, 0_u64);
        while next < count {
            filter.insert(hash(next)).unwrap();
            next += 1;
            if next < count / 8 || !next.is_multiple_of(7) {
                continue;
            }
            for (at, age) in ages.into_iter().enumerate() {
                asked[at] += 1;
                missed[at] += u64::from(!filter.contains(hash(next - 1 - age)));
            }
            strangers += u64::from(filter.contains(hash(1 << 40 | next)));
            if next.is_multiple_of(7_000) {
                zeros += cells - filter.describe().one_count;
                samples += cells;
            }
        }
        let name = format!("k = {probes}, P = {lowered}, Max = {max}");
        let expected = stable_zeros(probes, lowered, max);
        let share = zeros as f64 / samples as f64;
        println!("{name}: zeros {share:.4}, formula {expected:.4}");
        assert!((share - expected).abs() < 0.01, "{name}: {share}, expected {expected}");
        let rate = strangers as f64 / asked[0] as f64;
        let formula = (1.0 - expected).powi(probes.cast_signed());
        println!("{name}: strangers {rate:.5}, formula {formula:.5}");
        // A shared block and neighbours that fall together cost more, the more cells an item has.
        let noise = 5.0 * (formula / asked[0] as f64).sqrt();
        assert!(rate < 1.6 * formula + noise && rate > 0.9 * formula - noise, "{name}: {rate}");
        for (at, age) in ages.into_iter().enumerate() {
            let rate = missed[at] as f64 / asked[at] as f64;
            let bound = stable_missed_rate(probes, lowered, max, cells, age);
            println!("{name}: missed after {age}: {rate:.5}, at most {bound:.5}");
            let noise = 5.0 * (bound / asked[at] as f64).sqrt();
            assert!(rate < bound * 1.05 + noise, "{name}, {age}: {rate}, at most {bound}");
        }
    }
}

/// A plan keeps both of its bounds, whatever the rate.
#[test]
fn plans_keep_both_rates() {
    for (item_count, rate) in [(10_000, 0.1), (10_000, 0.01), (10_000, 0.001)] {
        let mut filter = Stable::for_rate(HashRange::WHOLE, item_count, rate).unwrap();
        let (mut strangers, mut missed, mut asked) = (0_u64, 0_u64, 0_u64);
        for next in 0..30 * item_count {
            filter.insert(hash(next)).unwrap();
            if next >= 5 * item_count {
                asked += 1;
                missed += u64::from(!filter.contains(hash(next - item_count)));
                strangers += u64::from(filter.contains(hash(1 << 40 | next)));
            }
        }
        let bound = rate * asked as f64;
        println!("{rate}: {strangers} strangers, {missed} missed, at most {bound}");
        let most = bound + 5.0 * bound.sqrt();
        assert!(
            (strangers as f64) < most && (missed as f64) < most,
            "{rate}: {strangers}, {missed}"
        );
        let described = filter.describe().false_positive_rate;
        assert!(described < rate * 1.1 && described > rate * 0.5, "{described} at {rate}");
    }
}

/// The table of docs/filters.md.
#[test]
fn bits_an_item_are_those_of_the_table() {
    for (rate, expected) in [(0.01, 97.8), (0.001, 207.1), (0.000_1, 376.0)] {
        let shape = BlockShape::for_rate(Kind::Stable, HashRange::WHOLE, 1_000_000, rate).unwrap();
        let bits = shape.memory_bytes() as f64 * 8.0 / 1e6;
        println!("{shape}: {bits}");
        assert!((bits - expected).abs() < 0.06, "{bits} at {rate}");
    }
}

/// Items of a range are placed as in the whole; how far they are forgotten is each filter's own.
#[test]
fn a_range_has_the_places_of_the_whole() {
    let whole = empty(64, 6, 20, 7);
    let cells = CellCount::new(4).unwrap();
    for number in 0..100 {
        let hash = hash(number);
        let cell = cells.cell_of(hash.hi());
        let shape = whole.shape.with_range(HashRange::cell(cell, cells)).unwrap();
        let (mut part, mut whole) = (Stable::with_shape(shape).unwrap(), whole.clone());
        part.insert(hash).unwrap();
        whole.insert(hash).unwrap();
        let words = part.words().len();
        assert_eq!(part.words(), &whole.words()[cell as usize * words..][..words]);
    }
}

#[test]
fn shapes_that_are_none_are_refused() {
    let shape = BlockShape::new(Kind::Stable, HashRange::WHOLE, 4, LINE_BITS, 6).unwrap();
    let most = u64::from(STABLE_LOWERED_MAX);
    for number in [0, 15, 16, 16 * most + 16 + 15, 16 * most, u64::MAX] {
        let refused = ShapeError::Pace { kind: Kind::Stable, pace: number };
        assert_eq!(shape.with_pace(number), Err(refused), "{number}");
    }
    assert!(shape.with_pace(16 * most + 15).is_ok());
    assert!(matches!(Stable::with_shape(shape), Err(CreateError::Shape(ShapeError::Pace { .. }))));
    let blocked = BlockShape::new(Kind::Blocked, HashRange::WHOLE, 4, LINE_BITS, 6).unwrap();
    let refused = ShapeError::Kind { kind: Kind::Blocked };
    assert_eq!(Stable::with_shape(blocked), Err(refused.into()));
}

/// Cells and counts that no filter has, as they may come from a copy, do no harm.
#[test]
fn cells_and_counts_of_any_size_are_borne() {
    let mut filter = empty(2, 6, 1_024, 3);
    let (words, counts) = filter.parts_mut();
    words.fill(u64::MAX);
    *counts = [u64::MAX, u64::MAX];
    assert_eq!(filter.insert(hash(1)), Ok(Insertion::Present));
    assert_eq!(filter.counts()[0], 0);
    assert!(filter.describe().item_count.is_none());
    filter.clear();
    assert_eq!(filter, empty(2, 6, 1_024, 3));
}
