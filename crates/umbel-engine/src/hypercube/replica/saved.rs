//! What must be kept beside the bits, so that a copy goes on where it was.

use serde::{Deserialize, Serialize};
use umbel_filter::{AnyFilter, InsertError, ItemHash};

use super::{Mark, NotReplicable, Replica, ReplicaOptions};
use crate::hypercube::delta_log::DeltaLog;
use crate::hypercube::knowledge::Knowledge;

/// What a copy knows of its bits. The log of what it has to tell is not kept: what was inserted here
/// after the copy was saved is inserted again from the node's own log, and thereby told.
///
/// ```
/// use umbel_engine::hypercube::SavedKnowledge;
///
/// let nothing = SavedKnowledge::default();
/// assert_eq!(nothing.knows.iter().len(), 0);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SavedKnowledge {
    /// Of whose inserts the bits have how many changes.
    pub knows: Knowledge,
    /// Within which counts the bits lie that this knowledge does not cover.
    pub may_have: Knowledge,
}

impl Replica {
    /// What to keep with the bits as they are now: both or neither.
    pub fn save(&mut self) -> SavedKnowledge {
        // All bits are kept, so all must be known.
        self.take_fresh();
        SavedKnowledge { knows: self.knows.clone(), may_have: self.may_have.clone() }
    }

    /// A copy with bits that were kept, and what was kept beside them. Whoever knows as much as this
    /// copy knows now is told what comes from now on, and others get the whole filter.
    ///
    /// ```
    /// # use umbel_codec::FrameKey;
    /// # use umbel_engine::hypercube::{Replica, ReplicaOptions};
    /// # use umbel_engine::{FilterId, Generation, NodeId};
    /// # use umbel_filter::{AnyFilter, Blocked, HashFunction, HashRange, ItemHash};
    /// # let options = ReplicaOptions {
    /// #     node: NodeId(1),
    /// #     filter: FilterId(12),
    /// #     generation: Generation(1),
    /// #     log: 1,
    /// #     key: FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 },
    /// #     log_bytes_max: 1 << 20,
    /// #     payload_bytes_max: 1 << 20,
    /// # };
    /// # let empty = AnyFilter::Blocked(Blocked::new(HashRange::WHOLE, 100, 6)?);
    /// let mut copy = Replica::new(options, empty)?;
    /// copy.insert(&[ItemHash::new(1, 2), ItemHash::new(3, 4)], &mut Vec::new())?;
    /// let (bits, saved) = (copy.filter().clone(), copy.save());
    /// let restored = Replica::restore(ReplicaOptions { log: 2, ..options }, bits, saved)?;
    /// assert_eq!(restored.inserted(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If such a filter cannot be replicated.
    pub fn restore(
        options: ReplicaOptions,
        filter: AnyFilter,
        saved: SavedKnowledge,
    ) -> Result<Self, NotReplicable> {
        let mut copy = Self::new(options, filter)?;
        let SavedKnowledge { knows, may_have } = saved;
        // Behind 0, where whoever knows nothing of this log stands.
        copy.log = DeltaLog::new(1, super::entry_count_max(&copy.options));
        copy.marks = [Mark { sequence: 1, knows: knows.clone() }].into();
        copy.has_untold = may_have != Knowledge::new();
        (copy.knows, copy.may_have) = (knows, may_have);
        Ok(copy)
    }

    /// Inserts items again that were inserted after the copy was saved, in the same order, before it
    /// asks or answers anybody, as others may know of them: returns how many were new.
    ///
    /// # Errors
    /// If an item is outside the filter's hash range. Nothing was changed.
    pub fn insert_again(&mut self, hashes: &[ItemHash]) -> Result<u64, InsertError> {
        let new_count = self.insert(hashes, &mut Vec::new())?;
        self.take_fresh();
        Ok(new_count)
    }
}
