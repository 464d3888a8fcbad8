//! A generated job for the tables: random 128-bit hashes, generated cell by cell from a fixed seed, so that a
//! billion of them need no more memory than one cell; workers, coordinator, sample and frames are those of a
//! real job.

use std::process::ExitCode;
use umbel_dedup_engine::{
    CoordinatorInput, CoordinatorOutput, CostQuestion, Entry, Exactness, ExchangeCoordinator,
    ExchangeInput, ExchangeOutput, ExchangeReport, FilterChoice, JobShape, Keep, Mailbox, Mode,
    Plan, RecordId, SampleOrder, Worker, WorkerId,
};
use umbel_filter::{HashRange, ItemHash};
use umbel_step::Outbox;

/// Target entries of a cell, and fewest of a stream, as in `umbel dedup`.
const CELL_ENTRIES: u64 = 1 << 16;
const STREAM_ENTRIES_MIN: u64 = 1 << 12;

/// SplitMix64: every seed gives another sequence, the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, by multiply-shift.
    fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.roll()) * u128::from(bound)) >> 64).expect("below a u64")
    }

    fn chance(&mut self, chance: f64) -> bool {
        (self.roll() >> 11) as f64 / 2f64.powi(53) < chance
    }
}

/// A job of the table.
pub(crate) struct Job {
    pub(crate) shape: JobShape,
    pub(crate) entries: u64,
    /// Share of entries that one other worker has, too.
    pub(crate) delta: f64,
    pub(crate) choice: FilterChoice,
}

impl Job {
    pub(crate) fn new(workers: u32, entries: u64, delta: f64) -> Self {
        let w = u64::from(workers);
        let per_owner =
            (entries / CELL_ENTRIES / w).min(entries / STREAM_ENTRIES_MIN / w / w).max(1);
        let cells_per_owner = u32::try_from(per_owner).expect("few cells").next_power_of_two();
        let (exactness, keep) = (Exactness::Fingerprint, Keep::First);
        let shape = JobShape {
            workers,
            cells_per_owner,
            exactness,
            keep,
            report_kept: false,
            item_bytes_mean: 0.0,
        };
        Self { shape, entries, delta, choice: FilterChoice::Auto }
    }

    /// Every worker's entries of a cell. A pair of equal entries at two workers counts as two of the n entries.
    pub(crate) fn cell(&self, cell: u32) -> Vec<Vec<Entry>> {
        let range = HashRange::cell(cell, self.shape.cells());
        let width = u64::try_from(range.width()).unwrap_or(u64::MAX);
        let workers = u64::from(self.shape.workers);
        let mut dice = Dice(u64::from(cell) << 32 | 7);
        let mut lists = vec![Vec::new(); self.shape.workers as usize];
        let mut left = self.entries / u64::from(self.shape.cells().get());
        while left > 0 {
            let hash = ItemHash::new(range.start() + dice.below(width), dice.roll());
            let first = dice.below(workers);
            let pair = left > 1 && dice.chance(self.delta / (2.0 - self.delta));
            let mut give = |worker: u64| {
                let record_id = RecordId::new(u32::try_from(worker).expect("few workers"), left);
                lists[usize::try_from(worker).expect("few workers")]
                    .push(Entry { hash, record_id });
                left -= 1;
            };
            give(first);
            if pair {
                give((first + 1 + dice.below(workers - 1)) % workers);
            }
        }
        lists
    }

    pub(crate) fn workers(&self, plan: Option<Plan>) -> Vec<Worker> {
        let ids = 0..u16::try_from(self.shape.workers).expect("few workers");
        ids.map(|id| {
            let mut worker =
                Worker::new(WorkerId(id), self.shape, 1).expect("a shape within limits");
            if let Some(plan) = plan {
                worker.step(ExchangeInput::Plan(plan), &mut Outbox::new()).expect("the first plan");
            }
            worker
        })
        .collect()
    }

    /// Counts, samples, plans.
    pub(crate) fn plan(&self, report: &mut ExchangeReport) -> Plan {
        let mut coordinator =
            ExchangeCoordinator::new(self.shape, self.choice).expect("a shape within limits");
        let mut orders = Outbox::new();
        let items = self.entries / u64::from(self.shape.workers);
        for worker in 0..u16::try_from(self.shape.workers).expect("few workers") {
            let worker = WorkerId(worker);
            let (chunks_end, chunk_items_max) = (self.shape.workers, items);
            let counted = CoordinatorInput::Counted { worker, items, chunks_end, chunk_items_max };
            coordinator.step(counted, &mut orders).expect("a worker of the job");
        }
        loop {
            for order in orders.take() {
                match order {
                    CoordinatorOutput::Plan(plan) => return plan,
                    CoordinatorOutput::Sample(order) => {
                        for (owner, entries, candidates) in self.sample(order, report) {
                            let sampled = CoordinatorInput::Sampled { owner, entries, candidates };
                            coordinator.step(sampled, &mut orders).expect("a worker of the job");
                        }
                    }
                }
            }
        }
    }

    fn sample(&self, order: SampleOrder, report: &mut ExchangeReport) -> Vec<(WorkerId, u64, u64)> {
        let mut mailbox = Mailbox::new(self.workers(None));
        let mut inputs: Vec<Vec<Vec<Entry>>> = vec![Vec::new(); mailbox.workers().len()];
        for owner in 0..self.shape.workers {
            let range = self.shape.sample_range(owner);
            let lists = self.cell(owner * self.shape.cells_per_owner);
            for (worker, mut list) in lists.into_iter().enumerate() {
                list.retain(|entry| range.contains(entry.hash.hi()));
                inputs[worker].push(list);
            }
        }
        let inputs =
            inputs.into_iter().map(|lists| ExchangeInput::Sample { order, lists }).collect();
        let mut sampled = Vec::new();
        carry(&mut mailbox, inputs, |owner, output| {
            if let ExchangeOutput::Sampled { entries, candidates } = output {
                sampled.push((owner, entries, candidates));
            }
        });
        mailbox.workers().iter().for_each(|worker| *report += worker.report());
        sampled
    }

    /// Exchanges cell after cell. `around` is called around the exchange of each cell, without its generation.
    pub(crate) fn run(&self, mut around: impl FnMut(&mut dyn FnMut())) -> (Plan, ExchangeReport) {
        let mut report = ExchangeReport::default();
        let plan = self.plan(&mut report);
        let mut mailbox = Mailbox::new(self.workers(Some(plan)));
        for cell in 0..self.shape.cells().get() {
            let lists = self.cell(cell).into_iter();
            let mut inputs = Some(
                lists
                    .map(|entries| ExchangeInput::Cell { cell, entries, ranks: Vec::new() })
                    .collect(),
            );
            around(&mut || carry(&mut mailbox, inputs.take().unwrap_or_default(), |_, _| {}));
        }
        assert!(mailbox.workers().iter().all(Worker::is_idle), "every cell is decided");
        mailbox.workers().iter().for_each(|worker| report += worker.report());
        (plan, report)
    }

    /// The prediction of the cost model for this plan and these counts, in bits per entry, without headers and sample.
    pub(crate) fn model_bits(&self, plan: &Plan, report: &ExchangeReport) -> f64 {
        let question = CostQuestion {
            workers: self.shape.workers,
            entries: report.entries as f64,
            delta: report.shared as f64 / report.entries as f64,
            survivor_extra_bits: 0.0,
            references: None,
        };
        match plan.mode {
            Mode::Filter => question.filter_bits(plan.position_count, plan.refine_bits),
            _ => question.full_hash_bits(),
        }
    }
}

/// The plan, as shown in a cell of a table.
pub(crate) fn plan_name(plan: &Plan, entries: f64) -> String {
    match plan.mode {
        Mode::Filter => format!(
            "f {:.2}, B {}, r {}",
            plan.position_count as f64 / entries,
            plan.modulus_bits(),
            plan.refine_bits
        ),
        _ => "whole hashes".into(),
    }
}

/// Prints a Markdown table with some rows for each number of workers that the command line has, behind the number of
/// entries.
pub(crate) fn print_table<const ROWS: usize>(
    usage: &str,
    heading: [&str; 2],
    rows: impl Fn(u32, u64) -> [String; ROWS],
) -> ExitCode {
    let numbers: Result<Vec<u32>, _> = std::env::args().skip(1).map(|arg| arg.parse()).collect();
    let Ok([entries, workers @ ..]) = numbers.as_deref() else {
        eprintln!("usage: {usage}");
        return ExitCode::from(2);
    };
    println!("{}\n{}", heading[0], heading[1]);
    for &workers in workers {
        println!("{}", rows(workers, u64::from(*entries)).join("\n"));
    }
    ExitCode::SUCCESS
}

/// Passes every worker its input, and delivers frames until there are none.
fn carry(
    mailbox: &mut Mailbox,
    inputs: Vec<ExchangeInput>,
    mut other: impl FnMut(WorkerId, ExchangeOutput),
) {
    for (id, input) in (0u16..).zip(inputs) {
        mailbox.step(WorkerId(id), input).expect("an order that fits");
    }
    while let Some((worker, output)) = mailbox.carry().expect("our own frame") {
        other(worker, output);
    }
}
