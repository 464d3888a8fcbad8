//! What decoding finds of the difference of two sets.

use super::table::{Entry, Table};

/// What the decoding side has found.
#[derive(Default, Debug)]
pub(crate) struct Difference {
    pub(crate) here: Vec<Entry>,
    /// Symbols of items that only the peer has, with the current number of bits.
    pub(crate) there: Vec<u64>,
    /// Number of decoded symbols that cannot be attributed: those of several entries here, and those that
    /// contradict a filter. Items on both sides then have the same symbol.
    pub(crate) doubtful_count: u64,
}

impl Difference {
    /// Splits decoded symbols of `bits` bits into those of the entries that a find pass has found, and all
    /// others.
    pub(crate) fn of_found(symbols: &[u64], found: &[Entry], bits: u8) -> Self {
        let found = Table::new(found.to_vec());
        let mut difference = Self::default();
        for &symbol in symbols {
            difference.add(symbol, found.with_prefix(symbol, bits));
        }
        difference
    }

    /// Records a decoded symbol, and the entries here that have it.
    pub(crate) fn add(&mut self, symbol: u64, entries: &[Entry]) {
        match entries {
            [] => self.there.push(symbol),
            [entry] => self.here.push(*entry),
            _ => self.doubtful_count += 1,
        }
    }
}
