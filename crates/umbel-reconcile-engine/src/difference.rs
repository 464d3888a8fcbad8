//! What decoding finds of the difference of two sets.

use super::table::Entry;

/// What the decoding side knows.
#[derive(Default, Debug)]
pub(crate) struct Difference {
    pub(crate) here: Vec<Entry>,
    /// Symbols of what only the peer has, of the current number of bits.
    pub(crate) there: Vec<u64>,
    /// Decoded symbols of which nobody can say what they stand for: those of several entries here, and those that
    /// contradict a filter. Items on both sides have the same symbol then.
    pub(crate) doubtful_count: u64,
}

impl Difference {
    /// Takes the entries here that have a decoded symbol.
    pub(crate) fn add(&mut self, symbol: u64, entries: &[Entry]) {
        match entries {
            [] => self.there.push(symbol),
            [entry] => self.here.push(*entry),
            _ => self.doubtful_count += 1,
        }
    }
}
