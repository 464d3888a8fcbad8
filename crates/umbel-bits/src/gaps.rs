//! Sorted lists as gaps: what single-shot filters and verdicts send.
//!
//! Positions may repeat; indexes may not, which saves them one in every gap:
//!
//! ```text
//! positions  3  4  4  9     gap = position − previous, previous of the first = 0:         3 1 0 5
//! indexes    3  4  6  9     gap = index − previous − 1, previous of the first = −1:       3 0 1 2
//! ```
//!
//! n sorted uniform positions out of m have nearly geometric gaps of mean m/n, which a Rice code
//! brings to within 0.04 bit of their entropy where m/n = 1.5 · 2^B, B ≥ 2 (Golomb 1966,
//! doi:10.1109/TIT.1966.1053907). Decoding trusts nothing: the count is held against the bits that
//! are left before memory is reserved, every sum is checked, and every value must lie below the
//! end.

use crate::bit_reader::BitReader;
use crate::bit_writer::BitWriter;
use crate::error::CodeError;
use crate::rice::RiceCode;

/// Writes positions that do not decrease.
///
/// # Panics
/// If a position is below the one before it: the caller has not sorted them.
///
/// ```
/// use umbel_bits::{BitWriter, RiceCode, encode_positions, positions_bits};
///
/// let (code, positions) = (RiceCode::new(1)?, [2, 2, 5]);
/// let mut writer = BitWriter::new();
/// encode_positions(code, positions.into_iter(), &mut writer);
/// // Gaps 2, 0, 3: (10 0) (0 0) (10 1).
/// assert_eq!(writer.bit_len(), positions_bits(code, positions.into_iter()));
/// assert_eq!(writer.finish(), [0b1000_0101]);
/// # Ok::<(), umbel_bits::CodeError>(())
/// ```
pub fn encode_positions(code: RiceCode, positions: impl Iterator<Item = u64>, out: &mut BitWriter) {
    position_gaps(positions).for_each(|gap| code.write(out, gap));
}

/// Reads `count` positions, each below `width`, and appends them to `out`. Leaves the reader behind
/// the last code. On error `out` is as it was.
///
/// Reserves 8 bytes for each position, which has at least B + 1 bits in the reader.
///
/// # Errors
/// If the bits end, are no codes, or lead to a position of `width` or more.
///
/// ```
/// use umbel_bits::{BitReader, RiceCode, decode_positions};
///
/// let mut positions = vec![];
/// let bytes = [0b1000_0101];
/// decode_positions(&mut BitReader::new(&bytes), RiceCode::new(1)?, 3, 6, &mut positions)?;
/// assert_eq!(positions, [2, 2, 5]);
/// # Ok::<(), umbel_bits::CodeError>(())
/// ```
pub fn decode_positions(
    reader: &mut BitReader<'_>,
    code: RiceCode,
    count: u64,
    width: u64,
    out: &mut Vec<u64>,
) -> Result<(), CodeError> {
    decode(reader, code, count, width, out, 0)
}

/// Exact length in bits of what [`encode_positions`] writes.
///
/// # Panics
/// If a position is below the one before it.
#[must_use]
pub fn positions_bits(code: RiceCode, positions: impl Iterator<Item = u64>) -> u64 {
    position_gaps(positions).map(|gap| code.length_bits(gap)).sum()
}

/// Writes strictly increasing indexes below `u64::MAX`.
///
/// # Panics
/// If an index is not above the one before it, or is `u64::MAX`.
///
/// ```
/// use umbel_bits::{BitWriter, RiceCode, encode_indexes};
///
/// let mut writer = BitWriter::new();
/// encode_indexes(RiceCode::new(0)?, [0, 1, 4].into_iter(), &mut writer);
/// // Gaps 0, 0, 2 in unary code: (0) (0) (110).
/// assert_eq!(writer.finish(), [0b0011_0000]);
/// # Ok::<(), umbel_bits::CodeError>(())
/// ```
pub fn encode_indexes(code: RiceCode, indexes: impl Iterator<Item = u64>, out: &mut BitWriter) {
    index_gaps(indexes).for_each(|gap| code.write(out, gap));
}

/// Reads `count` strictly increasing indexes, each below `covered`, and appends them to `out`.
/// Leaves the reader behind the last code. On error `out` is as it was.
///
/// # Errors
/// If the bits end, are no codes, or lead to an index of `covered` or more.
///
/// ```
/// use umbel_bits::{BitReader, CodeError, RiceCode, decode_indexes};
///
/// let (code, bytes) = (RiceCode::new(0)?, [0b0011_0000]);
/// let mut indexes = vec![];
/// decode_indexes(&mut BitReader::new(&bytes), code, 3, 5, &mut indexes)?;
/// assert_eq!(indexes, [0, 1, 4]);
///
/// let error = decode_indexes(&mut BitReader::new(&bytes), code, 3, 4, &mut indexes);
/// assert_eq!(error, Err(CodeError::BeyondEnd { from: 2, gap: 2, end: 4 }));
/// # Ok::<(), CodeError>(())
/// ```
pub fn decode_indexes(
    reader: &mut BitReader<'_>,
    code: RiceCode,
    count: u64,
    covered: u64,
    out: &mut Vec<u64>,
) -> Result<(), CodeError> {
    decode(reader, code, count, covered, out, 1)
}

/// Exact length in bits of what [`encode_indexes`] writes.
///
/// # Panics
/// If an index is not above the one before it, or is `u64::MAX`.
#[must_use]
pub fn indexes_bits(code: RiceCode, indexes: impl Iterator<Item = u64>) -> u64 {
    index_gaps(indexes).map(|gap| code.length_bits(gap)).sum()
}

fn position_gaps(positions: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut previous = 0;
    positions.map(move |position| {
        let gap = position.checked_sub(previous).expect("positions are sorted");
        previous = position;
        gap
    })
}

fn index_gaps(indexes: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut least = 0;
    indexes.map(move |index: u64| {
        let gap = index.checked_sub(least).expect("indexes are strictly increasing");
        least = index.checked_add(1).expect("indexes are below u64::MAX");
        gap
    })
}

/// Both decoders: the next value is at least `step` above the one before it.
#[inline]
fn decode(
    reader: &mut BitReader<'_>,
    code: RiceCode,
    count: u64,
    end: u64,
    out: &mut Vec<u64>,
    step: u64,
) -> Result<(), CodeError> {
    let (bits_min, left) = (code.bits_min(count), reader.bits_left());
    let too_many = CodeError::TooManyCodes { count, bits_min, left };
    if bits_min > left {
        return Err(too_many);
    }
    let len_before = out.len();
    out.reserve(usize::try_from(count).map_err(|_| too_many)?);
    // A copy that nothing else refers to stays in registers.
    let mut local = reader.clone();
    let mut from = 0u64;
    let mut read = || {
        for _ in 0..count {
            let gap = code.read(&mut local)?;
            match from.checked_add(gap) {
                Some(value) if value < end => {
                    out.push(value);
                    // No overflow: the value is below the end.
                    from = value + step;
                }
                _ => return Err(CodeError::BeyondEnd { from, gap, end }),
            }
        }
        Ok(())
    };
    let outcome = read();
    *reader = local;
    if outcome.is_err() {
        out.truncate(len_before);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn codes() -> impl Strategy<Value = RiceCode> {
        (0..64u32).prop_map(|low_bits| RiceCode::new(low_bits).unwrap())
    }

    /// Sorted lists over all 64 bits, dense or sparse, with repetitions.
    fn sorted() -> impl Strategy<Value = Vec<u64>> {
        (0..64u32).prop_flat_map(|shift| {
            vec(any::<u64>().prop_map(move |value| value >> shift), 0..60).prop_map(|mut list| {
                list.sort_unstable();
                list
            })
        })
    }

    fn written(encode: impl FnOnce(&mut BitWriter)) -> (Vec<u8>, u64) {
        let mut writer = BitWriter::new();
        encode(&mut writer);
        let bit_len = writer.bit_len();
        (writer.finish(), bit_len)
    }

    proptest! {
        #[test]
        fn positions_survive(code in codes(), list in sorted(), before in vec(any::<u64>(), 0..3)) {
            prop_assume!(list.last() != Some(&u64::MAX));
            let (bytes, bit_len) = written(|out| encode_positions(code, list.iter().copied(), out));
            prop_assert_eq!(positions_bits(code, list.iter().copied()), bit_len);
            let (count, width) = (list.len() as u64, list.last().map_or(1, |last| last + 1));
            let mut reader = BitReader::new(&bytes);
            let mut found = before.clone();
            prop_assert_eq!(decode_positions(&mut reader, code, count, width, &mut found), Ok(()));
            prop_assert_eq!(reader.finish(), Ok(()));
            prop_assert_eq!(found, [before, list].concat());
        }

        #[test]
        fn indexes_survive(code in codes(), mut list in sorted()) {
            list.dedup();
            prop_assume!(list.last() != Some(&u64::MAX));
            let (bytes, bit_len) = written(|out| encode_indexes(code, list.iter().copied(), out));
            prop_assert_eq!(indexes_bits(code, list.iter().copied()), bit_len);
            let (count, covered) = (list.len() as u64, list.last().map_or(0, |last| last + 1));
            let mut reader = BitReader::new(&bytes);
            let mut found = Vec::new();
            prop_assert_eq!(decode_indexes(&mut reader, code, count, covered, &mut found), Ok(()));
            prop_assert_eq!(reader.finish(), Ok(()));
            prop_assert_eq!(found, list);
        }

        /// One fewer in the width, one more in the count, one byte fewer: each is an error.
        #[test]
        fn what_does_not_fit_is_refused(code in codes(), list in sorted(), cut in 1..60usize) {
            prop_assume!(!list.is_empty());
            let (bytes, _) = written(|out| encode_positions(code, list.iter().copied(), out));
            let (count, last) = (list.len() as u64, list[list.len() - 1]);
            let mut out = vec![7];
            let mut decode = |bytes: &[u8], count, width| {
                decode_positions(&mut BitReader::new(bytes), code, count, width, &mut out)
            };
            let beyond = decode(&bytes, count, last);
            prop_assert!(matches!(beyond, Err(CodeError::BeyondEnd { .. })), "{beyond:?}");
            let shorter = &bytes[..bytes.len().saturating_sub(cut)];
            prop_assert!(decode(shorter, count, u64::MAX).is_err());
            prop_assert_eq!(out, [7]);
        }

        /// Any bytes: no panic, and what is accepted is sorted, inside, and the same bits again.
        #[test]
        fn decoding_is_total(
            code in codes(), count in 0..100u64, shift in 0..64u32,
            bytes in vec(prop_oneof![any::<u8>(), Just(0), Just(0xff)], 0..80),
        ) {
            let end = u64::MAX >> shift;
            let mut reader = BitReader::new(&bytes);
            let mut list = Vec::new();
            if decode_indexes(&mut reader, code, count, end, &mut list).is_ok() {
                prop_assert_eq!(list.len() as u64, count);
                prop_assert!(list.is_sorted_by(|a, b| a < b) && list.iter().all(|&at| at < end));
                let read_bits = 8 * bytes.len() as u64 - reader.bits_left();
                prop_assert_eq!(indexes_bits(code, list.iter().copied()), read_bits);
            } else {
                prop_assert!(list.is_empty());
            }
            let mut reader = BitReader::new(&bytes);
            list.clear();
            if decode_positions(&mut reader, code, count, end, &mut list).is_ok() {
                prop_assert!(list.is_sorted() && list.iter().all(|&at| at < end));
            }
        }
    }

    #[test]
    fn a_count_that_the_bits_do_not_pay_for_reserves_nothing() {
        let code = RiceCode::new(3).unwrap();
        let mut out = Vec::new();
        for (count, bits_min) in [(5, 20), (u64::MAX, u64::MAX)] {
            let error = CodeError::TooManyCodes { count, bits_min, left: 16 };
            let mut reader = BitReader::new(&[0; 2]);
            assert_eq!(decode_indexes(&mut reader, code, count, 99, &mut out), Err(error));
        }
        assert_eq!(out.capacity(), 0);
    }

    #[test]
    fn sums_beyond_64_bits_are_refused() {
        let code = RiceCode::new(63).unwrap();
        let gap = u64::MAX - 1;
        let (bytes, _) = written(|out| [gap, gap].into_iter().for_each(|v| code.write(out, v)));
        let mut reader = BitReader::new(&bytes);
        let error = CodeError::BeyondEnd { from: gap, gap, end: u64::MAX };
        let read = decode_positions(&mut reader, code, 2, u64::MAX, &mut Vec::new());
        assert_eq!(read, Err(error));
    }

    #[test]
    #[should_panic(expected = "positions are sorted")]
    fn unsorted_positions_are_a_bug() {
        let code = RiceCode::new(3).unwrap();
        encode_positions(code, [4, 3].into_iter(), &mut BitWriter::new());
    }

    #[test]
    #[should_panic(expected = "indexes are strictly increasing")]
    fn repeated_indexes_are_a_bug() {
        let code = RiceCode::new(3).unwrap();
        encode_indexes(code, [3, 3].into_iter(), &mut BitWriter::new());
    }
}
