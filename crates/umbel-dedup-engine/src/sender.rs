//! The sending half of a worker, for one cell.
//!
//! Input: the worker's [`LocalList`] of the cell, then one verdict per pass. Output: the frames of each pass,
//! and finally the [`Drops`]. After each verdict, `undecided` shrinks to the entries that still collide; an
//! exchange ends with the first final verdict, or earlier if no entry collides.

use super::drops::Drops;
use super::entry::{Priority, Suspect};
use super::error::ExchangeFrameError;
use super::frame::{Frame, FrameKind, flag};
use super::items::SenderItems;
use super::list::LocalList;
use super::payload::{
    CodedVerdict, FullEntry, Residue, ResidueBits, VerdictList, cut, cut_positions, expect_equal,
    write_full_hash,
};
use super::plan::{Mode, Plan};
use crate::FrameResult;
use umbel_bits::RiceCode;
use umbel_step::planted::{self, Planted};

/// A frame to be sent, without its cell and link.
pub(super) struct Draft {
    pub(super) kind: FrameKind,
    pub(super) flags: u8,
    pub(super) param: u8,
    pub(super) sequence: u32,
    pub(super) count: u32,
    pub(super) covered: u32,
    pub(super) payload: Vec<u8>,
}

impl Draft {
    /// The frames of a whole stream; the last one has the flag LAST.
    pub(super) fn stream(
        kind: FrameKind,
        flags: u8,
        param: u32,
        payloads: Vec<(Vec<u8>, u32)>,
    ) -> Vec<Self> {
        let param = u8::try_from(param).expect("code parameters are at most 64");
        let frames = payloads.len();
        let numbered = (0u32..).zip(payloads);
        numbered
            .map(|(sequence, (payload, count))| {
                let last = if sequence as usize + 1 == frames { flag::LAST } else { 0 };
                Self { kind, flags: flags | last, param, sequence, count, covered: 0, payload }
            })
            .collect()
    }

    /// The frame of a verdict.
    pub(super) fn verdict(
        kind: FrameKind,
        coded: CodedVerdict,
        is_final: bool,
        covered: u32,
    ) -> Self {
        let CodedVerdict { flags, param, count, payload } = coded;
        let flags = if is_final { flags | flag::FINAL } else { flags };
        Self { kind, flags, param, sequence: 0, count, covered, payload }
    }
}

/// The result of a step of the sending half.
pub(super) enum SenderStep {
    /// Send these frames to the owner and wait for its verdict.
    Send(Vec<Draft>),
    /// The worker has no entry in the cell: send the owner this empty stream, which gets no verdict.
    SendNothing(Vec<Draft>),
    /// Exactness `bytes`: read the items of these records.
    Compare(Vec<Suspect>),
    /// The cell is decided: these records are dropped.
    Decided(Drops),
}

/// What the sending half waits for: the verdict on the frames of this kind, or items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaits {
    Positions,
    Refine,
    Residues,
    Items,
    ItemsVerdict,
}

/// The sending half, for one cell.
pub(super) struct SenderCell {
    list: LocalList,
    /// Indexes into the list of entries that may have an equal one elsewhere: candidates after the first verdict,
    /// survivors after the second.
    undecided: Vec<u32>,
    awaits: Awaits,
    items: SenderItems,
}

impl SenderCell {
    /// Starts the exchange of a list.
    pub(super) fn start(plan: &Plan, cell: u32, list: LocalList) -> (Self, SenderStep) {
        let step_frames = match plan.mode {
            Mode::Filter => positions(plan, cell, &list),
            Mode::FullHash => full_hashes(plan, cell, &list),
            Mode::Local => Vec::new(),
        };
        let items = SenderItems::default();
        let mut sender = Self { list, undecided: Vec::new(), awaits: Awaits::Positions, items };
        let step = if plan.mode == Mode::Local {
            sender.decided(plan, &VerdictList::default(), &[])
        } else if sender.list.entries().is_empty() {
            SenderStep::SendNothing(step_frames)
        } else {
            SenderStep::Send(step_frames)
        };
        (sender, step)
    }

    /// Bytes of memory that its lists take, without items.
    pub(super) fn held_bytes(&self) -> usize {
        self.list.held_bytes() + self.undecided.capacity() * size_of::<u32>()
    }

    /// How many entries are undecided.
    pub(super) fn undecided_count(&self) -> usize {
        self.undecided.len()
    }

    /// Processes the owner's verdict. `Ok(None)`: a repetition of an earlier verdict.
    pub(super) fn verdict(
        &mut self,
        plan: &Plan,
        cell: u32,
        frame: &Frame<'_>,
    ) -> FrameResult<Option<SenderStep>> {
        let (kind, covered) = match self.awaits {
            Awaits::Positions => (FrameKind::PositionsVerdict, self.list.entries().len()),
            Awaits::Refine => (FrameKind::RefineVerdict, self.undecided.len()),
            Awaits::Residues => (FrameKind::ResiduesVerdict, self.undecided.len()),
            Awaits::ItemsVerdict => (FrameKind::ItemsVerdict, self.items.sent_count()),
            Awaits::Items => (FrameKind::ItemsVerdict, usize::MAX),
        };
        if frame.kind < kind {
            return Ok(None);
        }
        let unexpected = |field, expected: u64, got: u64| {
            Err(ExchangeFrameError::Unexpected { field, expected, got })
        };
        if frame.kind != kind || self.awaits == Awaits::Items {
            return unexpected("kind", kind as u64, frame.kind as u64);
        }
        expect_equal("covered", covered as u64, frame.covered)?;
        let is_final = self.next_is_final(plan);
        let flags_due = flag::LAST
            | if is_final { flag::FINAL } else { 0 }
            | if is_final && plan.record_id_bits.is_some() { flag::RECORD_ID } else { 0 }
            | if is_final && plan.references.is_some() { flag::CAUSE } else { 0 };
        let flags = frame.flags & (flag::LAST | flag::FINAL | flag::RECORD_ID | flag::CAUSE);
        if flags != flags_due || frame.sequence != 0 {
            return unexpected("flags", flags_due.into(), flags.into());
        }
        let record_id_bits = plan.record_id_bits.filter(|_| is_final);
        let verdict = VerdictList::decode(frame, record_id_bits)?;
        Ok(Some(self.follow(plan, cell, &verdict)))
    }

    /// Whether the next verdict is final: it lists drops instead of collisions.
    fn next_is_final(&self, plan: &Plan) -> bool {
        match self.awaits {
            Awaits::Positions => plan.mode == Mode::FullHash && !plan.compares_bytes(),
            Awaits::Refine => plan.ends_after_refine(),
            Awaits::Residues => !plan.compares_bytes(),
            Awaits::Items | Awaits::ItemsVerdict => true,
        }
    }

    /// Acts on a verdict: begins the next pass with the entries that it lists, or ends the exchange.
    fn follow(&mut self, plan: &Plan, cell: u32, verdict: &VerdictList) -> SenderStep {
        let is_final = self.next_is_final(plan);
        if self.awaits == Awaits::ItemsVerdict {
            return SenderStep::Decided(self.items.decided(plan, verdict));
        }
        let everything: Vec<u32>;
        let asked = if self.awaits == Awaits::Positions {
            everything = (0..u32::try_from(self.list.entries().len()).expect("checked")).collect();
            &everything
        } else {
            &self.undecided
        };
        let listed: Vec<u32> = verdict.indexes.iter().map(|&index| asked[index as usize]).collect();
        let compares_hashes = plan.mode == Mode::FullHash || self.awaits == Awaits::Residues;
        if is_final || compares_hashes {
            return self.decided(plan, verdict, &listed);
        }
        self.undecided = listed;
        if self.undecided.is_empty() {
            self.decided(plan, &VerdictList::default(), &[])
        } else if self.awaits == Awaits::Positions && plan.refine_bits > 0 {
            self.awaits = Awaits::Refine;
            SenderStep::Send(self.refine(plan))
        } else {
            self.awaits = Awaits::Residues;
            SenderStep::Send(self.residues(plan, cell))
        }
    }

    fn refine(&self, plan: &Plan) -> Vec<Draft> {
        let bits = plan.refine_bits;
        let entries = self.list.entries();
        let payloads = cut(&self.undecided, |writer, _, &index| {
            writer.write_bits(entries[index as usize].hash.lo() >> (64 - bits), bits);
        });
        Draft::stream(FrameKind::Refine, 0, bits, payloads)
    }

    fn residues(&self, plan: &Plan, cell: u32) -> Vec<Draft> {
        let shape = plan.cell_shape(cell);
        let lo = plan.residue_low_bits();
        let low_mask = if lo == 64 { u64::MAX } else { (1 << lo) - 1 };
        let priority_bits = plan.entry_priority_bits();
        let bits = ResidueBits { hi: plan.residue_bits(shape), lo, priority: priority_bits };
        let entries = self.list.entries();
        let payloads = cut(&self.undecided, |writer, _, &index| {
            let entry = entries[index as usize];
            let hi = if bits.hi == 0 { 0 } else { shape.residue(entry.hash.hi()) };
            let priority =
                Priority { rank: self.list.rank(index as usize), record_id: entry.record_id };
            bits.write(writer, Residue { hi, lo: entry.hash.lo() & low_mask, priority });
        });
        Draft::stream(FrameKind::Residues, priority_bits.flags(), bits.hi, payloads)
    }

    /// The next step once all hashes are compared. `listed` are the verdict's entries: those to drop, or at
    /// exactness `bytes` those whose hash another worker has, too.
    fn decided(&mut self, plan: &Plan, verdict: &VerdictList, listed: &[u32]) -> SenderStep {
        if plan.compares_bytes() {
            let suspects = self.suspects(listed);
            if suspects.is_empty() {
                return SenderStep::Decided(Drops::default());
            }
            self.awaits = Awaits::Items;
            self.list = LocalList::default();
            return SenderStep::Compare(suspects);
        }
        SenderStep::Decided(self.drops(plan, listed, verdict))
    }

    /// All dropped records: those of the verdict, and the local repeats. The entry that a repeat was dropped for may be
    /// dropped by the verdict; then the repeat's kept record is the one that the verdict names for that entry.
    fn drops(&self, plan: &Plan, dropped: &[u32], verdict: &VerdictList) -> Drops {
        let entries = self.list.entries();
        let repeats = self.list.repeats();
        let mut drops = Drops::with_capacity(dropped.len() + repeats.len());
        let mut kept = verdict.kept.iter();
        let is_known = |at: usize| verdict.by_reference.as_ref().is_some_and(|known| known[at]);
        for (at, &index) in dropped.iter().enumerate() {
            let record_id = entries[index as usize].record_id;
            drops.record_ids.push(record_id);
            let kept = if is_known(at) { Some(&record_id) } else { kept.next() };
            drops.kept.extend(kept.filter(|_| plan.record_id_bits.is_some()));
            drops.reference += u64::from(is_known(at));
        }
        drops.cross = dropped.len() as u64 - drops.reference;
        let mut next = 0;
        for repeat in repeats {
            next += dropped[next..].partition_point(|&index| index < repeat.index);
            let elsewhere = dropped.get(next) == Some(&repeat.index);
            drops.record_ids.push(repeat.record_id);
            drops.reference += u64::from(elsewhere && is_known(next));
            if plan.record_id_bits.is_some() {
                let here = entries[repeat.index as usize].record_id;
                drops.kept.push(if !elsewhere {
                    here
                } else if is_known(next) {
                    repeat.record_id
                } else {
                    drops.kept[next]
                });
            }
        }
        if plan.record_id_bits.is_some() && plan.shape.ranks_entries() {
            drops.ranks.extend(dropped.iter().map(|&index| self.list.rank(index as usize)));
            drops.ranks.extend(self.list.repeat_ranks());
        }
        if planted::on(Planted::LastDropLost) {
            drops.record_ids.pop();
            drops.kept.pop();
            drops.ranks.pop();
            let left = drops.record_ids.len() as u64;
            drops.reference = drops.reference.min(left);
            drops.cross = drops.cross.min(left - drops.reference);
        }
        drops
    }

    /// Every record whose hash occurs more than once, here or at another worker.
    fn suspects(&self, shared: &[u32]) -> Vec<Suspect> {
        let mut suspects = Vec::new();
        let mut shared = shared.iter().peekable();
        let mut repeats = self.list.repeats().to_vec();
        repeats.sort_by_key(|repeat| repeat.index); // fast if the list is sorted
        let mut repeats = repeats.iter().peekable();
        for (index, entry) in (0u32..).zip(self.list.entries()) {
            let is_shared = shared.next_if(|&&at| at == index).is_some();
            let mut suspect = |record_id| suspects.push(Suspect { record_id, shared: is_shared });
            if is_shared || repeats.peek().is_some_and(|repeat| repeat.index == index) {
                suspect(entry.record_id);
            }
            while let Some(repeat) = repeats.next_if(|repeat| repeat.index == index) {
                suspect(repeat.record_id);
            }
        }
        suspects
    }

    /// Takes the items that [`SenderStep::Compare`] requested; `None` if there was no such request.
    pub(super) fn items(
        &mut self,
        plan: &Plan,
        items: Vec<super::entry::SuspectItem>,
    ) -> Option<SenderStep> {
        if self.awaits != Awaits::Items {
            return None;
        }
        self.awaits = Awaits::ItemsVerdict;
        self.items = SenderItems::split(items, plan.shape.keep);
        Some(if self.items.sent_count() == 0 {
            SenderStep::Decided(self.items.decided(plan, &VerdictList::default()))
        } else {
            SenderStep::Send(self.items.drafts(plan))
        })
    }

    /// Different items with equal hashes that no other worker has.
    pub(super) fn local_collisions(&self) -> u64 {
        self.items.local_collisions()
    }
}

fn positions(plan: &Plan, cell: u32, list: &LocalList) -> Vec<Draft> {
    let (code, payloads) = cut_positions(plan.cell_shape(cell), list.entries());
    Draft::stream(FrameKind::Positions, 0, code.low_bits(), payloads)
}

fn full_hashes(plan: &Plan, cell: u32, list: &LocalList) -> Vec<Draft> {
    let range = umbel_filter::HashRange::cell(cell, plan.shape.cells());
    let entries = list.entries();
    let mean_gap = range.width() as f64 / entries.len().max(1) as f64;
    let code = RiceCode::for_mean_gap(mean_gap);
    let priority_bits = plan.entry_priority_bits();
    let mut index = 0;
    let payloads = cut(entries, |writer, before, entry| {
        let gap = entry.hash.hi() - before.map_or(range.start(), |before| before.hash.hi());
        let priority = Priority { rank: list.rank(index), record_id: entry.record_id };
        index += 1;
        write_full_hash(writer, code, gap, FullEntry { hash: entry.hash, priority }, priority_bits);
    });
    let flags = flag::FULL_HASH | priority_bits.flags();
    Draft::stream(FrameKind::Positions, flags, code.low_bits(), payloads)
}
