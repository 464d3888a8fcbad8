//! Roots of polynomials over GF(2^b): Berlekamp's trace algorithm on tabled Frobenius powers.
//!
//! P of degree L splits into distinct linear factors if and only if x^(2^b) = x modulo P. The
//! powers F_i = x^(2^i) mod P, i = 0..b, are computed once. A square mod P is linear in the squares
//! of the coefficients: the upper half of them is multiplied with a table of x^(2j) mod P, as sums of
//! products with one reduction each, L²/2 instead of the 3·L² multiplications of a division.
//!
//! Tr(βx) = Σ β^(2^i)·F_i is 0 or 1 at every root, so the greatest common divisor with P has the
//! roots of one kind. It is a sum of products again; the next β is the last times x, and β, xβ, ..
//! x^(b−1)·β form a basis, so that any two roots differ in one of the traces. Factors of degree 2
//! are solved at once: x = p_1·y makes x² + p_1·x + p_0 = 0 into y² + y = p_0 / p_1².

use super::polynomial::{add_multiple, degree, greatest_common_divisor, quotient, reduce};
use crate::gf2::constants::Constants;
use crate::gf2::kernel::Kernel;

/// The roots of a monic polynomial, given without its leading coefficient; `None` unless it has as
/// many roots as its degree.
#[inline(always)]
pub(super) fn find_roots<K: Kernel>(kernel: K, monic: Vec<u64>, seed: u64) -> Option<Vec<u64>> {
    let constants = kernel.field().constants();
    let mut roots = Vec::with_capacity(monic.len());
    if monic.len() <= 2 {
        small_roots(kernel, constants, &monic, &mut roots)?;
        return Some(roots);
    }
    let powers = FrobeniusPowers::new(kernel, &monic)?;
    let mut scales = first_scales(kernel, seed);
    let mut factors = vec![monic];
    for _ in 0..kernel.field().bits() {
        let trace = powers.weighted_sum(kernel, &scales);
        let mut parts = Vec::with_capacity(2 * factors.len());
        for factor in factors {
            split(kernel, &trace, factor, &mut parts);
        }
        factors = Vec::with_capacity(parts.len());
        for part in parts {
            if part.len() <= 2 {
                small_roots(kernel, constants, &part, &mut roots)?;
            } else {
                factors.push(part);
            }
        }
        if factors.is_empty() {
            return Some(roots);
        }
        for (scale, &factor) in scales.iter_mut().zip(&constants.squared_x) {
            *scale = kernel.mul(*scale, factor);
        }
    }
    None // a basis of β would have split them
}

/// β^(2^i) for a β that depends on the seed.
#[inline(always)]
fn first_scales<K: Kernel>(kernel: K, seed: u64) -> Vec<u64> {
    // Any β but 0 will do.
    let mut scale = (seed & kernel.field().mask()).max(1);
    let mut scales = Vec::with_capacity(kernel.field().bits().into());
    for _ in 0..kernel.field().bits() {
        scales.push(scale);
        scale = kernel.mul(scale, scale);
    }
    scales
}

/// The roots of a monic polynomial of degree 0 to 2; None if it has fewer than its degree.
#[inline(always)]
fn small_roots<K: Kernel>(
    kernel: K,
    constants: &Constants,
    monic: &[u64],
    roots: &mut Vec<u64>,
) -> Option<()> {
    match *monic {
        [] => {}
        [p0] => roots.push(p0),
        [p0, p1] => {
            let inverse = kernel.field().inverse(p1)?;
            let c = kernel.mul(p0, kernel.mul(inverse, inverse));
            let root = kernel.mul(p1, constants.solve_quadratic(kernel.field(), c)?);
            roots.extend([root, root ^ p1]);
        }
        _ => unreachable!("larger factors are split"),
    }
    Some(())
}

/// Splits the factor into the part with the roots where the trace is 0 and the part with those
/// where it is 1; keeps the factor whole if one part has all roots.
#[inline(always)]
fn split<K: Kernel>(kernel: K, trace: &[u64], factor: Vec<u64>, parts: &mut Vec<Vec<u64>>) {
    let mut rest = trace.to_vec();
    reduce(kernel, &mut rest, &factor);
    if degree(&rest).is_none_or(|degree| degree == 0) {
        parts.push(factor);
        return;
    }
    let mut whole = factor.clone();
    whole.push(1);
    let divisor = greatest_common_divisor(kernel, whole, rest);
    if divisor.is_empty() {
        parts.push(factor);
        return;
    }
    parts.push(quotient(kernel, &factor, &divisor));
    parts.push(divisor);
}

/// The coefficients of F_i = x^(2^i) mod P, by place, aligned: those of x^k from k·b on.
struct FrobeniusPowers {
    coefficients: Vec<u64>,
    /// b.
    count: usize,
}

impl FrobeniusPowers {
    /// The powers for i below b; None if the b-th is not x again.
    #[inline(always)]
    fn new<K: Kernel>(kernel: K, monic: &[u64]) -> Option<Self> {
        let length = monic.len();
        let count = usize::from(kernel.field().bits());
        let squares = SquareTable::new(kernel, monic);
        let mut coefficients = vec![0; length * count];
        let mut power = vec![0; length];
        let mut square = vec![0; length];
        power[1] = 1;
        for index in 0..count {
            for (place, &coefficient) in power.iter().enumerate() {
                coefficients[place * count + index] = kernel.align(coefficient);
            }
            squares.square(kernel, &mut power, &mut square);
        }
        let is_x = power.iter().enumerate().all(|(place, &value)| value == u64::from(place == 1));
        is_x.then_some(Self { coefficients, count })
    }

    /// Σ of scale i times F_i.
    #[inline(always)]
    fn weighted_sum<K: Kernel>(&self, kernel: K, scales: &[u64]) -> Vec<u64> {
        let mut sum = Vec::with_capacity(self.coefficients.len() / self.count);
        for row in self.coefficients.chunks_exact(self.count) {
            sum.push(kernel.reduce(kernel.dot(row, scales)));
        }
        sum
    }
}

/// The coefficients of x^(2j) mod P for ⌈L/2⌉ ≤ j < L, by place, aligned: those of x^k from
/// k·⌊L/2⌋ on.
struct SquareTable {
    coefficients: Vec<u64>,
    /// ⌊L/2⌋.
    count: usize,
}

impl SquareTable {
    #[inline(always)]
    fn new<K: Kernel>(kernel: K, monic: &[u64]) -> Self {
        let length = monic.len();
        let count = length / 2;
        let mut coefficients = vec![0; length * count];
        let mut power = monic.to_vec(); // x^L
        for exponent in length..2 * length - 1 {
            if exponent % 2 == 0 {
                let column = exponent / 2 - (length - count);
                for (place, &coefficient) in power.iter().enumerate() {
                    coefficients[place * count + column] = kernel.align(coefficient);
                }
            }
            let top = power[length - 1];
            power.copy_within(..length - 1, 1);
            power[0] = 0;
            add_multiple(kernel, &mut power, top, monic);
        }
        Self { coefficients, count }
    }

    /// Squares `power` modulo P; `square` is as long, and scratch.
    #[inline(always)]
    fn square<K: Kernel>(&self, kernel: K, power: &mut [u64], square: &mut [u64]) {
        for (square, &value) in square.iter_mut().zip(&*power) {
            *square = kernel.mul(value, value);
        }
        let (low, high) = square.split_at(power.len() - self.count);
        let rows = self.coefficients.chunks_exact(self.count);
        for ((place, value), row) in power.iter_mut().enumerate().zip(rows) {
            let own = if place % 2 == 0 { low[place / 2] } else { 0 };
            *value = own ^ kernel.reduce(kernel.dot(row, high));
        }
    }
}
