//! Receives items: decides which are accepted, and hands them out.

use std::collections::BTreeSet;

use super::attempt::Attempt;
use super::digest::SetDigest;
use super::error::{Result, SessionError, field};
use super::event::{Out, SessionOutput};
use super::item::{Item, RemoteItem};
use super::items_code::{ItemsReader, unpack};
use super::keys::KeyedHash;
use super::lists::{ListReader, range_of_bits};
use super::message::ItemsBody;
use super::options::{Options, SymbolKind};
use super::sets::Sets;
use super::table::top_bits;
use super::terms::{Flow, Terms};
use super::wire::Reader;
use umbel_step::planted::{self, Planted};

/// Which items may arrive.
#[derive(Debug)]
pub(crate) enum Accept {
    /// None were requested.
    Nothing,
    /// Any that are not here: the peer found them missing by this side's filter, or decoded them.
    Any,
    /// Those whose symbols were decoded, sorted; a request with shortened symbols may return a few others.
    Wanted { symbols: Vec<u64>, request_bits: u8, extras_left: u64 },
    /// All items of the peer; each flag says whether this side's entry of this index arrived.
    Whole { seen: Vec<bool> },
}

/// What arrived from the peer.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Digest of what only the peer has, by items that arrived or by the sums that it sent.
    pub(crate) sum: SetDigest,
    hashes: BTreeSet<(u64, u64)>,
    /// Bytes and number of items that arrived.
    pub(crate) item_bytes: u64,
    pub(crate) item_count: u64,
    pub(crate) accept: Accept,
    /// Whether the peer sent, as its own alone, an item that this side has too: a filter was wrong, or two
    /// symbols are equal.
    pub(crate) is_contradicted: bool,
    items: ItemsReader,
    symbols: Option<ListReader>,
    /// Items to be shown once they are verified.
    pub(crate) only_there: Vec<RemoteItem>,
    /// Batches that were handed out and are not applied yet.
    pub(crate) unapplied: u64,
    pub(crate) has_applied: bool,
}

impl Arrivals {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            sum: SetDigest::default(),
            hashes: BTreeSet::new(),
            item_bytes: 0,
            item_count: 0,
            accept: Accept::Nothing,
            is_contradicted: false,
            items: ItemsReader::new(options.kind, options.limits.item_bytes_max),
            symbols: None,
            only_there: Vec::new(),
            unapplied: 0,
            has_applied: false,
        }
    }

    /// Discards what the previous attempt found, but not what was applied.
    pub(crate) fn begin_attempt(&mut self) {
        self.sum = SetDigest::default();
        self.hashes.clear();
        self.accept = Accept::Nothing;
        self.is_contradicted = false;
        self.symbols = None;
        self.only_there.clear();
    }

    /// Whether neither items nor a list of symbols are incomplete.
    pub(crate) const fn are_complete(&self) -> bool {
        self.items.is_at_end() && self.symbols.is_none()
    }

    /// The symbols of a frame of a list of at most `total_max` symbols of `bits` bits, and whether the list
    /// is complete with it.
    pub(crate) fn read_symbols(
        &mut self,
        list: &[u8],
        bits: u8,
        total_max: u64,
    ) -> Result<(Vec<u64>, bool)> {
        let new = || ListReader::new(range_of_bits(bits.into()), total_max);
        let mut reader = self.symbols.take().unwrap_or_else(new);
        let (symbols, _) = reader.read(&mut Reader::new(list), 0)?;
        let is_complete = reader.is_complete();
        if !is_complete {
            self.symbols = Some(reader);
        }
        Ok((symbols, is_complete))
    }

    /// Records symbols of `bits` bits without items, to be shown once they are verified.
    pub(crate) fn show_symbols(&mut self, symbols: &[u64], bits: u8) {
        let left = u32::from(64 - bits);
        let remote =
            |symbol: &u64| RemoteItem { symbol: symbol.checked_shl(left).unwrap_or(0), item: None };
        self.only_there.extend(symbols.iter().map(remote));
    }

    /// Adds an item to the sum; false if it arrived before.
    fn add(&mut self, hash: KeyedHash) -> bool {
        let is_new = self.hashes.insert((hash.lo, hash.hi));
        if is_new {
            self.sum.add(hash);
        }
        is_new
    }
}

/// Receives for one frame: what arrives, beside what decides about it.
pub(crate) struct Receiver<'a> {
    pub(crate) terms: &'a Terms,
    pub(crate) attempt: &'a Attempt,
    pub(crate) sets: &'a Sets,
    pub(crate) arrivals: &'a mut Arrivals,
}

impl Receiver<'_> {
    /// Processes items, or what was sent in their place.
    pub(crate) fn take_items(&mut self, body: &ItemsBody, out: &mut Out) -> Result<()> {
        let flow = self.terms.flow_here();
        match body {
            ItemsBody::Sum(sum) => {
                if flow == Flow::Contents {
                    return Err(field("items encoding", ItemsBody::SUM.into()));
                }
                self.terms.check_difference(sum.count)?;
                self.arrivals.sum = self.arrivals.sum.and(*sum);
                Ok(())
            }
            ItemsBody::Symbols(list) => self.take_symbols(list, flow, out),
            ItemsBody::Fixed { item_bytes, list } => {
                let items = self.arrivals.items.take_fixed(*item_bytes, list)?;
                self.receive(items, out)
            }
            ItemsBody::Stream(bytes) => {
                let items = self.arrivals.items.take_stream(bytes)?;
                self.receive(items, out)
            }
            ItemsBody::Packed(packed) => {
                let items = self.arrivals.items.take_stream(&unpack(packed)?)?;
                self.receive(items, out)
            }
        }
    }

    fn take_symbols(&mut self, list: &[u8], flow: Flow, out: &mut Out) -> Result<()> {
        let is_id = self.terms.kind() == SymbolKind::Id64;
        if flow == Flow::Sum && !is_id || !matches!(self.arrivals.accept, Accept::Any) {
            return Err(field("items encoding", ItemsBody::SYMBOLS.into()));
        }
        let total_max = self.sets.there_count_max(self.terms, self.attempt);
        let bits = self.attempt.symbol_bits;
        let (symbols, _) = self.arrivals.read_symbols(list, bits, total_max)?;
        if is_id {
            self.receive_ids(&symbols, out);
            return self.terms.check_difference(self.arrivals.sum.count);
        }
        if let Some(table) = &self.sets.table {
            self.arrivals.is_contradicted |=
                symbols.iter().any(|&s| table.contains_symbol(s, bits));
        }
        self.arrivals.show_symbols(&symbols, bits);
        self.terms.check_difference(self.arrivals.only_there.len() as u64)
    }

    /// Accepts items that arrived: those that were requested, each once, and not those that are here.
    fn receive(&mut self, items: Vec<Item>, out: &mut Out) -> Result<()> {
        let mut accepted = Vec::new();
        for item in items {
            let hash = self.attempt.key.hash(item.as_item_ref());
            let symbol = top_bits(hash.symbol, self.attempt.symbol_bits);
            if !self.accepts(hash, symbol)? || !self.arrivals.add(hash) {
                continue;
            }
            self.arrivals.item_bytes += item.as_item_ref().bytes_len() as u64;
            self.arrivals.item_count += 1;
            accepted.push(RemoteItem { symbol: hash.symbol, item: Some(item) });
        }
        self.terms.check_difference(self.arrivals.sum.count)?;
        self.hand_out(accepted, out);
        Ok(())
    }

    fn accepts(&mut self, hash: KeyedHash, symbol: u64) -> Result<bool> {
        let is_here = self.sets.contains(hash);
        match &mut self.arrivals.accept {
            Accept::Nothing => Err(SessionError::UnexpectedItem { symbol }),
            Accept::Any => {
                self.arrivals.is_contradicted |= is_here;
                Ok(!is_here)
            }
            Accept::Wanted { symbols, request_bits, extras_left } => {
                if symbols.binary_search(&symbol).is_ok() {
                    return Ok(!is_here);
                }
                // A request with shortened symbols may return another item with the same prefix.
                let shift = u32::from(self.attempt.symbol_bits.saturating_sub(*request_bits));
                let prefix = symbol.checked_shr(shift).unwrap_or(0);
                let prefix_of = |wanted: &u64| wanted.checked_shr(shift).unwrap_or(0);
                let at = symbols.partition_point(|wanted| prefix_of(wanted) < prefix);
                let is_asked = symbols.get(at).is_some_and(|wanted| prefix_of(wanted) == prefix);
                if !is_asked || *extras_left == 0 {
                    return Err(SessionError::UnexpectedItem { symbol });
                }
                *extras_left -= 1;
                Ok(false)
            }
            Accept::Whole { seen } => {
                if let Some(table) = &self.sets.table
                    && is_here
                {
                    let entries = table.entries();
                    let first = entries.partition_point(|e| e.hash.symbol < hash.symbol);
                    let at = entries.iter().skip(first).position(|e| e.hash == hash);
                    if let Some(slot) = at.and_then(|at| seen.get_mut(first + at)) {
                        *slot = true;
                    }
                }
                Ok(!is_here)
            }
        }
    }

    /// Hands items out to be applied, or keeps them until they are verified.
    fn hand_out(&mut self, items: Vec<RemoteItem>, out: &mut Out) {
        if items.is_empty() {
            return;
        }
        if self.terms.changes_here() || planted::on(Planted::ToldUnverified) {
            self.arrivals.unapplied += 1;
            self.arrivals.has_applied = true;
            out.push(SessionOutput::OnlyThere(items));
        } else {
            self.arrivals.only_there.extend(items);
        }
    }

    /// Accepts the ids of these symbols as items that only the peer has.
    pub(crate) fn receive_ids(&mut self, symbols: &[u64], out: &mut Out) {
        let mut items = Vec::with_capacity(symbols.len());
        for &symbol in symbols {
            let item = self.attempt.key.item_of(symbol);
            let hash = self.attempt.key.hash(item.as_item_ref());
            let is_here = self.sets.contains(hash);
            self.arrivals.is_contradicted |= is_here;
            if !is_here && self.arrivals.add(hash) {
                items.push(RemoteItem { symbol, item: Some(item) });
            }
        }
        self.hand_out(items, out);
    }
}
