//! One-hash filters: one side's positions, coded as gaps, and the test which items of the other side are at
//! none of them.
//!
//! Each of n items has one of m = ⌈n / −ln(1 − f)⌉ positions, so an item that is not in the set hits a
//! taken position with probability f. The *set* of positions is coded, not the list of items, which makes
//! it shorter than a Golomb-coded set. If more than half of the positions are taken, the free ones are
//! listed instead.
//!
//! ```text
//! │ u8 stage │ u8 lists the free ones │ varint m │ varint total │ varint count │ varint modulus │ gaps │
//! ```
//!
//! Bits per item at f = 2^-1, 2^-2, 2^-4, 2^-8: 1.44, 2.86, 5.25, 9.45; a Bloom filter takes 1.44, 2.89,
//! 5.77, 11.54.

use std::num::NonZeroU64;

use umbel_bits::{BitReader, BitWriter, GolombCode};

use super::error::SessionFrameError;
use super::keys::KeyedHash;
use super::message::Message;
use super::table::Table;
use super::wire::{Reader, put_varint};
use crate::limits::{FRAME_BODY_BYTES_CUT, POSITIONS_PER_ITEM_MAX};

/// Which filter of a session. The two use different positions, because items that pass the first one
/// collide in its positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FilterStage {
    First,
    Second,
}

impl FilterStage {
    const fn number(self) -> u8 {
        match self {
            Self::First => 1,
            Self::Second => 2,
        }
    }

    fn position(self, hash: KeyedHash, position_count: u64) -> u64 {
        let uniform = match self {
            Self::First => hash.hi,
            Self::Second => mix(hash.lo ^ hash.hi.rotate_left(32)),
        };
        let product = u128::from(uniform) * u128::from(position_count);
        u64::try_from(product >> 64).expect("below the position count")
    }
}

/// MurmurHash3's 64-bit finalizer: symbols are prefixes of `lo`, so positions must come from all bits.
const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let value = (value ^ value >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ value >> 33
}

/// Sorted positions of the table's items, each with the item's index in the table.
fn positions(table: &Table, stage: FilterStage, position_count: u64) -> Vec<(u64, usize)> {
    let entries = table.entries().iter().zip(0..);
    let position = |hash| stage.position(hash, position_count);
    let mut positions: Vec<(u64, usize)> =
        entries.map(|(entry, place)| (position(entry.hash), place)).collect();
    positions.sort_unstable();
    positions
}

/// Writes a filter, split into frames.
#[derive(Debug)]
pub(crate) struct FilterJob {
    stage: FilterStage,
    lists_free: bool,
    position_count: u64,
    listed: Vec<u64>,
    cursor: usize,
    next: u64,
    code: GolombCode,
    is_begun: bool,
}

impl FilterJob {
    /// A filter of the table's items with false-positive rate 2^(−quarters/4).
    pub(crate) fn new(table: &Table, stage: FilterStage, quarters: u8) -> Self {
        let rate = (-f64::from(quarters) / 4.0).exp2();
        let item_count = table.entries().len().max(1) as f64;
        #[expect(clippy::cast_possible_truncation, reason = "n·2^24 at most")]
        let position_count = (item_count / -(-rate).ln_1p()).ceil() as u64;
        let mut taken: Vec<u64> = positions(table, stage, position_count)
            .into_iter()
            .map(|(position, _)| position)
            .collect();
        taken.dedup();
        let lists_free = taken.len() as u64 > position_count / 2;
        let listed = if lists_free { complement(&taken, position_count) } else { taken };
        let probability = (listed.len().max(1) as f64 / position_count as f64).min(1.0);
        let code = GolombCode::optimal(probability).expect("a probability");
        Self {
            stage,
            lists_free,
            position_count,
            listed,
            cursor: 0,
            next: 0,
            code,
            is_begun: false,
        }
    }

    pub(crate) fn next(&mut self) -> Option<Message> {
        let left = self.listed.get(self.cursor..).unwrap_or_default();
        if left.is_empty() && self.is_begun {
            return None;
        }
        self.is_begun = true;
        let mut bits = BitWriter::new();
        let mut count = 0;
        for &position in left {
            if bits.bit_len() >= 8 * FRAME_BODY_BYTES_CUT as u64 {
                break;
            }
            self.code.write(&mut bits, position - self.next);
            self.next = position + 1;
            count += 1;
        }
        self.cursor += count;
        let mut body = vec![self.stage.number(), u8::from(self.lists_free)];
        let numbers = [
            self.position_count,
            self.listed.len() as u64,
            count as u64,
            self.code.modulus().get(),
        ];
        numbers.iter().for_each(|&number| put_varint(&mut body, number));
        body.extend_from_slice(&bits.finish());
        Some(Message::Filter(body))
    }
}

fn complement(taken: &[u64], position_count: u64) -> Vec<u64> {
    let mut free = Vec::new();
    let mut next = 0;
    for &position in taken {
        free.extend(next..position);
        next = position + 1;
    }
    free.extend(next..position_count);
    free
}

/// Tests the table's items against a filter while it arrives.
#[derive(Debug)]
pub(crate) struct FilterTest {
    stage: FilterStage,
    header: Option<Header>,
    /// This side's positions, each with the item's index in the table.
    own: Vec<(u64, usize)>,
    cursor: usize,
    seen: u64,
    next: u64,
    /// Table indices of this side's items that are not in the filter.
    absent: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    lists_free: bool,
    position_count: u64,
    total: u64,
    code: GolombCode,
}

impl FilterTest {
    pub(crate) const fn new(stage: FilterStage) -> Self {
        Self {
            stage,
            header: None,
            own: Vec::new(),
            cursor: 0,
            seen: 0,
            next: 0,
            absent: Vec::new(),
        }
    }

    /// Processes a frame of the filter; the sending side has at most `item_count` items.
    pub(crate) fn take(
        &mut self,
        table: &Table,
        item_count: u64,
        body: &[u8],
    ) -> Result<(), SessionFrameError> {
        let mut reader = Reader::new(body);
        let (header, count) = self.read_header(&mut reader, item_count)?;
        if self.header.is_none() {
            self.own = positions(table, self.stage, header.position_count);
            self.header = Some(header);
        } else if self.header != Some(header) {
            return Err(SessionFrameError::Field { field: "filter total", got: header.total });
        }
        let bytes = reader.rest();
        let bits_min = count.saturating_mul(u64::from(header.code.modulus().ilog2()).max(1));
        if bits_min > 8 * bytes.len() as u64 {
            return Err(SessionFrameError::Truncated { field: "filter" });
        }
        let mut bits = BitReader::new(bytes);
        for _ in 0..count {
            let gap = header.code.read(&mut bits)?;
            let position = self.next.checked_add(gap);
            let position = position.filter(|&position| position < header.position_count);
            let position =
                position.ok_or(SessionFrameError::Field { field: "filter gap", got: gap })?;
            self.pass(position, header.lists_free);
            self.next = position + 1;
        }
        bits.finish()?;
        self.seen += count;
        if self.is_complete() {
            self.pass(header.position_count, header.lists_free);
        }
        Ok(())
    }

    fn read_header(
        &self,
        reader: &mut Reader<'_>,
        item_count: u64,
    ) -> Result<(Header, u64), SessionFrameError> {
        let stage = reader.u8("filter stage")?;
        if stage != self.stage.number() {
            return Err(SessionFrameError::Field { field: "filter stage", got: stage.into() });
        }
        let lists_free = reader.u8("filter form")? != 0;
        let positions_max = item_count.max(1).saturating_mul(POSITIONS_PER_ITEM_MAX);
        let position_count = reader.varint_at_most("position count", positions_max)?;
        let total_max = if lists_free { position_count } else { item_count.min(position_count) };
        let total = reader.varint_at_most("filter total", total_max)?;
        let count = reader.varint_at_most("filter count", total.saturating_sub(self.seen))?;
        if count == 0 && total > 0 {
            return Err(SessionFrameError::Field { field: "filter count", got: count });
        }
        let modulus = reader.varint("filter modulus")?;
        let wrong = SessionFrameError::Field { field: "filter modulus", got: modulus };
        let code = GolombCode::new(NonZeroU64::new(modulus).ok_or(wrong)?);
        Ok((Header { lists_free, position_count, total, code }, count))
    }

    /// Advances past a listed position, and collects the absent items before or at it.
    fn pass(&mut self, listed: u64, lists_free: bool) {
        while let Some(&(position, place)) = self.own.get(self.cursor)
            && position <= listed
        {
            if lists_free == (position == listed) {
                self.absent.push(place);
            }
            self.cursor += 1;
        }
    }

    /// Whether the whole filter has arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.header.is_some_and(|header| header.total == self.seen)
    }

    /// For each of the table's items, in order, whether the filter lacks it.
    pub(crate) fn absent(self) -> Vec<bool> {
        let mut flags = vec![false; self.own.len()];
        for place in self.absent {
            if let Some(flag) = flags.get_mut(place) {
                *flag = true;
            }
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::item::{ItemIndex, ItemRef};
    use super::super::keys::{KeySource, SessionKey};
    use super::super::options::SymbolKind;
    use super::super::table::Entry;
    use super::*;

    fn table(ids: std::ops::Range<u64>) -> Table {
        let source =
            KeySource { seed: [3; 16], dataset_id: 1, nonce_initiator: 2, nonce_responder: 3 };
        let key = SessionKey::derive(&source, 1, SymbolKind::Id64);
        let entry = |id| Entry { hash: key.hash(ItemRef::Id(id)), index: ItemIndex(id) };
        Table::new(ids.map(entry).collect())
    }

    fn bodies(table: &Table, stage: FilterStage, quarters: u8) -> Vec<Vec<u8>> {
        let mut job = FilterJob::new(table, stage, quarters);
        std::iter::from_fn(|| job.next()).map(|message| message.body()).collect()
    }

    proptest! {
        /// An item in the filter is never reported; a reported item has another position.
        #[test]
        fn absent_items_are_those_on_free_positions(
            theirs in 0..400u64, shift in 0..400u64, ours in 0..400u64, quarters in 2..40u8,
            is_first: bool,
        ) {
            let stage = if is_first { FilterStage::First } else { FilterStage::Second };
            let (theirs, ours) = (table(0..theirs), table(shift..shift + ours));
            let mut test = FilterTest::new(stage);
            let mut position_count = 0;
            for body in bodies(&theirs, stage, quarters) {
                prop_assert!(!test.is_complete());
                test.take(&ours, theirs.entries().len() as u64, &body).unwrap();
                position_count = test.header.unwrap().position_count;
            }
            prop_assert!(test.is_complete());
            let taken: BTreeSet<u64> =
                theirs.entries().iter().map(|e| stage.position(e.hash, position_count)).collect();
            let expected: Vec<bool> = ours
                .entries()
                .iter()
                .map(|e| !taken.contains(&stage.position(e.hash, position_count)))
                .collect();
            prop_assert_eq!(test.absent(), expected);
        }

        #[test]
        fn any_bytes_are_a_filter_or_an_error(mut bytes: Vec<u8>, quarters in 2..20u8) {
            let ours = table(0..50);
            if let (Some(first), false) = (bytes.first_mut(), quarters == 2) {
                *first = 1;
            }
            let mut test = FilterTest::new(FilterStage::First);
            let _ = test.take(&ours, 100, &bytes);
        }
    }

    /// The numbers in the module documentation, measured.
    #[test]
    fn filters_have_the_promised_length_and_rate() {
        let (theirs, others) = (table(0..50_000), table(100_000..150_000));
        for (quarters, bits) in [(2, 0.72), (4, 1.45), (8, 2.86), (16, 5.25), (32, 9.45)] {
            let bodies = bodies(&theirs, FilterStage::First, quarters);
            let bytes: usize = bodies.iter().map(Vec::len).sum();
            let measured = 8.0 * bytes as f64 / 50_000.0;
            assert!((measured / bits - 1.0).abs() < 0.03, "{measured} at {quarters}");
            let mut test = FilterTest::new(FilterStage::First);
            bodies.iter().for_each(|body| test.take(&others, 50_000, body).unwrap());
            let passed = test.absent().iter().filter(|absent| !**absent).count();
            let rate = passed as f64 / 50_000.0;
            let expected = (-f64::from(quarters) / 4.0).exp2();
            assert!((rate / expected - 1.0).abs() < 0.15, "{rate} for {expected}");
        }
    }
}
