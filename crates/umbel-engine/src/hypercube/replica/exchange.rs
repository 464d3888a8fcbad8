//! Questions, answers, and merging them.

use umbel_codec::{FrameChanges, FrameMergeError, FrameView, frames, probes_bits};
use umbel_filter::{
    AnyFilter, BlockProbe, Describe, Insert, Insertion, ItemHash, Shape, ShapeMismatch, SingleShot,
    SingleShotShape, SparseBlocked,
};

use super::{Replica, ReplicaOptions, entry_of, probe_of};
use crate::hypercube::delta::{Delta, DeltaContent, DeltaError, Merged, Question};
use crate::hypercube::knowledge::Knowledge;
use crate::ids::{FilterId, Generation, NodeId};
use crate::limits::{DELTA_LIST_BYTES_MAX, KNOWLEDGE_NODES_MAX};

impl Replica {
    /// What to ask a partner. An answer to an earlier question is no longer taken.
    pub fn ask(&mut self, partner: NodeId) -> Question {
        self.question_count += 1;
        let number = self.question_count;
        let known = self.partners.entry(partner).or_default();
        known.asked = Some(number);
        let ReplicaOptions { filter, generation, .. } = self.options;
        let received = known.received;
        Question { filter, generation, number, knows: self.knows.clone(), received }
    }

    /// What to answer a partner: all that it lacks.
    ///
    /// # Errors
    /// If the question does not fit.
    ///
    /// # Panics
    /// If the payload limit is below one block.
    pub fn answer(&mut self, from: NodeId, question: &Question) -> Result<Delta, DeltaError> {
        self.check(from, question.filter, question.generation, &question.knows)?;
        let theirs = &question.knows;
        if self.leans_on_fresh {
            self.take_fresh();
        }
        let (content, frames) = if theirs.covers(&self.knows) {
            (DeltaContent::Changes, Vec::new())
        } else {
            let read = question.received.filter(|(log, _)| *log == self.options.log);
            let read = read.map_or(0, |(_, sequence)| sequence);
            let after = self.known_sequence(theirs).max(read);
            let listed = self.log.since(after, from).and_then(|entries| {
                let entries: Vec<u64> = entries.collect();
                self.listed_frames(entries)
            });
            match listed {
                Some(frames) => (DeltaContent::Changes, frames),
                // All bits are in it, so all must be known.
                None => {
                    self.take_fresh();
                    (DeltaContent::Whole, self.whole_frames())
                }
            }
        };
        let knows = self.knows.beyond(theirs);
        let is_whole = content == DeltaContent::Whole;
        let may_have = if is_whole { self.may_have.beyond(theirs) } else { Knowledge::new() };
        self.partners.entry(from).or_default().knows = theirs.clone();
        let ReplicaOptions { filter, generation, log, .. } = self.options;
        let (question, through) = (question.number, (log, self.log.end()));
        Ok(Delta { filter, generation, question, content, through, knows, may_have, frames })
    }

    fn whole_frames(&self) -> Vec<Vec<u8>> {
        let ReplicaOptions { key, payload_bytes_max, .. } = self.options;
        let frames = frames(&self.filter, key, payload_bytes_max);
        frames.map(|frame| frame.expect("a payload holds at least one block")).collect()
    }

    /// The frames of these changes; None if the whole filter is shorter.
    fn listed_frames(&self, mut entries: Vec<u64>) -> Option<Vec<Vec<u8>>> {
        entries.sort_unstable();
        entries.dedup();
        if entries.is_empty() {
            return Some(Vec::new());
        }
        let ReplicaOptions { key, payload_bytes_max, .. } = self.options;
        let whole = |frame: Result<_, _>| frame.expect("a payload holds a few codes");
        match self.filter.shape() {
            Shape::SingleShot(shape) => {
                let listed = SingleShot::from_positions(shape, entries);
                let listed = listed.expect("positions were sorted, and are the filter's");
                Some(frames(&listed, key, payload_bytes_max).map(whole).collect())
            }
            Shape::Blocks(shape) => {
                let bits = probes_bits(shape.map().len(), entries.len() as u64);
                if bits > 8.0 * shape.memory_bytes() as f64 {
                    return None;
                }
                let probes = entries.into_iter().map(probe_of).collect();
                let listed = SparseBlocked::from_probes(shape, probes);
                let listed = listed.expect("probes were sorted, and are the filter's");
                Some(frames(&listed, key, payload_bytes_max).map(whole).collect())
            }
            Shape::Scalable(_) => unreachable!("not replicable"),
        }
    }

    /// Merges the answer to the last question. Bits of a whole filter whose later frames turn out
    /// to be wrong stay: somebody has inserted them, and nobody is told that this copy has all.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn merge(&mut self, from: NodeId, delta: &Delta) -> Result<Merged, DeltaError> {
        self.check(from, delta.filter, delta.generation, &delta.knows)?;
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
        let merged = match delta.content {
            DeltaContent::Changes => self.merge_changes(from, &delta.frames)?,
            DeltaContent::Whole => self.merge_whole(from, delta)?,
        };
        self.knows.raise(&delta.knows);
        if self.knows.covers(&self.may_have) {
            self.may_have = Knowledge::new();
        }
        if delta.content == DeltaContent::Whole && merged.new_bit_count > 0 {
            // What was new is in no entry: whoever knows less than this copy now gets it whole.
            self.log.skip();
            self.mark();
        }
        let known = self.partners.entry(from).or_default();
        known.asked = None;
        known.received = Some(delta.through);
        known.knows.raise(&delta.knows);
        Ok(merged)
    }

    /// Whether what a partner sent is about this copy, and does not know of too much.
    fn check(
        &self,
        from: NodeId,
        filter: FilterId,
        theirs: Generation,
        knows: &Knowledge,
    ) -> Result<(), DeltaError> {
        let ReplicaOptions { filter: own_filter, generation: ours, node, .. } = self.options;
        if filter != own_filter {
            return Err(DeltaError::ForeignFilter { from, theirs: filter, ours: own_filter });
        }
        if theirs != ours {
            return Err(DeltaError::StaleGeneration { from, filter, theirs, ours });
        }
        let node_count = knows.iter().len();
        if node_count > KNOWLEDGE_NODES_MAX {
            return Err(DeltaError::TooManyNodes { from, theirs: node_count });
        }
        let (theirs, ours) = (knows.of(node), self.knows(node));
        if theirs > ours {
            return Err(DeltaError::KnowsTooMuch { from, filter, node, theirs, ours });
        }
        Ok(())
    }

    /// Merges frames that list changes.
    fn merge_changes(&mut self, from: NodeId, frames: &[Vec<u8>]) -> Result<Merged, DeltaError> {
        let frame_error = |source| DeltaError::Frame { from, source };
        let mut listed = Vec::with_capacity(frames.len());
        for view in self.views(frames).map_err(frame_error)? {
            let changes = view.to_changes(self.options.key, DELTA_LIST_BYTES_MAX);
            listed.push(changes.map_err(frame_error)?.ok_or(DeltaError::Unlisted { from })?);
        }
        let (mut entries, mut new_bit_count, mut listed_count) = (Vec::new(), 0, 0);
        let tells_all = self.may_have != Knowledge::new();
        for changes in listed {
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
                    let told = both.filter(|(_, outcome)| tells_all || is_new(outcome));
                    entries.extend(told.map(|(position, _)| *position));
                }
                (FrameChanges::Probes(listed), AnyFilter::Blocked(filter)) => {
                    let part = listed.block_shape();
                    listed_count += listed.len();
                    let offset = filter.block_shape().map().offset_of(part.map());
                    let offset = offset.expect("the shape was checked");
                    for &probe in listed.probes() {
                        let new = filter.insert_probes(part, std::iter::once(probe));
                        let new = new.expect("the shape was checked");
                        new_bit_count += new;
                        if new > 0 || tells_all {
                            let block = offset + probe.block;
                            entries.push(entry_of(BlockProbe { block, ..probe }));
                        }
                    }
                }
                _ => unreachable!("the shape was checked"),
            }
        }
        self.leans_on_fresh |= self.fresh_count > 0 && (entries.len() as u64) < listed_count;
        self.log.append(Some(from), &entries);
        Ok(Merged { new_change_count: entries.len() as u64, new_bit_count })
    }

    fn merge_whole(&mut self, from: NodeId, delta: &Delta) -> Result<Merged, DeltaError> {
        let frame_error = |source| DeltaError::Frame { from, source };
        let mut new_bit_count = 0;
        let views = self.views(&delta.frames).map_err(frame_error)?;
        self.may_have.raise(&delta.knows);
        self.may_have.raise(&delta.may_have);
        for view in views {
            let new = view.merge_into(&mut self.filter, self.options.key);
            new_bit_count += new.map_err(frame_error)?;
        }
        self.leans_on_fresh |= self.fresh_count > 0;
        Ok(Merged { new_change_count: 0, new_bit_count })
    }

    /// The frames, if all are of this filter's shape and key, or of parts of it.
    fn views<'f>(&self, frames: &'f [Vec<u8>]) -> Result<Vec<FrameView<'f>>, FrameMergeError> {
        let ours = self.filter.shape();
        let mut views = Vec::with_capacity(frames.len());
        for frame in frames {
            let (view, _) = FrameView::parse(frame)?;
            view.check_key(self.options.key)?;
            let theirs = view.shape();
            if !is_part(theirs, ours) {
                return Err(ShapeMismatch { ours, theirs }.into());
            }
            views.push(view);
        }
        Ok(views)
    }
}

/// Whether a filter's shape is that of a part of another one.
fn is_part(part: Shape, whole: Shape) -> bool {
    match (part, whole) {
        (Shape::Blocks(part), Shape::Blocks(whole)) => {
            part.kind() == whole.kind()
                && part.probe_count() == whole.probe_count()
                && whole.map().offset_of(part.map()).is_some()
        }
        (Shape::SingleShot(part), Shape::SingleShot(whole)) => {
            let (inner, outer) = (part.range(), whole.range());
            part.position_count() == whole.position_count()
                && inner.start() == outer.start()
                && inner.last() <= outer.last()
        }
        _ => false,
    }
}

/// An item that has this position alone.
fn first_hash(shape: SingleShotShape, position: u64) -> ItemHash {
    ItemHash::new(shape.first_hi(position).expect("a position of the shape"), 0)
}
