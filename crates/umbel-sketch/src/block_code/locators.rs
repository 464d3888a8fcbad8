//! Powers of α and their logarithms, minimal polynomials, and evaluation of words as polynomials.

use std::sync::OnceLock;

use crate::gf2::Field;
use crate::gf2::kernel::carry_less_product;

/// α^ORDER = 1.
const ORDER: u32 = 65_535;

/// Degree of the minimal polynomial of a power of α, except for a few exponents above 256.
const DEGREE: usize = 16;

/// Powers and logarithms of α: 384 KiB, computed once per process.
pub(super) struct Locators {
    /// α^i for i below the order.
    powers: Vec<u16>,
    /// i for α^i; the order for 0.
    logarithms: Vec<u32>,
}

impl Locators {
    /// The tables, computed on first use.
    pub(super) fn known() -> &'static Self {
        static KNOWN: OnceLock<Locators> = OnceLock::new();
        KNOWN.get_or_init(|| {
            let mut powers = Vec::with_capacity(ORDER as usize);
            let mut logarithms = vec![ORDER; ORDER as usize + 1];
            let mut power = 1u16;
            for exponent in 0..ORDER {
                powers.push(power);
                logarithms[usize::from(power)] = exponent;
                let carry = power >> 15;
                power = (power << 1) ^ (carry * 0x2d);
            }
            Self { powers, logarithms }
        })
    }

    /// α^exponent.
    fn power(&self, exponent: u32) -> u64 {
        self.powers[(exponent % ORDER) as usize].into()
    }

    /// The exponent of a power of α; None for numbers that are none.
    pub(super) fn position(&self, locator: u64) -> Option<u32> {
        let index = usize::try_from(locator).ok()?;
        self.logarithms.get(index).copied().filter(|&exponent| exponent < ORDER)
    }

    /// A word as a polynomial, at α^exponent.
    pub(super) fn evaluate(&self, word: u64, exponent: u32) -> u16 {
        let mut sum = 0;
        let mut rest = word;
        while rest != 0 {
            sum ^= self.powers[(exponent * rest.trailing_zeros() % ORDER) as usize];
            rest &= rest - 1;
        }
        sum
    }
}

/// The product of the minimal polynomials of α^j for j = 8g + 1, 3, 5, 7, without x^64.
pub(super) fn generator(word: u32) -> u64 {
    let locators = Locators::known();
    let mut product = 1u128;
    for odd in [1, 3, 5, 7] {
        let minimal = minimal_polynomial(locators, 8 * word + odd);
        // The degree grows to 64 with the last factor only, whose x^16 is added by itself.
        #[expect(clippy::cast_possible_truncation, reason = "of degree 48 at most")]
        let before = product as u64;
        product = carry_less_product(before, minimal & 0xffff) ^ u128::from(before) << DEGREE;
    }
    #[expect(clippy::cast_possible_truncation, reason = "x^64 is cut off")]
    {
        product as u64
    }
}

/// Π (x + α^(j·2^i)), i = 0..16: its coefficients are bits.
fn minimal_polynomial(locators: &Locators, exponent: u32) -> u64 {
    let mut coefficients = vec![1];
    let mut conjugate = exponent;
    for _ in 0..DEGREE {
        let root = locators.power(conjugate);
        coefficients.insert(0, 0);
        for index in 0..coefficients.len() - 1 {
            let above = coefficients[index + 1];
            coefficients[index] ^= Field::BLOCK.mul(root, above);
        }
        conjugate = conjugate * 2 % ORDER;
    }
    coefficients.iter().zip(0..).fold(0, |sum, (&coefficient, place)| sum | coefficient << place)
}
