//! What decoding finds of the difference of two sets.

use super::table::Entry;

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
    /// Records a decoded symbol, and the entries here that have it.
    pub(crate) fn add(&mut self, symbol: u64, entries: &[Entry]) {
        match entries {
            [] => self.there.push(symbol),
            [entry] => self.here.push(*entry),
            _ => self.doubtful_count += 1,
        }
    }
}
