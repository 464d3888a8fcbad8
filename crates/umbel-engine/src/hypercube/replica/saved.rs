//! What must be kept beside the bits, so that a replica goes on where it was.

use umbel_filter::{AnyFilter, InsertError, ItemHash};

use super::{Mark, NotReplicable, Replica, ReplicaOptions};
use crate::hypercube::coverage::Coverage;
use crate::hypercube::delta_log::DeltaLog;

impl Replica {
    /// What to keep with the bits as they are now: both or neither. The log is not kept: what was inserted here
    /// after this is inserted again from the node's own log, and thereby logged.
    pub fn save(&mut self) -> Coverage {
        // All bits are kept, so the version must name all.
        self.take_pending();
        self.coverage.clone()
    }

    /// A replica with bits that were kept, and what was kept beside them. A partner whose version dominates its
    /// version of now is sent what comes from now on, and others get the whole filter.
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
        saved: Coverage,
    ) -> Result<Self, NotReplicable> {
        let mut copy = Self::new(options, filter)?;
        // Behind 0, where a partner without anything of this log stands.
        copy.log = DeltaLog::new(1, super::entry_count_max(&copy.options));
        copy.marks = [Mark { sequence: 1, version: saved.complete.clone() }].into();
        copy.has_unlogged_bits = saved.has_partial();
        copy.coverage = saved;
        Ok(copy)
    }

    /// Inserts items again that were inserted after the replica was saved, in the same order, before it
    /// asks or answers anybody, as others may have them: returns how many were new.
    ///
    /// # Errors
    /// If an item is outside the filter's hash range. Nothing was changed.
    pub fn insert_again(&mut self, hashes: &[ItemHash]) -> Result<u64, InsertError> {
        let new_count = self.insert(hashes, &mut Vec::new())?;
        self.take_pending();
        Ok(new_count)
    }
}
