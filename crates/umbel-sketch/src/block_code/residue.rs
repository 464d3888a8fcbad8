//! Remainders by a generator of degree 64.
//!
//! What the kernels give is a carry-less product of 128 bits, p. Its remainder takes two more (Barrett):
//! with μ = ⌊x^128 / G⌋, the quotient is the upper half of (upper half of p)·μ, and the remainder the
//! lower half of p plus that of quotient · G. Both μ and G have a leading x^64, which is added by hand.

use super::BLOCK_WORDS;
use crate::gf2::kernel::Kernel;

/// A generator with what remainders by it need.
#[derive(Clone, Debug)]
pub(super) struct Generator {
    /// G without x^64.
    low: u64,
    /// ⌊x^128 / G⌋ without x^64.
    quotient: u64,
    /// x^(64i) mod G.
    powers: Box<[u64; BLOCK_WORDS]>,
}

impl Generator {
    /// The generator x^64 + low.
    pub(super) fn new(low: u64) -> Self {
        let mut powers = Box::new([0; BLOCK_WORDS]);
        let mut power = 1;
        for value in powers.iter_mut() {
            *value = power;
            power = (0..64).fold(power, |power, _| times_x(power, low));
        }
        // Long division of x^128 by G: the quotient's bit i is what is taken from x^(64+i).
        let (mut rest, mut quotient) = (low, 0);
        for bit in (0..64).rev() {
            quotient |= (rest >> 63) << bit;
            rest = times_x(rest, low);
        }
        Self { low, quotient, powers }
    }

    /// G without x^64.
    pub(super) const fn low(&self) -> u64 {
        self.low
    }

    /// The block's remainder.
    #[inline(always)]
    pub(super) fn residue<K: Kernel>(&self, kernel: K, block: &[u64; BLOCK_WORDS]) -> u64 {
        self.remainder(kernel, kernel.dot(block, &*self.powers))
    }

    /// x^position mod G, of a position in a block.
    #[inline(always)]
    pub(super) fn power<K: Kernel>(&self, kernel: K, position: u32) -> u64 {
        let word = kernel.wide(self.powers[position as usize / 64]);
        self.remainder(kernel, kernel.product(word, kernel.wide(1 << (position % 64))))
    }

    #[inline(always)]
    fn remainder<K: Kernel>(&self, kernel: K, product: K::Wide) -> u64 {
        let upper = kernel.upper(product);
        let estimate = kernel.product(kernel.wide(upper), kernel.wide(self.quotient));
        let quotient = upper ^ kernel.upper(estimate);
        let multiple = kernel.product(kernel.wide(quotient), kernel.wide(self.low));
        kernel.narrow(product) ^ kernel.narrow(multiple)
    }
}

/// x · value mod G.
const fn times_x(value: u64, low: u64) -> u64 {
    value << 1 ^ low & (value >> 63).wrapping_neg()
}
