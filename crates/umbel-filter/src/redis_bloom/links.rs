//! The links of RedisBloom's chains: size, probes and capacity of each.
//!
//! ```text
//! link      capacity c          rate p      bits an item b      bits m                        probes k
//! 0         c₀                  p₀          |ln p / 0.4804…|    max(1, ⌊c · b⌋) up to a       ⌈0.6931… · b⌉
//! i         c₀ · expansion^i    p₀ / 2^i                        multiple of 64
//! ```
//!
//! In doubles, with the constants that RedisBloom has, cut after 15 digits: whether a product is rounded up or down
//! depends on them. The logarithm is the platform's, as in RedisBloom; two platforms may differ in the last digit,
//! which changes a size only where the product lies that close to a whole number.

use crate::kind::Kind;
use crate::range::HashRange;
use crate::redis_bloom_shape::{RedisBloomShape, TIGHTENING};
use crate::shape::{BlockShape, CreateError, FILTER_BYTES_MAX, LINE_BITS, ShapeError};
use crate::sizing::SizingError;

/// ln 2 as RedisBloom has it.
#[expect(clippy::approx_constant, reason = "RedisBloom's, cut after 15 digits")]
const LN_2: f64 = 0.693_147_180_559_945;

/// ln² 2 as RedisBloom has it.
const LN_2_SQUARED: f64 = 0.480_453_013_918_201;

/// Most probes of an item in a link: rates down to 10^-308, the least that a double has.
const PROBES_MAX: u32 = 1_024;

/// Most links of a chain, 1,024: every question meets each of them, and the rate of the last one is half of that of
/// the one before, down to the least that a double has.
pub const REDIS_BLOOM_LINKS_MAX: u32 = 1_024;

/// Shape of one link.
///
/// ```
/// use umbel_filter::RedisBloomShape;
///
/// let link = RedisBloomShape::for_rate(100, 0.001)?.link(0)?;
/// // 100 · 15.82 bits, up to the next word.
/// assert_eq!((link.byte_count(), link.probe_count()), (200, 11));
/// # Ok::<(), umbel_filter::CreateError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RedisBloomLinkShape {
    capacity: u64,
    rate: f64,
    bits_per_item: f64,
    byte_count: u64,
    probe_count: u32,
}

impl RedisBloomShape {
    /// A chain that grows: its first link is made for `first_capacity` items at `first_rate`, which is half of what
    /// `BF.RESERVE` names, and each link for `expansion` times the items of the one before.
    ///
    /// # Errors
    /// If there is no such first link.
    pub fn new(first_capacity: u64, first_rate: f64, expansion: u32) -> Result<Self, CreateError> {
        let shape = Self::unchecked(first_capacity, first_rate, expansion);
        shape.link(0)?;
        Ok(shape)
    }

    /// The chain that RedisBloom makes for so many items at this rate: it doubles, and half of the rate is the first
    /// link's.
    ///
    /// # Errors
    /// If there is no such first link.
    pub fn for_rate(capacity: u64, false_positive_rate: f64) -> Result<Self, CreateError> {
        let rate = false_positive_rate;
        // Half of a rate that is none may be one.
        if capacity > 0 && !(rate > 0.0 && rate < 1.0) {
            return Err(SizingError::Rate { rate }.into());
        }
        Self::new(capacity, rate * TIGHTENING, Self::EXPANSION)
    }

    /// The shape of a link; they count from 0 on.
    ///
    /// # Errors
    /// If there is no such link: it has no items or too many, or errs too rarely.
    pub fn link(self, link: u32) -> Result<RedisBloomLinkShape, CreateError> {
        let (first_capacity, expansion) = (self.first_capacity(), self.expansion());
        let too_many = SizingError::LevelCapacity { first_capacity, level: link };
        if link >= REDIS_BLOOM_LINKS_MAX || (self.is_fixed() && link > 0) {
            return Err(too_many.into());
        }
        let growth = u64::from(expansion).checked_pow(link);
        let capacity = growth.and_then(|growth| growth.checked_mul(first_capacity));
        let rate = (0..link).fold(self.first_rate(), |rate, _| rate * TIGHTENING);
        RedisBloomLinkShape::new(capacity.ok_or(too_many)?, rate)
    }

    /// Number of new items that a link has of a chain that has taken so many; None if the chain has no such link then.
    ///
    /// ```
    /// use umbel_filter::RedisBloomShape;
    ///
    /// let shape = RedisBloomShape::for_rate(10, 0.01)?;
    /// assert_eq!((shape.items_of_link(1, 29)?, shape.items_of_link(1, 10)?), (Some(19), None));
    /// # Ok::<(), umbel_filter::CreateError>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such link.
    pub fn items_of_link(self, link: u32, item_count: u64) -> Result<Option<u64>, CreateError> {
        let capacity = self.link(link)?.capacity;
        let mut left = item_count;
        for before in 0..link {
            match left.checked_sub(self.link(before)?.capacity) {
                Some(rest @ 1..) => left = rest,
                _ => return Ok(None),
            }
        }
        Ok(Some(left.min(capacity)))
    }

    /// Number of links of a chain that has taken so many items.
    ///
    /// ```
    /// use umbel_filter::RedisBloomShape;
    ///
    /// let shape = RedisBloomShape::for_rate(10, 0.01)?;
    /// assert_eq!([0, 10, 11, 99].map(|items| shape.link_count(items).unwrap()), [1, 1, 2, 4]);
    /// # Ok::<(), umbel_filter::CreateError>(())
    /// ```
    ///
    /// # Errors
    /// If no chain of this shape takes so many.
    pub fn link_count(self, item_count: u64) -> Result<u32, CreateError> {
        let (mut links, mut room) = (1, self.link(0)?.capacity);
        while room < item_count {
            room = room.saturating_add(self.link(links)?.capacity);
            links += 1;
        }
        Ok(links)
    }
}

impl RedisBloomLinkShape {
    fn new(capacity: u64, rate: f64) -> Result<Self, CreateError> {
        if capacity == 0 {
            return Err(SizingError::NoItems.into());
        }
        // Written so that NaN fails too.
        if !(rate > 0.0 && rate < 1.0) {
            return Err(SizingError::Rate { rate }.into());
        }
        let bits_per_item = (rate.ln() / LN_2_SQUARED).abs();
        #[expect(clippy::cast_possible_truncation, reason = "as RedisBloom computes it")]
        let (bits, probe_count) =
            ((capacity as f64 * bits_per_item) as u64, (LN_2 * bits_per_item).ceil() as u32);
        if probe_count > PROBES_MAX {
            return Err(ShapeError::ProbeCount { probe_count, probe_count_max: PROBES_MAX }.into());
        }
        let byte_count = bits.max(1).div_ceil(64).saturating_mul(8);
        if byte_count > FILTER_BYTES_MAX {
            return Err(ShapeError::TooLarge { bytes: byte_count.into() }.into());
        }
        Ok(Self { capacity, rate, bits_per_item, byte_count, probe_count })
    }

    /// Number of new items that the link takes.
    #[must_use]
    pub const fn capacity(self) -> u64 {
        self.capacity
    }

    /// Rate of the link when it is full.
    #[must_use]
    pub const fn false_positive_rate(self) -> f64 {
        self.rate
    }

    /// Bits that are planned for an item.
    #[must_use]
    pub const fn bits_per_item(self) -> f64 {
        self.bits_per_item
    }

    /// Bytes of RedisBloom's array, a multiple of 8.
    #[must_use]
    pub const fn byte_count(self) -> u64 {
        self.byte_count
    }

    /// Number of positions, m.
    #[must_use]
    pub const fn bit_count(self) -> u64 {
        self.byte_count * 8
    }

    /// Probes of an item, k.
    #[must_use]
    pub const fn probe_count(self) -> u32 {
        self.probe_count
    }

    /// Bytes that the link takes in memory: whole cache lines.
    #[must_use]
    pub const fn memory_bytes(self) -> u64 {
        self.byte_count.next_multiple_of(LINE_BITS as u64 / 8)
    }

    /// The link's lines as an array of blocks, for whoever sends it in parts: a part of the hash space stands for a
    /// part of the array, not for the items whose hashes lie there.
    ///
    /// ```
    /// use umbel_filter::RedisBloomShape;
    ///
    /// let link = RedisBloomShape::for_rate(100, 0.01)?.link(0)?;
    /// // 144 bytes in three lines.
    /// assert_eq!((link.lines().map().len(), link.lines().memory_bytes()), (3, 192));
    /// # Ok::<(), umbel_filter::CreateError>(())
    /// ```
    #[expect(clippy::missing_panics_doc, reason = "the size was checked")]
    #[must_use]
    pub fn lines(self) -> BlockShape {
        let line_count = self.memory_bytes() * 8 / u64::from(LINE_BITS);
        BlockShape::new(Kind::Classic, HashRange::WHOLE, line_count, LINE_BITS, 1)
            .expect("a link has lines, and not too many")
    }
}
