//! Carry-less products and their reduction, by the processor's instruction or by shifts.
//!
//! An algorithm is written once, for any [`Kernel`], as a [`Task`], and [`run`] runs it with the
//! best kernel that the processor supports. Everything that a task calls is always inlined, so that
//! it is compiled as a whole for the kernel's instruction set. Closures passed to an iterator may
//! not be inlined, so products are in plain loops.

use super::{Field, clmul};

/// Products in one field. A *wide* number has 128 bits; [`Kernel::product`] and [`Kernel::narrow`]
/// read its lower 64, and its upper may hold anything then.
pub(crate) trait Kernel: Copy {
    /// 128 bits.
    type Wide: Copy;

    /// The field.
    fn field(self) -> Field;

    /// A number as a wide one.
    fn wide(self, value: u64) -> Self::Wide;

    /// The lower half.
    fn narrow(self, wide: Self::Wide) -> u64;

    /// The upper half.
    fn upper(self, wide: Self::Wide) -> u64;

    /// The sum.
    fn add(self, a: Self::Wide, b: Self::Wide) -> Self::Wide;

    /// The carry-less product of the lower halves, not reduced.
    fn product(self, a: Self::Wide, b: Self::Wide) -> Self::Wide;

    /// Reduces a sum of products of aligned and plain numbers: the result is aligned, in the lower
    /// half.
    fn fold(self, products: Self::Wide) -> Self::Wide;

    /// The dot product of two slices, not reduced, up to the length of the shorter one.
    #[inline(always)]
    fn dot(self, a: &[u64], b: &[u64]) -> Self::Wide {
        let mut sum = self.wide(0);
        for (&a, &b) in a.iter().zip(b) {
            sum = self.add(sum, self.product(self.wide(a), self.wide(b)));
        }
        sum
    }

    /// Multiplies by 2^(64 − b): one factor of each product must be aligned.
    #[inline(always)]
    fn align(self, value: u64) -> u64 {
        value << self.field().shift()
    }

    /// A sum of products, as a plain number.
    #[inline(always)]
    fn reduce(self, products: Self::Wide) -> u64 {
        self.narrow(self.fold(products)) >> self.field().shift()
    }

    /// The product of an aligned and a plain number, aligned, in the lower halves.
    #[inline(always)]
    fn step(self, aligned: Self::Wide, plain: Self::Wide) -> Self::Wide {
        self.fold(self.product(aligned, plain))
    }

    /// The product of plain numbers below 2^b.
    #[inline(always)]
    fn mul(self, a: u64, b: u64) -> u64 {
        self.reduce(self.product(self.wide(self.align(a)), self.wide(b)))
    }
}

/// An algorithm over a field.
pub(crate) trait Task {
    /// What it gives.
    type Output;

    /// Runs it; always inlined.
    fn run<K: Kernel>(self, kernel: K) -> Self::Output;
}

/// Runs a task with the best kernel that the processor has.
#[inline]
pub(crate) fn run<T: Task>(field: Field, task: T) -> T::Output {
    match clmul::run(field, task) {
        Ok(output) => output,
        Err(task) => task.run(Scalar::new(field)),
    }
}

/// Products by shifts and XORs: for any processor, and the reference for the other kernels.
#[derive(Clone, Copy)]
pub(crate) struct Scalar {
    field: Field,
}

impl Scalar {
    /// Products in this field.
    pub(crate) const fn new(field: Field) -> Self {
        Self { field }
    }
}

impl Kernel for Scalar {
    type Wide = u128;

    #[inline(always)]
    fn field(self) -> Field {
        self.field
    }

    #[inline(always)]
    fn wide(self, value: u64) -> u128 {
        value.into()
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is asked for")]
    fn narrow(self, wide: u128) -> u64 {
        wide as u64
    }

    #[inline(always)]
    fn upper(self, wide: u128) -> u64 {
        (wide >> 64) as u64
    }

    #[inline(always)]
    fn add(self, a: u128, b: u128) -> u128 {
        a ^ b
    }

    #[inline(always)]
    fn product(self, a: u128, b: u128) -> u128 {
        carry_less_product(self.narrow(a), self.narrow(b))
    }

    /// low has few terms, so a fold is a few shifts.
    #[inline(always)]
    fn fold(self, products: u128) -> u128 {
        let mut sum = products;
        for _ in 0..2 {
            let mut terms = self.field.aligned_low();
            let over = sum >> 64;
            sum &= u128::from(u64::MAX);
            while terms != 0 {
                sum ^= over << terms.trailing_zeros();
                terms &= terms - 1;
            }
        }
        sum
    }
}

/// The carry-less product, four bits at a time.
pub(crate) fn carry_less_product(a: u64, b: u64) -> u128 {
    let mut multiples = [0u128; 16];
    for index in 1..16 {
        let half = multiples[index / 2] << 1;
        multiples[index] = if index % 2 == 1 { half ^ u128::from(a) } else { half };
    }
    (0..16).rev().fold(0, |sum, place| sum << 4 ^ multiples[(b >> (4 * place) & 15) as usize])
}
