//! Cells of 0 to 56 bits, one after the other in bytes.
//!
//! Cell i of w bits lies at bits [i · w, (i + 1) · w), bit j of the bytes being bit j mod 8, counted from the least
//! significant, of byte ⌊j / 8⌋. Eight bytes behind the last whole word let every cell be read as part of one word:
//!
//! ```text
//! bytes   8 · ⌈cells · w / 64⌉ + 8, or none if there are no bits
//! ```

/// Bytes that so many cells take.
pub(crate) fn cell_bytes(cell_count: usize, bits: u8) -> usize {
    let all = cell_count * usize::from(bits);
    if all == 0 { 0 } else { 8 * all.div_ceil(64) + 8 }
}

/// The lower `bits` bits.
#[inline]
pub(crate) const fn mask(bits: u8) -> u64 {
    (1 << bits) - 1
}

/// The bits of a cell, and what of the next ones stands in its word, above.
#[inline(always)]
pub(crate) fn read(bytes: &[u8], cell: usize, bits: u8) -> u64 {
    let at = cell * usize::from(bits);
    word(bytes, at / 8) >> (at % 8)
}

/// A cell of 8 bits.
#[inline(always)]
pub(crate) fn read_8(bytes: &[u8], cell: usize) -> u64 {
    bytes.get(cell).map_or(0, |byte| u64::from(*byte))
}

/// A cell of 16 bits.
#[inline(always)]
pub(crate) fn read_16(bytes: &[u8], cell: usize) -> u64 {
    let pair = bytes.get(2 * cell..2 * cell + 2).and_then(|pair| pair.first_chunk());
    pair.map_or(0, |pair| u64::from(u16::from_le_bytes(*pair)))
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.first_chunk());
    // What is not there reads as 0: whoever parsed the table has checked its length.
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

/// Fills a cell that is 0.
#[inline]
pub(crate) fn fill(bytes: &mut [u8], cell: usize, bits: u8, value: u64) {
    let at = cell * usize::from(bits);
    let word = bytes.get_mut(at / 8..at / 8 + 8).and_then(|word| word.first_chunk_mut());
    let word: &mut [u8; 8] = word.expect("the table has all of its cells");
    *word = (u64::from_le_bytes(*word) | value << (at % 8)).to_le_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn no_bits_have_no_bytes() {
        assert_eq!((cell_bytes(0, 8), cell_bytes(5, 0)), (0, 0));
        assert_eq!((cell_bytes(8, 8), cell_bytes(9, 8)), (16, 24));
        assert_eq!(read(&[], 3, 0), 0);
    }

    proptest! {
        /// The slow twin: a vector of values.
        #[test]
        fn cells_keep_what_was_put_in(values in vec(any::<u64>(), 1..80), bits in prop_oneof![1u8..=56, Just(8), Just(16)]) {
            let values: Vec<u64> = values.iter().map(|value| value & mask(bits)).collect();
            let mut bytes = vec![0; cell_bytes(values.len(), bits)];
            for (cell, value) in values.iter().enumerate().rev() {
                fill(&mut bytes, cell, bits, *value);
            }
            for (cell, value) in values.iter().enumerate() {
                prop_assert_eq!(read(&bytes, cell, bits) & mask(bits), *value);
                match bits {
                    8 => prop_assert_eq!(read_8(&bytes, cell), *value),
                    16 => prop_assert_eq!(read_16(&bytes, cell), *value),
                    _ => {}
                }
            }
        }
    }
}
