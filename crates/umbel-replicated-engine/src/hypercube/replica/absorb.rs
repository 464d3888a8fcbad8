//! Merging a whole filter from outside the exchange: from a file or from another filter.

use umbel_filter::{AnyFilter, MergeError};

use super::Replica;

impl Replica {
    /// ORs a filter of the same shape into the replica, and returns the number of newly set positions. For
    /// a windowed filter, `newest_slice` is the other filter's newest time slice; slices that are gone
    /// here, or have not started, are left out.
    ///
    /// Counts as one change of this node's own inserts, after all earlier ones, unless the version covers
    /// all of its bits already. It has no entry in the log, so a partner whose version does not dominate
    /// this one gets the whole filter.
    ///
    /// The change is in no log of inserts. So store what [`save`](Self::save) returns before any question
    /// is answered; otherwise a restart could give the same count to another change.
    ///
    /// ```
    /// # use umbel_codec::FrameKey;
    /// # use umbel_replicated_engine::hypercube::{Replica, ReplicaOptions};
    /// # use umbel_engine::{FilterId, Generation, NodeId};
    /// # use umbel_filter::{AnyFilter, Blocked, HashFunction, HashRange, Insert, ItemHash};
    /// # let options = ReplicaOptions {
    /// #     node: NodeId(1),
    /// #     filter: FilterId(12),
    /// #     generation: Generation(1),
    /// #     log: 1,
    /// #     key: FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 },
    /// #     log_bytes_max: 1 << 20,
    /// #     payload_bytes_max: 1 << 20,
    /// # };
    /// let mut other = Blocked::new(HashRange::WHOLE, 100, 6)?;
    /// let mut copy = Replica::new(options, AnyFilter::Blocked(other.clone()))?;
    /// other.insert(ItemHash::new(1, 2))?;
    /// assert_eq!(copy.absorb(&other.clone().into(), None)?, 6);
    /// assert_eq!(copy.inserted(), 1);
    /// assert_eq!(copy.absorb(&other.into(), None)?, 0);
    /// assert_eq!(copy.inserted(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes differ. Nothing was changed then.
    pub fn absorb(
        &mut self,
        other: &AnyFilter,
        newest_slice: Option<u64>,
    ) -> Result<u64, MergeError> {
        let new_bit_count = self.merge_filter(other, newest_slice)?;
        // Some of these bits may not be covered by the version, and their inserts may never arrive.
        if new_bit_count > 0 || self.coverage.has_partial() {
            self.take_pending();
            self.coverage.complete.add(self.options.node, 1);
            self.log.skip();
            self.mark();
        }
        Ok(new_bit_count)
    }
}
