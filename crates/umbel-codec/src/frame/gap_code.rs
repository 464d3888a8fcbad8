//! The code of a list of positions: Rice, or ANS where that is shorter by formula.
//!
//! ```text
//! Rice    │ gap │ gap │ …
//! ANS     │ ratio, u8 │ the list of `umbel_bits::AnsGapCode`
//! ```
//!
//! Both codes' low bits are in the header.

use umbel_bits::{
    ANS_START_BITS, AnsGapCode, AnsReader, BitReader, BitWriter, CodeError, RiceCode,
    encode_indexes,
};

use crate::error::PayloadError;

/// An ANS list takes at most this share of the Rice codes' bits. Writing and reading it takes some
/// 3 ns a gap more, and tables of 4 µs at either end; a 512th of a gap of 8 bits is what a line of
/// 5 Mbit/s carries in that time. What is left to Rice are short lists, and means so near to
/// 1.5 · 2^B, or so large, that its codes are as good as optimal.
const ANS_SHARE: f64 = 511.0 / 512.0;

/// Bits of the ratio.
const RATIO_BITS: u64 = 8;

/// A code of gaps between positions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum GapCode {
    Rice(RiceCode),
    Ans(AnsGapCode),
}

impl GapCode {
    /// The shorter code, by formula, for this number of gaps with this mean, and the bits that it
    /// takes.
    pub(super) fn shortest(count: u64, mean_gap: f64) -> (Self, f64) {
        let rice = RiceCode::for_mean_gap(mean_gap);
        let rice_bits = count as f64 * rice.expected_bits(mean_gap);
        let ans = AnsGapCode::for_mean_gap(mean_gap);
        let ans_bits =
            count as f64 * ans.expected_bits(mean_gap) + (ANS_START_BITS + RATIO_BITS) as f64;
        if ans_bits <= rice_bits * ANS_SHARE {
            (Self::Ans(ans), ans_bits)
        } else {
            (Self::Rice(rice), rice_bits)
        }
    }

    /// The code of a payload, and its list, which is the end of the payload.
    pub(super) fn split<'a>(
        is_ans: bool,
        low_bits: u32,
        payload: &[u8],
        list: &'a [u8],
    ) -> Result<(Self, &'a [u8]), PayloadError> {
        if !is_ans {
            return Ok((Self::Rice(RiceCode::new(low_bits)?), list));
        }
        let actual = payload.len() as u64;
        let missing = PayloadError::Length { expected: actual + 1, actual };
        let (&ratio, list) = list.split_first().ok_or(missing)?;
        Ok((Self::Ans(AnsGapCode::new(low_bits, ratio)?), list))
    }

    pub(super) const fn low_bits(self) -> u32 {
        match self {
            Self::Rice(code) => code.low_bits(),
            Self::Ans(code) => code.low_bits(),
        }
    }

    /// The Rice code with as many low bits: that of gaps with something behind each.
    pub(super) fn rice(self) -> RiceCode {
        RiceCode::new(self.low_bits()).expect("codes have at most LOW_BITS_MAX")
    }

    /// Appends the list of indexes, which strictly increase.
    pub(super) fn write(self, indexes: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
        match self {
            Self::Rice(code) => {
                let mut writer = BitWriter::with_buffer(std::mem::take(out));
                encode_indexes(code, indexes, &mut writer);
                *out = writer.finish();
            }
            Self::Ans(code) => {
                out.push(code.ratio());
                code.encode_indexes(indexes, out);
            }
        }
    }

    /// Every index of a list, without its ratio.
    pub(super) fn each_index(
        self,
        bytes: &[u8],
        count: u64,
        end: u64,
        mut visit: impl FnMut(u64),
    ) -> Result<(), CodeError> {
        match self {
            Self::Rice(code) => {
                let (mut from, mut reader) = (0, BitReader::new(bytes));
                for _ in 0..count {
                    let index = next_index(code, &mut reader, from, end)?;
                    visit(index);
                    from = index + 1;
                }
                reader.finish()
            }
            Self::Ans(code) => {
                for index in AnsReader::indexes(bytes, code, count, end)? {
                    visit(index?);
                }
                Ok(())
            }
        }
    }

    /// Every index of a list that was checked, without its ratio.
    pub(super) fn indexes(
        self,
        bytes: &[u8],
        count: u64,
        end: u64,
    ) -> impl ExactSizeIterator<Item = u64> {
        let mut reader = match self {
            Self::Rice(code) => IndexReader::Rice(code, BitReader::new(bytes), 0),
            Self::Ans(code) => {
                let reader = AnsReader::indexes(bytes, code, count, end);
                IndexReader::Ans(Box::new(reader.expect("checked before")))
            }
        };
        let count = usize::try_from(count).expect("every code has a bit in memory");
        (0..count).map(move |_| match &mut reader {
            IndexReader::Rice(code, reader, from) => {
                let index = next_index(*code, reader, *from, end).expect("checked before");
                *from = index + 1;
                index
            }
            IndexReader::Ans(reader) => {
                reader.next().expect("as many as were checked").expect("checked before")
            }
        })
    }
}

/// The position of an iterator in a list.
enum IndexReader<'a> {
    /// With the least index that may come next.
    Rice(RiceCode, BitReader<'a>, u64),
    Ans(Box<AnsReader<'a>>),
}

/// The value of the next gap from `from` on.
#[inline]
pub(super) fn next_index(
    code: RiceCode,
    reader: &mut BitReader<'_>,
    from: u64,
    end: u64,
) -> Result<u64, CodeError> {
    let gap = code.read(reader)?;
    match from.checked_add(gap) {
        Some(index) if index < end => Ok(index),
        _ => Err(CodeError::BeyondEnd { from, gap, end }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// From how many gaps on ANS is shorter: never below 440 gaps, and later where Rice codes are
    /// good.
    #[test]
    fn short_lists_are_rice_codes() {
        let is_ans =
            |count, mean_gap| matches!(GapCode::shortest(count, mean_gap).0, GapCode::Ans(_));
        for (mean_gap, count) in [(4.0, 630), (9.0, 893), (99.0, 4_509), (999.0, 773)] {
            let found = [count - 1, count].map(|count| is_ans(count, mean_gap));
            assert_eq!(found, [false, true], "mean {mean_gap}");
        }
        assert!(!is_ans(1 << 40, 1.0));
        for step in 0..1_600 {
            assert!(!is_ans(440, 1.02f64.powi(step)), "step {step}");
        }
    }

    /// Whatever is chosen takes as many bits as was said, of gaps that are nearly geometric.
    #[test]
    fn lists_are_as_long_as_expected() {
        for (count, width) in [(300, 30_000), (40_000, 400_000), (40_000, 4_000_000)] {
            // A sequence of splitmix64, of which every position is as likely as any other.
            let word = |index: u64| {
                let word = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                (word ^ (word >> 31)) % width
            };
            let list: BTreeSet<u64> = (0..count).map(word).collect();
            let len = list.len() as u64;
            let mean_gap = (width - len) as f64 / (len + 1) as f64;
            let (code, bits) = GapCode::shortest(len, mean_gap);
            assert_eq!(matches!(code, GapCode::Ans(_)), count > 300);
            let mut bytes = Vec::new();
            code.write(list.iter().copied(), &mut bytes);
            let share = 8.0 * bytes.len() as f64 / bits;
            assert!((0.98..1.02).contains(&share), "{share} of {bits} bits");
            let is_ans = matches!(code, GapCode::Ans(_));
            let (again, rest) = GapCode::split(is_ans, code.low_bits(), &bytes, &bytes).unwrap();
            assert_eq!(again, code);
            assert!(code.indexes(rest, len, width).eq(list));
        }
    }
}
