//! A filter's settings, and the key with which its items are hashed.

use std::fmt;

use serde::{Deserialize, Serialize};
use umbel_codec::FrameKey;
use umbel_filter::{ItemHasher, Kind};

use super::reply::MetaError;
use crate::limits::{FILTER_BYTES_MAX, REPLICATED_BYTES_MAX, SLICE_BYTES_MAX};
use crate::meta::Result;
use crate::shard::{KeyName, SliceShape, WindowTime};

/// How a filter is distributed over the nodes.
///
/// ```
/// use umbel_engine::meta::Distribution;
///
/// assert_eq!(Distribution::Replicated.to_string(), "replicated");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Distribution {
    /// Cut by hash range into shards.
    #[default]
    Partitioned,
    /// Complete on every node.
    Replicated,
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Partitioned => "partitioned",
            Self::Replicated => "replicated",
        })
    }
}

/// The settings of a filter.
///
/// ```
/// use umbel_engine::meta::{Distribution, FilterSettings, HashKey};
/// use umbel_engine::shard::SliceShape;
/// use umbel_filter::Kind;
///
/// let settings = FilterSettings {
///     distribution: Distribution::Partitioned,
///     kind: Kind::SingleShot.id(),
///     capacity: 1_000,
///     false_positive_rate: 0.01,
///     shape: SliceShape::SingleShot { position_count: 99_500 },
///     memory_bytes: 1_100,
///     key: HashKey::Xxh3 { seed: 0 },
/// };
/// assert_eq!(settings.key.key_name().key_id, 0);
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FilterSettings {
    /// How it is distributed over the nodes.
    pub distribution: Distribution,
    /// [`Kind::id`](umbel_filter::Kind::id).
    pub kind: u8,
    /// Planned number of items, n, at least 1.
    pub capacity: u64,
    /// Planned false-positive rate, p, between 0 and 1.
    pub false_positive_rate: f64,
    /// The shape of its slices, or of each copy.
    pub shape: SliceShape,
    /// Bytes that one replica of all its slices, or one copy, takes when it holds the planned items:
    /// at most [`FILTER_BYTES_MAX`], or [`REPLICATED_BYTES_MAX`].
    pub memory_bytes: u64,
    /// The function and key that hash its items.
    pub key: HashKey,
}

impl FilterSettings {
    /// The function and key id that the filter's frames carry.
    #[must_use]
    pub const fn frame_key(&self) -> FrameKey {
        FrameKey { function: self.key.hasher().function(), key_id: self.key.key_name().key_id }
    }

    /// Checks that a cluster can have this filter. `shard_count` is the number of equal shards that
    /// are as wide as the widest one.
    pub(super) fn check(&self, shard_count: u32) -> Result<()> {
        let bad = |what| Err(MetaError::BadSettings { what });
        let Some(kind) = Kind::from_id(self.kind) else {
            return bad(format!("no kind of filter has number {}", self.kind));
        };
        if (kind == Kind::RedisBloom) != (self.key == HashKey::RedisBloom) {
            let function = self.key.hasher().function();
            return bad(format!("a {kind} filter whose items are hashed by {function}"));
        }
        if self.capacity == 0 {
            return bad("a filter is planned for at least 1 item, not 0".to_owned());
        }
        // Also refuses NaN, which would not even equal itself.
        if !(self.false_positive_rate > 0.0 && self.false_positive_rate < 1.0) {
            let rate = self.false_positive_rate;
            return bad(format!("a false-positive rate lies between 0 and 1, unlike {rate}"));
        }
        let over = |bytes: u64, most: u64, of: &str| {
            let what = format!("{bytes} bytes for {of}, at most {most} are allowed");
            Err(MetaError::Quota { what })
        };
        if self.memory_bytes > FILTER_BYTES_MAX {
            return over(self.memory_bytes, FILTER_BYTES_MAX, "the filter");
        }
        if self.distribution == Distribution::Replicated {
            let is_ring = match self.shape {
                SliceShape::Ring { newest: 0, rules, .. } => rules.time == WindowTime::Ingest,
                _ => false,
            };
            let fits = match kind {
                Kind::Blocked | Kind::SingleShot => !is_ring,
                Kind::Window => is_ring,
                _ => false,
            };
            if !fits {
                return bad(format!(
                    "a {kind} filter cannot be replicated, expected a blocked or a single-shot one, or a \
                     ring of slices of time"
                ));
            }
            if self.memory_bytes > REPLICATED_BYTES_MAX {
                return over(self.memory_bytes, REPLICATED_BYTES_MAX, "each copy of the filter");
            }
            return Ok(());
        }
        if matches!(self.shape, SliceShape::Ring { .. }) {
            return bad("a ring of slices is the window of a replicated filter".to_owned());
        }
        let slice_bytes = self.memory_bytes.div_ceil(u64::from(shard_count.max(1)));
        if slice_bytes > SLICE_BYTES_MAX {
            return over(slice_bytes, SLICE_BYTES_MAX, &format!("each of {shard_count} shards"));
        }
        Ok(())
    }
}

/// A hash function with its seed or secret key.
///
/// ```
/// use umbel_engine::meta::HashKey;
///
/// let key = HashKey::SipHash { key_id: 7, secret: [42; 16] };
/// assert_eq!(format!("{key:?}"), "SipHash { key_id: 7, .. }");
/// assert_eq!((key.key_name().function, key.key_name().key_id), (2, 7));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HashKey {
    /// XXH3-128, for items of trusted origin.
    Xxh3 {
        /// The seed; not secret.
        seed: u64,
    },
    /// SipHash-1-3-128.
    SipHash {
        /// A random number that identifies the key.
        key_id: u64,
        /// 128 secret random bits. Never leaves the cluster, never printed.
        secret: [u8; 16],
    },
    /// The pair of hashes of RedisBloom, only for its filters; not secret.
    RedisBloom,
}

impl HashKey {
    /// The hasher for items with this key.
    ///
    /// ```
    /// use umbel_engine::meta::HashKey;
    /// use umbel_filter::ItemHasher;
    ///
    /// assert_eq!(HashKey::Xxh3 { seed: 5 }.hasher(), ItemHasher::Xxh3 { seed: 5 });
    /// ```
    #[must_use]
    pub const fn hasher(&self) -> ItemHasher {
        match *self {
            Self::Xxh3 { seed } => ItemHasher::Xxh3 { seed },
            Self::SipHash { secret, .. } => ItemHasher::SipHash { key: secret },
            Self::RedisBloom => ItemHasher::RedisBloom,
        }
    }

    /// The key's name as slices and frames carry it, without anything secret.
    ///
    /// ```
    /// use umbel_engine::meta::HashKey;
    ///
    /// let name = HashKey::Xxh3 { seed: 5 }.key_name();
    /// assert_eq!((name.function, name.key_id), (1, 5));
    /// ```
    #[must_use]
    pub const fn key_name(&self) -> KeyName {
        let key_id = match *self {
            Self::Xxh3 { seed } => seed,
            Self::SipHash { key_id, .. } => key_id,
            Self::RedisBloom => 0,
        };
        KeyName { function: self.hasher().function().id(), key_id }
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xxh3 { seed } => f.debug_struct("Xxh3").field("seed", seed).finish(),
            Self::SipHash { key_id, .. } => {
                f.debug_struct("SipHash").field("key_id", key_id).finish_non_exhaustive()
            }
            Self::RedisBloom => f.write_str("RedisBloom"),
        }
    }
}
