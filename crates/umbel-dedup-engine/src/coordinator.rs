//! The coordinator of the exchange, as a state machine: chooses the [`Plan`].
//!
//! It waits for every worker's counts. Then it either plans at once (one worker, few items, exactness
//! `approximate`, or full hashes by choice), or orders a sample, waits for every owner's result, estimates
//! the share of entries that several workers have, and chooses the cheapest plan for it (see
//! [`super::cost`]).

use super::cost::{Cost, CostQuestion, cheapest};
use super::entry::{Keep, RANK_BITS, WorkerId};
use super::error::ExchangeError;
use super::plan::{
    Exactness, JobShape, Mode, Plan, RecordIdBits, ReferenceShape, SampleOrder, Truncation,
};
use serde::{Deserialize, Serialize};
use umbel_step::Outbox;

/// With fewer items, the whole exchange is a few megabytes, and full hashes are sent in one pass.
const FILTER_ITEMS_MIN: u64 = 1 << 20;

/// Positions of the sample's filter per item: one false collision in a thousand.
const SAMPLE_POSITIONS_PER_ITEM: u64 = 1024;

/// The user's choice of the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum FilterChoice {
    /// The cheapest one.
    #[default]
    Auto,
    /// A single-shot filter, even if full hashes are cheaper.
    SingleShot,
    /// Full hashes.
    FullHash,
}

/// An input of the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoordinatorInput {
    /// A worker has read its input.
    Counted {
        /// The worker.
        worker: WorkerId,
        /// Its items.
        items: u64,
        /// One more than the largest chunk number that it read; 0 if it read none.
        chunks_end: u32,
        /// The largest number of record ids that one of its chunks has.
        chunk_items_max: u64,
    },
    /// An owner has all streams of its part of the sample.
    Sampled {
        /// The owner.
        owner: WorkerId,
        /// Entries in its part of the sample.
        entries: u64,
        /// How many of them collided.
        candidates: u64,
    },
}

/// An output of the coordinator.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CoordinatorOutput {
    /// Order all workers to send the sample.
    Sample(SampleOrder),
    /// Order all workers to exchange by this plan.
    Plan(Plan),
}

/// The coordinator of the exchange.
///
/// ```
/// use umbel_step::Outbox;
/// use umbel_dedup_engine::*;
/// let shape = JobShape { workers: 1, cells_per_owner: 4, exactness: Exactness::Fingerprint, keep: Keep::First,
///                        report_kept: false, item_bytes_mean: 0.0 };
/// let mut coordinator = ExchangeCoordinator::new(shape, FilterChoice::Auto).unwrap();
/// let mut outbox = Outbox::new();
/// let counted = CoordinatorInput::Counted { worker: WorkerId(0), items: 9, chunks_end: 1, chunk_items_max: 9 };
/// coordinator.step(counted, &mut outbox).unwrap();
/// let [CoordinatorOutput::Plan(plan)] = outbox.take()[..] else { panic!() };
/// assert_eq!(plan.mode, Mode::Local); // one worker exchanges nothing
/// ```
#[derive(Debug)]
pub struct ExchangeCoordinator {
    shape: JobShape,
    choice: FilterChoice,
    references: Option<ReferenceShape>,
    counted: Vec<bool>,
    sampled: Vec<bool>,
    items: u64,
    chunks_end: u32,
    chunk_items_max: u64,
    sample_entries: u64,
    sample_candidates: u64,
}

impl ExchangeCoordinator {
    /// A coordinator that waits for its workers' counts.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::JobShape`] if the shape is beyond a limit.
    pub fn new(shape: JobShape, choice: FilterChoice) -> Result<Self, ExchangeError> {
        shape.validate()?;
        let workers = shape.workers as usize;
        Ok(Self {
            shape,
            choice,
            references: None,
            counted: vec![false; workers],
            sampled: vec![false; workers],
            items: 0,
            chunks_end: 0,
            chunk_items_max: 0,
            sample_entries: 0,
            sample_candidates: 0,
        })
    }

    /// Sets the references: hashes of earlier jobs with which entries are compared, too.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Driver`] at exactness `bytes`: an index has no items to compare with.
    pub fn with_references(mut self, references: ReferenceShape) -> Result<Self, ExchangeError> {
        if self.shape.exactness == Exactness::Bytes {
            return Err(ExchangeError::Driver { what: "no references at exactness bytes" });
        }
        self.references = Some(references);
        Ok(self)
    }

    /// One transition. A repeated input of the same worker is ignored.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Driver`] for a worker that the job does not have.
    pub fn step(
        &mut self,
        input: CoordinatorInput,
        out: &mut Outbox<CoordinatorOutput>,
    ) -> Result<(), ExchangeError> {
        let unknown = ExchangeError::Driver { what: "a worker that the job does not have" };
        match input {
            CoordinatorInput::Counted { worker, items, chunks_end, chunk_items_max } => {
                let counted = self.counted.get_mut(worker.index()).ok_or(unknown)?;
                if std::mem::replace(counted, true) {
                    return Ok(());
                }
                self.items = self.items.saturating_add(items);
                self.chunks_end = self.chunks_end.max(chunks_end);
                self.chunk_items_max = self.chunk_items_max.max(chunk_items_max);
                if !self.counted.contains(&false) {
                    self.all_counted(out);
                }
            }
            CoordinatorInput::Sampled { owner, entries, candidates } => {
                let sampled = self.sampled.get_mut(owner.index()).ok_or(unknown)?;
                if std::mem::replace(sampled, true) {
                    return Ok(());
                }
                self.sample_entries = self.sample_entries.saturating_add(entries);
                self.sample_candidates = self.sample_candidates.saturating_add(candidates);
                if !self.sampled.contains(&false) {
                    out.push(CoordinatorOutput::Plan(self.plan_from_sample()));
                }
            }
        }
        Ok(())
    }

    /// Whether a job with this many items needs a sample before its plan.
    fn needs_sample(shape: JobShape, items: u64, choice: FilterChoice) -> bool {
        let wants_filter = match choice {
            FilterChoice::Auto => items >= FILTER_ITEMS_MIN,
            FilterChoice::SingleShot => true,
            FilterChoice::FullHash => false,
        };
        let is_approximate = matches!(shape.exactness, Exactness::Approximate { .. });
        shape.workers > 1 && wants_filter && !is_approximate
    }

    /// The expected cost of a job's exchange with `items` entries, of which several workers have the share δ.
    ///
    /// # Panics
    ///
    /// If the shape is beyond a limit.
    #[must_use]
    pub fn expected_cost(
        shape: JobShape,
        items: u64,
        delta: f64,
        choice: FilterChoice,
        references: Option<ReferenceShape>,
    ) -> Cost {
        if Self::needs_sample(shape, items, choice) {
            return sampled_cost(&question(shape, items as f64, delta, None, references), choice);
        }
        let plan = plan_at_once(shape, items, None, choice, references);
        let Plan {
            mode,
            position_count,
            refine_bits,
            predicted_bits_per_entry: bits_per_entry,
            ..
        } = plan;
        Cost { mode, position_count, refine_bits, bits_per_entry }
    }

    fn all_counted(&self, out: &mut Outbox<CoordinatorOutput>) {
        if Self::needs_sample(self.shape, self.items, self.choice) {
            out.push(CoordinatorOutput::Sample(self.sample_order()));
        } else {
            let record_id_bits = self.record_id_bits();
            let plan =
                plan_at_once(self.shape, self.items, record_id_bits, self.choice, self.references);
            out.push(CoordinatorOutput::Plan(plan));
        }
    }

    fn sample_order(&self) -> SampleOrder {
        let entries = self.items.saturating_add(self.reference_entries());
        let positions = entries.saturating_mul(SAMPLE_POSITIONS_PER_ITEM);
        SampleOrder { position_count: positions.clamp(1, 1 << 60) }
    }

    fn reference_entries(&self) -> u64 {
        self.references.map_or(0, |references| references.entries)
    }

    fn record_id_bits(&self) -> Option<RecordIdBits> {
        let bits_for = |values: u64| values.saturating_sub(1).checked_ilog2().map_or(0, |b| b + 1);
        let chunk = bits_for(self.chunks_end.into());
        let item = bits_for(self.chunk_items_max);
        self.shape.report_kept.then_some(RecordIdBits { chunk, item })
    }

    /// The plan of a job that needs no sample: one worker, few items, exactness `approximate`, or full hashes by choice.
    ///
    /// # Panics
    ///
    /// If the shape is beyond a limit.
    #[must_use]
    pub fn plan_without_sample(
        shape: JobShape,
        items: u64,
        record_id_bits: Option<RecordIdBits>,
        choice: FilterChoice,
    ) -> Plan {
        plan_at_once(shape, items, record_id_bits, choice, None)
    }

    fn plan_from_sample(&self) -> Plan {
        let record_id_bits = self.record_id_bits();
        let sampled = self.sample_entries as f64;
        let entries = (sampled / self.shape.sample_share()).clamp(1.0, self.items.max(1) as f64);
        let delta = self.delta(entries);
        let question = question(self.shape, entries, delta, record_id_bits, self.references);
        let cost = sampled_cost(&question, self.choice);
        plan(self.shape, cost, None, record_id_bits, &question)
    }

    /// δ̂ = (c/s − e)/(1 − e), for c candidates among s sampled entries: the share of candidates, corrected by the expected
    /// share e of false collisions in the sample's filter.
    fn delta(&self, entries: f64) -> f64 {
        if self.sample_entries == 0 {
            return 0.0;
        }
        let positions = self.sample_order().position_count as f64;
        let others = 1.0 - 1.0 / f64::from(self.shape.workers);
        let others = others * entries + self.reference_entries() as f64;
        let by_chance = -(-others / positions).exp_m1();
        let candidates = self.sample_candidates as f64 / self.sample_entries as f64;
        ((candidates - by_chance) / (1.0 - by_chance)).clamp(0.0, 1.0)
    }
}

/// The plan of a job that needs no sample.
fn plan_at_once(
    shape: JobShape,
    items: u64,
    record_id_bits: Option<RecordIdBits>,
    choice: FilterChoice,
    references: Option<ReferenceShape>,
) -> Plan {
    shape.validate().expect("a shape within its limits");
    let question = question(shape, items as f64, 0.0, record_id_bits, references);
    let mut cost = if choice == FilterChoice::SingleShot {
        question.cheapest_filter().unwrap_or_else(|| cheapest(&question))
    } else {
        let bits_per_entry = question.full_hash_bits();
        Cost { mode: Mode::FullHash, position_count: 0, refine_bits: 0, bits_per_entry }
    };
    let mut truncation = None;
    if let Exactness::Approximate { false_positive_rate } = shape.exactness {
        let compared = items.saturating_add(references.map_or(0, |references| references.entries));
        let t = Truncation::for_rate(compared, false_positive_rate);
        let (position_count, refine_bits) = (1 << t.position_bits, t.refine_bits);
        let bits_per_entry = question.filter_bits(position_count, refine_bits);
        cost = Cost { mode: Mode::Filter, position_count, refine_bits, bits_per_entry };
        truncation = Some(t);
    }
    if shape.workers == 1 && references.is_none() {
        let nothing =
            Cost { mode: Mode::Local, position_count: 0, refine_bits: 0, bits_per_entry: 0.0 };
        cost = nothing;
    }
    plan(shape, cost, truncation, record_id_bits, &question)
}

/// The cheapest exchange that the choice allows.
fn sampled_cost(question: &CostQuestion, choice: FilterChoice) -> Cost {
    let filter = match choice {
        FilterChoice::SingleShot => question.cheapest_filter(),
        _ => None,
    };
    filter.unwrap_or_else(|| cheapest(question))
}

fn question(
    shape: JobShape,
    entries: f64,
    delta: f64,
    record_id_bits: Option<RecordIdBits>,
    references: Option<ReferenceShape>,
) -> CostQuestion {
    let record_id_width = f64::from(record_id_bits.map_or(0, RecordIdBits::total));
    let rank_bits = if shape.keep == Keep::Best { f64::from(RANK_BITS) } else { 0.0 };
    let item_bits =
        if shape.exactness == Exactness::Bytes { 8.0 * shape.item_bytes_mean } else { 0.0 };
    CostQuestion {
        workers: shape.workers,
        entries: entries.max(1.0),
        delta,
        survivor_extra_bits: record_id_width + rank_bits + item_bits,
        references,
    }
}

fn plan(
    shape: JobShape,
    cost: Cost,
    truncation: Option<Truncation>,
    record_id_bits: Option<RecordIdBits>,
    question: &CostQuestion,
) -> Plan {
    Plan {
        shape,
        mode: cost.mode,
        position_count: cost.position_count,
        refine_bits: cost.refine_bits,
        truncation,
        record_id_bits,
        references: question.references,
        entries_estimate: question.entries,
        delta_estimate: question.delta,
        predicted_bits_per_entry: cost.bits_per_entry,
    }
}
