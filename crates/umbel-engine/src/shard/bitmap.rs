//! The answers of a batch, one bit per item.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One bit per item: bit i is bit i mod 8, from the least significant, of byte i / 8.
///
/// A deserialised value may be inconsistent, so every access is bounds-checked. A receiver checks
/// [`is_valid`](Self::is_valid) before it uses a bitmap.
///
/// ```
/// use umbel_engine::shard::Bitmap;
///
/// let new = Bitmap::from_bools([true, false, false, true, false, false, false, false, true]);
/// assert_eq!((new.len(), new.count_ones()), (9, 3));
/// assert_eq!(new.as_bytes(), [0b1001, 1]);
/// assert!(new.get(3) && !new.get(4));
/// assert_eq!(new.iter_ones().collect::<Vec<_>>(), [0, 3, 8]);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Bitmap {
    bit_count: u32,
    bytes: Bytes,
}

/// The bytes are not a bitmap of this many bits. Refuse the message that contains them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BitmapError {
    /// Too few bytes, or too many.
    #[error("{got} bytes for {bit_count} bits, expected {expected}")]
    Length {
        /// The stated number of bits.
        bit_count: u32,
        /// Number of bytes received.
        got: usize,
        /// Number of bytes that this many bits take.
        expected: usize,
    },
    /// A bit after the last one is set.
    #[error("bits are set behind the last of {bit_count}")]
    Padding {
        /// The stated number of bits.
        bit_count: u32,
    },
}

impl Bitmap {
    /// A bitmap of this many zeros.
    #[must_use]
    pub fn zeros(bit_count: u32) -> Self {
        Self { bit_count, bytes: vec![0; byte_count(bit_count)].into() }
    }

    /// A bitmap of this many ones.
    ///
    /// ```
    /// assert_eq!(umbel_engine::shard::Bitmap::ones(10).as_bytes(), [0xff, 0b11]);
    /// ```
    #[must_use]
    pub fn ones(bit_count: u32) -> Self {
        let mut bytes = vec![u8::MAX; byte_count(bit_count)];
        if let Some(last) = bytes.last_mut() {
            *last &= last_byte_mask(bit_count);
        }
        Self { bit_count, bytes: bytes.into() }
    }

    /// The bits in their order.
    ///
    /// # Panics
    /// If there are 2^32 or more bits.
    #[must_use]
    pub fn from_bools<I>(bits: I) -> Self
    where
        I: IntoIterator<Item = bool, IntoIter: ExactSizeIterator>,
    {
        let mut bits = bits.into_iter();
        let bit_count = u32::try_from(bits.len()).expect("a batch has less than 2^32 items");
        let mut bytes = vec![0_u8; byte_count(bit_count)];
        for byte in &mut bytes {
            for (at, bit) in bits.by_ref().take(8).enumerate() {
                *byte |= u8::from(bit) << at;
            }
        }
        Self { bit_count, bytes: bytes.into() }
    }

    /// A bitmap of `bit_count` bits with ones at these positions; positions beyond the end are
    /// ignored.
    ///
    /// ```
    /// use umbel_engine::shard::Bitmap;
    ///
    /// assert_eq!(Bitmap::from_ones(4, [1, 2]).as_bytes(), [0b0110]);
    /// ```
    #[must_use]
    pub fn from_ones(bit_count: u32, ones: impl IntoIterator<Item = usize>) -> Self {
        let mut bytes = vec![0_u8; byte_count(bit_count)];
        for at in ones {
            if at < bit_count as usize {
                bytes[at / 8] |= 1 << (at % 8);
            }
        }
        Self { bit_count, bytes: bytes.into() }
    }

    /// The bitmap in these bytes, without copying them.
    ///
    /// # Errors
    /// If the number of bytes does not match `bit_count`, or a bit after the last one is set.
    ///
    /// ```
    /// use umbel_engine::shard::Bitmap;
    ///
    /// assert!(Bitmap::from_bytes(3, vec![0b101].into()).is_ok());
    /// assert!(Bitmap::from_bytes(3, vec![0b1000].into()).is_err());
    /// assert!(Bitmap::from_bytes(9, vec![0].into()).is_err());
    /// ```
    pub fn from_bytes(bit_count: u32, bytes: Bytes) -> Result<Self, BitmapError> {
        let bitmap = Self { bit_count, bytes };
        bitmap.check()?;
        Ok(bitmap)
    }

    /// Validates a deserialised value.
    ///
    /// # Errors
    /// As [`from_bytes`](Self::from_bytes).
    pub fn check(&self) -> Result<(), BitmapError> {
        let Self { bit_count, ref bytes } = *self;
        let (got, expected) = (bytes.len(), byte_count(bit_count));
        if got != expected {
            return Err(BitmapError::Length { bit_count, got, expected });
        }
        match bytes.last() {
            Some(last) if last & !last_byte_mask(bit_count) != 0 => {
                Err(BitmapError::Padding { bit_count })
            }
            _ => Ok(()),
        }
    }

    /// Whether the number of bytes matches and the padding bits are zero. Always true for values
    /// that were not deserialised.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.check().is_ok()
    }

    /// Number of bits.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.bit_count
    }

    /// Whether there are no bits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bit_count == 0
    }

    /// The bit at this position, false beyond the end.
    #[inline]
    #[must_use]
    pub fn get(&self, at: usize) -> bool {
        at < self.bit_count as usize
            && self.bytes.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
    }

    /// Number of ones.
    #[must_use]
    pub fn count_ones(&self) -> u32 {
        let (words, rest) = self.bytes.as_chunks::<8>();
        let ones: u32 = words.iter().map(|&word| u64::from_le_bytes(word).count_ones()).sum();
        ones + rest.iter().map(|byte| byte.count_ones()).sum::<u32>()
    }

    /// The bits in order, as far as there are bytes for them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = bool> + '_ {
        (0..self.bytes.len().saturating_mul(8).min(self.bit_count as usize)).map(|at| self.get(at))
    }

    /// The positions of the ones, ascending.
    pub fn iter_ones(&self) -> impl Iterator<Item = usize> + '_ {
        self.bytes.iter().enumerate().flat_map(|(at, &byte)| {
            let mut rest = byte;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(8 * at + bit as usize)
            })
        })
    }

    /// The bytes, the last one padded with zeros.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A value that deserialisation may produce from arbitrary bytes.
    #[cfg(test)]
    pub(super) const fn unchecked(bit_count: u32, bytes: Bytes) -> Self {
        Self { bit_count, bytes }
    }

    /// The same bits in a buffer of their own, so that keeping them does not keep a whole message
    /// alive.
    #[must_use]
    pub(super) fn detached(&self) -> Self {
        Self { bit_count: self.bit_count, bytes: Bytes::copy_from_slice(&self.bytes) }
    }
}

/// Number of bytes that this many bits take.
const fn byte_count(bit_count: u32) -> usize {
    bit_count.div_ceil(8) as usize
}

/// Mask of the bits in use in the last byte.
const fn last_byte_mask(bit_count: u32) -> u8 {
    match bit_count % 8 {
        0 => u8::MAX,
        used => u8::MAX >> (8 - used),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hostile_bitmaps_answer_without_panic() {
        let bitmap = Bitmap { bit_count: u32::MAX, bytes: Bytes::from_static(&[3]) };
        assert!(!bitmap.is_valid());
        assert_eq!((bitmap.iter().len(), bitmap.iter_ones().count()), (8, 2));
        assert!(bitmap.get(1) && !bitmap.get(8) && !bitmap.get(usize::MAX));
        let bitmap = Bitmap { bit_count: 0, bytes: Bytes::from_static(&[3]) };
        assert!(!bitmap.is_valid() && !bitmap.get(0));
        assert_eq!(bitmap.iter().len(), 0);
    }

    proptest! {
        /// The slow twin: a list of bools.
        #[test]
        fn bits_are_bools(bools in vec(any::<bool>(), 0..100)) {
            let bitmap = Bitmap::from_bools(bools.iter().copied());
            prop_assert!(bitmap.is_valid());
            prop_assert_eq!(bitmap.iter().collect::<Vec<_>>(), bools.clone());
            let ones: Vec<usize> = (0..bools.len()).filter(|&at| bools[at]).collect();
            prop_assert_eq!(bitmap.count_ones() as usize, ones.len());
            prop_assert_eq!(bitmap.iter_ones().collect::<Vec<_>>(), ones.clone());
            prop_assert_eq!(&Bitmap::from_ones(bitmap.len(), ones), &bitmap);
            let bytes = Bytes::copy_from_slice(bitmap.as_bytes());
            prop_assert_eq!(Bitmap::from_bytes(bitmap.len(), bytes), Ok(bitmap));
            let len = u32::try_from(bools.len()).unwrap();
            prop_assert_eq!(Bitmap::ones(len), Bitmap::from_bools(bools.iter().map(|_| true)));
            prop_assert_eq!(Bitmap::zeros(len), Bitmap::from_bools(bools.iter().map(|_| false)));
        }
    }
}
