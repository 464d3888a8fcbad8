//! What the first reading has shown of a chunk.

use super::bad::BadRecord;
use super::drops::SharedBits;
use super::record_starts::RecordStarts;
use umbel_records::ContentDigest;

/// What reading a chunk has shown.
#[derive(Default)]
pub(crate) struct ChunkFacts {
    /// Records in it, bad ones included.
    pub(crate) records: u64,
    /// Numbered places of items, and of what stands there instead of one.
    pub(crate) places: u64,
    /// Items that entered the job.
    pub(crate) items: u64,
    /// Items that were not compared, and stay.
    pub(crate) exempt: u64,
    /// Records that were not compared, and go.
    pub(crate) left_out: u64,
    /// Bytes of items.
    pub(crate) item_bytes: u64,
    /// What the second reading must see again.
    pub(crate) digest: Option<ContentDigest>,
    /// Places that do not stay: bad records, and repeats that were dropped at once.
    pub(crate) dropped: SharedBits,
    /// Which records the places belong to; `None` where each has one.
    pub(crate) starts: Option<RecordStarts>,
    /// Repeats that were dropped at once.
    pub(crate) early_drops: u64,
    /// Bad records.
    pub(crate) bad: Vec<BadRecord>,
}

impl ChunkFacts {
    /// Whether the chunk is one record, and stays.
    pub(crate) fn is_kept_whole(&self) -> bool {
        self.places == 1 && !self.dropped.get(0)
    }

    /// The record that a place belongs to, counted from 0 in the chunk, and which part of it the place is, counted
    /// from 1, where records have several.
    pub(crate) fn record_of(&self, place: u64) -> (u64, Option<u64>) {
        match &self.starts {
            None => (place, None),
            Some(starts) => {
                let (record, part) = starts.record_of(place);
                (record, Some(part))
            }
        }
    }
}
