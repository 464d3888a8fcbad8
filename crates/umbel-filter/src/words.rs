//! Arrays of 64-bit words as sets of bits: the operations that every stored filter comes down to,
//! in the widest instructions that the processor has.

use crate::bits::wide;
pub use crate::bits::{iter_ones, iter_zeros};

/// Number of ones.
///
/// ```
/// use umbel_filter::words::count_ones;
///
/// assert_eq!(count_ones(&[0b1011, 1 << 63]), 4);
/// ```
#[must_use]
pub fn count_ones(words: &[u64]) -> u64 {
    wide::count_ones(words)
}

/// ORs `theirs` into `ours` and returns how many bits it newly set.
///
/// # Panics
/// If the slices differ in length: the caller has compared their shapes.
///
/// ```
/// use umbel_filter::words::or;
///
/// let mut ours = [0b0011];
/// assert_eq!(or(&mut ours, &[0b0110]), 1);
/// assert_eq!(ours, [0b0111]);
/// ```
pub fn or(ours: &mut [u64], theirs: &[u64]) -> u64 {
    assert_eq!(ours.len(), theirs.len(), "words of ours and theirs");
    wide::or(ours, theirs)
}

/// ANDs `theirs` into `ours` and returns how many bits it cleared.
///
/// The AND of two filters contains every item that both contain, and errs at least as rarely as the
/// better of them; but it is not the filter of the common items alone.
///
/// # Panics
/// If the slices differ in length: the caller has compared their shapes.
///
/// ```
/// use umbel_filter::words::and;
///
/// let mut ours = [0b0011];
/// assert_eq!(and(&mut ours, &[0b0110]), 1);
/// assert_eq!(ours, [0b0010]);
/// ```
pub fn and(ours: &mut [u64], theirs: &[u64]) -> u64 {
    assert_eq!(ours.len(), theirs.len(), "words of ours and theirs");
    wide::and(ours, theirs)
}
