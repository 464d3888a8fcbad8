//! Classic Bloom filter: k probes anywhere in the array (Bloom 1970, doi:10.1145/362686.362692).
//!
//! After n items a bit of m is one with probability 1 − (1 − 1/m)^(k·n), and an item that was not
//! inserted meets k ones with that to the power of k: the least memory of all kinds here at a rate
//! below about 1 %, and up to k accesses to memory an operation (`spread` chooses the positions).
//!
//! *Anywhere* is anywhere in the item's block of up to 64 KiB. A filter up to that size is one
//! block; a larger one is an array of them, so that a hash range is a slice of it, and one page of
//! memory serves all probes of an item. Blocks of tens of thousands of items fill so evenly that the
//! rate rises by less than half a percent of itself ([`blocked_free_false_positive_rate`] has it).
//!
//! [`blocked_free_false_positive_rate`]: crate::sizing::blocked_free_false_positive_rate

use crate::spread::SpreadFilter;

#[cfg(test)]
mod classic_test;

/// A classic filter over a hash range.
///
/// ```
/// use umbel_filter::{Classic, Contains, HashRange, Insert, Insertion, ItemHasher};
///
/// let hasher = ItemHasher::Xxh3 { seed: 7 };
/// let mut seen = Classic::for_rate(HashRange::WHOLE, 1_000, 0.01)?;
/// assert_eq!(seen.insert(hasher.hash(b"alice"))?, Insertion::New);
/// assert_eq!(seen.insert(hasher.hash(b"alice"))?, Insertion::Present);
/// assert!(!seen.contains(hasher.hash(b"bob")));
/// // 1 % costs 9.585 bits an item, rounded up to whole lines.
/// assert_eq!(seen.block_shape().position_count(), 9_728);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Classic = SpreadFilter<false>;
