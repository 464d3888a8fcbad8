//! Item hashes: how an item's bytes become a number.
//!
//! An item hashes to 128 bits in two halves. `hi` places it in the hash space [0, 2^64), `lo`
//! supplies everything else (refinement bits, probes, fingerprints). Three functions are known:
//!
//! * XXH3-128 with a 64-bit seed, for batch jobs on trusted input. `hi` and `lo` are the high and
//!   the low half of its 128-bit value. Specification: `doc/xxhash_spec.md` of Cyan4973/xxHash.
//! * SipHash-1-3 with 128-bit output under a secret 128-bit key, for filters that strangers write
//!   to (Aumasson & Bernstein 2012, doi:10.1007/978-3-642-34931-7_28). `hi` is the first eight
//!   output bytes and `lo` the last eight, both read as little-endian.
//! * RedisBloom's pair of MurmurHash64A, for its filters alone: `hi` is the hash under a fixed seed, `lo` the one
//!   under `hi`. Neither seed is a secret, and whoever knows the function can choose items that collide.
//!
//! All give the same value on every platform and in every release, for ever; golden values in the
//! tests hold them to it.

use std::fmt;

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use xxhash_rust::xxh3::{Xxh3, xxh3_128_with_seed};

#[cfg(test)]
mod hash_test;
mod murmur;

/// The 128-bit hash of an item, ordered by `hi`, then `lo`.
///
/// Equal items have equal hashes under one [`ItemHasher`]; N different items share a hash with
/// probability about N²/2^129.
///
/// ```
/// use umbel_filter::ItemHash;
///
/// let hash = ItemHash::new(3, 9);
/// assert_eq!((hash.hi(), hash.lo()), (3, 9));
/// assert!(hash < ItemHash::new(4, 0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ItemHash {
    // The derived order compares fields from top to bottom, so `hi` must stay first.
    hi: u64,
    lo: u64,
}

impl ItemHash {
    /// Joins two halves, any values.
    #[inline]
    #[must_use]
    pub const fn new(hi: u64, lo: u64) -> Self {
        Self { hi, lo }
    }

    /// The item's place in the hash space [0, 2^64).
    #[inline]
    #[must_use]
    pub const fn hi(self) -> u64 {
        self.hi
    }

    /// The other 64 bits, independent of the place.
    #[inline]
    #[must_use]
    pub const fn lo(self) -> u64 {
        self.lo
    }
}

/// A hash function together with its seed or key: what turns items into [`ItemHash`]es.
///
/// Hashes compare only under one and the same hasher. Its `Debug` never prints a key.
///
/// ```
/// use umbel_filter::{HashFunction, ItemHash, ItemHasher};
///
/// let hasher = ItemHasher::Xxh3 { seed: 0 };
/// // The reference value for the empty input without a seed.
/// let empty = ItemHash::new(0x99aa_06d3_0147_98d8, 0x6001_c324_468d_497f);
/// assert_eq!(hasher.hash(b""), empty);
/// assert_eq!(hasher.function(), HashFunction::Xxh3Seeded);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ItemHasher {
    /// XXH3-128: fast, but whoever chooses the items can make them collide, seed or not.
    Xxh3 {
        /// Any 64 bits; not a secret.
        seed: u64,
    },
    /// SipHash-1-3-128: without the key nobody can choose items that collide.
    SipHash {
        /// 128 secret random bits.
        key: [u8; 16],
    },
    /// A pair of MurmurHash64A, as RedisBloom has it: whoever chooses the items can make them collide.
    RedisBloom,
}

impl ItemHasher {
    /// Hashes one item, of any length.
    #[inline]
    #[must_use]
    pub fn hash(&self, item: &[u8]) -> ItemHash {
        match self {
            Self::Xxh3 { seed } => split(xxh3_128_with_seed(item, *seed)),
            Self::SipHash { key } => {
                let hash = SipHasher13::new_with_key(key).hash(item);
                ItemHash::new(hash.h1, hash.h2)
            }
            Self::RedisBloom => {
                let (first, second) = murmur::pair(item);
                ItemHash::new(first, second)
            }
        }
    }

    /// Hashes one item that comes in pieces; RedisBloom's pair, which begins with the length, keeps them.
    #[must_use]
    pub fn running(&self) -> RunningHash {
        RunningHash(match self {
            Self::Xxh3 { seed } => Running::Xxh3(Box::new(Xxh3::with_seed(*seed))),
            Self::SipHash { key } => Running::SipHash(SipHasher13::new_with_key(key)),
            Self::RedisBloom => Running::RedisBloom(Vec::new()),
        })
    }

    /// The function's name, without seed or key.
    #[must_use]
    pub const fn function(&self) -> HashFunction {
        match self {
            Self::Xxh3 { .. } => HashFunction::Xxh3Seeded,
            Self::SipHash { .. } => HashFunction::SipHash13Keyed,
            Self::RedisBloom => HashFunction::RedisBloomPair,
        }
    }
}

/// The hash of an item that comes in pieces, made by [`ItemHasher::running`]: what
/// [`ItemHasher::hash`] makes of all of them at once.
///
/// ```
/// use umbel_filter::ItemHasher;
///
/// let hasher = ItemHasher::Xxh3 { seed: 7 };
/// let mut running = hasher.running();
/// running.update(b"al");
/// running.update(b"ice");
/// assert_eq!(running.finish(), hasher.hash(b"alice"));
/// ```
pub struct RunningHash(Running);

enum Running {
    Xxh3(Box<Xxh3>),
    SipHash(SipHasher13),
    RedisBloom(Vec<u8>),
}

impl RunningHash {
    /// Adds the next piece, of any length.
    pub fn update(&mut self, piece: &[u8]) {
        match &mut self.0 {
            Running::Xxh3(state) => state.update(piece),
            Running::SipHash(state) => state.write(piece),
            Running::RedisBloom(item) => item.extend_from_slice(piece),
        }
    }

    /// The hash of all pieces so far.
    #[must_use]
    pub fn finish(&self) -> ItemHash {
        match &self.0 {
            Running::Xxh3(state) => split(state.digest128()),
            Running::SipHash(state) => {
                let hash = state.finish128();
                ItemHash::new(hash.h1, hash.h2)
            }
            Running::RedisBloom(item) => ItemHasher::RedisBloom.hash(item),
        }
    }
}

impl fmt::Debug for RunningHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningHash").finish_non_exhaustive()
    }
}

/// High half to `hi`, low half to `lo`.
#[inline]
fn split(value: u128) -> ItemHash {
    #[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
    let lo = value as u64;
    ItemHash::new((value >> 64) as u64, lo)
}

impl fmt::Debug for ItemHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xxh3 { seed } => f.debug_struct("Xxh3").field("seed", seed).finish(),
            Self::SipHash { .. } => f.debug_struct("SipHash").finish_non_exhaustive(),
            Self::RedisBloom => f.write_str("RedisBloom"),
        }
    }
}

/// Name of a hash function, as stored in shapes and frames.
///
/// ```
/// use umbel_filter::HashFunction;
///
/// assert_eq!(HashFunction::SipHash13Keyed.id(), 2);
/// assert_eq!(HashFunction::from_id(2), Some(HashFunction::SipHash13Keyed));
/// assert_eq!(HashFunction::from_id(4), None);
/// assert_eq!(HashFunction::Xxh3Seeded.to_string(), "xxh3-128");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum HashFunction {
    /// XXH3-128 with a 64-bit seed.
    Xxh3Seeded = 1,
    /// SipHash-1-3 with 128-bit output and a secret 128-bit key.
    SipHash13Keyed = 2,
    /// RedisBloom's pair of MurmurHash64A, without seed or key.
    RedisBloomPair = 3,
}

impl HashFunction {
    /// The function with this stored number, or None if no release knows it.
    #[must_use]
    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            1 => Some(Self::Xxh3Seeded),
            2 => Some(Self::SipHash13Keyed),
            3 => Some(Self::RedisBloomPair),
            _ => None,
        }
    }

    /// The number stored for it, never reused.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for HashFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xxh3Seeded => "xxh3-128",
            Self::SipHash13Keyed => "siphash-1-3-128",
            Self::RedisBloomPair => "murmur-64a-pair",
        })
    }
}
