//! Laws of fields, known products, and the scalar kernel as reference for the processor's.

use proptest::prelude::*;

use super::clmul;
use super::kernel::{Kernel, Scalar, Task, carry_less_product, run};
use super::{FIELD_BITS_MAX, FIELD_BITS_MIN, Field, FieldError, LOWS};

fn fields() -> impl Iterator<Item = Field> {
    let sketch = (FIELD_BITS_MIN..=FIELD_BITS_MAX).map(|bits| Field::new(bits).unwrap());
    sketch.chain([Field::BLOCK])
}

/// The schoolbook product: shift, reduce, add.
fn slow_product(field: Field, a: u64, b: u64) -> u64 {
    let mut sum = 0;
    for bit in (0..field.bits()).rev() {
        let carry = sum >> (field.bits() - 1) & 1;
        sum = (sum << 1 & field.mask()) ^ (carry * u64::from(field.low));
        sum ^= a * (b >> bit & 1);
    }
    sum
}

struct Products(u64, u64);

impl Task for Products {
    type Output = (u64, u64);
    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) -> (u64, u64) {
        let plain = [self.0, self.1, self.0, self.0 ^ self.1, 1];
        let aligned = plain.map(|value| kernel.align(value));
        let dot = kernel.dot(&aligned[1..], &plain[..3]);
        (kernel.mul(self.0, self.1), kernel.reduce(dot))
    }
}

#[test]
fn sizes_outside_are_refused() {
    for bits in [0, 7, 65, 255] {
        assert_eq!(Field::new(bits), Err(FieldError { bits }));
    }
    assert_eq!(LOWS.len(), usize::from(FIELD_BITS_MAX - FIELD_BITS_MIN) + 1);
}

/// Rabin's test: x^(2^b) = x, and x^(2^(b/p)) − x is coprime to the modulus for each prime p of b;
/// it is, if its remainder has an inverse that multiplies to 1.
#[test]
fn moduli_are_irreducible() {
    for field in fields() {
        let squared = |count: u8| (0..count).fold(2, |power, _| slow_product(field, power, power));
        assert_eq!(squared(field.bits()), 2, "{field:?}");
        let is_prime = |p: &u8| (2..*p).all(|q| !p.is_multiple_of(q));
        for p in (2..=field.bits()).filter(|p| field.bits() % p == 0).filter(is_prime) {
            let rest = squared(field.bits() / p) ^ 2;
            let inverse = field.inverse(rest).unwrap();
            assert_eq!(slow_product(field, rest, inverse), 1, "{field:?}");
        }
    }
}

#[test]
fn x_generates_the_block_field() {
    let mut power = 1;
    let order = (1..).find(|_| {
        power = Field::BLOCK.mul(power, 2);
        power == 1
    });
    assert_eq!(order, Some(65_535));
}

#[test]
fn quadratics_are_solved() {
    for field in fields() {
        let constants = field.constants();
        let mut y = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..100 {
            y = y.wrapping_mul(0xda94_2042_e4dd_58b5).rotate_left(23);
            let y = y & field.mask();
            let found = constants.solve_quadratic(field, field.square(y) ^ y).unwrap();
            assert!(found == y || found == y ^ 1, "{field:?}");
        }
        // Half of all numbers are not of the form y² + y.
        let numbers = (0..200u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> field.shift());
        let solved = numbers.filter(|&c| constants.solve_quadratic(field, c).is_some()).count();
        assert!((60..=140).contains(&solved), "{field:?}: {solved}");
    }
}

#[test]
fn powers_of_x_are_known() {
    for field in fields() {
        let squared = &field.constants().squared_x;
        assert_eq!((squared[0], squared[1], squared[2]), (2, 4, 16));
        let last = squared[usize::from(field.bits()) - 1];
        assert_eq!(field.square(last), 2);
    }
}

proptest! {
    #[test]
    fn kernels_agree(index in 0..58usize, a: u64, b: u64) {
        let field = fields().nth(index).unwrap();
        let (a, b) = (a & field.mask(), b & field.mask());
        let expected = slow_product(field, a, b);
        let sum = slow_product(field, a, b) ^ slow_product(field, b, a)
            ^ slow_product(field, a ^ b, a);
        prop_assert_eq!(Products(a, b).run(Scalar::new(field)), (expected, sum));
        prop_assert_eq!(run(field, Products(a, b)), (expected, sum));
        if let Ok(products) = clmul::run(field, Products(a, b)) {
            prop_assert_eq!(products, (expected, sum));
        }
        prop_assert_eq!(field.mul(a, b), expected);
        prop_assert_eq!(field.square(a), slow_product(field, a, a));
    }

    #[test]
    fn inverses_multiply_to_one(index in 0..58usize, a: u64) {
        let field = fields().nth(index).unwrap();
        match field.inverse(a) {
            Some(inverse) => prop_assert_eq!(field.mul(a, inverse), 1),
            None => prop_assert_eq!(a & field.mask(), 0),
        }
    }

    #[test]
    fn products_have_no_carries(a: u64, b: u64) {
        let expected = (0..64).fold(0, |sum, bit| sum ^ u128::from(a * (b >> bit & 1)) << bit);
        prop_assert_eq!(carry_less_product(a, b), expected);
    }
}
