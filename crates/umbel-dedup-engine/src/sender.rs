//! The sending half of a worker, for one cell: its list, what of it is still in doubt, and what came of it.

use super::drops::Drops;
use super::entry::{Standing, Suspect};
use super::error::FrameError;
use super::frame::{Frame, FrameKind, flag};
use super::items::SenderItems;
use super::list::LocalList;
use super::payload::{
    CodedVerdict, Residue, ResidueBits, Settled, VerdictList, cut, cut_positions, write_wide,
};
use super::plan::{Mode, Plan};
use umbel_bits::RiceCode;
use umbel_step::planted::{self, Planted};

/// A frame without its link: what a half of a worker wants sent.
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
    /// The drafts of a whole stream; the last one says so.
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

    /// The draft of a verdict.
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

/// What the sending half wants after a step.
pub(super) enum SenderStep {
    /// These frames to the owner, who will answer.
    Send(Vec<Draft>),
    /// These frames to the owner, who must hear that there is nothing to answer.
    SendNothing(Vec<Draft>),
    /// Level `bytes`: the items of these records.
    Compare(Vec<Suspect>),
    /// The cell is decided.
    Settled(Drops),
}

/// What the sending half waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaits {
    Positions,
    Refine,
    Settle,
    Items,
    ItemsVerdict,
}

/// The sending half, for one cell.
pub(super) struct SenderCell {
    list: LocalList,
    /// Indexes into the list: candidates after the first verdict, survivors after the second.
    doubtful: Vec<u32>,
    awaits: Awaits,
    items: SenderItems,
}

impl SenderCell {
    /// Starts the exchange of a list.
    pub(super) fn start(plan: &Plan, cell: u32, list: LocalList) -> (Self, SenderStep) {
        let step_frames = match plan.mode {
            Mode::Filter => positions(plan, cell, &list),
            Mode::Wide => wide_positions(plan, cell, &list),
            Mode::Local => Vec::new(),
        };
        let items = SenderItems::default();
        let mut sender = Self { list, doubtful: Vec::new(), awaits: Awaits::Positions, items };
        let step = if plan.mode == Mode::Local {
            sender.decided(plan, &VerdictList::default(), &[])
        } else if sender.list.entries().is_empty() {
            SenderStep::SendNothing(step_frames)
        } else {
            SenderStep::Send(step_frames)
        };
        (sender, step)
    }

    /// Bytes of its lists in memory; items are not counted.
    pub(super) fn held_bytes(&self) -> usize {
        self.list.held_bytes() + self.doubtful.capacity() * size_of::<u32>()
    }

    /// How many entries are still in doubt.
    pub(super) fn doubtful_count(&self) -> usize {
        self.doubtful.len()
    }

    /// Takes the owner's verdict. `Ok(None)`: a verdict that was heard before.
    pub(super) fn verdict(
        &mut self,
        plan: &Plan,
        cell: u32,
        frame: &Frame<'_>,
    ) -> Result<Option<SenderStep>, FrameError> {
        let (kind, covered) = match self.awaits {
            Awaits::Positions => (FrameKind::PositionsVerdict, self.list.entries().len()),
            Awaits::Refine => (FrameKind::RefineVerdict, self.doubtful.len()),
            Awaits::Settle => (FrameKind::SettleVerdict, self.doubtful.len()),
            Awaits::ItemsVerdict => (FrameKind::ItemsVerdict, self.items.sent_count()),
            Awaits::Items => (FrameKind::ItemsVerdict, usize::MAX),
        };
        if frame.kind < kind {
            return Ok(None);
        }
        let unexpected =
            |field, expected: u64, got: u64| Err(FrameError::Unexpected { field, expected, got });
        if frame.kind != kind || self.awaits == Awaits::Items {
            return unexpected("kind", kind as u64, frame.kind as u64);
        }
        if frame.covered as usize != covered {
            return unexpected("covered", covered as u64, frame.covered.into());
        }
        let is_final = self.next_is_final(plan);
        let flags_due = flag::LAST
            | if is_final { flag::FINAL } else { 0 }
            | if is_final && plan.place_bits.is_some() { flag::PLACE } else { 0 }
            | if is_final && plan.references.is_some() { flag::CAUSE } else { 0 };
        let flags = frame.flags & (flag::LAST | flag::FINAL | flag::PLACE | flag::CAUSE);
        if flags != flags_due || frame.sequence != 0 {
            return unexpected("flags", flags_due.into(), flags.into());
        }
        let place_bits = plan.place_bits.filter(|_| is_final);
        let verdict = VerdictList::decode(frame, place_bits)?;
        Ok(Some(self.follow(plan, cell, &verdict)))
    }

    /// Whether the verdict that is awaited ends the exchange.
    fn next_is_final(&self, plan: &Plan) -> bool {
        match self.awaits {
            Awaits::Positions => plan.mode == Mode::Wide && !plan.compares_bytes(),
            Awaits::Refine => plan.ends_after_refine(),
            Awaits::Settle => !plan.compares_bytes(),
            Awaits::Items | Awaits::ItemsVerdict => true,
        }
    }

    /// Does what the verdict asks for.
    fn follow(&mut self, plan: &Plan, cell: u32, verdict: &VerdictList) -> SenderStep {
        let is_final = self.next_is_final(plan);
        if self.awaits == Awaits::ItemsVerdict {
            return SenderStep::Settled(self.items.decided(plan, verdict));
        }
        let everything: Vec<u32>;
        let asked = if self.awaits == Awaits::Positions {
            everything = (0..u32::try_from(self.list.entries().len()).expect("checked")).collect();
            &everything
        } else {
            &self.doubtful
        };
        let meant: Vec<u32> = verdict.indexes.iter().map(|&index| asked[index as usize]).collect();
        let settles = plan.mode == Mode::Wide || self.awaits == Awaits::Settle;
        if is_final || settles {
            return self.decided(plan, verdict, &meant);
        }
        self.doubtful = meant;
        if self.doubtful.is_empty() {
            self.decided(plan, &VerdictList::default(), &[])
        } else if self.awaits == Awaits::Positions && plan.refine_bits > 0 {
            self.awaits = Awaits::Refine;
            SenderStep::Send(self.refine(plan))
        } else {
            self.awaits = Awaits::Settle;
            SenderStep::Send(self.settle(plan, cell))
        }
    }

    fn refine(&self, plan: &Plan) -> Vec<Draft> {
        let bits = plan.refine_bits;
        let entries = self.list.entries();
        let payloads = cut(&self.doubtful, |writer, _, &index| {
            writer.write_bits(entries[index as usize].hash.lo() >> (64 - bits), bits);
        });
        Draft::stream(FrameKind::Refine, 0, bits, payloads)
    }

    fn settle(&self, plan: &Plan, cell: u32) -> Vec<Draft> {
        let shape = plan.cell_shape(cell);
        let lo = plan.settle_low_bits();
        let low_mask = if lo == 64 { u64::MAX } else { (1 << lo) - 1 };
        let standing_bits = plan.entry_standing_bits();
        let bits = ResidueBits { hi: plan.residue_bits(shape), lo, standing: standing_bits };
        let entries = self.list.entries();
        let payloads = cut(&self.doubtful, |writer, _, &index| {
            let entry = entries[index as usize];
            let hi = if bits.hi == 0 { 0 } else { shape.residue(entry.hash.hi()) };
            let standing = Standing { rank: self.list.rank(index as usize), place: entry.place };
            bits.write(writer, Residue { hi, lo: entry.hash.lo() & low_mask, standing });
        });
        Draft::stream(FrameKind::Settle, standing_bits.flags(), bits.hi, payloads)
    }

    /// What is left to do when hashes are settled: `meant` are the drops, or at level `bytes` the entries whose hash
    /// another worker holds too.
    fn decided(&mut self, plan: &Plan, verdict: &VerdictList, meant: &[u32]) -> SenderStep {
        if plan.compares_bytes() {
            let suspects = self.suspects(meant);
            if suspects.is_empty() {
                return SenderStep::Settled(Drops::default());
            }
            self.awaits = Awaits::Items;
            self.list = LocalList::default();
            return SenderStep::Compare(suspects);
        }
        SenderStep::Settled(self.drops(plan, meant, verdict))
    }

    /// All dropped places: those of the verdict, and the local repeats, whose keeper may have been dropped itself.
    fn drops(&self, plan: &Plan, dropped: &[u32], verdict: &VerdictList) -> Drops {
        let entries = self.list.entries();
        let repeats = self.list.repeats();
        let mut drops = Drops::with_capacity(dropped.len() + repeats.len());
        let mut kept = verdict.kept.iter();
        let is_known = |at: usize| verdict.by_reference.as_ref().is_some_and(|known| known[at]);
        for (at, &index) in dropped.iter().enumerate() {
            let place = entries[index as usize].place;
            drops.places.push(place);
            let kept = if is_known(at) { Some(&place) } else { kept.next() };
            drops.kept.extend(kept.filter(|_| plan.place_bits.is_some()));
            drops.reference += u64::from(is_known(at));
        }
        drops.cross = dropped.len() as u64 - drops.reference;
        let mut next = 0;
        for repeat in repeats {
            next += dropped[next..].partition_point(|&index| index < repeat.index);
            let elsewhere = dropped.get(next) == Some(&repeat.index);
            drops.places.push(repeat.place);
            drops.reference += u64::from(elsewhere && is_known(next));
            if plan.place_bits.is_some() {
                let here = entries[repeat.index as usize].place;
                drops.kept.push(match elsewhere {
                    true if is_known(next) => repeat.place,
                    true => drops.kept[next],
                    false => here,
                });
            }
        }
        if plan.place_bits.is_some() && plan.shape.ranks_entries() {
            drops.ranks.extend(dropped.iter().map(|&index| self.list.rank(index as usize)));
            drops.ranks.extend(self.list.repeat_ranks());
        }
        if planted::on(Planted::LastDropLost) {
            drops.places.pop();
            drops.kept.pop();
            drops.ranks.pop();
            let left = drops.places.len() as u64;
            drops.reference = drops.reference.min(left);
            drops.cross = drops.cross.min(left - drops.reference);
        }
        drops
    }

    /// Every record whose hash stands twice, here or with another worker.
    fn suspects(&self, shared: &[u32]) -> Vec<Suspect> {
        let mut suspects = Vec::new();
        let mut shared = shared.iter().peekable();
        let mut repeats = self.list.repeats().iter().peekable();
        for (index, entry) in (0u32..).zip(self.list.entries()) {
            let is_shared = shared.next_if(|&&at| at == index).is_some();
            let mut suspect = |place| suspects.push(Suspect { place, shared: is_shared });
            if is_shared || repeats.peek().is_some_and(|repeat| repeat.index == index) {
                suspect(entry.place);
            }
            while let Some(repeat) = repeats.next_if(|repeat| repeat.index == index) {
                suspect(repeat.place);
            }
        }
        suspects
    }

    /// Takes the items that [`SenderStep::Compare`] asked for; `None` if it did not ask.
    pub(super) fn items(
        &mut self,
        plan: &Plan,
        items: Vec<super::entry::Item>,
    ) -> Option<SenderStep> {
        if self.awaits != Awaits::Items {
            return None;
        }
        self.awaits = Awaits::ItemsVerdict;
        self.items = SenderItems::split(items, plan.shape.keep);
        Some(if self.items.sent_count() == 0 {
            SenderStep::Settled(self.items.decided(plan, &VerdictList::default()))
        } else {
            SenderStep::Send(self.items.drafts(plan))
        })
    }

    /// Different items with equal hashes that this half has found among its own.
    pub(super) fn local_collisions(&self) -> u64 {
        self.items.local_collisions()
    }
}

fn positions(plan: &Plan, cell: u32, list: &LocalList) -> Vec<Draft> {
    let (code, payloads) = cut_positions(plan.cell_shape(cell), list.entries());
    Draft::stream(FrameKind::Positions, 0, code.low_bits(), payloads)
}

fn wide_positions(plan: &Plan, cell: u32, list: &LocalList) -> Vec<Draft> {
    let range = umbel_filter::HashRange::cell(cell, plan.shape.cells());
    let entries = list.entries();
    let mean_gap = range.width() as f64 / entries.len().max(1) as f64;
    let code = RiceCode::for_mean_gap(mean_gap);
    let standing_bits = plan.entry_standing_bits();
    let mut index = 0;
    let payloads = cut(entries, |writer, before, entry| {
        let gap = entry.hash.hi() - before.map_or(range.start(), |before| before.hash.hi());
        let standing = Standing { rank: list.rank(index), place: entry.place };
        index += 1;
        write_wide(writer, code, gap, Settled { hash: entry.hash, standing }, standing_bits);
    });
    let flags = flag::WIDE | standing_bits.flags();
    Draft::stream(FrameKind::Positions, flags, code.low_bits(), payloads)
}
