//! What decoding in a field needs, computed when it is first asked for: 1 KiB a field.

use std::sync::OnceLock;

use super::{FIELD_BITS_MAX, FIELD_BITS_MIN, Field};

/// Most bits of a field, as a length.
const BITS_MAX: usize = FIELD_BITS_MAX as usize;

/// One for each of the sketches' fields, and one for the block code's.
const FIELD_COUNT: usize = BITS_MAX - FIELD_BITS_MIN as usize + 2;

/// Solved quadratics and powers of x.
pub(crate) struct Constants {
    /// y² + y = Σ of bits 2^i of c has the solution Σ of `roots[i]`, if it has one.
    roots: [u64; BITS_MAX],
    /// x^(2^i).
    pub(crate) squared_x: [u64; BITS_MAX],
}

impl Constants {
    /// The field's.
    pub(super) fn of(field: Field) -> &'static Self {
        static KNOWN: [OnceLock<Constants>; FIELD_COUNT] = [const { OnceLock::new() }; FIELD_COUNT];
        let index = usize::from(field.bits() - FIELD_BITS_MIN);
        let index = if field == Field::BLOCK { FIELD_COUNT - 1 } else { index };
        KNOWN[index].get_or_init(|| Self::new(field))
    }

    fn new(field: Field) -> Self {
        let mut squared_x = [0; BITS_MAX];
        let mut power = 2;
        for value in squared_x.iter_mut().take(field.bits().into()) {
            *value = power;
            power = field.square(power);
        }
        Self { roots: solve_quadratics(field), squared_x }
    }

    /// A solution of y² + y = c; the other is y + 1. None if there is none in the field.
    #[inline]
    pub(crate) fn solve_quadratic(&self, field: Field, c: u64) -> Option<u64> {
        let mut y = 0;
        for (bit, root) in self.roots.iter().enumerate() {
            y ^= root & (c >> bit & 1).wrapping_neg();
        }
        (field.square(y) ^ y == c).then_some(y)
    }
}

/// Gauss-Jordan elimination. Q(y) = y² + y is linear, and 0 for 0 and 1 only, so the Q(x^i) for
/// i ≥ 1 are independent. They are combined until the leading bit of each occurs in no other: then
/// the leading bits of c say which of them sum up to c, if any do.
fn solve_quadratics(field: Field) -> [u64; BITS_MAX] {
    let mut rows: Vec<(u64, u64)> = Vec::new();
    for bit in 1..field.bits() {
        let y = 1 << bit;
        let (mut image, mut root) = (field.square(y) ^ y, y);
        for (other, other_root) in &rows {
            if image >> other.ilog2() & 1 == 1 {
                image ^= other;
                root ^= other_root;
            }
        }
        for (other, other_root) in &mut rows {
            if *other >> image.ilog2() & 1 == 1 {
                *other ^= image;
                *other_root ^= root;
            }
        }
        rows.push((image, root));
    }
    let mut roots = [0; BITS_MAX];
    for (image, root) in rows {
        roots[image.ilog2() as usize] = root;
    }
    roots
}
