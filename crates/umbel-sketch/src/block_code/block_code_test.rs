//! Golden generators and residues, the bitwise CRC as reference, and what is corrected and
//! rejected.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::gf2::kernel::Scalar;

fn block(positions: impl IntoIterator<Item = u32>) -> [u64; BLOCK_WORDS] {
    let mut block = [0; BLOCK_WORDS];
    for position in positions {
        block[position as usize / 64] ^= 1 << (position % 64);
    }
    block
}

/// Slow reference: highest bit first, shift, and subtract the generator.
fn bitwise_residue(block: &[u64; BLOCK_WORDS], low: u64) -> u64 {
    (0..BLOCK_BITS).rev().fold(0, |rest, position| {
        let bit = block[position as usize / 64] >> (position % 64) & 1;
        (rest << 1 | bit) ^ if rest >> 63 == 1 { low } else { 0 }
    })
}

#[test]
fn golden_generators() {
    let golden = [
        0x5786_1c14_8388_f84f,
        0x59ce_0766_c12c_b96d,
        0x549f_f0cc_ded6_2a25,
        0x2ccd_2ec5_2ac5_2065,
        0xd4dd_cdf2_6782_f9cd,
        0x33d6_ee57_cc9d_b3c3,
        0xc641_737d_b8ce_03d1,
        0xae7b_ac8d_b8ed_660b,
    ];
    let code = BlockCode::new(8).unwrap();
    assert!((0..8).map(|word| code.generator(word)).eq(golden));
    for word_count in [0, 33, usize::MAX] {
        assert_eq!(BlockCode::new(word_count).unwrap_err(), BlockCodeError { word_count });
    }
}

#[test]
fn golden_residues() {
    let code = BlockCode::new(2).unwrap();
    assert_eq!(code.residues(&block([0])), [1, 1]);
    let residues = code.residues(&block([0, 1, 100, 32_767]));
    assert_eq!(residues, [0x6908_692f_dc4a_cb72, 0x003f_6502_1306_faf2]);
    let syndromes = [1, 3, 5, 7].map(|j| Locators::known().evaluate(residues[0], j));
    assert_eq!(syndromes, [0xf1a6, 0x8125, 0xf49f, 0x8050]);
    let residues = code.residues(&block([5, 6, 7, 1_000, 2_000, 30_000, 32_766]));
    assert_eq!(residues, [0x3d69_7393_3475_0307, 0xfe41_7fcb_ad83_0fdb]);
    assert_eq!(code.decode(&residues, 1).unwrap(), [5, 6, 7, 1_000, 2_000, 30_000, 32_766]);
    // One word corrects three flips, but not four.
    assert_eq!(code.decode(&residues[..1], 1), None);
    assert_eq!(code.decode(&[0, 0], 1), Some(vec![]));
}

/// Syndromes are the power sums of the locators, in every word.
#[test]
fn residues_hold_the_syndromes() {
    let code = BlockCode::new(RESIDUE_WORDS_MAX).unwrap();
    let positions = [3, 77, 4_096, 29_999];
    let residues = code.residues(&block(positions));
    let locators = Locators::known();
    for (word, residue) in (0..).zip(residues) {
        for j in [1, 3, 5, 7].map(|odd| 8 * word + odd) {
            let sum = positions.iter().fold(0, |sum, &p| sum ^ locators.evaluate(2, p * j));
            assert_eq!(locators.evaluate(residue, j), sum);
        }
    }
}

/// Locators beyond the block are rejected.
#[test]
fn positions_beyond_the_block_are_rejected() {
    let code = BlockCode::new(1).unwrap();
    // x^32768 mod G.
    let beyond = code.residues(&block([32_767]))[0];
    let beyond = beyond << 1 ^ if beyond >> 63 == 1 { code.generator(0) } else { 0 };
    assert_eq!(Locators::known().evaluate(beyond, 1), Locators::known().evaluate(2, 32_768));
    assert_eq!(code.decode(&[beyond], 1), None);
}

fn positions(count: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = BTreeSet<u32>> {
    prop::collection::btree_set(0..BLOCK_BITS, count)
}

proptest! {
    #[test]
    fn residues_are_the_bitwise_ones(words in prop::array::uniform16(any::<u64>()), count in 1..=4usize) {
        let code = BlockCode::new(count).unwrap();
        let mut block = [0; BLOCK_WORDS];
        for (index, (word, seed)) in (0u32..).zip(block.iter_mut().zip(words.iter().cycle())) {
            *word = seed.rotate_left(index).wrapping_mul(u64::from(index) | 1);
        }
        let residues = code.residues(&block);
        for (word, &residue) in residues.iter().enumerate() {
            prop_assert_eq!(residue, bitwise_residue(&block, code.generator(word)));
            let scalar = code.generators[word].residue(Scalar::new(Field::BLOCK), &block);
            prop_assert_eq!(residue, scalar);
        }
        let mut both = vec![0; 2 * count];
        code.residues_of_blocks(&[block, block].concat(), &mut both);
        prop_assert_eq!(both, residues.repeat(2));
    }

    #[test]
    fn flips_keep_residues_up_to_date(positions in prop::collection::vec(0..BLOCK_BITS, 0..50)) {
        let code = BlockCode::new(3).unwrap();
        let mut residues = [0; 3];
        positions.iter().for_each(|&position| code.flip(&mut residues, position));
        prop_assert_eq!(&residues[..], code.residues(&block(positions)));
    }

    #[test]
    fn flips_that_fit_come_back(count in 1..=32usize, positions in positions(0..=127), seed: u64) {
        let code = BlockCode::new(count).unwrap();
        let positions: Vec<u32> = positions.into_iter().take(code.flips_max()).collect();
        let residues = code.residues(&block(positions.iter().copied()));
        prop_assert_eq!(code.decode(&residues, seed), Some(positions));
    }

    /// 4W and 4W + 1 flips are always rejected; for more, any wrong result has the same residues.
    #[test]
    fn overfull_blocks_are_rejected(count in 1..=4usize, positions in positions(17..=40), seed: u64) {
        let code = BlockCode::new(count).unwrap();
        let positions = Vec::from_iter(positions);
        for flips in [4 * count, 4 * count + 1, 17] {
            let residues = code.residues(&block(positions[..flips].iter().copied()));
            match code.decode(&residues, seed) {
                None => {}
                Some(found) => {
                    prop_assert!(flips > 4 * count + 1);
                    prop_assert_eq!(code.residues(&block(found)), residues);
                }
            }
        }
    }

    #[test]
    fn any_residues_end(residues in prop::collection::vec(any::<u64>(), 0..=32), seed: u64) {
        let code = BlockCode::new(32).unwrap();
        if let Some(found) = code.decode(&residues, seed) {
            prop_assert!(found.is_sorted_by(|a, b| a < b));
            prop_assert!(found.iter().all(|&position| position < BLOCK_BITS));
        }
    }
}

/// As many flips as syndromes decode, too; a result for more flips has these syndromes.
#[test]
fn no_syndrome_needs_to_be_spare() {
    let code = BlockCode::new(4).unwrap();
    let mut wrong = 0;
    for seed in 0..2_000u32 {
        let drawn = |at: u32| {
            let mixed = (seed * 7 + at + 1).wrapping_mul(0x9e37_79b9);
            (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b) >> 17
        };
        let flips: BTreeSet<u32> = (0..6).map(drawn).collect();
        let mut syndromes = Vec::new();
        block_syndromes(&code.residues(&block(flips.iter().copied())), 0..16, &mut syndromes);
        let flips = Vec::from_iter(flips);
        assert_eq!(decode_block(&syndromes[..flips.len()], flips.len(), 3), Some(flips.clone()));
        assert_eq!(decode_block(&syndromes[..flips.len()], flips.len() - 1, 3), None);
        assert_eq!(decode_block(&syndromes, 16, 3), Some(flips));
        if let Some(found) = decode_block(&syndromes[..3], 3, 3) {
            wrong += 1;
            let mut again = Vec::new();
            block_syndromes(&code.residues(&block(found)), 0..3, &mut again);
            assert_eq!(again, syndromes[..3]);
        }
    }
    // About one in 2^3 · 3! of 2,000.
    assert!((15..90).contains(&wrong), "{wrong}");
    assert_eq!(decode_block(&[], 0, 0), None);
    assert_eq!(decode_block(&[0; 3], 0, 0), Some(vec![]));
}
