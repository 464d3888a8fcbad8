//! What the exchange is about: entries (a hash and where it was read), and which of equal ones stays.

use crate::limits::{PLACE_CHUNK_BITS, PLACE_ITEM_BITS};
use serde::{Deserialize, Serialize};
use umbel_filter::ItemHash;

/// Number of a worker in its job, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WorkerId(pub u16);

impl WorkerId {
    /// The worker's row in tables that have one row a worker.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where an item was read: chunk (24 bits) and number in the chunk (40 bits). Its numeric order is the input order.
///
/// ```
/// use umbel_dedup_engine::Place;
/// let place = Place::new(2, 7);
/// assert_eq!((place.chunk(), place.item()), (2, 7));
/// assert!(Place::new(1, 1_000) < place);
/// assert_eq!(place.to_bits(), (2 << 40) + 7);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Place(u64);

impl Place {
    /// The place of item number `item` of chunk `chunk`.
    ///
    /// # Panics
    ///
    /// If `chunk` needs more than 24 bits or `item` more than 40: the reader numbers both and knows the limits.
    #[must_use]
    #[inline]
    pub const fn new(chunk: u32, item: u64) -> Self {
        assert!(chunk < 1 << PLACE_CHUNK_BITS && item < 1 << PLACE_ITEM_BITS, "place out of range");
        Self(((chunk as u64) << PLACE_ITEM_BITS) | item)
    }

    /// The place with these 64 bits, as [`Place::to_bits`] gave them.
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The place as one number, in input order.
    #[must_use]
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The chunk's number.
    #[must_use]
    #[inline]
    pub const fn chunk(self) -> u32 {
        (self.0 >> PLACE_ITEM_BITS) as u32
    }

    /// The item's number in its chunk.
    #[must_use]
    #[inline]
    pub const fn item(self) -> u64 {
        self.0 & ((1 << PLACE_ITEM_BITS) - 1)
    }
}

/// How an item ranks among equal ones where the best one stays: the smallest rank is the best.
///
/// The driver makes it of a record's fields, so that "the largest value" and "the smallest value" are both a smallest
/// rank here and what has no value comes last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rank(pub u64);

/// Bits of a [`Rank`] on the wire.
pub(super) const RANK_BITS: u32 = 64;

/// Which of equal items stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Keep {
    /// The first in input order.
    First,
    /// The last in input order.
    Last,
    /// The one with the smallest [`Rank`]; of equal ranks the first in input order.
    Best,
}

impl Keep {
    /// Whether the challenger stays instead of the holder, given where each was read, or where [`Keep::Best`] is
    /// possible the rank and then the place.
    ///
    /// ```
    /// use umbel_dedup_engine::{Keep, Place, Rank};
    /// assert!(Keep::First.prefers(Place::new(0, 1), Place::new(0, 2)));
    /// assert!(Keep::Last.prefers(Place::new(0, 2), Place::new(0, 1)));
    /// assert!(Keep::Best.prefers((Rank(3), Place::new(0, 2)), (Rank(5), Place::new(0, 1))));
    /// ```
    #[must_use]
    #[inline]
    pub fn prefers<Order: Ord + Copy>(self, challenger: Order, holder: Order) -> bool {
        match self {
            Keep::First | Keep::Best => challenger < holder,
            Keep::Last => challenger > holder,
        }
    }
}

/// What decides between equal items, in this order. What does not travel is zero everywhere and decides nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Standing {
    /// How the item ranks.
    pub(super) rank: Rank,
    /// Where it was read.
    pub(super) place: Place,
}

/// An item as the exchange knows it: 24 bytes, whatever the item's length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// The item's hash.
    pub hash: ItemHash,
    /// Where it was read.
    pub place: Place,
}

/// A record that shares its hash with another one: at level `bytes` its item must be read again and compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Suspect {
    /// Where it was read.
    pub place: Place,
    /// Whether another worker holds the hash too; if not, the comparison is the worker's own affair.
    pub shared: bool,
}

/// The item of a [`Suspect`], read again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// The item's hash.
    pub hash: ItemHash,
    /// Where it was read.
    pub place: Place,
    /// As in [`Suspect::shared`].
    pub shared: bool,
    /// How it ranks; counts only where the job keeps the best.
    pub rank: Rank,
    /// The item's canonical bytes.
    pub bytes: Vec<u8>,
}
