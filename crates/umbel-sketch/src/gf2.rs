//! The fields GF(2^b), 8 ≤ b ≤ 64: numbers of b bits, added by XOR, multiplied modulo a polynomial.
//!
//! Bit i of a number is the coefficient of x^i. The modulus is x^b + low, where low has the fewest
//! terms that make it irreducible, and of these is the smallest number: the table of
//! bitcoin-core/minisketch, so that sketches have the same bytes.
//!
//! *Reduction.* Let s = 64 − b. For any b, the upper 64 bits of the product of a·2^s and c contain
//! everything above degree b − 1 of the product of a and c. As x^b = low, these are multiplied by
//! low·2^s and added to the lower 64 bits; the new overflow is at most deg(low) − 1 bits long, and
//! a second such *fold* removes it. A factor that is stored multiplied by 2^s is called *aligned*;
//! folding yields an aligned number, so chains of multiplications need no shifts.
//!
//! Unreduced products may be added before the folds, so sums of products are three times as fast as
//! single products: see [`kernel`].

use thiserror::Error;

pub(crate) mod clmul;
pub(crate) mod constants;
pub(crate) mod kernel;

#[cfg(test)]
mod gf2_test;

use constants::Constants;
use kernel::{Kernel, Task, run};

/// Fewest bits of a field: for smaller ones, 8-bit tables would be faster.
pub const FIELD_BITS_MIN: u8 = 8;

/// Most bits of a field: a number fits in one word.
pub const FIELD_BITS_MAX: u8 = 64;

/// The lower parts of the moduli, from b = 8 on.
const LOWS: [u32; 57] = [
    0x1b,
    0x3,
    0x9,
    0x5,
    0x9,
    0x1b,
    0x21,
    0x3,
    0x2b,
    0x9,
    0x9,
    0x27,
    0x9,
    0x5,
    0x3,
    0x21,
    0x1b,
    0x9,
    0x1b,
    0x27,
    0x3,
    0x5,
    0x3,
    0x9,
    0x8d,
    0x401,
    0x81,
    0x5,
    0x201,
    0x53,
    0x63,
    0x11,
    0x39,
    0x9,
    0x81,
    0x59,
    0x21,
    0x1b,
    0x3,
    0x21,
    0x2d,
    0x201,
    0x1d,
    0x4b,
    0x9,
    0x47,
    0x201,
    0x81,
    0x95,
    0x11,
    0x80001,
    0x95,
    0x3,
    0x27,
    0x2000_0001,
    0x3,
    0x1b,
];

/// No field has this many bits. Fix the caller, or reject the message that asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("field of {bits} bits, expected {FIELD_BITS_MIN} to {FIELD_BITS_MAX}")]
pub struct FieldError {
    /// The number of bits that was asked for.
    pub bits: u8,
}

/// A field GF(2^b). Arguments are numbers of b bits; bits above are ignored.
///
/// ```
/// use umbel_sketch::Field;
///
/// let field = Field::new(8)?; // modulo x^8 + x^4 + x^3 + x + 1, as in AES
/// assert_eq!(field.mul(0x57, 0x83), 0xc1);
/// assert_eq!(field.inverse(0x53), Some(0xca));
/// assert_eq!(field.inverse(0), None);
/// # Ok::<(), umbel_sketch::FieldError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Field {
    bits: u8,
    /// The modulus without x^bits.
    low: u32,
}

impl Field {
    /// GF(2^16) modulo x^16 + x^5 + x^3 + x^2 + 1, where x has order 65,535: the field of the block
    /// code. In the sketches' field of 16 bits the order of x is a third of that.
    pub(crate) const BLOCK: Self = Self { bits: 16, low: 0x2d };

    /// The field of numbers of `bits` bits, 8 to 64.
    ///
    /// # Errors
    /// If `bits` is outside that range.
    pub const fn new(bits: u8) -> Result<Self, FieldError> {
        if bits < FIELD_BITS_MIN || bits > FIELD_BITS_MAX {
            return Err(FieldError { bits });
        }
        Ok(Self { bits, low: LOWS[(bits - FIELD_BITS_MIN) as usize] })
    }

    /// b, the number of bits, 8 to 64.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// The largest number of the field, 2^b − 1.
    #[inline]
    #[must_use]
    pub const fn mask(self) -> u64 {
        u64::MAX >> self.shift()
    }

    /// How far an aligned number is shifted, 64 − b.
    #[inline]
    pub(crate) const fn shift(self) -> u32 {
        64 - self.bits as u32
    }

    /// The modulus without x^b, aligned.
    #[inline]
    pub(crate) const fn aligned_low(self) -> u64 {
        (self.low as u64) << self.shift()
    }

    /// The product.
    #[must_use]
    pub fn mul(self, a: u64, b: u64) -> u64 {
        struct Product(u64, u64);
        impl Task for Product {
            type Output = u64;
            #[inline(always)]
            fn run<K: Kernel>(self, kernel: K) -> u64 {
                kernel.mul(self.0, self.1)
            }
        }
        run(self, Product(a & self.mask(), b & self.mask()))
    }

    /// The product of a number with itself.
    #[must_use]
    pub fn square(self, a: u64) -> u64 {
        self.mul(a, a)
    }

    /// The inverse of a number; `None` for 0.
    ///
    /// Extended Euclid: `u` and `v` start as the modulus and the number, and are reduced by each
    /// other to 1; `p` and `q` are always the factors by which the number must be multiplied to
    /// give them.
    #[must_use]
    pub const fn inverse(self, a: u64) -> Option<u64> {
        let mut v = a & self.mask();
        if v <= 1 {
            return if v == 0 { None } else { Some(1) };
        }
        // The first step, modulus − v·x^shift, cancels bit b of the modulus, so what is left fits
        // in words.
        let shift = self.bits as u32 + v.leading_zeros() - 63;
        let mut u = (self.low as u64 ^ v << shift) & self.mask();
        let (mut p, mut q) = (1 << shift, 1);
        while u != 1 {
            if u.leading_zeros() > v.leading_zeros() {
                (u, v) = (v, u);
                (p, q) = (q, p);
            }
            let shift = v.leading_zeros() - u.leading_zeros();
            u ^= v << shift;
            p ^= q << shift;
        }
        Some(p)
    }

    /// Precomputed values for decoding in this field; computed once per process.
    pub(crate) fn constants(self) -> &'static Constants {
        Constants::of(self)
    }
}
