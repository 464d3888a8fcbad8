//! Tables of the ANS gap code: frequencies, and the automaton's steps forward and back.
//!
//! The frequencies of quotients 0, 1, … are those of a geometric distribution, rounded to 1024ths.
//! They are computed with integers alone, so that they are the same everywhere and for ever:
//!
//! ```text
//! weight(0) = (256 − ratio) · 2^24     weight(q+1) = ⌊weight(q) · ratio / 256⌋      in units of 2^-32
//! frequency(q) = ⌊weight(q) / 2^22 + 1/2⌋
//! ```
//!
//! up to the first that is below 2 or leaves less than 2 for the rest; the rest belongs to all
//! longer quotients together, the *escape*. Each symbol gets as many of the 1024 states as its
//! frequency says, spread by a fixed stride (Duda 2013, arXiv:1311.2540; the stride is that of
//! Collet's FSE). The i-th state of a symbol of frequency f, in ascending order and from i = 0,
//! stands for the number x = f + i; the state after it is x · 2^b − 1024 plus the next b bits of
//! the stream, with the one b that brings the sum into 0..1024.

/// Logarithm of the number of states: what a state costs to send.
pub(super) const STATE_BITS: u32 = 10;

/// Number of states. Twice as many would save 0.001 bit a gap and take twice as long to build.
const STATE_COUNT: u16 = 1 << STATE_BITS;

/// Room for an entry of each state.
const TABLE_LEN: usize = STATE_COUNT as usize;

/// Odd, so that it visits every state once: 5/8 of them and 3.
const STRIDE: usize = TABLE_LEN / 2 + TABLE_LEN / 8 + 3;

/// Room for the symbols of every ratio, escape included; the largest ratio has 60.
const SYMBOL_COUNT_MAX: usize = 64;

/// Set in the symbol of a decoding step if it is the escape.
pub(super) const ESCAPE_MARK: u8 = 0x80;

/// The frequencies of the regular quotients, then that of the escape. Their sum is 1024.
pub(super) fn frequencies(ratio: u8) -> Vec<u16> {
    let ratio = u64::from(ratio);
    let mut weight = (256 - ratio) << 24;
    let mut left = u64::from(STATE_COUNT);
    let mut all = Vec::with_capacity(SYMBOL_COUNT_MAX);
    loop {
        let rounded = (weight + (1 << 21)) >> 22;
        let frequency = if rounded < 2 || rounded + 2 > left { left } else { rounded };
        #[expect(clippy::cast_possible_truncation, reason = "at most 1024")]
        all.push(frequency as u16);
        left -= frequency;
        if left == 0 {
            return all;
        }
        weight = (weight * ratio) >> 8;
    }
}

/// The symbol of each state.
fn spread(frequencies: &[u16]) -> [u8; TABLE_LEN] {
    let mut symbols = [0; TABLE_LEN];
    let mut state = 0;
    for (symbol, &frequency) in (0u8..).zip(frequencies) {
        for _ in 0..frequency {
            *at_mut(&mut symbols, state) = symbol;
            state += STRIDE;
        }
    }
    symbols
}

/// What a decoder does in one state.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct DecodeStep {
    /// The next state, less the bits that are still to be read.
    pub(super) base: u16,
    /// Number of those bits, 1 to [`STATE_BITS`].
    pub(super) width: u8,
    /// The quotient, or that of the escape with [`ESCAPE_MARK`].
    pub(super) symbol: u8,
}

/// The decoder's step in every state.
#[derive(Clone, Debug)]
pub(super) struct DecodeTable {
    steps: [DecodeStep; TABLE_LEN],
}

impl DecodeTable {
    pub(super) fn new(ratio: u8) -> Self {
        let frequencies = frequencies(ratio);
        let escape = frequencies.len() - 1;
        let mut numbers = [0u16; SYMBOL_COUNT_MAX];
        numbers.iter_mut().zip(&frequencies).for_each(|(number, frequency)| *number = *frequency);
        let steps = spread(&frequencies).map(|symbol| {
            let number = at_mut(&mut numbers, symbol.into());
            let width = STATE_BITS - number.ilog2();
            let base = (*number << width) & (STATE_COUNT - 1);
            *number += 1;
            let mark = if usize::from(symbol) == escape { ESCAPE_MARK } else { 0 };
            #[expect(clippy::cast_possible_truncation, reason = "at most 10")]
            DecodeStep { base, width: width as u8, symbol: symbol | mark }
        });
        Self { steps }
    }

    /// The step in this state, which is below 1024.
    #[inline]
    pub(super) fn step(&self, state: u32) -> DecodeStep {
        at(&self.steps, state as usize)
    }
}

/// What an encoder does with one symbol. Its states are the decoder's plus 1024.
#[derive(Clone, Copy, Default, Debug)]
struct EncodeStep {
    /// Added to the state, this gives 2^16 times the number of bits to write, and less than 2^16
    /// more.
    width_term: u32,
    /// Added to the state without those bits, the index of the next state; wraps around.
    first: u32,
}

/// The encoder's steps: the decoder's, backwards.
#[derive(Debug)]
pub(super) struct EncodeTable {
    steps: [EncodeStep; SYMBOL_COUNT_MAX],
    /// The states of symbol 0 in ascending order, then those of symbol 1, and so on.
    states: [u16; TABLE_LEN],
}

impl EncodeTable {
    /// The first state of an encoder and the last of a decoder, where this is 0.
    pub(super) const INITIAL_STATE: u32 = STATE_COUNT as u32;

    pub(super) fn new(frequencies: &[u16]) -> Self {
        let mut steps = [EncodeStep::default(); SYMBOL_COUNT_MAX];
        let mut next = [0u16; SYMBOL_COUNT_MAX];
        let mut sum = 0u16;
        for ((step, next), &frequency) in steps.iter_mut().zip(&mut next).zip(frequencies) {
            // From frequency · 2^width_max on it takes width_max bits, below that one fewer.
            let width_max = STATE_BITS - frequency.ilog2();
            step.width_term = (width_max << 16) - (u32::from(frequency) << width_max);
            step.first = u32::from(sum).wrapping_sub(frequency.into());
            *next = sum;
            sum += frequency;
        }
        let mut states = [0; TABLE_LEN];
        for (state, symbol) in (STATE_COUNT..).zip(spread(frequencies)) {
            let index = at_mut(&mut next, symbol.into());
            *at_mut(&mut states, (*index).into()) = state;
            *index += 1;
        }
        Self { steps, states }
    }

    /// Codes one symbol in front of those before: the number of bits to write, the bits, and the
    /// next state. From a state of 1024 to 2047 to another one.
    #[inline]
    pub(super) fn step(&self, state: u32, symbol: u16) -> (u32, u32, u32) {
        let step = at(&self.steps, symbol.into());
        let width = (state + step.width_term) >> 16;
        let index = (state >> width).wrapping_add(step.first);
        (width, state & ((1 << width) - 1), at(&self.states, index as usize).into())
    }
}

/// The entry at an index that is below N, a power of two.
#[inline]
#[expect(clippy::indexing_slicing, reason = "masked to the length")]
fn at<T: Copy, const N: usize>(table: &[T; N], index: usize) -> T {
    const { assert!(N.is_power_of_two()) };
    table[index & (N - 1)]
}

/// As [`at`], to write to.
#[inline]
#[expect(clippy::indexing_slicing, reason = "masked to the length")]
fn at_mut<T, const N: usize>(table: &mut [T; N], index: usize) -> &mut T {
    const { assert!(N.is_power_of_two()) };
    &mut table[index & (N - 1)]
}
