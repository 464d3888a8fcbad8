//! Decodes the difference from coded symbols as they arrive.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thiserror::Error;

use super::{CodedSymbol, Indices};

/// Symbols that are removed together: each step of a walk depends on the previous one, so a single
/// walk would take several times as long as one of these interleaved walks.
const BATCH_LENGTH: usize = 8;

/// The coded symbols contradict each other: a symbol was found twice, more symbols were found than
/// there are coded symbols, or something was left after the difference was complete. No set has
/// such coded symbols, unless a check matched a sum by chance, once in 2^32 tests. The decoder
/// cannot be used any more: start again under another key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{symbol_count} symbols of {coded_count} coded symbols contradict each other")]
pub struct Inconsistent {
    /// Number of symbols found so far.
    pub symbol_count: usize,
    /// Number of coded symbols processed so far.
    pub coded_count: usize,
}

/// Peels the difference off the XOR of two streams of coded symbols.
///
/// For any coded symbols, it finds at most as many symbols as it was given coded ones, and takes
/// memory and, except for a logarithm, time in proportion. A complete difference contains no symbol
/// twice.
///
/// ```
/// use umbel_sketch::{CodedSymbol, RibltDecoder, RibltEncoder};
///
/// let hash = |symbol: u64| symbol.wrapping_mul(0x9e37_79b9_7f4a_7c15); // keyed, in earnest
/// let (mut ours, mut theirs) = (RibltEncoder::new(), RibltEncoder::new());
/// (1..=1000).for_each(|symbol| ours.add(symbol, hash(symbol)));
/// (4..=1000).for_each(|symbol| theirs.add(symbol, hash(symbol)));
///
/// let mut decoder = RibltDecoder::new(hash);
/// for (mut coded, other) in ours.next_symbols(20).into_iter().zip(theirs.next_symbols(20)) {
///     coded ^= other;
///     decoder.push(coded)?;
/// }
/// assert!(decoder.is_complete());
/// let mut symbols = decoder.symbols().to_vec();
/// symbols.sort();
/// assert_eq!(symbols, [1, 2, 3]);
/// # Ok::<(), umbel_sketch::Inconsistent>(())
/// ```
#[derive(Clone, Debug)]
pub struct RibltDecoder<H> {
    check_hash: H,
    /// The remainders of the coded symbols, from index 0.
    coded: Vec<Slot>,
    /// Number of those that are not zero.
    non_zero_count: usize,
    /// Indices whose coded symbols changed and may be pure; each at most once.
    changed: Vec<usize>,
    symbols: Vec<u64>,
    is_complete: bool,
    /// Symbols being removed, at most [`BATCH_LENGTH`].
    batch: Vec<Candidate>,
    /// Which symbols of the batch are in which coded symbols.
    visits: Vec<(usize, usize)>,
    /// Where found symbols occur next, beyond the coded symbols so far: index, position in `walks`.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    walks: Vec<(CodedSymbol, Indices)>,
    contradiction: Option<Inconsistent>,
}

/// A coded symbol, and whether its index is in `changed`: one cache line.
#[derive(Clone, Copy, Debug)]
struct Slot {
    sum: u64,
    check: u32,
    is_changed: bool,
}

impl Slot {
    #[inline]
    const fn symbol(self) -> CodedSymbol {
        CodedSymbol { sum: self.sum, check: self.check }
    }
}

/// A symbol that is pure at an index.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    symbol: CodedSymbol,
    index: usize,
    indices: Indices,
    /// Whether the symbol's walk visits the index.
    is_there: bool,
}

impl<H: Fn(u64) -> u64> RibltDecoder<H> {
    /// A decoder without coded symbols. `check_hash` is the keyed hash of a symbol, the same as the
    /// encoders'.
    #[must_use]
    pub const fn new(check_hash: H) -> Self {
        Self {
            check_hash,
            coded: Vec::new(),
            non_zero_count: 0,
            changed: Vec::new(),
            symbols: Vec::new(),
            is_complete: false,
            batch: Vec::new(),
            visits: Vec::new(),
            waiting: BinaryHeap::new(),
            walks: Vec::new(),
            contradiction: None,
        }
    }

    /// Processes the XOR of both sides' next coded symbols.
    ///
    /// # Errors
    /// If the coded symbols contradict each other; every later call fails, too.
    pub fn push(&mut self, coded: CodedSymbol) -> Result<(), Inconsistent> {
        self.take(coded);
        self.peel()
    }

    /// The same for many; faster, because early purity saves no work.
    ///
    /// # Errors
    /// If the coded symbols contradict each other; every later call fails, too.
    pub fn push_all(&mut self, coded: &[CodedSymbol]) -> Result<(), Inconsistent> {
        coded.iter().for_each(|&coded| self.take(coded));
        self.peel()
    }

    /// Whether all symbols of the difference are found. Further coded symbols then change nothing,
    /// unless they contradict.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete && self.contradiction.is_none()
    }

    /// The symbols found, in no order; probably only a part if the difference is not complete.
    #[must_use]
    pub fn symbols(&self) -> &[u64] {
        &self.symbols
    }

    /// Number of coded symbols processed.
    #[must_use]
    pub fn coded_count(&self) -> usize {
        self.coded.len()
    }

    /// Appends a coded symbol, without the symbols that were already found.
    fn take(&mut self, mut coded: CodedSymbol) {
        let index = self.coded.len();
        while let Some(mut first) = self.waiting.peek_mut()
            && first.0.0 == index as u64
        {
            let (symbol, indices) = &mut self.walks[first.0.1];
            coded ^= *symbol;
            indices.advance();
            first.0.0 = indices.peek();
        }
        self.non_zero_count += usize::from(!coded.is_zero());
        self.coded.push(Slot { sum: coded.sum, check: coded.check, is_changed: true });
        self.changed.push(index);
    }

    /// Removes pure symbols until there are none.
    fn peel(&mut self) -> Result<(), Inconsistent> {
        while self.contradiction.is_none() && self.collect_pure() {
            self.walk_together();
            for at in 0..self.batch.len() {
                self.note(at);
            }
            self.remove_batch();
        }
        if self.is_complete && self.non_zero_count > 0 && self.contradiction.is_none() {
            self.contradict();
        }
        if self.non_zero_count == 0 && !self.is_complete && !self.coded.is_empty() {
            self.is_complete = true;
            let mut sorted = self.symbols.clone();
            sorted.sort_unstable();
            if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
                self.contradict();
            }
        }
        self.contradiction.map_or(Ok(()), Err)
    }

    /// Fills the batch with symbols that are pure somewhere; returns whether there are any.
    fn collect_pure(&mut self) -> bool {
        self.batch.clear();
        while self.batch.len() < BATCH_LENGTH
            && let Some(index) = self.changed.pop()
        {
            let slot = &mut self.coded[index];
            slot.is_changed = false;
            let symbol = slot.symbol();
            if symbol.is_zero() {
                continue;
            }
            let check_hash = (self.check_hash)(symbol.sum);
            if CodedSymbol::of(symbol.sum, check_hash) != symbol {
                continue;
            }
            if self.batch.iter().any(|other| other.symbol == symbol) {
                // The same symbol at another index, from which this batch probably removes it.
                slot.is_changed = true;
                self.changed.push(index);
                break;
            }
            let indices = Indices::new(check_hash);
            self.batch.push(Candidate { symbol, index, indices, is_there: false });
        }
        !self.batch.is_empty()
    }

    /// Lists the visits of the batch's symbols, one step of each in turn.
    fn walk_together(&mut self) {
        self.visits.clear();
        let end = self.coded.len() as u64;
        let mut walking = [0; BATCH_LENGTH];
        let mut walking_count = self.batch.len();
        walking.iter_mut().zip(0..).for_each(|(at, index)| *at = index);
        while walking_count > 0 {
            let mut kept_count = 0;
            for place in 0..walking_count {
                let at = walking[place];
                let candidate = &mut self.batch[at];
                #[expect(clippy::cast_possible_truncation, reason = "below a length")]
                let index = candidate.indices.peek() as usize;
                candidate.is_there |= index == candidate.index;
                self.visits.push((at, index));
                candidate.indices.advance();
                walking[kept_count] = at;
                kept_count += usize::from(candidate.indices.peek() < end);
            }
            walking_count = kept_count;
        }
    }

    /// Records a symbol of the batch as found. If the symbol is a sum of several whose check
    /// matches by chance, its walk misses the index where it seemed pure, and it is discarded.
    fn note(&mut self, at: usize) {
        let Candidate { symbol, indices, is_there, .. } = self.batch[at];
        if !is_there {
            self.batch[at].symbol = CodedSymbol::default();
        } else if self.is_complete || self.symbols.len() >= self.coded.len() {
            self.contradict();
        } else {
            self.symbols.push(symbol.sum);
            self.waiting.push(Reverse((indices.peek(), self.walks.len())));
            self.walks.push((symbol, indices));
        }
    }

    /// Removes the batch's symbols from the coded symbols that they visit.
    fn remove_batch(&mut self) {
        for &(at, index) in &self.visits {
            let symbol = self.batch[at].symbol;
            if symbol.is_zero() {
                continue;
            }
            let slot = &mut self.coded[index];
            let was_zero = slot.symbol().is_zero();
            slot.sum ^= symbol.sum;
            slot.check ^= symbol.check;
            let is_zero = slot.symbol().is_zero();
            self.non_zero_count += usize::from(was_zero);
            self.non_zero_count -= usize::from(is_zero);
            if !is_zero && !slot.is_changed {
                slot.is_changed = true;
                self.changed.push(index);
            }
        }
    }

    fn contradict(&mut self) {
        let (symbol_count, coded_count) = (self.symbols.len(), self.coded.len());
        self.contradiction = Some(Inconsistent { symbol_count, coded_count });
    }
}
