//! Decodes syndromes to symbols: the shortest register by Berlekamp and Massey, then its roots.
//!
//! The power sums S of symbols x_1..x_L satisfy Σ C_i · S_(n−i) = 0, where C = Π (1 + x_i·z). The
//! register C is found without inverses: where the original divides by an earlier discrepancy, both
//! terms are multiplied, so that C has some constant term instead of 1.

use super::polynomial::{into_monic, scale_and_add};
use super::roots::find_roots;
use crate::gf2::Field;
use crate::gf2::kernel::{Kernel, Task, run};

/// The symbols of a sketch with t syndromes, sorted and none of them 0. `None` if there are more
/// than t − 1, or if the numbers are not the syndromes of any set. Higher bits than the field's are
/// ignored. Takes at most about b·t² products; the seed affects only how many.
///
/// ```
/// use umbel_sketch::{Field, decode_syndromes};
///
/// let field = Field::new(8)?;
/// // Of 2 and 3: 2 + 3, 8 + 15, 32 + 51, each an XOR.
/// assert_eq!(decode_syndromes(field, &[1, 7, 19], 0), Some(vec![2, 3]));
/// assert_eq!(decode_syndromes(field, &[1, 7], 0), None);
/// # Ok::<(), umbel_sketch::FieldError>(())
/// ```
#[must_use]
pub fn decode_syndromes(field: Field, syndromes: &[u64], seed: u64) -> Option<Vec<u64>> {
    decode_at_most(field, syndromes, syndromes.len().saturating_sub(1), seed)
}

/// The same for at most `most` symbols, which may be t: then no syndrome is to spare, and about one
/// in t! sketches of more symbols decodes to a wrong result.
pub(crate) fn decode_at_most(
    field: Field,
    syndromes: &[u64],
    most: usize,
    seed: u64,
) -> Option<Vec<u64>> {
    struct Decode<'a>(&'a [u64], usize, u64);
    impl Task for Decode<'_> {
        type Output = Option<Vec<u64>>;
        #[inline(always)]
        fn run<K: Kernel>(self, kernel: K) -> Option<Vec<u64>> {
            let locator = locator(kernel, self.0, self.1)?;
            let mut symbols = find_roots(kernel, locator, self.2)?;
            symbols.sort_unstable();
            Some(symbols)
        }
    }
    if syndromes.iter().all(|&syndrome| syndrome == 0) {
        // Most sketches of replicas are like this. Without any syndrome, nothing is known.
        return (!syndromes.is_empty()).then(Vec::new);
    }
    run(field, Decode(syndromes, most.min(syndromes.len()), seed))
}

/// The monic polynomial whose roots are the symbols, without its leading coefficient.
#[inline(always)]
fn locator<K: Kernel>(kernel: K, syndromes: &[u64], most: usize) -> Option<Vec<u64>> {
    let sums = reversed_power_sums(kernel, syndromes);
    let (mut current, mut earlier) = (vec![1], vec![1]);
    // Symbols so far; steps since `earlier` was current; the discrepancy of `earlier`.
    let (mut length, mut lag, mut divisor) = (0, 1, 1);
    for step in (0..sums.len()).step_by(2) {
        let begin = sums.len() - 1 - step;
        let discrepancy = kernel.reduce(kernel.dot(&sums[begin..=begin + length], &current));
        // The discrepancy of odd steps is always 0, so they are skipped.
        if discrepancy == 0 {
            lag += 2;
            continue;
        }
        let grows = 2 * length <= step;
        let before = grows.then(|| current.clone());
        if grows {
            length = step + 1 - length;
            if length > most {
                return None;
            }
            current.resize(length + 1, 0);
        }
        let (low, high) = current.split_at_mut(lag);
        scale_and_add(kernel, low, divisor, 0, &[]);
        scale_and_add(kernel, high, divisor, discrepancy, &earlier);
        match before {
            Some(before) => {
                earlier = before;
                divisor = discrepancy;
                lag = 2;
            }
            None => lag += 2,
        }
    }
    if current[length] == 0 {
        return None;
    }
    // Mirrored, the roots of C are turned into their inverses, which are the symbols.
    current.reverse();
    Some(into_monic(kernel, current))
}

/// Power sums S_(2t−1) to S_0, aligned. S_n is the sum of the (n+1)-th powers: the odd ones are the
/// syndromes, the others squares.
#[inline(always)]
fn reversed_power_sums<K: Kernel>(kernel: K, syndromes: &[u64]) -> Vec<u64> {
    let mask = kernel.field().mask();
    let mut sums = vec![0; 2 * syndromes.len()];
    for (index, syndrome) in syndromes.iter().enumerate() {
        sums[2 * index] = syndrome & mask;
    }
    for index in (1..sums.len()).step_by(2) {
        let root = sums[index / 2];
        sums[index] = kernel.mul(root, root);
    }
    for sum in &mut sums {
        *sum = kernel.align(*sum);
    }
    sums.reverse();
    sums
}
