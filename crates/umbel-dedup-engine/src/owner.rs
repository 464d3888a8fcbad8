//! The owning half of a worker, for one cell: receives the streams of all senders and answers them with verdicts.
//!
//! Passes follow each other as positions, refinement bits (if the plan has any), residues, and at exactness
//! `bytes` items. The owner answers a pass when the streams of all senders have ended: in the first pass
//! every worker sends one; in later passes, the workers with entries in the previous verdict. In a filter
//! pass, a verdict lists the entries whose key another sender has, too; once whole hashes (or items) are
//! compared, it lists the entries to drop. References take part as one more sender, behind the workers, whose
//! stream the owner fills itself (see [`super::known`]).

use super::collide::Collided;
use super::entry::{Priority, RecordId, WorkerId};
use super::error::ExchangeFrameError;
use super::frame::{Frame, FrameKind, flag};
use super::items::{ReceivedItem, read_items};
use super::known::take_known;
use super::payload::{
    FullEntry, ResidueBits, VerdictList, expect_at_most, expect_equal, read_full_hashes,
    read_positions, read_refine,
};
use super::plan::{Mode, Plan};
use super::sender::Draft;
use crate::FrameResult;
use crate::limits::CELL_ENTRIES_MAX;
use umbel_filter::{HashRange, ItemHash};
use umbel_step::planted::{self, Planted};

/// What the owner has received from one sender in this pass, and keeps of earlier passes.
#[derive(Default)]
pub(super) struct Stream {
    next_sequence: u32,
    pub(super) ended: bool,
    /// Entries that the sender must still send in this pass; `None` in the first pass: any number up to the limit.
    owed: Option<usize>,
    /// Entries received in this pass.
    received: usize,
    /// Positions of the sender's entries, then of its candidates, then of its survivors.
    pub(super) positions: Vec<u64>,
    /// For each of those: the number of its collided key among the collided keys of the last filter pass.
    groups: Vec<u32>,
    /// For each of those: its refinement bits, once received.
    bits: Vec<u64>,
    /// Whole hashes, from a stream of full hashes or restored from positions and residues.
    full_entries: Vec<FullEntry>,
    items: Vec<ReceivedItem>,
}

/// The end of a pass: verdicts to send, and whether the cell is done.
pub(super) struct Decision {
    pub(super) verdicts: Vec<(WorkerId, Draft)>,
    pub(super) done: bool,
}

/// The owning half, for one cell.
pub(super) struct OwnerCell {
    pass: FrameKind,
    pub(super) streams: Vec<Stream>,
    shared_hashes: u64,
    /// The references' hashes in the cell, ascending, without those that an earlier pass has ruled out. Their
    /// positions and refinement bits are in the last stream.
    pub(super) references: Vec<ItemHash>,
    /// At exactness `bytes`: how many different items had equal hashes.
    pub(super) collisions: u64,
    /// Entries whose whole hash another worker has, too.
    pub(super) shared: u64,
}

impl OwnerCell {
    /// An owner that has received nothing.
    pub(super) fn new(plan: &Plan) -> Self {
        let senders = plan.shape.workers + u32::from(plan.references.is_some());
        Self {
            pass: FrameKind::Positions,
            streams: (0..senders).map(|_| Stream::default()).collect(),
            shared_hashes: 0,
            references: Vec::new(),
            collisions: 0,
            shared: 0,
        }
    }

    /// Bytes of memory that its streams take, without items.
    pub(super) fn held_bytes(&self) -> usize {
        let streams = self.streams.iter();
        let streams: usize = streams.map(|stream| size_of::<Stream>() + stream.held_bytes()).sum();
        streams + self.references.capacity() * size_of::<ItemHash>()
    }

    /// Whether all hashes are compared and only items are missing.
    pub(super) fn awaits_items(&self) -> bool {
        self.pass == FrameKind::Items
    }

    /// Processes a sender's frame. `Ok(None)`: the pass is incomplete, or the frame is a repetition.
    pub(super) fn receive(
        &mut self,
        plan: &Plan,
        cell: u32,
        from: WorkerId,
        frame: &Frame<'_>,
    ) -> FrameResult<Option<Decision>> {
        let stream = &mut self.streams[from.index()];
        if frame.kind < self.pass
            || (frame.kind == self.pass && frame.sequence < stream.next_sequence)
        {
            return Ok(None);
        }
        let unexpected = |field, expected: u64, got: u64| {
            Err(ExchangeFrameError::Unexpected { field, expected, got })
        };
        expect_equal("kind", self.pass as u64, frame.kind as u64)?;
        if stream.ended {
            let came = u64::from(frame.sequence) + 1;
            return unexpected("frames", stream.next_sequence.into(), came);
        }
        expect_equal("sequence", stream.next_sequence, frame.sequence)?;
        let flags_due = Self::flags_due(plan, frame.kind);
        if frame.flags & !flag::LAST != flags_due {
            return unexpected("flags", flags_due.into(), frame.flags.into());
        }
        let left = stream.owed.unwrap_or(CELL_ENTRIES_MAX - stream.received);
        let count = frame.count as usize;
        expect_at_most("count", count, left)?;
        let last = frame.has(flag::LAST);
        if last && stream.owed.is_some_and(|owed| owed != count) {
            return unexpected("count", left as u64, frame.count.into());
        }
        stream.read(plan, cell, frame, left)?;
        stream.next_sequence += 1;
        stream.ended = last;
        stream.received += count;
        stream.owed = stream.owed.map(|owed| owed - count);
        Ok(self.decide_if_complete(plan, cell))
    }

    pub(super) fn decide_if_complete(&mut self, plan: &Plan, cell: u32) -> Option<Decision> {
        let open = self.streams.iter().filter(|stream| !stream.ended && stream.owed != Some(0));
        let open_max = usize::from(planted::on(Planted::CellClosedEarly));
        (open.count() <= open_max).then(|| self.decide(plan, cell))
    }

    /// The flags, apart from LAST, that a frame of this kind must have.
    fn flags_due(plan: &Plan, kind: FrameKind) -> u8 {
        match kind {
            FrameKind::Positions if plan.mode == Mode::FullHash => {
                flag::FULL_HASH | plan.entry_priority_bits().flags()
            }
            FrameKind::Residues => plan.entry_priority_bits().flags(),
            FrameKind::Items => plan.item_priority_bits().flags(),
            _ => 0,
        }
    }

    /// All streams of the pass have ended: answers it and opens the next one.
    fn decide(&mut self, plan: &Plan, cell: u32) -> Decision {
        match self.pass {
            FrameKind::Positions if plan.mode == Mode::FullHash => self.decide_hashes(plan),
            FrameKind::Positions => {
                let space = plan.cell_shape(cell).width();
                let next =
                    if plan.refine_bits > 0 { FrameKind::Refine } else { FrameKind::Residues };
                let keys = |stream: &Stream| stream.positions.clone();
                self.decide_filter(plan, FrameKind::PositionsVerdict, next, space, keys)
            }
            FrameKind::Refine => self.decide_refine(plan),
            FrameKind::Residues => self.decide_hashes(plan),
            _ => self.decide_items(plan),
        }
    }

    /// Answers the refinement pass: keys are (group, refinement bits).
    fn decide_refine(&mut self, plan: &Plan) -> Decision {
        let groups = self.streams.iter().flat_map(|stream| &stream.groups).max();
        let space = (groups.map_or(0, |&group| u64::from(group)) + 1) << plan.refine_bits;
        if !plan.ends_after_refine() {
            let keys = |stream: &Stream| {
                let candidates = stream.groups.iter().zip(&stream.bits);
                candidates
                    .map(|(&group, bits)| u64::from(group) << plan.refine_bits | bits)
                    .collect()
            };
            return self.decide_filter(
                plan,
                FrameKind::RefineVerdict,
                FrameKind::Residues,
                space,
                keys,
            );
        }
        for stream in &mut self.streams {
            let hashes = stream.groups.iter().zip(&stream.bits);
            let full_entries = hashes.map(|(&group, &bits)| FullEntry {
                hash: ItemHash::new(group.into(), bits),
                priority: Priority::default(),
            });
            stream.full_entries = full_entries.collect();
        }
        if let Some(stream) = self.streams.get_mut(plan.shape.workers as usize) {
            let known = std::mem::take(&mut stream.full_entries);
            self.references = known.into_iter().map(|entry| entry.hash).collect();
            self.references.sort_unstable();
        }
        self.decide_hashes(plan)
    }

    /// Answers a filter pass: each verdict lists the sender's entries whose key another sender has too.
    fn decide_filter(
        &mut self,
        plan: &Plan,
        kind: FrameKind,
        next: FrameKind,
        space: u64,
        keys: impl Fn(&Stream) -> Vec<u64>,
    ) -> Decision {
        let keys: Vec<Vec<u64>> = self.streams.iter().map(keys).collect();
        let collided = Collided::find(space, &keys);
        let mut verdicts = Vec::new();
        for (sender, (stream, keys)) in (0u16..).zip(self.streams.iter_mut().zip(&keys)) {
            let covered = u32::try_from(keys.len()).expect("a cell's entries have 32-bit indexes");
            let mut verdict = VerdictList::default();
            let mut groups = Vec::new();
            for (index, &key) in (0u32..).zip(keys) {
                if let Some(group) = collided.rank(key) {
                    verdict.indexes.push(index);
                    groups.push(group);
                }
            }
            keep_only(&mut stream.positions, &verdict.indexes);
            keep_only(&mut stream.bits, &verdict.indexes);
            stream.groups = groups;
            stream.open_pass(verdict.indexes.len());
            if u32::from(sender) == plan.shape.workers {
                keep_only(&mut self.references, &verdict.indexes);
                let refined = |hash: &ItemHash| hash.lo() >> (64 - plan.refine_bits);
                if next == FrameKind::Refine {
                    stream.bits = self.references.iter().map(refined).collect();
                }
                stream.ended = true;
            } else if covered > 0 {
                let draft = Draft::verdict(kind, verdict.encode(covered, None), false, covered);
                verdicts.push((WorkerId(sender), draft));
            }
        }
        self.pass = next;
        Decision { verdicts, done: collided.count() == 0 }
    }

    /// Compares whole hashes. Verdicts list the entries to drop; or, if bytes are compared next, the entries whose hash
    /// several senders have.
    fn decide_hashes(&mut self, plan: &Plan) -> Decision {
        let mut members = Vec::new();
        for (sender, stream) in (0u16..).zip(&self.streams) {
            for (index, entry) in (0u32..).zip(&stream.full_entries) {
                let FullEntry { hash: key, priority } = *entry;
                members.push(Member { key, priority, sender, index });
            }
        }
        let covered: Vec<usize> =
            self.streams.iter().map(|stream| stream.full_entries.len()).collect();
        // Each sender's hashes are already ascending, which a stable (merge) sort makes use of.
        members.sort_by_key(|member| member.key);
        self.shared = count_shared(&members);
        let kind = match self.pass {
            FrameKind::Positions => FrameKind::PositionsVerdict,
            FrameKind::Refine => FrameKind::RefineVerdict,
            _ => FrameKind::ResiduesVerdict,
        };
        if !plan.compares_bytes() {
            let known = take_known(plan, &self.references, &mut members, covered.len());
            let mut lists = keep_best(plan, &members, &covered);
            if plan.references.is_some() {
                lists.iter_mut().zip(known).for_each(|(list, known)| list.add_known(&known));
            }
            return Decision { verdicts: final_verdicts(kind, plan, &lists, &covered), done: true };
        }
        let mut lists = vec![VerdictList::default(); covered.len()];
        for class in members.chunk_by(|a, b| a.key == b.key).filter(|class| class.len() > 1) {
            self.shared_hashes += 1;
            for member in class {
                lists[usize::from(member.sender)].indexes.push(member.index);
            }
        }
        let mut verdicts = Vec::new();
        for (sender, (list, &covered)) in (0u16..).zip(lists.iter_mut().zip(&covered)) {
            list.indexes.sort_unstable();
            let stream = &mut self.streams[usize::from(sender)];
            *stream = Stream::default();
            stream.ended = list.indexes.is_empty();
            if covered > 0 {
                let covered = u32::try_from(covered).expect("32-bit indexes");
                let draft = Draft::verdict(kind, list.encode(covered, None), false, covered);
                verdicts.push((WorkerId(sender), draft));
            }
        }
        self.pass = FrameKind::Items;
        Decision { verdicts, done: self.shared_hashes == 0 }
    }

    /// Compares items. Verdicts list the items to drop.
    fn decide_items(&mut self, plan: &Plan) -> Decision {
        let mut members = Vec::new();
        for (sender, stream) in (0u16..).zip(&self.streams) {
            for (index, item) in (0u32..).zip(&stream.items) {
                let priority = item.priority;
                members.push(Member { key: &item.bytes[..], priority, sender, index });
            }
        }
        let covered: Vec<usize> = self.streams.iter().map(|stream| stream.items.len()).collect();
        members.sort_by_key(|member| member.key);
        let variants = members.chunk_by(|a, b| a.key == b.key).count() as u64;
        self.collisions = variants.saturating_sub(self.shared_hashes);
        let lists = keep_best(plan, &members, &covered);
        let verdicts = final_verdicts(FrameKind::ItemsVerdict, plan, &lists, &covered);
        Decision { verdicts, done: true }
    }
}

impl Stream {
    fn held_bytes(&self) -> usize {
        let words = self.positions.capacity() + self.bits.capacity();
        let full_entries = self.full_entries.capacity() * size_of::<FullEntry>();
        words * size_of::<u64>() + self.groups.capacity() * size_of::<u32>() + full_entries
    }

    /// Appends a frame's entries.
    fn read(&mut self, plan: &Plan, cell: u32, frame: &Frame<'_>, left: usize) -> FrameResult<()> {
        match frame.kind {
            FrameKind::Positions if plan.mode == Mode::FullHash => {
                let range = HashRange::cell(cell, plan.shape.cells());
                let ends = (range.start(), range.last());
                read_full_hashes(frame, ends, plan.entry_priority_bits(), &mut self.full_entries)
            }
            FrameKind::Positions => {
                read_positions(frame, plan.cell_shape(cell).width(), &mut self.positions)
            }
            FrameKind::Refine => read_refine(frame, plan.refine_bits, &mut self.bits),
            FrameKind::Residues => self.read_residues(plan, cell, frame, left),
            _ => {
                self.items.append(&mut read_items(frame, plan)?);
                Ok(())
            }
        }
    }

    /// Restores the survivors' hashes from their positions, refinement bits and the frame's residues.
    fn read_residues(
        &mut self,
        plan: &Plan,
        cell: u32,
        frame: &Frame<'_>,
        left: usize,
    ) -> FrameResult<()> {
        let shape = plan.cell_shape(cell);
        let (hi, lo) = (plan.residue_bits(shape), plan.residue_low_bits());
        let bits = ResidueBits { hi, lo, priority: plan.entry_priority_bits() };
        let before = self.full_entries.len();
        for residue in bits.read(frame, left)? {
            let index = self.full_entries.len();
            let position = self.positions[index];
            let Some(hi) = shape.restore(position, residue.hi) else {
                self.full_entries.truncate(before);
                let residue = residue.hi;
                return Err(ExchangeFrameError::Residue { index, position, residue });
            };
            let refined =
                if plan.refine_bits == 0 { 0 } else { self.bits[index] << (64 - plan.refine_bits) };
            let hash = ItemHash::new(hi, refined | residue.lo);
            self.full_entries.push(FullEntry { hash, priority: residue.priority });
        }
        Ok(())
    }

    /// Starts a pass in which the sender must send this many entries.
    fn open_pass(&mut self, owed: usize) {
        self.next_sequence = 0;
        self.ended = owed == 0;
        self.owed = Some(owed);
        self.received = 0;
    }
}

/// Keeps the elements at these ascending indexes; leaves an empty list empty.
fn keep_only<T: Copy>(list: &mut Vec<T>, indexes: &[u32]) {
    if !list.is_empty() {
        for (to, &from) in indexes.iter().enumerate() {
            list[to] = list[from as usize];
        }
        list.truncate(indexes.len());
    }
}

/// One of the entries or items that the owner compares.
pub(super) struct Member<Key> {
    pub(super) key: Key,
    priority: Priority,
    pub(super) sender: u16,
    pub(super) index: u32,
}

/// Members of classes with more than one member.
fn count_shared<Key: PartialEq>(members: &[Member<Key>]) -> u64 {
    let classes = members.chunk_by(|a, b| a.key == b.key);
    classes.filter(|class| class.len() > 1).map(|class| class.len() as u64).sum()
}

/// For each sender the drops: of each class of equal keys all members but the one to keep. Where record ids are not sent
/// they are all zero here, and the sender's number decides: workers have contiguous parts of the input, in order.
fn keep_best<Key: PartialEq>(
    plan: &Plan,
    members: &[Member<Key>],
    covered: &[usize],
) -> Vec<VerdictList> {
    let mut drops: Vec<Vec<(u32, RecordId)>> = vec![Vec::new(); covered.len()];
    for class in members.chunk_by(|a, b| a.key == b.key).filter(|class| class.len() > 1) {
        let order = |member: &Member<Key>| (member.priority, member.sender, member.index);
        let mut best = &class[0];
        for member in &class[1..] {
            if plan.shape.keep.prefers(order(member), order(best)) {
                best = member;
            }
        }
        for member in class {
            if (member.sender, member.index) != (best.sender, best.index) {
                drops[usize::from(member.sender)].push((member.index, best.priority.record_id));
            }
        }
    }
    let verdict = |mut drops: Vec<(u32, RecordId)>| {
        drops.sort_unstable_by_key(|&(index, _)| index);
        let indexes = drops.iter().map(|&(index, _)| index).collect();
        let kept = if plan.record_id_bits.is_some() { drops } else { Vec::new() };
        let kept = kept.into_iter().map(|(_, kept)| kept).collect();
        VerdictList { indexes, by_reference: None, kept }
    };
    drops.into_iter().map(verdict).collect()
}

fn final_verdicts(
    kind: FrameKind,
    plan: &Plan,
    lists: &[VerdictList],
    covered: &[usize],
) -> Vec<(WorkerId, Draft)> {
    let asked = (0u16..).zip(lists.iter().zip(covered)).filter(|(_, (_, covered))| **covered > 0);
    asked
        .map(|(sender, (list, &covered))| {
            let covered = u32::try_from(covered).expect("32-bit indexes");
            let coded = list.encode(covered, plan.record_id_bits);
            (WorkerId(sender), Draft::verdict(kind, coded, true, covered))
        })
        .collect()
}
