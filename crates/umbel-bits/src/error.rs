//! What can be wrong with coded bits: expected and actual, in every variant.

use thiserror::Error;

use crate::limits::{ANS_RATIO_MAX, ANS_RATIO_MIN, LOW_BITS_MAX};

/// Why bits are no codes of ours. Refuse the message: reading it again gives the same error. The
/// reader stands somewhere inside the refused code and is of no further use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The bits end inside a code. Check that the message arrived whole.
    #[error("bits end too early: {needed} needed, {left} left")]
    OutOfBits {
        /// Number of bits that the code needs at least.
        needed: u64,
        /// Number of bits that were left.
        left: u64,
    },
    /// The parameter is none of a code. Refuse the message, or fix the caller.
    #[error("parameter of {low_bits} low bits, expected at most {LOW_BITS_MAX}")]
    LowBits {
        /// Number of low bits that was asked for.
        low_bits: u32,
    },
    /// A value was escaped that has a regular code. Refuse the message: values have one code each.
    #[error("value {value} is escaped, but its regular code is shorter")]
    NeedlessEscape {
        /// The escaped value.
        value: u64,
    },
    /// The code stands for a value of more than 64 bits. Refuse the message.
    #[error("code of quotient {quotient} exceeds 64 bits")]
    Overflow {
        /// Quotient that was read, below the escape.
        quotient: u32,
    },
    /// Fewer bits are left than so many codes take at least. Refuse the message; nothing was
    /// allocated for it.
    #[error("{count} codes need at least {bits_min} bits, {left} left")]
    TooManyCodes {
        /// Number of codes that were announced.
        count: u64,
        /// Number of bits that they take at least.
        bits_min: u64,
        /// Number of bits that were left.
        left: u64,
    },
    /// A gap leads beyond the end of the list's space. Refuse the message.
    #[error("gap {gap} from {from} leads beyond the end {end}")]
    BeyondEnd {
        /// Where the gap begins.
        from: u64,
        /// The gap.
        gap: u64,
        /// What positions or indexes must be below.
        end: u64,
    },
    /// More follows the last code than the rest of its byte. Refuse the message.
    #[error("{left} bits left after the last code, expected fewer than 8")]
    TrailingBits {
        /// Number of bits that were left.
        left: u64,
    },
    /// The rest of the last byte is not zero. Refuse the message.
    #[error("padding bits are {bits:#b}, expected 0")]
    Padding {
        /// The padding as a number.
        bits: u64,
    },
    /// The ratio is none of an ANS gap code. Refuse the message, or fix the caller.
    #[error("ratio {ratio}, expected {ANS_RATIO_MIN} to {ANS_RATIO_MAX}")]
    AnsRatio {
        /// The ratio that was asked for.
        ratio: u8,
    },
    /// A gap of an ANS gap code has more than 64 bits. Refuse the message.
    #[error("gap with quotient {quotient} and {low_bits} low bits exceeds 64 bits")]
    GapOverflow {
        /// Quotient that was read; if it exceeds 64 bits itself, what is escaped of it.
        quotient: u64,
        /// Number of low bits.
        low_bits: u32,
    },
    /// Decoding ended in a state that no encoder starts from. Refuse the message: it is damaged, or
    /// its count is wrong.
    #[error("automaton {lane} ends in state {state}, expected 0")]
    AnsEndState {
        /// Which of the automata that take turns.
        lane: u8,
        /// The state.
        state: u32,
    },
}

/// A probability outside (0, 1]. Fix the caller.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[error("probability {probability}, expected one above 0 and at most 1")]
pub struct ProbabilityOutOfRange {
    /// The number that was given.
    pub probability: f64,
}
