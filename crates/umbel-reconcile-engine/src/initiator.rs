//! The initiator: sends the Hello, estimates, chooses the plan, decodes.

mod greeting;
mod planning;
mod retry;

use self::retry::Failure;
use super::coded::{CodedDecoder, CodedVerdict};
use super::core::Core;
use super::difference::Difference;
use super::digest::SetDigest;
use super::error::{NO_PLAN, Result, SessionError, field};
use super::event::Out;
use super::filter::FilterTest;
use super::job::Job;
use super::listing::Listing;
use super::message::{END_OF_WHOLE, Message, RequestMode};
use super::partition::{Decoder, Verdict};
use super::pass::{Gathered, Pass};
use super::plan::{Plan, Situation};
use super::receive::Accept;
use super::table::{Entry, Table};
use umbel_step::planted::{self, Planted};

/// What the initiator waits for.
#[derive(Debug)]
enum State {
    Idle,
    Greeting,
    AwaitWelcome,
    /// The full scan; with what is known of the size of the difference.
    Surveying {
        estimate: Known,
    },
    /// Waits for the responder's filter.
    Filtering(Box<FilterTest>),
    Sketching(Box<Decoder>),
    Coding(Box<CodedDecoder>),
    Listing(Box<Listing>),
    /// Waits for all items of the responder.
    Whole,
    /// Stored sketches decoded these symbols; a pass looks for those that are here.
    Splitting {
        symbols: Vec<u64>,
    },
    /// The small sketch was enough; waits for the responder's request.
    Answering,
    Finding {
        mode: RequestMode,
        symbols: Vec<u64>,
    },
    /// Waits for the items that this side requested.
    Transferring,
}

/// What is known of the size of the difference before the plan.
#[derive(Debug)]
enum Known {
    Estimator(Vec<u8>),
    Count(Count),
}

/// The number of differences.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Count {
    count: f64,
    /// Whether they were counted; otherwise it is an estimate.
    is_exact: bool,
}

/// The initiator's half.
#[derive(Debug)]
pub(crate) struct Initiator {
    state: State,
    plan: Option<Plan>,
    /// The situation by which the first plan of a filtered attempt was chosen.
    situation: Option<Situation>,
    /// Mean bytes of the responder's items.
    mean_item_bytes: u64,
    /// The number of differences that the plan of this attempt was made for.
    estimate: Count,
    /// Items that only this side has, as the responder's filter of this attempt showed.
    filtered_here: f64,
    /// Differences that this attempt found, including doubtful ones.
    found: f64,
    /// Doubtful symbols that this attempt left out of its transfer.
    doubtful: f64,
    /// Most symbol bits of a plan so far: those of another attempt are longer.
    symbol_bits: u8,
    /// Coded symbols that may still arrive and are no longer needed.
    late_coded: u64,
    asked: Vec<u64>,
    is_last_resort: bool,
}

impl Initiator {
    pub(crate) const fn new() -> Self {
        Self {
            state: State::Idle,
            plan: None,
            situation: None,
            mean_item_bytes: 0,
            estimate: Count { count: 0.0, is_exact: false },
            filtered_here: 0.0,
            found: 0.0,
            doubtful: 0.0,
            symbol_bits: 0,
            late_coded: 0,
            asked: Vec::new(),
            is_last_resort: false,
        }
    }

    pub(crate) fn on_pass(
        &mut self,
        core: &mut Core,
        gathered: Gathered,
        out: &mut Out,
    ) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Greeting => {
                core.note_pass(&gathered, true)?;
                self.greet(core, &gathered, out);
                Ok(())
            }
            State::Splitting { symbols } => {
                core.note_pass(&gathered, false)?;
                let mut found = gathered.found()?;
                if planted::on(Planted::StoredSidesGuessed) {
                    found.clear();
                }
                let difference = Difference::of_found(&symbols, &found, core.attempt.symbol_bits);
                self.transfer(core, difference, out)
            }
            State::Finding { mode, symbols } => {
                core.note_pass(&gathered, false)?;
                let found = gathered.found()?;
                self.state = State::Transferring;
                core.transfer().answer(mode, found, symbols.len(), true)
            }
            State::Surveying { estimate } => {
                core.note_pass(&gathered, true)?;
                let (entries, estimator) = gathered.table()?;
                core.sets.table = Some(Table::new(entries));
                if self.mean_item_bytes == 0 {
                    self.mean_item_bytes = core.sets.mean_item_bytes();
                }
                self.make_plan(core, &estimator, &estimate, out)
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
            (State::AwaitWelcome, Message::Welcome(welcome)) => self.on_welcome(core, welcome, out),
            (State::Sketching(decoder), message @ Message::Sketch { .. }) => {
                let table = core.sets.scanned()?;
                decoder.take_sketch(table, &message)?;
                self.after_sketch(core, out)
            }
            (State::Sketching(decoder), Message::Buckets { window, count, bits }) => {
                let table = core.sets.scanned()?;
                decoder.take_buckets(table, window, count, &bits)?;
                self.after_sketch(core, out)
            }
            (State::Filtering(test), Message::Filter(body)) => {
                let table = core.sets.scanned()?;
                test.take(table, core.sets.there_count_max(&core.terms, &core.attempt), &body)?;
                if test.is_complete() { self.after_filter(core, out) } else { Ok(()) }
            }
            (_, Message::Coded { count, .. }) if self.late_coded > 0 => {
                let left = self.late_coded.checked_sub(count);
                self.late_coded = left.ok_or(field("coded symbol count", count))?;
                Ok(())
            }
            (State::Coding(decoder), Message::Coded { first, count, symbols }) => {
                let verdict = decoder.take(first, count, &symbols)?;
                self.after_coded(core, verdict, out)
            }
            (State::Listing(listing), Message::List(body)) => {
                let table = core.sets.scanned()?;
                listing.take(table, core.attempt.symbol_bits, &body)?;
                core.terms.check_difference(listing.found() as u64)?;
                if listing.is_complete() {
                    let difference = listing.finish(table);
                    return self.transfer(core, difference, out);
                }
                Ok(())
            }
            (State::Answering, Message::Request { mode, list }) => {
                let bits = core.attempt.symbol_bits;
                let total_max = core.sets.own.count;
                let (symbols, is_complete) = core.arrivals.read_symbols(&list, bits, total_max)?;
                self.asked.extend(symbols);
                if is_complete {
                    let symbols = std::mem::take(&mut self.asked);
                    core.run_pass(Pass::find(core.attempt.key, bits, symbols.clone()), out);
                    self.state = State::Finding { mode, symbols };
                }
                Ok(())
            }
            (
                State::Answering
                | State::Transferring
                | State::Whole
                | State::Sketching(_)
                | State::Coding(_),
                Message::Items(body),
            ) => core.receiver().take_items(&body, out),
            (State::Whole, Message::List(body)) if body == END_OF_WHOLE => {
                self.after_whole(core, out)
            }
            (State::Answering | State::Transferring, Message::Done { attempt, union }) => {
                core.take_done(attempt, union)
            }
            (_, message) => {
                Err(SessionError::OutOfOrder { frame: message.name(), phase: core.phase })
            }
        }
    }

    fn survey(&mut self, core: &mut Core, estimate: Known, out: &mut Out) {
        core.enter("scanning", out);
        self.state = State::Surveying { estimate };
        core.run_pass(Pass::table(core.attempt.key), out);
    }

    fn after_sketch(&mut self, core: &mut Core, out: &mut Out) -> Result<()> {
        let State::Sketching(decoder) = &mut self.state else { return Err(NO_PLAN) };
        core.terms.check_difference(decoder.found() as u64)?;
        let table = core.sets.scanned()?;
        match decoder.verdict(table) {
            Verdict::Waiting => Ok(()),
            Verdict::Ask(extend) => {
                core.jobs.push(Job::Message(Message::Extend(extend)));
                Ok(())
            }
            Verdict::Decoded(symbols) => {
                let difference = core.sets.split(&symbols, core.attempt.symbol_bits);
                self.transfer(core, difference, out)
            }
            Verdict::Overfull(count) => self.retry(core, Failure::Overfull(count), out),
        }
    }

    fn after_coded(&mut self, core: &mut Core, verdict: CodedVerdict, out: &mut Out) -> Result<()> {
        match verdict {
            CodedVerdict::Waiting => Ok(()),
            CodedVerdict::Ask(count) => {
                core.jobs.push(Job::Message(Message::Credit { count }));
                Ok(())
            }
            CodedVerdict::Decoded(symbols) if core.sets.table.is_none() => {
                self.note_late_coded();
                core.terms.check_difference(symbols.len() as u64)?;
                core.run_pass(
                    Pass::find(core.attempt.key, core.attempt.symbol_bits, symbols.clone()),
                    out,
                );
                self.state = State::Splitting { symbols };
                Ok(())
            }
            CodedVerdict::Decoded(symbols) => {
                self.note_late_coded();
                let difference = core.sets.split(&symbols, core.attempt.symbol_bits);
                self.transfer(core, difference, out)
            }
            CodedVerdict::Failed => {
                self.note_late_coded();
                self.retry(core, Failure::Undecoded, out)
            }
        }
    }

    /// Coded symbols that were granted may still be in transit.
    fn note_late_coded(&mut self) {
        if let State::Coding(decoder) = &self.state {
            self.late_coded = decoder.credit_left();
        }
    }

    fn transfer(&mut self, core: &mut Core, difference: Difference, out: &mut Out) -> Result<()> {
        self.doubtful = difference.doubtful_count as f64;
        let decoded = (difference.here.len() + difference.there.len()) as f64 + self.doubtful;
        self.found = self.filtered_here + core.arrivals.sum.count as f64 + decoded;
        // The peer already has what came from it.
        core.arrivals.is_contradicted |= difference.here.iter().any(Entry::is_applied);
        // If both sides take what they lack, everything that is not doubtful is resolved now, and the next
        // attempt finds only the rest. In other directions another attempt finds everything again, so this
        // one sends nothing.
        let is_certain = difference.doubtful_count == 0 || self.merges(core);
        if core.arrivals.is_contradicted || !is_certain {
            return self.retry(core, Failure::Contradicted, out);
        }
        self.state = State::Transferring;
        let request_bits = self.plan.map_or(64, |plan| plan.request_bits);
        core.enter("transferring", out);
        core.transfer().begin(difference, request_bits, out)
    }

    /// All items of the responder have arrived: what was not among them is only here.
    fn after_whole(&mut self, core: &mut Core, out: &mut Out) -> Result<()> {
        let Accept::Whole { seen } = std::mem::replace(&mut core.arrivals.accept, Accept::Nothing)
        else {
            return Ok(());
        };
        let entries = core.sets.entries();
        let unseen = entries.iter().zip(&seen).filter(|(_, seen)| !**seen);
        let here: Vec<Entry> = unseen.map(|(entry, _)| *entry).collect();
        let difference = Difference { here, ..Difference::default() };
        self.transfer(core, difference, out)
    }

    /// Compares both digests and ends the session, or retries; returns whether it has ended.
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
        if self.is_last_resort || matches!(self.state, State::AwaitWelcome) {
            return Err(SessionError::NotConverged { ours: ours.count, theirs: theirs.count });
        }
        self.retry(core, Failure::Unequal, out)?;
        Ok(false)
    }
}
