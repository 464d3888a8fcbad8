//! What a side still has to send, in order, and how it is sent piece by piece.

use std::collections::VecDeque;

use super::coded::CodedJob;
use super::error::{Result, SessionError};
use super::filter::FilterJob;
use super::item::{Item, ItemIndex};
use super::keys::SessionKey;
use super::lists::{ListWriter, range_of_bits};
use super::message::{ItemsBody, Message, RequestMode};
use super::partition::Encoder;
use super::sets::Sets;
use super::table::Entry;
use crate::limits::{FETCH_BYTES_MAX, FETCH_ITEMS_MAX, FRAME_BODY_BYTES_CUT};

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
        self.cursor += self.writer.put(&mut list, left, FRAME_BODY_BYTES_CUT);
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
        self.cursor += self.writer.put(&mut list, &symbols, FRAME_BODY_BYTES_CUT);
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

/// What is to be done next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Send this frame.
    Frame(Message),
    /// Fetch these items, and pass them to [`Jobs::check_fetched`].
    Fetch(Vec<ItemIndex>),
    /// Send the digest of the union, or put the job back if that must wait.
    Done,
    /// The first job has ended.
    Ended,
}

/// What a side still has to send.
#[derive(Default, Debug)]
pub(crate) struct Jobs {
    queue: VecDeque<Job>,
    /// A responder's encoder between two requests for syndromes.
    pub(crate) encoder: Option<Box<Encoder>>,
    /// A responder's coded job between two credits.
    pub(crate) coded: Option<Box<CodedJob>>,
}

impl Jobs {
    pub(crate) fn push(&mut self, job: Job) {
        self.queue.push_back(job);
    }

    /// Puts back the job that [`next`](Self::next) took.
    pub(crate) fn put_back(&mut self, job: Job) {
        self.queue.push_front(job);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the digest of the union will be sent.
    pub(crate) fn has_done(&self) -> bool {
        self.queue.iter().any(|job| matches!(job, Job::Done))
    }

    /// The next piece of the first job.
    pub(crate) fn next(&mut self, sets: &Sets, symbol_bits: u8) -> Result<Next> {
        let Some(mut job) = self.queue.pop_front() else { return Ok(Next::Ended) };
        let frame = match &mut job {
            Job::Part(encoder) => match &sets.table {
                Some(table) => encoder.next(table)?,
                None => None,
            },
            Job::Filter(filter) => filter.next(),
            Job::Coded(coded) => coded.next(),
            Job::Symbols(symbols) => symbols.next(),
            Job::List(list) => list.next(sets.entries(), symbol_bits),
            Job::Items(items) => {
                let batch = items.next_batch(sets.item_bytes / sets.own.count.max(1));
                let Some(batch) = batch else { return Ok(Next::Ended) };
                self.queue.push_front(job);
                return Ok(Next::Fetch(batch));
            }
            Job::Message(_) | Job::Done => None,
        };
        match (frame, job) {
            (Some(frame), job) => {
                self.queue.push_front(job);
                return Ok(Next::Frame(frame));
            }
            (None, Job::Message(message)) => return Ok(Next::Frame(message)),
            (None, Job::Done) => return Ok(Next::Done),
            // The next request continues where this job ended.
            (None, Job::Part(encoder)) => self.encoder = Some(encoder),
            (None, Job::Coded(coded)) => self.coded = Some(coded),
            (None, _) => {}
        }
        Ok(Next::Ended)
    }

    /// Checks that fetched items are those of the scan; the job continues behind them.
    pub(crate) fn check_fetched(&mut self, items: &[Item], key: &SessionKey) -> Result<()> {
        let Some(Job::Items(job)) = self.queue.front_mut() else {
            return Err(SessionError::Driver { what: "items that were not fetched" });
        };
        let asked = job.entries.iter().skip(job.cursor).take(job.fetched);
        let is_same = items.len() == job.fetched
            && items.iter().zip(asked).all(|(item, entry)| {
                let item = item.as_item_ref();
                item.is_of(key.kind()) && key.hash(item) == entry.hash
            });
        if !is_same {
            return Err(SessionError::Driver { what: "fetched items are not those of the scan" });
        }
        job.cursor += job.fetched;
        if job.cursor >= job.entries.len() {
            self.queue.pop_front();
        }
        Ok(())
    }
}
