//! Sorted lists in frames: gaps in a Golomb code whose modulus both sides compute.
//!
//! ```text
//! │ varint total │ varint count │ gaps, most significant bit first │ 0 to 7 zeros │
//! ```
//!
//! `total` values below a range that both sides know have gaps with mean range/total; the best modulus is
//! ⌈ln 2 · range / total⌉ (Gallager & Van Voorhis 1975, doi:10.1109/TIT.1975.1055357), computed here in
//! integers. A list may span several frames: `count` of its values are in this one, and the first gap
//! counts from the last value of the previous one. Values may repeat. k of w-bit values take about k·(w −
//! log2 k + 1.5) bits.

use std::num::NonZeroU64;

use umbel_bits::{BitReader, BitWriter, GolombCode};

use super::error::SessionFrameError;
use super::wire::{Reader, put_varint};

/// ln 2 in 65,536ths.
const LN_2: u128 = 45_426;

/// The number of values with w bits.
pub(crate) const fn range_of_bits(width: u32) -> u128 {
    1 << width
}

fn code_of(range: u128, total: u64) -> GolombCode {
    let modulus = (range * LN_2).div_ceil(u128::from(total.max(1)) << 16);
    let modulus = u64::try_from(modulus).ok().and_then(NonZeroU64::new);
    GolombCode::new(modulus.unwrap_or(NonZeroU64::MIN))
}

/// Writes a list, split into frame bodies.
#[derive(Clone, Debug)]
pub(crate) struct ListWriter {
    code: GolombCode,
    total: u64,
    previous: u64,
}

impl ListWriter {
    /// A list of `total` values below `range`, which is at most 2^64.
    pub(crate) fn new(range: u128, total: u64) -> Self {
        Self { code: code_of(range, total), total, previous: 0 }
    }

    /// Appends the next values, as many as fit into about `bytes_max`, and returns how many.
    pub(crate) fn put(&mut self, body: &mut Vec<u8>, values: &[u64], bytes_max: usize) -> usize {
        let bits_max = 8 * bytes_max as u64;
        let mut bits = BitWriter::new();
        let mut count = 0;
        for &value in values {
            if bits.bit_len() >= bits_max {
                break;
            }
            let gap = value.checked_sub(self.previous).expect("values are sorted");
            self.code.write(&mut bits, gap);
            self.previous = value;
            count += 1;
        }
        put_varint(body, self.total);
        put_varint(body, count as u64);
        body.extend_from_slice(&bits.finish());
        count
    }
}

/// Reads a list, frame by frame.
#[derive(Clone, Debug)]
pub(crate) struct ListReader {
    range: u128,
    total_max: u64,
    total: Option<u64>,
    seen: u64,
    previous: u64,
}

impl ListReader {
    /// A list of at most `total_max` values below `range`.
    pub(crate) const fn new(range: u128, total_max: u64) -> Self {
        Self { range, total_max, total: None, seen: 0, previous: 0 }
    }

    /// Whether all values have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.total == Some(self.seen)
    }

    /// The values of the next frame, and `rest_bytes` for each value, which follow the gaps.
    pub(crate) fn read<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        rest_bytes: usize,
    ) -> Result<(Vec<u64>, &'a [u8]), SessionFrameError> {
        let total = reader.varint_at_most("list total", self.total_max)?;
        if self.total.is_some_and(|expected| expected != total) {
            return Err(SessionFrameError::Field { field: "list total", got: total });
        }
        let count = reader.varint_at_most("list count", total - self.seen)?;
        if count == 0 && total > 0 {
            return Err(SessionFrameError::Field { field: "list count", got: count });
        }
        self.total = Some(total);
        let bytes = reader.rest();
        let truncated = SessionFrameError::Truncated { field: "list" };
        let rest_len = usize::try_from(count).ok().and_then(|count| count.checked_mul(rest_bytes));
        let at = rest_len.and_then(|rest| bytes.len().checked_sub(rest)).ok_or(truncated)?;
        let (gaps, rests) = bytes.split_at(at);
        Ok((self.read_gaps(gaps, count, total)?, rests))
    }

    fn read_gaps(
        &mut self,
        bytes: &[u8],
        count: u64,
        total: u64,
    ) -> Result<Vec<u64>, SessionFrameError> {
        let code = code_of(self.range, total);
        // A code of modulus M has at least log2 M bits, and at least one.
        let bits_min = count.saturating_mul(u64::from(code.modulus().ilog2()).max(1));
        if bits_min > 8 * bytes.len() as u64 {
            return Err(SessionFrameError::Truncated { field: "list" });
        }
        let mut bits = BitReader::new(bytes);
        let mut values = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        for _ in 0..count {
            let gap = code.read(&mut bits)?;
            let value = self.previous.checked_add(gap);
            let value = value.filter(|&value| u128::from(value) < self.range);
            self.previous =
                value.ok_or(SessionFrameError::Field { field: "list gap", got: gap })?;
            values.push(self.previous);
        }
        bits.finish()?;
        self.seen += count;
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn bodies(values: &[u64], range: u128, cut: usize) -> Vec<Vec<u8>> {
        let mut writer = ListWriter::new(range, values.len() as u64);
        let mut bodies = Vec::new();
        let mut left = values;
        loop {
            let mut body = Vec::new();
            let count = writer.put(&mut body, left, cut);
            left = &left[count..];
            bodies.push(body);
            if left.is_empty() {
                return bodies;
            }
        }
    }

    proptest! {
        #[test]
        fn lists_return(values in vec(any::<u64>(), 0..200), width in 1..=64u32, cut in 1..100usize) {
            let mut values: Vec<u64> = values.iter().map(|value| value >> (64 - width)).collect();
            values.sort_unstable();
            let mut reader = ListReader::new(range_of_bits(width), 200);
            let mut found = Vec::new();
            for body in bodies(&values, range_of_bits(width), cut) {
                prop_assert!(!reader.is_complete());
                let (more, rest) = reader.read(&mut Reader::new(&body), 0).unwrap();
                prop_assert!(rest.is_empty());
                found.extend(more);
            }
            prop_assert!(reader.is_complete());
            prop_assert_eq!(found, values);
        }

        #[test]
        fn any_bytes_are_a_list_or_an_error(bytes in vec(any::<u8>(), 0..100), width in 1..=64u32) {
            let mut reader = ListReader::new(range_of_bits(width), u64::MAX);
            if let Ok((values, _)) = reader.read(&mut Reader::new(&bytes), 0) {
                prop_assert!(values.is_sorted());
                prop_assert!(values.iter().all(|&value| u128::from(value) < 1 << width));
            }
        }
    }

    /// k·(w − log2 k + 1.5) bits, without both headers.
    #[test]
    fn lists_are_as_short_as_promised() {
        let golden = 0x9e37_79b9_7f4a_7c15u64;
        let mut values: Vec<u64> = (1..=1000u64)
            .map(|at| {
                (at.wrapping_mul(golden) ^ at.wrapping_mul(golden) >> 31).wrapping_mul(golden)
            })
            .collect();
        values.sort_unstable();
        let bytes: usize = bodies(&values, 1 << 64, 1 << 16).iter().map(Vec::len).sum();
        let bits = 1000.0 * (64.0 - 1000f64.log2() + 1.5);
        assert!((bytes as f64 * 8.0 / bits - 1.0).abs() < 0.01, "{bytes}");
    }
}
