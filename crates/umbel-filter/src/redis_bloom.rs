//! RedisBloom's scalable filter, bit by bit: dumps of its servers can be loaded here, and dumps made here
//! can be loaded there.
//!
//! A chain of Bloom filters, each of which takes as many new items as it has capacity; the next item opens the next
//! link, which is larger and errs half as often, so that all together err less often than the rate that was asked
//! for. An item is hashed by RedisBloom's pair ([`ItemHasher::RedisBloom`](crate::ItemHasher)), without a secret, and
//! has position `(hi + j · lo) mod m` for its j-th probe of a link of m bits. Facts of the layout are those of
//! RedisBloom's sources (`src/sb.c`, `deps/bloom/bloom.c`).
//!
//! ```text
//! link 0  ████      full: it took as many new items as it has capacity
//! link 1  ████████  full
//! link 2  █████▁▁▁▁▁▁▁▁▁▁▁   takes the new items
//! ```
//!
//! *Invariant.* Every link but the last has taken exactly its capacity of new items, the last one at most as many. So
//! the number of items says how many links there are, and a dump's header follows from it and the shape.
//!
//! *No part of a hash range.* Positions are taken modulo the number of bits, so a range of hashes is no slice of
//! the array: a filter holds all items, wherever their hashes lie.

use crate::bits::BitArray;
use crate::capability::{Describe, Description, InsertError, Insertion, ItemByItem, item_by_item};
use crate::hash::ItemHash;
use crate::range::HashRange;
use crate::redis_bloom_shape::RedisBloomShape;
use crate::scalable::LevelsError;
use crate::shape::{CreateError, Shape};
use crate::sizing::Estimate;
use crate::words::count_ones;

mod header;
mod links;
#[cfg(test)]
mod redis_bloom_test;

pub use header::{RedisBloomHeader, RedisBloomHeaderError, RedisBloomParts, RedisBloomStoredLink};
pub use links::{REDIS_BLOOM_LINKS_MAX, RedisBloomLinkShape};

/// A filter as RedisBloom has it.
///
/// A new item that finds the newest link full opens the next one first. If that fails, or the chain is fixed, nothing
/// was changed, and the filter goes on answering.
///
/// ```
/// use umbel_filter::{Contains, Insert, Insertion, ItemHasher, RedisBloom, RedisBloomShape};
///
/// let hasher = ItemHasher::RedisBloom;
/// let mut seen = RedisBloom::with_shape(RedisBloomShape::for_rate(10, 0.01)?)?;
/// for number in 0..100 {
///     seen.insert(hasher.hash(number.to_string().as_bytes()))?;
/// }
/// assert!(seen.contains(hasher.hash(b"7")));
/// // As RedisBloom: one of them was taken for present.
/// let sizes: Vec<u64> = seen.links().iter().map(|link| link.item_count()).collect();
/// assert_eq!((seen.item_count(), sizes), (99, vec![10, 20, 40, 29]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct RedisBloom {
    shape: RedisBloomShape,
    /// All but the last are full.
    links: Vec<RedisBloomLink>,
}

/// One filter of the chain.
#[derive(Clone, PartialEq, Debug)]
pub struct RedisBloomLink {
    shape: RedisBloomLinkShape,
    bits: BitArray,
    item_count: u64,
}

impl RedisBloomLink {
    fn new(shape: RedisBloomLinkShape) -> Result<Self, CreateError> {
        let bits = BitArray::new(shape.memory_bytes() / 64)?;
        Ok(Self { shape, bits, item_count: 0 })
    }

    /// Size, probes and capacity.
    #[must_use]
    pub const fn shape(&self) -> RedisBloomLinkShape {
        self.shape
    }

    /// Number of new items that it took, at most its capacity.
    #[must_use]
    pub const fn item_count(&self) -> u64 {
        self.item_count
    }

    /// The positions, in whole cache lines; those behind the last are zeros.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.bits.words()
    }

    /// Clears what lies behind the last position.
    fn trim(&mut self) {
        let word_count = usize::try_from(self.shape.byte_count() / 8).unwrap_or(usize::MAX);
        if let Some(behind) = self.bits.words_mut().get_mut(word_count..) {
            behind.fill(0);
        }
    }

    /// The positions that an item sets in the link: bit i is bit i mod 64 of word i / 64 of
    /// [`words`](Self::words). One may come twice.
    ///
    /// ```
    /// use umbel_filter::{Insert, ItemHash, RedisBloom, RedisBloomShape};
    ///
    /// let mut filter = RedisBloom::with_shape(RedisBloomShape::for_rate(10, 0.01)?)?;
    /// filter.insert(ItemHash::new(1, 2))?;
    /// let link = &filter.links()[0];
    /// let is_set = |at: u64| link.words()[at as usize / 64] >> (at % 64) & 1 == 1;
    /// assert!(link.positions(ItemHash::new(1, 2)).all(is_set));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn positions(&self, hash: ItemHash) -> impl Iterator<Item = u64> + use<> {
        let (mut at, bit_count) = (hash.hi(), self.shape.bit_count());
        (0..self.shape.probe_count()).map(move |_| {
            let position = at % bit_count;
            at = at.wrapping_add(hash.lo());
            position
        })
    }

    #[inline]
    fn contains(&self, hash: ItemHash) -> bool {
        self.positions(hash).all(|position| self.bits.bit(position))
    }
}

impl RedisBloom {
    /// An empty filter of this shape.
    ///
    /// # Errors
    /// If there is no memory for its first link.
    pub fn with_shape(shape: RedisBloomShape) -> Result<Self, CreateError> {
        Ok(Self { shape, links: vec![RedisBloomLink::new(shape.link(0)?)?] })
    }

    /// A placeholder for the filter where it is not stored: it has no links and no items, and takes none.
    ///
    /// ```
    /// use umbel_filter::{Describe, RedisBloom, RedisBloomShape};
    ///
    /// let absent = RedisBloom::elsewhere(RedisBloomShape::for_rate(1_000, 0.01)?);
    /// assert_eq!((absent.item_count(), absent.describe().memory_bytes), (0, 0));
    /// # Ok::<(), umbel_filter::CreateError>(())
    /// ```
    #[must_use]
    pub const fn elsewhere(shape: RedisBloomShape) -> Self {
        Self { shape, links: Vec::new() }
    }

    /// The links, first to last: all but the last are full.
    #[must_use]
    pub fn links(&self) -> &[RedisBloomLink] {
        &self.links
    }

    /// What decides all links.
    #[must_use]
    pub const fn redis_bloom_shape(&self) -> RedisBloomShape {
        self.shape
    }

    /// Number of items that were called new.
    #[must_use]
    pub fn item_count(&self) -> u64 {
        self.links.iter().map(|link| link.item_count).sum()
    }

    /// Bytes that the links take in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.links.iter().map(|link| link.shape.memory_bytes()).sum()
    }

    /// The words of a link, for repairs of corrupted memory; None if there is no such link.
    pub fn link_words_mut(&mut self, link: usize) -> Option<&mut [u64]> {
        Some(self.links.get_mut(link)?.bits.words_mut())
    }

    /// Sets how many new items a link took, for repairs. False, and nothing was changed, if there is no such link or
    /// its capacity is smaller.
    pub fn set_link_item_count(&mut self, link: usize, item_count: u64) -> bool {
        match self.links.get_mut(link) {
            Some(link) if item_count <= link.shape.capacity() => {
                link.item_count = item_count;
                true
            }
            _ => false,
        }
    }

    /// Takes all items out. The first link stays, empty; the memory of the others is freed.
    pub fn clear(&mut self) {
        self.links.truncate(1);
        for link in &mut self.links {
            link.bits.words_mut().fill(0);
            link.item_count = 0;
        }
    }

    /// The links of a copy, in which the link of this number took so many new items: as
    /// [`Scalable::level_to_load`](crate::Scalable::level_to_load), `load` is given the words of the link, of which it
    /// may set some.
    ///
    /// ```
    /// use umbel_filter::{Insert, ItemHash, RedisBloom, RedisBloomShape};
    ///
    /// let shape = RedisBloomShape::for_rate(2, 0.01)?;
    /// let mut theirs = RedisBloom::with_shape(shape)?;
    /// (1..=3).try_for_each(|number| theirs.insert(ItemHash::new(number, number)).map(drop))?;
    /// let mut ours = RedisBloom::with_shape(shape)?;
    /// for (number, link) in (0..).zip(theirs.links()) {
    ///     ours.load_link(number, link.item_count(), |words| words.copy_from_slice(link.words()))?;
    /// }
    /// assert_eq!(ours, theirs);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a link before is not full, the link has another number of items already or no room for so many, or there is
    /// no such link. Nothing was changed.
    pub fn load_link<T>(
        &mut self,
        link: u32,
        item_count: u64,
        load: impl FnOnce(&mut [u64]) -> T,
    ) -> Result<T, LevelsError> {
        let level = link;
        let at = usize::try_from(link).unwrap_or(usize::MAX);
        let wrong = |least, capacity| LevelsError::ItemCount { level, item_count, least, capacity };
        let is_last = at + 1 >= self.links.len();
        if let Some(ours) = self.links.get(at) {
            // A link without items is one of which nothing is known yet.
            let least = ours.item_count;
            let most = if least == 0 && is_last { ours.shape.capacity() } else { least };
            if !(least..=most).contains(&item_count) {
                return Err(wrong(least, most));
            }
        } else {
            let before = self.links.last().ok_or(LevelsError::None)?;
            let capacity = before.shape.capacity();
            if at > self.links.len() || before.item_count < capacity {
                let level = u32::try_from(self.links.len() - 1).unwrap_or(u32::MAX);
                let item_count = before.item_count;
                return Err(LevelsError::ItemCount {
                    level,
                    item_count,
                    least: capacity,
                    capacity,
                });
            }
            let create = |source| LevelsError::Create { level, source };
            let shape = self.shape.link(link).map_err(create)?;
            // A link opens with its first item.
            if !(1..=shape.capacity()).contains(&item_count) {
                return Err(wrong(1, shape.capacity()));
            }
            self.links.push(RedisBloomLink::new(shape).map_err(create)?);
        }
        let Some(ours) = self.links.get_mut(at) else { return Err(LevelsError::None) };
        ours.item_count = item_count;
        let loaded = load(ours.bits.words_mut());
        ours.trim();
        Ok(loaded)
    }

    /// Size and load of a filter whose links have so many ones each.
    pub(crate) fn describe_counted(&self, one_counts: impl Iterator<Item = u64>) -> Description {
        let mut sum = Description {
            shape: self.shape.into(),
            memory_bytes: self.memory_bytes(),
            position_count: 0,
            one_count: 0,
            item_count: None,
            false_positive_rate: 0.0,
        };
        for (link, one_count) in self.links.iter().zip(one_counts) {
            let bit_count = link.shape.bit_count();
            sum.position_count += bit_count;
            sum.one_count += one_count;
            let share = one_count as f64 / bit_count as f64;
            let rate = share.powf(link.shape.probe_count().into());
            // 1 − (1 − p)(1 − q), written so that small rates keep their digits.
            sum.false_positive_rate += rate * (1.0 - sum.false_positive_rate);
        }
        let item_count = self.item_count() as f64;
        sum.item_count = Some(Estimate { item_count, standard_error: 0.0 });
        sum
    }
}

impl ItemByItem for RedisBloom {
    fn range(&self) -> HashRange {
        HashRange::WHOLE
    }

    fn has(&self, hash: ItemHash) -> bool {
        self.links.iter().rev().any(|link| link.contains(hash))
    }

    fn put(&mut self, hash: ItemHash) -> Result<Insertion, InsertError> {
        if self.has(hash) {
            return Ok(Insertion::Present);
        }
        let is_full = |link: &RedisBloomLink| link.item_count >= link.shape.capacity();
        if self.links.last().is_none_or(is_full) {
            if self.shape.is_fixed() || self.links.is_empty() {
                return Err(InsertError::Full { item_count: self.item_count() });
            }
            let number = u32::try_from(self.links.len()).unwrap_or(u32::MAX);
            let next = self.shape.link(number).and_then(RedisBloomLink::new);
            self.links.push(next.map_err(InsertError::Grow)?);
        }
        if let Some(newest) = self.links.last_mut() {
            for position in newest.positions(hash) {
                newest.bits.set(position);
            }
            newest.item_count += 1;
        }
        Ok(Insertion::New)
    }
}

item_by_item!(RedisBloom);

/// Items are counted, not estimated: `item_count` is the number of items that were called new, with standard error 0.
impl Describe for RedisBloom {
    fn shape(&self) -> Shape {
        self.shape.into()
    }

    fn describe(&self) -> Description {
        self.describe_counted(self.links.iter().map(|link| count_ones(link.words())))
    }
}
