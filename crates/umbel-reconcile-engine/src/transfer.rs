//! From a decoded difference to equal digests.
//!
//! The side that decoded knows which of its entries the other side lacks, and the symbols of what it lacks
//! itself. It sends the former and requests the latter, unless the symbol is the item; the other side
//! answers. Each side then sends count and digest of the union of both sets: its own set, and what it
//! received, as items or as a sum. The session succeeds if both are equal.

use super::core::{Core, Flow};
use super::difference::Difference;
use super::digest::SetDigest;
use super::error::{SessionError, field, limit};
use super::event::SessionOutput;
use super::item::RemoteItem;
use super::items_code::unpack;
use super::job::{ItemsJob, Job, SymbolsJob, SymbolsUse};
use super::lists::{ListReader, range_of_bits};
use super::message::{ItemsBody, Message, RequestMode};
use super::options::{Direction, SymbolKind};
use super::receive::Accept;
use super::table::{Entry, Table};
use super::wire::Reader;
use umbel_step::Outbox;

/// Extra items that a request with shortened symbols may return.
const EXTRA_ITEMS: u64 = 64;

fn sum_of(entries: &[Entry]) -> SetDigest {
    let mut sum = SetDigest::default();
    entries.iter().for_each(|entry| sum.add(entry.hash));
    sum
}

impl Core {
    /// Queues what only this side has, in the form that the direction requires. Nothing is sent for no
    /// entries.
    pub(crate) fn send_only_here(&mut self, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        let flow = self.flow_there();
        let is_id = self.kind() == SymbolKind::Id64;
        if flow == Flow::Contents && !is_id {
            self.queue.push_back(Job::Items(ItemsJob::new(entries.to_vec())));
            return;
        }
        if flow != Flow::Sum {
            let bits = self.symbol_bits;
            let mut symbols: Vec<u64> = entries.iter().map(|entry| entry.symbol(bits)).collect();
            symbols.sort_unstable();
            self.queue.push_back(Job::Symbols(SymbolsJob::new(SymbolsUse::Items, symbols, bits)));
            if is_id {
                return;
            }
        }
        let sum = Message::Items(ItemsBody::Sum(sum_of(entries)));
        self.queue.push_back(Job::Message(sum));
    }

    /// What a request for symbols should return; `None` if no request is needed.
    fn request_mode(&self) -> Option<RequestMode> {
        match (self.kind(), self.flow_here()) {
            // The decoding side has the ids. The other side is told which of its ids are missing here if it
            // is to know.
            (SymbolKind::Id64, _) => {
                let other_is_initiator = !self.is_initiator;
                (other_is_initiator || self.notifies_peer()).then_some(RequestMode::Hashes)
            }
            (_, Flow::Contents) => Some(RequestMode::Contents),
            _ => Some(RequestMode::Sum),
        }
    }

    fn notifies_peer(&self) -> bool {
        let shows = self.flow(false) == Flow::Symbols;
        let removes = self.aim.notify_responder && self.aim.direction == Direction::Push;
        self.is_initiator && (shows || removes)
    }

    /// Starts the transfer of the decoded difference. `request_bits` is the symbol length to which a
    /// request may be shortened.
    pub(crate) fn begin_transfer(
        &mut self,
        difference: Difference,
        request_bits: u8,
        out: &mut Outbox<SessionOutput>,
    ) -> Result<(), SessionError> {
        let Difference { here, mut there, .. } = difference;
        self.enter("transferring", out);
        self.check_difference((here.len() + there.len()) as u64)?;
        self.send_only_here(&here);
        self.only_here.extend(here);
        self.knows_only_here = true;
        self.knows_only_there = true;
        there.sort_unstable();
        there.dedup();
        if there.is_empty() {
            self.queue.push_back(Job::Done);
            return Ok(());
        }
        if self.kind() == SymbolKind::Id64 {
            self.receive_ids(&there, out);
        }
        let Some(mode) = self.request_mode() else {
            self.queue.push_back(Job::Done);
            return Ok(());
        };
        let is_exact = mode != RequestMode::Contents || self.notifies_peer();
        let bits = if is_exact { self.symbol_bits } else { request_bits.min(self.symbol_bits) };
        let shift = u32::from(self.symbol_bits - bits);
        let mut asked: Vec<u64> = there.iter().map(|symbol| symbol >> shift).collect();
        asked.dedup();
        self.queue.push_back(Job::Symbols(SymbolsJob::new(SymbolsUse::Request(mode), asked, bits)));
        match mode {
            RequestMode::Hashes => self.queue.push_back(Job::Done),
            RequestMode::Contents => {
                let extras_left = there.len() as u64 + EXTRA_ITEMS;
                self.accept = Accept::Wanted { symbols: there, request_bits: bits, extras_left };
            }
            RequestMode::Sum => {
                let left = u32::from(64 - self.symbol_bits);
                let remote = |symbol: &u64| RemoteItem {
                    symbol: symbol.checked_shl(left).unwrap_or(0),
                    item: None,
                };
                self.hand_out_symbols(there.iter().map(remote).collect());
            }
        }
        Ok(())
    }

    /// Records symbols without items, to be shown once they are verified.
    fn hand_out_symbols(&mut self, items: Vec<RemoteItem>) {
        self.only_there.extend(items);
        self.knows_only_there = true;
    }

    /// The symbols of a request frame. While more frames of the list are to come, `self.symbols` holds the
    /// reader.
    pub(crate) fn take_request(&mut self, list: &[u8], bits: u8) -> Result<Vec<u64>, SessionError> {
        let total_max = self.own.count;
        let mut reader = self
            .symbols
            .take()
            .unwrap_or_else(|| ListReader::new(range_of_bits(bits.into()), total_max));
        let (symbols, _) = reader.read(&mut Reader::new(list), 0)?;
        if !reader.is_complete() {
            self.symbols = Some(reader);
        }
        Ok(symbols)
    }

    /// Answers a request with the entries that it names.
    pub(crate) fn answer(
        &mut self,
        mode: RequestMode,
        mut entries: Vec<Entry>,
        asked_count: usize,
        is_exact: bool,
    ) -> Result<(), SessionError> {
        // The requester already has what came from it.
        entries.retain(|entry| !entry.is_applied());
        let max = 2 * asked_count as u64 + EXTRA_ITEMS;
        if entries.len() as u64 > max {
            return Err(limit("items of a request", entries.len() as u64, max));
        }
        match mode {
            RequestMode::Hashes => {}
            RequestMode::Sum => {
                let sum = Message::Items(ItemsBody::Sum(sum_of(&entries)));
                self.queue.push_back(Job::Message(sum));
            }
            RequestMode::Contents => {
                if self.flow_there() != Flow::Contents {
                    return Err(field("request mode", 0));
                }
                self.queue.push_back(Job::Items(ItemsJob::new(entries.clone())));
            }
        }
        if is_exact {
            self.only_here.extend(entries);
            self.knows_only_here = true;
        }
        self.queue.push_back(Job::Done);
        Ok(())
    }

    /// The entries of the table that have these symbols of `bits` bits.
    pub(crate) fn entries_with(&self, symbols: &[u64], bits: u8) -> Vec<Entry> {
        let Some(table) = &self.table else { return Vec::new() };
        let mut symbols = symbols.to_vec();
        symbols.dedup();
        symbols.iter().flat_map(|&symbol| table.with_prefix(symbol, bits)).copied().collect()
    }

    /// Processes items, or what was sent in their place.
    pub(crate) fn take_items(
        &mut self,
        body: &ItemsBody,
        out: &mut Outbox<SessionOutput>,
    ) -> Result<(), SessionError> {
        let flow = self.flow_here();
        match body {
            ItemsBody::Sum(sum) => {
                if flow == Flow::Contents {
                    return Err(field("items encoding", 0));
                }
                self.check_difference(sum.count)?;
                self.received = self.received.and(*sum);
                Ok(())
            }
            ItemsBody::Symbols(list) => self.take_symbols(list, flow, out),
            ItemsBody::Fixed { item_bytes, list } => {
                let items = self.items.take_fixed(*item_bytes, list)?;
                self.receive(items, out)
            }
            ItemsBody::Stream(bytes) => {
                let items = self.items.take_stream(bytes)?;
                self.receive(items, out)
            }
            ItemsBody::Packed(packed) => {
                let items = self.items.take_stream(&unpack(packed)?)?;
                self.receive(items, out)
            }
        }
    }

    fn take_symbols(
        &mut self,
        list: &[u8],
        flow: Flow,
        out: &mut Outbox<SessionOutput>,
    ) -> Result<(), SessionError> {
        let is_id = self.kind() == SymbolKind::Id64;
        if flow == Flow::Sum && !is_id || !matches!(self.accept, Accept::Any) {
            return Err(field("items encoding", 1));
        }
        let total_max = self.there_count_max();
        let range = range_of_bits(self.symbol_bits.into());
        let mut reader = self.symbols.take().unwrap_or_else(|| ListReader::new(range, total_max));
        let (symbols, _) = reader.read(&mut Reader::new(list), 0)?;
        if !reader.is_complete() {
            self.symbols = Some(reader);
        }
        if is_id {
            self.receive_ids(&symbols, out);
            return self.check_difference(self.received.count);
        }
        let bits = self.symbol_bits;
        if let Some(table) = &self.table {
            self.is_contradicted |= symbols.iter().any(|&s| table.contains_symbol(s, bits));
        }
        let left = u32::from(64 - bits);
        let remote =
            |symbol: &u64| RemoteItem { symbol: symbol.checked_shl(left).unwrap_or(0), item: None };
        self.hand_out_symbols(symbols.iter().map(remote).collect());
        self.check_difference(self.only_there.len() as u64)
    }

    /// Records the peer's digest of the union. An error if items or symbols are still incomplete.
    pub(crate) fn take_done(&mut self, attempt: u8, union: SetDigest) -> Result<(), SessionError> {
        if attempt != self.attempt || self.done_received.is_some() {
            return Err(field("attempt", attempt.into()));
        }
        if !self.items.is_at_end() || self.symbols.is_some() {
            return Err(field("items", 0));
        }
        self.done_received = Some(union);
        let is_queued = self.queue.iter().any(|job| matches!(job, Job::Done));
        if self.done_sent.is_none() && !is_queued {
            self.queue.push_back(Job::Done);
        }
        Ok(())
    }

    /// Both digests of the union, once both are known.
    pub(crate) fn both_done(&self) -> Option<(SetDigest, SetDigest)> {
        Some((self.done_sent?, self.done_received?))
    }

    /// Splits decoded symbols into those of entries here and all others.
    pub(crate) fn split(&self, symbols: &[u64]) -> Difference {
        let mut difference = Difference::default();
        let Some(table) = &self.table else { return difference };
        for &symbol in symbols {
            match table.with_prefix(symbol, self.symbol_bits) {
                // The peer has what its filter did not contain.
                [] if table.has_taken(symbol, self.symbol_bits) => difference.doubtful_count += 1,
                entries => difference.add(symbol, entries),
            }
        }
        difference
    }

    /// The same, with the entries that a find pass has found.
    pub(crate) fn split_by_found(&self, symbols: &[u64], found: &[Entry]) -> Difference {
        let found = Table::new(found.to_vec());
        let mut difference = Difference::default();
        for &symbol in symbols {
            difference.add(symbol, found.with_prefix(symbol, self.symbol_bits));
        }
        difference
    }
}
