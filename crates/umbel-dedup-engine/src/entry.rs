//! What is exchanged: entries (a hash and a record id), and the rule that determines which of several equal
//! ones is kept.

use crate::limits::{RECORD_ID_CHUNK_BITS, RECORD_ID_ITEM_BITS};
use serde::{Deserialize, Serialize};
use umbel_filter::ItemHash;

/// Number of a worker in its job, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct WorkerId(pub u16);

impl WorkerId {
    /// The worker's index in tables with one row per worker.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Identifies a record within a job, or one part of it where records are compared in parts: the number of its chunk
/// (24 bits) and its number in the chunk (40 bits). The numeric order of ids is the input order.
///
/// ```
/// use umbel_dedup_engine::RecordId;
/// let record_id = RecordId::new(2, 7);
/// assert_eq!((record_id.chunk(), record_id.item()), (2, 7));
/// assert!(RecordId::new(1, 1_000) < record_id);
/// assert_eq!(record_id.to_bits(), (2 << 40) + 7);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RecordId(u64);

impl RecordId {
    /// The id of item number `item` of chunk `chunk`.
    ///
    /// # Panics
    ///
    /// If `chunk` needs more than 24 bits or `item` more than 40. The reader assigns both and checks these limits.
    #[must_use]
    #[inline]
    pub const fn new(chunk: u32, item: u64) -> Self {
        assert!(
            chunk < 1 << RECORD_ID_CHUNK_BITS && item < 1 << RECORD_ID_ITEM_BITS,
            "place out of range"
        );
        Self(((chunk as u64) << RECORD_ID_ITEM_BITS) | item)
    }

    /// The id with the 64 bits that [`RecordId::to_bits`] returned.
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The id as one number; its order is the input order.
    #[must_use]
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The chunk's number.
    #[must_use]
    #[inline]
    pub const fn chunk(self) -> u32 {
        (self.0 >> RECORD_ID_ITEM_BITS) as u32
    }

    /// The item's number in its chunk.
    #[must_use]
    #[inline]
    pub const fn item(self) -> u64 {
        self.0 & ((1 << RECORD_ID_ITEM_BITS) - 1)
    }
}

/// The sort key of a record among equal ones under [`Keep::Best`]: the smallest rank is kept.
///
/// The driver derives it from a field of the record: it maps both "largest value" and "smallest value" to the smallest
/// rank, and a missing value to the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rank(pub u64);

/// Bits of a [`Rank`] on the wire.
pub(super) const RANK_BITS: u32 = 64;

/// Which of several equal items is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Keep {
    /// The first in input order.
    First,
    /// The last in input order.
    Last,
    /// The one with the smallest [`Rank`]; among equal ranks, the first in input order.
    Best,
}

impl Keep {
    /// Whether `challenger` is kept instead of `holder`. Both are record ids, or, where [`Keep::Best`] is possible,
    /// pairs of rank and record id.
    ///
    /// ```
    /// use umbel_dedup_engine::{Keep, RecordId, Rank};
    /// assert!(Keep::First.prefers(RecordId::new(0, 1), RecordId::new(0, 2)));
    /// assert!(Keep::Last.prefers(RecordId::new(0, 2), RecordId::new(0, 1)));
    /// assert!(Keep::Best.prefers((Rank(3), RecordId::new(0, 2)), (Rank(5), RecordId::new(0, 1))));
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

/// What decides which of several equal items is kept: the rank, then the record id. A field that is not sent is zero
/// in all of them and so decides nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Priority {
    pub(super) rank: Rank,
    pub(super) record_id: RecordId,
}

/// An item in the exchange: 24 bytes, whatever its length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// The item's hash.
    pub hash: ItemHash,
    /// The record that it was read from.
    pub record_id: RecordId,
}

/// At exactness `bytes`: a record whose hash equals that of another one. Its item must be read again and compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Suspect {
    /// The record.
    pub record_id: RecordId,
    /// Whether another worker has the hash too. If not, the worker compares alone and sends nothing.
    pub shared: bool,
}

/// The item of a [`Suspect`], read again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuspectItem {
    /// The item's hash.
    pub hash: ItemHash,
    /// The record that it was read from.
    pub record_id: RecordId,
    /// As in [`Suspect::shared`].
    pub shared: bool,
    /// Its rank; used under [`Keep::Best`] alone.
    pub rank: Rank,
    /// The item's canonical bytes.
    pub bytes: Vec<u8>,
}
