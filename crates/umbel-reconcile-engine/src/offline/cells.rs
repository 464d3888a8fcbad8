//! The coded symbols of a set at fixed indices; symbols may be added in any order.

use umbel_sketch::{CodedSymbol, Indices};

use super::super::keys::SessionKey;
use super::super::table::top_bits;

/// A coded symbol, and the number of symbols in it.
///
/// ```
/// use umbel_reconcile_engine::SketchCell;
///
/// assert_eq!(SketchCell::default().count, 0);
/// assert!(SketchCell::default().coded.is_zero());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SketchCell {
    /// XOR of symbols and of their checks.
    pub coded: CodedSymbol,
    /// Number of symbols modulo 4. In a difference of two cells that holds a single symbol, it tells the
    /// side.
    pub count: u8,
}

impl SketchCell {
    /// The difference of two cells: a symbol only in this one counts 1, a symbol only in the other one 3.
    pub(super) fn minus(self, other: Self) -> Self {
        let mut coded = self.coded;
        coded ^= other.coded;
        Self { coded, count: self.count.wrapping_sub(other.count) & 3 }
    }
}

/// The coded symbols with the lowest indices, and the symbol sum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CodedSums {
    pub(super) symbol_bits: u8,
    pub(super) cells: Vec<SketchCell>,
    /// Sum of the symbols' second checks.
    pub(super) symbol_sum: u64,
}

impl CodedSums {
    pub(super) fn new(symbol_bits: u8, count: usize) -> Self {
        Self { symbol_bits, cells: vec![SketchCell::default(); count], symbol_sum: 0 }
    }

    /// Empty sums of the same shape.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.symbol_bits, self.cells.len())
    }

    /// Adds an item by its 64-bit symbol.
    pub(crate) fn add(&mut self, key: &SessionKey, symbol: u64) {
        let symbol = top_bits(symbol, self.symbol_bits);
        let check_hash = key.check(symbol);
        let coded = CodedSymbol::of(symbol, check_hash);
        for index in Indices::new(check_hash) {
            let cell = usize::try_from(index).ok().and_then(|index| self.cells.get_mut(index));
            let Some(cell) = cell else { break };
            cell.coded ^= coded;
            cell.count = (cell.count + 1) & 3;
        }
        self.symbol_sum = self.symbol_sum.wrapping_add(key.second_check(symbol));
    }

    /// Adds all symbols of other sums, which must have at least as many cells.
    pub(crate) fn add_all(&mut self, more: &Self) {
        for (cell, other) in self.cells.iter_mut().zip(&more.cells) {
            cell.coded ^= other.coded;
            cell.count = (cell.count + other.count) & 3;
        }
        self.symbol_sum = self.symbol_sum.wrapping_add(more.symbol_sum);
    }

    /// Removes all symbols of other sums, which must have at least as many cells.
    pub(super) fn remove_all(&mut self, gone: &Self) {
        for (cell, other) in self.cells.iter_mut().zip(&gone.cells) {
            *cell = cell.minus(*other);
        }
        self.symbol_sum = self.symbol_sum.wrapping_sub(gone.symbol_sum);
    }
}
