//! The difference from coded symbols, as they come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thiserror::Error;

use super::{CodedSymbol, Indices};

/// Symbols that are removed together: a step of a walk waits for the one before, so a single walk
/// takes several times as long as a step of each of these in turn.
const BATCH_LENGTH: usize = 8;

/// The coded symbols contradict each other: a symbol was found twice, or more of them than coded
/// symbols, or something was left after the difference was complete. No set has such coded symbols, unless a check
/// fitted a sum by chance, once in 2^32 tests. The decoder is of no further use: start again under
/// another key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{symbol_count} symbols of {coded_count} coded symbols contradict each other")]
pub struct Inconsistent {
    /// Number of symbols that were found by then.
    pub symbol_count: usize,
    /// Number of coded symbols that were taken.
    pub coded_count: usize,
}

/// Peels the difference off the XOR of two streams of coded symbols.
///
/// Whatever the coded symbols are, it finds at most as many symbols as it was given coded ones, and
/// takes memory and, but for a logarithm, time in proportion. A difference that is complete holds no
/// symbol twice.
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
    /// What is left of the coded symbols, from index 0.
    coded: Vec<Slot>,
    /// Number of those that are not zero.
    non_zero_count: usize,
    /// Indices whose coded symbols changed and may be pure; each at most once.
    changed: Vec<usize>,
    symbols: Vec<u64>,
    is_complete: bool,
    /// Symbols at work, at most [`BATCH_LENGTH`].
    batch: Vec<Candidate>,
    /// Which of the batch are in which coded symbols.
    visits: Vec<(usize, usize)>,
    /// Where found symbols occur next, beyond the coded symbols so far: index, place in `walks`.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    walks: Vec<(CodedSymbol, Indices)>,
    contradiction: Option<Inconsistent>,
}

/// A coded symbol, and whether its index waits in `changed`: one cache line.
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
    /// Whether the symbol's walk comes to the index.
    is_there: bool,
}

impl<H: Fn(u64) -> u64> RibltDecoder<H> {
    /// No coded symbol yet. `check_hash` is the keyed hash of a symbol, the same as the encoders'.
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

    /// Takes the XOR of both sides' next coded symbols.
    ///
    /// # Errors
    /// If the coded symbols contradict each other; from then on always.
    pub fn push(&mut self, coded: CodedSymbol) -> Result<(), Inconsistent> {
        self.take(coded);
        self.peel()
    }

    /// The same for many, faster: what becomes pure early saves no work.
    ///
    /// # Errors
    /// If the coded symbols contradict each other; from then on always.
    pub fn push_all(&mut self, coded: &[CodedSymbol]) -> Result<(), Inconsistent> {
        coded.iter().for_each(|&coded| self.take(coded));
        self.peel()
    }

    /// Whether all symbols of the difference are found. More coded symbols change nothing then,
    /// unless they contradict.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete && self.contradiction.is_none()
    }

    /// What was found, in no order; of a difference that is not complete a part, probably.
    #[must_use]
    pub fn symbols(&self) -> &[u64] {
        &self.symbols
    }

    /// Number of coded symbols that were taken.
    #[must_use]
    pub fn coded_count(&self) -> usize {
        self.coded.len()
    }

    /// Adds a coded symbol, without what was found already.
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

    /// Removes symbols that are alone somewhere, until none is.
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

    /// Fills the batch with symbols that are pure somewhere; whether there are any.
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
                // Once more at another index, where it is gone, probably, after this batch.
                slot.is_changed = true;
                self.changed.push(index);
                break;
            }
            let indices = Indices::new(check_hash);
            self.batch.push(Candidate { symbol, index, indices, is_there: false });
        }
        !self.batch.is_empty()
    }

    /// Lists the visits of the batch's symbols, a step of each in turn.
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

    /// Notes that a symbol of the batch is found; or empties it, if it is but a sum of several whose
    /// check fits by chance: then its walk misses the index where it seemed to be pure.
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

    /// Takes the batch's symbols off the coded symbols that they visit.
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
