//! Carry-less products by the processor's own instruction, and all `unsafe` code of the crate.
//!
//! x86-64 has PCLMULQDQ, aarch64 PMULL: 64 by 64 bits in one instruction, a new one every cycle. A
//! kernel is constructed only after the processor was found to support the instruction; therefore
//! its methods, which use it, may be called. Reference implementation:
//! [`Scalar`](super::kernel::Scalar).
#![expect(unsafe_code, reason = "the carry-less multiplication of the processor; the only module")]

use super::Field;
use super::kernel::Task;

/// Runs a task with the processor's instruction, or returns it if there is none.
#[inline]
pub(crate) fn run<T: Task>(field: Field, task: T) -> Result<T::Output, T> {
    #[cfg(target_arch = "x86_64")]
    return x86::run(field, task);
    #[cfg(target_arch = "aarch64")]
    return aarch64::run(field, task);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = field;
        Err(task)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_loadu_si128,
        _mm_setzero_si128, _mm_unpackhi_epi64, _mm_xor_si128,
    };

    use super::super::Field;
    use super::super::kernel::{Kernel, Task};

    /// PCLMULQDQ. Exists only where the processor has it.
    #[derive(Clone, Copy)]
    struct Clmul {
        field: Field,
        /// The field's low part, aligned.
        low: __m128i,
    }

    #[inline]
    pub(super) fn run<T: Task>(field: Field, task: T) -> Result<T::Output, T> {
        // AVX has the instruction with a target of its own, BMI the cheap shifts.
        let is_there = is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt");
        if !is_there {
            return Err(task);
        }
        // SAFETY: the processor has the instructions.
        Ok(unsafe { run_clmul(field, task) })
    }

    #[target_feature(enable = "pclmulqdq,avx2,bmi1,bmi2,lzcnt")]
    fn run_clmul<T: Task>(field: Field, task: T) -> T::Output {
        let low = _mm_cvtsi64_si128(field.aligned_low().cast_signed());
        task.run(Clmul { field, low })
    }

    impl Kernel for Clmul {
        type Wide = __m128i;

        #[inline(always)]
        fn field(self) -> Field {
            self.field
        }

        #[inline(always)]
        fn wide(self, value: u64) -> __m128i {
            // SAFETY: a kernel exists only where the processor has its instructions.
            unsafe { _mm_cvtsi64_si128(value.cast_signed()) }
        }

        #[inline(always)]
        fn narrow(self, wide: __m128i) -> u64 {
            // SAFETY: as in `wide`.
            unsafe { _mm_cvtsi128_si64(wide) }.cast_unsigned()
        }

        #[inline(always)]
        fn upper(self, wide: __m128i) -> u64 {
            // SAFETY: as in `wide`.
            unsafe { _mm_cvtsi128_si64(_mm_unpackhi_epi64(wide, wide)) }.cast_unsigned()
        }

        #[inline(always)]
        fn add(self, a: __m128i, b: __m128i) -> __m128i {
            // SAFETY: as in `wide`.
            unsafe { _mm_xor_si128(a, b) }
        }

        #[inline(always)]
        fn product(self, a: __m128i, b: __m128i) -> __m128i {
            // SAFETY: as in `wide`.
            unsafe { _mm_clmulepi64_si128::<0x00>(a, b) }
        }

        #[inline(always)]
        fn fold(self, products: __m128i) -> __m128i {
            // SAFETY: as in `wide`. The upper halves of the first two are folded.
            unsafe {
                let once = _mm_clmulepi64_si128::<0x01>(products, self.low);
                let twice = _mm_clmulepi64_si128::<0x01>(once, self.low);
                _mm_xor_si128(_mm_xor_si128(products, once), twice)
            }
        }

        /// Two products of each pair of loads; two sums, so that additions need not wait.
        #[inline(always)]
        fn dot(self, a: &[u64], b: &[u64]) -> __m128i {
            let length = a.len().min(b.len());
            let (a, b) = (&a[..length], &b[..length]);
            let (a_pairs, a_rest) = a.as_chunks::<2>();
            let (b_pairs, b_rest) = b.as_chunks::<2>();
            // SAFETY: as in `wide`; loads of two words, unaligned, from references to two words.
            unsafe {
                let (mut even, mut odd) = (_mm_setzero_si128(), _mm_setzero_si128());
                for (a, b) in a_pairs.iter().zip(b_pairs) {
                    let a = _mm_loadu_si128(std::ptr::from_ref(a).cast());
                    let b = _mm_loadu_si128(std::ptr::from_ref(b).cast());
                    even = _mm_xor_si128(even, _mm_clmulepi64_si128::<0x00>(a, b));
                    odd = _mm_xor_si128(odd, _mm_clmulepi64_si128::<0x11>(a, b));
                }
                if let (&[a], &[b]) = (a_rest, b_rest) {
                    even = _mm_xor_si128(even, self.product(self.wide(a), self.wide(b)));
                }
                _mm_xor_si128(even, odd)
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::aarch64::vmull_p64;

    use super::super::Field;
    use super::super::kernel::{Kernel, Task};

    /// PMULL. Exists only where the processor has it.
    #[derive(Clone, Copy)]
    struct Pmull {
        field: Field,
    }

    #[inline]
    pub(super) fn run<T: Task>(field: Field, task: T) -> Result<T::Output, T> {
        if !std::arch::is_aarch64_feature_detected!("aes") {
            return Err(task);
        }
        // SAFETY: the processor has the instruction, which comes with AES.
        Ok(unsafe { run_pmull(field, task) })
    }

    #[target_feature(enable = "neon,aes")]
    fn run_pmull<T: Task>(field: Field, task: T) -> T::Output {
        task.run(Pmull { field })
    }

    /// A separate function, because always-inlined functions cannot use the instruction themselves.
    #[inline]
    #[target_feature(enable = "neon,aes")]
    fn pmull(a: u64, b: u64) -> u128 {
        vmull_p64(a, b)
    }

    impl Kernel for Pmull {
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
            self.narrow(wide >> 64)
        }

        #[inline(always)]
        fn add(self, a: u128, b: u128) -> u128 {
            a ^ b
        }

        #[inline(always)]
        fn product(self, a: u128, b: u128) -> u128 {
            // SAFETY: a kernel exists only where the processor has its instruction.
            unsafe { pmull(self.narrow(a), self.narrow(b)) }
        }

        #[inline(always)]
        fn fold(self, products: u128) -> u128 {
            let low = u128::from(self.field.aligned_low());
            let once = self.product(products >> 64, low);
            products ^ once ^ self.product(once >> 64, low)
        }
    }
}
