//! Receives items: decides which are accepted, and hands them out.

use super::core::Core;
use super::error::SessionError;
use super::event::SessionOutput;
use super::item::{Item, RemoteItem};
use super::keys::KeyedHash;
use super::table::top_bits;
use umbel_step::Outbox;
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

impl Core {
    /// Accepts items that arrived: those that were requested, each once, and not those that are here.
    pub(crate) fn receive(
        &mut self,
        items: Vec<Item>,
        out: &mut Outbox<SessionOutput>,
    ) -> Result<(), SessionError> {
        let mut accepted = Vec::new();
        for item in items {
            let hash = self.key.hash(item.as_item_ref());
            let symbol = top_bits(hash.symbol, self.symbol_bits);
            if !self.accepts(hash, symbol)? || !self.received_hashes.insert((hash.lo, hash.hi)) {
                continue;
            }
            self.received.add(hash);
            self.arrived_bytes += item.as_item_ref().bytes_len() as u64;
            self.arrived_count += 1;
            accepted.push(RemoteItem { symbol: hash.symbol, item: Some(item) });
        }
        self.check_difference(self.received.count)?;
        self.hand_out(accepted, out);
        Ok(())
    }

    fn accepts(&mut self, hash: KeyedHash, symbol: u64) -> Result<bool, SessionError> {
        let is_here = self.table.as_ref().is_some_and(|table| table.contains(hash));
        match &mut self.accept {
            Accept::Nothing => Err(SessionError::UnexpectedItem { symbol }),
            Accept::Any => {
                self.is_contradicted |= is_here;
                Ok(!is_here)
            }
            Accept::Wanted { symbols, request_bits, extras_left } => {
                if symbols.binary_search(&symbol).is_ok() {
                    return Ok(!is_here);
                }
                // A request with shortened symbols may return another item with the same prefix.
                let shift = u32::from(self.symbol_bits.saturating_sub(*request_bits));
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
                if let Some(table) = &self.table
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
    pub(crate) fn hand_out(&mut self, items: Vec<RemoteItem>, out: &mut Outbox<SessionOutput>) {
        self.knows_only_there = true;
        if items.is_empty() {
            return;
        }
        if self.changes(self.is_initiator) || planted::on(Planted::ToldUnverified) {
            self.unapplied += 1;
            self.has_applied = true;
            out.push(SessionOutput::OnlyThere(items));
        } else {
            self.only_there.extend(items);
        }
    }

    /// Accepts the ids of these symbols as items that only the peer has.
    pub(crate) fn receive_ids(&mut self, symbols: &[u64], out: &mut Outbox<SessionOutput>) {
        let mut items = Vec::with_capacity(symbols.len());
        for &symbol in symbols {
            let item = self.key.item_of(symbol);
            let hash = self.key.hash(item.as_item_ref());
            let is_here = self.table.as_ref().is_some_and(|table| table.contains(hash));
            self.is_contradicted |= is_here;
            if !is_here && self.received_hashes.insert((hash.lo, hash.hi)) {
                self.received.add(hash);
                items.push(RemoteItem { symbol, item: Some(item) });
            }
        }
        self.hand_out(items, out);
    }
}
