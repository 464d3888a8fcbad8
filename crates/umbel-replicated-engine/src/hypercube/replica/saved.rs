//! Saving and restoring a replica: what must be stored beside its bits.

use umbel_filter::{AnyFilter, InsertError, ItemHash};

use super::{Mark, NotReplicable, Replica, ReplicaOptions};
use crate::hypercube::coverage::Coverage;
use crate::hypercube::delta_log::DeltaLog;

impl Replica {
    /// The coverage to store with the current bits; store both or neither. The log is not stored: later
    /// local inserts are repeated from the node's own log, and are thereby logged again.
    pub fn save(&mut self) -> Coverage {
        // All bits are stored, so the version must cover all of them.
        self.take_pending();
        self.coverage.clone()
    }

    /// A replica with stored bits and coverage. A partner whose version dominates the restored one gets the
    /// changes from now on; others get the whole filter.
    ///
    /// ```
    /// # use umbel_codec::FrameKey;
    /// # use umbel_replicated_engine::hypercube::{Replica, ReplicaOptions};
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
    /// If the filter cannot be replicated.
    pub fn restore(
        options: ReplicaOptions,
        filter: AnyFilter,
        saved: Coverage,
    ) -> Result<Self, NotReplicable> {
        let mut copy = Self::new(options, filter)?;
        // Starts above 0, the position of a partner that has nothing of this log.
        copy.log = DeltaLog::new(1, super::entry_count_max(&copy.options));
        copy.marks = [Mark { sequence: 1, version: saved.complete.clone() }].into();
        copy.has_unlogged_bits = saved.has_partial();
        copy.coverage = saved;
        Ok(copy)
    }

    /// Repeats inserts made after the replica was saved, in the same order. Must run before any question is
    /// sent or answered, because other nodes may have these inserts. Returns the number of new items.
    ///
    /// # Errors
    /// If an item is outside the filter's hash range. Nothing was changed then.
    pub fn insert_again(&mut self, hashes: &[ItemHash]) -> Result<u64, InsertError> {
        let new_count = self.insert(hashes, &mut Vec::new())?;
        self.take_pending();
        Ok(new_count)
    }
}
