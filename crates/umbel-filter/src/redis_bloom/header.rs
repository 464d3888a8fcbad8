//! The header of RedisBloom's dumps: the first piece of `BF.SCANDUMP`.
//!
//! ```text
//! 0        8          12        16       20
//! │ items  │ links    │ options │ growth │ link │ link │ …     little-endian, without gaps
//! │ u64    │ u32      │ u32     │ u32    │ 53 bytes each
//!
//! 0        8        16       24       32       40         44        52
//! │ bytes  │ bits   │ items  │ rate   │ bits   │ probes   │ capacity │ 0   │
//! │ u64    │ u64    │ u64    │ f64    │ an item│ u32      │ u64      │ u8  │
//!
//! options  1 sizes are not rounded to powers of two, always set; 4 hashes have 64 bits, always set; 8 fixed
//! ```
//!
//! The pieces behind it are the links' arrays, one behind the other. Everything but the arrays follows from the shape
//! and the number of items, so a header that says anything else is refused: no link is made on its word.

use thiserror::Error;

use super::RedisBloom;
use super::links::{REDIS_BLOOM_LINKS_MAX, RedisBloomLinkShape};
use crate::redis_bloom_shape::RedisBloomShape;

/// Bytes before the first link.
const HEAD_BYTES: usize = 20;

/// Bytes of a link.
const LINK_BYTES: usize = 53;

/// Sizes are not rounded to powers of two, and hashes have 64 bits.
const OPTIONS: u32 = 1 | 4;

/// There is no second link.
const OPTION_FIXED: u32 = 8;

/// How far the bits an item may differ from ours, as a share: logarithms of two platforms may differ in the last digit.
const BITS_SLACK: f64 = 1e-12;

/// What a dump of RedisBloom begins with: a shape and a number of items, from which all sizes follow.
///
/// ```
/// use umbel_filter::{Insert, ItemHasher, RedisBloom, RedisBloomHeader, RedisBloomShape};
///
/// let mut seen = RedisBloom::with_shape(RedisBloomShape::for_rate(100, 0.01)?)?;
/// seen.insert(ItemHasher::RedisBloom.hash(b"foo"))?;
/// let bytes = RedisBloomHeader::of(&seen).to_bytes();
/// assert_eq!(bytes[..20], [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0]);
/// assert_eq!(RedisBloomHeader::parse(&bytes)?, RedisBloomHeader::of(&seen));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct RedisBloomHeader {
    shape: RedisBloomShape,
    item_count: u64,
    links: Vec<RedisBloomLinkShape>,
}

/// The bytes are no header of a chain that is read here. Nothing was made of them; whoever sent them may have an older
/// filter, whose items have to be added anew.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("no header of a RedisBloom filter: {what}")]
pub struct RedisBloomHeaderError {
    what: String,
}

impl RedisBloomHeader {
    /// The header of a filter.
    #[must_use]
    pub fn of(filter: &RedisBloom) -> Self {
        let links = filter.links.iter().map(|link| link.shape).collect();
        Self { shape: filter.shape, item_count: filter.item_count(), links }
    }

    /// The header of a filter of this shape that has taken so many items.
    ///
    /// # Errors
    /// If no filter of the shape takes so many.
    pub fn new(shape: RedisBloomShape, item_count: u64) -> Result<Self, RedisBloomHeaderError> {
        let links = shape.link_count(item_count).and_then(|count| {
            (0..count).map(|link| shape.link(link)).collect::<Result<Vec<_>, _>>()
        });
        let links = links.map_err(|error| wrong(error.to_string()))?;
        Ok(Self { shape, item_count, links })
    }

    /// Reads a header and checks all that it says.
    ///
    /// # Errors
    /// If it has another length, is of an older filter, whose hashes have 32 bits or whose sizes are powers of two, or
    /// says anything that does not follow from its first link and its number of items.
    pub fn parse(bytes: &[u8]) -> Result<Self, RedisBloomHeaderError> {
        let mut fields = Fields { rest: bytes };
        let item_count = u64::from_le_bytes(fields.take()?);
        let [link_count, options, expansion] = [fields.u32()?, fields.u32()?, fields.u32()?];
        check_link_count(u64::from(link_count))?;
        let expected = HEAD_BYTES + link_count as usize * LINK_BYTES;
        if bytes.len() != expected {
            return Err(wrong(format!("{} bytes, expected {expected}", bytes.len())));
        }
        let stored: Vec<RedisBloomStoredLink> =
            (0..link_count).map(|_| fields.link()).collect::<Result<_, _>>()?;
        let Some(first) = stored.first() else { return Err(wrong("no links".to_owned())) };
        let header = Self::from_parts(RedisBloomParts {
            item_count,
            link_count: link_count.into(),
            options: options.into(),
            expansion: expansion.into(),
            first_capacity: first.capacity,
            first_rate: first.rate,
        })?;
        for (link, stored) in stored.iter().enumerate() {
            header.check_link(link, stored)?;
        }
        Ok(header)
    }

    /// The header of a filter of which somebody else wrote these numbers.
    ///
    /// # Errors
    /// As [`parse`](Self::parse); what the links say is left to [`check_link`](Self::check_link).
    pub fn from_parts(parts: RedisBloomParts) -> Result<Self, RedisBloomHeaderError> {
        let RedisBloomParts { item_count, link_count, options, expansion, .. } = parts;
        check_link_count(link_count)?;
        let option_fixed = u64::from(OPTION_FIXED);
        if options & !option_fixed != u64::from(OPTIONS) {
            let what =
                format!("options {options}, expected {OPTIONS} or {}", OPTIONS | OPTION_FIXED);
            return Err(wrong(what));
        }
        let expansion = u32::try_from(expansion)
            .map_err(|_| wrong(format!("growth {expansion}, which is no number of 32 bits")))?;
        let shape = RedisBloomShape::new(parts.first_capacity, parts.first_rate, expansion);
        let mut shape = shape.map_err(|error| wrong(error.to_string()))?;
        if options & option_fixed != 0 {
            shape = shape.fixed();
        }
        let header = Self::new(shape, item_count)?;
        if header.links.len() as u64 != link_count {
            let expected = header.links.len();
            return Err(wrong(format!(
                "{link_count} links of {item_count} items, expected {expected}"
            )));
        }
        Ok(header)
    }

    /// Checks what somebody else wrote of a link.
    ///
    /// # Errors
    /// If it says anything that does not follow from the header.
    pub fn check_link(
        &self,
        link: usize,
        stored: &RedisBloomStoredLink,
    ) -> Result<(), RedisBloomHeaderError> {
        match self.stored_link(link) {
            Some(expected) if stored.is(&expected) => Ok(()),
            expected => Err(wrong(format!("link {link} is {stored:?}, expected {expected:?}"))),
        }
    }

    /// A link as RedisBloom writes it; None behind the last one.
    ///
    /// ```
    /// use umbel_filter::{RedisBloomHeader, RedisBloomShape};
    ///
    /// let header = RedisBloomHeader::new(RedisBloomShape::for_rate(10, 0.01)?, 99)?;
    /// let link = header.stored_link(3).expect("there are four");
    /// assert_eq!((link.byte_count, link.capacity, link.item_count), (160, 80, 29));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stored_link(&self, at: usize) -> Option<RedisBloomStoredLink> {
        let link = self.links.get(at)?;
        Some(RedisBloomStoredLink {
            byte_count: link.byte_count(),
            bit_count: link.bit_count(),
            item_count: self.item_count_of(at),
            rate: link.false_positive_rate(),
            bits_per_item: link.bits_per_item(),
            probe_count: link.probe_count(),
            capacity: link.capacity(),
            power: 0,
        })
    }

    /// The options as RedisBloom writes them.
    #[must_use]
    pub const fn options(&self) -> u32 {
        OPTIONS | if self.shape.is_fixed() { OPTION_FIXED } else { 0 }
    }

    /// The header as RedisBloom writes it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let link_count = u32::try_from(self.links.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.links.len() * LINK_BYTES);
        bytes.extend(self.item_count.to_le_bytes());
        for number in [link_count, self.options(), self.shape.expansion()] {
            bytes.extend(number.to_le_bytes());
        }
        for link in (0..self.links.len()).filter_map(|at| self.stored_link(at)) {
            link.write(&mut bytes);
        }
        bytes
    }

    /// What decides all links.
    #[must_use]
    pub const fn shape(&self) -> RedisBloomShape {
        self.shape
    }

    /// Number of items that were called new.
    #[must_use]
    pub const fn item_count(&self) -> u64 {
        self.item_count
    }

    /// The links' shapes, first to last.
    #[must_use]
    pub fn links(&self) -> &[RedisBloomLinkShape] {
        &self.links
    }

    /// Number of new items that a link took: its capacity, but of the last one the rest.
    ///
    /// ```
    /// use umbel_filter::{RedisBloomHeader, RedisBloomShape};
    ///
    /// let header = RedisBloomHeader::new(RedisBloomShape::for_rate(10, 0.01)?, 99)?;
    /// assert_eq!([0, 1, 2, 3].map(|link| header.item_count_of(link)), [10, 20, 40, 29]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn item_count_of(&self, link: usize) -> u64 {
        let before = self.links.iter().take(link).map(|link| link.capacity()).sum();
        let left = self.item_count.saturating_sub(before);
        self.links.get(link).map_or(0, |link| left.min(link.capacity()))
    }

    /// Bytes of all arrays together: what the pieces behind the header have.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.links.iter().map(|link| link.byte_count()).sum()
    }

    /// Bytes that the links take in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.links.iter().map(|link| link.memory_bytes()).sum()
    }
}

/// A chain is made of at least one link.
fn check_link_count(link_count: u64) -> Result<(), RedisBloomHeaderError> {
    if (1..=u64::from(REDIS_BLOOM_LINKS_MAX)).contains(&link_count) {
        return Ok(());
    }
    Err(wrong(format!("{link_count} links, expected 1 to {REDIS_BLOOM_LINKS_MAX}")))
}

/// Numbers from which a header follows, as somebody else wrote them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RedisBloomParts {
    /// Items that were called new.
    pub item_count: u64,
    /// Number of links.
    pub link_count: u64,
    /// Bits that say how sizes, hashes and growth are.
    pub options: u64,
    /// How many times larger each link is than the one before.
    pub expansion: u64,
    /// Items that the first link is made for.
    pub first_capacity: u64,
    /// The rate of false positives of the first link.
    pub first_rate: f64,
}

/// A link as it stands in a header.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RedisBloomStoredLink {
    /// Bytes of its array.
    pub byte_count: u64,
    /// Bits of its array.
    pub bit_count: u64,
    /// Items that it took.
    pub item_count: u64,
    /// Its rate of false positives.
    pub rate: f64,
    /// Bits an item, before they were rounded up.
    pub bits_per_item: f64,
    /// Bits that are set for an item.
    pub probe_count: u32,
    /// Items that it is made for.
    pub capacity: u64,
    /// Of older filters, whose sizes are powers of two, which; otherwise 0.
    pub power: u8,
}

impl RedisBloomStoredLink {
    /// Whether it says what it must; numbers that are none equal nothing.
    fn is(&self, expected: &Self) -> bool {
        let slack = expected.bits_per_item * BITS_SLACK;
        (self.byte_count, self.bit_count, self.item_count)
            == (expected.byte_count, expected.bit_count, expected.item_count)
            && (self.probe_count, self.capacity, self.power)
                == (expected.probe_count, expected.capacity, expected.power)
            && self.rate.to_bits() == expected.rate.to_bits()
            && (self.bits_per_item - expected.bits_per_item).abs() <= slack
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        for number in [self.byte_count, self.bit_count, self.item_count] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [self.rate, self.bits_per_item] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.probe_count.to_le_bytes());
        bytes.extend(self.capacity.to_le_bytes());
        bytes.push(self.power);
    }
}

/// Takes fields of fixed size from the front of the bytes.
struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RedisBloomHeaderError> {
        let (field, rest) =
            self.rest.split_first_chunk().ok_or_else(|| wrong("it ends early".to_owned()))?;
        self.rest = rest;
        Ok(*field)
    }

    fn u32(&mut self) -> Result<u32, RedisBloomHeaderError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, RedisBloomHeaderError> {
        self.take().map(u64::from_le_bytes)
    }

    fn link(&mut self) -> Result<RedisBloomStoredLink, RedisBloomHeaderError> {
        Ok(RedisBloomStoredLink {
            byte_count: self.u64()?,
            bit_count: self.u64()?,
            item_count: self.u64()?,
            rate: self.take().map(f64::from_le_bytes)?,
            bits_per_item: self.take().map(f64::from_le_bytes)?,
            probe_count: self.u32()?,
            capacity: self.u64()?,
            power: u8::from_le_bytes(self.take()?),
        })
    }
}

const fn wrong(what: String) -> RedisBloomHeaderError {
    RedisBloomHeaderError { what }
}
