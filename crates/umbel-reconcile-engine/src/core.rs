//! State that both halves of a session share, in parts that own one concern each, and the steps that need
//! several of them.

use super::attempt::Attempt;
use super::digest::SetDigest;
use super::error::{Result, field};
use super::event::{Out, SessionOutput};
use super::item::{Item, ItemIndex};
use super::items_code::bodies_of;
use super::job::{Job, Jobs, Next};
use super::message::Message;
use super::options::{Aim, Options, SymbolKind};
use super::outcome::SessionOutcome;
use super::pass::{Gathered, Pass};
use super::plan::list_bits;
use super::receive::{Arrivals, Receiver};
use super::sets::Sets;
use super::stored::Stored;
use super::terms::{Flow, Terms};
use super::traffic::Traffic;
use super::transfer::Transfer;

/// What the session waits for from its driver. It processes frames only while it waits for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaiting {
    Nothing,
    Pass,
    Items,
    Resume,
}

/// What the initiator expects the session to cost, for its outcome.
#[derive(Debug)]
pub(crate) struct Forecast {
    pub(crate) plan: String,
    /// Number of differences.
    pub(crate) difference: f64,
    /// Bits on the wire without items; 0 if nothing was predicted.
    pub(crate) bits: f64,
}

/// Digests of the union of both sets, each side's; the session succeeds if they are equal.
#[derive(Default, Debug)]
pub(crate) struct Unions {
    pub(crate) sent: Option<SetDigest>,
    pub(crate) received: Option<SetDigest>,
}

impl Unions {
    /// Both digests, once both are known.
    pub(crate) fn both(&self) -> Option<(SetDigest, SetDigest)> {
        Some((self.sent?, self.received?))
    }
}

/// State that both halves share: its parts, and what needs several of them.
#[derive(Debug)]
pub(crate) struct Core {
    /// What the session is to do.
    pub(crate) terms: Terms,
    /// The key and the symbols in use.
    pub(crate) attempt: Attempt,
    /// What is known of both sets.
    pub(crate) sets: Sets,
    /// What came from the peer.
    pub(crate) arrivals: Arrivals,
    /// What is still to be sent.
    pub(crate) jobs: Jobs,
    /// Bytes on the wire.
    pub(crate) traffic: Traffic,
    /// How the session will end.
    pub(crate) unions: Unions,
    pub(crate) forecast: Forecast,
    pub(crate) awaiting: Awaiting,
    /// The current phase, for people.
    pub(crate) phase: &'static str,
}

impl Core {
    pub(crate) fn new(options: Options, aim: Aim, is_initiator: bool) -> Self {
        Self {
            terms: Terms::new(options, aim, is_initiator),
            attempt: Attempt::new(&options, is_initiator),
            sets: Sets::default(),
            arrivals: Arrivals::new(&options),
            jobs: Jobs::default(),
            traffic: Traffic::new(options.limits.bytes_max),
            unions: Unions::default(),
            forecast: Forecast { plan: "digest".to_owned(), difference: 0.0, bits: 0.0 },
            awaiting: Awaiting::Nothing,
            phase: "waiting for a first frame",
        }
    }

    pub(crate) fn enter(&mut self, phase: &'static str, out: &mut Out) {
        self.phase = phase;
        out.push(SessionOutput::Phase(phase));
    }

    /// Switches to the key of an attempt and discards what the previous one found, but not what was
    /// applied.
    pub(crate) fn begin_attempt(&mut self, attempt: u8) {
        self.attempt.begin(attempt);
        self.arrivals.begin_attempt();
        self.unions = Unions::default();
        (self.jobs.encoder, self.jobs.coded) = (None, None);
        self.sets.table = None;
        // Items that the peer has taken are on both sides now; all others are found again.
        if self.terms.flow_there() != Flow::Contents || !self.terms.changes_there() {
            self.sets.only_here.clear();
        }
    }

    /// What begins with stored sketches.
    pub(crate) const fn stored(&mut self) -> Stored<'_> {
        let Self { terms, attempt, sets, .. } = self;
        Stored { terms, attempt, sets }
    }

    /// What transfers a difference.
    pub(crate) const fn transfer(&mut self) -> Transfer<'_> {
        let Self { terms, attempt, sets, arrivals, jobs, .. } = self;
        Transfer { terms, attempt, sets, arrivals, jobs }
    }

    /// What receives the items of a frame.
    pub(crate) const fn receiver(&mut self) -> Receiver<'_> {
        let Self { terms, attempt, sets, arrivals, .. } = self;
        Receiver { terms, attempt, sets, arrivals }
    }

    pub(crate) fn run_pass(&mut self, pass: Pass, out: &mut Out) {
        self.awaiting = Awaiting::Pass;
        // A find pass looks for items of the snapshot; a new key covers the set as it is now.
        let includes_applied = self.arrivals.has_applied && !pass.is_find();
        out.push(SessionOutput::RunPass(pass.with_applied(includes_applied)));
    }

    /// Records the result of a full scan. A second scan under the same key must find the same.
    pub(crate) fn note_pass(&mut self, gathered: &Gathered, is_new_key: bool) -> Result<()> {
        self.sets.note_pass(gathered, is_new_key, self.arrivals.has_applied)
    }

    /// Mean bits of an item: of those here, else of those that arrived, else as the peer stated; 0 if none
    /// is known.
    fn mean_item_bits(&self) -> f64 {
        let mean = |bytes: u64, count: u64| 8.0 * bytes as f64 / count.max(1) as f64;
        match self.terms.kind() {
            SymbolKind::Id64 => 64.0,
            _ if self.sets.item_bytes > 0 => mean(self.sets.item_bytes, self.sets.own.count),
            _ if self.arrivals.item_bytes > 0 => {
                mean(self.arrivals.item_bytes, self.arrivals.item_count)
            }
            _ => mean(self.sets.there_item_bytes, 1),
        }
    }

    /// Sends from the queue until it is empty or the session must wait.
    pub(crate) fn pump(&mut self, out: &mut Out) -> Result<()> {
        while self.awaiting == Awaiting::Nothing && !self.jobs.is_empty() {
            if self.traffic.must_pause() {
                self.awaiting = Awaiting::Resume;
                out.push(SessionOutput::Pause);
                return Ok(());
            }
            match self.jobs.next(&self.sets, self.attempt.symbol_bits)? {
                Next::Frame(message) => {
                    self.traffic.send(&message, out);
                    self.traffic.check()?;
                }
                Next::Fetch(batch) => {
                    self.awaiting = Awaiting::Items;
                    out.push(SessionOutput::Fetch(batch));
                }
                // Received items must be applied first.
                Next::Done if self.arrivals.unapplied > 0 => {
                    self.jobs.put_back(Job::Done);
                    return Ok(());
                }
                Next::Done => self.send_done(out),
                Next::Ended => {}
            }
        }
        Ok(())
    }

    fn send_done(&mut self, out: &mut Out) {
        let mut union = self.sets.own.and(self.arrivals.sum);
        union.sum = union.sum.wrapping_add(self.attempt.key.mark());
        self.unions.sent = Some(union);
        self.traffic.send(&Message::Done { attempt: self.attempt.number, union }, out);
    }

    /// Receives fetched items, checks that they are those of the scan, and sends them.
    pub(crate) fn items_fetched(&mut self, items: &[Item], out: &mut Out) -> Result<()> {
        self.jobs.check_fetched(items, &self.attempt.key)?;
        for body in bodies_of(items) {
            self.traffic.send(&Message::Items(body), out);
        }
        self.traffic.check()
    }

    /// Records the peer's digest of the union. An error if items or symbols are still incomplete.
    pub(crate) fn take_done(&mut self, attempt: u8, union: SetDigest) -> Result<()> {
        if attempt != self.attempt.number || self.unions.received.is_some() {
            return Err(field("attempt", attempt.into()));
        }
        if !self.arrivals.are_complete() {
            return Err(field("items", 0));
        }
        self.unions.received = Some(union);
        if self.unions.sent.is_none() && !self.jobs.has_done() {
            self.jobs.push(Job::Done);
        }
        Ok(())
    }

    /// Ends the session with success.
    ///
    /// # Errors
    /// If the peer does not have as many items as it stated.
    pub(crate) fn finish(&mut self, out: &mut Out) -> Result<()> {
        let union = self.sets.own.and(self.arrivals.sum);
        let counts = (
            union.count.checked_sub(self.sets.there_count),
            union.count.checked_sub(self.sets.here_count),
        );
        let (Some(only_here), Some(only_there)) = counts else {
            return Err(field("item count", self.sets.there_count));
        };
        // If a filter found all of it, the peer had nothing to request.
        if self.sets.knows_only_here || self.terms.aim.notify_responder || only_here == 0 {
            let mut indexes: Vec<ItemIndex> =
                self.sets.only_here.iter().map(|entry| entry.index).collect();
            indexes.sort_unstable();
            indexes.dedup();
            if indexes.len() as u64 == only_here {
                out.push(SessionOutput::OnlyHere(indexes));
            } else if self.sets.knows_only_here && self.attempt.tried == 1 {
                return Err(field("item count", self.sets.there_count));
            }
            // Otherwise a failed attempt counted some items as only here, and it is unknown which.
        }
        if !self.arrivals.only_there.is_empty() {
            out.push(SessionOutput::OnlyThere(std::mem::take(&mut self.arrivals.only_there)));
        }
        let width = self.mean_item_bits();
        let bound = |count: u64| {
            let k = count as f64;
            if count == 0 {
                0.0
            } else {
                (k * (width - k.log2() + std::f64::consts::LOG2_E)).max(0.0)
            }
        };
        let contents = |count: u64| list_bits(count as f64, width);
        let items = contents(only_here) + contents(only_there);
        let predicted = if self.forecast.bits > 0.0 { self.forecast.bits + items } else { 0.0 };
        let meter = self.traffic.meter();
        out.push(SessionOutput::Finish(Ok(SessionOutcome {
            direction: self.terms.aim.direction,
            notifies_responder: self.terms.aim.notify_responder,
            on_conflict: self.terms.aim.on_conflict,
            initiator_is_b: self.terms.aim.is_b,
            here_count: self.sets.here_count,
            there_count: self.sets.there_count,
            only_here_count: only_here,
            only_there_count: only_there,
            verified: true,
            attempt_count: self.attempt.tried,
            round_count: meter.rounds,
            plan: std::mem::take(&mut self.forecast.plan),
            bytes: meter.bytes,
            sent_bytes: meter.sent,
            received_bytes: meter.received,
            estimated_count: to_count(self.forecast.difference),
            predicted_bytes: to_count(predicted / 8.0),
            lower_bound_bytes: to_count((bound(only_here) + bound(only_there)) / 8.0),
        })));
        Ok(())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a cast saturates")]
fn to_count(value: f64) -> u64 {
    value.round() as u64
}
