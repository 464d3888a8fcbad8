//! The initiator's decisions: estimate, plan, filters, and the stage after them.

use umbel_sketch::Estimator;

use super::retry::Failure;
use super::{Count, Initiator, Known, State};
use crate::coded::CodedDecoder;
use crate::core::Core;
use crate::error::{NO_PLAN, Result, SessionError, field};
use crate::event::Out;
use crate::filter::{FilterJob, FilterStage, FilterTest};
use crate::job::Job;
use crate::listing::Listing;
use crate::message::{Message, WITH_STORED};
use crate::options::Optimize;
use crate::partition::{Decoder, Partition};
use crate::plan::{Plan, Priced, Situation, Stage, clamp_difference, estimate_deviation, rate_of};
use crate::receive::Accept;
use crate::table::Entry;
use crate::terms::Flow;

/// Bytes of the plan, the digests, and their frames.
const AROUND_BYTES: u64 = 80;

/// Relative standard deviation of the difference once a filter has counted one side of it.
const COUNTED_DEVIATION: f64 = 0.03;

/// Coded symbols per difference above which something is wrong.
const CODED_RATIO_MAX: u64 = 3;

/// Coded symbols that are allowed for any difference, however small.
const CODED_COUNT_MIN: u64 = 64;

impl Initiator {
    pub(super) fn make_plan(
        &mut self,
        core: &mut Core,
        own: &Estimator,
        estimate: &Known,
        out: &mut Out,
    ) -> Result<()> {
        let Count { count, is_exact } = match *estimate {
            Known::Estimator(ref bytes) => {
                let theirs = Estimator::from_bytes(bytes, core.sets.there_count);
                let count = own.estimate(&theirs.map_err(|_| field("estimator", 0))?);
                Count { count, is_exact: false }
            }
            Known::Count(count) => count,
        };
        let difference = clamp_difference(
            count,
            core.sets.own.count,
            core.sets.there_count_now(&core.terms, &core.attempt),
        );
        core.forecast.difference = difference;
        self.estimate = Count { count: difference, is_exact };
        let situation = self.situation(core, difference, estimate_deviation(is_exact));
        let priced = if self.is_last_resort { situation.last_resort() } else { situation.choose() };
        core.forecast.bits =
            8.0 * (core.traffic.meter().total() + AROUND_BYTES) as f64 + priced.bits;
        core.forecast.plan = priced.plan.describe();
        let plan = priced.plan;
        if plan.filter_quarters == [0, 0] {
            return self.follow(core, plan, out);
        }
        self.filter(core, plan, situation, out)
    }

    /// The decoder for the responder's stored coded symbols, and the plan that requests them.
    pub(super) fn stored_plan(
        &mut self,
        core: &mut Core,
        count: u64,
        coded_count: u64,
    ) -> Result<(Box<CodedDecoder>, Message)> {
        let alone = field("verdict", WITH_STORED.into());
        let sketch = core.sets.sketch.as_ref().filter(|_| core.attempt.is_stored).ok_or(alone)?;
        let (own, symbol_bits) = (sketch.coded_symbols(), sketch.spec().symbol_bits());
        let coded_max = coded_count.min(own.len() as u64);
        let priced = self.stored_price(core, count as f64, symbol_bits);
        let plan = Plan { credit: priced.plan.credit.min(coded_max), ..priced.plan };
        self.plan = Some(plan);
        core.forecast.bits = 8.0 * core.traffic.meter().total() as f64 + priced.bits;
        core.forecast.plan = format!("stored {}", plan.describe());
        core.attempt.symbol_bits = symbol_bits;
        let decoder =
            CodedDecoder::stored(own, core.attempt.key, symbol_bits, plan.credit, coded_max);
        Ok((Box::new(decoder), Message::Plan(plan)))
    }

    /// Estimates `count` differences, and prices their decoding by stored coded symbols.
    fn stored_price(&mut self, core: &mut Core, count: f64, symbol_bits: u8) -> Priced {
        let difference = clamp_difference(
            count,
            core.sets.own.count,
            core.sets.there_count_now(&core.terms, &core.attempt),
        );
        core.forecast.difference = difference;
        self.estimate = Count { count: difference, is_exact: false };
        let mut situation = self.situation(core, difference, estimate_deviation(false));
        situation.symbol_bits = Some(symbol_bits);
        situation.optimize = Optimize::Time;
        situation.residual(difference)
    }

    fn situation(&self, core: &Core, difference: f64, deviation: f64) -> Situation {
        Situation {
            kind: core.terms.kind(),
            optimize: core.terms.aim.optimize,
            initiator_count: core.sets.own.count,
            responder_count: core.sets.there_count_now(&core.terms, &core.attempt),
            difference,
            deviation,
            item_bits: 8.0 * self.mean_item_bytes.max(1) as f64,
            wants_contents: core.terms.flow_here() == Flow::Contents,
            sends_symbols: [core.terms.flow_here(), core.terms.flow_there()]
                .contains(&Flow::Symbols),
            attempt: core.attempt.number,
            symbol_bits_min: self.symbol_bits_min(core),
            symbol_bits: None,
        }
    }

    /// Begins with filters: the responder's, then this side's.
    fn filter(
        &mut self,
        core: &mut Core,
        plan: Plan,
        situation: Situation,
        out: &mut Out,
    ) -> Result<()> {
        core.attempt.symbol_bits = plan.symbol_bits;
        core.enter("filtering", out);
        core.jobs.push(Job::Message(Message::Plan(plan)));
        self.plan = Some(plan);
        self.symbol_bits = self.symbol_bits.max(plan.symbol_bits);
        self.situation = Some(situation);
        let (a, b) = situation.sides();
        if plan.filter_quarters[0] == 0 {
            return self.second_filter(core, plan, (a, b), situation.deviation, out);
        }
        self.state = State::Filtering(Box::new(FilterTest::new(FilterStage::First)));
        Ok(())
    }

    /// The responder's filter is complete: items that it lacks are only here.
    pub(super) fn after_filter(&mut self, core: &mut Core, out: &mut Out) -> Result<()> {
        let State::Filtering(test) = std::mem::replace(&mut self.state, State::Idle) else {
            return Err(NO_PLAN);
        };
        let (plan, situation) = self.plan.zip(self.situation).ok_or(NO_PLAN)?;
        let absent = core.sets.take_absent(&test.absent());
        if absent.iter().any(Entry::is_applied) {
            return self.retry(core, Failure::Undecoded, out);
        }
        core.terms.check_difference(absent.len() as u64)?;
        core.transfer().send_only_here(&absent);
        self.filtered_here = absent.len() as f64;
        let rate = rate_of(plan.filter_quarters[0]);
        let a = absent.len() as f64 / (1.0 - rate);
        let skew = situation.initiator_count as f64 - situation.responder_count as f64;
        self.second_filter(core, plan, (a * rate, (a - skew).max(0.0)), COUNTED_DEVIATION, out)
    }

    /// Sends this side's filter, if planned, and the plan for the remaining differences of both sides.
    fn second_filter(
        &mut self,
        core: &mut Core,
        plan: Plan,
        (a, b): (f64, f64),
        deviation: f64,
        out: &mut Out,
    ) -> Result<()> {
        let mut situation = self.situation.ok_or(NO_PLAN)?;
        let quarters = plan.filter_quarters[1];
        if let (1.., Some(table)) = (quarters, &core.sets.table) {
            let job = FilterJob::new(table, FilterStage::Second, quarters);
            core.jobs.push(Job::Filter(Box::new(job)));
            core.arrivals.accept = Accept::Any;
        }
        situation.deviation = deviation;
        situation.symbol_bits = Some(plan.symbol_bits);
        let left = situation.residual((a + b * rate_of(quarters)).max(1.0));
        self.follow(core, left.plan, out)
    }

    /// Begins the stage that finds the remaining differences.
    fn follow(&mut self, core: &mut Core, plan: Plan, out: &mut Out) -> Result<()> {
        let table = core.sets.scanned()?;
        core.attempt.symbol_bits = plan.symbol_bits;
        let key = core.attempt.key;
        self.state = match plan.stage {
            Stage::Part => {
                let wrong = SessionError::Driver { what: "no field for the plan" };
                let partition = Partition::new(&plan).ok_or(wrong)?;
                let decoder = Decoder::new(partition, plan.syndrome_count, key.decode_seed());
                State::Sketching(Box::new(decoder))
            }
            Stage::Riblt => {
                let both = core.sets.own.count.saturating_add(core.sets.there_count);
                let most = both.min(core.terms.options.limits.diff_max);
                let most = most.saturating_mul(CODED_RATIO_MAX).saturating_add(CODED_COUNT_MIN);
                let (bits, credit) = (plan.symbol_bits, plan.credit);
                let decoder = CodedDecoder::new(table, key, bits, credit, most.max(credit));
                State::Coding(Box::new(decoder))
            }
            Stage::List => State::Listing(Box::new(Listing::new(
                plan.symbol_bits,
                core.sets.there_count_max(&core.terms, &core.attempt),
            ))),
            Stage::Whole => {
                core.arrivals.accept = Accept::Whole { seen: vec![false; table.entries().len()] };
                State::Whole
            }
        };
        core.enter("sketching", out);
        core.jobs.push(Job::Message(Message::Plan(plan)));
        self.plan = Some(plan);
        self.symbol_bits = self.symbol_bits.max(plan.symbol_bits);
        Ok(())
    }
}
