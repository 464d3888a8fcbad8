//! Replicas of windowed filters: blocks belong to time slices, which are forgotten, and the filter is still
//! merged by OR.
//!
//! The replica reads no clock: its caller passes the number of the time slice that the node's clock is in
//! before each request and delta. A message to a partner states the sender's newest slice, which determines
//! the slice of every block ([`SliceRing`]), so the partner leaves out blocks of slices that it has
//! dropped.
//!
//! *Versions.* Changes of dropped slices still count: a replica whose version dominates another's has
//! everything that the other has *in the slices that it is queried for*. This requires that it merges
//! nothing from a partner that has dropped more slices than itself. So a delta of a partner whose newest
//! slice is more than one ahead of the own clock is refused entirely ([`DeltaError::AheadOfClock`]); the
//! partner's version is not merged, and it is asked again.
//!
//! *Log.* A log entry names a block, and thereby the slice to which the block belonged. When the block is
//! reused for another slice, such entries are not sent any more, but keep their sequence numbers.

use umbel_codec::{FrameMergeError, FrameView};
use umbel_filter::{AnyFilter, Contains, Insertion, ItemHash, MergeError, SliceRing};

use super::{Replica, SEED_BITS, entry_of};
use crate::hypercube::delta::{Delta, DeltaError};
use umbel_engine::NodeId;
use umbel_engine::limits::REPLICATED_BYTES_MAX;

/// A log entry whose time slice is gone: a block number beyond those of any copy, which has at most
/// [`REPLICATED_BYTES_MAX`].
const GONE: u64 = u64::MAX;

impl Replica {
    /// This replica, with its blocks assigned to time slices. The filter must have the ring's shape.
    ///
    /// ```
    /// # use umbel_codec::FrameKey;
    /// # use umbel_replicated_engine::hypercube::{Replica, ReplicaOptions};
    /// # use umbel_engine::{FilterId, Generation, NodeId};
    /// # use umbel_filter::{AnyFilter, Blocked, HashFunction, ItemHash, SliceRing};
    /// # let options = ReplicaOptions {
    /// #     node: NodeId(1),
    /// #     filter: FilterId(12),
    /// #     generation: Generation(1),
    /// #     log: 1,
    /// #     key: FrameKey { function: HashFunction::Xxh3Seeded, key_id: 7 },
    /// #     log_bytes_max: 1 << 20,
    /// #     payload_bytes_max: 1 << 20,
    /// # };
    /// // A window of three slices.
    /// let ring = SliceRing::new(100, 6, 3)?;
    /// let empty = AnyFilter::Blocked(Blocked::with_shape(ring.block_shape())?);
    /// let mut copy = Replica::new(options, empty)?.with_ring(Some(ring));
    ///
    /// let alice = ItemHash::new(1, 2);
    /// copy.insert_in_slice(500, &[alice], &mut Vec::new());
    /// let mut present = Vec::new();
    /// copy.contains_batch(503, &[alice], &mut present);
    /// assert_eq!(present, [true]);
    /// copy.contains_batch(504, &[alice], &mut present);
    /// assert_eq!(present, [false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_ring(self, ring: Option<SliceRing>) -> Self {
        debug_assert!(
            ring.is_none_or(|ring| matches!(&self.filter, AnyFilter::Blocked(filter)
                if filter.block_shape() == ring.block_shape())),
            "the filter has another shape"
        );
        Self { ring, ..self }
    }

    /// The layout of time slices; None if the filter is not windowed.
    #[must_use]
    pub const fn ring(&self) -> Option<&SliceRing> {
        self.ring.as_ref()
    }

    /// The number of the newest time slice; None if the filter is not windowed.
    #[must_use]
    pub fn newest_slice(&self) -> Option<u64> {
        Some(self.ring?.newest())
    }

    /// What to store beside the bits of a windowed filter: the clock's slice and the newest one, as for
    /// [`SliceRing::at`].
    #[must_use]
    pub fn slices(&self) -> Option<(u64, u64)> {
        self.ring.map(|ring| (ring.own(), ring.newest()))
    }

    /// Tells the replica which time slice the node's clock is in. Slices never go back; without slices
    /// nothing happens.
    pub fn advance(&mut self, own: u64) {
        let before = self.newest_slice();
        if let (Some(ring), AnyFilter::Blocked(bits)) = (&mut self.ring, &mut self.filter)
            && ring.advance(bits, own)
        {
            self.forget_gone(before);
        }
    }

    /// Whether each item is present when the node's clock is in slice `own`. Replaces the contents of
    /// `present`.
    pub fn contains_batch(&self, own: u64, hashes: &[ItemHash], present: &mut Vec<bool>) {
        match (&self.ring, &self.filter) {
            (Some(ring), AnyFilter::Blocked(bits)) => {
                present.clear();
                present.extend(hashes.iter().map(|&hash| ring.contains(bits, own, hash)));
            }
            (_, filter) => filter.contains_batch(hashes, present),
        }
    }

    /// The newest time slice that has an item, among those that are queried when the clock is in slice
    /// `own`.
    #[must_use]
    pub fn slice_with(&self, own: u64, hash: ItemHash) -> Option<u64> {
        match (&self.ring, &self.filter) {
            (Some(ring), AnyFilter::Blocked(bits)) => ring.newest_with(bits, own, hash),
            _ => None,
        }
    }

    /// Inserts items into a time slice that the node's clock was in, appends whether each was new in the
    /// window, and returns the number of new items. Items of a slice that is gone change nothing but still
    /// count as changes, because they may have counted before a restart. Otherwise like
    /// [`insert`](Self::insert).
    pub fn insert_in_slice(
        &mut self,
        number: u64,
        hashes: &[ItemHash],
        outcomes: &mut Vec<Insertion>,
    ) -> u64 {
        self.advance(number);
        let (Some(ring), AnyFilter::Blocked(bits)) = (&self.ring, &mut self.filter) else {
            return 0;
        };
        let mut new_count = 0;
        for &hash in hashes {
            let was_present = ring.contains(bits, number, hash);
            let is_new = ring.insert(bits, number, hash) == Some(Insertion::New) && !was_present;
            new_count += u64::from(is_new);
            outcomes.push(if is_new { Insertion::New } else { Insertion::Present });
            self.pending.push(ring.probe_in(number, hash).map_or(GONE, entry_of));
        }
        self.count_pending(hashes.len());
        new_count
    }

    /// Repeats inserts after a restart, like [`insert_again`](Self::insert_again).
    pub fn insert_in_slice_again(&mut self, number: u64, hashes: &[ItemHash]) -> u64 {
        let new_count = self.insert_in_slice(number, hashes, &mut Vec::new());
        self.take_pending();
        new_count
    }

    /// Marks log entries as gone whose blocks were reused for other slices since `before` was the newest
    /// slice.
    fn forget_gone(&mut self, before: Option<u64>) {
        let (Some(ring), Some(before)) = (self.ring, before) else { return };
        for entry in self.log.entries_mut().chain(&mut self.pending) {
            if *entry != GONE && !ring.is_of_same(*entry >> SEED_BITS, before) {
                *entry = GONE;
            }
        }
    }

    pub(super) fn without_gone(&self, mut entries: Vec<u64>) -> Vec<u64> {
        if self.ring.is_some() {
            entries.retain(|entry| *entry != GONE);
        }
        entries
    }

    /// Advances to the slice of a partner that is up to one slice ahead, before its delta is merged.
    pub(super) fn follow_slices(&mut self, from: NodeId, delta: &Delta) -> Result<(), DeltaError> {
        let filter = self.options.filter;
        let (theirs, before) = (delta.newest_slice, self.newest_slice());
        match (&mut self.ring, &mut self.filter, theirs) {
            (Some(ring), AnyFilter::Blocked(bits), Some(theirs)) => {
                let followed = ring.follow(bits, theirs);
                let ahead = |source| DeltaError::AheadOfClock { from, filter, source };
                if followed.map_err(ahead)? {
                    self.forget_gone(before);
                }
                Ok(())
            }
            (None, _, None) => Ok(()),
            _ => Err(DeltaError::Slices { from, filter, theirs, ours: before }),
        }
    }

    /// Whether every block belongs to the same slice here and at the partner.
    pub(super) fn has_same_slices(&self, delta: &Delta) -> bool {
        self.newest_slice() == delta.newest_slice
    }

    /// Merges a frame of a partner whose blocks may belong to older slices.
    pub(super) fn merge_slices(
        &mut self,
        view: &FrameView<'_>,
        theirs: u64,
    ) -> Result<u64, FrameMergeError> {
        let part = view.to_filter(self.options.key, REPLICATED_BYTES_MAX)?;
        match (&self.ring, &mut self.filter, &part) {
            (Some(ring), AnyFilter::Blocked(bits), AnyFilter::Blocked(part)) => {
                Ok(ring.merge_part(bits, theirs, part)?)
            }
            _ => unreachable!("the shape was checked"),
        }
    }

    /// Merges a whole filter whose blocks may belong to other slices.
    pub(super) fn merge_filter(
        &mut self,
        other: &AnyFilter,
        newest_slice: Option<u64>,
    ) -> Result<u64, MergeError> {
        match (&self.ring, &mut self.filter, other, newest_slice) {
            (Some(ring), AnyFilter::Blocked(bits), AnyFilter::Blocked(other), Some(theirs)) => {
                Ok(ring.merge_part(bits, theirs, other)?)
            }
            (None, filter, other, None) => filter.merge(other),
            // One of the two does not state its slices.
            (.., other, _) => Err(MergeError::Unsupported { kind: other.kind() }),
        }
    }
}
