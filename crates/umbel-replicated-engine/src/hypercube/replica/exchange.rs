//! Asking and answering questions, and merging answers.

use umbel_codec::{FrameChanges, probes_bits};
use umbel_filter::{
    AnyFilter, BlockProbe, Describe, Insert, Insertion, ItemHash, Shape, SingleShotShape,
};

use super::listed::{ChangeReader, ListedChanges, ReadChanges};
use super::{Replica, ReplicaOptions, entry_of};
use crate::hypercube::coverage::Coverage;
use crate::hypercube::delta::{Delta, DeltaContent, DeltaError, DeltaQuestion};
use crate::hypercube::version_vector::VersionVector;
use crate::limits::{DELTA_CHANGES_MAX, VERSION_NODES_MAX};
use umbel_engine::{FilterId, Generation, NodeId};
use umbel_step::planted::{self, Planted};

/// An answer before encoding, which takes longer than the replica should be locked.
///
/// ```
/// use umbel_replicated_engine::hypercube::DeltaReply;
///
/// fn frame_count(reply: DeltaReply) -> Option<usize> {
///     // None: the whole filter is to be sent, as it was when the question was answered.
///     reply.changes.map(|changes| changes.into_frames().len())
/// }
/// # let _ = frame_count;
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct DeltaReply {
    /// The delta without its frames.
    pub delta: Delta,
    /// The changes to list; None for the whole filter.
    pub changes: Option<ListedChanges>,
}

impl Replica {
    /// The question to send to a partner. Answers to earlier questions are refused from now on.
    pub fn ask(&mut self, partner: NodeId) -> DeltaQuestion {
        self.question_count += 1;
        let number = self.question_count;
        let known = self.partners.entry(partner).or_default();
        known.asked = Some(number);
        let ReplicaOptions { filter, generation, log, .. } = self.options;
        let received = known.received;
        DeltaQuestion { filter, generation, number, log, version: self.version().clone(), received }
    }

    /// The answer to a partner's question, everything that the partner lacks, without its frames. For a
    /// whole filter, the caller must make the frames from the filter as it is now.
    ///
    /// # Errors
    /// If the question is refused: it is about another filter or generation, or states a version that is
    /// not possible.
    pub fn reply(
        &mut self,
        from: NodeId,
        question: &DeltaQuestion,
    ) -> Result<DeltaReply, DeltaError> {
        self.check(from, question.filter, question.generation, &question.version)?;
        let theirs = &question.version;
        if self.depends_on_pending {
            self.take_pending();
        }
        let changes = if theirs.dominates(self.version()) {
            Some(Vec::new())
        } else {
            let read = question.received.filter(|(log, _)| *log == self.options.log);
            let read = read.map_or(0, |(_, sequence)| sequence);
            let after = self.sequence_of(theirs).max(read);
            let entries = self.log.since(after, question.log).map(Iterator::collect::<Vec<_>>);
            let entries = entries.map(|entries| self.without_gone(entries));
            let entries = entries.filter(|entries| self.is_shorter_listed(entries));
            if entries.is_none() {
                // All bits are sent, so the version must cover all of them.
                self.take_pending();
            }
            entries
        };
        let complete = self.version().newer_than(theirs);
        let (content, partial) = match changes {
            Some(_) => (DeltaContent::Changes, VersionVector::new()),
            None => (DeltaContent::Whole, self.coverage.partial.newer_than(theirs)),
        };
        let coverage = Coverage { complete, partial };
        self.partners.entry(from).or_default().version = theirs.clone();
        let ReplicaOptions { filter, generation, log, key, payload_bytes_max, .. } = self.options;
        let (question, through) = (question.number, (log, self.log.end()));
        let newest_slice = self.newest_slice();
        let delta =
            Delta { filter, generation, question, content, through, coverage, newest_slice };
        let shape = self.filter.shape();
        let listed = |entries| ListedChanges::new(shape, key, payload_bytes_max, entries);
        Ok(DeltaReply { delta, changes: changes.map(listed) })
    }

    /// Whether a delta may list these changes, and is then no longer than the whole filter.
    pub(super) fn is_shorter_listed(&self, entries: &[u64]) -> bool {
        if entries.len() > DELTA_CHANGES_MAX {
            return false;
        }
        match self.filter.shape() {
            Shape::Blocks(shape) => {
                let bits = probes_bits(shape.map().len(), entries.len() as u64);
                bits <= 8.0 * shape.memory_bytes() as f64
            }
            // Listing some of the positions never takes more than listing all of them.
            Shape::SingleShot(_) => true,
            Shape::Scalable(_) | Shape::RedisBloom(_) => unreachable!("not replicable"),
        }
    }

    /// A reader for frames that list changes for this replica.
    #[must_use]
    pub fn reader(&self) -> ChangeReader {
        ChangeReader::new(self.filter.shape(), self.options.key)
    }

    /// Merges an answer that lists changes, which were read before, and returns the number of newly set positions.
    ///
    /// # Errors
    /// If it is not the answer to the last question, or about another generation.
    pub fn merge_changes(
        &mut self,
        from: NodeId,
        delta: &Delta,
        changes: ReadChanges,
    ) -> Result<u64, DeltaError> {
        self.check_answer(from, delta)?;
        self.follow_slices(from, delta)?;
        let new_bit_count = self.apply_changes(delta.through.0, changes, delta.newest_slice);
        self.finish(from, delta);
        Ok(new_bit_count)
    }

    /// Begins merging a whole filter: call this first, then `merge_whole_frame` for each frame, then
    /// [`end_whole`](Self::end_whole). If a later frame is invalid, the bits of the earlier ones stay: some
    /// node has inserted them, and the version does not cover them.
    ///
    /// # Errors
    /// If it is not the answer to the last question, or about another generation.
    pub fn begin_whole(&mut self, from: NodeId, delta: &Delta) -> Result<(), DeltaError> {
        self.check_answer(from, delta)?;
        self.follow_slices(from, delta)?;
        self.coverage.partial.merge(&delta.coverage.complete);
        self.coverage.partial.merge(&delta.coverage.partial);
        Ok(())
    }

    /// Merges one frame of a whole filter, and returns the number of newly set positions.
    ///
    /// # Errors
    /// If the frame is invalid, or the replica was cleared or asked again since `begin_whole`.
    pub fn merge_whole_frame(
        &mut self,
        from: NodeId,
        delta: &Delta,
        frame: &[u8],
    ) -> Result<u64, DeltaError> {
        self.check_answer(from, delta)?;
        let frame_error = |source| DeltaError::Frame { from, source };
        let view = self.reader().view(frame).map_err(frame_error)?;
        let new = match delta.newest_slice.filter(|_| !self.has_same_slices(delta)) {
            Some(theirs) => self.merge_slices(&view, theirs).map_err(frame_error)?,
            None => view.merge_into(&mut self.filter, self.options.key).map_err(frame_error)?,
        };
        self.depends_on_pending |= self.pending_count > 0;
        self.has_unlogged_bits |= new > 0;
        Ok(new)
    }

    /// Ends merging a whole filter, after all of its frames, and returns the number of newly set positions.
    ///
    /// # Errors
    /// As [`merge_whole_frame`](Self::merge_whole_frame).
    pub fn end_whole(
        &mut self,
        from: NodeId,
        delta: &Delta,
        new_bit_count: u64,
    ) -> Result<u64, DeltaError> {
        self.check_answer(from, delta)?;
        let has_unlogged_bits = self.has_unlogged_bits;
        self.finish(from, delta);
        if new_bit_count > 0 || has_unlogged_bits {
            // The new bits, of this filter or of one whose transfer was aborted, are not logged: a
            // partner whose version does not dominate this one gets the whole filter.
            self.log.skip();
            self.mark();
        }
        Ok(new_bit_count)
    }

    /// Merges the version of a delta that was merged.
    fn finish(&mut self, from: NodeId, delta: &Delta) {
        let Coverage { complete, partial } = &mut self.coverage;
        complete.merge(&delta.coverage.complete);
        if complete.dominates(partial) {
            *partial = VersionVector::new();
            self.has_unlogged_bits = false;
        }
        let known = self.partners.entry(from).or_default();
        known.asked = None;
        known.received = Some(delta.through);
        known.version.merge(&delta.coverage.complete);
    }

    /// Checks that a delta is the answer to the last question, and that its sequence number does not
    /// decrease.
    pub(super) fn check_answer(&mut self, from: NodeId, delta: &Delta) -> Result<(), DeltaError> {
        self.check(from, delta.filter, delta.generation, &delta.coverage.complete)?;
        let filter = self.options.filter;
        let known = self.partners.entry(from).or_default();
        if known.asked != Some(delta.question) {
            let (theirs, ours) = (delta.question, known.asked);
            return Err(DeltaError::ForeignAnswer { from, filter, theirs, ours });
        }
        if let Some((log, ours)) = known.received
            && log == delta.through.0
            && delta.through.1 < ours
        {
            let theirs = delta.through.1;
            return Err(DeltaError::SequenceWentBack { from, filter, theirs, ours });
        }
        Ok(())
    }

    /// Checks that a message is about this filter and generation, and its version has no inserts that
    /// this node never made.
    pub(super) fn check(
        &self,
        from: NodeId,
        filter: FilterId,
        theirs: Generation,
        version: &VersionVector,
    ) -> Result<(), DeltaError> {
        let ReplicaOptions { filter: own_filter, generation: ours, node, .. } = self.options;
        if filter != own_filter {
            return Err(DeltaError::ForeignFilter { from, theirs: filter, ours: own_filter });
        }
        if theirs != ours && !planted::on(Planted::StaleDeltaMerged) {
            return Err(DeltaError::StaleGeneration { from, filter, theirs, ours });
        }
        let node_count = version.iter().len();
        if node_count > VERSION_NODES_MAX {
            return Err(DeltaError::TooManyNodes { from, theirs: node_count });
        }
        let (theirs, ours) = (version.of(node), self.version_of(node));
        if theirs > ours {
            return Err(DeltaError::CoverageAhead { from, filter, node, theirs, ours });
        }
        Ok(())
    }

    fn apply_changes(&mut self, log: u64, listed: ReadChanges, newest_slice: Option<u64>) -> u64 {
        let (mut entries, mut new_bit_count, mut listed_count) = (Vec::new(), 0, 0);
        let logs_all = self.coverage.has_partial();
        for changes in listed.into_frames() {
            match (changes, &mut self.filter) {
                (FrameChanges::Positions(listed), AnyFilter::SingleShot(filter)) => {
                    let positions = listed.positions();
                    listed_count += listed.len();
                    let hash = |&position: &u64| first_hash(listed.shape(), position);
                    let hashes: Vec<ItemHash> = positions.iter().map(hash).collect();
                    let mut outcomes = Vec::with_capacity(hashes.len());
                    let inserted = filter.insert_batch(&hashes, &mut outcomes);
                    inserted.expect("the shape's range was checked");
                    let both = positions.iter().zip(&outcomes);
                    let is_new = |outcome: &Insertion| *outcome == Insertion::New;
                    new_bit_count +=
                        outcomes.iter().filter(|outcome| is_new(outcome)).count() as u64;
                    let logged = both.filter(|(_, outcome)| logs_all || is_new(outcome));
                    entries.extend(logged.map(|(position, _)| *position));
                }
                (FrameChanges::Probes(listed), AnyFilter::Blocked(filter)) => {
                    let part = listed.block_shape();
                    listed_count += listed.len();
                    let offset = filter.block_shape().map().offset_of(part.map());
                    let offset = offset.expect("the shape was checked");
                    let is_gone = |block| match (&self.ring, newest_slice) {
                        (Some(ring), Some(theirs)) => !ring.is_of_same(block, theirs),
                        _ => false,
                    };
                    for &probe in listed.probes() {
                        if is_gone(offset + probe.block) {
                            continue;
                        }
                        let new = filter.insert_probes(part, std::iter::once(probe));
                        let new = new.expect("the shape was checked");
                        new_bit_count += new;
                        if new > 0 || logs_all {
                            let block = offset + probe.block;
                            entries.push(entry_of(BlockProbe { block, ..probe }));
                        }
                    }
                }
                _ => unreachable!("the shape was checked"),
            }
        }
        self.depends_on_pending |= self.pending_count > 0 && (entries.len() as u64) < listed_count;
        if !planted::on(Planted::MergedNotTold) {
            self.log.append(Some(log), &entries);
        }
        new_bit_count
    }
}

/// An item that sets only this position.
fn first_hash(shape: SingleShotShape, position: u64) -> ItemHash {
    ItemHash::new(shape.first_hi(position).expect("a position of the shape"), 0)
}
