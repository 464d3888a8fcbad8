//! Probes inside a 512-bit block: k of 16 lanes of 32 bits, one probe a lane.
//!
//! An item's *probe seed*, 32 bits, decides everything: which k lanes, and which bit in each.
//!
//! ```text
//! bit of lane l   (seed · SALTS[l] mod 2^32) >> 27                     5 bits, multiply-shift
//! lanes           LANE_SETS[k] with every lane number XOR r            r = (seed · SALT_SET mod 2^32) >> 28
//!
//! k = 6:  lanes 0 1 2 4 8 15 for r = 0;  0 1 3 5 9 14 for r = 1;  0 2 3 6 10 13 for r = 2 …
//! ```
//!
//! One multiplication, two shifts and a mask make all 16 lanes at once in vector registers, for any
//! k, and no two probes of an item ever meet. What a fixed pattern could lose is independence: if
//! two items share many lanes whenever they share one, a query meets crowded lanes too often. The
//! sets are chosen against that: {0, 1, 2, 4, 8, 15} is a (16, 6, 2) difference set of Z2^4, so any
//! two different translates share exactly two lanes (Beth, Jungnickel & Lenz 1999, *Design Theory*,
//! doi:10.1017/CBO9780511549533), its complement with ten lanes shares six, and every other set has
//! the least variance of the number of shared lanes. At 1 % (k = 6) the pattern needs 9.91 bits an
//! item, where k free positions in the block need 9.92 and no blocks at all 9.59; at 0.1 %
//! (k = 10) 15.61, 15.58 and 14.38. `sizing` has the exact rate.

/// Lanes of a block.
pub(crate) const LANE_COUNT: usize = 16;

/// Bits of a lane.
pub(crate) const LANE_BITS: u32 = 32;

/// Bits of a cache line, the unit in which filters are allocated: a block of lanes.
pub const LINE_BITS: u32 = 512;

/// Most probes of an item: one in every lane.
pub const BLOCK_PROBE_COUNT_MAX: u32 = 16;

/// For every k the lanes of translate 0, bit l for lane l. Any k of 16 with 0 among them whose
/// translates' shared lanes vary least; a test searches them all again.
pub(crate) const LANE_SETS: [u16; LANE_COUNT + 1] = [
    0b0000_0000_0000_0000,
    0b0000_0000_0000_0001,
    0b0000_0000_0000_0011,
    0b0000_0000_0000_0111,
    0b0000_0000_0001_0111,
    0b0000_0001_0001_0111,
    0b1000_0001_0001_0111,
    0b0001_0001_0001_1111,
    0b0000_0101_0011_1111,
    0b0001_0101_0011_1111,
    0b1001_0101_0011_1111,
    0b0001_0111_0111_1111,
    0b0001_0111_1111_1111,
    0b0001_1111_1111_1111,
    0b0011_1111_1111_1111,
    0b0111_1111_1111_1111,
    0b1111_1111_1111_1111,
];

/// Odd multipliers of the lanes: the high halves of the first 16 outputs of `SplitMix64` from state
/// 0 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195), made odd. Never to change: they are
/// part of every stored filter.
pub(crate) const SALTS: [u32; LANE_COUNT] = [
    0xe220_a839,
    0x6e78_9e6b,
    0x06c4_5d19,
    0xf88b_b8a9,
    0x1b39_896b,
    0x53cb_9f0d,
    0x2c82_9abf,
    0xc584_133b,
    0x3ee5_7891,
    0xf3b8_488d,
    0x657e_ecdd,
    0xc2d3_26e1,
    0x8621_a03f,
    0x8e1f_7555,
    0xb54e_0f17,
    0x84bb_3f97,
];

/// The 17th output: multiplier of the lane set.
pub(crate) const SALT_SET: u32 = 0x7d29_825d;

/// The lane sets of one k: the translate for each r.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaneSets {
    translates: [u16; LANE_COUNT],
}

impl LaneSets {
    /// For k probes, 1 to [`BLOCK_PROBE_COUNT_MAX`].
    pub(crate) fn new(probe_count: u32) -> Self {
        let set = LANE_SETS[probe_count as usize];
        Self { translates: std::array::from_fn(|r| translate(set, r)) }
    }

    /// The k lanes of an item, bit l for lane l.
    #[inline(always)]
    pub(crate) fn lanes(&self, seed: u32) -> u16 {
        self.translates[(seed.wrapping_mul(SALT_SET) >> (32 - LANE_COUNT.ilog2())) as usize]
    }
}

/// Every lane number XOR r.
pub(crate) fn translate(set: u16, r: usize) -> u16 {
    (0..LANE_COUNT).filter(|lane| set >> lane & 1 == 1).map(|lane| 1 << (lane ^ r)).sum()
}

/// The bit of an item in a lane, 0 to 31.
#[inline(always)]
pub(crate) const fn bit_in_lane(seed: u32, lane: usize) -> u32 {
    seed.wrapping_mul(SALTS[lane]) >> (32 - LANE_BITS.ilog2())
}

/// The k positions of an item in its block, ascending, each below 512.
#[inline]
pub(crate) fn positions(sets: &LaneSets, seed: u32) -> impl Iterator<Item = u32> + use<> {
    let mut lanes = sets.lanes(seed);
    std::iter::from_fn(move || {
        let lane = (lanes != 0).then(|| lanes.trailing_zeros())?;
        lanes &= lanes - 1;
        Some(lane * LANE_BITS + bit_in_lane(seed, lane as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crate's documentation shows these numbers to whoever writes another reader.
    #[test]
    fn the_documented_pattern_is_the_one_in_use() {
        let docs = include_str!("lib.rs");
        for salt in SALTS {
            assert!(docs.contains(&format!(" {salt:08x}")), "{salt:08x}");
        }
        assert!(docs.contains(&format!("{SALT_SET:#010x}")));
        for (probe_count, set) in LANE_SETS.iter().enumerate().skip(1) {
            assert!(docs.contains(&format!("{probe_count:>2} {set:04x}")), "{probe_count}");
        }
    }

    /// How often each difference a XOR b of two lanes occurs, squared and summed: what the variance
    /// of the number of shared lanes over all r hangs on.
    fn spread(set: u16) -> u32 {
        (1..LANE_COUNT).map(|r| (set & translate(set, r)).count_ones().pow(2)).sum()
    }

    #[test]
    fn lane_sets_are_the_best_of_their_size() {
        for (set, count) in LANE_SETS.into_iter().zip(0..) {
            assert_eq!(set.count_ones(), count);
            let all = (0..=u16::MAX).filter(|other| other.count_ones() == count);
            assert_eq!(all.map(spread).min(), Some(spread(set)), "k = {count}");
        }
    }

    #[test]
    fn different_translates_of_a_difference_set_share_equally_many() {
        for (count, shared) in [(6, 2), (10, 6)] {
            let set = LANE_SETS[count];
            assert!((1..LANE_COUNT).all(|r| (set & translate(set, r)).count_ones() == shared));
        }
    }

    #[test]
    fn the_picture_of_the_module() {
        let lanes = |r| iter_lanes(translate(LANE_SETS[6], r)).collect::<Vec<u32>>();
        assert_eq!(lanes(0), [0, 1, 2, 4, 8, 15]);
        assert_eq!(lanes(1), [0, 1, 3, 5, 9, 14]);
        assert_eq!(lanes(2), [0, 2, 3, 6, 10, 13]);
    }

    fn iter_lanes(set: u16) -> impl Iterator<Item = u32> {
        (0..16).filter(move |lane| set >> lane & 1 == 1)
    }

    #[test]
    fn salts_are_odd_and_different() {
        let mut salts: Vec<u32> = SALTS.into_iter().chain([SALT_SET]).collect();
        assert!(salts.iter().all(|salt| salt % 2 == 1));
        salts.sort_unstable();
        salts.dedup();
        assert_eq!(salts.len(), 17);
    }

    #[test]
    fn an_item_has_k_positions_one_a_lane() {
        for probe_count in 1..=BLOCK_PROBE_COUNT_MAX {
            let sets = LaneSets::new(probe_count);
            for seed in [0, 1, u32::MAX, 0x1234_5678, 0x9abc_def0] {
                let positions: Vec<u32> = positions(&sets, seed).collect();
                assert_eq!(positions.len(), probe_count as usize);
                assert!(positions.is_sorted_by(|a, b| a / LANE_BITS < b / LANE_BITS));
                assert!(positions.iter().all(|&position| position < 512));
            }
        }
    }

    /// Golden positions: a stored filter must mean the same for ever.
    #[test]
    fn positions_never_change() {
        let golden = |k, seed| positions(&LaneSets::new(k), seed).collect::<Vec<u32>>();
        assert_eq!(golden(6, 0x1234_5678), [89, 188, 264, 347, 383, 476]);
        assert_eq!(golden(1, 1), [248]);
    }
}
