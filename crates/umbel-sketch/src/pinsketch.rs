//! PinSketch: a set as t syndromes; the XOR of two sketches is the sketch of the difference.
//!
//! For symbols x ≠ 0 of GF(2^b), syndrome j is s_j = Σ x^(2j−1), j = 1..t: the odd power sums; the
//! even ones are their squares. They are the syndromes of a BCH code whose codeword bits are
//! numbered by the symbols, and a difference of up to t symbols is an error pattern that they
//! determine. Symbol 0 has no powers, so it flips a bit of its own.
//!
//! One syndrome is kept for verification: t of them decode up to t − 1 symbols, and a sketch with
//! more symbols decodes to a wrong result with probability about 2^−b / (t−1)! instead of 1 / t!.
//!
//! *Bytes*: one little-endian integer with s_j at bits [(j−1)·b, j·b), padded with zeros to whole
//! bytes, as bitcoin-core/minisketch has it.
//!
//! Dodis, Ostrovsky, Reyzin & Smith 2008, doi:10.1137/060651380; decoding: Massey 1969,
//! doi:10.1109/TIT.1969.1054260; Berlekamp 1970, doi:10.1090/S0025-5718-1970-0276200-X.

use thiserror::Error;

use crate::gf2::Field;
use crate::lsb::{LsbError, LsbReader, LsbWriter};

mod decode;
mod polynomial;
mod roots;
mod toggle;

#[cfg(test)]
mod pinsketch_test;

pub(crate) use decode::decode_at_most;
pub use decode::decode_syndromes;
pub use toggle::{toggle_buckets, toggle_symbols, toggle_syndromes};

/// A sketch of a set of symbols of b bits, 0 among them.
///
/// ```
/// use umbel_sketch::{Field, PinSketch};
///
/// let field = Field::new(12)?;
/// let mut ours = PinSketch::new(field, 4);
/// let mut theirs = ours.clone();
/// (3000..3010).for_each(|symbol| ours.toggle(symbol));
/// (3002..3012).for_each(|symbol| theirs.toggle(symbol));
/// ours.merge(&theirs).expect("one field and capacity");
/// // Four differences need five syndromes; three of them four.
/// assert_eq!(ours.decode(7), None);
/// ours.toggle(3011);
/// assert_eq!(ours.decode(7), Some(vec![3000, 3001, 3010]));
/// assert_eq!(ours.to_bytes().len(), 6);
/// # Ok::<(), umbel_sketch::FieldError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PinSketch {
    field: Field,
    has_zero: bool,
    syndromes: Vec<u64>,
}

impl PinSketch {
    /// The sketch of the empty set with `capacity` syndromes, 8 bytes each. It decodes up to
    /// `capacity` − 1 symbols, and symbol 0.
    #[must_use]
    pub fn new(field: Field, capacity: usize) -> Self {
        Self { field, has_zero: false, syndromes: vec![0; capacity] }
    }

    /// A sketch from its zero bit and its syndromes.
    ///
    /// # Errors
    /// If a syndrome is no number of the field.
    pub fn from_parts(
        field: Field,
        has_zero: bool,
        syndromes: Vec<u64>,
    ) -> Result<Self, SyndromesError> {
        match syndromes.iter().position(|&syndrome| syndrome > field.mask()) {
            Some(index) => {
                Err(SyndromesError::OutsideField { index, value: syndromes[index], field })
            }
            None => Ok(Self { field, has_zero, syndromes }),
        }
    }

    /// The field of the symbols.
    #[must_use]
    pub const fn field(&self) -> Field {
        self.field
    }

    /// t, the number of syndromes: one more than the differences it decodes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.syndromes.len()
    }

    /// Whether symbol 0 was toggled an odd number of times.
    #[must_use]
    pub const fn has_zero(&self) -> bool {
        self.has_zero
    }

    /// The syndromes, numbers of the field.
    #[must_use]
    pub fn syndromes(&self) -> &[u64] {
        &self.syndromes
    }

    /// Adds a symbol, or removes it if it is there. Bits above the field's are ignored.
    pub fn toggle(&mut self, symbol: u64) {
        self.has_zero ^= symbol & self.field.mask() == 0;
        toggle_syndromes(self.field, &mut self.syndromes, symbol);
    }

    /// Toggles many symbols, about twice as fast as one at a time.
    pub fn toggle_all(&mut self, symbols: &[u64]) {
        let mask = self.field.mask();
        let zeros = symbols.iter().filter(|&symbol| symbol & mask == 0).count();
        self.has_zero ^= zeros % 2 == 1;
        toggle_symbols(self.field, &mut self.syndromes, symbols);
    }

    /// Turns this into the sketch of the symmetric difference of both sets.
    ///
    /// # Errors
    /// If fields or capacities differ; nothing is changed then. Shorten the longer one with
    /// [`Self::truncate`].
    pub fn merge(&mut self, other: &Self) -> Result<(), SketchMismatch> {
        if (self.field, self.capacity()) != (other.field, other.capacity()) {
            return Err(SketchMismatch {
                bits: self.field.bits(),
                capacity: self.capacity(),
                other_bits: other.field.bits(),
                other_capacity: other.capacity(),
            });
        }
        self.has_zero ^= other.has_zero;
        for (ours, theirs) in self.syndromes.iter_mut().zip(&other.syndromes) {
            *ours ^= theirs;
        }
        Ok(())
    }

    /// Drops all syndromes but the first `capacity`: the rest is the set's sketch of that capacity.
    pub fn truncate(&mut self, capacity: usize) {
        self.syndromes.truncate(capacity);
    }

    /// The symbols, sorted. `None` if there are more than t − 1 besides 0, or if this is not a
    /// sketch of any set. Takes at most about b·t² products. The seed affects only the running
    /// time; a peer must not know it before it sends.
    #[must_use]
    pub fn decode(&self, seed: u64) -> Option<Vec<u64>> {
        let mut symbols = decode_syndromes(self.field, &self.syndromes, seed)?;
        if self.has_zero {
            symbols.insert(0, 0);
        }
        Some(symbols)
    }

    /// The syndromes as bytes, ⌈b·t / 8⌉ of them. The zero bit is not among them.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = LsbWriter::new();
        for &syndrome in &self.syndromes {
            writer.write_bits(syndrome, self.field.bits().into());
        }
        writer.finish()
    }

    /// Decodes a sketch from its zero bit and the bytes of its syndromes.
    ///
    /// # Errors
    /// If there are more or fewer bytes than `capacity` syndromes take, or the padding is not zero.
    /// Nothing is allocated before the number of bytes was checked.
    pub fn from_bytes(
        field: Field,
        capacity: usize,
        has_zero: bool,
        bytes: &[u8],
    ) -> Result<Self, SyndromesError> {
        let bits = u32::from(field.bits());
        let expected = (capacity as u128 * u128::from(bits)).div_ceil(8);
        if expected != bytes.len() as u128 {
            return Err(SyndromesError::Length { got: bytes.len(), capacity, field });
        }
        let mut reader = LsbReader::new(bytes);
        let syndromes = (0..capacity).map(|_| reader.read_bits(bits)).collect::<Result<_, _>>()?;
        reader.finish()?;
        Ok(Self { field, has_zero, syndromes })
    }
}

/// The other sketch has another field or capacity. Nothing was changed; use matching sketches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{capacity} syndromes of {bits} bits, the other has {other_capacity} of {other_bits} bits")]
pub struct SketchMismatch {
    /// Bits of this sketch's field.
    pub bits: u8,
    /// Number of this sketch's syndromes.
    pub capacity: usize,
    /// Bits of the other's field.
    pub other_bits: u8,
    /// Number of the other's syndromes.
    pub other_capacity: usize,
}

/// Why numbers or bytes are not syndromes. Reject the message: it is damaged, or uses another field
/// or capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SyndromesError {
    /// A syndrome is larger than the field's numbers.
    #[error("syndrome {index} is {value:#x}, expected at most {:#x}", .field.mask())]
    OutsideField {
        /// Which one, from 0.
        index: usize,
        /// Its value.
        value: u64,
        /// The field.
        field: Field,
    },
    /// There are too many or too few bytes.
    #[error("{got} bytes, expected {capacity} syndromes of {} bits", .field.bits())]
    Length {
        /// Number of bytes.
        got: usize,
        /// Number of syndromes that was asked for.
        capacity: usize,
        /// The field.
        field: Field,
    },
    /// The bits after the last syndrome are not zero.
    #[error(transparent)]
    Bits(#[from] LsbError),
}
