//! A harness for N workers, which delivers their frames in any order, and some of them twice.

use std::collections::BTreeMap;
use umbel_dedup_engine::{
    Entry, Exactness, ExchangeCoordinator, ExchangeInput, ExchangeOutput, ExchangeReport,
    FilterChoice, JobShape, Keep, Mailbox, Plan, Rank, RecordId, RecordIdBits, SuspectItem, Worker,
    WorkerId,
};
use umbel_filter::ItemHash;
use umbel_step::Outbox;

/// A record: its id, hash, rank and bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) record_id: RecordId,
    pub(crate) hash: ItemHash,
    pub(crate) rank: Rank,
    pub(crate) bytes: Vec<u8>,
}

/// Pseudo-random numbers, which depend on the seed alone.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        // SplitMix64: a full-period counter through a mixing function.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }
}

pub(crate) fn shape(
    workers: u32,
    cells_per_owner: u32,
    exactness: Exactness,
    keep: Keep,
    report: bool,
) -> JobShape {
    JobShape {
        workers,
        cells_per_owner,
        exactness,
        keep,
        report_kept: report,
        item_bytes_mean: 0.0,
    }
}

/// A plan with record ids of 8 + 16 bits, in the mode that the coordinator chooses for so many items.
pub(crate) fn plan(shape: JobShape, items: u64, choice: FilterChoice) -> Plan {
    let record_id_bits = shape.report_kept.then_some(RecordIdBits { chunk: 8, item: 16 });
    ExchangeCoordinator::plan_without_sample(shape, items, record_id_bits, choice)
}

/// The rank of a record; there are few different ones, so that many are equal, and they do not follow the
/// record ids.
fn rank_of(index: usize) -> Rank {
    Rank([1, u64::MAX, 0, 7 << 40][Dice(index as u64).roll(4)])
}

/// The records of each worker, in order: chunk w is the input of worker w.
pub(crate) fn deal(items: &[(ItemHash, Vec<u8>)], workers: u32) -> Vec<Vec<Record>> {
    let mut parts = vec![Vec::new(); workers as usize];
    for (index, (hash, bytes)) in items.iter().enumerate() {
        let worker = index * workers as usize / items.len();
        let record_id = RecordId::new(worker as u32, parts[worker].len() as u64);
        let (hash, rank, bytes) = (*hash, rank_of(index), bytes.clone());
        parts[worker].push(Record { record_id, hash, rank, bytes });
    }
    parts
}

/// The result of a run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Dropped record and, if reported, the kept one; in input order.
    pub(crate) drops: Vec<(RecordId, Option<RecordId>)>,
    /// The rank of each dropped item, if that is reported; in input order.
    pub(crate) ranks: Vec<(RecordId, Rank)>,
    /// Decided cells, summed over workers.
    pub(crate) decided: u32,
    pub(crate) report: ExchangeReport,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) workers: Vec<Worker>,
    parts: Vec<Vec<Record>>,
    /// The references.
    pub(crate) references: Vec<ItemHash>,
    mail: Vec<(WorkerId, WorkerId, Vec<u8>)>,
    outcome: Outcome,
}

impl World {
    pub(crate) fn new(plan: Plan, parts: Vec<Vec<Record>>) -> Self {
        let workers = (0..plan.shape.workers as u16)
            .map(|id| Worker::new(WorkerId(id), plan.shape, 99).unwrap())
            .collect();
        let (references, mail) = (Vec::new(), Vec::new());
        Self { plan, workers, parts, references, mail, outcome: Outcome::default() }
    }

    pub(crate) fn step(&mut self, worker: usize, input: ExchangeInput) {
        let mut outbox = Outbox::new();
        self.workers[worker].step(input, &mut outbox).unwrap();
        for output in outbox.take() {
            self.follow(worker, output);
        }
    }

    fn follow(&mut self, worker: usize, output: ExchangeOutput) {
        match output {
            ExchangeOutput::Send { to, frame } => {
                self.mail.push((WorkerId(worker as u16), to, frame));
            }
            ExchangeOutput::Decided { drops, .. } => {
                self.outcome.decided += 1;
                self.outcome.ranks.extend(drops.record_ids.iter().copied().zip(drops.ranks));
                let kept = drops.kept.iter().copied().map(Some).chain(std::iter::repeat(None));
                self.outcome.drops.extend(drops.record_ids.into_iter().zip(kept));
            }
            ExchangeOutput::Compare { cell, suspects } => {
                let item = |suspect: umbel_dedup_engine::Suspect| {
                    let record = &self.parts[worker][suspect.record_id.item() as usize];
                    let Record { hash, rank, bytes, .. } = record.clone();
                    SuspectItem {
                        hash,
                        record_id: suspect.record_id,
                        shared: suspect.shared,
                        rank,
                        bytes,
                    }
                };
                let items = suspects.into_iter().map(item).collect();
                self.step(worker, ExchangeInput::Items { cell, items });
            }
            ExchangeOutput::Sampled { .. } => unreachable!("no sample was ordered"),
        }
    }

    /// Gives each worker its plan and its cells.
    pub(crate) fn start(&mut self) {
        (0..self.workers.len()).for_each(|worker| self.start_one(worker));
    }

    /// Gives one worker its plan and its cells.
    pub(crate) fn start_one(&mut self, worker: usize) {
        let cells = self.plan.shape.cells();
        let mut lists: BTreeMap<u32, (Vec<Entry>, Vec<Rank>)> =
            (0..cells.get()).map(|cell| (cell, Default::default())).collect();
        for record in &self.parts[worker] {
            let entry = Entry { hash: record.hash, record_id: record.record_id };
            let (entries, ranks) = lists.get_mut(&cells.cell_of(record.hash.hi())).unwrap();
            entries.push(entry);
            ranks.extend(self.plan.shape.ranks_entries().then_some(record.rank));
        }
        self.step(worker, ExchangeInput::Plan(self.plan));
        for (cell, (entries, ranks)) in lists {
            self.step(worker, ExchangeInput::Cell { cell, entries, ranks });
        }
        if self.plan.references.is_some() {
            let own = |cell: &u32| self.plan.shape.owner(*cell) == worker as u32;
            for cell in (0..cells.get()).filter(own).collect::<Vec<_>>() {
                let mut hashes = self.references.clone();
                hashes.retain(|hash| cells.cell_of(hash.hi()) == cell);
                self.step(worker, ExchangeInput::References { cell, hashes });
            }
        }
    }

    /// Delivers one frame; with `twice` a copy is delivered again later.
    pub(crate) fn deliver(&mut self, letter: usize, twice: bool) {
        let (from, to, bytes) = self.mail.swap_remove(letter);
        if twice {
            self.mail.push((from, to, bytes.clone()));
        }
        self.step(to.index(), ExchangeInput::Frame { from, bytes });
    }

    /// Delivers the oldest frame.
    pub(crate) fn deliver_oldest(&mut self) {
        let (from, to, bytes) = self.mail.remove(0);
        self.step(to.index(), ExchangeInput::Frame { from, bytes });
    }

    pub(crate) fn letters(&self) -> usize {
        self.mail.len()
    }

    pub(crate) fn letter(&self, index: usize) -> &(WorkerId, WorkerId, Vec<u8>) {
        &self.mail[index]
    }

    /// Discards a frame.
    pub(crate) fn lose(&mut self, letter: usize) {
        self.mail.swap_remove(letter);
    }

    /// Runs until there are no frames, in an order that the dice choose.
    pub(crate) fn run(mut self, dice: &mut Dice) -> Outcome {
        self.start();
        while !self.mail.is_empty() {
            let letter = dice.roll(self.mail.len());
            let twice = dice.roll(8) == 0;
            self.deliver(letter, twice);
        }
        self.finish()
    }

    pub(crate) fn finish(mut self) -> Outcome {
        self.outcome.drops.sort_unstable();
        self.outcome.ranks.sort_unstable();
        for worker in &self.workers {
            self.outcome.report += worker.report();
        }
        self.outcome
    }
}

/// Exchanges the sample, and returns the counts of each owner.
pub(crate) fn sample(
    shape: JobShape,
    parts: &[Vec<Record>],
    order: umbel_dedup_engine::SampleOrder,
) -> Vec<(u64, u64)> {
    let ids = (0..shape.workers as u16).map(WorkerId);
    let workers = ids.clone().map(|id| Worker::new(id, shape, 1).unwrap());
    let mut mailbox = Mailbox::new(workers.collect());
    let mut sampled = BTreeMap::new();
    for (id, part) in ids.zip(parts) {
        let list = |owner| {
            let range = shape.sample_range(owner);
            let inside = part.iter().filter(|record| range.contains(record.hash.hi()));
            inside.map(|record| Entry { hash: record.hash, record_id: record.record_id }).collect()
        };
        let lists = (0..shape.workers).map(list).collect();
        mailbox.step(id, ExchangeInput::Sample { order, lists }).unwrap();
    }
    while let Some((owner, output)) = mailbox.carry().unwrap() {
        let ExchangeOutput::Sampled { entries, candidates } = output else {
            panic!("unexpected {output:?}")
        };
        sampled.insert(owner, (entries, candidates));
    }
    sampled.into_values().collect()
}
