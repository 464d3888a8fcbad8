//! Rateless IBLT: an unbounded stream of coded symbols; a difference of d decodes from 1.35·d to
//! 2·d of them.
//!
//! A symbol's keyed hash s seeds a walk through the indices of the coded symbols that contain it:
//! index 0 always, index i with probability 1 / (1 + i/2). A coded symbol is the XOR of its symbols
//! and of their checks, the upper halves of their hashes. The difference of both sides' coded
//! symbols is the stream of the difference of their sets. A coded symbol that contains only one
//! symbol is *pure*: its check matches. That symbol is peeled off all others, which makes more of
//! them pure. The difference is complete when all coded symbols are zero, including index 0, which
//! contains every symbol.
//!
//! Yang, Gilad & Alizadeh 2024, doi:10.1145/3651890.3672219. Their coded symbols have counts; here
//! the side of a symbol is found by a lookup in the local set.

use std::ops::BitXorAssign;

mod decoder;
mod encoder;
mod indices;

#[cfg(test)]
mod riblt_test;

pub use decoder::{Inconsistent, RibltDecoder};
pub use encoder::RibltEncoder;
pub use indices::Indices;

/// The sum of the symbols at one index.
///
/// ```
/// use umbel_sketch::CodedSymbol;
///
/// let mut sum = CodedSymbol::of(5, 0x0000_0007_dead_beef);
/// assert_eq!(sum, CodedSymbol { sum: 5, check: 7 });
/// sum ^= CodedSymbol::of(6, 0x0000_0001_0000_0000);
/// assert_eq!(sum, CodedSymbol { sum: 3, check: 6 });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CodedSymbol {
    /// XOR of the symbols.
    pub sum: u64,
    /// XOR of the upper halves of their hashes.
    pub check: u32,
}

impl CodedSymbol {
    /// The coded symbol of one symbol, by its keyed hash.
    #[inline]
    #[must_use]
    pub const fn of(symbol: u64, check_hash: u64) -> Self {
        Self { sum: symbol, check: (check_hash >> 32) as u32 }
    }

    /// Whether it contains nothing.
    #[inline]
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.sum == 0 && self.check == 0
    }
}

impl BitXorAssign for CodedSymbol {
    #[inline]
    fn bitxor_assign(&mut self, other: Self) {
        self.sum ^= other.sum;
        self.check ^= other.check;
    }
}
