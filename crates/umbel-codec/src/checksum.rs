//! CRC-32C (Castagnoli), the checksum of every frame.
//!
//! Polynomial 0x1EDC6F41, reflected, initial value and final XOR 0xFFFFFFFF, as iSCSI uses it
//! (RFC 3720, part 12.1; Castagnoli, Bräuer & Herrmann 1993, doi:10.1109/26.231911). It finds every
//! error burst of up to 32 bits, hence every flipped bit, and misses other damage with probability
//! 2^-32. It guards against accidents, not against forgers.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of bytes that come piece by piece.
///
/// ```
/// use umbel_codec::Crc32c;
///
/// let mut checksum = Crc32c::new();
/// checksum.update(b"1234");
/// checksum.update(b"56789");
/// // The check value that catalogues of checksums list.
/// assert_eq!(checksum.value(), 0xe306_9283);
/// ```
#[derive(Clone, Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// Of no bytes yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    #[must_use]
    pub fn value(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "a 32-bit checksum in a u64")]
        let checksum = self.0.finalize() as u32;
        checksum
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// CRC-32C of the parts, as if they were one after the other in memory.
///
/// ```
/// use umbel_codec::crc32c;
///
/// assert_eq!(crc32c(&[b"1234", b"56789"]), 0xe306_9283);
/// ```
#[must_use]
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut checksum = Crc32c::new();
    for part in parts {
        checksum.update(part);
    }
    checksum.value()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The slow twin: one bit at a time, from the definition.
    fn bit_by_bit(bytes: &[u8]) -> u32 {
        let mut state = u32::MAX;
        for byte in bytes {
            state ^= u32::from(*byte);
            for _ in 0..8 {
                let carry = state & 1;
                state = (state >> 1) ^ (carry * 0x1edc_6f41u32.reverse_bits());
            }
        }
        !state
    }

    #[test]
    fn known_values() {
        assert_eq!(crc32c(&[]), 0);
        // RFC 3720, appendix B.4: 32 bytes of zeros, and of ones.
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c(&[&[0xff; 32]]), 0x62a8_ab43);
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(bytes in vec(any::<u8>(), 0..600), cut in 0..600usize) {
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(crc32c(&[head, tail]), bit_by_bit(&bytes));
        }
    }
}
