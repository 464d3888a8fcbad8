//! The peers: what others would take instead, each called its fastest way for 64-bit hashes.
//!
//! | name | crate | calls |
//! |---|---|---|
//! | fastbloom, fastbloom-atomic | fastbloom | `insert_hash`, `contains_hash`: no hasher at all |
//! | sbbf | sbbf-rs-safe (split blocks of 256 bits, AVX2) | `insert_hash`, `contains_hash` |
//! | xorf-fuse8, xorf-fuse16 | xorf (binary fuse filters, static) | `try_from`, `contains` |
//! | qfilter | qfilter (rank-and-select quotient filter) | `insert_fingerprint`, `contains_fingerprint` |
//! | cuckoofilter | cuckoofilter (8-bit fingerprints) | `add`, `contains` with [`HashedKey`] |

use std::hash::Hasher;

use fastbloom::{AtomicBloomFilter, BloomFilter};
use xorf::{BinaryFuse8, BinaryFuse16, Filter};

use crate::keys::mix;
use crate::structure::{Case, Structure};

/// Any fixed seed: with hashes as keys the hasher is never asked.
const FASTBLOOM_SEED: u128 = 7;

/// Lowest rate of 8-bit fingerprints, 2^-8, and of 16-bit ones.
const FUSE8_RATE_MIN: f64 = 1.0 / 256.0;
const FUSE16_RATE_MIN: f64 = 1.0 / 65_536.0;

/// Most of a cuckoo filter's places that are filled; beyond that inserts begin to fail.
const CUCKOO_FILL_MAX: f64 = 0.95;

/// Rate that 8-bit fingerprints in two buckets of four reach when full, 8/255 (Fan et al. 2014,
/// doi:10.1145/2674005.2674994). The crate offers no other; it stands in the 1 % tables beside its
/// measured rate.
const CUCKOO_RATE_MIN: f64 = 0.01;

/// Blocks of a split-block filter: 256 bits in 8 lanes of 32.
const SPLIT_LANES: i32 = 8;
const SPLIT_LANE_BITS: f64 = 32.0;
const SPLIT_BLOCK_BITS: f64 = 256.0;
const SPLIT_BITS_MAX: usize = 64;

impl Structure for BloomFilter {
    const NAME: &'static str = "fastbloom";
    type Key = u64;
    type Outcome = bool;

    fn create(case: Case) -> Self {
        let builder = Self::with_false_pos(case.rate).seed(&FASTBLOOM_SEED);
        let mut filter = builder.expected_items(in_memory(case.items));
        filter.clear();
        filter
    }

    fn memory_bytes(&self) -> u64 {
        self.num_bits() as u64 / 8
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.contains_hash(key)
    }

    #[inline]
    fn insert(&mut self, key: u64) -> bool {
        self.insert_hash(key)
    }
}

impl Structure for AtomicBloomFilter {
    const NAME: &'static str = "fastbloom-atomic";
    const IS_SHARED: bool = true;
    type Key = u64;
    type Outcome = bool;

    fn create(case: Case) -> Self {
        let builder = Self::with_false_pos(case.rate).seed(&FASTBLOOM_SEED);
        let filter = builder.expected_items(in_memory(case.items));
        filter.clear();
        filter
    }

    fn memory_bytes(&self) -> u64 {
        self.num_bits() as u64 / 8
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.contains_hash(key)
    }

    #[inline]
    fn insert(&mut self, key: u64) -> bool {
        self.insert_hash(key)
    }

    #[inline]
    fn insert_shared(&self, key: u64) -> bool {
        self.insert_hash(key)
    }
}

impl Structure for sbbf_rs_safe::Filter {
    const NAME: &'static str = "sbbf";
    type Key = u64;
    type Outcome = bool;

    fn create(case: Case) -> Self {
        let mut filter = Self::new(split_block_bits(case.rate), in_memory(case.items));
        filter.reset();
        filter
    }

    fn memory_bytes(&self) -> u64 {
        self.as_bytes().len() as u64
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.contains_hash(key)
    }

    #[inline]
    fn insert(&mut self, key: u64) -> bool {
        self.insert_hash(key)
    }
}

/// Least whole number of bits an item, as the crate wants it, that reaches the rate: items in a
/// block are Poisson distributed, and i of them leave a lane's bit zero with (31/32)^i.
fn split_block_bits(rate: f64) -> usize {
    let reaches = |bits: &usize| {
        let mean = SPLIT_BLOCK_BITS / *bits as f64;
        let mut share = (-mean).exp();
        let mut expected_rate = 0.0;
        for items in 1..=1_000 {
            share *= mean / f64::from(items);
            let hit = 1.0 - (1.0 - 1.0 / SPLIT_LANE_BITS).powi(items);
            expected_rate += share * hit.powi(SPLIT_LANES);
        }
        expected_rate <= rate
    };
    (1..SPLIT_BITS_MAX).find(reaches).unwrap_or(SPLIT_BITS_MAX)
}

impl Structure for BinaryFuse8 {
    const NAME: &'static str = "xorf-fuse8";
    const IS_STATIC: bool = true;
    type Key = u64;
    type Outcome = bool;

    fn suits(case: Case) -> bool {
        case.rate >= FUSE8_RATE_MIN
    }

    fn create(case: Case) -> Self {
        Self::build(case, Vec::new())
    }

    fn build(_: Case, keys: Vec<u64>) -> Self {
        Self::try_from(&keys).expect("keys differ")
    }

    fn memory_bytes(&self) -> u64 {
        self.len() as u64
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        Filter::contains(self, &key)
    }
}

/// For rates that 8 bits do not reach; the crate has none between.
impl Structure for BinaryFuse16 {
    const NAME: &'static str = "xorf-fuse16";
    const IS_STATIC: bool = true;
    type Key = u64;
    type Outcome = bool;

    fn suits(case: Case) -> bool {
        (FUSE16_RATE_MIN..FUSE8_RATE_MIN).contains(&case.rate)
    }

    fn create(case: Case) -> Self {
        Self::build(case, Vec::new())
    }

    fn build(_: Case, keys: Vec<u64>) -> Self {
        Self::try_from(&keys).expect("keys differ")
    }

    fn memory_bytes(&self) -> u64 {
        2 * self.len() as u64
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        Filter::contains(self, &key)
    }
}

impl Structure for qfilter::Filter {
    const NAME: &'static str = "qfilter";
    type Key = u64;
    type Outcome = bool;

    /// Its table is a power of two: the case tells how much of that is used.
    fn create(case: Case) -> Self {
        let mut filter = Self::new(case.items, case.rate).expect("items in memory");
        filter.clear();
        filter
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_usage() as u64
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.contains_fingerprint(key)
    }

    #[inline]
    fn insert(&mut self, key: u64) -> bool {
        // What does not fit would be missed: the check for false negatives tells.
        self.insert_fingerprint(false, key).is_ok_and(|is_new| !is_new)
    }
}

type CuckooFilter = cuckoofilter::CuckooFilter<HashedKey>;

/// The peers' cuckoo filter.
pub struct Cuckoo(CuckooFilter);

impl Structure for Cuckoo {
    const NAME: &'static str = "cuckoofilter";
    type Key = u64;
    type Outcome = bool;

    fn suits(case: Case) -> bool {
        case.rate >= CUCKOO_RATE_MIN
    }

    fn create(case: Case) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "far below")]
        let places = (case.items as f64 / CUCKOO_FILL_MAX) as usize;
        Self(CuckooFilter::with_capacity(places))
    }

    fn memory_bytes(&self) -> u64 {
        self.0.memory_usage() as u64
    }

    #[inline]
    fn contains(&self, key: u64) -> bool {
        self.0.contains(&key)
    }

    #[inline]
    fn insert(&mut self, key: u64) -> bool {
        // What does not fit would be missed: the check for false negatives tells.
        self.0.add(&key).is_err()
    }
}

/// A hasher that takes a `u64` for a hash, and mixes the one byte of a fingerprint.
#[derive(Default)]
pub struct HashedKey(u64);

impl Hasher for HashedKey {
    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |state, &byte| mix(state ^ u64::from(byte)));
    }

    /// The length of a fingerprint, always the same.
    #[inline]
    fn write_usize(&mut self, _: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

fn in_memory(items: u64) -> usize {
    usize::try_from(items).expect("items in memory")
}
