//! Computes the coded symbols of a set, a block of indices at a time.
//!
//! Each symbol keeps its walk at its next index. A block is filled in passes. The first pass goes
//! over all symbols and lists those whose next index is in the block; each further pass adds the
//! listed ones, advances them by a step, and keeps those that are still in the block. Unlike with a
//! heap, no step depends on another, and no branch depends on an index.

use super::{CodedSymbol, Indices};

/// Fewest coded symbols that are computed at once, as a share of those before: a pass over all
/// symbols costs about a quarter of a step, and a quarter more coded symbols take half a step.
const AHEAD_SHARE: usize = 4;

/// Symbols that are processed together, so that the list stays in cache.
const GROUP_LENGTH: usize = 1 << 12;

/// The stream of coded symbols of a set: 24 bytes per symbol.
///
/// ```
/// use umbel_sketch::{CodedSymbol, RibltEncoder};
///
/// let mut encoder = RibltEncoder::new();
/// encoder.add(5, 1_234_567_891); // indices 0, 2, 3, 9, ..
/// encoder.add(6, 1_234_567_891 << 32);
/// let first = encoder.next_symbols(1);
/// assert_eq!(first, [CodedSymbol { sum: 3, check: 1_234_567_891 }]);
/// assert_eq!(encoder.next_index(), 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct RibltEncoder {
    symbols: Vec<Walk>,
    /// The last block of computed coded symbols; after those already `taken` they begin with `next_index`.
    ahead: Vec<CodedSymbol>,
    taken: usize,
    next_index: usize,
}

/// A symbol and its walk.
#[derive(Clone, Debug)]
struct Walk {
    symbol: u64,
    check: u32,
    indices: Indices,
}

impl RibltEncoder {
    /// An encoder of the empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An encoder of the empty set, with capacity for this many symbols.
    #[must_use]
    pub fn with_capacity(symbol_count: usize) -> Self {
        Self { symbols: Vec::with_capacity(symbol_count), ..Self::default() }
    }

    /// Number of symbols.
    #[must_use]
    pub fn symbol_count(&self) -> usize {
        self.symbols.len()
    }

    /// Index of the next coded symbol.
    #[must_use]
    pub const fn next_index(&self) -> usize {
        self.next_index
    }

    /// Adds a symbol with its keyed hash. Adding it again removes it, but it still takes memory.
    ///
    /// # Panics
    /// After the first coded symbol was computed: all of them must belong to one set.
    pub fn add(&mut self, symbol: u64, check_hash: u64) {
        assert!(self.next_index == 0, "symbols come before coded symbols");
        let check = CodedSymbol::of(symbol, check_hash).check;
        self.symbols.push(Walk { symbol, check, indices: Indices::new(check_hash) });
    }

    /// The next coded symbols. They do not depend on how many are requested at a time.
    #[must_use]
    pub fn next_symbols(&mut self, count: usize) -> Vec<CodedSymbol> {
        if count > self.ahead.len() - self.taken {
            // Only here is the rest moved: it is shorter than what is computed now or returned.
            self.ahead.drain(..self.taken);
            self.taken = 0;
            let missing = count - self.ahead.len();
            let made = self.next_index + self.ahead.len();
            self.make(missing.max(made / AHEAD_SHARE));
        }
        let symbols = self.ahead[self.taken..self.taken + count].to_vec();
        self.taken += count;
        self.next_index += count;
        symbols
    }

    /// Computes the next `count` coded symbols; none before them is taken.
    fn make(&mut self, count: usize) {
        let begin = self.next_index + self.ahead.len();
        let end = (begin + count) as u64;
        let first = self.ahead.len();
        self.ahead.resize(first + count, CodedSymbol::default());
        let block = &mut self.ahead[first..];
        let mut listed = [0u16; GROUP_LENGTH];
        for group in self.symbols.chunks_mut(GROUP_LENGTH) {
            let mut listed_count = 0;
            for (index, walk) in (0..).zip(&*group) {
                listed[listed_count] = index;
                listed_count += usize::from(walk.indices.peek() < end);
            }
            while listed_count > 0 {
                let mut kept_count = 0;
                for at in 0..listed_count {
                    let index = listed[at];
                    let walk = &mut group[usize::from(index)];
                    #[expect(clippy::cast_possible_truncation, reason = "an index of the block")]
                    let place = (walk.indices.peek() - begin as u64) as usize;
                    block[place] ^= CodedSymbol { sum: walk.symbol, check: walk.check };
                    walk.indices.advance();
                    listed[kept_count] = index;
                    kept_count += usize::from(walk.indices.peek() < end);
                }
                listed_count = kept_count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_requests_do_not_move_what_is_computed_ahead() {
        let mut encoder = RibltEncoder::new();
        (1..=50u64).for_each(|id| encoder.add(id, id.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let whole = encoder.clone().next_symbols(2000);
        let mut found = encoder.next_symbols(1000);
        found.extend(encoder.next_symbols(1));
        let place = encoder.ahead.as_ptr();
        // A quarter more than the first request is computed at once.
        for _ in 0..249 {
            found.extend(encoder.next_symbols(1));
            assert_eq!(encoder.ahead.as_ptr(), place);
        }
        found.extend(encoder.next_symbols(750));
        assert_eq!((found.len(), encoder.next_index()), (2000, 2000));
        assert_eq!(found, whole);
    }
}
