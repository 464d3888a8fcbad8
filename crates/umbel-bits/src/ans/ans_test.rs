//! Tests of the ANS gap code.

use proptest::collection::vec;
use proptest::prelude::*;

use super::table::{DecodeTable, ESCAPE_MARK};
use super::*;
use crate::entropy::gap_entropy_bits;

const STATE_COUNT: u16 = 1024;

fn codes() -> impl Strategy<Value = AnsGapCode> {
    (0..=LOW_BITS_MAX, ANS_RATIO_MIN..=ANS_RATIO_MAX)
        .prop_map(|(low_bits, ratio)| AnsGapCode::new(low_bits, ratio).unwrap())
}

/// Sorted lists over all 64 bits, dense or sparse, with repetitions; several blocks long at times.
fn sorted() -> impl Strategy<Value = Vec<u64>> {
    (0..64u32, 1..300usize).prop_flat_map(|(shift, len)| {
        vec(any::<u64>().prop_map(move |value| value >> shift), 0..len).prop_map(|mut list| {
            list.sort_unstable();
            list
        })
    })
}

/// Codes that suit their lists: most gaps are regular, some are escaped.
fn suited() -> impl Strategy<Value = (AnsGapCode, Vec<u64>)> {
    let code = (0..20u32, ANS_RATIO_MIN..=ANS_RATIO_MAX);
    (code, vec((any::<u64>(), 0..10u32), 0..200)).prop_map(|((low_bits, ratio), gaps)| {
        let mut last = 0;
        let gap = |&(bits, size)| bits >> (63 - low_bits.min(50) - size);
        let sums = gaps.iter().map(|pair| {
            last += gap(pair);
            last
        });
        let list = sums.collect();
        (AnsGapCode::new(low_bits, ratio).unwrap(), list)
    })
}

fn encoded(code: AnsGapCode, positions: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    code.encode_positions(positions.iter().copied(), &mut bytes);
    bytes
}

fn decoded(code: AnsGapCode, bytes: &[u8], count: u64, end: u64) -> Result<Vec<u64>, CodeError> {
    let mut positions = Vec::new();
    code.decode_positions(bytes, count, end, &mut positions)?;
    Ok(positions)
}

/// The slow twin: the decoder's table as the module defines it, searched for the state before each
/// state, and a list of bits.
fn twin_encoded(code: AnsGapCode, gaps: &[(u64, u64)]) -> Vec<u8> {
    let frequencies = frequencies(code.ratio());
    let escape = frequencies.len() - 1;
    // (symbol, width, base) of each state.
    let mut symbols = vec![0; STATE_COUNT.into()];
    let all = frequencies.iter().enumerate();
    all.flat_map(|(symbol, &frequency)| vec![symbol; frequency.into()])
        .enumerate()
        .for_each(|(nth, symbol)| symbols[nth * 643 % 1024] = symbol);
    let mut numbers = frequencies.clone();
    let table: Vec<(usize, u32, u16)> = symbols
        .iter()
        .map(|&symbol| {
            let number = numbers[symbol];
            numbers[symbol] += 1;
            let width = (0..=10).find(|width| number << width >= STATE_COUNT).unwrap();
            (symbol, width, (number << width) - STATE_COUNT)
        })
        .collect();

    let mut states = [0u16; LANE_COUNT];
    let mut written = Vec::new();
    for (index, &(quotient, _)) in gaps.iter().enumerate().rev() {
        let state = &mut states[index % LANE_COUNT];
        let symbol = usize::try_from(quotient).map_or(escape, |quotient| quotient.min(escape));
        let leads_here = |&(from, width, base): &(usize, u32, u16)| {
            from == symbol && (base..base + (1 << width)).contains(state)
        };
        let before = table.iter().position(leads_here).unwrap();
        written.push((*state - table[before].2, table[before].1));
        *state = u16::try_from(before).unwrap();
    }
    let mut writer = BitWriter::new();
    gaps.iter().for_each(|&(_, low)| writer.write_bits(low, code.low_bits()));
    states.iter().for_each(|&state| writer.write_bits(state.into(), 10));
    for (&(quotient, _), (bits, width)) in gaps.iter().zip(written.into_iter().rev()) {
        writer.write_bits(bits.into(), width);
        if let Some(rest) = quotient.checked_sub(escape as u64) {
            code.rest_code().write(&mut writer, rest);
        }
    }
    writer.finish()
}

proptest! {
    #[test]
    fn positions_survive(code in codes(), list in sorted(), before in vec(any::<u64>(), 0..3)) {
        prop_assume!(list.last() != Some(&u64::MAX));
        let bytes = encoded(code, &list);
        prop_assert!(code.bits_min(list.len() as u64) <= 8 * bytes.len() as u64);
        let (count, width) = (list.len() as u64, list.last().map_or(1, |last| last + 1));
        let mut found = before.clone();
        prop_assert_eq!(code.decode_positions(&bytes, count, width, &mut found), Ok(()));
        prop_assert_eq!(&found[before.len()..], &list);
        let reader = AnsReader::positions(&bytes, code, count, width).unwrap();
        prop_assert_eq!(reader.size_hint(), (0, Some(list.len())));
        prop_assert_eq!(reader.collect::<Result<Vec<_>, _>>(), Ok(list));
    }

    #[test]
    fn suited_lists_survive_and_agree_with_the_twin((code, list) in suited()) {
        let bytes = encoded(code, &list);
        prop_assert_eq!(decoded(code, &bytes, list.len() as u64, u64::MAX), Ok(list.clone()));
        let (low_bits, mut from) = (code.low_bits(), 0);
        let split = list.iter().map(|value| {
            let gap = value - from;
            from = *value;
            (gap >> low_bits, gap & ((1 << low_bits) - 1))
        });
        prop_assert_eq!(bytes, twin_encoded(code, &split.collect::<Vec<_>>()));
    }

    #[test]
    fn indexes_survive(code in codes(), mut list in sorted(), before in vec(any::<u8>(), 0..3)) {
        list.dedup();
        prop_assume!(list.last() != Some(&u64::MAX));
        let mut bytes = before.clone();
        code.encode_indexes(list.iter().copied(), &mut bytes);
        prop_assert_eq!(&bytes[..before.len()], &before);
        let (count, covered) = (list.len() as u64, list.last().map_or(0, |last| last + 1));
        let mut found = Vec::new();
        let bytes = &bytes[before.len()..];
        prop_assert_eq!(code.decode_indexes(bytes, count, covered, &mut found), Ok(()));
        prop_assert_eq!(found, list);
    }

    /// One fewer in the width, another count, a byte more or fewer: each is an error.
    #[test]
    fn what_does_not_fit_is_refused((code, list) in suited(), cut in 1..60usize) {
        prop_assume!(!list.is_empty());
        let bytes = encoded(code, &list);
        let (count, last) = (list.len() as u64, list[list.len() - 1]);
        let beyond = decoded(code, &bytes, count, last);
        prop_assert!(matches!(beyond, Err(CodeError::BeyondEnd { .. })), "{beyond:?}");
        let shorter = &bytes[..bytes.len().saturating_sub(cut)];
        prop_assert!(decoded(code, shorter, count, u64::MAX).is_err());
        let longer = [bytes, vec![0; cut]].concat();
        prop_assert!(decoded(code, &longer, count, u64::MAX).is_err());
        // The reader hands out one error, as its last item.
        if let Ok(mut reader) = AnsReader::positions(&longer, code, count, u64::MAX) {
            prop_assert!(reader.find(Result::is_err).is_some());
            prop_assert!(reader.next().is_none());
        }
    }

    /// Flipped bits: no panic, and what is accepted is another list with the same bytes again.
    #[test]
    fn a_list_has_one_code((code, list) in suited(), flips in vec(any::<usize>(), 1..4)) {
        let mut bytes = encoded(code, &list);
        for flip in flips {
            let bit = flip % (8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        if let Ok(found) = decoded(code, &bytes, list.len() as u64, u64::MAX) {
            prop_assert_eq!(encoded(code, &found), bytes);
        }
    }

    /// Any bytes: no panic, and what is accepted is sorted, inside, and the same bytes again.
    #[test]
    fn decoding_is_total(
        code in codes(), count in 0..200u64, shift in 0..64u32,
        bytes in vec(prop_oneof![any::<u8>(), Just(0), Just(0xff)], 0..120),
    ) {
        let end = u64::MAX >> shift;
        let mut found = Vec::new();
        if code.decode_indexes(&bytes, count, end, &mut found).is_ok() {
            prop_assert_eq!(found.len() as u64, count);
            prop_assert!(found.is_sorted_by(|a, b| a < b) && found.iter().all(|&at| at < end));
            let mut again = Vec::new();
            code.encode_indexes(found.into_iter(), &mut again);
            prop_assert_eq!(again, bytes);
        } else {
            prop_assert!(found.is_empty());
        }
    }
}

/// Of all states that one gap's list could start from, one for each quotient ends in state 0.
#[test]
fn every_short_gap_has_one_state_to_start_from() {
    for ratio in ANS_RATIO_MIN..=ANS_RATIO_MAX {
        let code = AnsGapCode::new(0, ratio).unwrap();
        let mut found = Vec::new();
        for state in 0..STATE_COUNT {
            for len in 5..8 {
                let bytes = (u64::from(state) << 54).to_be_bytes();
                if let Ok(list) = decoded(code, &bytes[..len], 1, u64::MAX) {
                    assert_eq!(encoded(code, &list), bytes[..len]);
                    found.extend(list);
                }
            }
        }
        found.sort_unstable();
        let escape = frequencies(ratio).len() as u64 - 1;
        assert_eq!(found, (0..=escape).collect::<Vec<_>>());
    }
}

#[test]
fn frequencies_are_geometric_and_bounded() {
    for ratio in ANS_RATIO_MIN..=ANS_RATIO_MAX {
        let all = frequencies(ratio);
        assert_eq!(all.iter().sum::<u16>(), STATE_COUNT);
        assert!(all.len() <= 60 && all.iter().all(|frequency| (2..=512).contains(frequency)));
        assert!(all[..all.len() - 1].is_sorted_by(|a, b| a >= b));
        let table = DecodeTable::new(ratio);
        for state in 0..STATE_COUNT.into() {
            let step = table.step(state);
            assert!((1..=10).contains(&step.width) && step.base + (1 << step.width) <= STATE_COUNT);
        }
    }
}

/// Tables are a format: these numbers must never change.
#[test]
fn tables_are_as_they_always_were() {
    // 1024 · (1/4) · (3/4)^q: 256, 192, 144, 108, 81, 60.75, ...
    let expected = [256, 192, 144, 108, 81, 61, 46, 34, 26, 19, 14, 11, 8, 6, 5, 3, 3, 2, 5];
    assert_eq!(frequencies(192), expected);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut take = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    for ratio in ANS_RATIO_MIN..=ANS_RATIO_MAX {
        let table = DecodeTable::new(ratio);
        for step in (0..1024).map(|state| table.step(state)) {
            let [high, low] = step.base.to_be_bytes();
            [high, low, step.width, step.symbol & !ESCAPE_MARK].into_iter().for_each(&mut take);
        }
    }
    assert_eq!(hash, 1_689_886_719_145_710_555);
}

#[test]
fn a_list_is_laid_out_as_drawn() {
    assert_eq!(encoded(AnsGapCode::new(4, 192).unwrap(), &[]), [0; 5]);
    // Low bits 5 and 7.
    let bytes = encoded(AnsGapCode::new(4, 192).unwrap(), &[5, 12]);
    assert_eq!(bytes[0], 0x57);
}

#[test]
fn a_count_that_the_bytes_do_not_pay_for_reserves_nothing() {
    let code = AnsGapCode::new(3, 200).unwrap();
    let mut out = Vec::new();
    for (count, bits_min) in [(5, 60), (u64::MAX, u64::MAX)] {
        let error = CodeError::TooManyCodes { count, bits_min, left: 56 };
        assert_eq!(code.decode_positions(&[0; 7], count, 99, &mut out), Err(error));
    }
    assert_eq!(out.capacity(), 0);
}

#[test]
fn parameters_out_of_range_are_refused() {
    assert_eq!(AnsGapCode::new(64, 200), Err(CodeError::LowBits { low_bits: 64 }));
    assert_eq!(AnsGapCode::new(0, 127), Err(CodeError::AnsRatio { ratio: 127 }));
    assert_eq!(AnsGapCode::new(0, 241), Err(CodeError::AnsRatio { ratio: 241 }));
    for wrong in [f64::NAN, -1.0, 0.0] {
        assert_eq!(AnsGapCode::for_mean_gap(wrong), AnsGapCode::new(0, 128).unwrap());
        assert!(AnsGapCode::for_mean_gap(wrong).expected_bits(wrong) >= 1.0);
    }
    assert_eq!(AnsGapCode::for_mean_gap(f64::INFINITY).low_bits(), LOW_BITS_MAX);
}

#[test]
fn gaps_beyond_64_bits_are_refused() {
    let code = AnsGapCode::new(63, 200).unwrap();
    let error = CodeError::GapOverflow { quotient: 2, low_bits: 63 };
    assert_eq!(decoded(code, &twin_encoded(code, &[(2, 0)]), 1, u64::MAX), Err(error));

    let code = AnsGapCode::new(0, 200).unwrap();
    let escape = frequencies(200).len() as u64 - 1;
    let mut bytes = twin_encoded(code, &[(escape, 0)]);
    // In the place of the rest 0, the Rice code of the largest u64: 32 ones, and 64 more.
    let mut reader = crate::BitReader::new(&bytes);
    let state = reader.read_bits(10).unwrap();
    let width = DecodeTable::new(200).step(u32::try_from(state).unwrap()).width;
    let mut writer = BitWriter::new();
    writer.write_bits(state << 30, 40);
    writer.write_bits(0, width.into());
    code.rest_code().write(&mut writer, u64::MAX);
    bytes = writer.finish();
    let error = CodeError::GapOverflow { quotient: u64::MAX, low_bits: 0 };
    assert_eq!(decoded(code, &bytes, 1, u64::MAX), Err(error));

    let code = AnsGapCode::new(63, 128).unwrap();
    let from = u64::MAX - 1;
    let bytes = twin_encoded(code, &[(1, from & !(1 << 63)), (1, from & !(1 << 63))]);
    let error = CodeError::BeyondEnd { from, gap: from, end: u64::MAX };
    assert_eq!(decoded(code, &bytes, 2, u64::MAX), Err(error));
}

#[test]
fn ends_and_padding_are_checked() {
    let code = AnsGapCode::new(0, 192).unwrap();
    let error = CodeError::AnsEndState { lane: 1, state: 5 };
    assert_eq!(decoded(code, &(5u64 << 44).to_be_bytes()[..5], 0, 9), Err(error));
    let bytes = encoded(code, &[1]);
    let mut padded = bytes.clone();
    *padded.last_mut().unwrap() |= 1;
    assert!(matches!(decoded(code, &padded, 1, 9), Err(CodeError::Padding { .. })));
    let longer = [bytes, vec![0]].concat();
    assert!(matches!(decoded(code, &longer, 1, 9), Err(CodeError::TrailingBits { .. })));
}

/// By formula, over means from 2 to 2^30 in steps of 1/64 of an octave.
#[test]
fn the_excess_over_the_entropy_is_small() {
    let mut worst = (0.0, 0.0);
    for step in 64..=30 * 64 {
        let mean = (f64::from(step) / 64.0).exp2();
        let excess = AnsGapCode::for_mean_gap(mean).expected_bits(mean) - gap_entropy_bits(mean);
        assert!(excess > 0.0, "mean {mean}: {excess}");
        worst = if excess > worst.0 { (excess, mean) } else { worst };
    }
    assert!(worst.0 < 0.005, "mean {}: {}", worst.1, worst.0);
}

/// No other ratio, with a low bit more or fewer, gains much.
#[test]
fn the_code_for_a_mean_is_nearly_the_best() {
    for mean in (4..=40).map(|quarter| (f64::from(quarter) / 4.0).exp2()) {
        let chosen = AnsGapCode::for_mean_gap(mean);
        for low_bits in chosen.low_bits().saturating_sub(1)..=chosen.low_bits() + 1 {
            for ratio in ANS_RATIO_MIN..=ANS_RATIO_MAX {
                let other = AnsGapCode::new(low_bits, ratio).unwrap();
                let gain = chosen.expected_bits(mean) - other.expected_bits(mean);
                assert!(gain < 0.004, "mean {mean}: {chosen:?}, {other:?} gains {gain}");
            }
        }
    }
}

/// The formula against the bytes: geometric gaps by inversion, and the length that their own
/// probabilities give.
#[test]
fn lists_are_as_long_as_the_formula_says() {
    for mean in [2.0, 3.0, 4.0, 5.5, 7.9, 8.1, 20.0, 1000.0, 1.5e6, 1e9] {
        let count = 30_000;
        let ln_q = -f64::recip(mean).ln_1p();
        let (mut word, mut position, mut ideal_bits) = (1u64, 0u64, 0.0);
        let positions: Vec<u64> = (0..count)
            .map(|_| {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let uniform = ((word >> 11) as f64 + 0.5) / 2f64.powi(53);
                let gap = (uniform.ln() / ln_q).floor();
                ideal_bits += (mean + 1.0).log2() - gap * ln_q / std::f64::consts::LN_2;
                #[expect(clippy::cast_possible_truncation, reason = "small")]
                let gap = gap as u64;
                position += gap;
                position
            })
            .collect();
        let code = AnsGapCode::for_mean_gap(mean);
        let bits = 8.0 * encoded(code, &positions).len() as f64 - ANS_START_BITS as f64;
        let excess = (bits - ideal_bits) / f64::from(count);
        let expected = code.expected_bits(mean) - gap_entropy_bits(mean);
        assert!((excess - expected).abs() < 0.003, "mean {mean}: {excess}, expected {expected}");
    }
}

#[test]
#[should_panic(expected = "values are sorted")]
fn unsorted_positions_are_a_bug() {
    encoded(AnsGapCode::for_mean_gap(3.0), &[4, 3]);
}
