//! Bits to bytes, most significant bit first.
//!
//! The first bit written is the top bit of the first byte. Bits gather in a 64-bit window and leave
//! it eight bytes at a time; the last byte is padded with zeros.
//!
//! ```text
//! write_bits(0b101, 3), write_bits(0b00110, 5), write_bits(0b11, 2)
//!     byte 0: 1 0 1 0 0 1 1 0     byte 1: 1 1 0 0 0 0 0 0
//! ```

/// Writes bits into a vector of bytes.
///
/// ```
/// use umbel_bits::BitWriter;
///
/// let mut writer = BitWriter::new();
/// writer.write_bits(0b101, 3);
/// writer.write_unary(2); // two ones and a zero
/// assert_eq!(writer.bit_len(), 6);
/// assert_eq!(writer.finish(), [0b1011_1000]);
/// ```
#[derive(Clone, Default, Debug)]
pub struct BitWriter {
    buffer: Vec<u8>,
    /// Bytes of the buffer that are not this writer's.
    initial_bytes: usize,
    /// Bits that are not yet in the buffer, from the top down; zeros below them.
    window: u64,
    /// Number of bits in the window, at most 63.
    used: u32,
}

impl BitWriter {
    /// A writer with an empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A writer that appends to what the buffer holds already.
    #[must_use]
    pub fn with_buffer(buffer: Vec<u8>) -> Self {
        Self { initial_bytes: buffer.len(), buffer, window: 0, used: 0 }
    }

    /// Writes the low `width` bits of `value`, 0 to 64 of them; higher bits are ignored.
    #[inline]
    pub fn write_bits(&mut self, value: u64, width: u32) {
        debug_assert!(width <= 64, "{width} bits of a u64");
        if width == 0 {
            return;
        }
        let aligned = value << (64 - width);
        self.window |= aligned >> self.used;
        self.used += width;
        if self.used >= 64 {
            self.buffer.extend_from_slice(&self.window.to_be_bytes());
            self.used -= 64;
            // The bits that went out, 1 to 64: a single shift by 64 would not be defined.
            let flushed = width - self.used;
            self.window = (aligned << (flushed - 1)) << 1;
        }
    }

    /// Writes `ones` ones and a zero.
    #[inline]
    pub fn write_unary(&mut self, ones: u32) {
        let mut rest = ones;
        while rest >= 64 {
            self.write_bits(u64::MAX, 64);
            rest -= 64;
        }
        self.write_bits(u64::MAX << 1, rest + 1);
    }

    /// Number of bits that this writer wrote, without the initial buffer.
    #[inline]
    #[must_use]
    pub fn bit_len(&self) -> u64 {
        8 * (self.buffer.len() - self.initial_bytes) as u64 + u64::from(self.used)
    }

    /// The buffer, with zeros up to the end of the last byte.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let byte_count = self.used.div_ceil(8) as usize;
        self.buffer.extend(self.window.to_be_bytes().iter().take(byte_count));
        self.buffer
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The slow twin: a list of bits.
    fn packed(bits: &[bool]) -> Vec<u8> {
        let pack = |byte: &[bool]| {
            (0..8).fold(0, |sum, at| 2 * sum + u8::from(byte.get(at) == Some(&true)))
        };
        bits.chunks(8).map(pack).collect()
    }

    #[test]
    fn nothing_is_no_bytes() {
        let mut writer = BitWriter::new();
        writer.write_bits(u64::MAX, 0);
        assert_eq!(writer.bit_len(), 0);
        assert!(writer.finish().is_empty());
    }

    proptest! {
        #[test]
        fn agrees_with_a_list_of_bits(
            writes in vec((any::<u64>(), 0..=64u32), 0..100),
            before in vec(any::<u8>(), 0..10),
        ) {
            let mut writer = BitWriter::with_buffer(before.clone());
            let mut bits = Vec::new();
            for (value, width) in writes {
                writer.write_bits(value, width);
                bits.extend((0..width).rev().map(|at| value >> at & 1 == 1));
                prop_assert_eq!(writer.bit_len(), bits.len() as u64);
            }
            prop_assert_eq!(writer.finish(), [before, packed(&bits)].concat());
        }

        #[test]
        fn unary_is_ones_and_a_zero(runs in vec(0..300u32, 0..20)) {
            let mut writer = BitWriter::new();
            let mut bits = Vec::new();
            for ones in runs {
                writer.write_unary(ones);
                bits.extend((0..ones).map(|_| true));
                bits.push(false);
            }
            prop_assert_eq!(writer.finish(), packed(&bits));
        }
    }
}
