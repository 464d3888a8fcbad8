//! The responder: answers, and encodes what the plan and the initiator's requests say.

mod greeting;

use super::coded::CodedJob;
use super::core::{Core, Unions};
use super::difference::Difference;
use super::digest::SetDigest;
use super::error::{NO_PLAN, OTHER_PASS, Result, SessionError, field};
use super::event::Out;
use super::filter::{FilterJob, FilterStage, FilterTest};
use super::job::{ItemsJob, Job, ListJob};
use super::message::{END_OF_WHOLE, Estimate, Hello, Message, RequestMode, Welcome};
use super::partition::{Encoder, Partition};
use super::pass::{Gathered, Pass, Work};
use super::plan::{Plan, Stage};
use super::receive::Accept;
use super::table::Table;
use super::terms::Flow;
use crate::limits::ATTEMPTS_MAX;
use umbel_step::planted::{self, Planted};

/// What the responder waits for.
#[derive(Debug)]
enum State {
    Idle,
    Greeting(Box<Hello>),
    /// A pass that looks for the items of the symbols decoded from the first frame.
    Finding {
        symbols: Vec<u64>,
    },
    /// A pass that looks for what the initiator requested, after stored sketches decoded the difference.
    Seeking {
        mode: RequestMode,
        asked_count: usize,
        is_exact: bool,
    },
    /// A pass that lists the set, all of which is to be removed.
    Emptying,
    /// The full scan; during the first one the initiator waits for the estimate.
    Surveying {
        is_first: bool,
    },
    AwaitPlan,
    /// A filter is sent, received, or both; then another plan follows.
    Filtering {
        test: Option<Box<FilterTest>>,
    },
    /// Sends what the plan or an extension asks for; then the initiator decodes, sends and requests.
    Serving,
    /// This side decoded the difference.
    Transferring,
    AwaitRetry,
}

/// The responder's half.
#[derive(Debug)]
pub(crate) struct Responder {
    state: State,
    plan: Option<Plan>,
    asked: Vec<u64>,
    /// The estimate of the first scan, if the Hello had an estimator.
    estimate: Option<u64>,
    unions: Option<(u64, u64)>,
}

impl Responder {
    pub(crate) const fn new() -> Self {
        Self { state: State::Idle, plan: None, asked: Vec::new(), estimate: None, unions: None }
    }

    /// Counts of both unions, if the last digests were unequal.
    pub(crate) const fn unions(&self) -> Option<(u64, u64)> {
        self.unions
    }

    pub(crate) fn on_pass(
        &mut self,
        core: &mut Core,
        gathered: Gathered,
        out: &mut Out,
    ) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Greeting(hello) => {
                core.note_pass(&gathered, true)?;
                let Work::Hello { sketch, estimator, .. } = gathered.work else {
                    return Err(OTHER_PASS);
                };
                self.compare(core, &hello, (sketch, estimator), out)
            }
            State::Seeking { mode, asked_count, is_exact } => {
                core.note_pass(&gathered, false)?;
                let found = gathered.found()?;
                self.state = State::Serving;
                core.transfer().answer(mode, found, asked_count, is_exact)
            }
            State::Finding { symbols } => {
                core.note_pass(&gathered, false)?;
                let found = gathered.found()?;
                let difference = Difference::of_found(&symbols, &found, core.attempt.symbol_bits);
                if difference.doubtful_count > 0 {
                    self.survey(core, true, out);
                    return Ok(());
                }
                self.resolve(core, difference, out)
            }
            State::Emptying => {
                core.note_pass(&gathered, false)?;
                let (entries, _) = gathered.table()?;
                self.resolve(core, Difference { here: entries, ..Difference::default() }, out)
            }
            State::Surveying { is_first } => {
                core.note_pass(&gathered, true)?;
                let mean_item_bytes = core.sets.mean_item_bytes();
                let (entries, estimator) = gathered.table()?;
                core.sets.table = Some(Table::new(entries));
                self.state = State::AwaitPlan;
                if is_first {
                    let estimate = match self.estimate {
                        Some(count) => Estimate::Count(count),
                        None => Estimate::Estimator(estimator.to_bytes()),
                    };
                    let welcome = Welcome::Undecoded {
                        nonce: core.terms.options.nonce,
                        item_count: core.sets.own.count,
                        mean_item_bytes,
                        key_mark: core.attempt.key.short_mark(),
                        estimate,
                    };
                    core.traffic.send(&Message::Welcome(welcome), out);
                }
                Ok(())
            }
            _ => Err(SessionError::Driver { what: "a pass that was not requested" }),
        }
    }

    pub(crate) fn on_message(
        &mut self,
        core: &mut Core,
        message: Message,
        out: &mut Out,
    ) -> Result<()> {
        match (&mut self.state, message) {
            (State::Idle, Message::Hello(hello)) => self.on_hello(core, hello, out),
            (State::AwaitPlan, Message::Plan(plan)) => self.on_plan(core, plan, out),
            (State::Filtering { test: None }, Message::Plan(plan))
                if plan.filter_quarters == [0, 0] =>
            {
                self.on_plan(core, plan, out)
            }
            (State::Filtering { test: Some(test) }, Message::Filter(body)) => {
                let table = core.sets.scanned()?;
                test.take(table, core.sets.there_count_max(&core.terms, &core.attempt), &body)?;
                if test.is_complete() {
                    self.after_filter(core);
                }
                Ok(())
            }
            (State::Serving, Message::Credit { count }) => {
                let frame = SessionError::OutOfOrder { frame: "Credit", phase: core.phase };
                let mut coded = core.jobs.coded.take().ok_or(frame)?;
                core.sets.check_credit(&core.attempt, count)?;
                coded.extend(count)?;
                core.jobs.push(Job::Coded(coded));
                Ok(())
            }
            (State::Serving, Message::Extend(extend)) => {
                let first = self.plan.map_or(0, |plan| plan.syndrome_count);
                let frame = SessionError::OutOfOrder { frame: "Extend", phase: core.phase };
                let mut encoder = core.jobs.encoder.take().ok_or(frame)?;
                encoder.extend(&extend, first)?;
                core.jobs.push(Job::Part(encoder));
                Ok(())
            }
            (State::Serving, Message::Request { mode, list }) => {
                let plan = self.plan.ok_or(NO_PLAN)?;
                // Symbols that serve as more than a request for items are sent in full: for sums, and where
                // this side is to learn them.
                let is_cut =
                    mode == RequestMode::Contents && core.terms.flow_here() != Flow::Symbols;
                let bits = if is_cut { plan.request_bits } else { plan.symbol_bits };
                let total_max = core.sets.own.count;
                let (symbols, is_complete) = core.arrivals.read_symbols(&list, bits, total_max)?;
                self.asked.extend(symbols);
                if is_complete {
                    let symbols = std::mem::take(&mut self.asked);
                    let is_exact = !is_cut;
                    if core.sets.table.is_none() {
                        let asked_count = symbols.len();
                        core.run_pass(Pass::find(core.attempt.key, bits, symbols), out);
                        self.state = State::Seeking { mode, asked_count, is_exact };
                        return Ok(());
                    }
                    let entries = core.sets.entries_with(&symbols, bits);
                    core.transfer().answer(mode, entries, symbols.len(), is_exact)?;
                }
                Ok(())
            }
            (
                State::Serving | State::Transferring | State::Filtering { .. },
                Message::Items(body),
            ) => core.receiver().take_items(&body, out),
            (State::Serving | State::Transferring, Message::Done { attempt, union }) => {
                core.take_done(attempt, union)
            }
            (
                State::Serving | State::Transferring | State::AwaitRetry,
                Message::Retry { attempt },
            ) => self.on_retry(core, attempt, out),
            (_, message) => {
                Err(SessionError::OutOfOrder { frame: message.name(), phase: core.phase })
            }
        }
    }

    fn survey(&mut self, core: &mut Core, is_first: bool, out: &mut Out) {
        if is_first {
            core.begin_attempt(1);
        }
        core.enter("scanning", out);
        self.state = State::Surveying { is_first };
        core.run_pass(Pass::table(core.attempt.key), out);
    }

    fn on_plan(&mut self, core: &mut Core, plan: Plan, out: &mut Out) -> Result<()> {
        if plan.attempt != core.attempt.number {
            return Err(field("attempt", plan.attempt.into()));
        }
        core.attempt.symbol_bits = plan.symbol_bits;
        core.forecast.plan = plan.describe();
        core.arrivals.accept = Accept::Any;
        core.enter("encoding", out);
        self.plan = Some(plan);
        if core.attempt.is_stored {
            let coded = core.stored().serve(&plan)?;
            core.jobs.push(Job::Coded(Box::new(coded)));
            self.state = State::Serving;
            return Ok(());
        }
        if plan.filter_quarters != [0, 0] {
            self.filter(core, plan);
            return Ok(());
        }
        let count = core.sets.entries().len();
        match plan.stage {
            Stage::Riblt => {
                core.sets.check_credit(&core.attempt, plan.credit)?;
                let table = core.sets.scanned()?;
                let coded = CodedJob::new(table, &core.attempt.key, plan.symbol_bits, plan.credit);
                core.jobs.push(Job::Coded(Box::new(coded)));
            }
            Stage::Part => {
                let bits = plan.symbol_bits - plan.bucket_bits;
                let partition = Partition::new(&plan).ok_or(field("symbol bits", bits.into()))?;
                let encoder = Encoder::new(partition, plan.syndrome_count);
                core.jobs.push(Job::Part(Box::new(encoder)));
            }
            Stage::List => core.jobs.push(Job::List(ListJob::new(plan.symbol_bits, count))),
            Stage::Whole => {
                if core.terms.flow_there() != Flow::Contents {
                    return Err(field("stage", 3));
                }
                let entries = core.sets.entries();
                let own = entries.iter().filter(|entry| !entry.is_applied());
                core.jobs.push(Job::Items(ItemsJob::new(own.copied().collect())));
                core.jobs.push(Job::Message(Message::List(END_OF_WHOLE.to_vec())));
            }
        }
        self.state = State::Serving;
        Ok(())
    }

    /// Sends a filter if the plan has one, and waits for the initiator's if the plan has one.
    fn filter(&mut self, core: &mut Core, plan: Plan) {
        let [first, second] = plan.filter_quarters;
        if let (1.., Some(table)) = (first, &core.sets.table) {
            let job = FilterJob::new(table, FilterStage::First, first);
            core.jobs.push(Job::Filter(Box::new(job)));
        }
        let test = (second > 0).then(|| Box::new(FilterTest::new(FilterStage::Second)));
        self.state = State::Filtering { test };
    }

    /// The initiator's filter is complete: items that it lacks are only here.
    fn after_filter(&mut self, core: &mut Core) {
        let done = State::Filtering { test: None };
        let State::Filtering { test: Some(test) } = std::mem::replace(&mut self.state, done) else {
            return;
        };
        let mut absent = core.sets.take_absent(&test.absent());
        absent.retain(|entry| !entry.is_applied());
        core.sets.only_here.retain(|entry| !entry.is_applied());
        core.transfer().send_only_here(&absent);
    }

    fn on_retry(&mut self, core: &mut Core, attempt: u8, out: &mut Out) -> Result<()> {
        if attempt != core.attempt.number + 1 || attempt >= ATTEMPTS_MAX {
            return Err(field("attempt", attempt.into()));
        }
        core.attempt.tried += 1;
        core.begin_attempt(attempt);
        self.survey(core, false, out);
        Ok(())
    }

    /// Compares both digests; ends the session if they are equal, otherwise waits for a retry.
    pub(crate) fn conclude(
        &mut self,
        core: &mut Core,
        ours: SetDigest,
        theirs: SetDigest,
        out: &mut Out,
    ) -> Result<bool> {
        if ours == theirs || planted::on(Planted::UnionUnchecked) {
            core.finish(out)?;
            return Ok(true);
        }
        self.unions = Some((ours.count, theirs.count));
        core.unions = Unions::default();
        self.state = State::AwaitRetry;
        Ok(false)
    }
}
