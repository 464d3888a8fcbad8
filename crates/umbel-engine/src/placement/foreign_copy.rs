//! Whether a copy of a filter that was cut for the shards of one cluster fits the shards of another.
//!
//! Slices can be cut further when they are loaded, but not joined.

use thiserror::Error;

use super::shard_ranges::ShardRanges;
use crate::limits::SHARD_COUNT_MAX;

/// The copy does not fit the shards of this cluster. Split them as often as the text says, then load it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "the copy was made on {}, this cluster has {}, and {}",
    shards_text(*copied),
    shards_text(*ours),
    advice(*copied, *ours)
)]
pub struct ForeignCopy {
    /// The shards for which the copy was cut.
    pub copied: ShardRanges,
    /// The shards of this cluster.
    pub ours: ShardRanges,
}

impl ShardRanges {
    /// Checks that slices that were cut for the shards of `copied` can be cut for these.
    ///
    /// ```
    /// use umbel_engine::placement::ShardRanges;
    ///
    /// let ours = ShardRanges::new(2, 3)?;
    /// assert_eq!(ours.check_copy(ShardRanges::new(2, 2)?), Ok(()));
    /// let error = ours.check_copy(ShardRanges::new(4, 4)?).unwrap_err().to_string();
    /// assert!(error.ends_with("must be split as often: umbel cluster split --to 4, then load it"));
    /// # Ok::<(), umbel_engine::placement::ShardRangesError>(())
    /// ```
    ///
    /// # Errors
    /// If a shard of these lies in more than one of `copied`.
    pub fn check_copy(self, copied: Self) -> Result<(), ForeignCopy> {
        if self.refine(copied) { Ok(()) } else { Err(ForeignCopy { copied, ours: self }) }
    }
}

fn advice(copied: ShardRanges, ours: ShardRanges) -> String {
    match enough_shards(copied, ours) {
        Some(count) => {
            format!("must be split as often: umbel cluster split --to {count}, then load it")
        }
        None => "no split of these is one of those: load it where they are".to_owned(),
    }
}

/// The number of shards at which ours are cut finely enough for such a copy; None if no number is enough.
fn enough_shards(copied: ShardRanges, ours: ShardRanges) -> Option<u32> {
    let mut wanted = Some(ours);
    while let Some(ranges) = wanted {
        if ranges.refine(copied) {
            return Some(ranges.count());
        }
        wanted = ranges.split().filter(|more| more.count() <= SHARD_COUNT_MAX);
    }
    None
}

/// The number of shards, and, if they were split, how many there were at first.
fn shards_text(ranges: ShardRanges) -> String {
    match (ranges.count(), ranges.founded()) {
        (count, founded) if count == founded => format!("{count} shards"),
        (count, founded) => format!("{count} shards that were {founded}"),
    }
}
