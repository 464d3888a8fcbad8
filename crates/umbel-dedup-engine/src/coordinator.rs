//! Counts, samples, and chooses the plan.

use super::cost::{Cost, CostQuestion, cheapest};
use super::entry::{Keep, RANK_BITS, WorkerId};
use super::error::ExchangeError;
use super::plan::{
    JobShape, Level, Mode, PlaceBits, Plan, ReferenceShape, SampleOrder, Truncation,
};
use serde::{Deserialize, Serialize};
use umbel_step::Outbox;

/// Below this many items the whole exchange is a few megabytes: hashes are shipped whole, in one round.
const FILTER_ITEMS_MIN: u64 = 1 << 20;

/// Positions of the sample's filter an item: one false hit in a thousand.
const SAMPLE_POSITIONS_PER_ITEM: u64 = 1024;

/// What the user says about the filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum FilterChoice {
    /// Whatever is cheapest.
    #[default]
    Auto,
    /// A single-shot filter, however small or similar the inputs are.
    SingleShot,
    /// Whole hashes.
    Wide,
}

/// What the coordinator is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoordinatorInput {
    /// A worker has read its input.
    Counted {
        /// Who.
        worker: WorkerId,
        /// Its items.
        items: u64,
        /// One above the largest chunk number it read; 0 if it read none.
        chunks_end: u32,
        /// The most items that one of its chunks holds.
        chunk_items_max: u64,
    },
    /// An owner has seen the sample.
    Sampled {
        /// Who.
        owner: WorkerId,
        /// Entries in its part of the sample.
        entries: u64,
        /// How many of them collided.
        candidates: u64,
    },
}

/// What the coordinator wants done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CoordinatorOutput {
    /// To all workers: send the sample.
    Sample(SampleOrder),
    /// To all workers: exchange by this plan.
    Plan(Plan),
}

/// The coordinator of a job.
///
/// ```
/// use umbel_step::Outbox;
/// use umbel_dedup_engine::*;
/// let shape = JobShape { workers: 1, cells_per_owner: 4, level: Level::Fingerprint, keep: Keep::First,
///                        report_kept: false, item_bytes_mean: 0.0 };
/// let mut coordinator = Coordinator::new(shape, FilterChoice::Auto).unwrap();
/// let mut outbox = Outbox::new();
/// let counted = CoordinatorInput::Counted { worker: WorkerId(0), items: 9, chunks_end: 1, chunk_items_max: 9 };
/// coordinator.step(counted, &mut outbox).unwrap();
/// let [CoordinatorOutput::Plan(plan)] = outbox.take()[..] else { panic!() };
/// assert_eq!(plan.mode, Mode::Local); // one worker has nobody to ask
/// ```
#[derive(Debug)]
pub struct Coordinator {
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

impl Coordinator {
    /// A coordinator that waits for its workers.
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

    /// The same, for a job that compares with the hashes of earlier jobs too.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Driver`] at level `bytes`: an index holds no items to compare with.
    pub fn with_references(mut self, references: ReferenceShape) -> Result<Self, ExchangeError> {
        if self.shape.level == Level::Bytes {
            return Err(ExchangeError::Driver { what: "no references at level bytes" });
        }
        self.references = Some(references);
        Ok(self)
    }

    /// One transition. What a worker says twice is ignored the second time.
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

    /// Whether the plan of a job with so many items waits for a sample.
    fn needs_sample(shape: JobShape, items: u64, choice: FilterChoice) -> bool {
        let wants_filter = match choice {
            FilterChoice::Auto => items >= FILTER_ITEMS_MIN,
            FilterChoice::SingleShot => true,
            FilterChoice::Wide => false,
        };
        let is_approximate = matches!(shape.level, Level::Approximate { .. });
        shape.workers > 1 && wants_filter && !is_approximate
    }

    /// What the exchange of a job will cost if so many entries come and share δ of them stands with several workers.
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
            let places = self.place_bits();
            let plan = plan_at_once(self.shape, self.items, places, self.choice, self.references);
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

    fn place_bits(&self) -> Option<PlaceBits> {
        let bits_for = |values: u64| values.saturating_sub(1).checked_ilog2().map_or(0, |b| b + 1);
        let chunk = bits_for(self.chunks_end.into());
        let item = bits_for(self.chunk_items_max);
        self.shape.report_kept.then_some(PlaceBits { chunk, item })
    }

    /// The plan of a job that needs no sample: one worker, few items, level `approximate`, or whole hashes by choice.
    ///
    /// # Panics
    ///
    /// If the shape is beyond a limit.
    #[must_use]
    pub fn plan_without_sample(
        shape: JobShape,
        items: u64,
        place_bits: Option<PlaceBits>,
        choice: FilterChoice,
    ) -> Plan {
        plan_at_once(shape, items, place_bits, choice, None)
    }

    fn plan_from_sample(&self) -> Plan {
        let place_bits = self.place_bits();
        let sampled = self.sample_entries as f64;
        let entries = (sampled / self.shape.sample_share()).clamp(1.0, self.items.max(1) as f64);
        let delta = self.delta(entries);
        let question = question(self.shape, entries, delta, place_bits, self.references);
        let cost = sampled_cost(&question, self.choice);
        plan(self.shape, cost, None, place_bits, &question)
    }

    /// δ̂ = (c/s − e)/(1 − e): the share of candidates, less the share e that meets by chance in the sample's filter.
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
    place_bits: Option<PlaceBits>,
    choice: FilterChoice,
    references: Option<ReferenceShape>,
) -> Plan {
    shape.validate().expect("a shape within its limits");
    let question = question(shape, items as f64, 0.0, place_bits, references);
    let mut cost = if choice == FilterChoice::SingleShot {
        question.cheapest_filter().unwrap_or_else(|| cheapest(&question))
    } else {
        let bits_per_entry = question.wide_bits();
        Cost { mode: Mode::Wide, position_count: 0, refine_bits: 0, bits_per_entry }
    };
    let mut truncation = None;
    if let Level::Approximate { false_positive_rate } = shape.level {
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
    plan(shape, cost, truncation, place_bits, &question)
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
    place_bits: Option<PlaceBits>,
    references: Option<ReferenceShape>,
) -> CostQuestion {
    let place_width = f64::from(place_bits.map_or(0, PlaceBits::total));
    let rank_bits = if shape.keep == Keep::Best { f64::from(RANK_BITS) } else { 0.0 };
    let item_bits = if shape.level == Level::Bytes { 8.0 * shape.item_bytes_mean } else { 0.0 };
    CostQuestion {
        workers: shape.workers,
        entries: entries.max(1.0),
        delta,
        survivor_extra_bits: place_width + rank_bits + item_bits,
        references,
    }
}

fn plan(
    shape: JobShape,
    cost: Cost,
    truncation: Option<Truncation>,
    place_bits: Option<PlaceBits>,
    question: &CostQuestion,
) -> Plan {
    Plan {
        shape,
        mode: cost.mode,
        position_count: cost.position_count,
        refine_bits: cost.refine_bits,
        truncation,
        place_bits,
        references: question.references,
        entries_estimate: question.entries,
        delta_estimate: question.delta,
        predicted_bits_per_entry: cost.bits_per_entry,
    }
}
