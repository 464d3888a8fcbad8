//! Syndromes of symbols: four chains of powers, each a step of x^8 at a time.
//!
//! A product waits for the previous one in its chain, but not for those of other chains or of the
//! next symbol, so the multiplier is always busy.

use crate::gf2::Field;
use crate::gf2::kernel::{Kernel, Task, run};

/// Chains at work: x, x^3, x^5, x^7.
const CHAIN_COUNT: usize = 4;

/// Adds a symbol to syndromes, or removes it. Symbol 0 is ignored: the caller tracks it. Higher
/// bits than the field's are ignored, too.
///
/// ```
/// use umbel_sketch::{Field, toggle_syndromes};
///
/// let mut syndromes = [0; 3];
/// toggle_syndromes(Field::new(8)?, &mut syndromes, 2);
/// assert_eq!(syndromes, [2, 8, 32]); // x, x^3, x^5
/// # Ok::<(), umbel_sketch::FieldError>(())
/// ```
pub fn toggle_syndromes(field: Field, syndromes: &mut [u64], symbol: u64) {
    toggle_symbols(field, syndromes, &[symbol]);
}

/// As [`toggle_syndromes`] for many symbols, about twice as fast.
pub fn toggle_symbols(field: Field, syndromes: &mut [u64], symbols: &[u64]) {
    struct Symbols<'a>(&'a mut [u64], &'a [u64]);
    impl Task for Symbols<'_> {
        type Output = ();
        #[inline(always)]
        fn run<K: Kernel>(self, kernel: K) {
            for &symbol in self.1 {
                toggle(kernel, self.0, symbol);
            }
        }
    }
    run(field, Symbols(syndromes, symbols));
}

/// As [`toggle_syndromes`] for a flat table of buckets, the syndromes of bucket i from
/// i · `capacity` on, and pairs of a bucket and a symbol.
///
/// ```
/// use umbel_sketch::{Field, toggle_buckets};
///
/// let mut table = [0; 4];
/// toggle_buckets(Field::new(8)?, &mut table, 2, &[(1, 3), (0, 2), (1, 3)]);
/// assert_eq!(table, [2, 8, 0, 0]);
/// # Ok::<(), umbel_sketch::FieldError>(())
/// ```
///
/// # Panics
/// If a bucket lies outside of the table.
pub fn toggle_buckets(field: Field, table: &mut [u64], capacity: usize, symbols: &[(u32, u64)]) {
    struct Buckets<'a>(&'a mut [u64], usize, &'a [(u32, u64)]);
    impl Task for Buckets<'_> {
        type Output = ();
        #[inline(always)]
        fn run<K: Kernel>(self, kernel: K) {
            for &(bucket, symbol) in self.2 {
                let begin = bucket as usize * self.1;
                toggle(kernel, &mut self.0[begin..begin + self.1], symbol);
            }
        }
    }
    run(field, Buckets(table, capacity, symbols));
}

#[inline(always)]
fn toggle<K: Kernel>(kernel: K, syndromes: &mut [u64], symbol: u64) {
    let shift = kernel.field().shift();
    let x = symbol & kernel.field().mask();
    if x == 0 {
        return;
    }
    let plain = |aligned: K::Wide| kernel.wide(kernel.narrow(aligned) >> shift);
    let x1 = kernel.wide(kernel.align(x));
    let x2 = kernel.step(x1, kernel.wide(x));
    let x4 = kernel.step(x2, plain(x2));
    let x3 = kernel.step(x1, plain(x2));
    let x8 = plain(kernel.step(x4, plain(x4)));
    let mut chains = [x1, x3, kernel.step(x1, plain(x4)), kernel.step(x3, plain(x4))];

    let (groups, rest) = syndromes.as_chunks_mut::<CHAIN_COUNT>();
    for group in groups {
        for (syndrome, chain) in group.iter_mut().zip(&mut chains) {
            *syndrome ^= kernel.narrow(*chain) >> shift;
            *chain = kernel.step(*chain, x8);
        }
    }
    for (syndrome, chain) in rest.iter_mut().zip(chains) {
        *syndrome ^= kernel.narrow(chain) >> shift;
    }
}
