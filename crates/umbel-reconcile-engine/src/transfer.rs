//! From a decoded difference to equal digests.
//!
//! The side that decoded knows which of its entries the other side lacks, and the symbols of what it lacks
//! itself. It sends the former and requests the latter, unless the symbol is the item; the other side
//! answers. Each side then sends count and digest of the union of both sets: its own set, and what it
//! received, as items or as a sum. The session succeeds if both are equal.

use super::attempt::Attempt;
use super::difference::Difference;
use super::digest::SetDigest;
use super::error::{Result, field, limit};
use super::event::Out;
use super::job::{ItemsJob, Job, Jobs, SymbolsJob, SymbolsUse};
use super::message::{ItemsBody, Message, RequestMode};
use super::options::SymbolKind;
use super::receive::{Accept, Arrivals, Receiver};
use super::sets::Sets;
use super::table::Entry;
use super::terms::{Flow, Terms};

/// Extra items that a request with shortened symbols may return.
const EXTRA_ITEMS: u64 = 64;

fn sum_of(entries: &[Entry]) -> SetDigest {
    let mut sum = SetDigest::default();
    entries.iter().for_each(|entry| sum.add(entry.hash));
    sum
}

/// The transfer of a difference that is known: what is to be sent, and what may arrive.
pub(crate) struct Transfer<'a> {
    pub(crate) terms: &'a Terms,
    pub(crate) attempt: &'a Attempt,
    pub(crate) sets: &'a mut Sets,
    pub(crate) arrivals: &'a mut Arrivals,
    pub(crate) jobs: &'a mut Jobs,
}

impl Transfer<'_> {
    /// Queues what only this side has, in the form that the direction requires. Nothing is sent for no
    /// entries.
    pub(crate) fn send_only_here(&mut self, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        let flow = if self.terms.empties_responder(self.sets.there_count) {
            Flow::Sum
        } else {
            self.terms.flow_there()
        };
        let is_id = self.terms.kind() == SymbolKind::Id64;
        if flow == Flow::Contents && !is_id {
            self.jobs.push(Job::Items(ItemsJob::new(entries.to_vec())));
            return;
        }
        if flow != Flow::Sum {
            let bits = self.attempt.symbol_bits;
            let mut symbols: Vec<u64> = entries.iter().map(|entry| entry.symbol(bits)).collect();
            symbols.sort_unstable();
            self.jobs.push(Job::Symbols(SymbolsJob::new(SymbolsUse::Items, symbols, bits)));
            if is_id {
                return;
            }
        }
        let sum = Message::Items(ItemsBody::Sum(sum_of(entries)));
        self.jobs.push(Job::Message(sum));
    }

    /// Starts the transfer of the decoded difference. `request_bits` is the symbol length to which a
    /// request may be shortened.
    pub(crate) fn begin(
        &mut self,
        difference: Difference,
        request_bits: u8,
        out: &mut Out,
    ) -> Result<()> {
        let Difference { here, mut there, .. } = difference;
        self.terms.check_difference((here.len() + there.len()) as u64)?;
        self.send_only_here(&here);
        self.sets.only_here.extend(here);
        self.sets.knows_only_here = true;
        there.sort_unstable();
        there.dedup();
        if there.is_empty() {
            self.jobs.push(Job::Done);
            return Ok(());
        }
        if self.terms.kind() == SymbolKind::Id64 {
            let Self { terms, attempt, .. } = *self;
            let mut receiver =
                Receiver { terms, attempt, sets: self.sets, arrivals: self.arrivals };
            receiver.receive_ids(&there, out);
        }
        let Some(mode) = self.terms.request_mode() else {
            self.jobs.push(Job::Done);
            return Ok(());
        };
        let is_exact = mode != RequestMode::Contents || self.terms.notifies_peer();
        let bits = if is_exact {
            self.attempt.symbol_bits
        } else {
            request_bits.min(self.attempt.symbol_bits)
        };
        let shift = u32::from(self.attempt.symbol_bits - bits);
        let mut asked: Vec<u64> = there.iter().map(|symbol| symbol >> shift).collect();
        asked.dedup();
        self.jobs.push(Job::Symbols(SymbolsJob::new(SymbolsUse::Request(mode), asked, bits)));
        match mode {
            RequestMode::Hashes => self.jobs.push(Job::Done),
            RequestMode::Contents => {
                let extras_left = there.len() as u64 + EXTRA_ITEMS;
                self.arrivals.accept =
                    Accept::Wanted { symbols: there, request_bits: bits, extras_left };
            }
            RequestMode::Sum => {
                self.arrivals.show_symbols(&there, self.attempt.symbol_bits);
            }
        }
        Ok(())
    }

    /// Answers a request with the entries that it names.
    pub(crate) fn answer(
        &mut self,
        mode: RequestMode,
        mut entries: Vec<Entry>,
        asked_count: usize,
        is_exact: bool,
    ) -> Result<()> {
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
                self.jobs.push(Job::Message(sum));
            }
            RequestMode::Contents => {
                if self.terms.flow_there() != Flow::Contents {
                    return Err(field("request mode", 0));
                }
                self.jobs.push(Job::Items(ItemsJob::new(entries.clone())));
            }
        }
        if is_exact {
            self.sets.only_here.extend(entries);
            self.sets.knows_only_here = true;
        }
        self.jobs.push(Job::Done);
        Ok(())
    }
}
