//! What a side still has to send, in order, and how it is sent piece by piece.

use super::coded::CodedJob;
use super::core::{Awaiting, Core};
use super::error::SessionError;
use super::event::SessionOutput;
use super::filter::FilterJob;
use super::item::{Item, ItemIndex};
use super::items_code::bodies_of;
use super::lists::{ListWriter, range_of_bits};
use super::message::{ItemsBody, Message, RequestMode};
use super::partition::Encoder;
use super::table::Entry;
use crate::limits::{
    RECONCILE_FETCH_BYTES_MAX as FETCH_BYTES_MAX, RECONCILE_FETCH_ITEMS_MAX as FETCH_ITEMS_MAX,
    RECONCILE_FRAME_BODY_BYTES_CUT as BODY_BYTES_CUT, RECONCILE_SEND_BYTES_MAX as SEND_BYTES_MAX,
};
use umbel_step::Outbox;

/// Most symbols of the table that are considered for one frame of a list.
const LIST_CHUNK: usize = 1 << 16;

/// One thing to send.
#[derive(Debug)]
pub(crate) enum Job {
    Message(Message),
    /// Syndromes that were requested.
    Part(Box<Encoder>),
    /// A filter.
    Filter(Box<FilterJob>),
    /// Coded symbols within the credit.
    Coded(Box<CodedJob>),
    /// Sorted symbols.
    Symbols(SymbolsJob),
    /// All symbols of the table.
    List(ListJob),
    /// Items, which must be fetched first.
    Items(ItemsJob),
    /// The digest of the union, once everything is applied.
    Done,
}

/// Purpose of a list of symbols.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SymbolsUse {
    Request(RequestMode),
    Items,
}

/// Sorted symbols of `bits` bits.
#[derive(Debug)]
pub(crate) struct SymbolsJob {
    purpose: SymbolsUse,
    symbols: Vec<u64>,
    cursor: usize,
    writer: ListWriter,
    is_begun: bool,
}

impl SymbolsJob {
    pub(crate) fn new(purpose: SymbolsUse, symbols: Vec<u64>, bits: u8) -> Self {
        let writer = ListWriter::new(range_of_bits(bits.into()), symbols.len() as u64);
        Self { purpose, symbols, cursor: 0, writer, is_begun: false }
    }

    fn next(&mut self) -> Option<Message> {
        let left = self.symbols.get(self.cursor..).unwrap_or_default();
        if left.is_empty() && self.is_begun {
            return None;
        }
        let mut list = Vec::new();
        self.cursor += self.writer.put(&mut list, left, BODY_BYTES_CUT);
        self.is_begun = true;
        Some(match self.purpose {
            SymbolsUse::Request(mode) => Message::Request { mode, list },
            SymbolsUse::Items => Message::Items(ItemsBody::Symbols(list)),
        })
    }
}

/// All symbols of the table, in order.
#[derive(Debug)]
pub(crate) struct ListJob {
    writer: ListWriter,
    cursor: usize,
    is_begun: bool,
}

impl ListJob {
    pub(crate) fn new(bits: u8, count: usize) -> Self {
        let writer = ListWriter::new(range_of_bits(bits.into()), count as u64);
        Self { writer, cursor: 0, is_begun: false }
    }

    fn next(&mut self, entries: &[Entry], bits: u8) -> Option<Message> {
        let left = entries.get(self.cursor..).unwrap_or_default();
        if left.is_empty() && self.is_begun {
            return None;
        }
        let symbols: Vec<u64> =
            left.iter().take(LIST_CHUNK).map(|entry| entry.symbol(bits)).collect();
        let mut list = Vec::new();
        self.cursor += self.writer.put(&mut list, &symbols, BODY_BYTES_CUT);
        self.is_begun = true;
        Some(Message::List(list))
    }
}

/// Items by number.
#[derive(Debug)]
pub(crate) struct ItemsJob {
    entries: Vec<Entry>,
    cursor: usize,
    /// Number of items in the last fetched batch.
    fetched: usize,
}

impl ItemsJob {
    pub(crate) const fn new(entries: Vec<Entry>) -> Self {
        Self { entries, cursor: 0, fetched: 0 }
    }

    fn next_batch(&mut self, mean_item_bytes: u64) -> Option<Vec<ItemIndex>> {
        let count = usize::try_from(FETCH_BYTES_MAX / mean_item_bytes.max(1)).unwrap_or(1);
        let count = count.clamp(1, FETCH_ITEMS_MAX);
        let batch: Vec<ItemIndex> =
            self.entries.iter().skip(self.cursor).take(count).map(|entry| entry.index).collect();
        self.fetched = batch.len();
        (!batch.is_empty()).then_some(batch)
    }
}

impl Core {
    /// Sends from the queue until it is empty or the session must wait.
    pub(crate) fn pump(&mut self, out: &mut Outbox<SessionOutput>) -> Result<(), SessionError> {
        while self.awaiting == Awaiting::Nothing {
            if self.queue.is_empty() {
                return Ok(());
            }
            if self.sent_since_pause >= SEND_BYTES_MAX {
                self.sent_since_pause = 0;
                self.awaiting = Awaiting::Resume;
                out.push(SessionOutput::Pause);
                return Ok(());
            }
            if !self.pump_first(out)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends a piece of the first job; false if it must wait until received items are applied.
    fn pump_first(&mut self, out: &mut Outbox<SessionOutput>) -> Result<bool, SessionError> {
        let Some(mut job) = self.queue.pop_front() else { return Ok(false) };
        let message = match &mut job {
            Job::Message(message) => {
                let message = message.clone();
                self.send(&message, out);
                self.check_bytes()?;
                return Ok(true);
            }
            Job::Part(encoder) => match &self.table {
                Some(table) => encoder.next(table)?,
                None => None,
            },
            Job::Filter(filter) => filter.next(),
            Job::Coded(coded) => coded.next(),
            Job::Symbols(symbols) => symbols.next(),
            Job::List(list) => {
                let entries = self.table.as_ref().map(super::table::Table::entries);
                list.next(entries.unwrap_or_default(), self.symbol_bits)
            }
            Job::Items(items) => {
                if let Some(batch) = items.next_batch(self.item_bytes / self.own.count.max(1)) {
                    self.awaiting = Awaiting::Items;
                    out.push(SessionOutput::Fetch(batch));
                    self.queue.push_front(job);
                }
                return Ok(true);
            }
            Job::Done => return Ok(self.pump_done(out)),
        };
        match (message, job) {
            (Some(message), job) => {
                self.send(&message, out);
                self.check_bytes()?;
                self.queue.push_front(job);
            }
            // The next request continues where this job ended.
            (None, Job::Part(encoder)) => self.encoder = Some(encoder),
            (None, Job::Coded(coded)) => self.coded = Some(coded),
            (None, _) => {}
        }
        Ok(true)
    }

    fn pump_done(&mut self, out: &mut Outbox<SessionOutput>) -> bool {
        if self.unapplied > 0 {
            self.queue.push_front(Job::Done);
            return false;
        }
        let mut union = self.own.and(self.received);
        union.sum = union.sum.wrapping_add(self.key.mark());
        self.done_sent = Some(union);
        self.send(&Message::Done { attempt: self.attempt, union }, out);
        true
    }

    /// Receives fetched items, checks that they are those of the scan, and sends them.
    pub(crate) fn items_fetched(
        &mut self,
        items: &[Item],
        out: &mut Outbox<SessionOutput>,
    ) -> Result<(), SessionError> {
        let Some(Job::Items(job)) = self.queue.front_mut() else {
            return Err(SessionError::Driver { what: "items that were not fetched" });
        };
        let asked = job.entries.iter().skip(job.cursor).take(job.fetched);
        let is_same = items.len() == job.fetched
            && items.iter().zip(asked).all(|(item, entry)| {
                let item = item.as_item_ref();
                item.is_of(self.options.kind) && self.key.hash(item) == entry.hash
            });
        if !is_same {
            return Err(SessionError::Driver { what: "fetched items are not those of the scan" });
        }
        job.cursor += job.fetched;
        if job.cursor >= job.entries.len() {
            self.queue.pop_front();
        }
        for body in bodies_of(items) {
            self.send(&Message::Items(body), out);
        }
        self.check_bytes()
    }
}
