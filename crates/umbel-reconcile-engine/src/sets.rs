//! What is known of both sides' sets: sizes, this side's items, and which of them only this side has.

use super::attempt::Attempt;
use super::difference::Difference;
use super::digest::SetDigest;
use super::error::{Result, SessionError, limit};
use super::keys::KeyedHash;
use super::offline::StoredSketch;
use super::options::{Direction, Limits};
use super::pass::Gathered;
use super::table::{Entry, Table};
use super::terms::Terms;
use crate::limits::{CREDIT_MIN, CREDIT_PER_ITEM_MAX, ITEM_COUNT_MAX};

/// Both sets, as far as known.
#[derive(Default, Debug)]
pub(crate) struct Sets {
    /// Digest of this side's set under the current key.
    pub(crate) own: SetDigest,
    /// Numbers of items here and there before the session.
    pub(crate) here_count: u64,
    pub(crate) there_count: u64,
    pub(crate) item_bytes: u64,
    /// Mean bytes of the peer's items as it stated them; 0 if it did not.
    pub(crate) there_item_bytes: u64,
    pub(crate) table: Option<Table>,
    /// The stored sketch of this side's set.
    pub(crate) sketch: Option<Box<StoredSketch>>,
    pub(crate) only_here: Vec<Entry>,
    pub(crate) knows_only_here: bool,
}

impl Sets {
    /// The table of the last full scan, which every plan but that of stored sketches needs.
    ///
    /// # Errors
    /// If there was no scan: no message that needs the table is accepted before.
    pub(crate) fn scanned(&self) -> Result<&Table> {
        self.table.as_ref().ok_or(SessionError::Driver { what: "a step that needs a scan" })
    }

    /// Records the result of a full scan. A second scan under the same key must find the same.
    pub(crate) fn note_pass(
        &mut self,
        gathered: &Gathered,
        is_new_key: bool,
        has_applied: bool,
    ) -> Result<()> {
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
        if is_new_key && !has_applied && gathered.digest.count != self.here_count {
            return Err(changed);
        }
        if gathered.digest.count > ITEM_COUNT_MAX {
            return Err(limit("items here", gathered.digest.count, ITEM_COUNT_MAX));
        }
        self.own = gathered.digest;
        self.item_bytes = gathered.item_bytes;
        Ok(())
    }

    /// Takes the set's digest and count from the stored sketch instead of a scan.
    pub(crate) fn note_sketch(&mut self) {
        if let Some(sketch) = &self.sketch {
            self.own = sketch.digest();
            self.here_count = self.own.count;
        }
    }

    /// Mean bytes of an item here.
    pub(crate) fn mean_item_bytes(&self) -> u64 {
        self.item_bytes.div_ceil(self.own.count.max(1))
    }

    /// Upper bound of the peer's current number of items: it may have taken what this side has.
    pub(crate) const fn there_count_max(&self, terms: &Terms, attempt: &Attempt) -> u64 {
        if attempt.tried > 1 && terms.changes_there() {
            self.there_count.saturating_add(self.here_count)
        } else {
            self.there_count
        }
    }

    /// The peer's probable current number of items.
    pub(crate) fn there_count_now(&self, terms: &Terms, attempt: &Attempt) -> u64 {
        let is_merged = attempt.tried > 1 && terms.aim.direction == Direction::TwoWay;
        if is_merged { self.own.count } else { self.there_count }
    }

    /// Checks the peer's number of items against the limit on skew.
    pub(crate) fn check_skew(&self, limits: &Limits) -> Result<()> {
        let max = self.here_count.saturating_mul(4).saturating_add(1 << 20);
        if !limits.allow_skew && self.there_count > max {
            let what = "items of the peer (--allow-skew lifts this limit)";
            return Err(limit(what, self.there_count, max));
        }
        Ok(())
    }

    /// Refuses a credit for which a responder would compute and send without end. Stored coded symbols are
    /// bounded by their number.
    pub(crate) fn check_credit(&self, attempt: &Attempt, credit: u64) -> Result<()> {
        let both = self.own.count.saturating_add(self.there_count);
        let max = both.saturating_mul(CREDIT_PER_ITEM_MAX);
        let max = max.saturating_add(CREDIT_MIN);
        if credit > max && !attempt.is_stored {
            return Err(limit("coded symbols are asked for", credit, max));
        }
        Ok(())
    }

    /// The entries of the table; none before the full scan.
    pub(crate) fn entries(&self) -> &[Entry] {
        self.table.as_ref().map(Table::entries).unwrap_or_default()
    }

    /// Whether the table has this item, by its full hash.
    pub(crate) fn contains(&self, hash: KeyedHash) -> bool {
        self.table.as_ref().is_some_and(|table| table.contains(hash))
    }

    /// The entries of the table that have these symbols of `bits` bits.
    pub(crate) fn entries_with(&self, symbols: &[u64], bits: u8) -> Vec<Entry> {
        let Some(table) = &self.table else { return Vec::new() };
        let mut symbols = symbols.to_vec();
        symbols.dedup();
        symbols.iter().flat_map(|&symbol| table.with_prefix(symbol, bits)).copied().collect()
    }

    /// Removes from the table the entries that the peer's filter does not contain: only this side has them.
    pub(crate) fn take_absent(&mut self, flags: &[bool]) -> Vec<Entry> {
        let absent = self.table.as_mut().map(|table| table.take_out(flags)).unwrap_or_default();
        self.only_here.extend_from_slice(&absent);
        absent
    }

    /// Splits decoded symbols of `bits` bits into those of entries here and all others.
    pub(crate) fn split(&self, symbols: &[u64], bits: u8) -> Difference {
        let mut difference = Difference::default();
        let Some(table) = &self.table else { return difference };
        for &symbol in symbols {
            match table.with_prefix(symbol, bits) {
                // The peer has what its filter did not contain.
                [] if table.has_taken(symbol, bits) => difference.doubtful_count += 1,
                entries => difference.add(symbol, entries),
            }
        }
        difference
    }
}
