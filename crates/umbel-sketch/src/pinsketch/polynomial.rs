//! Polynomials over a field, coefficients from the constant one up, as far as decoding needs them.

use crate::gf2::kernel::Kernel;

/// The highest index with a coefficient that is not 0.
#[inline(always)]
pub(super) fn degree(coefficients: &[u64]) -> Option<usize> {
    coefficients.iter().rposition(|&coefficient| coefficient != 0)
}

/// The remainder of `dividend` by the monic polynomial x^len + `divisor`, in the dividend's place.
#[inline(always)]
pub(super) fn reduce<K: Kernel>(kernel: K, dividend: &mut Vec<u64>, divisor: &[u64]) {
    while dividend.len() > divisor.len() {
        let top = dividend.pop().expect("it is longer than another");
        if top == 0 {
            continue;
        }
        let begin = dividend.len() - divisor.len();
        add_multiple(kernel, &mut dividend[begin..], top, divisor);
    }
}

/// Adds a multiple of `source` to `target`, which is as long.
#[inline(always)]
pub(super) fn add_multiple<K: Kernel>(kernel: K, target: &mut [u64], factor: u64, source: &[u64]) {
    let factor = kernel.wide(kernel.align(factor));
    for (target, &source) in target.iter_mut().zip(source) {
        *target ^= kernel.reduce(kernel.product(factor, kernel.wide(source)));
    }
}

/// `target` · `scale` + `source` · `factor`, in the target's place; the source may be shorter, and
/// counts as zeros beyond its end. Two products, one reduction, and no inverse, which would take as
/// long as dozens of products.
#[inline(always)]
pub(super) fn scale_and_add<K: Kernel>(
    kernel: K,
    target: &mut [u64],
    scale: u64,
    factor: u64,
    source: &[u64],
) {
    let scale = kernel.wide(kernel.align(scale));
    let factor = kernel.wide(kernel.align(factor));
    let (head, tail) = target.split_at_mut(source.len().min(target.len()));
    for (target, &source) in head.iter_mut().zip(source) {
        let scaled = kernel.product(scale, kernel.wide(*target));
        let added = kernel.product(factor, kernel.wide(source));
        *target = kernel.reduce(kernel.add(scaled, added));
    }
    for target in tail {
        *target = kernel.reduce(kernel.product(scale, kernel.wide(*target)));
    }
}

/// Makes a polynomial monic and drops its leading coefficient; a polynomial that is not 0.
#[inline(always)]
pub(super) fn into_monic<K: Kernel>(kernel: K, mut polynomial: Vec<u64>) -> Vec<u64> {
    polynomial.truncate(degree(&polynomial).map_or(0, |degree| degree + 1));
    let leading = polynomial.pop().expect("the polynomial is not 0");
    let inverse = kernel.field().inverse(leading).expect("a leading coefficient is not 0");
    let inverse = kernel.wide(kernel.align(inverse));
    for coefficient in &mut polynomial {
        *coefficient = kernel.reduce(kernel.product(inverse, kernel.wide(*coefficient)));
    }
    polynomial
}

/// The greatest common divisor of two polynomials, monic and without its leading coefficient; the
/// second one, `other`, is not 0.
#[inline(always)]
pub(super) fn greatest_common_divisor<K: Kernel>(
    kernel: K,
    mut longer: Vec<u64>,
    mut other: Vec<u64>,
) -> Vec<u64> {
    while let Some(other_degree) = degree(&other) {
        if other_degree == 0 {
            return Vec::new();
        }
        other.truncate(other_degree + 1);
        let leading = other[other_degree];
        while let Some(top) = longer.pop() {
            let Some(begin) = longer.len().checked_sub(other_degree) else {
                longer.push(top);
                break;
            };
            if top == 0 {
                continue;
            }
            let (low, high) = longer.split_at_mut(begin);
            scale_and_add(kernel, low, leading, 0, &[]);
            scale_and_add(kernel, high, leading, top, &other[..other_degree]);
        }
        std::mem::swap(&mut longer, &mut other);
    }
    into_monic(kernel, longer)
}

/// The quotient of monic polynomials, of which the second divides the first; all three without their
/// leading coefficients.
#[inline(always)]
pub(super) fn quotient<K: Kernel>(kernel: K, dividend: &[u64], divisor: &[u64]) -> Vec<u64> {
    let mut rest = dividend.to_vec();
    let mut coefficients = vec![0; dividend.len() - divisor.len()];
    let mut top = 1;
    for index in (0..coefficients.len()).rev() {
        add_multiple(kernel, &mut rest[index + 1..], top, divisor);
        top = rest.pop().expect("it is longer than the divisor");
        coefficients[index] = top;
    }
    coefficients
}
