//! State that both halves of a session share: keys, the known difference, the send queue, and counters.

use std::collections::{BTreeSet, VecDeque};

use super::coded::CodedJob;
use super::digest::SetDigest;
use super::error::{SessionError, field, limit};
use super::event::SessionOutput;
use super::item::{ItemIndex, RemoteItem};
use super::items_code::ItemsReader;
use super::job::Job;
use super::keys::{KeySource, SessionKey};
use super::lists::ListReader;
use super::message::Message;
use super::meter::Meter;
use super::offline::StoredSketch;
use super::options::{Aim, Direction, Options, SymbolKind};
use super::outcome::SessionOutcome;
use super::partition::Encoder;
use super::pass::{Gathered, Pass};
use super::plan::{SYMBOL_BITS_MIN, list_bits};
use super::receive::Accept;
use super::table::{Entry, Table};
use super::wire::put_frame;
use crate::limits::RECONCILE_ITEM_COUNT_MAX as ITEM_COUNT_MAX;
use umbel_step::Outbox;
use umbel_step::planted::{self, Planted};

/// What the session waits for from its driver. It processes frames only while it waits for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaiting {
    Nothing,
    Pass,
    Items,
    Resume,
}

/// What one side sends of the items that only it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    Contents,
    /// Symbols, and the sum of the hashes.
    Symbols,
    /// Only the sum of the hashes, so that the digest of the union can be computed.
    Sum,
}

/// State that both halves share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) aim: Aim,
    pub(crate) is_initiator: bool,
    pub(crate) source: KeySource,
    pub(crate) key: SessionKey,
    pub(crate) attempt: u8,
    /// Number of keys tried.
    pub(crate) attempts: u32,
    pub(crate) awaiting: Awaiting,
    pub(crate) phase: &'static str,
    /// Numbers of items here and there before the session.
    pub(crate) here_count: u64,
    pub(crate) there_count: u64,
    pub(crate) item_bytes: u64,
    /// Bytes and number of items that arrived.
    pub(crate) arrived_bytes: u64,
    pub(crate) arrived_count: u64,
    /// Mean bytes of the peer's items as it stated them; 0 if it did not.
    pub(crate) there_item_bytes: u64,
    /// Digest of this side's set under the current key.
    pub(crate) own: SetDigest,
    /// Digest of what only the peer has, by items that arrived or by the sums that it sent.
    pub(crate) received: SetDigest,
    pub(crate) received_hashes: BTreeSet<(u64, u64)>,
    pub(crate) table: Option<Table>,
    /// Bits of the symbols currently in use.
    pub(crate) symbol_bits: u8,
    /// Fewest bits of a symbol: 32; tests use fewer to force collisions.
    pub(crate) symbol_bits_min: u8,
    pub(crate) only_here: Vec<Entry>,
    pub(crate) knows_only_here: bool,
    pub(crate) only_there: Vec<RemoteItem>,
    pub(crate) knows_only_there: bool,
    pub(crate) accept: Accept,
    /// Whether the peer sent, as its own alone, an item that this side has too: a filter was wrong, or two
    /// symbols are equal.
    pub(crate) is_contradicted: bool,
    pub(crate) items: ItemsReader,
    pub(crate) symbols: Option<ListReader>,
    /// Batches that were handed out and are not applied yet.
    pub(crate) unapplied: u64,
    pub(crate) has_applied: bool,
    pub(crate) queue: VecDeque<Job>,
    /// A responder's encoder between two requests for syndromes.
    pub(crate) encoder: Option<Box<Encoder>>,
    /// A responder's coded job between two credits.
    pub(crate) coded: Option<Box<CodedJob>>,
    /// The stored sketch of this side's set.
    pub(crate) sketch: Option<Box<StoredSketch>>,
    /// Whether the key is that of the stored sketches.
    pub(crate) is_stored: bool,
    pub(crate) sent_since_pause: u64,
    pub(crate) done_sent: Option<SetDigest>,
    pub(crate) done_received: Option<SetDigest>,
    pub(crate) meter: Meter,
    pub(crate) plan_text: String,
    pub(crate) estimated: f64,
    pub(crate) predicted_bits: f64,
}

impl Core {
    pub(crate) fn new(options: Options, aim: Aim, is_initiator: bool) -> Self {
        let source = KeySource {
            secret: options.secret,
            dataset_id: options.dataset_id,
            nonce_initiator: if is_initiator { options.nonce } else { 0 },
            nonce_responder: if is_initiator { 0 } else { options.nonce },
        };
        Self {
            options,
            aim,
            is_initiator,
            source,
            key: SessionKey::derive(&source, 0, options.kind),
            attempt: 0,
            attempts: 1,
            awaiting: Awaiting::Nothing,
            phase: "waiting for a first frame",
            here_count: 0,
            there_count: 0,
            item_bytes: 0,
            arrived_bytes: 0,
            arrived_count: 0,
            there_item_bytes: 0,
            own: SetDigest::default(),
            received: SetDigest::default(),
            received_hashes: BTreeSet::new(),
            table: None,
            symbol_bits: 64,
            symbol_bits_min: SYMBOL_BITS_MIN,
            only_here: Vec::new(),
            knows_only_here: false,
            only_there: Vec::new(),
            knows_only_there: false,
            accept: Accept::Nothing,
            is_contradicted: false,
            items: ItemsReader::new(options.kind, options.limits.item_bytes_max),
            symbols: None,
            unapplied: 0,
            has_applied: false,
            queue: VecDeque::new(),
            encoder: None,
            coded: None,
            sketch: None,
            is_stored: false,
            sent_since_pause: 0,
            done_sent: None,
            done_received: None,
            meter: Meter::default(),
            plan_text: "digest".to_owned(),
            estimated: 0.0,
            predicted_bits: 0.0,
        }
    }

    pub(crate) const fn kind(&self) -> SymbolKind {
        self.options.kind
    }

    pub(crate) fn enter(&mut self, phase: &'static str, out: &mut Outbox<SessionOutput>) {
        self.phase = phase;
        out.push(SessionOutput::Phase(phase));
    }

    /// Switches to the key of an attempt and discards what the previous one found, but not what was
    /// applied.
    pub(crate) fn begin_attempt(&mut self, attempt: u8) {
        self.attempt = attempt;
        self.is_stored = false;
        let salt = if planted::on(Planted::RetryKeepsKey) { attempt.min(1) } else { attempt };
        self.key = SessionKey::derive(&self.source, salt, self.kind());
        self.received = SetDigest::default();
        self.received_hashes.clear();
        (self.done_sent, self.done_received) = (None, None);
        self.accept = Accept::Nothing;
        self.is_contradicted = false;
        self.symbols = None;
        self.table = None;
        (self.encoder, self.coded) = (None, None);
        // Items that the peer has taken are on both sides now; all others are found again.
        if self.flow(!self.is_initiator) != Flow::Contents || !self.changes(!self.is_initiator) {
            self.only_here.clear();
        }
        self.only_there.clear();
    }

    /// What is sent to the initiator, or to the responder.
    pub(crate) const fn flow(&self, to_initiator: bool) -> Flow {
        let is_compare = matches!(self.aim.direction, Direction::Compare);
        if self.changes(to_initiator) || (is_compare && to_initiator && self.aim.want_items) {
            Flow::Contents
        } else if to_initiator || (is_compare && self.aim.notify_responder) {
            // The initiator always gets the difference.
            Flow::Symbols
        } else {
            Flow::Sum
        }
    }

    /// Whether the set of the initiator, or of the responder, grows.
    pub(crate) const fn changes(&self, initiator: bool) -> bool {
        if initiator {
            self.aim.direction.to_initiator()
        } else {
            self.aim.direction.to_responder()
        }
    }

    /// What this side receives.
    pub(crate) const fn flow_here(&self) -> Flow {
        self.flow(self.is_initiator)
    }

    /// What this side sends.
    pub(crate) const fn flow_there(&self) -> Flow {
        self.flow(!self.is_initiator)
    }

    pub(crate) fn run_pass(&mut self, pass: Pass, out: &mut Outbox<SessionOutput>) {
        self.awaiting = Awaiting::Pass;
        // A find pass looks for items of the snapshot; a new key covers the set as it is now.
        let includes_applied = self.has_applied && !pass.is_find();
        out.push(SessionOutput::RunPass(pass.with_applied(includes_applied)));
    }

    /// Records the result of a full scan. A second scan under the same key must find the same.
    pub(crate) fn note_pass(
        &mut self,
        gathered: &Gathered,
        is_new_key: bool,
    ) -> Result<(), SessionError> {
        let changed = match self.sketch {
            Some(_) => SessionError::StaleSketch,
            None => SessionError::Driver { what: "two scans of the snapshot differ" },
        };
        if !is_new_key && gathered.digest != self.own {
            return Err(changed);
        }
        if self.here_count == 0 {
            self.here_count = gathered.digest.count;
        }
        if is_new_key && !self.has_applied && gathered.digest.count != self.here_count {
            return Err(changed);
        }
        if gathered.digest.count > ITEM_COUNT_MAX {
            return Err(limit("items here", gathered.digest.count, ITEM_COUNT_MAX));
        }
        self.own = gathered.digest;
        self.item_bytes = gathered.item_bytes;
        Ok(())
    }

    /// Mean bytes of an item here.
    pub(crate) fn mean_item_bytes(&self) -> u64 {
        self.item_bytes.div_ceil(self.own.count.max(1))
    }

    /// Mean bits of an item: of those here, else of those that arrived, else as the peer stated; 0 if none
    /// is known.
    fn mean_item_bits(&self) -> f64 {
        let mean = |bytes: u64, count: u64| 8.0 * bytes as f64 / count.max(1) as f64;
        match self.kind() {
            SymbolKind::Id64 => 64.0,
            _ if self.item_bytes > 0 => mean(self.item_bytes, self.own.count),
            _ if self.arrived_bytes > 0 => mean(self.arrived_bytes, self.arrived_count),
            _ => mean(self.there_item_bytes, 1),
        }
    }

    /// Upper bound of the peer's current number of items: it may have taken what this side has.
    pub(crate) const fn there_count_max(&self) -> u64 {
        if self.attempts > 1 && self.changes(!self.is_initiator) {
            self.there_count.saturating_add(self.here_count)
        } else {
            self.there_count
        }
    }

    /// The peer's probable current number of items.
    pub(crate) fn there_count_now(&self) -> u64 {
        let is_merged = self.attempts > 1 && self.aim.direction == Direction::TwoWay;
        if is_merged { self.own.count } else { self.there_count }
    }

    /// Checks the peer's number of items against the limit on skew.
    pub(crate) fn check_skew(&self, there_count: u64) -> Result<(), SessionError> {
        let max = self.here_count.saturating_mul(4).saturating_add(1 << 20);
        if !self.options.limits.allow_skew && there_count > max {
            return Err(limit("items of the peer", there_count, max));
        }
        Ok(())
    }

    pub(crate) fn check_difference(&self, count: u64) -> Result<(), SessionError> {
        let max = self.options.limits.diff_max;
        if count > max { Err(limit("differences", count, max)) } else { Ok(()) }
    }

    /// Sends a message now, unless that exceeds the session's byte limit: then the next
    /// [`check_bytes`](Self::check_bytes) fails. An `Abort` is sent in any case.
    pub(crate) fn send(&mut self, message: &Message, out: &mut Outbox<SessionOutput>) {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, message.frame_type(), &message.body());
        self.meter.count_sent(message, bytes.len() as u64);
        if self.check_bytes().is_err() && !matches!(message, Message::Abort { .. }) {
            return;
        }
        self.sent_since_pause += bytes.len() as u64;
        out.push(SessionOutput::Send(bytes));
    }

    /// Checks that the bytes sent and received are within the session's limit.
    pub(crate) fn check_bytes(&self) -> Result<(), SessionError> {
        if planted::on(Planted::ByteCapIgnored) {
            return Ok(());
        }
        let (got, max) = (self.meter.total(), self.options.limits.bytes_max);
        if got > max { Err(limit("bytes on the wire", got, max)) } else { Ok(()) }
    }

    /// Removes from the table the entries that the peer's filter does not contain: only this side has them.
    pub(crate) fn take_absent(&mut self, flags: &[bool]) -> Vec<Entry> {
        let absent = self.table.as_mut().map(|table| table.take_out(flags)).unwrap_or_default();
        self.only_here.extend_from_slice(&absent);
        absent
    }

    /// Ends the session with success.
    ///
    /// # Errors
    /// If the peer does not have as many items as it stated.
    pub(crate) fn finish(&mut self, out: &mut Outbox<SessionOutput>) -> Result<(), SessionError> {
        let union = self.own.and(self.received);
        let counts =
            (union.count.checked_sub(self.there_count), union.count.checked_sub(self.here_count));
        let (Some(only_here), Some(only_there)) = counts else {
            return Err(field("item count", self.there_count));
        };
        // If a filter found all of it, the peer had nothing to request.
        if self.knows_only_here || self.aim.notify_responder || only_here == 0 {
            let mut indexes: Vec<ItemIndex> =
                self.only_here.iter().map(|entry| entry.index).collect();
            indexes.sort_unstable();
            indexes.dedup();
            if indexes.len() as u64 == only_here {
                out.push(SessionOutput::OnlyHere(indexes));
            } else if self.knows_only_here && self.attempts == 1 {
                return Err(field("item count", self.there_count));
            }
            // Otherwise a failed attempt counted some items as only here, and it is unknown which.
        }
        if !self.only_there.is_empty() {
            out.push(SessionOutput::OnlyThere(std::mem::take(&mut self.only_there)));
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
        let predicted = if self.predicted_bits > 0.0 { self.predicted_bits + items } else { 0.0 };
        out.push(SessionOutput::Finish(Ok(SessionOutcome {
            direction: self.aim.direction,
            notifies_responder: self.aim.notify_responder,
            on_conflict: self.aim.on_conflict,
            initiator_is_b: self.aim.is_b,
            here_count: self.here_count,
            there_count: self.there_count,
            only_here_count: only_here,
            only_there_count: only_there,
            verified: true,
            attempt_count: self.attempts,
            round_count: self.meter.rounds,
            plan: std::mem::take(&mut self.plan_text),
            bytes: self.meter.bytes,
            sent_bytes: self.meter.sent,
            received_bytes: self.meter.received,
            estimated_count: to_count(self.estimated),
            predicted_bytes: to_count(predicted / 8.0),
            lower_bound_bytes: to_count((bound(only_here) + bound(only_there)) / 8.0),
        })));
        Ok(())
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
fn to_count(value: f64) -> u64 {
    value.round() as u64
}
