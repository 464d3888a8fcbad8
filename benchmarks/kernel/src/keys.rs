//! Keys: hashes of a counter, made in chunks outside the timed regions.
//!
//! Key i is the i-th output of `SplitMix64` (Steele, Lea & Flood 2014,
//! doi:10.1145/2660193.2660195), a bijection of 64 bits: keys of different indexes differ, so a key
//! of an index that was never inserted is fresh for certain.

use std::ops::Range;

use umbel_filter::ItemHash;

/// Keys of a chunk: 128 or 256 KiB of them, which a second-level cache holds.
pub const CHUNK_KEYS: u64 = 16_384;

/// Indexes of fresh keys begin here; no case inserts so many items.
const FRESH_FROM: u64 = 1 << 40;

/// What the indexes of a query stream are mixed with, so that they are not keys themselves.
const QUERY_SALT: u64 = 0x5851_f42d_4c95_7f2d;

/// A key as a structure takes it.
pub trait Key: Copy + Send + Sync {
    /// The key of an index below 2^63.
    fn of(index: u64) -> Self;
}

impl Key for u64 {
    #[inline]
    fn of(index: u64) -> Self {
        mix(index)
    }
}

impl Key for ItemHash {
    #[inline]
    fn of(index: u64) -> Self {
        Self::new(mix(2 * index), mix(2 * index + 1))
    }
}

/// Fills the chunk with the keys of these indexes.
pub fn fill_inserted<K: Key>(indexes: Range<u64>, chunk: &mut Vec<K>) {
    chunk.clear();
    chunk.extend(indexes.map(K::of));
}

/// Fills the chunk with fresh keys, of the set that measures the false-positive rate.
pub fn fill_fresh<K: Key>(indexes: Range<u64>, chunk: &mut Vec<K>) {
    chunk.clear();
    chunk.extend(indexes.map(|index| K::of(FRESH_FROM + index)));
}

/// Fills the chunk with queries in random order: half of them for random ones of the `item_count`
/// inserted items, half of them for fresh keys.
pub fn fill_queries<K: Key>(indexes: Range<u64>, item_count: u64, chunk: &mut Vec<K>) {
    chunk.clear();
    chunk.extend(indexes.map(|index| {
        let random = mix(index ^ QUERY_SALT);
        // The low bit decides, the high ones choose: they are independent.
        let is_hit = random & 1 == 0;
        let index = if is_hit { scale(random, item_count) } else { 2 * FRESH_FROM + index };
        K::of(index)
    }));
}

/// ⌊random · count / 2^64⌋, a number below `count`.
#[inline]
#[must_use]
pub fn scale(random: u64, count: u64) -> u64 {
    ((u128::from(random) * u128::from(count)) >> 64) as u64
}

/// Output `index` of `SplitMix64` from state 0.
///
/// ```
/// assert_eq!(umbel_kernel_benchmark::keys::mix(0), 0xe220_a839_7b1d_cdaf);
/// ```
#[inline]
#[must_use]
pub fn mix(index: u64) -> u64 {
    let mut word = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
